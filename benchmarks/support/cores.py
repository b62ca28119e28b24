"""Which cores processes run on: so that what a machine of its own would do takes nothing from what is measured."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


def cores() -> list[int]:
    """Those that this process may use."""
    return sorted(os.sched_getaffinity(0))


@contextmanager
def on_cores(chosen: set[int]) -> Iterator[None]:
    """Keep this thread, and the processes that it starts, on these cores.

    The processes stay there for good.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, chosen)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
