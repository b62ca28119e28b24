"""One tiered partition: its log and its tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise

from stratalog.errors import CustomMetadataSizeLimitExceededError
from stratalog.remote.api import TopicIdPartition
from stratalog.remote.tier.cancellation import Cancellation
from stratalog.remote.tier.copy_task import CopyTask
from stratalog.remote.tier.expiration_task import ExpirationTask
from stratalog.remote.tier.follower_task import FollowerTask
from stratalog.remote.tier.log_view import LogView, segments_not_remote
from stratalog.remote.tier.services import TierServices
from stratalog.remote.tier.tier_facts import PartitionGauges, TierLag
from stratalog.remote.tier.watchdog import Step, TaskProgress
from stratalog.util import Job

#: Names of tasks in reports.
COPY, EXPIRATION, FOLLOWER = "copy", "expiration", "follower task"
#: The name under which permanent failures of client reads are reported.
READ = "read"


@dataclass(frozen=True, slots=True)
class PartitionTasks:
    """The tasks of one partition. `cancelled` ends all of them."""

    copy: CopyTask
    expiration: ExpirationTask
    follower: FollowerTask
    cancelled: Cancellation


class TieredPartition:
    """Runs the tasks of a partition. Thread-safe: each task runs once at a time. `cancelled` ends runs in progress."""

    def __init__(self, log: LogView, partition: TopicIdPartition, tasks: PartitionTasks, *, is_leader: bool) -> None:
        self.log = log
        self.partition = partition
        self.cancelled = tasks.cancelled
        self.is_leader = is_leader
        self.jobs: list[Job] = []
        self._tasks = tasks
        #: Whether copying has stopped for good: the plugin returned too much custom metadata.
        self.copying_stopped = False
        self._copy_lock = threading.Lock()
        self._expiration_lock = threading.Lock()

    def turns(self) -> list[tuple[str, Callable[[], int]]]:
        """Return the tasks of this replica of the partition, by name."""
        if self.is_leader:
            return [(COPY, self.copy), (EXPIRATION, self.expire)]
        return [(FOLLOWER, self.follow)]

    def copy(self) -> int:
        """Copy what is due. Return the number of segments. Raises the errors of `CopyTask.run`."""
        config = self.log.config
        if not config.remote_storage_enable:
            return 0
        with self._copy_lock, _turn(self._tasks.copy.progress):
            if config.remote_log_copy_disable or self.copying_stopped or self._tasks.copy.is_read_only:
                self._tasks.follower.run()
                return 0
            try:
                return self._tasks.copy.run()
            except CustomMetadataSizeLimitExceededError:
                self.copying_stopped = True
                raise

    def expire(self) -> int:
        """Delete expired segments. Return their number. Raises the errors of `ExpirationTask.run`."""
        if not self.log.config.remote_storage_enable:
            return 0
        with self._expiration_lock, _turn(self._tasks.expiration.progress):
            return self._tasks.expiration.run()

    def follow(self) -> int:
        """Return the last offset that the leader has copied, or -1."""
        with _turn(self._tasks.follower.progress):
            return self._tasks.follower.run()

    @property
    def copy_lag(self) -> TierLag:
        """Return what is sealed and not remote. It grows while copies hang or fail.

        What is below the log start offset is not going to be copied, and does not count.
        """
        start = self.log.log_start_offset
        sealed = [
            segment for segment, following in pairwise(segments_not_remote(self.log)) if following.base_offset > start
        ]
        return TierLag(len(sealed), sum(segment.size_bytes for segment in sealed))

    @property
    def copy_step(self) -> Step | None:
        """Return the current step of the copy task, None while idle."""
        return self._tasks.copy.progress.current

    @property
    def delete_lag(self) -> TierLag:
        return self._tasks.expiration.delete_lag

    @property
    def gauges(self) -> PartitionGauges:
        """Return the gauges. Followers, and partitions with copying disabled, have no copy lag."""
        is_disabled = self.log.config.remote_log_copy_disable or self._tasks.copy.is_read_only
        copies = self.is_leader and not is_disabled
        copy_lag = self.copy_lag if copies else TierLag()
        delete_lag, tally = self.delete_lag, self._tasks.expiration.tally
        return PartitionGauges(
            copy_lag_bytes=copy_lag.size_bytes,
            copy_lag_segments=copy_lag.segments,
            delete_lag_bytes=delete_lag.size_bytes,
            delete_lag_segments=delete_lag.segments,
            metadata_count=tally.metadata_count,
            size_bytes=tally.size_bytes,
            size_computation_ms=tally.computation_ms,
        )

    @contextmanager
    def ended(self) -> Iterator[bool]:
        """Yield whether no run is in progress. None begins within the block."""
        with ExitStack() as locks:
            for lock in (self._copy_lock, self._expiration_lock):
                if not lock.acquire(blocking=False):
                    yield False
                    return
                locks.callback(lock.release)
            yield True


def tier_partition(
    services: TierServices, log: LogView, partition: TopicIdPartition, *, is_leader: bool
) -> TieredPartition:
    """Make the tasks of a partition."""
    cancelled = Cancellation()
    copying, expiring, following = (services.watchdog.watch(partition, name) for name in (COPY, EXPIRATION, FOLLOWER))
    tasks = PartitionTasks(
        copy=CopyTask(services, log, partition, progress=copying, cancelled=cancelled),
        expiration=ExpirationTask(services, log, partition, progress=expiring, cancelled=cancelled),
        follower=FollowerTask(
            services, log, partition, progress=copying if is_leader else following, cancelled=cancelled
        ),
        cancelled=cancelled,
    )
    return TieredPartition(log, partition, tasks, is_leader=is_leader)


@contextmanager
def _turn(progress: TaskProgress) -> Iterator[None]:
    try:
        yield
    finally:
        progress.end()
