"""The native loop of `native_scan`: check and index sound batches without the interpreter lock.

Every read stays within the chunk, every write within the buffers of the context. The loop stops before anything unusual
in a batch and leaves that to `segment_recovery`, its Python twin.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from stratalog.records import CONTROL_BIT, TRANSACTIONAL_BIT
from stratalog.records.native import (
    BatchRow,
    Words,
    as_i64,
    check_header,
    compiled,
    header_scan,
    inlined,
    is_crc_right,
    read_header,
    store_be32,
    store_be64,
    struct_at,
)

POSITIONS_KEPT: Final = 5
"""Batches of each producer whose positions are kept: `producers.BATCHES_KEPT`."""
_CUT: Final = header_scan.CUT
_TRANSACTION_BITS: Final = TRANSACTIONAL_BIT | CONTROL_BIT


class ScanContext(Words):
    """The state before the chunk, and after the batches that were taken.

    `chunk` is an address, `chunk_at` its position in the file, `used` the bytes taken of it, `taken` the batches of all
    chunks. `offset_entries` and `time_entries` get at most `entries_max` index entries in file format. `producer_ids`
    holds the ids of `producers` producers, and `positions` the number of batches of each and the positions of its last
    ones.
    """

    __slots__ = ()
    _fields_: ClassVar[list[tuple[str, Any]]] = [
        *Words.of("chunk", "chunk_at", "size", "used", "taken"),
        *Words.of("base_offset", "expected_offset", "highest", "epoch"),
        *Words.of("largest", "largest_offset", "last_index_entry", "last_time"),
        *Words.of("index_interval", "last_indexable", "entry_size", "entries_max"),
        *Words.of("offset_entries", "offset_count", "time_entries", "time_count"),
        *Words.of("producers", "producer_ids", "positions"),
        ("batch", BatchRow),
    ]


_context: Any = struct_at(ScanContext)


@inlined
def _slot_of(ids: Any, producers: int, producer_id: int) -> int:
    for slot in range(producers):
        if ids[slot] == producer_id:
            return slot
    return -1


@inlined
def _add_entries(x: Any, position: int, last_offset: int) -> None:
    entry = x.offset_entries + x.offset_count * x.entry_size
    store_be32(entry, last_offset - x.base_offset)
    if x.entry_size == 8:
        store_be32(entry + 4, position)
    else:
        store_be64(entry + 4, position)
    x.offset_count += 1
    if x.largest > x.last_time:
        entry = x.time_entries + x.time_count * 12
        store_be64(entry, x.largest)
        store_be32(entry + 8, x.largest_offset - x.base_offset)
        x.time_count += 1
        x.last_time = x.largest
    x.last_index_entry = position


@compiled("boolean(int64)")
def take_batches(context: int) -> bool:
    """Take batch after batch of the chunk, up to the first that is partial, unsound, out of order or not plain.

    A plain batch has a known epoch, no producer or a known one, and no transaction. Returns whether the chunk may just
    have ended too early.
    """
    x = _context(context, 0)
    ids = as_i64(x.producer_ids)
    while True:
        at = x.chunk + x.used
        status, whole = check_header(at, x.size - x.used)
        if whole == 0:
            cut: bool = status == _CUT
            return cut
        batch = x.batch
        read_header(at, batch)
        last_offset = batch.last_offset
        if batch.base_offset != x.expected_offset or last_offset < x.expected_offset or last_offset > x.highest:
            return False
        if batch.leader_epoch > x.epoch:
            return False
        slot = -1
        if batch.producer_id >= 0:
            slot = _slot_of(ids, x.producers, batch.producer_id)
            if slot < 0 or batch.attributes & _TRANSACTION_BITS != 0:
                return False
        if not is_crc_right(at, batch):
            return False
        position = x.chunk_at + x.used
        is_indexed = x.index_interval < position - x.last_index_entry and 0 < position <= x.last_indexable
        if is_indexed and x.offset_count == x.entries_max:
            return False
        if batch.max_timestamp > x.largest:
            x.largest = batch.max_timestamp
            x.largest_offset = last_offset
        if is_indexed:
            _add_entries(x, position, last_offset)
        if slot >= 0:
            kept = as_i64(x.positions + slot * 8 * (1 + POSITIONS_KEPT))
            kept[1 + kept[0] % POSITIONS_KEPT] = position
            kept[0] += 1
        x.expected_offset = last_offset + 1
        x.used += whole
        x.taken += 1
