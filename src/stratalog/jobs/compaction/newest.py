"""Step 2: which records have a newer one, bucket by bucket.

The packed entries of a bucket come from the newest segment to the oldest, and in a segment from the last to the first.
A record whose key was seen before is superseded, so each entry is read once. The table takes 16 bytes for each key of
the bucket, divided by its load factor (a quarter to a half).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from stratalog.jobs.compaction import newest_kernel

#: Bytes of one packed entry: 16 for the hash, 4 for the offset.
PACKED_ENTRY_SIZE: Final = 20
_SLOTS_MIN: Final = 1 << 12


class NewestKeys:
    """The keys of one bucket seen so far. Call `clear` before the next bucket. Not thread-safe."""

    def __init__(self) -> None:
        #: Entries left, keys in the table, the maximum of these, entries listed (see the kernel).
        self._state = np.zeros(4, np.int64)
        self.clear()

    def clear(self) -> None:
        """Forget all keys, and free the memory."""
        self._reserve(_SLOTS_MIN)
        self._state[1] = 0

    def _reserve(self, slots: int) -> None:
        self._table: npt.NDArray[np.int64] = np.zeros((slots, 2), np.int64)
        self._state[2] = slots // 2

    def superseded(self, data: Buffer, base_offset: int, first_dirty_offset: int) -> npt.NDArray[np.uint32]:
        """Return the relative offsets of the packed entries that have a newer one, ascending.

        Packed entries come in descending order. Only keys of records from `first_dirty_offset` on supersede others.
        Raises ValueError for bytes that are not whole entries.
        """
        state = self._state
        view = memoryview(data)
        size = view.nbytes
        count, rest = divmod(size, PACKED_ENTRY_SIZE)
        if rest:
            raise ValueError(f"{size} bytes are not a multiple of the entry size {PACKED_ENTRY_SIZE}")
        hashes = np.frombuffer(view, np.int64, count * 2).reshape(count, 2).copy()
        offsets = np.frombuffer(view, np.uint32, count, count * 16).copy()
        listed: npt.NDArray[np.uint32] = np.empty(count, np.uint32)
        state[0], state[3] = count, 0
        dirty_from = max(first_dirty_offset - base_offset, 0)
        while True:
            newest_kernel.sift(self._table, state, hashes, offsets, dirty_from, listed)
            if state[0] == 0:
                return listed[: int(state[3])][::-1]
            before = self._table
            self._reserve(len(before) * 2)
            newest_kernel.rehash(before, self._table)
