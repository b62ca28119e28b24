"""Log tasks that make no progress once, with what they wait for, and again when they continue."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from enum import Enum

from stratalog.remote.api import TopicIdPartition
from stratalog.util import Clock

logger = logging.getLogger(__name__)


class StepKind(Enum):
    """What kind of thing a task waits for."""

    METADATA = "metadata"
    QUOTA = "quota"
    CHECK = "check"
    STORE = "store"
    DELETION = "deletion"


@dataclass(frozen=True, slots=True)
class Step:
    """What a task waits for; `detail` describes it for users."""

    kind: StepKind
    detail: str


@dataclass(frozen=True, slots=True)
class Stall:
    """A task run without progress since `since_ms` (wall clock), and what it waits for."""

    since_ms: int
    waiting_for: str


class TaskProgress:
    """Progress of one task, which records its steps. Any thread may read it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._step: tuple[float, int, Step] | None = None

    def note(self, kind: StepKind, detail: str) -> None:
        """Record that the task begins a step that may take long."""
        self._step = (self._clock.monotonic(), self._clock.now_ms(), Step(kind, detail))

    def advance(self) -> None:
        """Record progress of the current step."""
        step = self._step
        if step is not None:
            self._step = (self._clock.monotonic(), self._clock.now_ms(), step[2])

    def end(self) -> None:
        self._step = None

    @property
    def current(self) -> Step | None:
        """The step that the task is in, None while idle."""
        step = self._step
        return None if step is None else step[2]

    def stalled(self, stall_ms: int) -> Stall | None:
        """Return the current step if it has taken longer than `stall_ms`."""
        step = self._step
        if step is None or (self._clock.monotonic() - step[0]) * 1000 < stall_ms:
            return None
        return Stall(step[1], step[2].detail)


class Watchdog:
    """Checks the progress of tasks. `stalls` may be read at any time. Thread-safe."""

    def __init__(self, stall_ms: int, clock: Clock) -> None:
        self._stall_ms = stall_ms
        self._clock = clock
        self._watched: dict[tuple[TopicIdPartition, str], TaskProgress] = {}
        self._lock = threading.Lock()
        #: The stalled tasks.
        self.stalls: dict[tuple[TopicIdPartition, str], Stall] = {}

    def watch(self, partition: TopicIdPartition, task: str) -> TaskProgress:
        """Return the progress of a new task, which replaces an earlier one of the partition."""
        progress = TaskProgress(self._clock)
        with self._lock:
            self._watched[partition, task] = progress
        return progress

    def forget(self, partition: TopicIdPartition) -> None:
        with self._lock:
            for watched in (self._watched, self.stalls):
                for key in [key for key in watched if key[0] == partition]:
                    del watched[key]

    def look(self) -> None:
        """Compare all tasks with the last check, and log changes."""
        with self._lock:
            for (partition, task), progress in self._watched.items():
                found = progress.stalled(self._stall_ms)
                known = self.stalls.pop((partition, task), None)
                if found is not None:
                    self.stalls[partition, task] = found
                if found is not None and found != known:
                    logger.warning(
                        "%s of %s has made no progress for %.0f s; it waits for %s",
                        task,
                        partition,
                        (self._clock.now_ms() - found.since_ms) / 1000,
                        found.waiting_for,
                        extra={"partition": str(partition), "task": str(task)},
                    )
                elif known is not None and found is None:
                    logger.warning(
                        "%s of %s continues after %.0f s; it waited for %s",
                        task,
                        partition,
                        (self._clock.now_ms() - known.since_ms) / 1000,
                        known.waiting_for,
                        extra={"partition": str(partition), "task": str(task)},
                    )
