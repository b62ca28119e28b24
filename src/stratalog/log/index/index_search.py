"""Searches over the fixed-size, ascending entries of an index, as they lie in its map. Pure.

One target: `count_up_to`, and its native twin in `search_kernel`, which a thread loads in the background after
many lookups (`native_count`). Many targets: `look_up_many`, all of them in one native loop; `count_up_to_many` is its
plain twin, with numpy.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from typing_extensions import Buffer

logger = logging.getLogger(__name__)

#: Consumers read near the end, so the last bytes of an index (two pages or three) are in memory: a search that ends in
#: them stays in them, and a first look at the rest of an index does not make such a read wait for the disk. Kafka's
#: `AbstractIndex.warmEntries`.
WARM_BYTES: Final = 8192

#: One sample in so many entries for each level of `count_up_to_many`; two levels cover 10 million entries.
_SAMPLE_STEP: Final = 2048

#: So many lookups are made by the plain twin before the native one is worth its loading.
_PLAIN_LOOKUPS_MAX: Final = 2_000

Array = Any  # a one-dimensional numpy array
#: `search_kernel.count`.
NativeCount = Callable[[int, int, int, int, int, int], int]

_native: NativeCount | None = None
_plain_lookups = 0
_loading = threading.Lock()


def native_count() -> NativeCount | None:
    """Return the native twin of `count_up_to` once it is loaded. Until then each call counts as one plain lookup."""
    global _plain_lookups
    if _native is None:
        _plain_lookups += 1
        if _plain_lookups == _PLAIN_LOOKUPS_MAX:
            threading.Thread(target=load_native, name="stratalog-index-search", daemon=True).start()
    return _native


def load_native() -> None:
    """Load the native twin now. If that fails for any reason, the plain one stays in use."""
    global _native
    with _loading:
        if _native is None:
            try:
                _native = import_module("stratalog.log.index.search_kernel").count
            except Exception:
                logger.exception("The native loops cannot be loaded; indexes are searched by plain ones")


def count_up_to(data: Buffer, key: struct.Struct, at: int, stride: int, entries: int, target: int) -> int:
    """Count the entries with a key <= `target` among the first `entries`. Keys, `at` bytes into each, do not descend.

    First the last key and the first of the warm section are looked at: most searches end there. In the rest, keys grow
    evenly, so the place is guessed between first and last key, guessed again from what stands there, and the guess is
    widened until it encloses the target: a few reads near each other, where bisection of the whole would take twice as
    many, all over the file.
    """
    unpack = key.unpack_from
    if not entries:
        return 0
    last = unpack(data, at + (entries - 1) * stride)[0]
    if target >= last:
        return entries
    low, high = 0, entries - 1
    warm = warm_from(entries, stride)
    if warm:
        if unpack(data, at + warm * stride)[0] <= target:
            low = warm + 1
        else:
            high = warm
    if low == 0:
        first = unpack(data, at)[0]
        if target < first:
            return 0
        low, high = _enclose(data, unpack, at, stride, target, high, first, last, entries - 1)
    while low < high:
        slot = (low + high) // 2
        if unpack(data, at + slot * stride)[0] <= target:
            low = slot + 1
        else:
            high = slot
    return low


def _enclose(  # noqa: PLR0917
    data: Buffer, unpack: Any, at: int, stride: int, target: int, high: int, first: int, last: int, steps: int
) -> tuple[int, int]:
    """Slots between which the count lies, near each other.

    `first` <= target < `last`, the keys of slots 0 and `steps`.
    """
    low, spread = 0, last - first
    guess = (target - first) * steps // spread
    guess += (target - unpack(data, at + guess * stride)[0]) * steps // spread
    guess = 0 if guess < 0 else high if guess > high else guess
    width = 24
    while (slot := guess - width) > low:
        if unpack(data, at + slot * stride)[0] <= target:
            low = slot + 1
            break
        high = slot
        width *= 8
    width = 24
    while (slot := guess + width) < high:
        if unpack(data, at + slot * stride)[0] > target:
            high = slot
            break
        low = slot + 1
        width *= 8
    return low, high


def address_of(data: Buffer) -> int:
    """Return the address of bytes for native loops; valid while the caller holds them."""
    import numpy as np  # start-up cost

    return int(np.frombuffer(memoryview(data), np.uint8).ctypes.data)


def look_up_many(data: Buffer, stride: int, key_size: int, targets: Array) -> tuple[Array, Array]:
    """Return key and value of the last entry with a key <= each target, both int64; -1 twice where there is none.

    An entry is a key of `key_size` bytes and a value of the rest.
    """
    import numpy as np  # start-up cost

    from stratalog.log.index import search_kernel

    wanted = np.ascontiguousarray(targets, np.int64)
    entries = memoryview(data).nbytes // stride
    found = np.full((2, len(wanted)), -1, np.int64)
    if not entries:
        return found[0], found[1]
    held = np.frombuffer(memoryview(data), np.uint8)
    places = int(held.ctypes.data), stride, key_size, stride - key_size, entries, warm_from(entries, stride)
    search_kernel.look_up(*places, int(wanted.ctypes.data), len(wanted), int(found.ctypes.data))
    return found[0], found[1]


def warm_from(entries: int, stride: int) -> int:
    """Return the first slot of the warm section; 0 if all of the index is in it."""
    return max(0, entries - WARM_BYTES // stride)


def count_up_to_many(keys: Array, targets: Array) -> Array:
    """`count_up_to` for an array of targets. `keys` is a numpy view of the keys, of any byte order and stride.

    Nothing is copied but a sample of the keys: the sample is searched, then all targets are bisected together within
    the part that the sample leaves, one gather a step.
    """
    import numpy as np  # start-up cost

    entries = len(keys)
    wanted = np.asarray(targets, dtype=np.int64)
    sample = keys[::_SAMPLE_STEP].astype(np.int64)
    above = np.searchsorted(sample, wanted, side="right")
    low = np.maximum(above - 1, 0) * _SAMPLE_STEP
    high = np.minimum(above * _SAMPLE_STEP, entries)
    # Invariant: low <= count <= high; the spans are equal but at the end of the index, so all take the same steps.
    span = int((high - low).max(initial=0))
    while span > 0:
        slot = (low + high) >> 1
        open_ = low < high
        is_below = (keys[np.minimum(slot, entries - 1)] <= wanted) & open_
        low = np.where(is_below, slot + 1, low)
        high = np.where(is_below, high, slot)
        span >>= 1
    return low
