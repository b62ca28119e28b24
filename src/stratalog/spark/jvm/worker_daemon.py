"""PySpark's worker daemon for our sessions (`spark.python.daemon.module`).

Its workers are preloaded, and exit quietly.

Every worker is forked from this process, which loads everything that reading needs once, including native code. Tasks
of a worker's first query do not wait for it, and all workers share it.

Output of the loading goes to standard error: Spark first reads the daemon's port from standard output. For quiet exits
see `quiet_workers`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Final

from pyspark import daemon

from stratalog.spark.jvm.quiet_workers import quietly

#: Modules of a query that are otherwise loaded when it comes to them.
_FIRST_QUERY: Final = (
    "stratalog.spark.source",
    "stratalog.spark.planning.planner",
    "stratalog.spark.reading.decode",
    "stratalog.spark.reading.prefetch",
    "stratalog.spark.reading.split_reader",
)


def _load_ahead() -> None:
    """Load modules ahead; what cannot be loaded here is reported by the task that needs it."""
    with _output_to_stderr(), suppress(Exception):
        for module in _FIRST_QUERY:
            import_module(module)
        from stratalog.spark.reading import settle_worker  # standard output is closed to it here

        settle_worker()


@contextmanager
def _output_to_stderr() -> Iterator[None]:
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.close(stdout)


if __name__ == "__main__":
    _load_ahead()
    daemon.worker = quietly(daemon.worker)  # type: ignore[assignment]
    daemon.manager()
