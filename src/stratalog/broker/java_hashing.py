"""Hashes of Java, and the order in which its hash collections are read.

Kafka places a group by the hash of its name, and its assignors go through hash maps of members and topics: who gets
which partition follows from that order. A `HashMap` is read bucket by bucket; within a bucket, in the order of
insertion. The bucket is the hash, its upper half folded into the lower, modulo a capacity that is a power of two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar
from uuid import UUID

_Key = TypeVar("_Key")

_CAPACITY_MIN = 16
_MASK = 0xFFFFFFFF


def string_hash(text: str) -> int:
    """Return `String.hashCode`, as an unsigned number of 32 bits."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(encoded), 2):
        value = (value * 31 + (encoded[at] << 8 | encoded[at + 1])) & _MASK
    return value


def uuid_hash(identifier: UUID) -> int:
    """Return the hash of Kafka's `Uuid`, as an unsigned number of 32 bits."""
    mixed = (identifier.int >> 64) ^ (identifier.int & 0xFFFFFFFFFFFFFFFF)
    return (mixed >> 32) ^ (mixed & _MASK)


def grown_capacity(count: int) -> int:
    """Return the capacity of a `HashMap` that was made empty and got so many entries."""
    capacity = _CAPACITY_MIN
    while count > capacity * 3 // 4:
        capacity *= 2
    return capacity


def copied_capacity(count: int) -> int:
    """Return the capacity of a `HashSet` that was made from a collection of so many elements."""
    wanted = max(int(count / 0.75) + 1, _CAPACITY_MIN)
    return 1 << (wanted - 1).bit_length()


def in_hash_order(
    keys: Collection[_Key],
    hash_of: Callable[[_Key], int],
    capacity_for: Callable[[int], int] = grown_capacity,
) -> list[_Key]:
    """Return the keys as Java reads a hash collection into which they were put in this order."""
    mask = capacity_for(len(keys)) - 1

    def bucket(key: _Key) -> int:
        value = hash_of(key)
        return (value ^ value >> 16) & mask

    return sorted(keys, key=bucket)
