"""A bucket as target: segments are uploaded as they fill, without manifests, and published by one object.

Each task assigns offsets from the current end of a partition, as if no other task wrote to it. If that is so (as for a
DataFrame repartitioned by topic and partition), nothing is stored twice. Otherwise the segments of further tasks are
moved at commit: each is read once and stored again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from uuid import UUID

from stratalog.errors import RemoteStorageError, StratalogError, UsageError
from stratalog.inspect import list_remote_segments
from stratalog.log.format import EpochEntry
from stratalog.log.segment import WrittenSegment, renumber
from stratalog.remote.api import TopicIdPartition
from stratalog.remote.ownership import check_no_owner
from stratalog.remote.storage import ObjectStore, ObjectStoreRemoteStorageManager, SegmentManifest
from stratalog.remote.transactions import Lineage, bucket_transaction, move, new_job, stage, sweep
from stratalog.spark.sink.options import NumberedBatch, SinkOptions, tell_written
from stratalog.spark.sink.plan import BulkTaskResult, ExistingTopic, TaskSegment, WritePlan, in_log_order
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, FileSystem, uuid_to_base64

#: Segments of one task that are being uploaded, and so also on the local disk.
_UPLOADS_AT_ONCE: Final = 2
_MOVES_AT_ONCE: Final = 4
_WHAT: Final = "a bulk write"
_INSTEAD: Final = "write through its brokers (kafka.bootstrap.servers), or to another prefix"
#: Longer than Spark waits for a worker whose task was cancelled.
_SWEEP_AFTER_SECONDS: Final = 2.5
_SWEEPS_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class BucketTarget:
    """Picklable: the store is opened where it is used."""

    options: SinkOptions

    def _open(self) -> ObjectStore:
        if self.options.remote_url is None:
            raise AssertionError("a bucket is the target")
        return ObjectStore.from_url(self.options.remote_url, self.options.remote_options)

    def plan(self, topic: str | None) -> WritePlan:
        """Return the state of the topic, or of all topics, after finishing an unfinished earlier job.

        Raises RemoteStorageError, and NotOwnerError for a bucket or topic that brokers tier: they would assign the same
        offsets to other records, and never see these.
        """
        store = self._open()
        store.check()
        check_no_owner(store, _WHAT, instead=_INSTEAD)
        bucket_transaction.finish_publications(store)
        topics = _known_topics(store, None if topic is None else [topic])
        return WritePlan(new_job(), topics, self.options.partitions)

    def stager(self, plan: WritePlan) -> BucketStager:
        return BucketStager(self._open(), self.options, plan)

    def commit(self, plan: WritePlan, tasks: list[BulkTaskResult], batch: NumberedBatch | None) -> None:
        """Move misplaced segments, and publish; with `batch`, at most once.

        Repeat this if another job is published after the ends were read.
        """
        store, (name, number) = self._open(), plan.label(batch)
        placed = {
            key: [_manifest(segment) for segment in segments]
            for key, segments in in_log_order(tasks, by_time=self.options.sort_by_time).items()
        }
        made = _manifests(tasks)
        manager = ObjectStoreRemoteStorageManager(store)
        try:
            while True:
                turn = bucket_transaction.next_turn(store)
                if number is not None and bucket_transaction.is_published(store, name, number):
                    tell_written(self.options, number)
                    placed = {}
                    break
                known = _known_topics(store, sorted({topic for topic, _, _ in placed})) if placed else {}
                _check_ids(placed, known)
                placed = _placed(manager, plan.job, placed, known, made)
                check_no_owner(store, _WHAT, instead=_INSTEAD)  # a cluster may have claimed it while this job ran
                with suppress(bucket_transaction.OvertakenError):
                    bucket_transaction.publish(store, name, _all(placed), batch=number, turn=turn)
                    break
        except BaseException:
            if not bucket_transaction.is_published(store, name, number):
                bucket_transaction.discard(store, made)
            raise
        finally:
            manager.close()
        published = {manifest.segment_id for manifest in _all(placed)}
        bucket_transaction.discard(store, [each for each in made if each.segment_id not in published])
        if any(task.is_retry for task in tasks):
            bucket_transaction.finish_publications(store)
            sweep(store, plan.job, self.options.topic)

    def abort(self, plan: WritePlan, tasks: list[BulkTaskResult], batch: NumberedBatch | None) -> None:
        """Remove the staged segments, unless they were published after all."""
        store = self._open()
        if bucket_transaction.is_published(store, *plan.label(batch)):
            return
        bucket_transaction.discard(store, _manifests(tasks))
        bucket_transaction.finish_publications(store)
        # Tasks that Spark has just cancelled may still be storing objects that no message names.
        for _ in range(_SWEEPS_MAX):
            SYSTEM_CLOCK.sleep(_SWEEP_AFTER_SECONDS)
            if not sweep(store, plan.job, self.options.topic):
                return

    def is_published(self, batch: NumberedBatch) -> bool:
        """Return whether this batch, or a later one, is published."""
        return bucket_transaction.is_published(self._open(), batch.stream, batch.number)


class BucketStager:
    """Uploads segments while the next ones are written. Files are removed once they are uploaded."""

    is_durable = False

    def __init__(
        self, store: ObjectStore, options: SinkOptions, plan: WritePlan, fs: FileSystem = REAL_FILESYSTEM
    ) -> None:
        self._temporary = TemporaryDirectory(prefix="stratalog-sink-")
        self.directory = Path(self._temporary.name)
        self._store = store
        self._manager = ObjectStoreRemoteStorageManager(store)
        self._options = options
        self._plan = plan
        self._fs = fs
        self._pool = ThreadPoolExecutor(_UPLOADS_AT_ONCE, thread_name_prefix="sink-uploads")
        self._uploads: list[Future[TaskSegment]] = []

    def add(self, segment: WrittenSegment, topic: str, partition: int, first_timestamp_ms: int) -> None:
        if len(self._uploads) >= _UPLOADS_AT_ONCE:
            self._uploads[-_UPLOADS_AT_ONCE].result()  # limits the files on disk to those being uploaded
        self._uploads.append(self._pool.submit(self._upload, segment, topic, partition, first_timestamp_ms))

    def _upload(self, segment: WrittenSegment, topic: str, partition: int, first_timestamp_ms: int) -> TaskSegment:
        topic_id = self._plan.topic_id(topic)
        lineage = _lineage(self._plan.topics.get(topic), partition, segment.base_offset)
        if lineage.latest:
            with self._fs.open(segment.log, write=True) as file:
                renumber(file, 0, lineage.latest)
        manifest = stage(
            self._manager,
            TopicIdPartition(topic_id, topic, partition),
            segment,
            lineage,
            job=self._plan.job,
            index_entry_size=self._options.index_entry_size,
        )
        for path in segment.files:
            self._fs.remove(path)
        return TaskSegment(
            topic=topic,
            topic_id=topic_id,
            partition=partition,
            first_timestamp_ms=first_timestamp_ms,
            records=segment.records,
            size=segment.size,
            staged=manifest,
        )

    def finish(self) -> tuple[TaskSegment, ...]:
        segments = tuple(upload.result() for upload in self._uploads)
        self._close()
        return segments

    def abort(self) -> None:
        staged = []
        try:
            for upload in self._uploads:
                with suppress(StratalogError, OSError):  # stored objects become orphans, as after a failed copy
                    staged.append(_manifest(upload.result()))
        finally:
            self._close()
        bucket_transaction.discard(self._store, staged)

    def _close(self) -> None:
        self._pool.shutdown()
        self._manager.close()
        self._temporary.cleanup()


def _placed(
    manager: ObjectStoreRemoteStorageManager,
    job: UUID,
    staged: Mapping[tuple[str, UUID, int], list[SegmentManifest]],
    known: Mapping[str, ExistingTopic],
    made: list[SegmentManifest],
) -> dict[tuple[str, UUID, int], list[SegmentManifest]]:
    """Return the segments with their final offsets. Segments that are stored again are added to `made`."""
    moving: list[Future[SegmentManifest]] = []
    placed: dict[tuple[str, UUID, int], list[SegmentManifest | Future[SegmentManifest]]] = {}
    try:
        with (
            TemporaryDirectory(prefix="stratalog-sink-") as scratch,
            ThreadPoolExecutor(_MOVES_AT_ONCE, thread_name_prefix="sink-moves") as pool,
        ):
            for (topic, topic_id, partition), manifests in staged.items():
                there = known.get(topic)
                end = 0 if there is None else there.ends.get(partition, 0)
                lineage = _lineage(there, partition, end)
                lying = placed[topic, topic_id, partition] = []
                for manifest in manifests:
                    if manifest.base_offset == end and lineage.latest in manifest.leader_epochs:
                        lying.append(manifest)
                    else:
                        future = pool.submit(move, manager, manifest, end, lineage, Path(scratch), job=job)
                        moving.append(future)
                        lying.append(future)
                    end += manifest.end_offset - manifest.base_offset + 1
    finally:
        made += [each.result() for each in moving if each.exception() is None]
    return {
        key: [each.result() if isinstance(each, Future) else each for each in lying] for key, lying in placed.items()
    }


def _all(placed: Mapping[tuple[str, UUID, int], list[SegmentManifest]]) -> list[SegmentManifest]:
    return [manifest for manifests in placed.values() for manifest in manifests]


def _known_topics(store: ObjectStore, topics: list[str] | None) -> dict[str, ExistingTopic]:
    """Return the topics that have segments. Of topics with one name, return the one that was written last."""
    by_topic: dict[str, list[SegmentManifest]] = {}
    found = list_remote_segments(store, topics, covered=True)
    if topics is not None:  # the topics of this write
        check_no_owner(store, _WHAT, found, instead=_INSTEAD)
    for manifest in found:
        by_topic.setdefault(manifest.topic, []).append(manifest)
    return {topic: _known(manifests) for topic, manifests in by_topic.items()}


def _known(manifests: list[SegmentManifest]) -> ExistingTopic:
    topic_id = max(manifests, key=lambda m: m.event_timestamp).topic_id
    ends: dict[int, int] = {}
    epochs: dict[int, dict[int, int]] = {}
    for manifest in sorted((m for m in manifests if m.topic_id == topic_id), key=lambda m: m.end_offset):
        ends[manifest.partition] = manifest.end_offset + 1
        of_partition = epochs.setdefault(manifest.partition, {})
        for epoch, start in manifest.leader_epochs.items():
            of_partition[epoch] = min(start, of_partition.get(epoch, start))
    lineages = {
        partition: Lineage(tuple(EpochEntry(epoch, start) for epoch, start in sorted(found.items())))
        for partition, found in epochs.items()
    }
    return ExistingTopic(topic_id, max(ends) + 1, ends, lineages)


def _lineage(known: ExistingTopic | None, partition: int, base_offset: int) -> Lineage:
    """Return the lineage of a partition; a new one begins with epoch 0."""
    found = None if known is None else known.lineages.get(partition)
    return found or Lineage((EpochEntry(0, base_offset),))


def _check_ids(staged: Iterable[tuple[str, UUID, int]], known: Mapping[str, ExistingTopic]) -> None:
    for topic, topic_id, _ in staged:
        there = known.get(topic)
        if there is not None and there.topic_id != topic_id:
            raise UsageError(
                f"topic {topic} was created with the id {uuid_to_base64(there.topic_id)} while this job ran:"
                " nothing was published; run it again"
            )


def _manifests(tasks: list[BulkTaskResult]) -> list[SegmentManifest]:
    return [_manifest(segment) for task in tasks for segment in task.segments]


def _manifest(segment: TaskSegment) -> SegmentManifest:
    if not isinstance(segment.staged, SegmentManifest):
        raise RemoteStorageError("segments of a bucket have manifests")
    return segment.staged
