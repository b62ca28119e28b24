from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from tests.records.strategies import CONTENTS, HEADERS, TIMESTAMPS

from stratalog.errors import InvalidRecordError, InvalidTimestampError
from stratalog.records import Codec, Record, build_batch
from stratalog.records.batch_format import HEADER_SIZE
from stratalog.records.columns import HEADER_TYPE, decode_columns
from stratalog.records.columns_encode import BatchSettings, EncodedBatch, encode_batches


def columns_of(records: list[Record], *, with_offsets: bool = True) -> pa.RecordBatch:
    arrays: dict[str, pa.Array] = {
        "key": pa.array([record.key for record in records], pa.binary()),
        "value": pa.array([record.value for record in records], pa.binary()),
        "headers": pa.array(
            [[{"key": k, "value": v} for k, v in record.headers] or None for record in records],
            pa.list_(HEADER_TYPE),
        ),
        "timestamp": pa.array([record.timestamp_ms for record in records], pa.int64()),
    }
    if with_offsets:
        arrays["offset"] = pa.array([record.offset for record in records], pa.int64())
    return pa.RecordBatch.from_pydict(arrays)


def plainly(records: list[Record], wanted: BatchSettings) -> Iterator[bytes]:
    """The plain twin: the same boundaries by trying, each batch by `build_batch`."""
    sequence = wanted.base_sequence

    def built(of: list[Record], codec: Codec) -> bytes:
        return build_batch(
            of,
            base_offset=of[0].offset,
            codec=codec,
            level=wanted.level,
            producer_id=wanted.producer_id,
            producer_epoch=wanted.producer_epoch,
            base_sequence=sequence,
            partition_leader_epoch=wanted.partition_leader_epoch,
            is_transactional=wanted.is_transactional,
        )

    batch: list[Record] = []
    for record in records:
        if batch and (
            len(batch) >= wanted.batch_records
            or record.offset - batch[0].offset > 2**31 - 1
            or len(built([*batch, record], Codec.NONE)) > wanted.batch_bytes
        ):
            yield built(batch, wanted.codec)
            if sequence >= 0:
                sequence = (sequence + batch[-1].offset - batch[0].offset + 1) % 2**31
            batch = []
        batch.append(record)
    if batch:
        yield built(batch, wanted.codec)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    offset = draw(st.integers(0, 2**40))
    records = []
    for gap in draw(st.lists(st.integers(1, 300) | st.just(1) | st.just(2**31), min_size=1, max_size=20)):
        offset += gap
        records.append(Record(offset, draw(TIMESTAMPS), draw(CONTENTS), draw(CONTENTS), draw(HEADERS)))
    return records


@st.composite
def batch_settings(draw: st.DrawFn) -> BatchSettings:
    return BatchSettings(
        codec=draw(st.sampled_from(Codec)),
        batch_bytes=draw(st.integers(1, 30_000)),
        batch_records=draw(st.integers(1, 30)),
        producer_id=draw(st.integers(-1, 2**63 - 1)),
        producer_epoch=draw(st.integers(-1, 2**15 - 1)),
        base_sequence=draw(st.integers(-1, 2**31 - 1)),
        partition_leader_epoch=draw(st.integers(-1, 2**31 - 1)),
        is_transactional=draw(st.booleans()),
    )


def joined(batches: list[EncodedBatch]) -> bytes:
    return b"".join(bytes(batch.data) for batch in batches)


@given(record_lists(), batch_settings())
@settings(deadline=None)
def test_the_bytes_are_those_of_the_plain_builder(records: list[Record], wanted: BatchSettings) -> None:
    """Whatever the records and settings, each batch is byte for byte what build_batch makes of its records."""
    found = [bytes(batch.data) for batch in encode_batches(columns_of(records), settings=wanted)]
    assert found == list(plainly(records, wanted))


@given(record_lists(), batch_settings(), st.integers(0, 19), st.integers(1, 20))
@settings(deadline=None)
def test_what_was_encoded_is_decoded(records: list[Record], wanted: BatchSettings, start: int, count: int) -> None:
    """Any slice of columns comes back from decode_columns as it went in."""
    columns = columns_of(records).slice(start, count)
    batches = list(encode_batches(columns, settings=wanted))
    decoded = decode_columns(joined(batches))
    for name in columns.schema.names:
        assert decoded.column(name).to_pylist() == columns.column(name).to_pylist(), name
    assert sum(batch.records for batch in batches) == columns.num_rows
    offsets = decoded.column("offset").to_pylist()
    if offsets:
        assert (batches[0].base_offset, batches[-1].last_offset) == (offsets[0], offsets[-1])
        assert max(b.max_timestamp_ms for b in batches) == max(columns.column("timestamp").to_pylist())


def test_rows_without_offsets_count_up_from_the_first() -> None:
    records = [Record(0, 5, None, b"v") for _ in range(5)]
    columns = columns_of(records, with_offsets=False)
    batches = list(encode_batches(columns, 2**33, BatchSettings(batch_records=2)))
    assert [(b.base_offset, b.last_offset, b.records) for b in batches] == [
        (2**33, 2**33 + 1, 2),
        (2**33 + 2, 2**33 + 3, 2),
        (2**33 + 4, 2**33 + 4, 1),
    ]
    assert decode_columns(joined(batches)).column("offset").to_pylist() == [2**33 + n for n in range(5)]


