"""Native loops of `bulk`: write the lines of batches and records from the bytes of a log, without the GIL.

Importing this module loads the loops. Control batches and malformed records are left to `PlainPrinter`: the loop stops
before such a batch and reports it.

The caller reserves `BATCH_TEXT_MAX` bytes for each batch and, if records are printed, `RECORD_TEXT_MAX` for each
record that the payload can hold plus `PAYLOAD_TEXT_FACTOR` times the size of the payload (each byte may become the
three bytes of U+FFFD). Reads stay within a payload.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from stratalog.records import CODEC_MASK, CONTROL_BIT, SEQUENCE_MAX, TRANSACTIONAL_BIT, batch_format as fmt
from stratalog.records.native import (
    Words,
    as_i64,
    as_u8,
    batch_rows,
    compiled,
    native,
    numba,
    record_body,
    record_bounds,
    struct_at,
    varint,
)

_APPEND_TIME_BIT: Final = fmt.LOG_APPEND_TIME_BIT
_HORIZON_BIT: Final = fmt.DELETE_HORIZON_BIT

#: Upper bounds of a batch's line, and of a record's line without key, value and header keys.
BATCH_TEXT_MAX: Final = 640
RECORD_TEXT_MAX: Final = 224
PAYLOAD_TEXT_FACTOR: Final = 3


class TextState(Words):
    """In and out: size of the text, and the offset of the last record, -1 before the first. Out: number of gaps."""

    __slots__ = ()
    _fields_: ClassVar[list[tuple[str, Any]]] = Words.of("used", "last_offset", "gaps")


_text_state: Any = struct_at(TextState)

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


@native
def _word(out: Any, used: int, word: int) -> int:
    """Write a word of up to 16 bytes with one copy of 16; the next word overwrites the rest."""
    for n in range(16):
        out[used + n] = _SHORT_WORDS[word, n]
    end: int = used + _SIZES[word]
    return end


@native
def _long_word(out: Any, used: int, word: int) -> int:
    """Write a word of any size."""
    start = _ENDS[word] - _SIZES[word]
    for n in range(_SIZES[word]):
        out[used + n] = _TEXT[start + n]
    end: int = used + _SIZES[word]
    return end


@native
def _number(out: Any, used: int, value: int) -> int:
    """Write a number, two digits at a time."""
    if value < 0:
        if value == -1:  # by far the most frequent value
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


@native
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


@native
def _copy_decoded(out: Any, used: int, address: int, size: int) -> int:
    """Copy valid UTF-8; replace each malformed piece by U+FFFD."""
    data = as_u8(address)
    at = 0
    while at < size:
        piece = _utf8_piece(data, at, size)
        if piece > 0:
            for n in range(piece):
                out[used + n] = data[at + n]
            used += piece
            at += piece
        else:
            out[used] = 0xEF
            out[used + 1] = 0xBF
            out[used + 2] = 0xBD
            used += 3
            at -= piece
    return used


@native
def _copy(out_at: int, used: int, address: int, size: int) -> int:
    """Write `size` bytes as text, decoded as by Java; return the end of the text."""
    seen = numba.uint8(0)
    source, target = as_u8(address), as_u8(out_at + used)
    for n in range(size):  # from 0, over separate arrays: the form that is vectorized
        byte = source[n]
        seen |= byte
        target[n] = byte
    return used + size if seen < 0x80 else _copy_decoded(as_u8(out_at), used, address, size)


@native
def _sequence(base: int, delta: int) -> int:
    total = base + delta
    return total if total <= SEQUENCE_MAX else total - SEQUENCE_MAX - 1


@native
def _batch(out: Any, used: int, batch: Any, position: int) -> int:
    """Write the line of the batch at `position` of its file."""
    attributes = batch.attributes
    sequence = batch.base_sequence
    last_sequence = sequence if sequence == -1 else _sequence(sequence, batch.last_offset - batch.base_offset)
    used = _number(out, _word(out, used, _BASE_OFFSET), batch.base_offset)
    used = _number(out, _word(out, used, _LAST_OFFSET), batch.last_offset)
    used = _number(out, _word(out, used, _COUNT), batch.record_count)
    used = _number(out, _long_word(out, used, _BASE_SEQUENCE), sequence)
    used = _number(out, _long_word(out, used, _LAST_SEQUENCE), last_sequence)
    used = _number(out, _long_word(out, used, _PRODUCER_ID), batch.producer_id)
    used = _number(out, _long_word(out, used, _PRODUCER_EPOCH), batch.producer_epoch)
    used = _number(out, _long_word(out, used, _LEADER_EPOCH), batch.leader_epoch)
    used = _long_word(out, used, _TRANSACTIONAL if attributes & TRANSACTIONAL_BIT else _NOT_TRANSACTIONAL)
    used = _long_word(out, used, _CONTROL if attributes & CONTROL_BIT else _NOT_CONTROL)
    if attributes & _HORIZON_BIT:
        used = _word(out, _number(out, _long_word(out, used, _HORIZON), batch.base_timestamp), _BRACKET)
    else:
        used = _long_word(out, used, _NO_HORIZON)
    used = _number(out, _word(out, used, _POSITION), position)
    time_word = _APPEND_TIME if attributes & _APPEND_TIME_BIT else _CREATE_TIME
    used = _number(out, _word(out, used, time_word), batch.max_timestamp)
    used = _number(out, _word(out, used, _SIZE), batch.size)
    used = _word(out, _long_word(out, used, _CODEC), _CODEC_NAMES + (attributes & CODEC_MASK))
    used = _number(out, _word(out, used, _CRC), batch.crc)
    return _long_word(out, used, _VALID if batch.is_sound else _INVALID)


@native
def _records(out_at: int, used: int, batch: Any, with_data: bool, state_at: int, gaps: Any) -> int:  # noqa: C901
    """Write the lines of a batch's records, which are its payload; return -1 if they are malformed."""
    out = as_u8(out_at)
    state = _text_state(state_at, 0)
    address = batch.payload
    payload = as_u8(address)
    end = batch.payload_size
    append_time = batch.attributes & _APPEND_TIME_BIT != 0
    last_offset = state.last_offset
    if batch.record_count < 0:
        return -1
    p = 0
    for _ in range(batch.record_count):
        begin, record_end = record_bounds(payload, p, end)
        if begin < 0:
            return -1
        (
            timestamp_delta,
            offset_delta,
            key_size,
            key_at,
            value_size,
            value_at,
            header_count,
            p,
        ) = record_body(payload, begin, record_end, end)
        if p < 0 or key_size < -1 or value_size < -1:
            return -1
        offset = batch.base_offset + offset_delta
        if last_offset != -1 and offset != last_offset + 1:
            if state.gaps >= GAPS_MAX:
                return -1
            gaps[2 * state.gaps] = last_offset
            gaps[2 * state.gaps + 1] = offset
            state.gaps += 1
        last_offset = offset
        used = _number(out, _word(out, used, _OFFSET), offset)
        if append_time:
            used = _number(out, _word(out, used, _APPEND_TIME), batch.max_timestamp)
        else:
            used = _number(out, _word(out, used, _CREATE_TIME), batch.base_timestamp + timestamp_delta)
        used = _number(out, _word(out, used, _KEY_SIZE), key_size)
        used = _number(out, _word(out, used, _VALUE_SIZE), value_size)
        sequence = _sequence(batch.base_sequence, offset_delta) if batch.base_sequence >= 0 else -1
        used = _number(out, _word(out, used, _SEQUENCE), sequence)
        used = _word(out, used, _HEADER_KEYS)
        for header in range(header_count):
            size, p = varint(payload, p, record_end, True)
            if p < 0 or size < 0 or size > record_end - p:
                return -1
            if header:
                used = _word(out, used, _COMMA)
            used = _copy(out_at, used, address + p, size)
            size, p = varint(payload, p + size, record_end, True)
            if p < 0 or size > record_end - p or size < -1:
                return -1
            p += max(size, 0)
        if p != record_end:
            return -1
        used = _word(out, used, _BRACKET)
        if with_data:
            if key_size >= 0:
                used = _word(out, used, _KEY)
                used = _copy(out_at, used, address + key_at, key_size)
            if value_size >= 0:
                used = _word(out, used, _PAYLOAD)
                used = _copy(out_at, used, address + value_at, value_size)
        used = _word(out, used, _END)
    if p != end:
        return -1
    state.last_offset = last_offset
    return used


@compiled("int64(int64, int64, int64, int64, boolean, boolean, int64, int64, int64)")
def format_batches(
    table: int, first: int, last: int, position: int, deep: bool, with_data: bool, out_at: int, state_at: int, gaps: int
) -> int:
    """Write the lines of the batches [first, last) of a table. Positions in it are relative to `position`.

    Text is written to `out_at`, gaps to `gaps`; both are addresses. Return the index of the first one not written.
    """
    out, noted = as_u8(out_at), as_i64(gaps)
    state = _text_state(state_at, 0)
    for n in range(first, last):
        batch = batch_rows(table, n)
        used_before = state.used
        gaps_before = state.gaps
        if deep and batch.attributes & CONTROL_BIT:
            return n
        used = _batch(out, used_before, batch, position + batch.position)
        if deep:
            used = _records(out_at, used, batch, with_data, state_at, noted)
            if used < 0:
                state.gaps = gaps_before
                return n
        state.used = used
    return last
