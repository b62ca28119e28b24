"""Handle standard streams that are closed, have lost their reader, or must not be written to any more."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import RawIOBase
from typing import BinaryIO, Final

from stratalog.errors import UsageError

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


def stdin_bytes() -> BinaryIO:
    """Return standard input as bytes, for a command that has to read it. UsageError where it is closed."""
    if sys.__stdin__ is None:  # as Python starts without one; what stands in its place reads as empty
        raise UsageError("standard input is closed: give the command an input, such as < FILE or a pipe")
    return sys.stdin.buffer


def stdout_bytes() -> BinaryIO:
    """Return standard output as bytes, for a command that does nothing else. UsageError where it is closed."""
    if sys.__stdout__ is None:
        raise UsageError("standard output is closed: give the command an output, such as > FILE or a pipe")
    return sys.stdout.buffer


@contextmanager
def buffered_stdout() -> Iterator[BinaryIO]:
    """Lend standard output as bytes that are written in blocks, also where PYTHONUNBUFFERED is set.

    Containers often set it, and a call of the system for each line would cost more than the line. It is flushed when
    the block ends without an error. UsageError where it is closed.
    """
    stream = stdout_bytes()
    if not isinstance(stream, RawIOBase):
        yield stream
        return
    blocks = os.fdopen(sys.stdout.fileno(), "wb", closefd=False)
    try:
        yield blocks
        blocks.flush()
    finally:
        blocks.detach()


def discard_stdout() -> None:
    """Let what is still written to standard output go nowhere: its reader has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def discard_stderr() -> None:
    """Let what this process and its children still write to standard error go nowhere."""
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
