"""Streams on a machine that does much else."""

from __future__ import annotations

from collections.abc import Callable


def despite_late_workers(run: Callable[[], None]) -> None:
    """Run a query again, from its checkpoint, when Spark gave up on a Python process of its own that came too late.

    A stream's planner has 10 seconds to start, which no setting changes, and a machine that does much else may need
    more.
    """
    for tries_left in (2, 1, 0):
        try:
            run()
            break
        except Exception as error:
            if not tries_left or "failed to connect back" not in str(error):
                raise
