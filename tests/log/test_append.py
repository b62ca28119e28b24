"""What an append does to a batch, and what it refuses."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.config.topic import LogConfig
from stratalog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageTooLargeError,
)
from stratalog.log.append import preparation as module, validation
from stratalog.log.append.preparation import (
    AppendRules,
    PreparedAppend,
    prepare_follower_append,
    prepare_leader_append,
)
from stratalog.records import batch_format as fmt
from stratalog.records.batch import RecordBatch, iter_batches, stamp_batch
from stratalog.records.batch_builder import build_batch
from stratalog.records.compression import Codec, compress
from stratalog.records.control import ControlType, end_transaction_marker
from stratalog.records.record import Record
from stratalog.util.checksum import crc32c

NOW = 1_700_000_000_000


def records(count: int = 3, size: int = 10) -> list[Record]:
    return [Record(i, NOW - 5 + i, b"key", b"v" * size, (("h", b"x"),)) for i in range(count)]


def prepare(batch: bytes | bytearray, config: LogConfig | None = None, origin: str = "client") -> PreparedAppend:
    return prepare_leader_append(
        batch,
        AppendRules.of(config or LogConfig()),
        origin=origin,
        next_offset=1_000,
        leader_epoch=7,
        now_ms=NOW,
    )


def written(prepared: PreparedAppend) -> bytes:
    data = b"".join(bytes(part) for part in prepared.parts)
    assert len(data) == prepared.size
    return data


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("size", [10, 30_000], ids=["small", "large"])
def test_only_offset_and_epoch_are_put_into_a_producers_batch(codec: Codec, size: int) -> None:
    batch = build_batch(records(size=size), codec=codec)
    expected = bytearray(batch)
    stamp_batch(expected, 0, base_offset=1_000, partition_leader_epoch=7)
    given_bytes = bytearray(batch)
    prepared = prepare(given_bytes)
    assert written(prepared) == expected
    assert given_bytes == batch
    assert prepared.log_append_time == -1
    (facts,) = prepared.batches
    assert facts == (1_000, 1_002, NOW - 3, len(batch), 7)


@pytest.mark.parametrize("codec", list(Codec))
def test_append_time_is_put_in_without_decompression(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = build_batch(records(), codec=codec)
    monkeypatch.setattr(RecordBatch, "decompressed_payload", None)
    prepared = prepare(batch, LogConfig(message_timestamp_type="LogAppendTime"))
    monkeypatch.undo()
    expected = bytearray(batch)
    stamp_batch(expected, 0, base_offset=1_000, partition_leader_epoch=7, log_append_time_ms=NOW)
    assert written(prepared) == expected
    assert prepared.log_append_time == prepared.max_timestamp == NOW
    stamped = RecordBatch(written(prepared))
    stamped.ensure_valid()
    assert {record.timestamp_ms for record in stamped.records()} == {NOW}


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("codec", list(Codec))
def test_a_topics_codec_is_put_in_the_place_of_the_producers(codec: Codec, target: str) -> None:
    batch = build_batch(records(), codec=codec, producer_id=5, producer_epoch=1, base_sequence=9)
    prepared = prepare(batch, LogConfig(compression_type=target))
    result = RecordBatch(written(prepared))
    result.ensure_valid()
    assert result.codec is Codec.from_name(target)
    assert [replace(r, offset=r.offset - 1_000) for r in result.records()] == [
        replace(r, sequence=9 + i) for i, r in enumerate(records())
    ]
    assert (result.producer_id, result.producer_epoch, result.base_sequence) == (5, 1, 9)
    if codec is Codec.from_name(target):
        assert written(prepared)[16:] == batch[16:]


@pytest.mark.parametrize(("codec", "level"), [("gzip", 9), ("lz4", 12), ("zstd", 19)])
def test_another_level_alone_changes_nothing(codec: str, level: int) -> None:
    batch = build_batch(records(size=2_000), codec=Codec.from_name(codec), level=1)
    levels: dict[str, Any] = {f"compression_{codec}_level": level}
    assert written(prepare(batch, LogConfig(compression_type=codec, **levels)))[16:] == batch[16:]


def test_the_level_is_used_where_a_batch_is_compressed_again() -> None:
    batch = build_batch([Record(0, NOW, None, random.Random(1).randbytes(500) * 9)])
    sizes = {
        level: prepare(batch, LogConfig(compression_type="gzip", compression_gzip_level=level)).size for level in (1, 9)
    }
    assert sizes[9] != sizes[1]


def test_markers_are_not_compressed() -> None:
    marker = end_transaction_marker(
        ControlType.COMMIT, producer_id=5, producer_epoch=0, coordinator_epoch=1, timestamp_ms=NOW
    )
    prepared = prepare(marker, LogConfig(compression_type="zstd"), origin="coordinator")
    assert written(prepared)[16:] == marker[16:]
    assert next(prepared.producer_batches[0].records()).offset == 1_000


def test_several_batches_of_ours_get_offsets_one_after_the_other() -> None:
    both = build_batch(records(2)) + build_batch(records(3), codec=Codec.ZSTD)
    prepared = prepare(both, origin="internal")
    assert [(b.base_offset, b.last_offset) for b in iter_batches(written(prepared))] == [
        (1_000, 1_001),
        (1_002, 1_004),
    ]
    assert [(facts.base_offset, facts.last_offset) for facts in prepared.batches] == [
        (1_000, 1_001),
        (1_002, 1_004),
    ]


BEFORE = LogConfig(message_timestamp_before_max_ms=100)


@pytest.mark.parametrize(
    ("timestamps", "config", "allowed"),
    [
        ([NOW + 3_600_000], LogConfig(), True),
        ([NOW + 3_600_001], LogConfig(), False),
        ([NOW, NOW + 3_600_001, NOW], LogConfig(), False),
        ([NOW + 3_600_001], LogConfig(message_timestamp_type="LogAppendTime"), True),
        ([0], LogConfig(), True),
        ([NOW - 100], BEFORE, True),
        ([NOW - 101], BEFORE, False),
        ([NOW, NOW - 101, NOW], BEFORE, False),
        ([-1], BEFORE, True),
        ([NOW - 101], replace(BEFORE, message_timestamp_type="LogAppendTime"), True),
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_timestamps_outside_of_the_bounds_are_refused(
    timestamps: list[int], config: LogConfig, allowed: bool, codec: Codec
) -> None:
    batch = build_batch([Record(i, ts, b"k", b"v") for i, ts in enumerate(timestamps)], codec=codec)
    if allowed:
        assert prepare(batch, config).size
    else:
        with pytest.raises(InvalidTimestampError, match=r"message\.timestamp\.after\.max\.ms allow") as caught:
            prepare(batch, config)
        bad = [i for i, ts in enumerate(timestamps) if not -100 <= NOW - ts <= 100 and ts >= 0]
        assert [error.batch_index for error in caught.value.record_errors] == bad


def oddly_numbered(codec: Codec, delta: int) -> bytes:
    """Two records of which the first has this offset delta."""
    inner = bytearray(build_batch([Record(0, NOW, b"", b""), Record(1, NOW, b"", b"")])[fmt.HEADER_SIZE :])
    inner[3] = 2 * delta  # as a varint
    batch = bytearray(build_batch(records(2))[: fmt.HEADER_SIZE]) + compress(codec, inner)
    fmt.INT32.pack_into(batch, fmt.LENGTH_AT, len(batch) - fmt.LOG_OVERHEAD)
    fmt.INT16.pack_into(batch, fmt.ATTRIBUTES_AT, codec)
    fmt.UINT32.pack_into(batch, fmt.CRC_AT, crc32c(memoryview(batch)[fmt.ATTRIBUTES_AT :]))
    return bytes(batch)


@pytest.mark.parametrize("source", [Codec.NONE, Codec.GZIP])
def test_records_that_are_written_again_are_numbered_again(source: Codec) -> None:
    """As in Kafka: whatever offset deltas a client gave them."""
    result = RecordBatch(written(prepare(oddly_numbered(source, 1), LogConfig(compression_type="zstd"))))
    assert [record.offset for record in result.records()] == [1_000, 1_001]
    assert result.codec is Codec.ZSTD


def test_compressed_records_have_to_be_numbered_one_by_one() -> None:
    """Kafka, too, takes the uncompressed ones only."""
    assert prepare(oddly_numbered(Codec.NONE, 1)).size
    with pytest.raises(InvalidRecordError, match="do not ascend one by one"):
        prepare(oddly_numbered(Codec.GZIP, 1))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("target", ["producer", "zstd"])
def test_an_offset_that_is_none_of_the_batch_is_refused(codec: Codec, target: str) -> None:
    """A client that reads such a record goes on behind it, and misses what is there."""
    with pytest.raises(InvalidRecordError, match="offset delta 2, expected 0 to 1"):
        prepare(oddly_numbered(codec, 2), LogConfig(compression_type=target))


@pytest.mark.parametrize("source", Codec)
@pytest.mark.parametrize("target", [Codec.NONE, Codec.ZSTD])
def test_very_many_records_get_another_codec_as_few_do(
    source: Codec, target: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "uncompressed" if target is Codec.NONE else "zstd"
    config = LogConfig(compression_type=name)
    batch = build_batch([Record(n, NOW + n, b"key", b"value") for n in range(50)], codec=source)
    few = RecordBatch(written(prepare(batch, config)))
    monkeypatch.setattr(validation, "_REWRITTEN_MAX", 10)
    many = RecordBatch(written(prepare(batch, config)))
    assert list(many.records()) == list(few.records())
    assert bytes(many.as_memoryview()) == bytes(few.as_memoryview())


def test_a_compacted_topic_wants_keys() -> None:
    compacted = LogConfig(cleanup_policy=frozenset({"compact"}))
    assert prepare(build_batch(records()), compacted).size
    with pytest.raises(InvalidRecordError, match=r"record 1 .*no key") as caught:
        prepare(build_batch([Record(0, NOW, b"k", b""), Record(1, NOW, None, b"")]), compacted)
    assert [error.batch_index for error in caught.value.record_errors] == [1]


def _changed(batch: bytes, at: int, value: int) -> bytes:
    """A client's batch with one header byte changed and the CRC made right."""
    data = bytearray(batch)
    data[at] = value
    fmt.UINT32.pack_into(data, fmt.CRC_AT, crc32c(memoryview(data)[fmt.ATTRIBUTES_AT :]))
    return bytes(data)


