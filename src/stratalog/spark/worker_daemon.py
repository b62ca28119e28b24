"""PySpark's worker daemon, without the stack trace that it prints when Spark hangs up on a worker first.

Spark closes the socket of a worker that it has no more use for: one that idles, or one of a query that ended. PySpark's
daemon lets the worker's last flush fail with a BrokenPipeError and prints where; nothing is lost by it, and nobody can do
anything about it. Sessions of ours run this module in its place (`spark.python.daemon.module`).
"""

from __future__ import annotations

import socket

from pyspark import daemon

_worker = daemon.worker


def _quiet_worker(sock: socket.socket, authenticated: bool) -> int:
    """One worker's life; a peer that is gone ends it like any other."""
    try:
        return _worker(sock, authenticated)
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    daemon.worker = _quiet_worker
    daemon.manager()
