"""Waiting for what another thread or process does, bounded in time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str = "it happens", *, seconds: float = 60, every: float = 0.02) -> T:
    """Return the first true value of `condition`. Raises AssertionError, which says `what`, after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(every)
