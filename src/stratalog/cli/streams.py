"""Standard output and standard error, for when there is no reader left or nothing more to say."""

from __future__ import annotations

import os
import sys


def discard_stdout() -> None:
    """Let what is still written to standard output go nowhere: its reader has gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def discard_stderr() -> None:
    """Let what this process and its children still write to standard error go nowhere."""
    sys.stderr.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