SOUND = build_batch(records())


@pytest.mark.parametrize(
    ("batch", "error"),
    [
        (b"", InvalidRecordError),
        (SOUND[:-1], InvalidRecordError),
        (SOUND + bytes(17), CorruptRecordError),
        (SOUND[:-1] + b"\x7f", CorruptRecordError),
        (_changed(SOUND, 7, 1), InvalidRecordError),
        (_changed(SOUND, fmt.MAGIC_AT, 1), CorruptRecordError),
        (_changed(SOUND, fmt.MAGIC_AT, 3), CorruptRecordError),
        (_changed(SOUND, fmt.ATTRIBUTES_AT + 1, fmt.CONTROL_BIT), InvalidRecordError),
        (_changed(SOUND, fmt.ATTRIBUTES_AT + 1, 5), KafkaError),
        (_changed(SOUND, fmt.RECORD_COUNT_AT + 3, 4), InvalidRecordError),
        (_changed(SOUND, fmt.LAST_OFFSET_DELTA_AT + 3, 9), InvalidRecordError),
        (build_batch(records(), producer_id=1, producer_epoch=0, base_sequence=-1), InvalidRecordError),
        (build_batch(records(size=2_000_000)), MessageTooLargeError),
    ],
)
def test_what_is_no_sound_batch_is_refused(batch: bytes, error: type[KafkaError]) -> None:
    with pytest.raises(error):
        prepare(batch)


