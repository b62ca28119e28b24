"""Deletions of partitions that are under way, each until it succeeds, and the partitions that wait for theirs to
end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Protocol, runtime_checkable

from stratalog.errors import StratalogError
from stratalog.remote.api import RemoteLogMetadataManager, TopicIdPartition
from stratalog.remote.tier.deletion import SegmentDeleter
from stratalog.remote.tier.health import RemoteHealth
from stratalog.remote.tier.partition_deletion import PartitionDeletion
from stratalog.remote.tier.schedule import Schedule
from stratalog.remote.tier.tiered_partition import TieredPartition
from stratalog.remote.tier.worker_pool import WorkerPool
from stratalog.util import Clock


@runtime_checkable
class RemembersDeletions(Protocol):
    """A metadata manager that can tell which deletions of partitions were begun and never finished."""

    def unfinished_partition_deletes(self) -> Iterable[TopicIdPartition]: ...


class PartitionDeletions:
    """Thread-safe. A partition of which `covers` is true must not get tasks: `on_deleted` tells when it may."""

    def __init__(
        self,
        rlmm: RemoteLogMetadataManager,
        *,
        deleter: SegmentDeleter,
        broker_id: int,
        clock: Clock,
        health: RemoteHealth,
        schedule: Schedule,
        pool: WorkerPool,
        on_deleted: Callable[[TopicIdPartition], object],
    ) -> None:
        self._rlmm = rlmm
        self._deleter = deleter
        self._broker_id = broker_id
        self._clock = clock
        self._health = health
        self._schedule = schedule
        self._pool = pool
        self._on_deleted = on_deleted
        self._going: set[TopicIdPartition] = set()
        self._lock = threading.Lock()

    def covers(self, partition: TopicIdPartition) -> bool:
        """Whether the partition is being deleted."""
        return partition in self._going

    def begin(self, partition: TopicIdPartition, stopped: TieredPartition | None) -> None:
        """Record durably that all that the partition has goes, and see to it. `stopped` is what its tasks were.

        RemoteStorageError when it could not be recorded: nothing goes then.
        """
        with self._lock:
            if partition in self._going:
                return
            self._going.add(partition)
        try:
            self._deletion(partition).mark()
        except BaseException:
            with self._lock:
                self._going.discard(partition)
            raise
        self._add(partition, stopped)

    def resume(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Go on with deletions that an earlier process had begun."""
        for partition in partitions:
            with self._lock:
                if partition in self._going:
                    continue
                self._going.add(partition)
            self._add(partition, None)

    def _add(self, partition: TopicIdPartition, stopped: TieredPartition | None) -> None:
        """The deletion begins when the last of the partition's tasks has ended."""

        def run() -> bool:
            try:
                with nullcontext(True) if stopped is None else stopped.ended() as ended:
                    if not ended:
                        return False
                    deleted = self._deletion(partition).run()
            except (StratalogError, OSError) as error:
                self._health.failed(partition, "deletion", error)
                return False
            self._health.succeeded(partition, "deletion", used_store=deleted > 0)
            self._rlmm.on_stop_partitions([partition])
            with self._lock:
                self._going.discard(partition)
            self._on_deleted(partition)
            return True

        self._schedule.add(f"deletion of {partition}", run, self._pool, once=True)

    def _deletion(self, partition: TopicIdPartition) -> PartitionDeletion:
        return PartitionDeletion(
            partition, self._rlmm, deleter=self._deleter, broker_id=self._broker_id, clock=self._clock
        )
