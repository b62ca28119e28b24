"""The offset map for native loops; `offset_map` says what it is, and has the plain twins.

The map is told by the address of its state, `STATE_WORDS` int64s, and works on memory that its owner keeps. Whoever
filters asks `is_superseded`, which a list of offsets answers as well as a map does (`superseded`).
"""

from __future__ import annotations

from typing import Any, Final

from stratalog.log.cleaner.md5_kernel import md5
from stratalog.records.native import as_i64, as_u32, compiled, inlined, load_be32, load_be64, native, store_be64

# --- the state
M_ENTRIES_AT: Final = 0
"""Address of the entries."""
M_SLOTS: Final = 1
M_SIZE: Final = 2
"""Entries that are taken."""
M_LATEST_OFFSET: Final = 3
M_SIZE_WANTED: Final = 4
"""Entries that may be taken: the slots times the load factor."""
M_SCRATCH: Final = 5
"""Address of the memory that hashing needs."""
M_LISTED_AT: Final = 6
"""Address of a list of superseded offsets, which stands in for the entries (`superseded`); 0 in a map."""
M_LISTED: Final = 7
"""How many they are."""
M_LISTED_BASE: Final = 8
"""What they are relative to."""
M_LISTED_CURSOR: Final = 9
"""Where the last look-up in the list ended."""
STATE_WORDS: Final = 10

NO_SLOT: Final = 0
_ENTRY_SIZE = 24
#: Probes that read the hash itself, four bytes from each of its first places; then come the slots one by one.
_HASH_PROBES = 12


@inlined
def _find(state: int) -> Any:
    """Address of the entry that has the hash in the scratch, else of the first free one.

    NO_SLOT when all are others'.
    """
    words = as_i64(state)
    digest = words[M_SCRATCH]
    slots = words[M_SLOTS]
    low = as_i64(digest)[0]
    high = as_i64(digest)[1]
    for attempt in range(slots + _HASH_PROBES):
        probe = load_be32(digest + min(attempt, _HASH_PROBES)) + max(0, attempt - _HASH_PROBES)
        if probe > 0x7FFF_FFFF:  # as a 32-bit sum goes on
            probe -= 0x1_0000_0000
        slot = 0 if probe == -0x8000_0000 else abs(probe) % slots
        entry = words[M_ENTRIES_AT] + slot * _ENTRY_SIZE
        held = as_i64(entry)
        if held[0] == low and held[1] == high:
            return entry
        if held[0] == 0 and held[1] == 0 and held[2] == 0:
            return entry
    return NO_SLOT


@native
def map_put(state: int, key: int, size: int, offset: int) -> bool:
    """Set the offset of a key of `size` bytes at `key`; False, and nothing is done, when every slot is taken."""
    words = as_i64(state)
    if words[M_SIZE] >= words[M_SLOTS]:
        return False
    digest = words[M_SCRATCH]
    md5(key, size, digest)
    entry = _find(state)
    held = as_i64(entry)
    if held[0] == 0 and held[1] == 0 and held[2] == 0:
        held[0] = as_i64(digest)[0]
        held[1] = as_i64(digest)[1]
        words[M_SIZE] += 1
    store_be64(entry + 16, offset)
    words[M_LATEST_OFFSET] = offset
    return True


@native
def map_get(state: int, key: int, size: int) -> int:
    """The offset of a key; -1 for one that is not there."""
    digest = as_i64(state)[M_SCRATCH]
    md5(key, size, digest)
    entry = _find(state)
    if entry == NO_SLOT:
        return -1
    held = as_i64(entry)
    if held[0] == 0 and held[1] == 0 and held[2] == 0:
        return -1
    return int(load_be64(entry + 16))


@inlined
def _is_listed(state: int, offset: int) -> bool:
    """Whether an offset is among the listed ones; quick for one behind or close to the one before."""
    words = as_i64(state)
    listed = as_u32(words[M_LISTED_AT])
    wanted = offset - words[M_LISTED_BASE]
    cursor = words[M_LISTED_CURSOR]
    while cursor > 0 and listed[cursor - 1] >= wanted:
        cursor -= 1
    while cursor < words[M_LISTED] and listed[cursor] < wanted:
        cursor += 1
    words[M_LISTED_CURSOR] = cursor
    found: bool = cursor < words[M_LISTED] and listed[cursor] == wanted
    return found


@inlined
def is_superseded(state: int, key: int, size: int, offset: int) -> bool:
    """Whether a later record has the key of the record at `offset`."""
    if as_i64(state)[M_LISTED_AT] != 0:
        return _is_listed(state, offset)
    return offset < map_get(state, key, size)


@compiled("boolean(int64, int64)")
def is_listed(state: int, offset: int) -> bool:
    """`_is_listed`, for Python."""
    return _is_listed(state, offset)


@compiled("boolean(int64, int64, int64, int64)")
def put(state: int, key: int, size: int, offset: int) -> bool:
    """`map_put`, for Python."""
    return map_put(state, key, size, offset)


@compiled("int64(int64, int64, int64)")
def get(state: int, key: int, size: int) -> int:
    """`map_get`, for Python."""
    return map_get(state, key, size)
