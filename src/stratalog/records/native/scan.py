"""Native loops of `record_scan`: walk the records of a batch without taking anything out of them. No interpreter lock.

Importing this module loads numba and compiles the loops, or reads them from numba's cache. Every read stays within
[address, address + size). What is malformed is exactly what `record_format.parse_records` says.

One table of int64 holds what is found and, between two pieces of a stream, where in a record the walk is. `begin` sets
it up.
"""

from __future__ import annotations

from typing import Any, Final

from stratalog.records.native.crc32c import native_crc32c
from stratalog.records.native.record import OVERRUN, record_fields, skip_headers, varint, varlong
from stratalog.records.native.toolkit import as_i64, as_u8, compiled, inlined, load_be32, load_be64, native

# --- the table. What is found ...
W_RECORDS: Final = 0
W_LARGEST_TIMESTAMP: Final = 1
W_SMALLEST_TIMESTAMP: Final = 2
W_NULL_KEYS: Final = 3
W_OUT_OF_ORDER: Final = 4
# ... what the header says ...
W_COUNT: Final = 5
W_BASE_TIMESTAMP: Final = 6
# ... and where a stream is: in which field, how many bytes of the field and of the record are to come, headers to come
W_FIELD: Final = 7
W_SKIP: Final = 8
W_LEFT: Final = 9
W_HEADERS: Final = 10
SCAN_WORDS: Final = 11

MALFORMED: Final = -1
"""What the loops return instead of a position."""

_NO_TIMESTAMP = -1
_INT64_MAX = 0x7FFF_FFFF_FFFF_FFFF
_HEADER_SIZE = 61
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
def _begin(words: Any, count: int, base_timestamp: int) -> None:
    for n in range(SCAN_WORDS):
        words[n] = 0
    words[W_LARGEST_TIMESTAMP] = _NO_TIMESTAMP
    words[W_SMALLEST_TIMESTAMP] = _INT64_MAX
    words[W_COUNT] = count
    words[W_BASE_TIMESTAMP] = base_timestamp


@inlined
def _note(words: Any, timestamp_delta: int, offset_delta: int, key_size: int) -> bool:
    """Take a record's fields into account; False for an offset that is none of the batch's."""
    timestamp = words[W_BASE_TIMESTAMP] + timestamp_delta
    if timestamp > words[W_LARGEST_TIMESTAMP]:
        words[W_LARGEST_TIMESTAMP] = timestamp
    if timestamp < words[W_SMALLEST_TIMESTAMP] and timestamp != _NO_TIMESTAMP:
        words[W_SMALLEST_TIMESTAMP] = timestamp
    if key_size < 0:
        words[W_NULL_KEYS] += 1
    if offset_delta != words[W_RECORDS]:
        words[W_OUT_OF_ORDER] = 1
        if offset_delta < 0 or offset_delta >= words[W_COUNT]:
            return False
    return True


@native
def _whole_records(address: int, position: int, size: int, table: int) -> int:
    """Walk records as long as they are whole, up to the batch's number of them; the position behind the last one, or
    MALFORMED. A length that is cut off ends the walk too: the caller knows whether more is to come.
    """
    words = as_i64(table)
    data = as_u8(address)
    while words[W_RECORDS] < words[W_COUNT]:
        length, begin = varint(data, position, size, True)
        if begin < 0:
            return position if size - position < _VARINT_BYTES_MAX else MALFORMED
        if length < 1:
            return MALFORMED
        if length > size - begin:
            return position
        end = begin + length
        if end + OVERRUN <= size:
            fields = record_fields(data, begin, end, False)
        else:
            fields = record_fields(data, begin, end, True)
        timestamp_delta, offset_delta, key_size, _, _, _, header_count, behind = fields
        if behind >= 0 and header_count > 0:
            behind = skip_headers(data, behind, end, header_count)
        if behind != end or not _note(words, timestamp_delta, offset_delta, key_size):
            return MALFORMED
        words[W_RECORDS] += 1
        position = end
    return position


