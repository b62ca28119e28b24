"""Native loops of `bulk`: the lines of batches and records, written straight from the bytes of a log.

No interpreter lock.

Importing this module loads numba and compiles the loops, or reads them from numba's cache. What is not simple (control
batches, malformed records) is left to the plain way: the loop stops before such a batch and says so.

No access is checked here: the caller has reserved `BATCH_TEXT_MAX` bytes for each batch and, when records are wanted,
`RECORD_TEXT_MAX` for each record that the payload can hold plus `PAYLOAD_TEXT_FACTOR` times the size of the payload
(each byte may become U+FFFD, of three); reads stay within a payload.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np
from numba import types

from stratalog.records.native import compile_native

F = TypeVar("F", bound=Callable[..., Any])

#: Upper bounds of a batch's line, and of a record's line without key, value and header keys.
BATCH_TEXT_MAX: Final = 640
RECORD_TEXT_MAX: Final = 224
PAYLOAD_TEXT_FACTOR: Final = 3
RECORD_SIZE_MIN: Final = 7

# Words of `state`
S_USED: Final = 0
"""In and out: bytes of text."""
S_LAST_OFFSET: Final = 1
"""In and out: offset of the last record, -1 at the start."""
S_GAPS: Final = 2
"""Out: how many gaps between offsets were noted."""
STATE_WORDS: Final = 3

GAPS_MAX: Final = 1024

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_WORDS: Final = (
    "baseOffset: ",
    " lastOffset: ",
    " count: ",
    " baseSequence: ",
    " lastSequence: ",
    " producerId: ",
    " producerEpoch: ",
    " partitionLeaderEpoch: ",
    " isTransactional: true",
    " isTransactional: false",
    " isControl: true",
    " isControl: false",
    " deleteHorizonMs: OptionalLong.empty",
    " deleteHorizonMs: OptionalLong[",
    "]",
    " position: ",
    " CreateTime: ",
    " LogAppendTime: ",
    " size: ",
    " magic: 2 compresscodec: ",
    " crc: ",
    " isvalid: true\n",
    " isvalid: false\n",
    "| offset: ",
    " keySize: ",
    " valueSize: ",
    " sequence: ",
    " headerKeys: [",
    " key: ",
    " payload: ",
    "\n",
    ",",
    *_CODECS,
)
_TEXT = np.frombuffer("".join(_WORDS).encode(), np.uint8).copy()
_SIZES = np.array([len(word) for word in _WORDS])
_ENDS = np.cumsum(_SIZES)
_SHORT_WORDS = np.array([list(word.encode()[:16].ljust(16)) for word in _WORDS], np.uint8)
_PAIRS = np.frombuffer("".join(f"{n:02}" for n in range(100)).encode(), np.uint8).copy()

(
    _BASE_OFFSET,
    _LAST_OFFSET,
    _COUNT,
    _BASE_SEQUENCE,
    _LAST_SEQUENCE,
    _PRODUCER_ID,
    _PRODUCER_EPOCH,
    _LEADER_EPOCH,
    _TRANSACTIONAL,
    _NOT_TRANSACTIONAL,
    _CONTROL,
    _NOT_CONTROL,
    _NO_HORIZON,
    _HORIZON,
    _BRACKET,
    _POSITION,
    _CREATE_TIME,
    _APPEND_TIME,
    _SIZE,
    _CODEC,
    _CRC,
    _VALID,
    _INVALID,
    _OFFSET,
    _KEY_SIZE,
    _VALUE_SIZE,
    _SEQUENCE,
    _HEADER_KEYS,
    _KEY,
    _PAYLOAD,
    _END,
    _COMMA,
    _CODEC_NAMES,
) = range(len(_WORDS) - len(_CODECS) + 1)

_INT = types.int64
_IN = types.Array(types.uint8, 1, "C", readonly=True)
_OUT = types.uint8[::1]
_INTS = types.int64[::1]
_INT_PAIR: Any = cast("Any", types.UniTuple)(_INT, 2)


def _native(result: Any, *arguments: Any) -> Callable[[F], F]:
    """Compiled at import, for these types alone."""

    def decorate(function: F) -> F:
        return compile_native(function, result(*arguments))

    return decorate


@_native(_INT, _IN, _INT, _INT)
def _be(data: Any, at: Any, size: int) -> Any:
    """A signed big-endian integer."""
    value = numba.int64(data[at])
    if value >= 0x80:
        value -= 0x100
    for n in range(1, size):
        value = (value << 8) | numba.int64(data[at + n])
    return value


@_native(_INT, _OUT, _INT, _INT)
def _word(out: Any, used: Any, word: Any) -> Any:
    """Write a word of up to 16 bytes: always 16 are copied (in one instruction), and what is too much is written
    over."""
    for n in range(16):
        out[used + n] = _SHORT_WORDS[word, n]
    return used + _SIZES[word]


@_native(_INT, _OUT, _INT, _INT)
def _long_word(out: Any, used: Any, word: Any) -> Any:
    """Write a word of any size."""
    start = _ENDS[word] - _SIZES[word]
    for n in range(_SIZES[word]):
        out[used + n] = _TEXT[start + n]
    return used + _SIZES[word]


@_native(_INT, _OUT, _INT, _INT)
def _number(out: Any, used: int, value: int) -> int:
    """Write a number, two digits at a time."""
    if value < 0:
        if value == -1:  # by far the most frequent one
            out[used] = 45
            out[used + 1] = 49
            return used + 2
        out[used] = 45
        used += 1
        rest = numba.uint64(0) - numba.uint64(value)
    else:
        rest = numba.uint64(value)
    size = 1
    limit = numba.uint64(10)
    while size < 19 and rest >= limit:
        size += 1
        limit *= numba.uint64(10)
    at = used + size
    while rest >= numba.uint64(100):
        next_rest = rest // numba.uint64(100)
        pair = numba.int64(rest - next_rest * numba.uint64(100))
        at -= 2
        out[at] = _PAIRS[2 * pair]
        out[at + 1] = _PAIRS[2 * pair + 1]
        rest = next_rest
    if rest >= numba.uint64(10):
        out[at - 2] = _PAIRS[2 * numba.int64(rest)]
        out[at - 1] = _PAIRS[2 * numba.int64(rest) + 1]
    else:
        out[at - 1] = numba.uint8(48 + rest)
    return used + size


@_native(_INT_PAIR, _IN, _INT, _INT, _INT)
def _varint(data: Any, at: Any, end: Any, bits_max: int) -> tuple[Any, Any]:
    """A zigzag varint and the position after it; position -1 for none. `bits_max` 35 for 32-bit ones, 70 for 64-bit."""
    if at < end:
        first = numba.int64(data[at])
        if first < 0x80:
            return (first >> 1) ^ -(first & 1), at + 1
    raw = numba.int64(0)
    shift = 0
    while at < end and shift < bits_max:
        byte = numba.int64(data[at])
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if bits_max == 35:
                raw &= 0xFFFF_FFFF
            return ((raw >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(raw & 1), at
        shift += 7
    return 0, -1


@_native(_INT, _IN, _INT, _INT)
def _utf8_piece(data: Any, at: int, end: int) -> int:
    """Size of the character at `at`, or minus the size of the malformed piece there (Java's `String.decodeUTF8`)."""
    first = data[at]
    if first < 0x80:
        return 1
    if first < 0xC2 or first > 0xF4:
        return -1
    low, high = 0x80, 0xBF
    if first < 0xE0:
        whole = 2
    elif first < 0xF0:
        whole = 3
        if first == 0xE0:
            low = 0xA0
    else:
        whole = 4
        if first == 0xF0:
            low = 0x90
        elif first == 0xF4:
            high = 0x8F
    if at + 1 >= end or data[at + 1] < low or data[at + 1] > high:
        return -1
    for n in range(2, whole):
        if at + n >= end or data[at + n] < 0x80 or data[at + n] > 0xBF:
            return -n
    if first == 0xED and data[at + 1] >= 0xA0:  # a surrogate
        return -3
    return whole


@_native(_INT, _OUT, _INT, _IN, _INT, _INT)
def _copy_decoded(out: Any, used: Any, data: Any, at: Any, end: Any) -> Any:
    """UTF-8 stays as it is, U+FFFD stands for each malformed piece."""
    while at < end:
        size = _utf8_piece(data, at, end)
        if size > 0:
            for n in range(size):
                out[used + n] = data[at + n]
            used += size
            at += size
        else:
            out[used] = 0xEF
            out[used + 1] = 0xBF
            out[used + 2] = 0xBD
            used += 3
            at -= size
    return used


@_native(_INT, _OUT, _INT, _IN, _INT, _INT)
def _copy(out: Any, used: Any, data: Any, at: Any, size: Any) -> Any:
    """Write `size` bytes as text, as Java decodes them; where the text ends."""
    seen = numba.uint8(0)
    source, target = data[at : at + size], out[used : used + size]
    for n in range(size):  # from 0, over arrays of their own: the form that becomes vector instructions
        byte = source[n]
        seen |= byte
        target[n] = byte
    return used + size if seen < 0x80 else _copy_decoded(out, used, data, at, at + size)


@_native(_INT, _INT, _INT)
def _sequence(base: int, delta: int) -> int:
    total = base + delta
    return total if total <= 0x7FFF_FFFF else total - 0x8000_0000


@_native(_INT, _OUT, _INT, _IN, _INT, _INT, _INT)
def _batch(out: Any, used: Any, data: Any, at: int, position: int, valid: int) -> Any:
    """The line of the batch at `at` of `data`, which lies at `position` of its file."""
    base_offset = _be(data, at, 8)
    attributes = _be(data, at + 21, 2)
    delta = _be(data, at + 23, 4)
    sequence = _be(data, at + 53, 4)
    used = _number(out, _word(out, used, _BASE_OFFSET), base_offset)
    used = _number(out, _word(out, used, _LAST_OFFSET), base_offset + delta)
    used = _number(out, _word(out, used, _COUNT), _be(data, at + 57, 4))
    used = _number(out, _long_word(out, used, _BASE_SEQUENCE), sequence)
    used = _number(
        out, _long_word(out, used, _LAST_SEQUENCE), sequence if sequence == -1 else _sequence(sequence, delta)
    )
    used = _number(out, _long_word(out, used, _PRODUCER_ID), _be(data, at + 43, 8))
    used = _number(out, _long_word(out, used, _PRODUCER_EPOCH), _be(data, at + 51, 2))
    used = _number(out, _long_word(out, used, _LEADER_EPOCH), _be(data, at + 12, 4))
    used = _long_word(out, used, _TRANSACTIONAL if attributes & 0x10 else _NOT_TRANSACTIONAL)
    used = _long_word(out, used, _CONTROL if attributes & 0x20 else _NOT_CONTROL)
    if attributes & 0x40:
        used = _word(out, _number(out, _long_word(out, used, _HORIZON), _be(data, at + 27, 8)), _BRACKET)
    else:
        used = _long_word(out, used, _NO_HORIZON)
    used = _number(out, _word(out, used, _POSITION), position)
    used = _number(out, _word(out, used, _APPEND_TIME if attributes & 8 else _CREATE_TIME), _be(data, at + 35, 8))
    used = _number(out, _word(out, used, _SIZE), _be(data, at + 8, 4) + 12)
    used = _word(out, _long_word(out, used, _CODEC), _CODEC_NAMES + (attributes & 7))
    used = _number(out, _word(out, used, _CRC), _be(data, at + 17, 4) & 0xFFFF_FFFF)
    return _long_word(out, used, _VALID if valid else _INVALID)


@_native(_INT, _OUT, _INT, _IN, _INT, _IN, _INT, _INT, types.boolean, _INTS, _INTS)
def _records(
    out: Any,
    used: int,
    data: Any,
    at: int,
    payload: Any,
    start: int,
    end: int,
    with_data: bool,
    state: Any,
    gaps: Any,
) -> int:
    """The lines of a batch's records, which lie in [start, end) of `payload`; -1 if they are not well-formed."""
    base_offset = _be(data, at, 8)
    append_time = (_be(data, at + 21, 2) & 8) != 0
    base_timestamp = _be(data, at + 27, 8)
    max_timestamp = _be(data, at + 35, 8)
    base_sequence = _be(data, at + 53, 4)
    count = _be(data, at + 57, 4)
    last_offset = state[S_LAST_OFFSET]
    if count < 0:
        return -1
    p = start
    for _ in range(count):
        size, p = _varint(payload, p, end, 35)
        if p < 0 or size < 1 or size > end - p:
            return -1
        record_end = p + size
        timestamp_delta, p = _varint(payload, p + 1, record_end, 70)
        if p < 0:
            return -1
        offset_delta, p = _varint(payload, p, record_end, 35)
        if p < 0:
            return -1
        key_size, p = _varint(payload, p, record_end, 35)
        if p < 0 or key_size > record_end - p or key_size < -1:
            return -1
        key_at = p
        p += max(key_size, 0)
        value_size, p = _varint(payload, p, record_end, 35)
        if p < 0 or value_size > record_end - p or value_size < -1:
            return -1
        value_at = p
        p += max(value_size, 0)
        header_count, p = _varint(payload, p, record_end, 35)
        if p < 0 or header_count < 0 or header_count > record_end - p:
            return -1
        offset = base_offset + offset_delta
        if last_offset != -1 and offset != last_offset + 1:
            if state[S_GAPS] >= GAPS_MAX:
                return -1
            gaps[2 * state[S_GAPS]] = last_offset
            gaps[2 * state[S_GAPS] + 1] = offset
            state[S_GAPS] += 1
        last_offset = offset
        used = _number(out, _word(out, used, _OFFSET), offset)
        if append_time:
            used = _number(out, _word(out, used, _APPEND_TIME), max_timestamp)
        else:
            used = _number(out, _word(out, used, _CREATE_TIME), base_timestamp + timestamp_delta)
        used = _number(out, _word(out, used, _KEY_SIZE), key_size)
        used = _number(out, _word(out, used, _VALUE_SIZE), value_size)
        used = _number(
            out,
            _word(out, used, _SEQUENCE),
            _sequence(base_sequence, offset_delta) if base_sequence >= 0 else -1,
        )
        used = _word(out, used, _HEADER_KEYS)
        for header in range(header_count):
            size, p = _varint(payload, p, record_end, 35)
            if p < 0 or size < 0 or size > record_end - p:
                return -1
            if header:
                used = _word(out, used, _COMMA)
            used = _copy(out, used, payload, p, size)
            size, p = _varint(payload, p + size, record_end, 35)
            if p < 0 or size > record_end - p or size < -1:
                return -1
            p += max(size, 0)
        if p != record_end:
            return -1
        used = _word(out, used, _BRACKET)
        if with_data:
            if key_size >= 0:
                used = _word(out, used, _KEY)
                used = _copy(out, used, payload, key_at, key_size)
            if value_size >= 0:
                used = _word(out, used, _PAYLOAD)
                used = _copy(out, used, payload, value_at, value_size)
        used = _word(out, used, _END)
    if p != end:
        return -1
    state[S_LAST_OFFSET] = last_offset
    return used


@_native(
    _INT,
    _IN,
    _INT,
    _INTS,
    _INTS,
    _IN,
    _INTS,
    _INTS,
    _INT,
    _INT,
    types.boolean,
    types.boolean,
    _OUT,
    _INTS,
    _INTS,
)
def format_batches(
    data: Any,
    position: int,
    starts: Any,
    valid: Any,
    payloads: Any,
    payload_starts: Any,
    payload_ends: Any,
    first: int,
    last: int,
    deep: bool,
    with_data: bool,
    out: Any,
    state: Any,
    gaps: Any,
) -> int:
    """Write the lines of the batches [first, last); give the index of the first one that was not written.

    Batch n begins at `starts[n]` of `data`, which lies at `position` of the file. Its records lie at
    [payload_starts[n], payload_ends[n]) of `payloads`; a start below 0 says that they follow the header in `data`.
    `valid[n]` says whether its CRC holds.
    """
    for n in range(first, last):
        at = starts[n]
        used = state[S_USED]
        used_before = used
        gaps_before = state[S_GAPS]
        if deep and _be(data, at + 21, 2) & 0x20:  # control batch
            return n
        used = _batch(out, used, data, at, position + at, valid[n])
        if deep:
            if payload_starts[n] < 0:
                end = at + _be(data, at + 8, 4) + 12
                used = _records(out, used, data, at, data, at + 61, end, with_data, state, gaps)
            else:
                used = _records(
                    out, used, data, at, payloads, payload_starts[n], payload_ends[n], with_data, state, gaps
                )
            if used < 0:
                state[S_USED] = used_before
                state[S_GAPS] = gaps_before
                return n
        state[S_USED] = used
    return last
