from __future__ import annotations

import threading
from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from tests.records.legacy_cases import FILES, KAFKA_READS, log_bytes, shown

from stratalog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    KafkaError,
    UnsupportedCompressionTypeError,
)
from stratalog.records import Codec, ControlType, Record, batch_format as fmt, build_batch, end_transaction_marker
from stratalog.records.columns import COLUMN_NAMES, COLUMN_SCHEMA, decode_columns, decode_columns_plain
from stratalog.records.record_format import encode_record
from stratalog.util.checksum import crc32c
from stratalog.util.varint import encode_varint


def log_of(*codecs: Codec, per_batch: int = 50, size: int = 100) -> bytes:
    """One batch for each codec, in offset order, with every kind of content."""
    return b"".join(
        build_batch(
            [
                Record(
                    offset,
                    10_000 + offset,
                    None if offset % 5 == 0 else b"key-%d" % offset,
                    None if offset % 7 == 0 else bytes([offset % 256]) * (offset % size),
                    () if offset % 3 else (("header", b"%d" % offset), ("null", None)),
                )
                for offset in range(n * per_batch, (n + 1) * per_batch)
            ],
            base_offset=n * per_batch,
            codec=codec,
            producer_id=n,
            base_sequence=0,
        )
        for n, codec in enumerate(codecs)
    )


def raw_batch(payload: bytes, count: int, *, codec: int = 0, base_offset: int = 0, base_timestamp: int = 0) -> bytes:
    """A batch with a right CRC around any payload and count."""
    batch = bytearray(fmt.HEADER_SIZE)
    fmt.HEADER.pack_into(
        batch,
        0,
        base_offset,
        fmt.LENGTH_MIN + len(payload),
        0,
        2,
        0,
        codec,
        max(count - 1, 0),
        base_timestamp,
        base_timestamp,
        -1,
        -1,
        -1,
        count,
    )
    batch += payload
    fmt.UINT32.pack_into(batch, fmt.CRC_AT, crc32c(memoryview(batch)[fmt.ATTRIBUTES_AT :]))
    return bytes(batch)


def one_record(**fields: Any) -> bytes:
    out = bytearray()
    values: dict[str, Any] = {
        "offset_delta": 0,
        "timestamp_delta": 0,
        "key": b"k",
        "value": b"v",
        "headers": (),
    } | fields
    encode_record(out, **values)
    return bytes(out)


def test_no_batches_are_no_rows() -> None:
    for data in (b"", b"\0" * 10, log_of(Codec.NONE)[:-1]):
        columns = decode_columns(data)
        assert columns.num_rows == 0
        assert columns.schema.equals(COLUMN_SCHEMA)


def test_a_batch_without_records_is_no_rows() -> None:
    data = build_batch([], base_offset=3, last_offset_delta=4) + build_batch([Record(8, 0, b"k", None)], base_offset=8)
    assert decode_columns(data).column("offset").to_pylist() == [8]


def test_buffers_grow_with_what_compressed_batches_turn_out_to_hold() -> None:
    data = log_of(*[codec for codec in Codec for _ in range(8)], per_batch=300, size=2000)
    columns = decode_columns(data)
    columns.validate(full=True)
    assert columns.equals(decode_columns_plain(data))


def test_many_small_batches_between_large_ones() -> None:
    small = [
        build_batch([Record(n, n, b"key", b"v" * (n % 40))], base_offset=n, codec=Codec(n % 5)) for n in range(2000)
    ]
    large = build_batch([Record(2000, 0, b"k" * 700_000, b"v" * 900_000)], base_offset=2000)
    data = b"".join(small) + large
    columns = decode_columns(data)
    columns.validate(full=True)
    assert columns.equals(decode_columns_plain(data))


@pytest.mark.parametrize("name", COLUMN_NAMES)
def test_any_single_column_can_be_asked_for(name: str) -> None:
    data = log_of(*Codec)
    assert decode_columns(data, columns=[name]).equals(decode_columns(data).select([name]))


def test_columns_come_in_schema_order_and_unknown_ones_are_named() -> None:
    assert decode_columns(log_of(Codec.NONE), columns=["value", "offset"]).schema.names == ["offset", "value"]
    with pytest.raises(ValueError, match="unknown columns colour, size"):
        decode_columns(b"", columns=["size", "value", "colour"])


def test_without_columns_only_rows_are_counted() -> None:
    data = log_of(*Codec)
    assert decode_columns(data, columns=[]).num_rows == decode_columns_plain(data, columns=[]).num_rows == 250


