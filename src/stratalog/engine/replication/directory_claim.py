"""The claim of a replica that moves on its new log directory: the controller accepts it before the replica is there.

So the controller never elects a replica by a directory in which it no longer is (KIP-858).

    NEW -> SENT -> ACCEPTED | REFUSED
    SENT, ACCEPTED -> WITHDRAWN   the replica stays, and its directory is reported again

Source: `ReplicaAlterLogDirsThread.PromotionState` of Kafka 4.4.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final
from uuid import UUID

from stratalog.errors import KafkaStorageError

if TYPE_CHECKING:
    from stratalog.engine.replication.directory_assignments import Answered

#: The cluster's metadata version has no directories (before Kafka 3.7), so there is nothing to accept.
_UNSUPPORTED_VERSION: Final = 35


class _State(Enum):
    NEW = auto()
    SENT = auto()
    ACCEPTED = auto()
    REFUSED = auto()
    WITHDRAWN = auto()


class DirectoryClaim:
    """Thread-safe: the controller's answer comes on another thread."""

    def __init__(self, submit: Callable[[UUID, Answered | None], object], here: UUID, there: UUID) -> None:
        """`submit` reports a directory of the replica to the controller; see `DirectoryAssignments.submit`."""
        self._submit = submit
        self._here = here
        self._there = there
        self._lock = threading.Lock()
        self._state = _State.NEW
        self._error_code = 0

    @property
    def is_new(self) -> bool:
        return self._state is _State.NEW

    @property
    def is_reported(self) -> bool:
        """Whether the controller may have the new directory in the metadata."""
        return self._state in (_State.SENT, _State.ACCEPTED)

    def is_granted(self) -> bool:
        """Return whether the controller has accepted; the first call asks it. KafkaStorageError if it refuses."""
        with self._lock:
            is_new = self._state is _State.NEW
            if is_new:
                self._state = _State.SENT
        if is_new:
            self._submit(self._there, self._answered)
        if self._state is _State.REFUSED:
            raise KafkaStorageError(f"the controller refuses the new directory (error {self._error_code})")
        return self._state is _State.ACCEPTED

    def withdraw(self) -> None:
        """Report the earlier directory again, if the controller may have the new one."""
        with self._lock:
            was_reported, self._state = self.is_reported, _State.WITHDRAWN
        if was_reported:
            self._submit(self._here, None)

    def _answered(self, error_code: int) -> None:
        with self._lock:
            if self._state is _State.SENT:
                self._error_code = error_code
                self._state = _State.ACCEPTED if error_code in (0, _UNSUPPORTED_VERSION) else _State.REFUSED
