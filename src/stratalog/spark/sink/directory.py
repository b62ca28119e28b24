"""A data directory as target: segments are staged in a hidden directory and renamed into the partitions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from stratalog.errors import UsageError
from stratalog.log.segment import StagedPartition, WrittenSegment, directory_transaction, staging_directory
from stratalog.spark.sink.options import NumberedBatch, SinkOptions, tell_written
from stratalog.spark.sink.plan import BulkTaskResult, ExistingTopic, TaskSegment, WritePlan, in_log_order
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, FileSystem, random_uuid

#: Longer than Spark waits for a worker whose task was cancelled.
_SWEEP_AFTER_SECONDS: Final = 2.5
_SWEEPS_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class DirectoryTarget:
    """Picklable. Executors must see the directory as the driver does."""

    options: SinkOptions

    @property
    def path(self) -> Path:
        if self.options.path is None:
            raise AssertionError("a data directory is the target")
        return Path(self.options.path)

    def plan(self, topic: str | None) -> WritePlan:
        """Return the state of the topic, or of all topics, after finishing an unfinished earlier job.

        Raises UsageError if a broker uses the directory.
        """
        fs = REAL_FILESYSTEM
        directory_transaction.check_not_served(self.path, fs)
        directory_transaction.finish(self.path, fs)
        names = directory_transaction.topics_in(self.path, fs) if topic is None else {topic}
        topics = {}
        for name in names:
            topic_id, count = directory_transaction.topic_id_in(self.path, name, fs)
            if count:
                if topic_id is None:
                    raise UsageError(f"the partitions of topic {name} in {self.path} do not say whose they are")
                topics[name] = ExistingTopic(topic_id, count)
        return WritePlan(random_uuid(), topics, self.options.partitions)

    def stager(self, plan: WritePlan) -> DirectoryStager:
        return DirectoryStager(staging_directory(self.path, plan.job) / random_uuid().hex, plan)

    def commit(self, plan: WritePlan, tasks: list[BulkTaskResult], batch: NumberedBatch | None) -> None:
        """Publish; with `batch`, at most once."""
        staged = [
            StagedPartition(topic, topic_id, partition, tuple(_written(each) for each in segments))
            for (topic, topic_id, partition), segments in in_log_order(tasks, by_time=self.options.sort_by_time).items()
        ]
        name, number = plan.label(batch)
        published = directory_transaction.publish(self.path, plan.job, name, staged, batch=number)
        if not published:
            tell_written(self.options, number)
            directory_transaction.discard(self.path, plan.job)

    def abort(self, plan: WritePlan, tasks: list[BulkTaskResult], batch: NumberedBatch | None) -> None:
        """Remove the staged segments, unless they were published after all."""
        del tasks  # all of it is in one directory, which a publication removes
        if directory_transaction.is_unfinished(self.path, plan.label(batch)[0]):
            return
        directory_transaction.discard(self.path, plan.job)
        # Tasks that Spark has just cancelled may still be writing.
        for _ in range(_SWEEPS_MAX):
            SYSTEM_CLOCK.sleep(_SWEEP_AFTER_SECONDS)
            if not REAL_FILESYSTEM.exists(staging_directory(self.path, plan.job)):
                return
            directory_transaction.discard(self.path, plan.job)

    def is_published(self, batch: NumberedBatch) -> bool:
        """Return whether this batch, or a later one, is published."""
        last = directory_transaction.published_batch(self.path, batch.stream)
        return last is not None and last >= batch.number


def _written(segment: TaskSegment) -> WrittenSegment:
    if not isinstance(segment.staged, WrittenSegment):
        raise AssertionError("segments of a data directory are files")
    return segment.staged


class DirectoryStager:
    """Files stay where they were written."""

    is_durable = True

    def __init__(self, directory: Path, plan: WritePlan, fs: FileSystem = REAL_FILESYSTEM) -> None:
        self.directory = directory
        self._plan = plan
        self._fs = fs
        self._segments: list[TaskSegment] = []

    def add(self, segment: WrittenSegment, topic: str, partition: int, first_timestamp_ms: int) -> None:
        topic_id: UUID = self._plan.topic_id(topic)
        self._segments.append(
            TaskSegment(
                topic=topic,
                topic_id=topic_id,
                partition=partition,
                first_timestamp_ms=first_timestamp_ms,
                records=segment.records,
                size=segment.size,
                staged=segment,
            )
        )

    def finish(self) -> tuple[TaskSegment, ...]:
        return tuple(self._segments)

    def abort(self) -> None:
        if self._fs.is_dir(self.directory):
            self._fs.remove_tree(self.directory)
