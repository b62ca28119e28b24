"""Handle standard streams that are closed, have lost their reader, or must not be written to any more."""

from __future__ import annotations

import os
import sys
from typing import Final

_STREAMS: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def reopen_closed_streams() -> None:
    """Open the null device in place of each standard stream that the process was started without.

    Else a file of a log would take its number, and get what a library writes to standard error.
    """
    for number, (name, mode) in enumerate(_STREAMS):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened == number:
                os.set_inheritable(number, True)
            else:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def discard_stdout() -> None:
    """Let what is still written to standard output go nowhere: its reader has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def discard_stderr() -> None:
    """Let what this process and its children still write to standard error go nowhere."""
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
