"""Read a bucket and plan its restore: the topics, the segments of each partition, and a verdict on every object."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from stratalog.errors import (
    CorruptCheckpointError,
    CorruptSnapshotError,
    DamagedRemoteObjectError,
    RemoteResourceNotFoundError,
    UsageError,
)
from stratalog.inspect import DataDirSet, PartitionObjects, PartitionReader, find_partitions
from stratalog.jobs.audit import plain_view
from stratalog.jobs.progress import SILENT, Progress, tracked
from stratalog.jobs.restore.plan import (
    ExistingPartition,
    Judged,
    NewestSegment,
    PartitionRestore,
    PlannedPartition,
    Verdict,
    judge_all,
    plan_partition,
)
from stratalog.log.format import EpochEntry, decode as decode_producers, decode_epochs
from stratalog.remote.api import RemoteLogSegmentMetadata, TopicIdPartition
from stratalog.remote.storage import ObjectKind, ObjectStore, SegmentManifest

#: Set on a topic whose own configuration is not in the bucket, so that nothing is deleted before an operator looks.
_WITHOUT_CONFIG: Final = {"retention.ms": "-1", "retention.bytes": "-1"}


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """A topic of an existing data directory."""

    topic_id: UUID
    partition_count: int


@dataclass(frozen=True, slots=True)
class RestoredTopic:
    """A topic as the broker will know it."""

    name: str
    topic_id: UUID
    partition_count: int
    configs: Mapping[str, str] = field(hash=False)


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The parts of a restore, and what cannot be restored. Problems are lines of text that name the partition."""

    topics: tuple[RestoredTopic, ...]
    partitions: tuple[PartitionRestore, ...]
    judged: tuple[Judged, ...]
    problems: tuple[str, ...]
    #: Notes for the operator; nothing is missing.
    notes: tuple[str, ...]

    @property
    def segments(self) -> Iterable[RemoteLogSegmentMetadata]:
        return (segment for partition in self.partitions for segment in partition.segments)

    @property
    def producer_id_max(self) -> int:
        """The largest producer id of any partition, -1 without one. New ids must be larger."""
        return max(
            (
                entry.producer_id
                for plan in self.partitions
                if plan.producer_snapshot is not None
                for entry in decode_producers(plan.producer_snapshot)
            ),
            default=-1,
        )


# --- reading the bucket ---------------------------------------------------------------------------------------------


def plan_restore(
    store: ObjectStore,
    topics: Collection[str] | None = None,
    *,
    at_ms: int | None = None,
    existing: Mapping[str, KnownTopic] | None = None,
    local: DataDirSet | None = None,
    progress: Progress = SILENT,
) -> RestorePlan:
    """Plan the restore of `topics` (None for all) from everything that the bucket has of them.

    If an existing data directory lacks only its metadata, `existing` has its topics and `local` its partitions.
    Raises RemoteStorageError, and UsageError for a topic that the bucket does not have.
    """
    planner = _Planner(store, at_ms, existing, local)
    names = find_partitions(store, topics).partitions
    missing = set(topics or ()) - {partition.topic for partition in names}
    if missing:
        raise UsageError(f"{store.url} has nothing of {', '.join(sorted(missing))}")
    with PartitionReader(store) as reader:
        for found in tracked(reader.read_all(names), "reading", len(names), progress):
            planner.add(found)
    return planner.plan()


