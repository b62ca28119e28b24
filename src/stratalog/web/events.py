"""Notable events of a broker: warnings and errors of its log, denials, and changes made in the console.

Repeated lines are counted, so that one fault does not displace everything else.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import dataclass, replace
from typing import Final

from stratalog.util import Clock

_KEPT: Final = 500
_TEXT_MAX: Final = 2000
#: How many of the latest lines are searched for a repeat.
_LOOK_BACK: Final = 20
_LOGGERS: Final = ("stratalog", "kafka.authorizer.logger")


@dataclass(frozen=True, slots=True)
class NotedEvent:
    """One line; `times` is how often it occurred between `first_ms` and `at_ms`."""

    at_ms: int
    first_ms: int
    level: str
    source: str
    text: str
    times: int = 1


class EventKeeper(logging.Handler):
    """Collects records of the broker's loggers from `attach` to `detach`. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(logging.INFO)
        self._clock = clock
        self._noted: deque[NotedEvent] = deque(maxlen=_KEPT)
        self._noted_lock = threading.Lock()

    def attach(self) -> None:
        for name in _LOGGERS:
            logging.getLogger(name).addHandler(self)

    def detach(self) -> None:
        for name in _LOGGERS:
            logging.getLogger(name).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        last = logging.lastResort
        if last is not None and not logging.getLogger().handlers and record.levelno >= last.level:
            last.handle(record)  # without another handler: keep Python's default output
        source = record.name.removeprefix("stratalog.")
        if record.levelno < logging.WARNING and not record.name.startswith("kafka."):
            return
        try:
            text = record.getMessage()
        except (TypeError, ValueError):  # arguments that do not match their format
            text = str(record.msg)
        self.note(record.levelname.lower(), source, text)

    def note(self, level: str, source: str, text: str) -> None:
        now, text = self._clock.now_ms(), text[:_TEXT_MAX]
        with self._noted_lock:
            noted = self._noted
            for back in range(1, min(len(noted), _LOOK_BACK) + 1):
                old = noted[-back]
                if (old.level, old.source, old.text) == (level, source, text):
                    del noted[-back]
                    noted.append(replace(old, at_ms=now, times=old.times + 1))
                    return
            noted.append(NotedEvent(now, now, level, source, text))

    def newest(self) -> list[NotedEvent]:
        with self._noted_lock:
            return list(reversed(self._noted))
