"""Rebuild the producer state and leader epochs of a partition before one of its segments, from the bucket.

A segment's objects hold the state at its end, so the snapshot of the previous segment is the state at its start. If
that snapshot is missing or damaged, an earlier one is used, and the batches after it are replayed. If two segments end
at the same offset (after an election two leaders may copy it), the one with the later leader epoch is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from uuid import UUID

from stratalog.errors import (
    CorruptCheckpointError,
    CorruptRecordError,
    CorruptSnapshotError,
    DamagedRemoteObjectError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
)
from stratalog.inspect import Manifest, ManifestFault, parse_key, read_manifest
from stratalog.jobs.fsck import Replay
from stratalog.log.format import EpochEntry, ProducerSnapshotEntry, decode_epochs, producer_snapshot
from stratalog.log.index import AbortedTransaction
from stratalog.records import RAISE_CUT, RecordBatch, walk
from stratalog.remote.api import is_within_lineage, lineage_of
from stratalog.remote.storage import (
    ObjectKind,
    PlainView,
    SegmentManifest,
    object_key,
    parse_manifest_key,
    partition_directory,
)

_RANGE_BYTES = 8 * 1024 * 1024
_NO_END = 2**63

#: How many segments that begin before an offset are read once one contains it. More exist only after elections.
_LOOKED_AT = 8
_NO_MANIFEST = ManifestFault("there is no manifest")


class NotProvedError(RemoteStorageError):
    """The objects do not prove what a mend would write, so nothing was changed."""


@dataclass
class Producers:
    """The producers of a partition, batch by batch.

    `begins_at` is the first known offset, None if all are known. A transaction that began before it counts as begun
    there, which makes no difference to a reader that starts there.
    """

    replay: Replay
    begins_at: int | None = None
    _aborters: dict[int, int] = field(default_factory=dict)

    def see(self, batch: RecordBatch) -> None:
        """Take the next batch of a producer. Raises CorruptRecordError if it does not match its CRC."""
        batch.ensure_valid()
        if batch.is_control:
            self._aborters[batch.base_offset] = batch.producer_id
        self.replay.see(batch)

    def aborted_from(self, offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with a marker at or after `offset`, by marker."""
        found = [each for each in self.replay.aborted if each.last_offset >= offset]
        begin = self.begins_at
        if begin is None:
            return found
        # A transaction that was open before `begin` may still be open, so a search must not stop at its end.
        found = [each._replace(last_stable_offset=min(each.last_stable_offset, begin)) for each in found]
        found += (
            AbortedTransaction(self._aborters[marker], begin, marker, begin)
            for marker in self.replay.unknown_aborts
            if marker >= offset
        )
        return sorted(found, key=lambda each: each.last_offset)