def test_batches_outside_the_range_are_not_even_checked() -> None:
    damaged = bytearray(log_of(Codec.ZSTD, Codec.NONE, Codec.LZ4))
    damaged[70] ^= 1
    damaged[-1] ^= 1
    columns = decode_columns(damaged, start_offset=50, end_offset=100)
    assert columns.column("offset").to_pylist() == list(range(50, 100))
    with pytest.raises(CorruptRecordError, match=r"position 0 .*CRC-32C"):
        decode_columns(damaged)


def test_control_batches_are_left_out_unless_asked_for() -> None:
    marker = end_transaction_marker(
        ControlType.COMMIT,
        producer_id=0,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=9,
        base_offset=50,
    )
    after = build_batch([Record(51, 0, b"k", b"v")], base_offset=51)
    data = log_of(Codec.NONE) + marker + after
    assert decode_columns(data).column("offset").to_pylist() == [*range(50), 51]
    assert decode_columns(data, include_control=True).column("offset").to_pylist() == list(range(52))


def test_a_damaged_control_batch_is_corrupt_even_when_it_would_be_left_out() -> None:
    marker = bytearray(
        end_transaction_marker(ControlType.COMMIT, producer_id=0, producer_epoch=0, coordinator_epoch=0, timestamp_ms=9)
    )
    marker[-1] ^= 1
    for decode in (decode_columns, decode_columns_plain):
        with pytest.raises(CorruptRecordError, match="CRC-32C"):
            decode(marker)


def test_the_crc_is_not_computed_if_disabled() -> None:
    data = bytearray(log_of(Codec.NONE))
    data[fmt.CRC_AT] ^= 1
    assert decode_columns(data, verify_crc=False).num_rows == 50


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_unsupported(codec: int) -> None:
    data = raw_batch(one_record(), 1, codec=codec)
    for decode in (decode_columns, decode_columns_plain):
        with pytest.raises(UnsupportedCompressionTypeError, match=f"compression type {codec}"):
            decode(data)


def test_a_header_key_that_is_no_utf_8_is_replaced_where_it_is_not() -> None:
    record = bytearray(one_record(headers=(("okay", b"1"), ("ключ", None))))
    record[record.index(b"okay") + 1] = 0xFF
    data = raw_batch(bytes(record), 1)
    columns = decode_columns(data)
    columns.validate(full=True)
    assert [header["key"] for header in columns.column("headers").to_pylist()[0]] == ["o�ay", "ключ"]
    assert columns.equals(decode_columns_plain(data))


def test_offsets_and_timestamps_wrap_as_javas_longs_do() -> None:
    payload = one_record(offset_delta=5, timestamp_delta=2**62)
    data = raw_batch(payload, 1, base_offset=2**63 - 3, base_timestamp=2**62 + 5)
    for decode in (decode_columns, decode_columns_plain):
        columns = decode(data, columns=["offset", "timestamp"])
        assert columns.to_pylist() == [{"offset": -(2**63) + 2, "timestamp": -(2**63) + 5}]
    assert decode_columns(data).equals(decode_columns_plain(data))


LONG_VARINT = b"\xff" * 11
MALFORMED = {
    "no records at all": (b"", 1),
    "fewer than counted": (one_record() * 2, 3),
    "more than counted": (one_record() * 3, 2),
    "bytes after the last": (one_record() + b"\0", 1),
    "negative count": (one_record(), -1),
    "length negative": (encode_varint(-3) + one_record()[1:], 1),
    "length zero": (b"\0", 1),
    "length too long": (encode_varint(50) + one_record()[1:], 1),
    "length too short": (encode_varint(5) + one_record()[1:], 1),
    "length varint endless": (LONG_VARINT, 1),
    "timestamp varint endless": (encode_varint(12) + b"\0" + LONG_VARINT, 1),
    "offset varint endless": (encode_varint(9) + b"\0\0" + LONG_VARINT[:7], 1),
    "key longer than its record": (encode_varint(7) + b"\0\0\0" + encode_varint(60) + b"abc", 1),
    "value longer than its record": (encode_varint(7) + b"\0\0\0\x01" + encode_varint(9) + b"ab", 1),
    "value runs into the next record": (
        encode_varint(6) + b"\0\0\0\x01" + encode_varint(9) + b"\0" + one_record() * 9,
        10,
    ),
    "header count negative": (encode_varint(6) + b"\0\0\0\x01\x01\x01", 1),
    "header count beyond the record": (encode_varint(6) + b"\0\0\0\x01\x01\x7e", 1),
    "header key negative": (encode_varint(8) + b"\0\0\0\x01\x01\x02\x01\x01", 1),
    "header key too long": (encode_varint(8) + b"\0\0\0\x01\x01\x02\x14\x01", 1),
    "header value too long": (encode_varint(9) + b"\0\0\0\x01\x01\x02\x02a\x14", 1),
    "header missing": (encode_varint(9) + b"\0\0\0\x01\x01\x04\x02a\x01", 1),
    "varint runs over the end": (encode_varint(6) + b"\0\0\0\x01\x01\x80" + b"\0" + one_record() * 9, 10),
}


