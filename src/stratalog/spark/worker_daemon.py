"""PySpark's worker daemon for sessions of ours (`spark.python.daemon.module`): workers that are ready, and leave quietly.

Every worker is forked from this process. What reading needs is loaded here once, its native code included, so that no task
of a worker's first query waits for it; it is shared by all workers.

Spark closes the socket of a worker that it has no more use for: one that idles, or one of a query that ended. PySpark's
daemon lets the worker's last flush fail with a BrokenPipeError and prints where; nothing is lost by it, and nobody can do
anything about it: here it is not printed.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from importlib import import_module
from typing import Final

from pyspark import daemon

#: Modules of a query that are otherwise loaded when it comes to them.
_FIRST_QUERY: Final = (
    "stratalog.spark.source",
    "stratalog.spark.planner",
    "stratalog.spark.decode",
    "stratalog.spark.prefetch",
    "stratalog.spark.split_reader",
)

_worker = daemon.worker


def _quiet_worker(sock: socket.socket, authenticated: bool) -> int:
    """One worker's life; a peer that is gone ends it like any other."""
    try:
        return _worker(sock, authenticated)
    except BrokenPipeError:
        return 1


def _load_ahead() -> None:
    """What cannot be loaded here is told of by the task that needs it."""
    with suppress(Exception):
        for module in _FIRST_QUERY:
            import_module(module)
        from stratalog.spark.split_rows import settle_worker

        settle_worker()


if __name__ == "__main__":
    _load_ahead()
    daemon.worker = _quiet_worker
    daemon.manager()
