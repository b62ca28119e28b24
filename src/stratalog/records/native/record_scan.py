"""Native loops of `record_scan`: walk the records of a batch without taking anything out of them. No interpreter lock.

Importing this module loads the loops. Every read stays within [address, address + size). What is malformed is exactly
what `record_format.parse_records` says.

A `RecordScan` holds what is found and, between two pieces of a stream, where in a record the walk is. `begin` sets
it up.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from stratalog.records.batch_format import CODEC_MASK, NO_TIMESTAMP
from stratalog.records.native.dtype import BatchRow, Words
from stratalog.records.native.header_scan import is_crc_right, read_header
from stratalog.records.native.record import record_body, skip_headers, varint, varlong
from stratalog.records.native.toolkit import as_u8, compiled, inlined, native, struct_at


class RecordScan(Words):
    """Results, the header that applies, and the state of a stream."""

    __slots__ = ()
    _fields_: ClassVar[list[tuple[str, Any]]] = [
        *Words.of("records", "largest_timestamp", "smallest_timestamp", "null_keys", "out_of_order"),
        *Words.of("count", "base_timestamp"),
        # In which field, how many bytes of the field and of the record are to come, headers to come.
        *Words.of("field", "skip", "left", "headers"),
        ("batch", BatchRow),
    ]


_record_scan: Any = struct_at(RecordScan)

MALFORMED: Final = -1
"""Values that the loops return instead of a position."""

_INT64_MAX = 0x7FFF_FFFF_FFFF_FFFF
_VARINT_BYTES_MAX = 5

_LENGTH = 0
#: Attributes, timestamp, offset and the size of the key, read together: 21 bytes at the most.
_BEGINNING = 1
_KEY = 2
_VALUE_SIZE = 3
_VALUE = 4
_HEADER_COUNT = 5
_HEADER_KEY_SIZE = 6
_HEADER_KEY = 7
_HEADER_VALUE_SIZE = 8
_HEADER_VALUE = 9
_BEGINNING_SIZE_MAX = 21


@inlined
def _begin(scan: Any, count: int, base_timestamp: int) -> None:
    scan.records = 0
    scan.null_keys = 0
    scan.out_of_order = 0
    scan.field = _LENGTH
    scan.skip = 0
    scan.left = 0
    scan.headers = 0
    scan.largest_timestamp = NO_TIMESTAMP
    scan.smallest_timestamp = _INT64_MAX
    scan.count = count
    scan.base_timestamp = base_timestamp


@inlined
def _note(scan: Any, timestamp_delta: int, offset_delta: int, key_size: int) -> bool:
    """Take a record's fields into account; False for an offset that is none of the batch's."""
    timestamp = scan.base_timestamp + timestamp_delta
    if timestamp > scan.largest_timestamp:
        scan.largest_timestamp = timestamp
    if timestamp < scan.smallest_timestamp and timestamp != NO_TIMESTAMP:
        scan.smallest_timestamp = timestamp
    if key_size < 0:
        scan.null_keys += 1
    if offset_delta != scan.records:
        scan.out_of_order = 1
        if offset_delta < 0 or offset_delta >= scan.count:
            return False
    return True


@native
def _whole_records(address: int, position: int, size: int, table: int) -> int:
    """Walk records while they are whole, up to the batch's number of them. Return the position, or MALFORMED.

    A cut-off length ends the walk too: the caller knows whether more follows.
    """
    scan = _record_scan(table, 0)
    data = as_u8(address)
    while scan.records < scan.count:
        length, begin = varint(data, position, size, True)
        if begin < 0:
            return position if size - position < _VARINT_BYTES_MAX else MALFORMED
        if length < 1:
            return MALFORMED
        if length > size - begin:
            return position
        end = begin + length
        timestamp_delta, offset_delta, key_size, _, _, _, header_count, behind = record_body(data, begin, end, size)
        if behind >= 0 and header_count > 0:
            behind = skip_headers(data, behind, end, header_count)
        if behind != end or not _note(scan, timestamp_delta, offset_delta, key_size):
            return MALFORMED
        scan.records += 1
        position = end
    return position


@compiled("int64(int64, int64, int64, int64, int64)")
def are_regular(address: int, size: int, earliest: int, keys_required: int, table: int) -> int:
    """Return 1 if each of the whole, adjacent batches is as its header says, else 0.

    This covers the CRC and, unless compressed, the records: the largest timestamp is that of the header, none is before
    `earliest`, they are in order, and have keys if required.
    """
    scan = _record_scan(table, 0)
    batch = scan.batch
    end = address + size
    while address < end:
        read_header(address, batch)
        if not is_crc_right(address, batch):
            return 0
        if batch.attributes & CODEC_MASK == 0:
            _begin(scan, batch.record_count, batch.base_timestamp)
            if (
                _whole_records(batch.payload, 0, batch.payload_size, table) != batch.payload_size
                or scan.records != scan.count
                or scan.largest_timestamp != batch.max_timestamp
                or scan.smallest_timestamp < earliest
                or scan.out_of_order != 0
                or (keys_required != 0 and scan.null_keys != 0)
            ):
                return 0
        address += batch.size
    return 1


@compiled("void(int64, int64, int64)")
def begin(table: int, count: int, base_timestamp: int) -> None:
    """Set the table up for `scan_piece`."""
    _begin(_record_scan(table, 0), count, base_timestamp)


@compiled("int64(int64, int64, int64)")
def scan_piece(address: int, size: int, table: int) -> int:  # noqa: C901
    """Walk through the next piece of a batch's records. Return how many bytes were used, or MALFORMED.

    Less than 21 bytes may be left, to begin the next piece. The batch is complete when `records` equals `count` at the
    end.
    """
    scan = _record_scan(table, 0)
    data = as_u8(address)
    position = 0
    while True:
        field = scan.field
        if field == _LENGTH:
            position = _whole_records(address, position, size, table)
            if position < 0:
                return MALFORMED
            if scan.records == scan.count:
                return size if position == size else MALFORMED
            length, behind = varint(data, position, size, True)
            if behind < 0:
                return position
            scan.left = length
            scan.field = _BEGINNING
            position = behind
            continue
        if scan.skip > 0:
            step: int = min(scan.skip, size - position)
            position += step
            scan.skip -= step
            scan.left -= step
            if scan.skip > 0:
                return position
            scan.field = field + 1
            if field == _HEADER_VALUE:
                scan.field = _HEADER_KEY_SIZE
            continue
        if field == _HEADER_KEY_SIZE and scan.headers == 0:
            if scan.left != 0:
                return MALFORMED
            scan.records += 1
            scan.field = _LENGTH
            continue
        # Everything else is a number, or the three of them that a record begins with.
        left = scan.left
        end = min(size, position + left)
        before = position
        if field == _BEGINNING:
            if end - position < min(left, _BEGINNING_SIZE_MAX):
                return position
            timestamp_delta, position = varlong(data, position + 1, end, True)
            if position < 0:
                return MALFORMED
            offset_delta, position = varint(data, position, end, True)
            if position < 0:
                return MALFORMED
            value, position = varint(data, position, end, True)
            if position < 0 or not _note(scan, timestamp_delta, offset_delta, value):
                return MALFORMED
        else:
            if end - position < min(left, _VARINT_BYTES_MAX):
                return position
            value, position = varint(data, position, end, True)
            if position < 0:
                return MALFORMED
        scan.left -= position - before
        left = scan.left
        if field == _HEADER_COUNT:
            if value < 0 or value > left:
                return MALFORMED
            scan.headers = value
            scan.field = _HEADER_KEY_SIZE
            continue
        if value > left or (field == _HEADER_KEY_SIZE and value < 0):
            return MALFORMED
        if field == _HEADER_VALUE_SIZE:
            scan.headers -= 1
        scan.skip = max(value, 0)
        scan.field = field + 1
        if value <= 0:
            scan.field = _HEADER_KEY_SIZE if field == _HEADER_VALUE_SIZE else field + 2
