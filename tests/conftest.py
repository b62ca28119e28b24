"""What every test takes for granted of the process that it runs in, and how many processes run tests."""

from __future__ import annotations

import os
import signal

from tests.support.reference_jars import SHORT_LIVED

#: Each worker has what session fixtures start for itself: brokers, JVMs, Spark.
_WORKERS_MAX = 8


def pytest_configure() -> None:
    # A shell starts what runs in its background with SIGINT ignored, and commands that tests interrupt inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Spark drivers, also those of commands that tests start: more than half of the CPU of small queries would go into
    # compiling them for a long life.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(SHORT_LIVED))


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: a worker waits for nearly half of its time, for processes and for answers."""
    return min((os.cpu_count() or 1) + 1, _WORKERS_MAX)
