"""Log callbacks that hold the event loop longer than `stratalog.loop.slow.callback.ms`.

While a callback runs, every client waits. Each callback of the loop is timed, and a thread samples the stack of one
that takes too long:

    The event loop was held for 213 ms (198 ms of CPU) by Connection._on_readable from 127.0.0.1, at
    stratalog/records/compression.py:141 decompress; 12 others since the last such line, up to 90 ms

CPU time far below the duration means that the thread waited: for a core, the interpreter lock, or a disk. At most one
line a second is logged. Without the setting nothing is timed.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

logger = logging.getLogger(__name__)

#: Methods of a loop that take a callback, and the callback's position among their arguments.
_TAKERS: Final = {
    "call_soon": 0, "call_soon_threadsafe": 0, "call_later": 1, "call_at": 1, "add_reader": 1, "add_writer": 1,
}  # fmt: skip
_LINE_INTERVAL_S: Final = 1.0
#: Samples during the time that a callback may take.
_LOOKS: Final = 2
_PACKAGE: Final = "stratalog"


@contextmanager
def slow_callbacks_reported(loop: asyncio.AbstractEventLoop, limit_ms: int) -> Iterator[None]:
    """Log callbacks of this thread's loop that take longer than `limit_ms`; 0: none."""
    if not limit_ms:
        yield
        return
    watch = SlowCallbacks(loop, limit_ms)
    watch.start()
    try:
        yield
    finally:
        watch.close()


class SlowCallbacks:
    """Watches the loop of the thread that created it, from `start` to `close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_ms: int) -> None:
        self._loop = loop
        self._limit_s = limit_ms / 1000
        #: When the callback that runs now began; 0.0 while none does.
        self._begun_s = 0.0
        #: Stack position of the loop's thread when its callback had taken too long.
        self._place = ""
        self._line_at_s = 0.0
        self._unsaid = 0
        self._longest_unsaid_s = 0.0
        self._thread_id = threading.get_ident()
        self._ended = threading.Event()
        self._looker = threading.Thread(target=self._look, name="stratalog-slow-callbacks", daemon=True)

    def start(self) -> None:
        for name, position in _TAKERS.items():
            setattr(self._loop, name, self._timing(getattr(self._loop, name), position))
        self._looker.start()

    def close(self) -> None:
        """Stop watching. Callbacks that are already scheduled are still timed, but not logged."""
        self._ended.set()
        self._looker.join()
        for name in _TAKERS:
            delattr(self._loop, name)

    def _timing(self, take: Callable[..., Any], position: int) -> Callable[..., Any]:
        def give(*arguments: Any, **options: Any) -> Any:
            callback = arguments[position]
            if not isinstance(callback, _Timed):  # asyncio's own loop passes some of them to its other methods
                callback = _Timed(self, callback)
            return take(*arguments[:position], callback, *arguments[position + 1 :], **options)

        return give

    def run(self, callback: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if self._begun_s:  # within another one
            return callback(*arguments)
        cpu_s = time.thread_time()
        self._begun_s = begun_s = time.perf_counter()
        try:
            return callback(*arguments)
        finally:
            self._begun_s = 0.0
            taken_s = time.perf_counter() - begun_s
            if taken_s > self._limit_s and not self._ended.is_set():
                self._report(callback, taken_s, time.thread_time() - cpu_s)
            self._place = ""

    def _report(self, callback: Callable[..., Any], taken_s: float, cpu_s: float) -> None:
        now_s = time.perf_counter()
        if now_s < self._line_at_s:
            self._unsaid += 1
            self._longest_unsaid_s = max(self._longest_unsaid_s, taken_s)
            return
        others = ""
        if self._unsaid:
            others = f"; {self._unsaid} others since the last such line, up to {self._longest_unsaid_s * 1e3:.0f} ms"
        logger.warning(
            "The event loop was held for %.0f ms (%.0f ms of CPU) by %s%s%s",
            taken_s * 1e3,
            cpu_s * 1e3,
            description(callback),
            self._place and f", at {self._place}",
            others,
        )
        self._line_at_s = now_s + _LINE_INTERVAL_S
        self._unsaid, self._longest_unsaid_s = 0, 0.0

    def _look(self) -> None:
        """Sample where a slow callback is, on a separate thread."""
        while not self._ended.wait(self._limit_s / _LOOKS):
            begun_s = self._begun_s
            if begun_s and not self._place and time.perf_counter() - begun_s > self._limit_s:
                frame = sys._current_frames().get(self._thread_id)
                if frame is not None and self._begun_s == begun_s:
                    self._place = _place(frame)


class _Timed:
    """A callback as passed to the loop."""

    __slots__ = ("_callback", "_watch")

    def __init__(self, watch: SlowCallbacks, callback: Callable[..., Any]) -> None:
        self._watch = watch
        self._callback = callback

    def __call__(self, *arguments: Any) -> Any:
        return self._watch.run(self._callback, arguments)


def description(callback: Callable[..., Any]) -> str:
    """Name a callback by its function or its task's coroutine, and the client of a connection."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"the task of {getattr(owner.get_coro(), '__qualname__', owner.get_name())}"
    name = getattr(callback, "__qualname__", None) or type(callback).__qualname__
    peer = getattr(owner, "peer", None)
    return name if peer is None else f"{name} from {peer.client_host}"


def _place(frame: FrameType) -> str:
    """Return the innermost line of this package in a stack."""
    inner: FrameType | None = frame
    while inner is not None and inner.f_globals.get("__name__", "").partition(".")[0] != _PACKAGE:
        inner = inner.f_back
    code = (inner or frame).f_code
    _, found, path = code.co_filename.rpartition(f"/{_PACKAGE}/")
    line = (inner or frame).f_lineno
    return f"{_PACKAGE}/{path}:{line} {code.co_name}" if found else f"{code.co_filename}:{line} {code.co_name}"
