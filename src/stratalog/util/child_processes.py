"""The processes that this one has started, and theirs, for a program that has to leave none behind.

Read from /proc. Where there is none (not Linux) nothing is found, and nothing is ended.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

_PROC = Path("/proc")
_POLL_SECONDS = 0.05


def descendants(pid: int | None = None) -> list[int]:
    """Return the ids of all children of `pid` (this process) and of their children, parents first."""
    children: dict[int, list[int]] = {}
    for entry in _PROC.glob("[0-9]*/stat"):
        try:
            # pid (name) state ppid ...; a name may contain anything, so the fields after its last parenthesis count.
            state, parent = entry.read_text().rpartition(")")[2].split()[:2]
        except (OSError, ValueError):  # the process has ended
            continue
        if state != "Z":
            children.setdefault(int(parent), []).append(int(entry.parent.name))
    found = list(children.get(os.getpid() if pid is None else pid, ()))
    for child in found:
        found += children.get(child, ())
    return found


def end_descendants(grace_seconds: float) -> None:
    """Send SIGTERM to all descendants of this process, and SIGKILL to those that live on after `grace_seconds`."""
    for number, seconds in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, grace_seconds)):
        living = descendants()
        for child in living:
            _send(child, number)
        deadline = time.monotonic() + seconds
        while set(living) & set(descendants()) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
