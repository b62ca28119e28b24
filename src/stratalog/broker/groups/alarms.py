"""Timers of groups: one each, for the group's next deadline."""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from dataclasses import dataclass

from stratalog.util import Clock


@dataclass(frozen=True, slots=True)
class _Alarm:
    due_ms: int
    handle: TimerHandle


class GroupAlarms:
    """Calls `ring` with a group's id at its deadline on the monotonic clock. Belongs to the loop's thread."""

    def __init__(self, clock: Clock, loop: AbstractEventLoop, ring: Callable[[str], None]) -> None:
        self._clock = clock
        self._loop = loop
        self._ring = ring
        self._alarms: dict[str, _Alarm] = {}
        self._closed = False

    def set(self, group_id: str, due_ms: int | None) -> None:
        """Set a group's next deadline, None: none. An alarm that is already set for an earlier time stays."""
        alarm = self._alarms.get(group_id)
        if due_ms is None or self._closed:
            self.cancel(group_id)
            return
        if alarm is not None:
            if alarm.due_ms <= due_ms:
                return
            alarm.handle.cancel()
        delay = max(due_ms / 1000 - self._clock.monotonic(), 0)
        self._alarms[group_id] = _Alarm(due_ms, self._loop.call_later(delay, self._on_time, group_id))

    def cancel(self, group_id: str) -> None:
        alarm = self._alarms.pop(group_id, None)
        if alarm is not None:
            alarm.handle.cancel()

    def close(self) -> None:
        """Cancel all alarms, and set no more."""
        self._closed = True
        for group_id in list(self._alarms):
            self.cancel(group_id)

    def _on_time(self, group_id: str) -> None:
        self._alarms.pop(group_id, None)
        self._ring(group_id)