class SegmentHistory:
    """The history of one segment. `view` decrypts contents if it has the key. Only reads."""

    def __init__(self, view: PlainView, manifest: SegmentManifest) -> None:
        self._view = view
        self._manifest = manifest
        self._read: dict[str, Manifest] = {}

    # --- producers --------------------------------------------------------------------------------------------------

    def producers_behind(self) -> Producers:
        """Return the producers at the end of the segment. Errors as `producers_before`, and CorruptRecordError."""
        producers = self.producers_before()
        self._feed(producers, self._manifest, _NO_END)
        return producers

    def producers_before(self) -> Producers:
        """Return the producers at the start of the segment.

        Raises NotProvedError if segments are missing between existing ones, and other RemoteStorageErrors.
        """
        to_replay: list[tuple[SegmentManifest, int]] = []
        at = self._manifest.base_offset
        while (found := self._known_producers(at)) is None:
            before = self._segment_up_to(at)
            if before is None:
                if self._is_anything_below(at):
                    raise NotProvedError(
                        f"{self._manifest.key()}: the producer state before offset {at} is unknown, because the "
                        "previous segment is missing"
                    )
                found = Producers(Replay(is_complete=False), begins_at=at)
                break
            to_replay.append((before, at))
            at = before.base_offset
        for manifest, end in reversed(to_replay):
            self._feed(found, manifest, end)
        return found

    def _known_producers(self, offset: int) -> Producers | None:
        """Return the producers at an offset if that needs no records."""
        if offset == 0:
            return Producers(Replay(is_complete=True))
        before = self._segment_up_to(offset)
        if before is None or before.end_offset + 1 != offset:
            return None
        entries = self._snapshot(before)
        if entries is None:
            return None
        replay = Replay(is_complete=True)
        replay.load(entries)
        return Producers(replay)

    def _snapshot(self, manifest: SegmentManifest) -> list[ProducerSnapshotEntry] | None:
        try:
            return producer_snapshot.decode(self._content(manifest, ObjectKind.PRODUCER_SNAPSHOT))
        except (DamagedRemoteObjectError, RemoteResourceNotFoundError, CorruptSnapshotError):
            return None

    def _feed(self, producers: Producers, manifest: SegmentManifest, end: int) -> None:
        """Pass the batches of a segment below offset `end` to `producers`."""
        try:
            for batch in self._batches(manifest):
                if batch.last_offset >= end:
                    break
                if batch.producer_id >= 0:
                    producers.see(batch)
        except CorruptRecordError as error:
            raise NotProvedError(f"{manifest.key()} is damaged: {error}") from error

    def _batches(self, manifest: SegmentManifest) -> Iterator[RecordBatch]:
        """Return every batch. Raises CorruptRecordError unless all are complete."""
        batches = walk(
            lambda size, at: self._view.reader.read_range(manifest, ObjectKind.LOG, at, at + size),
            manifest.segment_size_in_bytes,
            on_damage=RAISE_CUT,
            window_size=_RANGE_BYTES,
        )
        return (batch for _, batch in batches)

    # --- leader epochs ----------------------------------------------------------------------------------------------

    def leader_epochs(self) -> list[EpochEntry]:
        """Return the leader epochs up to the end of the segment: those of the previous segment, and its own."""
        chain = [self._manifest]
        known: list[EpochEntry] = []
        while not known and (before := self._segment_up_to(chain[-1].base_offset)) is not None:
            known = self._epochs_of(before)
            chain.append(before)
        for manifest in reversed(chain):
            known = [entry for entry in known if entry.start_offset < manifest.base_offset or manifest is chain[-1]]
            for epoch, start in sorted(manifest.leader_epochs.items()):
                if not known or epoch > known[-1].epoch:
                    known.append(EpochEntry(epoch, start))
        return known

    def _epochs_of(self, manifest: SegmentManifest) -> list[EpochEntry]:
        """Return the epochs in the object, none if it is damaged or missing."""
        try:
            return decode_epochs(self._content(manifest, ObjectKind.LEADER_EPOCHS))
        except (DamagedRemoteObjectError, RemoteResourceNotFoundError, CorruptCheckpointError):
            return []

    # --- the segments before ----------------------------------------------------------------------------------------

    @cached_property
    def _lineage(self) -> dict[int, int]:
        """The lineage according to the segment's own object; empty if that is damaged."""
        entries = self._epochs_of(self._manifest)
        return lineage_of(entries) if entries else {}

    @cached_property
    def _others(self) -> list[tuple[int, str | None]]:
        """The base offset and manifest key of every other segment, in descending order of base offsets."""
        found: dict[UUID, tuple[int, str | None]] = {}
        for info in self._view.inner.list(partition_directory(self._manifest.topic_id_partition)):
            segment = parse_key(info.key)
            if segment is None or segment.segment_id.id == self._manifest.segment_id:
                continue
            if parse_manifest_key(info.key) is not None:
                found[segment.segment_id.id] = segment.start_offset, info.key
            else:
                found.setdefault(segment.segment_id.id, (segment.start_offset, None))
        return sorted(found.values(), key=lambda each: each[0], reverse=True)

    def _segment_up_to(self, offset: int) -> SegmentManifest | None:
        """Return a segment of the same lineage that has the offset before this one, preferably one that ends there."""
        found: list[SegmentManifest] = []
        for number, manifest in enumerate(self._below(offset)):
            if isinstance(manifest, SegmentManifest) and manifest.end_offset + 1 >= offset:
                found.append(manifest)
            if found and number >= _LOOKED_AT:
                break
        return max(
            found,
            key=lambda m: (_epoch_at(m, offset - 1), m.end_offset + 1 == offset, m.event_timestamp),
            default=None,
        )

    def _is_anything_below(self, offset: int) -> bool:
        return next(self._below(offset), None) is not None

    def _below(self, offset: int) -> Iterator[Manifest]:
        """Yield segments that begin before an offset and may be of the same lineage, by descending base offset."""
        for base, key in self._others:
            if base >= offset:
                continue
            manifest = _NO_MANIFEST if key is None else self._manifest_at(key)
            if not isinstance(manifest, SegmentManifest) or self._is_same_history(manifest, offset):
                yield manifest

    def _manifest_at(self, key: str) -> Manifest:
        if key not in self._read:
            self._read[key] = read_manifest(self._view.inner, key) or _NO_MANIFEST
        return self._read[key]

    def _is_same_history(self, other: SegmentManifest, offset: int) -> bool:
        if self._lineage and not is_within_lineage(other.metadata(), _NO_END, self._lineage):
            return False
        return _epoch_at(other, offset - 1) <= min(self._manifest.leader_epochs)

    def _content(self, manifest: SegmentManifest, kind: ObjectKind) -> bytes:
        """Return one of the small objects, whole and checked."""
        if kind not in manifest.objects:
            raise RemoteResourceNotFoundError(f"{object_key(manifest, kind)}: the segment was copied without it")
        return bytes(self._view.reader.read(manifest, kind))


def _epoch_at(manifest: SegmentManifest, offset: int) -> int:
    return max((epoch for epoch, start in manifest.leader_epochs.items() if start <= offset), default=-1)
