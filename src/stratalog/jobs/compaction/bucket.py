"""Partitions of a bucket: their segments, and how new ones replace them.

A publication (`remote.publication`) makes the new segments of a partition visible and removes the old ones in one step.
The objects of the old ones stay for a while, for readers that still use them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from uuid import UUID

from stratalog.config import LogConfig
from stratalog.errors import RemoteStorageError
from stratalog.inspect import ByteSources, Place, PlaceTier, without_covered
from stratalog.jobs.compaction.plan import CompactionPlan, topic_config
from stratalog.jobs.compaction.upload import Upload
from stratalog.jobs.compaction.values import Rewritten, SourceSegment
from stratalog.log.cleaner import LastRecord
from stratalog.log.format import LARGE, ProducerSnapshotEntry, decode_epochs, producer_snapshot
from stratalog.log.index import AbortedTransaction, decode_entries
from stratalog.remote.api import TopicIdPartition, is_within_lineage, lineage_of
from stratalog.remote.storage import ObjectKind, PlainView, SegmentManifest


@dataclass(frozen=True, slots=True)
class BucketPlan:
    """A partition of a bucket. `manifests` are those of the plan's sources; `covered` ones lie within one of them."""

    partition: TopicIdPartition
    plan: CompactionPlan
    manifests: tuple[SegmentManifest, ...]
    covered: tuple[SegmentManifest, ...] = field(repr=False)

    def replaced_by(self, new: Sequence[SegmentManifest]) -> list[SegmentManifest]:
        """Return the segments that are obsolete once `new` exist: their sources, and covered segments."""
        gone = [
            manifest
            for manifest in self.manifests
            if any(_covers(each, manifest) and each.segment_id != manifest.segment_id for each in new)
        ]
        return [*gone, *self.covered]


def partitions_of(manifests: Iterable[SegmentManifest]) -> list[list[SegmentManifest]]:
    """Sorted manifests (`list_remote_segments`) by partition."""
    return [list(group) for _, group in groupby(manifests, key=lambda each: each.topic_id_partition)]


def config_of(manifests: Sequence[SegmentManifest], overrides: Mapping[str, str] | None) -> LogConfig:
    """Return the topic's configuration from the newest segment, with `overrides`. Raises InvalidConfigError."""
    properties = {**(manifests[-1].topic_config or {}), **(overrides or {}), "preallocate": "false"}
    is_large = any(each.offset_index_entry_size == LARGE.entry_size for each in manifests)
    return topic_config(properties, is_large=is_large)


def bucket_plan(
    places: ByteSources,
    manifests: Sequence[SegmentManifest],
    config: LogConfig,
    *,
    first_dirty_offset: int,
    now_ms: int,
    job: UUID,
) -> BucketPlan:
    """Plan the compaction of a partition, given all its manifests. New segments get ids of `job`.

    Of two segments with the same offsets, the newer one is used. Segments of an abandoned lineage are left alone.
    Raises RemoteStorageError if others overlap partly, or an object cannot be read.
    """
    newest_first = sorted(
        manifests,
        key=lambda each: (each.base_offset, -each.end_offset, -each.event_timestamp, each.segment_id),
    )
    own = _of_lineage(places.store, newest_first)
    taken = without_covered(own)
    for before, after in pairwise(taken):
        if after.base_offset <= before.end_offset:
            raise RemoteStorageError(
                f"{before.topic}-{before.partition}: segments {before.key()} and {after.key()} overlap in part"
                f" (offsets {after.base_offset} to {before.end_offset}); see `stratalog tier audit`"
            )
    newest = taken[-1]
    producers = _producers(places.store, newest)
    stable = _stable(taken, producers)
    end = stable[-1].end_offset + 1 if stable else taken[0].base_offset
    plan = CompactionPlan(
        topic=newest.topic,
        partition=newest.partition,
        sources=[_source(each, next_base) for each, next_base in _with_next(stable) if end > first_dirty_offset],
        aborted=[_aborted(places.store, each) for each in taken],
        first_dirty_offset=first_dirty_offset,
        end_offset=end,
        high_watermark=newest.end_offset + 1,
        # Idle producers count too: a job does not know for how long the brokers remember them.
        last_records={entry.producer_id: LastRecord(entry.last_offset, entry.epoch) for entry in producers},
        config=config,
        now_ms=now_ms,
        places=places,
        directory="",
        upload=lambda segments: Upload(
            str(places.remote_url),
            dict(places.remote_options),
            tuple(taken[number] for number in segments),
            job,
        ),
    )
    ids = {each.segment_id for each in taken}
    covered = tuple(each for each in own if each.segment_id not in ids)
    return BucketPlan(newest.topic_id_partition, plan, tuple(taken), covered)


