"""PySpark's workers that leave without a word when Spark has no more use for them.

Spark closes the socket of a worker that idles for a minute, or whose query ended. PySpark's daemon lets the worker's last
flush fail with a BrokenPipeError and prints a traceback: always over Unix sockets, which sessions of ours use. Nothing is
lost by it, and nobody can do anything about it.

Workers of tasks come from a daemon of ours (`worker_daemon`). Those that plan (`pyspark.sql.worker.*`) always come from
PySpark's own, which no property of Spark changes. But a planner that was forked for the source runs the source's code, and
the daemon's loop in it looks up `worker` anew for each request: from the second on, the last one included, it finds ours.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    import socket

    Worker: TypeAlias = Callable[[socket.socket, bool], int]

#: What `python -m` has started where PySpark's own daemon runs.
_STOCK: Final = "pyspark.daemon"

_MARK: Final = "_stratalog_is_quiet"


def quietly(worker: Worker) -> Worker:
    """`pyspark.daemon.worker`; a peer that is gone ends it like any other."""

    @wraps(worker)
    def quiet(sock: socket.socket, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except BrokenPipeError:
            return 1

    setattr(quiet, _MARK, True)
    return quiet


def quiet_this_worker() -> None:
    """In a process that PySpark's own daemon forked: let it leave quietly. Nothing in any other; may be called again."""
    main: Any = sys.modules.get("__main__")
    if getattr(getattr(main, "__spec__", None), "name", None) != _STOCK:
        return
    if not hasattr(main.worker, _MARK):
        main.worker = quietly(main.worker)