class _Planner:
    """Takes the partitions one by one. Of several topics with one name, the last one is restored."""

    def __init__(
        self,
        store: ObjectStore,
        at_ms: int | None,
        existing: Mapping[str, KnownTopic] | None,
        local: DataDirSet | None,
    ) -> None:
        self._view = plain_view(store)
        self._at_ms = at_ms
        self._existing = existing
        self._local = local
        self._by_topic: dict[str, dict[UUID, list[PartitionObjects]]] = {}

    def add(self, found: PartitionObjects) -> None:
        partition = found.partition
        self._by_topic.setdefault(partition.topic, {}).setdefault(partition.topic_id, []).append(found)

    def plan(self) -> RestorePlan:
        topics: list[RestoredTopic] = []
        partitions: list[PartitionRestore] = []
        judged: list[Judged] = []
        problems: list[str] = []
        notes: list[str] = []
        for name, by_id in sorted(self._by_topic.items()):
            chosen, verdict = self._choose(name, by_id)
            for topic_id, left in by_id.items():
                if topic_id != chosen:
                    judged += (each for found in left for each in judge_all(found, verdict))
            if chosen is None:
                notes.append(f"{name}: the data directory does not have this topic; its segments are left unchanged")
                continue
            planned = [self._plan_partition(found) for found in by_id[chosen]]
            for found, each in zip(by_id[chosen], planned, strict=True):
                judged += each.judged
                problems += (f"{name}-{found.partition.partition}: {problem}" for problem in each.problems)
            plans = [each.plan for each in planned if each.plan is not None]
            partitions += plans
            if plans:
                topic, note = self._topic(name, chosen, by_id[chosen])
                topics.append(topic)
                notes += note
                if self._existing is None:
                    notes += _begin_empty(topic, {plan.partition.partition for plan in plans})
        return RestorePlan(tuple(topics), tuple(partitions), tuple(judged), tuple(problems), tuple(notes))

    def _choose(self, name: str, by_id: Mapping[UUID, list[PartitionObjects]]) -> tuple[UUID | None, Verdict]:
        """Choose the topic of this name to restore, and give the verdict on the others."""
        if self._existing is not None:
            known = self._existing.get(name)
            topic_id = None if known is None or known.topic_id not in by_id else known.topic_id
            return topic_id, Verdict.UNKNOWN_TOPIC
        return max(by_id, key=lambda topic_id: _newest_event(by_id[topic_id], self._at_ms)), Verdict.OLDER_TOPIC

    def _plan_partition(self, found: PartitionObjects) -> PlannedPartition:
        return plan_partition(found, self._read_newest, at_ms=self._at_ms, local=self._facts(found.partition))

    def _facts(self, partition: TopicIdPartition) -> ExistingPartition | None:
        facts = None if self._local is None else self._local.log_facts(partition)
        if facts is None:
            return None
        return ExistingPartition(facts.local_log_start_offset, facts.log_end_offset, facts.lineage)

    def _read_newest(self, manifest: SegmentManifest) -> NewestSegment:
        """Return leader epochs and producers at the end of a segment. What cannot be read is noted as a problem."""
        problems = []
        epochs: list[EpochEntry] = []
        snapshot: bytes | None = None
        try:
            epochs = decode_epochs(self._content(manifest, ObjectKind.LEADER_EPOCHS) or b"")
        except (RemoteResourceNotFoundError, DamagedRemoteObjectError, CorruptCheckpointError) as error:
            problems.append(f"the object of leader epochs is damaged, so they are taken from the manifests: {error}")
        try:
            snapshot = self._content(manifest, ObjectKind.PRODUCER_SNAPSHOT)
            if snapshot is not None:
                decode_producers(snapshot)
        except (RemoteResourceNotFoundError, DamagedRemoteObjectError, CorruptSnapshotError) as error:
            snapshot = None
            problems.append(f"the producer snapshot is damaged, so the producer state starts empty: {error}")
        return NewestSegment(tuple(epochs), snapshot, tuple(problems))

    def _content(self, manifest: SegmentManifest, kind: ObjectKind) -> bytes | None:
        """Return one of the small objects of a segment, or None if it was copied without that object."""
        return bytes(self._view.get(manifest.key(kind))) if kind in manifest.objects else None

    def _topic(self, name: str, topic_id: UUID, found: Iterable[PartitionObjects]) -> tuple[RestoredTopic, list[str]]:
        of_topic = list(found)
        manifests = [m for each in of_topic for m in each.complete if not self._is_late(m)]
        newest = max(manifests, key=lambda m: m.event_timestamp)
        count = _partition_count(of_topic, manifests)
        if self._existing is not None and name in self._existing:
            count = max(count, self._existing[name].partition_count)
        configs = newest.topic_config
        if configs is not None:
            return RestoredTopic(name, topic_id, count, {**configs, "remote.storage.enable": "true"}), []
        note = f"{name}: its configuration is not in the bucket; it keeps all (retention.ms=-1) until you configure it"
        return RestoredTopic(name, topic_id, count, {**_WITHOUT_CONFIG, "remote.storage.enable": "true"}), [note]

    def _is_late(self, manifest: SegmentManifest) -> bool:
        return self._at_ms is not None and manifest.event_timestamp > self._at_ms


def _partition_count(found: Sequence[PartitionObjects], manifests: Iterable[SegmentManifest]) -> int:
    """Return the largest count in any manifest, as partitions are only ever added; at least those in the bucket."""
    shown = max(each.partition.partition for each in found) + 1
    return max([shown, *(m.partition_count for m in manifests if m.partition_count is not None)])


def _begin_empty(topic: RestoredTopic, made: Collection[int]) -> list[str]:
    """Return a note about the partitions of a topic that have nothing in the bucket."""
    empty = sorted(set(range(topic.partition_count)) - set(made))
    if not empty:
        return []
    return [(f"{topic.name}: nothing can be restored for partitions {_ranges(empty)}; they begin empty, at offset 0")]


def _ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as short text: `0, 3 to 7`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1][1:] = [number]
        else:
            found.append([number])
    return ", ".join(" to ".join(map(str, each)) for each in found)


def _newest_event(found: Iterable[PartitionObjects], at_ms: int | None) -> int:
    """Return when the last segment of a topic was copied up to `at_ms`, or -1 without any."""
    times = (m.event_timestamp for each in found for m in each.complete)
    return max((at for at in times if at_ms is None or at <= at_ms), default=-1)
