"""The memory limit of this process, and the return of unused memory to the system."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Final

from typing_extensions import Buffer

#: Limits of control groups, of version 2 and 1, as a container sees its own.
_LIMITS: Final = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
#: How much of a map is given back with one call: each keeps other threads from memory that they touch first.
_PIECE_BYTES: Final = 8 * 1024 * 1024
#: Linux's number for "the contents are not needed".
_DONTNEED: Final = 4


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


def give_back_maps(maps: list[Buffer]) -> None:
    """Give the memory of anonymous maps back to the system, and let go of them: `maps` is empty afterwards.

    Takes milliseconds, without the interpreter lock. Their contents must not be used any more.
    """
    advise = getattr(ctypes.CDLL(None), "madvise", None) if sys.platform == "linux" else None
    while maps:
        unused = maps.pop()
        if advise is None:
            continue  # they go with their last user, which takes longer
        address, size = ctypes.addressof(ctypes.c_char.from_buffer(unused)), memoryview(unused).nbytes
        for at in range(0, size, _PIECE_BYTES):
            piece = min(_PIECE_BYTES, size - at)
            advise(ctypes.c_void_p(address + at), ctypes.c_size_t(piece), ctypes.c_int(_DONTNEED))
