"""The garbage collector of a process that is a broker alone.

A full collection looks at every object, and all threads wait for it: 140 ms once numba is loaded. What code, tables
and loaded logs are made of stays until the process ends, so the collector does not look at it: after the start,
and whenever much has been loaded. A process that is not the broker's own (`Broker` inside a program) is left alone.

Reference counts still free these objects, except cycles. So this is for a few moments in the life of a process,
and for none that clients can bring about again and again.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_is_own_process = False
_loading = 0


@contextmanager
def own_garbage() -> Iterator[None]:
    """Say that this process does nothing else within than what `long_lived` is used for. All is as usual at the end."""
    global _is_own_process
    _is_own_process = True
    try:
        yield
    finally:
        _is_own_process = False
        gc.unfreeze()


@contextmanager
def long_lived() -> Iterator[None]:
    """Suspend garbage collection, then freeze all objects that exist at the end. Does nothing else, so it is cheap."""
    global _loading
    if not _is_own_process:
        yield
        return
    with _lock:
        _loading += 1
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            _loading -= 1
            gc.freeze()
            if not _loading:
                gc.enable()
