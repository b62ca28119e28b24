"""Java's hash functions, and the iteration order of its hash collections.

Kafka selects a group's partition by the hash of its name, and its assignors iterate over hash maps of members and
topics, which determines the assignment. A `HashMap` is iterated by bucket, and within a bucket by insertion order. The
bucket is the hash, its upper half folded into the lower, modulo the capacity, a power of two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import Generic, TypeVar
from uuid import UUID

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_CAPACITY_MIN = 16
_MASK = 0xFFFFFFFF
#: Longer texts are hashed by numpy: one of 32 KB, as clients may name a group, takes 4 ms in a loop.
_SHORT_MAX = 256
#: Hashes of short texts that are remembered: a request asks for that of its group several times.
_REMEMBERED = 4096


def string_hash(text: str) -> int:
    """Return `String.hashCode`, as an unsigned 32-bit number."""
    return _hash_of_short(text) if len(text) <= _SHORT_MAX else _hash_of_long(text)


@lru_cache(_REMEMBERED)
def _hash_of_short(text: str) -> int:
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(encoded), 2):
        value = (value * 31 + (encoded[at] << 8 | encoded[at + 1])) & _MASK
    return value


def _hash_of_long(text: str) -> int:
    import numpy as np  # not at the start, as few names are long

    units = np.frombuffer(text.encode("utf-16-be", "surrogatepass"), ">u2").astype(np.uint32)
    powers = np.full(len(units), 31, np.uint32)
    powers[0] = 1
    return int(np.dot(units, np.cumprod(powers, dtype=np.uint32)[::-1]))


def uuid_hash(identifier: UUID) -> int:
    """Return the hash of Kafka's `Uuid`, as an unsigned 32-bit number."""
    mixed = (identifier.int >> 64) ^ (identifier.int & 0xFFFFFFFFFFFFFFFF)
    return (mixed >> 32) ^ (mixed & _MASK)


def grown_capacity(count: int) -> int:
    """Return the capacity of a `HashMap` that was created empty and has `count` entries."""
    capacity = _CAPACITY_MIN
    while count > capacity * 3 // 4:
        capacity *= 2
    return capacity


def copied_capacity(count: int) -> int:
    """Return the capacity of a `HashSet` that was created from a collection of `count` elements."""
    wanted = max(int(count / 0.75) + 1, _CAPACITY_MIN)
    return 1 << (wanted - 1).bit_length()


def in_hash_order(
    keys: Collection[_Key],
    hash_of: Callable[[_Key], int],
    capacity_for: Callable[[int], int] = grown_capacity,
) -> list[_Key]:
    """Return the keys in the iteration order of a Java hash collection, given their insertion order."""
    mask = capacity_for(len(keys)) - 1

    def bucket(key: _Key) -> int:
        value = hash_of(key)
        return (value ^ value >> 16) & mask

    return sorted(keys, key=bucket)


def sized_capacity(size: int) -> Callable[[int], int]:
    """Return the capacity of a `HashMap` with an initial size, as a function of its number of entries."""
    first = 1 << (max(size, 1) - 1).bit_length()

    def capacity_for(count: int) -> int:
        capacity = first
        while count > capacity * 3 / 4:
            capacity *= 2
        return capacity

    return capacity_for


class JavaMap(Generic[_Key, _Value]):
    """A `HashMap`: iterates by bucket, within a bucket by insertion order. It grows, but never shrinks.

    (Java converts buckets with eight or more entries to trees, whose order may differ.)
    """

    def __init__(self, hash_of: Callable[[_Key], int], capacity: int = _CAPACITY_MIN) -> None:
        self._hash_of = hash_of
        self._capacity = capacity
        self._entries: dict[_Key, _Value] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[_Key]:
        """Yield the current keys, regardless of later changes."""
        return iter(in_hash_order(self._entries.keys(), self._hash_of, lambda _: self._capacity))

    def items(self) -> list[tuple[_Key, _Value]]:
        return [(key, self._entries[key]) for key in self]

    def get(self, key: _Key) -> _Value | None:
        return self._entries.get(key)

    def put(self, key: _Key, value: _Value) -> None:
        self._entries[key] = value
        while len(self._entries) > self._capacity * 3 / 4:
            self._capacity *= 2

    def get_or_make(self, key: _Key, make: Callable[[], _Value]) -> _Value:
        if key not in self._entries:
            self.put(key, make())
        return self._entries[key]

    def remove(self, key: _Key) -> bool:
        """Remove a key; return whether it existed."""
        is_there = key in self._entries
        self._entries.pop(key, None)
        return is_there


def java_set(
    elements: Collection[_Key], hash_of: Callable[[_Key], int], capacity: int = _CAPACITY_MIN
) -> JavaMap[_Key, None]:
    """Return a `HashSet` of these elements, as the keys of a map."""
    made: JavaMap[_Key, None] = JavaMap(hash_of, capacity)
    for element in elements:
        made.put(element, None)
    return made


class JavaHeap(Generic[_Key]):
    """A `PriorityQueue`: the order of equal elements depends on how its heap was built."""

    def __init__(self, rank_of: Callable[[_Key], float]) -> None:
        self._rank_of = rank_of
        self._heap: list[_Key] = []

    def add(self, element: _Key) -> None:
        """Append an element and sift it up."""
        heap, rank_of = self._heap, self._rank_of
        rank = rank_of(element)
        heap.append(element)
        at = len(heap) - 1
        while at > 0:
            parent = (at - 1) // 2
            if rank >= rank_of(heap[parent]):
                break
            heap[at] = heap[parent]
            at = parent
        heap[at] = element

    def poll(self) -> _Key | None:
        """Remove and return the first element, and sift the last one down from its place. None for an empty heap."""
        heap, rank_of = self._heap, self._rank_of
        if not heap:
            return None
        first, last = heap[0], heap.pop()
        if not heap:
            return first
        rank, at = rank_of(last), 0
        while (child := 2 * at + 1) < len(heap):
            if child + 1 < len(heap) and rank_of(heap[child]) > rank_of(heap[child + 1]):
                child += 1
            if rank <= rank_of(heap[child]):
                break
            heap[at] = heap[child]
            at = child
        heap[at] = last
        return first
