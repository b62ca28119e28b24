"""What goes wrong in the remote tier, said once: not at every attempt, and not for every partition."""

from __future__ import annotations

import logging
import re
import threading
from dataclasses import dataclass

from stratalog.errors import RetriableRemoteStorageError
from stratalog.remote.api import TopicIdPartition
from stratalog.util import Clock

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Trouble:
    """What keeps a task of a partition from its work: its last error, and how many turns in a row have failed."""

    message: str
    times: int
    since_ms: int
    is_retriable: bool


#: The id of a segment within a key or a message: each attempt to copy has a new one.
_SEGMENT_ID = re.compile(r"(?<=-)[A-Za-z0-9_-]{22}(?=\.)")


def _without_attempt(message: str) -> str:
    return _SEGMENT_ID.sub("", message)


class RemoteHealth:
    """Collects failures and successes of tasks. Thread-safe; its attributes may be read any time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        #: Since when the store fails in a way that may pass; None while it works.
        self.unreachable_since_ms: int | None = None
        #: What keeps a task of a partition from its work and will not pass by itself.
        self.failures: dict[tuple[TopicIdPartition, str], str] = {}
        #: The same, and what may pass as well: every task whose last turn failed.
        self.troubles: dict[tuple[TopicIdPartition, str], Trouble] = {}

    def failed(self, partition: TopicIdPartition, task: str, error: Exception) -> None:
        """A task failed; it is going to be tried again."""
        is_retriable = isinstance(error, RetriableRemoteStorageError)
        with self._lock:
            before = self.troubles.get((partition, task))
            times, since = (0, self._clock.now_ms()) if before is None else (before.times, before.since_ms)
            self.troubles[partition, task] = Trouble(str(error), times + 1, since, is_retriable)
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
            )
            return
        message = str(error)
        with self._lock:
            before_message = self.failures.get((partition, task), "")
            known = _without_attempt(before_message) == _without_attempt(message)
            self.failures[partition, task] = message
        logger.log(logging.DEBUG if known else logging.ERROR, "%s of %s does not work: %s", task, partition, message)

    def succeeded(self, partition: TopicIdPartition, task: str, *, used_store: bool) -> bool:
        """A task went well; whether that shows that the store works again."""
        with self._lock:
            self.failures.pop((partition, task), None)
            self.troubles.pop((partition, task), None)
            since = self.unreachable_since_ms
            if not used_store or since is None:
                return False
            self.unreachable_since_ms = None
        logger.warning("The remote tier works again after %.1f s", (self._clock.now_ms() - since) / 1000)
        return True

    def forget(self, partition: TopicIdPartition) -> None:
        with self._lock:
            self.failures = {key: message for key, message in self.failures.items() if key[0] != partition}
            self.troubles = {key: trouble for key, trouble in self.troubles.items() if key[0] != partition}
