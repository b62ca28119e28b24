"""The newest offset of each key, in a fixed amount of memory: a hash table with open addressing.

An entry takes 24 bytes:

    at  size  field
     0    16  MD5 of the key, which stands for the key: two keys with the same would be taken for one
    16     8  offset, big-endian

A free entry is all zeros. A key is looked up at the slots given by the 32-bit numbers at bytes 0, 1, ... 12 of its hash
(absolute value modulo the number of slots), then slot by slot from the last of these. Single keys are never removed.
Source: Kafka's `SkimpyOffsetMap`, whose memory has the same bytes after the same calls.

`put` and `get` here are the plain twins of those in `map_kernel`, on the same memory. Not thread-safe.
"""

from __future__ import annotations

import hashlib
from typing import Final

import numpy as np
import numpy.typing as npt

from stratalog.log.cleaner.context import MapState
from stratalog.log.cleaner.md5_kernel import SCRATCH_SIZE

ENTRY_SIZE: Final = 24
HASH_SIZE: Final = 16
NOT_FOUND: Final = -1

_FREE: Final = bytes(ENTRY_SIZE)
#: The bytes of a hash at which a 32-bit number begins.
_LAST_PLACE: Final = HASH_SIZE - 4


class OffsetMap:
    """See the module. The memory is reserved once; the system provides its pages as they are first written."""

    def __init__(self, memory: int, load_factor: float = 1.0) -> None:
        """Make a map within `memory` bytes, which counts as full once `load_factor` of it is used.

        Raises ValueError if not even one entry fits, as a cleaner could not make progress.
        """
        self.slots = memory // ENTRY_SIZE
        if self.slots * load_factor <= 1:
            raise ValueError(
                f"an offset map of {memory} bytes does not hold a single key: raise log.cleaner.dedupe.buffer.size"
                " or lower log.cleaner.threads"
            )
        self._entries: npt.NDArray[np.uint8] = np.zeros(self.slots * ENTRY_SIZE, np.uint8)
        self._scratch = np.zeros(SCRATCH_SIZE, np.uint8)
        self._state = MapState()
        self._state.entries_at = self._entries.ctypes.data
        self._state.slots = self.slots
        self._state.latest_offset = -1
        self._state.size_wanted = int(self.slots * load_factor)
        self._state.scratch = self._scratch.ctypes.data

    @property
    def address(self) -> int:
        """The address of the state, for native loops; valid while the map lives."""
        return self._state.address

    @property
    def size(self) -> int:
        """The number of keys."""
        return int(self._state.size)

    @property
    def size_wanted(self) -> int:
        """The number of keys at which the map counts as full."""
        return int(self._state.size_wanted)

    @property
    def latest_offset(self) -> int:
        """The last offset that was put, or passed to `update_latest_offset`; -1 for none."""
        return int(self._state.latest_offset)

    def update_latest_offset(self, offset: int) -> None:
        """Set the last offset, past records without a key and offsets without a record."""
        self._state.latest_offset = offset

    @property
    def utilization(self) -> float:
        """The share of entries in use."""
        return self.size / self.slots

    @property
    def memory(self) -> memoryview:
        """The entries, for tests."""
        return self._entries.data

    def clear(self) -> None:
        """Remove all keys, and keep the memory."""
        if self.size:
            self._entries.fill(0)
        self._state.size = 0
        self._state.latest_offset = -1

    def put(self, key: bytes, offset: int) -> None:
        """Set the offset of a key. Raises ValueError if every slot is taken, even for a key that exists."""
        if self.size >= self.slots:
            raise ValueError(f"the offset map is full: {self.slots} entries")
        digest = hashlib.md5(key, usedforsecurity=False).digest()
        at = self._find(digest)
        assert at is not None, "a free slot is found if there is one"
        entries = self.memory
        if entries[at : at + ENTRY_SIZE] == _FREE:
            entries[at : at + HASH_SIZE] = digest
            self._state.size += 1
        entries[at + HASH_SIZE : at + ENTRY_SIZE] = offset.to_bytes(8, "big", signed=True)
        self.update_latest_offset(offset)

    def get(self, key: bytes) -> int:
        """Return the offset of a key, or NOT_FOUND."""
        at = self._find(hashlib.md5(key, usedforsecurity=False).digest())
        if at is None:
            return NOT_FOUND
        entry = bytes(self.memory[at : at + ENTRY_SIZE])
        return NOT_FOUND if entry == _FREE else int.from_bytes(entry[HASH_SIZE:], "big", signed=True)

    def is_superseded(self, key: bytes, offset: int) -> bool:
        """Return whether a later record than the one at `offset` was put with the key."""
        return offset < self.get(key)

    def _find(self, digest: bytes) -> int | None:
        """Return the position of the entry with this hash, else of the first free one, else None."""
        entries = self.memory
        for attempt in range(self.slots + _LAST_PLACE):
            at = self._slot(digest, attempt) * ENTRY_SIZE
            if entries[at : at + HASH_SIZE] == digest or entries[at : at + ENTRY_SIZE] == _FREE:
                return at
        return None

    def _slot(self, digest: bytes, attempt: int) -> int:
        place = min(attempt, _LAST_PLACE)
        probe = int.from_bytes(digest[place : place + 4], "big", signed=True) + attempt - place
        if probe > 0x7FFF_FFFF:  # as a 32-bit sum wraps
            probe -= 0x1_0000_0000
        return 0 if probe == -0x8000_0000 else abs(probe) % self.slots
