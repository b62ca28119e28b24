"""The states of a partition for the cleaner, as a table.

    state                start        pause              resume              done
    idle                 in progress  paused once        -                   -
    in progress          -            aborted            -                   idle
    aborted              -            -                  -                   paused once
    paused n times       -            paused n+1 times   n-1 times, or idle  -

`start`: a cleaning or the retention of a compacted log begins. `pause`: another operation needs the partition
(truncation, deletion, retention of a log that is not compacted). A cleaning in progress then ends by itself, and the
caller that paused waits for that. `-` is a mistake of the caller. Source: Kafka's `LogCleanerManager`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


class Phase(enum.Enum):
    IDLE = "idle"
    IN_PROGRESS = "in progress"
    ABORTED = "aborted"
    PAUSED = "paused"


class Event(enum.Enum):
    START = "start"
    PAUSE = "pause"
    RESUME = "resume"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class CleaningState:
    """`pauses` is 0 unless the phase is PAUSED; the partition is free again after as many resumes."""

    phase: Phase
    pauses: int = 0

    def after(self, event: Event) -> CleaningState:
        """Return the next state. Raises ValueError for an event that the table does not allow."""
        if self.phase is Phase.PAUSED:
            pauses = self.pauses + {Event.PAUSE: 1, Event.RESUME: -1}.get(event, 0)
            if pauses != self.pauses:
                return CleaningState(Phase.PAUSED, pauses) if pauses else IDLE
        elif (following := _FOLLOWING.get((self.phase, event))) is not None:
            return following
        raise ValueError(f"{event.value} is not possible for a partition that is {self.phase.value}")


IDLE: Final = CleaningState(Phase.IDLE)
IN_PROGRESS: Final = CleaningState(Phase.IN_PROGRESS)
ABORTED: Final = CleaningState(Phase.ABORTED)
PAUSED_ONCE: Final = CleaningState(Phase.PAUSED, 1)

_FOLLOWING: Final = {
    (Phase.IDLE, Event.START): IN_PROGRESS,
    (Phase.IDLE, Event.PAUSE): PAUSED_ONCE,
    (Phase.IN_PROGRESS, Event.PAUSE): ABORTED,
    (Phase.IN_PROGRESS, Event.DONE): IDLE,
    (Phase.ABORTED, Event.DONE): PAUSED_ONCE,
}
