"""Plan and read without Spark: every wanted record once, and no more bytes than that needs."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings, strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    Not,
)

from stratalog.records.compression import Codec
from tests.spark.partitions import T0, Batch, Partition, expected_row, scan, steady

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_literal(timestamp_ms: float) -> datetime:
    return EPOCH + timedelta(milliseconds=timestamp_ms)


batches = st.builds(
    Batch,
    timestamps=st.lists(st.integers(T0, T0 + 500), min_size=1, max_size=6),
    codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.ZSTD, Codec.LZ4]),
    value_size=st.sampled_from([1, 30, 300]),
    log_append_time_ms=st.one_of(st.none(), st.none(), st.integers(T0, T0 + 500)),
)
segments = st.lists(st.lists(batches, min_size=1, max_size=12), min_size=1, max_size=4)


@st.composite
def filters(draw: Any) -> tuple[Any, Any]:
    """A pushed filter, and the same as a function of (offset, timestamp)."""
    column = draw(st.sampled_from(["offset", "timestamp"]))
    kind = draw(st.sampled_from([EqualTo, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual, In]))
    value = st.integers(-2, 60) if column == "offset" else st.integers(2 * T0 - 4, 2 * T0 + 1010).map(lambda n: n / 2)
    wrap = (lambda n: n) if column == "offset" else time_literal
    drawn = draw(st.lists(value, min_size=1, max_size=3)) if kind is In else draw(value)
    literal = [wrap(n) for n in drawn] if kind is In else wrap(drawn)
    made = kind((column,), literal)
    compare = {
        EqualTo: lambda v: v == drawn,
        LessThan: lambda v: v < drawn,
        LessThanOrEqual: lambda v: v <= drawn,
        GreaterThan: lambda v: v > drawn,
        GreaterThanOrEqual: lambda v: v >= drawn,
        In: lambda v: v in drawn,
    }[kind]
    negated = draw(st.booleans())
    pick = (lambda offset, timestamp: offset) if column == "offset" else (lambda offset, timestamp: timestamp)
    return (
        Not(made) if negated else made,
        lambda offset, timestamp: compare(pick(offset, timestamp)) is not negated,
    )


@given(
    data=segments,
    chosen=st.lists(filters(), max_size=3),
    remote=st.sets(st.integers(0, 3)),
    dropped=st.integers(0, 3),
    split_bytes=st.sampled_from([200, 1000, 10**6]),
    records_max=st.one_of(st.none(), st.integers(1, 10)),
    min_partitions=st.one_of(st.none(), st.integers(1, 8)),
    interval=st.sampled_from([0, 200, 10**6]),
)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_splits_give_every_wanted_record_once(
    data: list[list[Batch]],
    chosen: list[tuple[Any, Any]],
    remote: set[int],
    dropped: int,
    split_bytes: int,
    records_max: int | None,
    min_partitions: int | None,
    interval: int,
) -> None:
    """Whatever the segments, indexes, tiers, filters and split sizes: the union of the splits is what was asked for."""
    with tempfile.TemporaryDirectory() as directory:
        partition = Partition(Path(directory) / "data", index_interval=interval)
        bucket = f"file://{directory}/bucket"
        bases = [partition.segment(segment) for segment in data]
        for number in remote | set(range(dropped)):
            if number < len(bases):
                partition.upload(bucket, bases[number])
        for number in range(min(dropped, len(bases) - 1)):
            partition.drop_local(bases[number])
        options: dict[str, Any] = {"path": partition.root, "remote": bucket, "subscribe": "orders"}
        options |= {"splitBytes": split_bytes, "includeHeaders": "true"}
        if records_max is not None:
            options["maxRecordsPerPartition"] = records_max
        if min_partitions is not None:
            options["minPartitions"] = min_partitions
        found = scan([made for made, _ in chosen], **options)
        assert found.rest == []
        assert found.rows == [
            expected_row(partition, each)
            for each in partition.records
            if all(holds(each.offset, partition.timestamp_of(each)) for _, holds in chosen)
        ]
        if records_max is not None:
            assert all(len(rows) <= records_max for rows in found.rows_by_plan)


def test_a_narrow_offset_filter_reads_little(tmp_path: Path) -> None:
    partition = Partition(tmp_path, index_interval=1000)
    for _ in range(3):
        partition.segment(steady(200, value_size=100))
    whole = scan(path=tmp_path, subscribe="orders")
    narrow = scan([EqualTo(("offset",), 1234)], path=tmp_path, subscribe="orders")
    assert [row["offset"] for row in narrow.rows] == [1234]
    assert narrow.bytes_read < whole.bytes_read / 50


def test_old_segments_are_not_read_for_a_late_time(tmp_path: Path) -> None:
    partition = Partition(tmp_path, index_interval=1000)
    for hour in range(5):
        partition.segment(steady(200, start=T0 + hour * 3_600_000, step_ms=3600, value_size=100))
    whole = scan(path=tmp_path, subscribe="orders")
    late = scan(
        [GreaterThanOrEqual(("timestamp",), time_literal(T0 + 4 * 3_600_000))],
        path=tmp_path,
        subscribe="orders",
    )
    assert len(late.rows) == 1000
    assert late.bytes_read < whole.bytes_read / 4.8


def test_with_a_known_disorder_an_hour_reads_that_hour(tmp_path: Path) -> None:
    partition = Partition(tmp_path, index_interval=1000)
    for begin in range(0, 24, 4):  # four hours in a segment
        partition.segment(steady(800, start=T0 + begin * 3_600_000, step_ms=3600, value_size=100))
    hour = [
        GreaterThanOrEqual(("timestamp",), time_literal(T0 + 9 * 3_600_000)),
        LessThan(("timestamp",), time_literal(T0 + 10 * 3_600_000)),
    ]
    whole = scan(path=tmp_path, subscribe="orders")
    without = scan(hour, path=tmp_path, subscribe="orders")
    found = scan(hour, path=tmp_path, subscribe="orders", timestampDisorder="0")
    assert found.rows == without.rows
    assert len(found.rows) == 1000
    assert found.bytes_read < whole.bytes_read / 24 * 1.1
    assert without.bytes_read > found.bytes_read * 5  # anything later might be older


def test_late_records_are_found_without_a_known_disorder(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    partition.segment(steady(50))
    late = partition.next_offset
    partition.segment([Batch([T0 + 10_000_000, T0 + 1, T0 + 10_000_001])])
    found = scan([LessThan(("timestamp",), time_literal(T0 + 2))], path=tmp_path, subscribe="orders")
    assert found.offsets == [0, late + 1]


def test_other_partitions_and_topics_are_not_looked_at(tmp_path: Path) -> None:
    for topic in ("orders", "visits"):
        for number in range(3):
            Partition(tmp_path, topic, number).segment(steady(3))
    found = scan(
        [In(("partition",), (0, 2)), Not(EqualTo(("partition",), 0)), Not(EqualTo(("topic",), "visits"))],
        path=tmp_path,
        subscribePattern=".*s",
    )
    assert {(row["topic"], row["partition"]) for row in found.rows} == {("orders", 2)}
    assert {(plan.topic, plan.partition) for plan in found.plans} == {("orders", 2)}


def test_small_segments_share_a_split(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    for _ in range(30):
        partition.segment(steady(2))
    assert len(scan(path=tmp_path, subscribe="orders").plans) == 1
    assert len(scan(path=tmp_path, subscribe="orders", minPartitions=7).plans) >= 7


def test_without_indexes_everything_is_still_there(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    for _ in range(2):
        partition.segment(steady(20), index=False)
    found = scan([GreaterThan(("offset",), 150)], path=tmp_path, subscribe="orders", splitBytes=500)
    assert found.offsets == list(range(151, 200))


def test_compacted_segments_have_holes(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    partition.segment([Batch([T0] * 10, holes=frozenset({0, 3, 4, 9})), Batch([T0] * 10, holes=frozenset(range(9)))])
    partition.next_offset += 25
    partition.segment([Batch([T0] * 5, holes=frozenset({0, 1}))])
    found = scan(path=tmp_path, subscribe="orders", splitBytes=100)
    assert found.offsets == [each.offset for each in partition.records]
