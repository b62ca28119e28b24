"""Ports for servers that get theirs before they start.

A port that the kernel picked a moment ago may be picked again, by any other process, until the server has bound it.
These lie below the range that the kernel picks from, and each test process has blocks of them to itself.
"""

from __future__ import annotations

import atexit
import random
import socket
from collections.abc import Iterator
from pathlib import Path

_BLOCK = 100
_LOWEST = 12_000
_KERNELS_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
#: Where the kernel's range begins that cannot be read.
_KERNELS_FIRST = 32_768


def free_port() -> int:
    """A TCP port that was free on every address a moment ago. While this process runs, no other is given it."""
    return next(_free_ports)


def _ports() -> Iterator[int]:
    while True:
        first = _claimed_block()
        yield from filter(_is_free, range(first + 1, first + _BLOCK))


def _claimed_block() -> int:
    """The first port of a block. It is bound as long as this process lives, so that no other has the block."""
    kernels_first = int(_KERNELS_RANGE.read_text().split()[0]) if _KERNELS_RANGE.exists() else _KERNELS_FIRST
    blocks = list(range(_LOWEST, kernels_first - _BLOCK, _BLOCK))
    random.SystemRandom().shuffle(blocks)  # a test may have seeded the module's own generator
    for first in blocks:
        claim = socket.socket()
        try:
            claim.bind(("127.0.0.1", first))
        except OSError:
            claim.close()
        else:
            atexit.register(claim.close)
            return first
    raise RuntimeError(f"every block of {_BLOCK} ports from {_LOWEST} to {kernels_first} is claimed")


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind(("", port))
        except OSError:
            return False
    return True


_free_ports = _ports()
