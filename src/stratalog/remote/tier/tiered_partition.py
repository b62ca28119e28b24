"""One tiered partition: its log, its tasks, and what of them a turn does."""

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

#: The names of tasks, as they are reported.
COPY, EXPIRATION, FOLLOWER = "copy", "expiration", "follower task"
#: As which reads for clients are reported when they fail for a reason that does not pass by itself.
READ = "read"


@dataclass(frozen=True, slots=True)
class PartitionTasks:
    """What is done with one partition, and how far each is; all of it ends with `cancelled`."""

    copy: CopyTask
    expiration: ExpirationTask
    follower: FollowerTask
    cancelled: Cancellation


class TieredPartition:
    """Thread-safe: each task has one turn at a time. `cancelled` ends the turns that are under way."""

    def __init__(self, log: LogView, partition: TopicIdPartition, tasks: PartitionTasks, *, is_leader: bool) -> None:
        self.log = log
        self.partition = partition
        self.cancelled = tasks.cancelled
        self.is_leader = is_leader
        self.jobs: list[Job] = []
        self._tasks = tasks
        #: Whether copies have ended for good: the plugin returned more custom metadata than there may be.
        self.copying_stopped = False
        self._copy_lock = threading.Lock()
        self._expiration_lock = threading.Lock()

    def turns(self) -> list[tuple[str, Callable[[], int]]]:
        """Return the tasks that this replica of the partition has, by name."""
        if self.is_leader:
            return [(COPY, self.copy), (EXPIRATION, self.expire)]
        return [(FOLLOWER, self.follow)]

    def copy(self) -> int:
        """Copy what is due; how many segments were copied. Raises what `CopyTask.run` raises."""
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
        """Delete what retention gives up; how many segments went. Raises what `ExpirationTask.run` raises."""
        if not self.log.config.remote_storage_enable:
            return 0
        with self._expiration_lock, _turn(self._tasks.expiration.progress):
            return self._tasks.expiration.run()

    def follow(self) -> int:
        """Learn how far the leader has copied: the last offset that is remote, -1 for none."""
        with _turn(self._tasks.follower.progress):
            return self._tasks.follower.run()

    @property
    def copy_lag(self) -> TierLag:
        """What is sealed and not remote, as of now: it grows while copies hang or fail.

        What lies below the log start offset is not going to be copied, and does not count.
        """
        start = self.log.log_start_offset
        sealed = [
            segment for segment, following in pairwise(segments_not_remote(self.log)) if following.base_offset > start
        ]
        return TierLag(len(sealed), sum(segment.size_bytes for segment in sealed))

    @property
    def copy_step(self) -> Step | None:
        """The step that the copy task is at; None between two turns."""
        return self._tasks.copy.progress.current

    @property
    def delete_lag(self) -> TierLag:
        return self._tasks.expiration.delete_lag

    @property
    def gauges(self) -> PartitionGauges:
        """Nothing waits to be copied by a follower, or where copying is switched off."""
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
        """Return whether no turn is under way; none begins within the block then."""
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
