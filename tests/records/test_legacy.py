"""Message formats 0 and 1: read as Kafka 4.4 reads them, damaged ones named."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from tests.records.legacy_cases import FILES, KAFKA_READS, content, log_bytes, shown

from stratalog.errors import CorruptRecordError, InvalidRecordError, KafkaError
from stratalog.records import Codec, Record, RecordBatch, batch_format as fmt, build_batch, iter_batches
from stratalog.records.batch import batch_at, checked_batch_size
from stratalog.records.legacy.messages import LegacyBatch
from stratalog.testing.legacy_builder import build_legacy

T = 1_400_000_000_000
CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def three(base: int = 0) -> list[Record]:
    return [Record(base + i, T + i, b"k%d" % i, None if i == 1 else b"v%d" % i) for i in range(3)]


def facts(batch: RecordBatch) -> dict[str, Any]:
    return {
        "magic": batch.magic,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "size": batch.size,
        "partition_leader_epoch": batch.partition_leader_epoch,
        "codec": batch.codec_name,
        "timestamp_type": batch.timestamp_type,
        "max_timestamp": batch.max_timestamp,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "is_transactional": batch.is_transactional,
        "is_control": batch.is_control,
        "crc": batch.crc,
        "records": [
            {
                "offset": record.offset,
                "timestamp_ms": record.timestamp_ms,
                "key": shown(record.key),
                "value": shown(record.value),
            }
            for record in batch.records()
        ],
    }


@pytest.mark.parametrize("name", FILES)
def test_what_kafka_reads_from_its_old_formats_is_what_is_read(name: str) -> None:
    batches = list(iter_batches(log_bytes(name)))
    for batch in batches:
        batch.ensure_valid()
        assert batch.is_crc_valid
        assert batch.next_offset == batch.last_offset + 1
        assert batch.record_count == len(list(batch.records()))
    assert [facts(batch) for batch in batches] == KAFKA_READS[name]
    assert batches[-1].start + batches[-1].size == len(log_bytes(name))


@pytest.mark.parametrize("name", FILES)
def test_the_builder_writes_what_kafka_writes(name: str) -> None:
    """Where something is compressed the library decides on the bytes: then the messages inside are the same."""
    ours, sets = b"", FILES[name]["sets"]
    for case in sets:
        records = [
            Record(r["offset"], r["timestamp_ms"], content(r["key"]), content(r["value"])) for r in case["records"]
        ]
        codec, append_time = Codec.from_name(case["codec"]), case.get("log_append_time_ms")
        if case["magic"] == 2:
            ours += build_batch(
                records,
                codec=codec,
                base_offset=case["base_offset"],
                partition_leader_epoch=case["leader_epoch"],
            )
        else:
            ours += build_legacy(
                records,
                magic=case["magic"],
                codec=codec,
                base_offset=case["base_offset"],
                log_append_time_ms=append_time,
            )
    for mine, kafkas in zip(iter_batches(ours), iter_batches(log_bytes(name)), strict=True):
        mine.ensure_valid()
        if mine.codec is Codec.NONE:
            assert mine.as_memoryview() == kafkas.as_memoryview()
        else:
            assert mine.decompressed_payload() == kafkas.decompressed_payload()
            assert facts(mine) | {"crc": 0, "size": 0} == facts(kafkas) | {"crc": 0, "size": 0}


@st.composite
def old_records(draw: st.DrawFn) -> list[Record]:
    offset = draw(st.integers(0, 2**40))
    records = []
    for _ in range(draw(st.integers(1, 5))):
        offset += draw(st.integers(1, 3))
        timestamp = draw(st.integers(-1, 2**40))
        small = st.none() | st.binary(max_size=300)
        records.append(Record(offset, timestamp, draw(small), draw(small)))
    return records


@given(old_records(), st.sampled_from([0, 1]), st.sampled_from(CODECS), st.none() | st.integers(0, 2**40))
@settings(deadline=None)
def test_what_was_written_is_read(records: list[Record], magic: int, codec: Codec, append_time: int | None) -> None:
    """Whatever `build_legacy` writes, `records()` gives back, with the timestamps that the format can hold."""
    data = build_legacy(records, magic=magic, codec=codec, log_append_time_ms=append_time)
    read = [record for batch in iter_batches(data) for record in batch.records()]
    timestamps = [-1 if not magic else r.timestamp_ms if append_time is None else append_time for r in records]
    assert read == [Record(r.offset, t, r.key, r.value) for r, t in zip(records, timestamps, strict=True)]


@given(st.data(), st.sampled_from([0, 1]), st.sampled_from(CODECS))
@settings(deadline=None, max_examples=300)
def test_damage_is_a_typed_error(data: st.DataObject, magic: int, codec: Codec) -> None:
    """Any bytes are read, or refused with an error of ours; a bit that flipped is never overlooked by the CRC."""
    sound = build_legacy(three(), magic=magic, codec=codec)
    damaged = bytearray(sound)
    damaged[data.draw(st.integers(0, len(sound) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    damaged = damaged[: data.draw(st.integers(0, len(sound)))]
    try:
        for batch in iter_batches(damaged):
            repr(batch)
            assert isinstance(batch.is_crc_valid, bool)
            if batch.is_crc_valid and batch.magic == magic:
                assert batch.as_memoryview()[12:] == sound[batch.start + 12 : batch.start + batch.size]
            list(batch.records())
    except KafkaError:
        return


def test_a_wrapper_of_an_old_client_at_offset_0_counts_from_0() -> None:
    wrapper = bytearray(build_legacy(three(), magic=1, codec=Codec.GZIP))
    struct.pack_into(">q", wrapper, 0, 0)
    batch = batch_at(wrapper)
    assert [record.offset for record in batch.records()] == [0, 1, 2]
    assert (batch.base_offset, batch.last_offset) == (0, 0)


def test_a_wrapper_below_the_messages_in_it_is_refused() -> None:
    wrapper = bytearray(build_legacy(three(), magic=1, codec=Codec.GZIP))
    struct.pack_into(">q", wrapper, 0, 1)
    with pytest.raises(InvalidRecordError, match="less than that of the last message in it, 2"):
        batch_at(wrapper).records()


def _wrapper(magic: int, codec: int, value: bytes | None) -> bytes:
    """A wrapper with any value, CRC right."""
    covered = bytes((magic, codec)) + (b"\0" * 8 if magic else b"") + b"\xff" * 4
    covered += b"\xff" * 4 if value is None else struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", 5, 4 + len(covered), zlib.crc32(covered)) + covered


def _gzip(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=31)
    return stream.compress(data) + stream.flush()


INNER = build_legacy([Record(0, 1, b"k", b"v")], magic=1)
DAMAGED = INNER[:-1] + b"x"


@pytest.mark.parametrize(
    ("wrapper", "error", "words"),
    [
        (_wrapper(1, 1, None), InvalidRecordError, "no value"),
        (_wrapper(1, 1, _gzip(b"")), InvalidRecordError, "no message in it"),
        (_wrapper(1, 1, b"no gzip"), CorruptRecordError, "gzip"),
        (_wrapper(1, 4, b"zstd"), InvalidRecordError, "zstd in message format 1"),
        (_wrapper(1, 1, _gzip(DAMAGED)), CorruptRecordError, "inside is corrupt"),
        (_wrapper(1, 1, _gzip(_wrapper(1, 1, b""))), InvalidRecordError, "compressed once more"),
        (_wrapper(1, 1, _gzip(build_batch(three()))), InvalidRecordError, "magic 2"),
        (_wrapper(1, 1, _gzip(b"\0" * 12)), CorruptRecordError, "length 0"),
        (_wrapper(0, 3, b"\x04\x22\x4d\x18"), CorruptRecordError, "lz4"),
    ],
)
def test_what_is_wrong_in_a_wrapper_is_named(wrapper: bytes, error: type[Exception], words: str) -> None:
    batch = batch_at(wrapper)
    batch.ensure_valid()
    with pytest.raises(error, match=words):
        batch.records()


def test_a_message_that_is_cut_off_inside_a_wrapper_is_left_out() -> None:
    batch = batch_at(_wrapper(1, 1, _gzip(INNER + INNER[:-1])))
    assert len(list(batch.records())) == 1


def test_a_bomb_is_an_error() -> None:
    batch = batch_at(_wrapper(1, 1, _gzip(bytes(1_000_000))))
    with pytest.raises(CorruptRecordError, match="more than the 1000 bytes"):
        batch.records(size_max=1_000)


@pytest.mark.parametrize("magic", [0, 1])
def test_lengths_are_checked_for_each_format(magic: int) -> None:
    smallest = build_legacy([Record(7, 1, None, None)], magic=magic)
    assert checked_batch_size(smallest, 0) == len(smallest) == (26, 34)[magic]
    shorter = bytearray(smallest)
    fmt.INT32.pack_into(shorter, 8, len(smallest) - 13)
    with pytest.raises(CorruptRecordError, match="less than the smallest possible"):
        list(iter_batches(shorter))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("at", [0, 4])
def test_a_length_beyond_the_message_is_no_index_error(magic: int, at: int) -> None:
    message = bytearray(build_legacy([Record(7, 1, b"", b"value")], magic=magic))
    fmt.INT32.pack_into(message, (18, 26)[magic] + at, 1_000)
    with pytest.raises(InvalidRecordError, match="length 1000"):
        batch_at(message).records()


def test_each_format_has_its_view() -> None:
    assert type(batch_at(build_batch(three()))) is RecordBatch
    assert type(batch_at(INNER)) is LegacyBatch
    with pytest.raises(CorruptRecordError, match="header"):
        batch_at(INNER[:20])


def test_a_format_without_codecs_or_headers_is_not_written() -> None:
    for records, codec, magic in (
        ([], Codec.NONE, 1),
        (three(), Codec.ZSTD, 1),
        (three(), Codec.NONE, 2),
        ([Record(0, 0, None, None, (("h", None),))], Codec.NONE, 0),
    ):
        with pytest.raises(ValueError, match="no such messages"):
            build_legacy(records, magic=magic, codec=codec)
