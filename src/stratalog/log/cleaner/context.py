"""State shared by Python and the native loops over a chunk of batches.

A chunk is a piece of a `.log` in memory that begins with a batch. A loop continues from `position` batch by batch. It
stops before a batch that it leaves to Python, with the reason in `status`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from stratalog.records.native import BatchRow, Words


class CleaningContext(Words):
    """Fields that end in `_capacity` say how much room there is at the address of the same name."""

    __slots__ = ()
    _fields_: ClassVar[list[tuple[str, Any]]] = [
        #: The chunk: its address and size.
        *Words.of("chunk", "size", "position", "status"),
        #: The address of the offset map's state; keys of records below `start_offset` are not put into it.
        *Words.of("map", "start_offset", "messages_read"),
        #: Of the filter alone. `new_horizon_ms`: the delete horizon that a batch gets now, if it needs one.
        *Words.of("now_ms", "new_horizon_ms", "high_watermark"),
        #: One byte for each record of a batch: whether it is retained.
        *Words.of("flags", "flags_capacity"),
        #: The output batches, and the rows (`CleanedRow`) that describe them.
        *Words.of("out", "out_capacity", "out_size", "table", "table_capacity", "table_rows"),
        *Words.of("bytes_read", "messages_retained", "invalid"),
        #: The results of `select` for one batch. `keyless`: records without a key, which are dropped.
        *Words.of("count", "retained", "has_tombstones", "first_timestamp", "max_timestamp", "keyless"),
        #: Bytes of the output segment since the batch of its last index entry, -1 before the first batch.
        *Words.of("index_interval", "since_index_entry"),
        #: The header of the batch that a loop is at.
        ("batch", BatchRow),
    ]


class CleanedRow(Words):
    """A batch of the output, with the fields of `BatchFacts` in the same order."""

    __slots__ = ()
    _fields_: ClassVar[list[tuple[str, Any]]] = Words.of(
        "base_offset", "last_offset", "max_timestamp", "size", "leader_epoch"
    )


class MapState(Words):
    """The view of native loops on an offset map, or on a list of superseded offsets in its place.

    `entries_at`, `scratch` (the memory that hashing needs) and `listed_at` are addresses. `size` entries are taken,
    and `size_wanted` may be: the slots times the load factor. Of a list, `listed` offsets are relative to
    `listed_base`, and the last look-up ended at `listed_cursor`.
    """

    __slots__ = ()
    _fields_: ClassVar[list[tuple[str, Any]]] = [
        *Words.of("entries_at", "slots", "size", "latest_offset", "size_wanted", "scratch"),
        *Words.of("listed_at", "listed", "listed_base", "listed_cursor"),
    ]


# --- why a loop stopped
DONE: Final = 0
"""No whole batch is left in the chunk."""
SPECIAL: Final = 1
"""This batch is transactional, a marker or compressed; or no record is retained, but its header may have to be."""
CORRUPT: Final = 2
"""The header is invalid, or the CRC is wrong."""
MALFORMED: Final = 3
"""The CRC is right, but the records are malformed."""
MAP_FULL: Final = 4
OUT_FULL: Final = 5
"""The output, the table or the flags may not have enough room for this batch."""
UNUSUAL: Final = 6
"""The records are not encoded as Kafka would encode them, so they must be rewritten field by field."""

RECORD_GROWTH: Final = 13
"""Bytes by which a record may grow when its batch gets another base timestamp: its timestamp delta from 1 to 10, its
length accordingly."""