def _of_lineage(view: PlainView, manifests: Sequence[SegmentManifest]) -> list[SegmentManifest]:
    """Return the segments whose leader epochs fit the newest one; the others belong to an abandoned lineage."""
    newest = max(manifests, key=lambda each: (max(each.leader_epochs), each.end_offset, each.event_timestamp))
    epochs = decode_epochs(view.reader.read(newest, ObjectKind.LEADER_EPOCHS), newest.key())
    lineage = lineage_of(epochs) or dict(newest.leader_epochs)
    end = newest.end_offset + 1
    return [each for each in manifests if is_within_lineage(each.metadata(), end, lineage)]


def _stable(manifests: Sequence[SegmentManifest], producers: Sequence[ProducerSnapshotEntry]) -> list[SegmentManifest]:
    """Return the segments that end before the first undecided transaction."""
    open_from = [entry.current_txn_first_offset for entry in producers]
    bound = min((offset for offset in open_from if offset >= 0), default=manifests[-1].end_offset + 1)
    return [each for each in manifests if each.end_offset < bound]


def _with_next(manifests: Sequence[SegmentManifest]) -> list[tuple[SegmentManifest, int]]:
    """Return each segment with the offset after it: offsets between two segments belong to the first."""
    ends = [*(each.base_offset for each in manifests[1:]), *(each.end_offset + 1 for each in manifests[-1:])]
    return list(zip(manifests, ends, strict=True))


def _source(manifest: SegmentManifest, end_offset: int) -> SourceSegment:
    def size(kind: ObjectKind) -> int:
        return manifest.objects[kind].size if kind in manifest.objects else 0

    return SourceSegment(
        base_offset=manifest.base_offset,
        end_offset=end_offset,
        size=manifest.segment_size_in_bytes,
        place=Place(PlaceTier.REMOTE, manifest.key()),
        name=manifest.key(),
        last_modified_ms=manifest.max_timestamp,
        offset_index_size=size(ObjectKind.OFFSET_INDEX),
        time_index_size=size(ObjectKind.TIME_INDEX),
    )


def _aborted(view: PlainView, manifest: SegmentManifest) -> list[AbortedTransaction]:
    if manifest.txn_index_empty or ObjectKind.TXN_INDEX not in manifest.objects:
        return []
    return list(decode_entries(view.reader.read(manifest, ObjectKind.TXN_INDEX), manifest.key()))


def _producers(view: PlainView, newest: SegmentManifest) -> list[ProducerSnapshotEntry]:
    """Return the producers at the end of a partition. Raises RemoteStorageError if there is no snapshot."""
    kind = ObjectKind.PRODUCER_SNAPSHOT
    if kind not in newest.objects:
        raise RemoteStorageError(
            f"{newest.key()} has no producer snapshot, so the transactions that are open after it are unknown"
        )
    return producer_snapshot.decode(view.reader.read(newest, kind), newest.key(kind))


def _covers(one: SegmentManifest, other: SegmentManifest) -> bool:
    return one.base_offset <= other.base_offset and other.end_offset <= one.end_offset


def new_manifests(rewritten: Sequence[Rewritten]) -> list[SegmentManifest]:
    return [new.manifest for new in rewritten if new.manifest is not None]
