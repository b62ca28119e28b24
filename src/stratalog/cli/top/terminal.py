"""Keys of a terminal as they are pressed, and a wait that a key, a new size or another thread ends."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from types import FrameType, TracebackType
from typing import Any, Final, Self

_READ: Final = 64


class KeyWaiter:
    """Within its `with`, keys arrive at once and without echo, where standard input is a terminal.

    `wake` may be called from any thread.
    """

    def __init__(self, *, reads_keys: bool) -> None:
        self.reads_keys = reads_keys
        self._before: list[Any] | None = None
        #: The signal handlers to restore.
        self._handlers: dict[int, Any] = {}
        self._woken, self._wakes = os.pipe()
        os.set_blocking(self._wakes, False)

    def __enter__(self) -> Self:
        if self.reads_keys:
            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
            self._handlers = {
                signal.SIGWINCH: signal.signal(signal.SIGWINCH, self._resized),
                signal.SIGTERM: signal.signal(signal.SIGTERM, _leave),
            }
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)
        os.close(self._wakes)
        os.close(self._woken)

    def wake(self) -> None:
        """End a wait that is under way, or the next one."""
        try:
            os.write(self._wakes, b".")
        except BlockingIOError:
            return  # the pipe is full of wakes

    def wait(self, seconds: float) -> str:
        """Return the keys that were pressed; nothing after the timeout, after `wake`, or after a change of size."""
        sources = [self._woken, *([sys.stdin.fileno()] if self.reads_keys else [])]
        ready, _, _ = select.select(sources, [], [], max(seconds, 0))
        if self._woken in ready:
            os.read(self._woken, _READ)
        if self.reads_keys and sys.stdin.fileno() in ready:
            keys = os.read(sys.stdin.fileno(), _READ)
            if not keys:  # the terminal has gone
                self.reads_keys = False
                return "q"
            return keys.decode(errors="ignore")
        return ""

    def _resized(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.wake()


def _leave(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
    """Exit on a signal, through the blocks that restore the terminal."""
    raise SystemExit(128 + signum)
