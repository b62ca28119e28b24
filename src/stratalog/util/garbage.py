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
from typing import Final

#: The generation of a full collection.
_FULL: Final = 2
#: Objects made before the youngest are looked at, and how many such collections come before one of the next generation.
#: What a full one leaves is left out of the next, so that it may come often: it looks at some 6,000 objects, in less
#: than a millisecond. By Python's own numbers it is 77,000 and more, in 50 ms.
_THRESHOLDS: Final = (700, 3, 1)
#: How many objects may be left out before all are looked at again, as a multiple of what there was then.
_GROWTH_MAX: Final = 4

_lock = threading.Lock()
_is_own_process = False
_loading = 0
#: Objects that were left out when all were last looked at; 0: not yet known.
_left_out = 0
#: How many may be added before they are counted, which takes milliseconds as it looks at each.
_uncounted_max = 0


@contextmanager
def own_garbage() -> Iterator[None]:
    """Say that this process does nothing else within than what `long_lived` is used for. All is as usual at the end."""
    global _is_own_process, _left_out
    thresholds = gc.get_threshold()
    _is_own_process = True
    _left_out = 0
    gc.callbacks.append(_leave_out)
    gc.set_threshold(*_THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(_leave_out)
        _is_own_process = False
        gc.unfreeze()


def _leave_out(phase: str, info: dict[str, int]) -> None:
    """Leave out what a full collection has left, from the next ones; or nothing, once that has grown much."""
    global _left_out, _uncounted_max
    if phase != "stop" or info["generation"] < _FULL:
        return
    _uncounted_max -= len(gc.get_objects(_FULL))
    gc.freeze()
    if _left_out and _uncounted_max > 0:
        return
    count = gc.get_freeze_count()
    if _left_out and count > _left_out * _GROWTH_MAX:
        gc.unfreeze()
        _left_out = 0  # the next full collection says how much there is
        return
    _left_out = _left_out or count
    _uncounted_max = max(_left_out * _GROWTH_MAX - count, _left_out // 4)


@contextmanager
def long_lived() -> Iterator[None]:
    """Suspend garbage collection, then freeze all objects that exist at the end. Does nothing else, so it is cheap."""
    global _loading, _left_out
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
            _left_out = 0  # what was loaded is no growth
            if not _loading:
                gc.enable()
