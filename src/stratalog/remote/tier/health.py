"""What goes wrong in the remote tier, said once: not at every attempt, and not for every partition."""

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
    """What keeps a task of a partition from its work: its last error, and how many turns in a row have failed."""

    message: str
    #: The message without the object that it is about: each attempt to copy has objects of its own.
    reason: str
    times: int
    since_ms: int
    is_retriable: bool


class RemoteHealth:
    """Collects failures and successes of tasks. Thread-safe; its attributes may be read any time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: What was logged of a store that is another cluster's.
        self._refusal: str | None = None
        #: Since when the store fails in a way that may pass; None while it works.
        self.unreachable_since_ms: int | None = None
        #: What keeps a task of a partition from its work and will not pass by itself.
        self.failures: dict[tuple[TopicIdPartition, str], Trouble] = {}
        #: The same, and what may pass as well: every task whose last turn failed.
        self.troubles: dict[tuple[TopicIdPartition, str], Trouble] = {}

    def refused(self, error: NotOwnerError) -> None:
        """Note that another cluster owns the store: nothing is copied or deleted, of any partition. Logged once."""
        with self._lock:
            is_new = self._refusal != error.reason
            self._refusal = error.reason
        if is_new:
            logger.error("%s", error)

    def failed(self, partition: TopicIdPartition, task: str, error: Exception) -> None:
        """Note that a task failed; it is going to be tried again."""
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
                "The remote tier does not work at the moment, segments stay local and it is tried again: %s of %s: %s",
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
        logger.log(level, "%s of %s does not work: %s", task, partition, error, extra=fields)

    def succeeded(self, partition: TopicIdPartition, task: str, *, used_store: bool) -> bool:
        """Note that a task went well. Returns whether that shows that the store works again."""
        with self._lock:
            self.failures.pop((partition, task), None)
            self.troubles.pop((partition, task), None)
            since = self.unreachable_since_ms
            if used_store:
                self._refusal = None
            if not used_store or since is None:
                return False
            self.unreachable_since_ms = None
        logger.warning("The remote tier works again after %.1f s", (self._clock.now_ms() - since) / 1000)
        return True

    def forget(self, partition: TopicIdPartition) -> None:
        with self._lock:
            self.failures = {key: trouble for key, trouble in self.failures.items() if key[0] != partition}
            self.troubles = {key: trouble for key, trouble in self.troubles.items() if key[0] != partition}
