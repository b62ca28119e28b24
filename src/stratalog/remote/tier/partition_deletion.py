"""Delete all remote data of partitions when topics are deleted or no longer tiered.

DELETE_PARTITION_MARKED is written before the topic is removed. Then, with retries and across restarts,
DELETE_PARTITION_STARTED, every segment, DELETE_PARTITION_FINISHED.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Protocol, runtime_checkable

from stratalog.errors import StratalogError
from stratalog.remote.api import RemotePartitionDeleteMetadata, RemotePartitionDeleteState, TopicIdPartition
from stratalog.remote.tier.segment_deletion import delete_segment
from stratalog.remote.tier.services import TierServices
from stratalog.remote.tier.tiered_partition import TieredPartition
from stratalog.util import Schedule, WorkerPool


@runtime_checkable
class RemembersDeletions(Protocol):
    """A metadata manager that knows unfinished deletions of partitions."""

    def unfinished_partition_deletes(self) -> Iterable[TopicIdPartition]: ...


@runtime_checkable
class KeepsDeletionsApart(Protocol):
    """A metadata manager whose events are in partitions of a topic, each with its own leader."""

    def unfinished_deletes_in(self, number: int) -> Iterable[TopicIdPartition]:
        """Return the part of `unfinished_partition_deletes` in one of them."""
        ...


class PartitionDeleter:
    """Deletions in progress, each retried until it succeeds. Thread-safe.

    A partition for which `covers` is true must not get tasks; `on_deleted` is called when it may.
    """

    def __init__(
        self,
        services: TierServices,
        *,
        schedule: Schedule,
        pool: WorkerPool,
        on_deleted: Callable[[TopicIdPartition], object],
    ) -> None:
        self._services = services
        self._schedule = schedule
        self._pool = pool
        self._on_deleted = on_deleted
        self._going: set[TopicIdPartition] = set()
        self._lock = threading.Lock()

    def covers(self, partition: TopicIdPartition) -> bool:
        return partition in self._going

    def begin(self, partition: TopicIdPartition, stopped: TieredPartition | None) -> None:
        """Record durably that the remote data of the partition are to be deleted, and start. `stopped` has its tasks.

        RemoteStorageError when it could not be recorded: nothing is deleted then. In a cluster it is recorded in the
        background, because other brokers take part.
        """
        with self._lock:
            if partition in self._going:
                return
            self._going.add(partition)
        if self._services.is_shared:
            self._add(partition, stopped, is_marked=False)
            return
        try:
            self._publish(partition, RemotePartitionDeleteState.DELETE_PARTITION_MARKED)
        except BaseException:
            with self._lock:
                self._going.discard(partition)
            raise
        self._add(partition, stopped)

    def resume(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Resume deletions of an earlier process."""
        for partition in partitions:
            with self._lock:
                if partition in self._going:
                    continue
                self._going.add(partition)
            self._add(partition, None)

    def _add(self, partition: TopicIdPartition, stopped: TieredPartition | None, *, is_marked: bool = True) -> None:
        """Schedule the deletion. It starts when the last of the partition's tasks has ended."""
        health = self._services.health

        def run() -> bool:
            try:
                with nullcontext(True) if stopped is None else stopped.ended() as ended:
                    if not ended:
                        return False
                    if not is_marked:
                        self._publish(partition, RemotePartitionDeleteState.DELETE_PARTITION_MARKED)
                    deleted = self._delete(partition)
            except (StratalogError, OSError) as error:
                health.failed(partition, "deletion", error)
                return False
            health.succeeded(partition, "deletion", used_store=deleted > 0)
            self._services.rlmm.on_stop_partitions([partition])
            with self._lock:
                self._going.discard(partition)
            self._on_deleted(partition)
            return True

        self._schedule.add(f"deletion of {partition}", run, self._pool, once=True)

    def _delete(self, partition: TopicIdPartition) -> int:
        """Delete all segments and return their number. Raises RemoteStorageError; a later call resumes."""
        self._publish(partition, RemotePartitionDeleteState.DELETE_PARTITION_STARTED)
        segments = self._services.rlmm.list_remote_log_segments(partition)
        for segment in segments:
            delete_segment(self._services, segment)
        self._publish(partition, RemotePartitionDeleteState.DELETE_PARTITION_FINISHED)
        return len(segments)

    def _publish(self, partition: TopicIdPartition, state: RemotePartitionDeleteState) -> None:
        services = self._services
        event = RemotePartitionDeleteMetadata(partition, state, services.clock.now_ms(), services.broker_id)
        services.rlmm.put_remote_partition_delete_metadata(event).result()
