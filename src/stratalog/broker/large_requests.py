"""Limit how much of large requests is worked on at once.

A request takes up to fifty times its size while it is worked on: its elements, and those of its answer. Many clients
may send large ones at the same time, and each is worked on in pieces. So the others wait unread, in their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

#: Bytes of requests that are worked on at once, besides the first.
_AT_ONCE_BYTES: Final = 4 * 1024 * 1024


class LargeRequests:
    """The large requests that are worked on, and those that wait. Belongs to the loop's thread."""

    def __init__(self, at_once_bytes: int = _AT_ONCE_BYTES) -> None:
        self._at_once_bytes = at_once_bytes
        self._begun_bytes = 0
        self._waiting: deque[tuple[int, Callable[[], bool]]] = deque()

    def begin(self, size: int, start: Callable[[], bool]) -> None:
        """Call `start` now or later. It returns whether work has begun, after which `end` must be called."""
        self._waiting.append((size, start))
        if len(self._waiting) == 1:
            self._start_next()

    def end(self, size: int) -> None:
        self._begun_bytes -= size
        self._start_next()

    def _start_next(self) -> None:
        while self._waiting:
            size, start = self._waiting[0]
            if self._begun_bytes and self._begun_bytes + size > self._at_once_bytes:
                return
            self._waiting.popleft()
            if start():
                self._begun_bytes += size
