"""The entries of a producer snapshot as bytes, kept up to date, so that a roll with many producers is short.

A roll happens under the lock of the log, on the loop of a broker, and to pack 100,000 entries takes 0.1 s. So an
entry is packed after its producer has changed, a few hundred at a time, and a roll only puts the rows into the order of
Kafka's map, by arrays. These need numpy, which a thread loads once a log has so many producers.
Not thread-safe: the partition's lock is held.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from stratalog.log.format import ENTRY, HEADER, encode_packed, hash_order, put_header
from stratalog.log.producers.producer_entry import ProducerEntry
from stratalog.util import long_lived

if TYPE_CHECKING:
    from types import ModuleType

logger = logging.getLogger(__name__)

#: Fewer producers are packed when they are asked for: two milliseconds.
MANY_PRODUCERS: Final = 4096
#: So many changed producers are packed together.
_BLOCK: Final = 512
_PRODUCER_ID: Final = struct.Struct(">Q")
#: That of a row whose producer was forgotten.
_FORGOTTEN: Final = 0xFFFF_FFFF_FFFF_FFFF

_numpy: ModuleType | None = None
_loading = threading.Lock()


def load_arrays() -> None:
    """Import numpy, for `PackedProducers.snapshot`."""
    global _numpy
    with long_lived():
        import numpy  # start-up cost

    _numpy = numpy


def _load_beside() -> None:
    try:
        load_arrays()
    except ImportError:  # without it everything is right, and slower
        logger.warning("numpy cannot be imported: segments with many producers take longer to roll")


class PackedProducers:
    """A row of bytes for each producer, in the order in which they came."""

    def __init__(self, producers: Mapping[int, ProducerEntry]) -> None:
        """Keep rows of these producers; `changed` and `forgotten` must be called for each change to them."""
        self._producers = producers
        self._rows = bytearray()
        #: The row of each producer.
        self._at: dict[int, int] = {}
        self._changed: dict[int, None] = dict.fromkeys(producers)
        self._pack()
        if _numpy is None and _loading.acquire(blocking=False):  # once a process
            threading.Thread(target=_load_beside, name="stratalog-arrays", daemon=True).start()

    def changed(self, producer_id: int) -> None:
        """Note that a producer is new or not what it was."""
        self._changed[producer_id] = None
        if len(self._changed) >= _BLOCK:
            self._pack()

    def forgotten(self, producer_ids: Iterable[int]) -> None:
        """Note that producers are gone."""
        for producer_id in producer_ids:
            self._changed.pop(producer_id, None)
            row = self._at.pop(producer_id, None)
            if row is not None:
                _PRODUCER_ID.pack_into(self._rows, row * ENTRY.size, _FORGOTTEN)
        if len(self._at) * 2 * ENTRY.size < len(self._rows):
            self._close_gaps()

    def snapshot(self, table_size: int) -> bytearray:
        """Return a snapshot in the order of a Java HashMap with `table_size` buckets (`hash_order`)."""
        self._pack()
        if _numpy is None:
            rows, at, size = memoryview(self._rows), self._at, ENTRY.size
            order = hash_order(self._producers, table_size)
            return encode_packed([rows[at[each] * size : (at[each] + 1) * size] for each in order])
        np = _numpy
        ids = np.ndarray(len(self._rows) // ENTRY.size, ">u8", self._rows, 0, ENTRY.size).astype(np.uint64)
        kept = np.flatnonzero(ids != np.uint64(_FORGOTTEN))
        ids = ids[kept]
        folded = (ids ^ (ids >> np.uint64(32))).astype(np.uint32)
        buckets = (folded ^ (folded >> np.uint32(16))) & np.uint32(table_size - 1)
        order = kept[np.argsort(buckets, kind="stable")]
        # Not through further buffers: at this size the memory costs more than the work.
        data = bytearray(HEADER.size + len(order) * ENTRY.size)
        row = np.dtype((np.void, ENTRY.size))
        np.take(np.frombuffer(self._rows, row), order, out=np.frombuffer(data, row, -1, HEADER.size), mode="clip")
        put_header(data)
        return data

    def _pack(self) -> None:
        rows, at, producers = self._rows, self._at, self._producers
        for producer_id in self._changed:
            packed = producers[producer_id].packed()
            row = at.get(producer_id)
            if row is None:
                at[producer_id] = len(rows) // ENTRY.size
                rows += packed
            else:
                rows[row * ENTRY.size : (row + 1) * ENTRY.size] = packed
        self._changed.clear()

    def _close_gaps(self) -> None:
        rows, size = memoryview(self._rows), ENTRY.size
        self._rows = bytearray().join([rows[row * size : (row + 1) * size] for row in self._at.values()])
        self._at = {producer_id: row for row, producer_id in enumerate(self._at)}
