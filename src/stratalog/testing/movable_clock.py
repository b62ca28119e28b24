"""A clock that tests move while a broker works by it, and an event loop whose timers follow that clock."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import Context
from dataclasses import dataclass
from typing import Any

from stratalog.util import Clock

#: Time is moved in that many leaps, so that what follows from each other happens at different times.
_LEAPS = 16
#: How long `advance` waits for the broker, in seconds of the real world.
PATIENCE_S = 30.0
_LOOK_S = 0.001
#: A loop that ends drops what it was asked; so it is asked again.
_ASK_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class _Rest:
    """A thread that waits, since it looked at the clock after the leap of this number."""

    changed: threading.Condition
    leap: int
    busy: bool


class MovableClock(Clock):
    """The clocks of this machine, and as much later as was advanced. Thread-safe.

    Threads that wait with `wait_until` or `sleep`, and loops of `new_event_loop`, follow it: they wake when their time
    has come on this clock. Real time passes too.
    """

    def __init__(self) -> None:
        self._ahead_ns = 0
        self._leap = 0
        self._changed = threading.Condition()
        self._sleepers = threading.Condition()
        #: Threads that follow this clock; None while one works.
        self._followers: dict[threading.Thread, _Rest | None] = {}
        self._loops: list[ClockLoop] = []
        self._advancing = threading.Lock()

    def now_ms(self) -> int:
        return (time.time_ns() + self._ahead_ns) // 1_000_000

    def monotonic(self) -> float:
        return (time.monotonic_ns() + self._ahead_ns) / 1e9

    def sleep(self, seconds: float) -> None:
        until_s = self.monotonic() + seconds
        with self._sleepers:
            while self.monotonic() < until_s:
                self.wait_until(self._sleepers, until_s)

    def expect(self, thread: threading.Thread) -> None:
        with self._changed:
            self._followers.setdefault(thread, None)

    def wait_until(self, changed: threading.Condition, due_s: float | None, *, busy: bool = False) -> None:
        me = threading.current_thread()
        with self._changed:
            left_s = None if due_s is None else due_s - self.monotonic()
            if left_s is not None and left_s <= 0:
                return
            self._followers[me] = _Rest(changed, self._leap, busy)
            self._changed.notify_all()
        try:
            changed.wait(left_s)
        finally:
            with self._changed:
                self._followers[me] = None

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Return a loop whose timers follow this clock."""
        loop = ClockLoop(self)
        with self._changed:
            self._loops = [each for each in self._loops if not each.is_closed()] + [loop]
        return loop

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, milliseconds: float = 0
    ) -> None:
        """Let so much time pass; returns when all that became due has been done.

        It passes in a few leaps, and all due jobs run after each leap. A job that is due many times in a leap
        is done once. Clients do not follow this clock. ValueError for time that is negative. TimeoutError when work has
        not ended after half a minute of real time.
        """
        total_ns = round(((days * 24 + hours) * 3600 + minutes * 60 + seconds) * 1e9 + milliseconds * 1e6)
        if total_ns < 0:
            raise ValueError("time does not run backwards")
        with self._advancing:
            until = time.monotonic() + PATIENCE_S
            for leap in range(_LEAPS):
                self._move(total_ns * (leap + 1) // _LEAPS - total_ns * leap // _LEAPS)
                self._settle(until)

    def _move(self, by_ns: int) -> None:
        with self._changed:
            self._ahead_ns += by_ns

    def _settle(self, until_s: float) -> None:
        """Wait until everybody has looked at the clock and rests; twice, as a loop may have given work to a thread."""
        for _ in range(2):
            self._wake()
            with self._changed:
                while working := self._working():
                    if time.monotonic() > until_s:
                        names = ", ".join(sorted(thread.name for thread in working))
                        raise TimeoutError(f"still at work {PATIENCE_S:.0f} s after the clock was advanced: {names}")
                    self._changed.wait(_LOOK_S)  # the end of a thread is not signalled
                loops = [loop for loop in self._loops if loop.is_running()]
            for loop in loops:
                loop.settle(until_s)

    def _wake(self) -> None:
        """Let everybody look at the clock."""
        with self._changed:
            self._leap += 1
            resting = {rest.changed for rest in self._followers.values() if rest is not None}
        for changed in resting:
            with changed:
                changed.notify_all()

    def _working(self) -> list[threading.Thread]:
        for thread in [thread for thread in self._followers if not thread.is_alive()]:
            del self._followers[thread]
        return [
            thread for thread, rest in self._followers.items() if rest is None or rest.busy or rest.leap != self._leap
        ]


class ClockLoop(asyncio.SelectorEventLoop):
    """Count submitted work, so that another thread can see when the loop is idle."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._followed = clock
        self._given = 0
        #: Calls in other threads that it waits for.
        self._elsewhere = 0

    def time(self) -> float:
        return self._followed.monotonic()

    def call_soon(  # type: ignore[override]  # any arguments
        self, callback: Callable[..., object], *arguments: Any, context: Context | None = None
    ) -> asyncio.Handle:
        self._given += 1
        return super().call_soon(callback, *arguments, context=context)

    def run_in_executor(  # type: ignore[override]  # any arguments
        self, executor: Any, function: Callable[..., Any], *arguments: Any
    ) -> asyncio.Future[Any]:
        self._elsewhere += 1
        future = super().run_in_executor(executor, function, *arguments)
        future.add_done_callback(self._one_less)
        return future

    def _one_less(self, _: object) -> None:
        self._elsewhere -= 1

    def settle(self, until_s: float) -> None:
        """Wait until the timers that are due have run, and all that they began. Called by another thread."""
        before = -1
        while (left_s := until_s - time.monotonic()) > 0:
            counts: Future[tuple[int, int]] = Future()
            try:
                self.call_soon_threadsafe(self._count, counts)
            except RuntimeError:  # it has ended, and there is nothing to wait for
                return
            try:
                given, elsewhere = counts.result(min(left_s, _ASK_AGAIN_S))
            except TimeoutError:  # it works on, or it ended before it came to the question
                continue
            if elsewhere:
                time.sleep(_LOOK_S)
            elif given == before:
                return
            before = given
        raise TimeoutError(f"the event loop is still at work {PATIENCE_S:.0f} s after the clock was advanced")

    def _count(self, counts: Future[tuple[int, int]]) -> None:
        counts.set_result((self._given, self._elsewhere))