@pytest.mark.parametrize("columns", [None, ["offset"], ["value"], ["headers"], []], ids=str)
@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_records_are_invalid_whatever_is_asked_for(name: str, columns: list[str] | None) -> None:
    payload, count = MALFORMED[name]
    for follower in (b"", b"\0" * 64):
        data = raw_batch(payload, count) + (raw_batch(follower, 0) if follower else b"")
        with pytest.raises(InvalidRecordError) as native:
            decode_columns(data, columns=columns)
        with pytest.raises(InvalidRecordError) as plain:
            decode_columns_plain(data, columns=columns)
        assert str(native.value) == str(plain.value)


def test_a_malformed_record_outside_the_range_but_in_a_batch_of_it_is_invalid() -> None:
    data = raw_batch(one_record() + encode_varint(5) + b"\0\0\x02\x01\x01", 2)
    for decode in (decode_columns, decode_columns_plain):
        with pytest.raises(InvalidRecordError):
            decode(data, end_offset=1)


def test_the_result_outlives_the_buffer() -> None:
    buffer = bytearray(log_of(Codec.NONE))
    columns = decode_columns(buffer)
    before = columns.to_pylist()
    buffer[:] = bytes(len(buffer))
    assert columns.to_pylist() == before


def test_threads_decode_at_the_same_time() -> None:
    data = log_of(*Codec, per_batch=400)
    expected = decode_columns_plain(data)
    results: list[pa.RecordBatch] = []
    threads = [
        threading.Thread(target=lambda: results.extend(decode_columns(data) for _ in range(20))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 80
    assert all(result.equals(expected) for result in results)


OLD_FILES = sorted(FILES)


@pytest.mark.parametrize("name", OLD_FILES)
@pytest.mark.parametrize("columns", [None, ("value", "timestamp_type"), ()])
def test_old_message_formats_come_as_columns_like_the_plain_way(name: str, columns: Collection[str] | None) -> None:
    """For any range of offsets and columns both decoders give the same of logs that hold formats 0, 1 and 2."""
    data = log_bytes(name)
    whole = decode_columns(data)
    assert [(r["offset"], r["timestamp"], shown(r["key"]), shown(r["value"])) for r in whole.to_pylist()] == [
        (record["offset"], record["timestamp_ms"], record["key"], record["value"])
        for batch in KAFKA_READS[name]
        for record in batch["records"]
    ]
    offsets = [None, *range(whole["offset"][0].as_py() - 1, whole["offset"][-1].as_py() + 2)]
    for start in offsets:
        for end in offsets:
            native = decode_columns(data, start_offset=start, end_offset=end, columns=columns)
            plain = decode_columns_plain(data, start_offset=start, end_offset=end, columns=columns)
            native.validate(full=True)
            assert native.equals(plain)
            assert native.num_rows == sum(
                (start is None or start <= offset) and (end is None or offset < end)
                for offset in whole["offset"].to_pylist()
            )


@given(st.data(), st.sampled_from(OLD_FILES))
@settings(deadline=None, max_examples=200)
def test_damaged_old_formats_are_refused_in_the_same_words(data: st.DataObject, name: str) -> None:
    """Whatever happened to the bytes, both decoders give the same columns or the same error."""
    damaged = bytearray(log_bytes(name))
    for _ in range(data.draw(st.integers(0, 2))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    verify_crc, end = data.draw(st.booleans()), data.draw(st.none() | st.integers(0, 110))
    outcomes: list[object] = []
    for decode in (decode_columns, decode_columns_plain):
        try:
            decoded = decode(damaged, verify_crc=verify_crc, end_offset=end)
        except KafkaError as error:
            outcomes.append(f"{type(error).__name__}: {error}")
        else:
            outcomes.append(decoded.to_pylist())
    assert outcomes[0] == outcomes[1]
