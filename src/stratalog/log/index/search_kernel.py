"""Native loops of `index_search`: the same answers over entries in raw memory. `count_up_to` is the plain twin.

Every read stays within the entries, whatever they hold. A key is 4 or 8 bytes, big-endian and signed, at the beginning
of its entry.
"""

from __future__ import annotations

from typing import Any

from stratalog.records.native import as_i64, compiled, inlined, load_be32, load_be64, native

#: Slots to either side of a guess, before it is widened.
_WIDTH = 24
_WIDENING = 8


@inlined
def _load(at: int, size: int) -> int:
    value: int = load_be64(at) if size == 8 else load_be32(at)
    return value


@inlined
def _within(slot: float, high: int) -> int:
    """Return a slot of at most `high`, whatever damaged keys lead to."""
    return int(min(max(slot, 0.0), float(high)))


@native
def _count(data: int, stride: int, key_size: int, entries: int, warm: int, target: int) -> int:  # noqa: C901
    """`index_search.count_up_to`; `warm`: the slot from which on entries are always in memory, 0 for none."""
    if entries == 0:
        return 0
    last = _load(data + (entries - 1) * stride, key_size)
    if target >= last:
        return entries
    low = 0
    high = entries - 1
    if warm > 0:
        if _load(data + warm * stride, key_size) <= target:
            low = warm + 1
        else:
            high = warm
    if low == 0:
        first = _load(data, key_size)
        if target < first:
            return 0
        # Where it would be if keys grew evenly, corrected once by what stands there.
        # Large keys that are near each other are one float: no division by zero.
        share = (entries - 1) / max(float(last) - float(first), 1.0)
        guess = _within((float(target) - float(first)) * share, entries - 1)
        found = _load(data + guess * stride, key_size)
        guess = _within(guess + (float(target) - float(found)) * share, high)
        width = _WIDTH
        while guess - width > low:
            slot = guess - width
            if _load(data + slot * stride, key_size) <= target:
                low = slot + 1
                break
            high = slot
            width *= _WIDENING
        width = _WIDTH
        while guess + width < high:
            slot = guess + width
            if _load(data + slot * stride, key_size) > target:
                high = slot
                break
            low = slot + 1
            width *= _WIDENING
    while low < high:
        slot = (low + high) >> 1
        if _load(data + slot * stride, key_size) <= target:
            low = slot + 1
        else:
            high = slot
    return low


@compiled("int64(int64, int64, int64, int64, int64, int64)", nogil=False)
def count(data: int, stride: int, key_size: int, entries: int, warm: int, target: int) -> int:
    """Count the entries with a key <= `target` among the `entries` at address `data`."""
    return _count(data, stride, key_size, entries, warm, target)


@compiled("void(int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def look_up(  # noqa: PLR0917
    data: int,
    stride: int,
    key_size: int,
    value_size: int,
    entries: int,
    warm: int,
    targets: int,
    wanted: int,
    found: int,
) -> None:
    """Write for each of `wanted` targets the key and the value of the last entry with a key <= it; -1 twice for none.

    Targets are int64, as is what is written to `found`: all keys, then all values.
    """
    target: Any = as_i64(targets)
    keys: Any = as_i64(found)
    values: Any = as_i64(found + 8 * wanted)
    for n in range(wanted):
        slot = _count(data, stride, key_size, entries, warm, target[n]) - 1
        if slot < 0:
            keys[n] = -1
            values[n] = -1
        else:
            at = data + slot * stride
            keys[n] = _load(at, key_size)
            values[n] = _load(at + key_size, value_size)
