"""Choose the segments of a partition to restore from a bucket. Pure: facts in, a plan out.

The newest segment determines the lineage: the complete segment with the largest last leader epoch, then the largest end
offset. Its leader epochs are those of the partition. Segments that do not fit them belong to an abandoned lineage, and
stay in the bucket. Every segment gets a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

from stratalog.inspect import ManifestFault, PartitionObjects, SegmentObjects, group_objects
from stratalog.log.format import EpochEntry
from stratalog.remote.api import RemoteLogSegmentMetadata, TopicIdPartition, is_within_lineage, lineage_of
from stratalog.remote.storage import ObjectKind, SegmentManifest, object_key, stored_objects


class Verdict(Enum):
    """The verdict on a segment. The value is printed."""

    TAKEN = "taken"
    COVERED = "taken, though another one has the same offsets"
    OTHER_LINEAGE = "left: belongs to an abandoned lineage"
    OLDER_TOPIC = "left: belongs to an earlier topic of the same name"
    UNKNOWN_TOPIC = "left: belongs to a topic that the data directory does not have"
    AFTER_TIME = "left: copied after the time asked for"
    UNFINISHED = "left: its copy was not finished"
    DAMAGED = "left: damaged"
    FROM_THE_FUTURE = "left: written by a later version"

    @property
    def is_taken(self) -> bool:
        return self in (Verdict.TAKEN, Verdict.COVERED)


@dataclass(frozen=True, slots=True)
class Judged:
    """The objects of one segment, and the verdict. `end_offset` is None without a manifest."""

    partition: TopicIdPartition
    segment_id: UUID
    base_offset: int
    end_offset: int | None
    size_bytes: int
    verdict: Verdict
    why: str = ""


@dataclass(frozen=True, slots=True)
class ExistingPartition:
    """The local files of a partition. Their lineage takes precedence over that of the bucket."""

    local_log_start_offset: int
    log_end_offset: int
    lineage: Mapping[int, int] = field(hash=False)


@dataclass(frozen=True, slots=True)
class PartitionRestore:
    """A partition to restore: its segments, ascending, and the start and (exclusive) end of its log."""

    partition: TopicIdPartition
    segments: tuple[RemoteLogSegmentMetadata, ...]
    log_start_offset: int
    log_end_offset: int
    epochs: tuple[EpochEntry, ...]
    producer_snapshot: bytes | None
    #: Whether the local log exists and stays unchanged.
    is_local: bool = False


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """A plan (None if nothing can be restored), the verdicts on all segments, and the problems."""

    plan: PartitionRestore | None
    judged: tuple[Judged, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NewestSegment:
    """The facts from the objects of the newest segment, beyond its manifest."""

    epochs: tuple[EpochEntry, ...]
    producer_snapshot: bytes | None
    problems: tuple[str, ...] = ()


#: Reads the leader epochs and producers at the end of the newest segment.
ReadNewest = Callable[[SegmentManifest], NewestSegment]


def plan_partition(
    found: PartitionObjects,
    read_newest: ReadNewest,
    *,
    at_ms: int | None = None,
    local: ExistingPartition | None = None,
) -> PlannedPartition:
    """Plan one partition. With `at_ms`, segments that were copied later are ignored.

    Raises what `read_newest` raises.
    """
    sets, _ = group_objects(found.objects)
    judged, candidates = _sort_out(found, sets, at_ms)
    if not candidates:
        return PlannedPartition(None, tuple(judged), _what_is_lost(judged, None))
    newest = max(candidates, key=_age)
    if local is None:
        read = read_newest(newest)
        epochs = read.epochs or _epochs_of_manifests(candidates, newest)
        end, lineage = newest.end_offset + 1, lineage_of(epochs)
    else:
        read, epochs = NewestSegment((), None), ()
        end, lineage = local.log_end_offset, dict(local.lineage)
    fitting = [m for m in candidates if is_within_lineage(m.metadata(), end, lineage)]
    judged += _judge(candidates, {m.segment_id for m in fitting})
    if not fitting:
        return PlannedPartition(None, tuple(judged), (*read.problems, *_what_is_lost(judged, None)))
    fitting.sort(key=lambda m: (m.base_offset, m.end_offset))
    start = max(fitting[0].base_offset, epochs[0].start_offset if epochs else 0)
    plan = PartitionRestore(
        found.partition,
        tuple(m.metadata() for m in fitting),
        start,
        end,
        _epochs_from(epochs, start),
        read.producer_snapshot,
        is_local=local is not None,
    )
    reach_to = end if local is None else local.local_log_start_offset
    problems = (*read.problems, *_gaps(fitting, start, reach_to), *_what_is_lost(judged, end))
    return PlannedPartition(plan, tuple(judged), problems)


def judge_all(found: PartitionObjects, verdict: Verdict) -> list[Judged]:
    """Return the same verdict for every segment of a partition."""
    sets, _ = group_objects(found.objects)
    return [_judged(each, found.manifests.get(segment_id), verdict) for segment_id, each in sets.items()]


def _age(manifest: SegmentManifest) -> tuple[int, int, int]:
    return max(manifest.leader_epochs), manifest.end_offset, manifest.event_timestamp


def _judged(objects: SegmentObjects, manifest: object, verdict: Verdict, why: str = "") -> Judged:
    end = manifest.end_offset if isinstance(manifest, SegmentManifest) else None
    partition, segment = objects.segment_id.topic_id_partition, objects.segment_id.id
    return Judged(partition, segment, objects.start_offset, end, objects.bytes, verdict, why=why)


def _sort_out(
    found: PartitionObjects, sets: Mapping[UUID, SegmentObjects], at_ms: int | None
) -> tuple[list[Judged], list[SegmentManifest]]:
    """Return the verdicts on segments that cannot be taken in any lineage, and the manifests of the others."""
    judged: list[Judged] = []
    candidates: list[SegmentManifest] = []
    for segment_id, objects in sets.items():
        manifest = found.manifests.get(segment_id)
        if manifest is None:
            judged.append(_judged(objects, None, Verdict.UNFINISHED, "there is no manifest"))
        elif isinstance(manifest, ManifestFault):
            verdict = Verdict.FROM_THE_FUTURE if manifest.from_the_future else Verdict.DAMAGED
            judged.append(_judged(objects, None, verdict, manifest.reason))
        elif (fault := _fault_of_records(manifest, objects)) is not None:
            judged.append(_judged(objects, manifest, Verdict.DAMAGED, fault))
        elif at_ms is not None and manifest.event_timestamp > at_ms:
            judged.append(_judged(objects, manifest, Verdict.AFTER_TIME))
        else:
            candidates.append(manifest)
    return judged, candidates


def _fault_of_records(manifest: SegmentManifest, objects: SegmentObjects) -> str | None:
    """Return why a segment cannot be read, or None. Missing indexes do not matter: they are rebuilt."""
    key = object_key(manifest, ObjectKind.LOG)
    stored, expected = objects.at(key), stored_objects(manifest)[key]
    if stored is None:
        return "its records are missing"
    return None if stored.size == expected else f"its records have {stored.size} bytes, expected {expected}"


def _judge(candidates: Sequence[SegmentManifest], fitting: set[UUID]) -> list[Judged]:
    """Return verdicts on the complete segments: whether each fits the lineage, and whether others cover it."""
    judged = []
    reach = -1
    for manifest in sorted(candidates, key=lambda m: (m.base_offset, -m.end_offset)):
        if manifest.segment_id not in fitting:
            verdict = Verdict.OTHER_LINEAGE
        else:
            verdict = Verdict.COVERED if manifest.end_offset <= reach else Verdict.TAKEN
            reach = max(reach, manifest.end_offset)
        size = sum(stored_objects(manifest).values())
        base, end = manifest.base_offset, manifest.end_offset
        judged.append(Judged(manifest.topic_id_partition, manifest.segment_id, base, end, size, verdict))
    return judged


def _gaps(fitting: Iterable[SegmentManifest], start: int, end: int) -> list[str]:
    """Return the offsets of [start, end) that no segment has. `fitting` ascends by base offset."""
    gaps, reach = [], start
    for manifest in fitting:
        if manifest.base_offset > reach:
            gaps.append(f"offsets {reach} to {manifest.base_offset - 1} are in no usable segment")
        reach = max(reach, manifest.end_offset + 1)
    if reach < end:
        gaps.append(f"offsets {reach} to {end - 1} are in no usable segment, and not local")
    return gaps


def _what_is_lost(judged: Iterable[Judged], end: int | None) -> tuple[str, ...]:
    """Return lines about damaged segments, and about an unfinished copy at the new end of the log."""
    lost = []
    for each in judged:
        if each.verdict in (Verdict.DAMAGED, Verdict.FROM_THE_FUTURE):
            lost.append(f"the segment at offset {each.base_offset} cannot be read: {each.why}")
        elif each.verdict is Verdict.UNFINISHED and (end is None or each.base_offset >= end):
            lost.append(f"the segment at offset {each.base_offset} was being copied, and the copy never finished")
    return tuple(lost)


def _epochs_from(epochs: Sequence[EpochEntry], start: int) -> tuple[EpochEntry, ...]:
    """Return the epochs of a log that begins at `start`."""
    begun = [entry for entry in epochs if entry.start_offset <= start]
    later = [entry for entry in epochs if entry.start_offset > start]
    return (EpochEntry(begun[-1].epoch, start), *later) if begun else tuple(later)


def _epochs_of_manifests(candidates: Iterable[SegmentManifest], newest: SegmentManifest) -> tuple[EpochEntry, ...]:
    """Return leader epochs without the checkpoint: those of the newest segment, and of earlier ones that agree.

    Going back, an entry counts if its epoch and its offset are both smaller than those of all entries so far.
    """
    known = sorted((EpochEntry(epoch, start) for epoch, start in newest.leader_epochs.items()), reverse=True)
    for manifest in sorted(candidates, key=_age, reverse=True):
        for epoch, start in sorted(manifest.leader_epochs.items(), reverse=True):
            if epoch == known[-1].epoch and start < known[-1].start_offset:
                known[-1] = EpochEntry(epoch, start)
            elif epoch < known[-1].epoch and start < known[-1].start_offset:
                known.append(EpochEntry(epoch, start))
    return tuple(reversed(known))
