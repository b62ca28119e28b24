"""PySpark's worker daemon for our sessions (`spark.python.daemon.module`).

Every worker is forked from this process, which loads once all modules and native code that reading needs. Workers share
them, and the tasks of a worker's first query do not wait for them.

Output during loading goes to standard error, because Spark first reads the daemon's port from standard output. Workers
exit quietly: see `quiet_workers`.
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

#: Modules that a query would otherwise load on first use.
_FIRST_QUERY: Final = (
    "stratalog.spark.source",
    "stratalog.spark.planning.planner",
    "stratalog.spark.reading.decode",
    "stratalog.spark.reading.prefetch",
    "stratalog.spark.reading.split_reader",
)


def _load_ahead() -> None:
    """Load modules ahead. The task that needs a module reports it if it cannot be loaded."""
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
