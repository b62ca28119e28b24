"""Brokers in process end, and their threads with them.

The native cache of indexes outlives the thread that loaded it.
"""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import threading
import uuid

from stratalog.remote.reading.index_cache import _moka


def use(cache):
    for _ in range(200):
        key = uuid.uuid4()
        cache.set(key, 1)
        cache.remove(key)
        cache.run_pending_tasks()


def live():
    cache = _moka()(1_000_000)
    users = [threading.Thread(target=use, args=(cache,)) for _ in range(4)]
    for user in users:
        user.start()
    for user in users:
        user.join()


for _ in range(50):
    thread = threading.Thread(target=live)
    thread.start()
    thread.join()
print("alive")
"""


def test_caches_of_threads_that_have_ended_do_not_crash_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
