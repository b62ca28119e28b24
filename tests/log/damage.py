"""What may happen to a file on a bad disk: every way of it, each with a name, chosen by seed where there are too
many."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

#: Files up to this size are cut at every byte.
SMALL: int = 64


class Damage(NamedTuple):
    """`apply` does it to a file."""

    name: str
    apply: Callable[[Path], object]


def damages(content: bytes, other: bytes, seed: int, *, flips: int = 40, cuts: int = 25) -> Iterator[Damage]:
    """Missing, empty, cut, one bit flipped, zeros, or another file in its place."""
    chance = random.Random(seed)
    size = len(content)
    yield Damage("missing", lambda path: path.unlink())
    yield Damage("empty", lambda path: path.write_bytes(b""))
    yield Damage("zeros", lambda path: path.write_bytes(bytes(size)))
    yield Damage("other", lambda path: path.write_bytes(other))
    at_every_byte = range(1, size)
    is_small = 0 < size <= SMALL and cuts > 0
    for cut in at_every_byte if is_small else sorted(chance.sample(at_every_byte, min(cuts, len(at_every_byte)))):
        yield Damage(f"cut at {cut}", lambda path, cut=cut: path.write_bytes(content[:cut]))  # type: ignore[misc]
    for bit in sorted(chance.sample(range(size * 8), min(flips, size * 8))):
        yield Damage(f"bit {bit}", lambda path, bit=bit: path.write_bytes(flipped(content, bit)))  # type: ignore[misc]


def flipped(content: bytes, bit: int) -> bytes:
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)