def test_the_beginning_of_one_more_batch_is_dropped() -> None:
    """As by Kafka."""
    sound = written(prepare(SOUND))
    assert written(prepare(SOUND + b"x")) == sound
    assert written(prepare(SOUND + SOUND[:-1])) == sound


@given(
    st.data(),
    st.sampled_from(list(Codec)),
    st.sampled_from([-1, 4]),
    st.sampled_from([LogConfig(), LogConfig(max_message_bytes=80), LogConfig(message_timestamp_after_max_ms=0)]),
)
@settings(deadline=None, max_examples=300)
def test_the_quick_way_decides_as_the_plain_way(
    data: st.DataObject, codec: Codec, producer: int, config: LogConfig
) -> None:
    """For any bytes the fast path prepares what the plain path prepares, or refuses as it does."""
    sequence = 0 if producer >= 0 else -1
    epoch = 0 if producer >= 0 else -1
    batch = bytearray(
        build_batch(records(2), codec=codec, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    )
    for _ in range(data.draw(st.integers(0, 2))):
        batch[data.draw(st.integers(0, len(batch) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    if data.draw(st.booleans()):
        fmt.UINT32.pack_into(batch, fmt.CRC_AT, crc32c(memoryview(batch)[fmt.ATTRIBUTES_AT :]))

    def outcome(function: Any) -> object:
        try:
            prepared = function()
        except KafkaError as error:
            return type(error), str(error)
        return written(prepared), list(prepared.batches), [b.producer_id for b in prepared.producer_batches]

    rules = AppendRules.of(config)
    quick = outcome(lambda: prepare(batch, config))
    plain = outcome(lambda: module._prepare_plainly(memoryview(batch), rules, "client", 1_000, 7, NOW))
    assert quick == plain


def test_a_follower_takes_batches_as_they_are_and_leaves_a_partial_one() -> None:
    first = build_batch([replace(record, offset=record.offset + 10) for record in records()], base_offset=10)
    shifted = [replace(record, offset=record.offset + 20) for record in records()]
    second = build_batch(shifted, base_offset=20, partition_leader_epoch=3)
    prepared = prepare_follower_append(first + second + first[:30], log_end_offset=10)
    assert written(prepared) == first + second
    assert [(f.base_offset, f.last_offset, f.leader_epoch) for f in prepared.batches] == [
        (10, 12, -1),
        (20, 22, 3),
    ]


@pytest.mark.parametrize("log_end_offset", [11, 13])
def test_a_follower_refuses_offsets_that_it_has(log_end_offset: int) -> None:
    with pytest.raises(InvalidRecordError, match="expected at least"):
        prepare_follower_append(
            build_batch([Record(10, NOW, None, None)], base_offset=10), log_end_offset=log_end_offset
        )


def test_a_follower_checks_the_crc() -> None:
    damaged = bytearray(SOUND)
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        prepare_follower_append(damaged, log_end_offset=0)
