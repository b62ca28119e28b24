"""The state of the target before a job begins, and the results of its tasks. All of these values are pickled."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from pyspark.sql.datasource import WriterCommitMessage

from stratalog.errors import UsageError
from stratalog.log.segment import WrittenSegment
from stratalog.remote.storage import SegmentManifest
from stratalog.remote.transactions import Lineage
from stratalog.spark.sink.options import NumberedBatch
from stratalog.util import uuid_to_base64

_EXPECTED_ID = "-"


@dataclass(frozen=True, slots=True)
class ExistingTopic:
    """An existing topic: its id, its known number of partitions, and the end of each."""

    topic_id: UUID
    partitions: int
    ends: Mapping[int, int] = field(default_factory=dict)
    lineages: Mapping[int, Lineage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WritePlan:
    """The state of the target when the job begins. `job` is its id; `partitions` the option."""

    job: UUID
    topics: Mapping[str, ExistingTopic]
    partitions: int | None

    def partitions_of(self, topic: str) -> int:
        """Return how many partitions a topic has: the option's number, else that of the existing topic, else one."""
        known = self.topics.get(topic)
        if known is None:
            return self.partitions or 1
        if self.partitions is not None and self.partitions < known.partitions:
            raise UsageError(
                f"option partitions={self.partitions}: topic {topic} has {known.partitions} partitions already"
            )
        return self.partitions or known.partitions

    def label(self, batch: NumberedBatch | None) -> tuple[str, int | None]:
        """Return the name and number under which the job is published."""
        return (self.job.hex, None) if batch is None else (batch.stream, batch.number)

    def topic_id(self, topic: str) -> UUID:
        """Return the id of a topic; a new topic has the same one in every task of the job."""
        known = self.topics.get(topic)
        if known is not None:
            return known.topic_id
        for attempt in range(256):
            seed = f"{self.job.hex} {attempt} {topic}".encode()
            made = UUID(bytes=hashlib.sha256(seed).digest()[:16], version=4)
            if not uuid_to_base64(made).startswith(_EXPECTED_ID):
                return made
        raise AssertionError(topic)  # one id in 64 is skipped

    def end(self, topic: str, partition: int) -> int:
        """Return the offset at which the first task to write a partition begins, unless another job writes it too."""
        known = self.topics.get(topic)
        return 0 if known is None else known.ends.get(partition, 0)


@dataclass(frozen=True, slots=True)
class TaskSegment:
    """A segment that a task has staged: its files in a data directory, or its manifest in a bucket."""

    topic: str
    topic_id: UUID
    partition: int
    first_timestamp_ms: int
    records: int
    size: int
    staged: WrittenSegment | SegmentManifest


@dataclass
class BulkTaskResult(WriterCommitMessage):
    """The segments that one task has staged, in the order of its rows within each partition."""

    segments: tuple[TaskSegment, ...]
    #: Spark's id of the stream, "" for a batch write.
    query: str = ""
    #: Whether an earlier attempt may have died without removing its staged segments.
    is_retry: bool = False


def in_log_order(tasks: list[BulkTaskResult], *, by_time: bool) -> dict[tuple[str, UUID, int], list[TaskSegment]]:
    """Return the segments of each partition in the order of their offsets: by task and row, or by first timestamp."""
    found: dict[tuple[str, UUID, int], list[TaskSegment]] = {}
    for task in tasks:
        for segment in task.segments:
            found.setdefault((segment.topic, segment.topic_id, segment.partition), []).append(segment)
    if by_time:
        for segments in found.values():
            segments.sort(key=lambda each: each.first_timestamp_ms)
    return found
