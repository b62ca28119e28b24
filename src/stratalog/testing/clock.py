"""A clock that tests move."""

from __future__ import annotations

from stratalog.util import Clock


class ManualClock(Clock):
    """Starts at `now_ms`; `advance` and `sleep` move both clocks. Not for use by several threads at once."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        self.advance(round(seconds * 1000))

    def advance(self, ms: int) -> None:
        self._now_ms += ms
        self._monotonic += ms / 1000

    def jump(self, ms: int) -> None:
        """Move the wall clock alone, either way, as a bad time server does."""
        self._now_ms += ms
