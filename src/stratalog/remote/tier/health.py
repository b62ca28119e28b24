"""Problems of the remote tier, logged once instead of at every attempt and for every partition."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from stratalog.errors import NotOwnerError, RetriableRemoteStorageError
from stratalog.remote.api import TopicIdPartition
from stratalog.util import Clock

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Trouble:
    """The last error of a task of a partition, and how many runs in a row have failed."""

    message: str
    #: The message without its object, which differs for each attempt to copy.
    reason: str
    times: int
    since_ms: int
    is_retriable: bool


class RemoteHealth:
    """Collects failures and successes of tasks. Thread-safe; attributes may be read at any time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: The logged message about a store of another cluster.
        self._refusal: str | None = None
        #: Since when the store has a transient failure, or None.
        self.unreachable_since_ms: int | None = None
        #: Permanent errors, by partition and task.
        self.failures: dict[tuple[TopicIdPartition, str], Trouble] = {}
        #: Permanent and transient errors: every task whose last run failed.
        self.troubles: dict[tuple[TopicIdPartition, str], Trouble] = {}

    def refused(self, error: NotOwnerError) -> None:
        """Record that another cluster owns the store: nothing is copied or deleted, of any partition. Logged once."""
        with self._lock:
            is_new = self._refusal != error.reason
            self._refusal = error.reason
        if is_new:
            logger.error("%s", error)

    def failed(self, partition: TopicIdPartition, task: str, error: Exception) -> None:
        """Record that a task failed. It will be tried again."""
        is_retriable = isinstance(error, RetriableRemoteStorageError)
        fields = {"partition": str(partition), "task": task, "error": str(error)}
        with self._lock:
            before = self.troubles.get((partition, task))
            times, since = (0, self._clock.now_ms()) if before is None else (before.times, before.since_ms)
            trouble = Trouble(str(error), getattr(error, "reason", str(error)), times + 1, since, is_retriable)
            self.troubles[partition, task] = trouble
        if is_retriable:
            with self._lock:
                first = self.unreachable_since_ms is None
                if first:
                    self.unreachable_since_ms = self._clock.now_ms()
            level = logging.WARNING if first else logging.DEBUG
            logger.log(
                level,
                "The remote tier is unavailable; segments stay local, and retries continue: %s of %s: %s",
                task,
                partition,
                error,
                extra=fields,
            )
            return
        with self._lock:
            last = self.failures.get((partition, task))
            known = last is not None and last.reason == trouble.reason
            self.failures[partition, task] = trouble
        if isinstance(error, NotOwnerError):
            self.refused(error)
            return
        level = logging.DEBUG if known else logging.ERROR
        logger.log(level, "%s of %s fails: %s", task, partition, error, extra=fields)

    def succeeded(self, partition: TopicIdPartition, task: str, *, used_store: bool) -> bool:
        """Record that a task succeeded. Return whether that shows that the store is available again."""
        with self._lock:
            self.failures.pop((partition, task), None)
            self.troubles.pop((partition, task), None)
            since = self.unreachable_since_ms
            if used_store:
                self._refusal = None
            if not used_store or since is None:
                return False
            self.unreachable_since_ms = None
        logger.warning("The remote tier is available again after %.1f s", (self._clock.now_ms() - since) / 1000)
        return True

    def forget(self, partition: TopicIdPartition) -> None:
        with self._lock:
            self.failures = {key: trouble for key, trouble in self.failures.items() if key[0] != partition}
            self.troubles = {key: trouble for key, trouble in self.troubles.items() if key[0] != partition}
