"""The native loop of step 2. No interpreter lock."""

from __future__ import annotations

from typing import Any

from stratalog.records.native import compiled, inlined


@inlined
def _is_new(table: Any, low: Any, high: Any) -> bool:
    """Add a hash to a table in which (0, 0) is a free slot. Return whether it was new. Needs a free slot."""
    mask = len(table) - 1
    at = high & mask
    while True:
        if table[at, 0] == low and table[at, 1] == high:
            return False
        if table[at, 0] == 0 and table[at, 1] == 0:
            table[at, 0] = low
            table[at, 1] = high
            return True
        at = (at + 1) & mask


@compiled("void(int64[:, ::1], int64[:, ::1])")
def rehash(source: Any, target: Any) -> None:
    """Add all of one table to another, which is larger."""
    for at in range(len(source)):
        if source[at, 0] != 0 or source[at, 1] != 0:
            _is_new(target, source[at, 0], source[at, 1])


@compiled("void(int64[:, ::1], int64[::1], int64[:, ::1], uint32[::1], int64, uint32[::1])")
def sift(table: Any, state: Any, hashes: Any, offsets: Any, dirty_from: int, superseded: Any) -> None:
    """List the entries, from the last to the first, whose key is in the table already.

    Keys of entries with offsets from `dirty_from` on are added to the table. `state` holds the entries left, the keys
    in the table, the keys at which this stops, and the entries listed. The hash (0, 0) marks a free slot and is never
    superseded.
    """
    left = state[0]
    taken = state[1]
    listed = state[3]
    mask = len(table) - 1
    while left > 0 and taken < state[2]:
        left -= 1
        low = hashes[left, 0]
        high = hashes[left, 1]
        if low == 0 and high == 0:
            continue
        if offsets[left] >= dirty_from:
            if _is_new(table, low, high):
                taken += 1
                continue
            superseded[listed] = offsets[left]
            listed += 1
            continue
        at = high & mask
        while table[at, 0] != 0 or table[at, 1] != 0:
            if table[at, 0] == low and table[at, 1] == high:
                superseded[listed] = offsets[left]
                listed += 1
                break
            at = (at + 1) & mask
    state[0] = left
    state[1] = taken
    state[3] = listed
