"""What the tasks of all partitions share, and the tasks of one partition made of it."""

from __future__ import annotations

from collections.abc import Callable

from stratalog.config import BrokerConfig
from stratalog.remote.api import (
    RemoteLogMetadataManager,
    RemoteLogSegmentMetadata,
    RemoteStorageManager,
    TopicIdPartition,
)
from stratalog.remote.tier.cancellation import Cancellation
from stratalog.remote.tier.copy_task import CopiesInFlight, CopyTask, PartitionCount
from stratalog.remote.tier.counters import RemoteCounts
from stratalog.remote.tier.deletion import SegmentDeleter
from stratalog.remote.tier.expiration_task import ExpirationTask
from stratalog.remote.tier.follower_task import FollowerTask
from stratalog.remote.tier.log_view import LogView
from stratalog.remote.tier.quota import RateQuota
from stratalog.remote.tier.tiered_partition import COPY, EXPIRATION, FOLLOWER, PartitionTasks, TieredPartition
from stratalog.remote.tier.watchdog import Watchdog
from stratalog.util import Clock, FileSystem


class TaskFactory:
    """See the module."""

    def __init__(
        self,
        rlmm: RemoteLogMetadataManager,
        rsm: RemoteStorageManager,
        config: BrokerConfig,
        *,
        quota: RateQuota,
        counts: RemoteCounts,
        watchdog: Watchdog,
        on_deleted: Callable[[RemoteLogSegmentMetadata], object],
        partition_count: PartitionCount,
        clock: Clock,
        fs: FileSystem,
    ) -> None:
        self._rlmm = rlmm
        self._rsm = rsm
        self._broker_id: int = config["node.id"]
        self._custom_metadata_bytes_max: int = config["remote.log.metadata.custom.metadata.max.bytes"]
        self._quota = quota
        self._counts = counts
        self._watchdog = watchdog
        self._partition_count = partition_count
        self._clock = clock
        self._fs = fs
        self._in_flight = CopiesInFlight()
        self.deleter = SegmentDeleter(
            rlmm, rsm, broker_id=self._broker_id, clock=clock, counts=counts, on_deleted=on_deleted
        )

    def make(self, log: LogView, partition: TopicIdPartition, *, is_leader: bool) -> TieredPartition:
        cancelled = Cancellation()
        copying, expiring, following = (self._watchdog.watch(partition, name) for name in (COPY, EXPIRATION, FOLLOWER))
        copy = CopyTask(
            log,
            partition,
            self._rlmm,
            self._rsm,
            deleter=self.deleter,
            in_flight=self._in_flight,
            quota=self._quota,
            counts=self._counts,
            progress=copying,
            broker_id=self._broker_id,
            custom_metadata_bytes_max=self._custom_metadata_bytes_max,
            clock=self._clock,
            fs=self._fs,
            cancelled=cancelled,
            partition_count=self._partition_count,
        )
        expiration = ExpirationTask(
            log,
            partition,
            self._rlmm,
            deleter=self.deleter,
            in_flight=self._in_flight,
            clock=self._clock,
            progress=expiring,
            cancelled=cancelled,
        )
        follower = FollowerTask(
            log, partition, self._rlmm, progress=copying if is_leader else following, cancelled=cancelled
        )
        tasks = PartitionTasks(copy, expiration, follower, copying, expiring, following, cancelled)
        return TieredPartition(log, partition, tasks, is_leader=is_leader)
