"""The native pass of recovery over sound batches of a segment. `segment_recovery` is its Python twin.

Loading the loop costs as much as ten thousand small batches in Python. A segment that has more of them waits for it;
otherwise a background thread loads it, once enough batches were read in Python or are still to come.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from collections import deque
from importlib import import_module
from typing import Any, Final, NamedTuple

from stratalog.log.producers import BATCHES_KEPT as POSITIONS_KEPT
from stratalog.log.segment import LogBytes, SegmentIndexes

logger = logging.getLogger(__name__)

#: Bytes read and scanned at once.
CHUNK_BYTES: Final = 4 * 1024 * 1024
#: With more batches, read and still to come, the native loop is loaded in the background.
_PLAIN_BATCHES_MAX: Final = 5_000
#: With more batches still to come, their segment waits for the native loop, which then reads it in a tenth of the time.
_WAITING_BATCHES_MIN: Final = 15_000
#: Batches usually have 16 KB, and an index entry each.
_ENTRIES_MAX: Final = CHUNK_BYTES // 1024
_PRODUCERS_MAX: Final = 64
#: A pass over fewer batches costs more than it saves. Python then scans this many before the next pass.
_FEW: Final = 8
PLAIN_BATCHES: Final = 64

_lock = threading.Lock()
_kernel: Any = None
_is_loading = False
_plain_batches = 0


def load_native(kernel: Any = None) -> None:
    """Load the native loop. If that fails, recovery goes on in Python."""
    global _kernel
    try:
        _kernel = kernel or import_module("stratalog.log.recovery.scan_kernel")
    except Exception:
        logger.exception("The native loops cannot be loaded; segments are recovered in Python")


def _native(to_come: int) -> Any:
    """Return the loop if it is loaded. Otherwise count `PLAIN_BATCHES`, and load it if it is worth that.

    `to_come` is the estimated number of batches in the rest of the segment.
    """
    global _is_loading, _plain_batches
    if _kernel is None:
        with _lock:
            _plain_batches += PLAIN_BATCHES
            if _is_loading or _plain_batches + to_come <= _PLAIN_BATCHES_MAX:
                return _kernel
            _is_loading = True
            if to_come >= _WAITING_BATCHES_MIN:
                load_native()  # other segments wait at the lock
            else:
                threading.Thread(target=load_native, name="stratalog-recovery-loop", daemon=True).start()
    return _kernel


class Reached(NamedTuple):
    """Where a pass stopped and its state there; see `index_sound_batches`."""

    position: int
    expected_offset: int
    largest: int
    largest_offset: int
    last_index_entry: int


class NativeScan:
    """Native passes over one segment. The limits are those of `index_sound_batches`."""

    def __init__(
        self, log: LogBytes, indexes: SegmentIndexes, *, highest: int, last_indexable: int, index_interval_bytes: int
    ) -> None:
        self._log, self._indexes = log, indexes
        self._limits = highest, last_indexable, index_interval_bytes
        self._context: Any = None
        self._chunk = bytearray()
        self._offset_entries = bytearray()
        self._time_entries = bytearray(12 * _ENTRIES_MAX)
        self._producers: Any = None
        self._positions: Any = None
        #: Batches left to the Python loop before the next pass.
        self.plain_left = 0
        self._scanned = 0

    def go_on(self, at: Reached, epoch: int, recent: dict[int, deque[int]]) -> Reached:
        """Scan sound batches from a position on. Add index entries, and positions of producers to `recent`.

        Returns the same position if the native loop can take nothing.
        """
        self.plain_left = PLAIN_BATCHES
        kernel = _native(self._scanned * (self._log.size - at.position) // max(at.position, 1))
        self._scanned += PLAIN_BATCHES
        if kernel is None or len(recent) > _PRODUCERS_MAX:
            return at
        context = self._begin(kernel, at, epoch, recent)
        position, may_go_on = at.position, True
        while may_go_on and position < self._log.size and self._has_room():
            chunk = self._log.fill(memoryview(self._chunk), position)
            context.chunk_at, context.size = position, chunk.nbytes
            context.used = context.offset_count = context.time_count = 0
            is_cut = kernel.take_batches(context.address)
            position += context.used
            may_go_on = is_cut and context.used > 0
            self._indexes.append_packed(
                bytes(self._offset_entries[: context.offset_count * context.entry_size]),
                bytes(self._time_entries[: context.time_count * 12]),
            )
        for number, kept in enumerate(recent.values()):
            count, *last = self._positions[number * (1 + POSITIONS_KEPT) : (number + 1) * (1 + POSITIONS_KEPT)]
            kept.extend(last[n % POSITIONS_KEPT] for n in range(max(0, count - POSITIONS_KEPT), count))
        if context.taken >= _FEW:
            self.plain_left = 1
        return Reached(
            position, context.expected_offset, context.largest, context.largest_offset, context.last_index_entry
        )

    def _begin(self, kernel: Any, at: Reached, epoch: int, recent: dict[int, deque[int]]) -> Any:
        context = self._context
        if context is None:
            context = self._context = kernel.ScanContext()
            context.base_offset = self._indexes.base_offset
            context.highest, context.last_indexable, context.index_interval = self._limits
            context.entry_size, context.entries_max = self._indexes.offset.entry_size, _ENTRIES_MAX
            self._offset_entries = bytearray(context.entry_size * _ENTRIES_MAX)
            self._producers = (ctypes.c_int64 * _PRODUCERS_MAX)()
            self._chunk = bytearray(min(CHUNK_BYTES, self._log.size))
            context.chunk = _address(self._chunk)
            context.offset_entries = _address(self._offset_entries)
            context.time_entries = _address(self._time_entries)
            context.producer_ids = ctypes.addressof(self._producers)
        self._positions = (ctypes.c_int64 * (_PRODUCERS_MAX * (1 + POSITIONS_KEPT)))()
        context.positions = ctypes.addressof(self._positions)
        self._producers[: len(recent)] = list(recent)
        context.producers, context.epoch, context.taken = len(recent), epoch, 0
        context.expected_offset, context.largest, context.largest_offset, context.last_index_entry = at[1:]
        context.last_time = self._indexes.time.last_entry.timestamp_ms
        return context

    def _has_room(self) -> bool:
        """Return whether both indexes have room for all entries of a chunk."""
        offset, time = self._indexes.offset, self._indexes.time
        return min(offset.max_entries - offset.entries, time.max_entries - 1 - time.entries) > _ENTRIES_MAX


def _address(buffer: bytearray) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))