def test_a_batch_ends_before_it_would_pass_its_bound() -> None:
    columns = columns_of([Record(n, 0, None, bytes(100)) for n in range(100)])
    one = next(encode_batches(columns, settings=BatchSettings(batch_records=10)))
    exact = BatchSettings(batch_bytes=one.size)
    assert [b.records for b in encode_batches(columns, settings=exact)] == [10] * 10
    less = BatchSettings(batch_bytes=one.size - 1)
    assert [b.records for b in encode_batches(columns, settings=less)] == [9] * 11 + [1]


def test_a_record_larger_than_any_output_buffer_is_a_batch_alone() -> None:
    columns = columns_of([Record(0, 0, None, bytes(9 << 20)), Record(1, 0, None, b"small")])
    batches = list(encode_batches(columns))
    assert [b.records for b in batches] == [1, 1]
    assert batches[0].size > 9 << 20
    assert decode_columns(joined(batches)).column("value").to_pylist() == [bytes(9 << 20), b"small"]


def test_more_batches_than_one_turn_of_the_loop_holds() -> None:
    columns = columns_of([Record(n, n, None, None) for n in range(10_000)])
    batches = list(encode_batches(columns, settings=BatchSettings(batch_records=1, base_sequence=2**31 - 5)))
    assert [b.base_offset for b in batches] == list(range(10_000))
    assert batches[6].base_sequence == 1
    assert batches[0].size == HEADER_SIZE + 7


@pytest.mark.parametrize("level", [None, 1, 9])
def test_the_level_of_the_codec_is_used(level: int | None) -> None:
    records = [Record(n, n, None, f"some text {n % 7} and {n}".encode() * 9) for n in range(300)]
    wanted = BatchSettings(codec=Codec.GZIP, level=level)
    assert joined(list(encode_batches(columns_of(records), settings=wanted))) == b"".join(plainly(records, wanted))


def _converted(columns: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.RecordBatch:
    at = columns.schema.get_field_index(name)
    return columns.set_column(at, name, columns.column(name).cast(kind))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view()])
def test_other_spellings_of_bytes_are_the_same(kind: pa.DataType) -> None:
    records = [Record(n, n, b"key%d" % n if n % 3 else None, b"v" * n) for n in range(50)]
    columns = columns_of(records)
    other = _converted(_converted(columns, "key", kind), "value", kind)
    assert joined(list(encode_batches(other))) == joined(list(encode_batches(columns)))


@pytest.mark.parametrize(
    "kind", [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.timestamp("ms"), pa.timestamp("s")]
)
def test_timestamps_of_any_unit_are_milliseconds(kind: pa.DataType) -> None:
    records = [Record(n, 1_700_000_000_000 + n * 1000, None, None) for n in range(5)]
    columns = columns_of(records)
    other = _converted(_converted(columns, "timestamp", pa.timestamp("ms")), "timestamp", kind)
    assert joined(list(encode_batches(other))) == joined(list(encode_batches(columns)))


def test_microseconds_are_rounded_down() -> None:
    columns = pa.RecordBatch.from_pydict({"timestamp": pa.array([1_999, 2_000], pa.timestamp("us"))})
    decoded = decode_columns(joined(list(encode_batches(columns))))
    assert decoded.column("timestamp").to_pylist() == [1, 2]


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"timestamp": [1, -2]}, InvalidTimestampError, "row 1: timestamp -2 ms lies before 1970"),
        ({"timestamp": [1, None]}, InvalidTimestampError, "row 1: the timestamp is null"),
        (
            {"timestamp": [1, 1], "offset": [5, 5]},
            ValueError,
            "row 1: its offset is not after that of the row before it",
        ),
        ({"timestamp": [1], "offset": [None]}, ValueError, "column offset has nulls"),
        ({"timestamp": ["yesterday"]}, ValueError, "column timestamp is string, expected int64"),
        ({"timestamp": [1], "key": [2.5]}, ValueError, "column key is double, expected binary"),
    ],
)
def test_what_cannot_be_encoded_is_named(values: dict[str, list[Any]], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        list(encode_batches(pa.RecordBatch.from_pydict(values)))


def test_a_header_without_a_key_is_refused() -> None:
    good = columns_of([Record(0, 0, None, None, (("a", b"1"),)), Record(1, 0, None, None)])
    bad = pa.array([[{"key": "a", "value": b"1"}], [{"key": None, "value": b""}]], pa.list_(HEADER_TYPE))
    with pytest.raises(InvalidRecordError, match="row 1: a header has no key"):
        list(encode_batches(good.set_column(2, "headers", bad)))


def test_no_rows_are_no_batches() -> None:
    assert list(encode_batches(columns_of([Record(0, 0, None, None)]).slice(0, 0))) == []


def test_sequences_follow_the_records() -> None:
    columns = columns_of([Record(n, 0, None, None) for n in range(5)], with_offsets=False)
    wanted = replace(BatchSettings(), producer_id=7, producer_epoch=1, base_sequence=10, batch_records=2)
    assert [b.base_sequence for b in encode_batches(columns, settings=wanted)] == [10, 12, 14]
