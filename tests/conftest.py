"""What every test takes for granted of the process that it runs in."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    # A shell starts what runs in its background with SIGINT ignored, and commands that tests interrupt inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