@compiled("int64(int64, int64, int64, int64, int64)")
def are_regular(address: int, size: int, earliest: int, keys_required: int, table: int) -> int:
    """Whether each of the whole batches that lie one behind the other is all that its header says: its CRC and, unless
    it is compressed, its records, with the largest timestamp of the header, none before `earliest`, in order, and with
    keys if those are required. 1 or 0.
    """
    words = as_i64(table)
    end = address + size
    while address < end:
        whole = load_be32(address + 8) + 12
        if native_crc32c(address + 21, whole - 21) != load_be32(address + 17) & 0xFFFF_FFFF:
            return 0
        if as_u8(address)[22] & 7 == 0:
            _begin(words, load_be32(address + 57), load_be64(address + 27))
            payload_size = whole - _HEADER_SIZE
            if (
                _whole_records(address + _HEADER_SIZE, 0, payload_size, table) != payload_size
                or words[W_RECORDS] != words[W_COUNT]
                or words[W_LARGEST_TIMESTAMP] != load_be64(address + 35)
                or words[W_SMALLEST_TIMESTAMP] < earliest
                or words[W_OUT_OF_ORDER] != 0
                or (keys_required != 0 and words[W_NULL_KEYS] != 0)
            ):
                return 0
        address += whole
    return 1


@compiled("void(int64, int64, int64)")
def begin(table: int, count: int, base_timestamp: int) -> None:
    """Set the table up for `scan_piece`."""
    _begin(as_i64(table), count, base_timestamp)


@compiled("int64(int64, int64, int64)")
def scan_piece(address: int, size: int, table: int) -> int:
    """Walk on through the next piece of a batch's records: how many of its bytes were used (the rest, of less than 21,
    is to begin the next piece), or MALFORMED. All is there when `W_RECORDS` is `W_COUNT` at the end.
    """
    words = as_i64(table)
    data = as_u8(address)
    position = 0
    while True:
        field = words[W_FIELD]
        if field == _LENGTH:
            position = _whole_records(address, position, size, table)
            if position < 0:
                return MALFORMED
            if words[W_RECORDS] == words[W_COUNT]:
                return size if position == size else MALFORMED
            length, behind = varint(data, position, size, True)
            if behind < 0:
                return position
            words[W_LEFT] = length
            words[W_FIELD] = _BEGINNING
            position = behind
            continue
        if words[W_SKIP] > 0:
            step: int = min(words[W_SKIP], size - position)
            position += step
            words[W_SKIP] -= step
            words[W_LEFT] -= step
            if words[W_SKIP] > 0:
                return position
            words[W_FIELD] = field + 1
            if field == _HEADER_VALUE:
                words[W_FIELD] = _HEADER_KEY_SIZE
            continue
        if field == _HEADER_KEY_SIZE and words[W_HEADERS] == 0:
            if words[W_LEFT] != 0:
                return MALFORMED
            words[W_RECORDS] += 1
            words[W_FIELD] = _LENGTH
            continue
        # Everything else is a number, or the three of them that a record begins with.
        left = words[W_LEFT]
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
            if position < 0 or not _note(words, timestamp_delta, offset_delta, value):
                return MALFORMED
        else:
            if end - position < min(left, _VARINT_BYTES_MAX):
                return position
            value, position = varint(data, position, end, True)
            if position < 0:
                return MALFORMED
        words[W_LEFT] -= position - before
        left = words[W_LEFT]
        if field == _HEADER_COUNT:
            if value < 0 or value > left:
                return MALFORMED
            words[W_HEADERS] = value
            words[W_FIELD] = _HEADER_KEY_SIZE
            continue
        if value > left or (field == _HEADER_KEY_SIZE and value < 0):
            return MALFORMED
        if field == _HEADER_VALUE_SIZE:
            words[W_HEADERS] -= 1
        words[W_SKIP] = max(value, 0)
        words[W_FIELD] = field + 1
        if value <= 0:
            words[W_FIELD] = _HEADER_KEY_SIZE if field == _HEADER_VALUE_SIZE else field + 2
