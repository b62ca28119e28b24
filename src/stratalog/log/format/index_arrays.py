"""Index entries as numpy tables that lie where the bytes lie: nothing is copied, nothing is decoded before it is used.

Imported at the first batched lookup or the first check of a large index, never with `stratalog.log`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from typing_extensions import Buffer

from stratalog.log.format.offset_index_format import LEGACY, OffsetIndexFormat
from stratalog.log.index import Array

LEGACY_ENTRY: Final = np.dtype([("offset", ">i4"), ("position", ">i4")])
LARGE_ENTRY: Final = np.dtype([("offset", ">i4"), ("position", ">i8")])
TIME_ENTRY: Final = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])

#: Checks look at so many entries at a time, to hold copies of those only.
_CHECK_ENTRIES: Final = 1 << 16


def offset_table(data: Buffer, form: OffsetIndexFormat, entries: int) -> Any:
    """Return the first `entries` entries with fields `offset` (relative) and `position`."""
    return np.frombuffer(memoryview(data).cast("B"), LEGACY_ENTRY if form is LEGACY else LARGE_ENTRY, entries)


def time_table(data: Buffer, entries: int) -> Any:
    """Return the first `entries` entries with fields `timestamp` and `offset` (relative)."""
    return np.frombuffer(memoryview(data).cast("B"), TIME_ENTRY, entries)


def first_not_ascending(first: Array, second: Array, *, is_second_strict: bool = True) -> int | None:
    """Return the first slot that is wrong, or None.

    Its fields are negative, or not larger than those of the slot before.

    The second field may stay equal if not `is_second_strict`.
    """
    step = 1 if is_second_strict else 0
    first_before, second_before = -1, -step
    for start in range(0, len(first), _CHECK_ENTRIES):
        a = first[start : start + _CHECK_ENTRIES].astype(np.int64)
        b = second[start : start + _CHECK_ENTRIES].astype(np.int64)
        bad = (np.diff(a, prepend=first_before) <= 0) | (np.diff(b, prepend=second_before) < step)
        if bad.any():
            return start + int(bad.argmax())
        first_before, second_before = int(a[-1]), int(b[-1])
    return None
