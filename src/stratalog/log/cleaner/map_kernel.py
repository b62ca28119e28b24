"""The offset map for native loops. `offset_map` describes it and has the plain twins.

The map is passed as the address of its state, a `MapState`, and uses memory of its owner. Filters call
`is_superseded`, for which a list of offsets can replace the map (`superseded`).
"""

from __future__ import annotations

from typing import Any, Final

from stratalog.log.cleaner.context import MapState
from stratalog.log.cleaner.md5_kernel import md5
from stratalog.records.native import (
    as_i64,
    as_u32,
    compiled,
    inlined,
    load_be32,
    load_be64,
    native,
    store_be64,
    struct_at,
)

map_state: Any = struct_at(MapState)

NO_SLOT: Final = 0
_ENTRY_SIZE = 24
#: Probes that read the hash itself, four bytes from each of its first places; then come the slots one by one.
_HASH_PROBES = 12


@inlined
def _find(state: int) -> Any:
    """Return the address of the entry for the hash in the scratch, else of the first free one, else NO_SLOT."""
    words = map_state(state, 0)
    digest = words.scratch
    slots = words.slots
    low = as_i64(digest)[0]
    high = as_i64(digest)[1]
    for attempt in range(slots + _HASH_PROBES):
        probe = load_be32(digest + min(attempt, _HASH_PROBES)) + max(0, attempt - _HASH_PROBES)
        if probe > 0x7FFF_FFFF:  # as a 32-bit sum wraps
            probe -= 0x1_0000_0000
        slot = 0 if probe == -0x8000_0000 else abs(probe) % slots
        entry = words.entries_at + slot * _ENTRY_SIZE
        held = as_i64(entry)
        if held[0] == low and held[1] == high:
            return entry
        if held[0] == 0 and held[1] == 0 and held[2] == 0:
            return entry
    return NO_SLOT


@native
def map_put(state: int, key: int, size: int, offset: int) -> bool:
    """Set the offset of a key of `size` bytes at `key`. Return False, without a change, if every slot is taken."""
    words = map_state(state, 0)
    if words.size >= words.slots:
        return False
    digest = words.scratch
    md5(key, size, digest)
    entry = _find(state)
    held = as_i64(entry)
    if held[0] == 0 and held[1] == 0 and held[2] == 0:
        held[0] = as_i64(digest)[0]
        held[1] = as_i64(digest)[1]
        words.size += 1
    store_be64(entry + 16, offset)
    words.latest_offset = offset
    return True


@native
def map_get(state: int, key: int, size: int) -> int:
    """Return the offset of a key, or -1 if the map does not have it."""
    digest = map_state(state, 0).scratch
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
    """Return whether an offset is listed. This is fast for offsets near the previous one."""
    words = map_state(state, 0)
    listed = as_u32(words.listed_at)
    wanted = offset - words.listed_base
    cursor = words.listed_cursor
    while cursor > 0 and listed[cursor - 1] >= wanted:
        cursor -= 1
    while cursor < words.listed and listed[cursor] < wanted:
        cursor += 1
    words.listed_cursor = cursor
    found: bool = cursor < words.listed and listed[cursor] == wanted
    return found


@inlined
def is_superseded(state: int, key: int, size: int, offset: int) -> bool:
    """Return whether a later record has the key of the record at `offset`."""
    if map_state(state, 0).listed_at != 0:
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
