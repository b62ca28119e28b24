"""One tiered partition: its log, its tasks, and what of them a turn does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from stratalog.errors import CustomMetadataSizeLimitExceededError
from stratalog.remote.api import TopicIdPartition
from stratalog.remote.copy_task import CopyTask
from stratalog.remote.expiration_task import DeleteLag, ExpirationTask
from stratalog.remote.follower_task import FollowerTask
from stratalog.remote.log_view import LogView
from stratalog.remote.schedule import Job


class TieredPartition:
    """Thread-safe: each task has one turn at a time. `cancelled` ends the turns that are under way."""

    def __init__(
        self,
        log: LogView,
        partition: TopicIdPartition,
        *,
        copy: CopyTask,
        expiration: ExpirationTask,
        follower: FollowerTask,
        cancelled: threading.Event,
        is_leader: bool,
    ) -> None:
        self.log = log
        self.partition = partition
        self.cancelled = cancelled
        self.is_leader = is_leader
        self.jobs: list[Job] = []
        self._copy = copy
        self._expiration = expiration
        self._follower = follower
        self._copying_stopped = False
        self._copy_lock = threading.Lock()
        self._expiration_lock = threading.Lock()

    def copy(self) -> int:
        """Copy what is due; how many segments were copied. Raises what `CopyTask.run` raises."""
        config = self.log.config
        if not config.remote_storage_enable:
            return 0
        if config.remote_log_copy_disable or self._copying_stopped:
            self._follower.run()
            return 0
        with self._copy_lock:
            try:
                return self._copy.run()
            except CustomMetadataSizeLimitExceededError:
                self._copying_stopped = True
                raise

    def expire(self) -> int:
        """Delete what retention gives up; how many segments went. Raises what `ExpirationTask.run` raises."""
        if not self.log.config.remote_storage_enable:
            return 0
        with self._expiration_lock:
            return self._expiration.run()

    def follow(self) -> int:
        """Learn how far the leader has copied: the last offset that is remote, -1 for none."""
        return self._follower.run()

    @property
    def delete_lag(self) -> DeleteLag:
        return self._expiration.delete_lag

    @contextmanager
    def ended(self) -> Iterator[bool]:
        """Whether no turn is under way; none begins within the block then."""
        with ExitStack() as locks:
            for lock in (self._copy_lock, self._expiration_lock):
                if not lock.acquire(blocking=False):
                    yield False
                    return
                locks.callback(lock.release)
            yield True
