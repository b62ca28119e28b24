"""What goes wrong in the remote tier, said once: not at every attempt, and not for every partition."""

from __future__ import annotations

import logging
import threading

from stratalog.errors import RetriableRemoteStorageError
from stratalog.remote.api import TopicIdPartition
from stratalog.util.clock import Clock

logger = logging.getLogger(__name__)


class RemoteHealth:
    """Collects failures and successes of tasks. Thread-safe; `unreachable_since_ms` and `failures` may be read any time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: Since when the store fails in a way that may pass; None while it works.
        self.unreachable_since_ms: int | None = None
        #: What keeps a partition from being tiered and will not pass by itself.
        self.failures: dict[TopicIdPartition, str] = {}

    def failed(self, partition: TopicIdPartition, task: str, error: Exception) -> None:
        """A task failed; it is going to be tried again."""
        if isinstance(error, RetriableRemoteStorageError):
            with self._lock:
                first = self.unreachable_since_ms is None
                if first:
                    self.unreachable_since_ms = self._clock.now_ms()
            level = logging.WARNING if first else logging.DEBUG
            logger.log(
                level,
                "The remote tier does not work at the moment, segments stay local and it is tried again: %s of %s: %s",
                task, partition, error,
            )  # fmt: skip
            return
        message = f"{task}: {error}"
        with self._lock:
            known = self.failures.get(partition) == message
            self.failures[partition] = message
        logger.log(logging.DEBUG if known else logging.ERROR, "%s is not tiered: %s", partition, message)

    def succeeded(self, partition: TopicIdPartition, *, used_store: bool) -> bool:
        """A task went well; whether that shows that the store works again."""
        with self._lock:
            self.failures.pop(partition, None)
            since = self.unreachable_since_ms
            if not used_store or since is None:
                return False
            self.unreachable_since_ms = None
        logger.warning("The remote tier works again after %.1f s", (self._clock.now_ms() - since) / 1000)
        return True

    def forget(self, partition: TopicIdPartition) -> None:
        with self._lock:
            self.failures.pop(partition, None)
