"""How much memory this process may take, and how it gives back what it does not need."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

#: Limits of control groups, of version 2 and 1, as a container sees its own.
_LIMITS: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def memory_bytes_max() -> int:
    """Return the bytes of memory that the machine or the container has."""
    found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for limit in _LIMITS:
        try:
            text = limit.read_text().strip()
        except OSError:  # another system, or not in a container
            continue
        if text.isdecimal():
            found = min(found, int(text))
    return found


def give_back_heap() -> None:
    """Give the holes in the heap back to the system, where the C library can: glibc keeps them otherwise.

    Takes milliseconds, without the interpreter lock.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
