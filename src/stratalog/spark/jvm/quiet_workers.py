"""Let PySpark's workers exit quietly when Spark no longer needs them.

Spark closes the socket of a worker that idles for a minute, or whose query ended. The worker's last flush then fails
with a BrokenPipeError, and PySpark's daemon prints a traceback, always with Unix sockets, which our sessions use.
Nothing is lost.

Our own daemon starts the workers of tasks (`worker_daemon`). PySpark's own always starts planners
(`pyspark.sql.worker.*`), and no Spark property changes that. But a planner forked for the source runs the source's
code, and the daemon's loop in it looks up `worker` for each request. From the second request on, it finds ours.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from stratalog.errors import StratalogError

if TYPE_CHECKING:
    import socket

    Worker: TypeAlias = Callable[[socket.socket, bool], int]

#: The module started by `python -m` in PySpark's own daemon.
_STOCK: Final = "pyspark.daemon"

#: The module of workers without a daemon, of planners without one, and of our own daemon.
_WORKERS: Final = ("pyspark.", "stratalog.spark.jvm.worker_daemon")

_MARK: Final = "_stratalog_is_quiet"


def quietly(worker: Worker) -> Worker:
    """Wrap `pyspark.daemon.worker` so that it ends normally when the peer closes the connection."""

    @wraps(worker)
    def quiet(sock: socket.socket, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except BrokenPipeError:
            return 1

    setattr(quiet, _MARK, True)
    return quiet


@contextmanager
def without_traceback() -> Iterator[None]:
    """Show our errors in Spark without the frames of the worker. The error ends the worker, and the setting with it."""
    try:
        yield
    except StratalogError:
        if _main_module().startswith(_WORKERS):
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def _main_module() -> str:
    """Return the module started by `python -m`; "" for a script."""
    return getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", None) or ""


def quiet_this_worker() -> None:
    """Let a process forked by PySpark's own daemon exit quietly. Do nothing in any other process. Idempotent."""
    main: Any = sys.modules.get("__main__")
    if _main_module() != _STOCK:
        return
    if not hasattr(main.worker, _MARK):
        main.worker = quietly(main.worker)
