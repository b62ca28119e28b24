from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from stratalog.errors import InvalidRecordError, UsageError
from stratalog.remote.metadata.partitioner import murmur2
from stratalog.spark.sink.partitioner import Partitioner
from stratalog.spark.sink.rows import RowSplitter, SinkColumns
from stratalog.testing.clock import ManualClock
from tests.spark.sink.schemas import schema_of

KEYS = st.none() | st.binary(max_size=40)


@given(st.lists(KEYS, min_size=1, max_size=60), st.integers(1, 70_000), st.integers(0, 59))
@settings(deadline=None)
def test_a_key_goes_where_kafkas_partitioner_sends_it(keys: list[bytes | None], count: int, skip: int) -> None:
    """Every row with a key is in the partition of its murmur2, whatever slice of a column it is in."""
    column = pa.array(keys, pa.binary()).slice(skip)
    found = Partitioner(count, 3).partitions(column, None, len(column))
    assert len(found) == len(column)
    for key, partition in zip(keys[skip:], found.tolist(), strict=True):
        assert 0 <= partition < count
        if key is not None:
            assert partition == (murmur2(key) & 0x7FFFFFFF) % count


def test_rows_without_keys_are_spread_evenly() -> None:
    partitioner = Partitioner(4, 1)
    found = np.concatenate([partitioner.partitions(None, None, 10) for _ in range(40)])
    counts = np.bincount(found, minlength=4)
    assert counts.sum() == 400
    assert counts.max() - counts.min() <= 12


def test_few_rows_of_many_tasks_go_to_different_partitions() -> None:
    assert [Partitioner(4, task).partitions(None, None, 1)[0] for task in range(4)] == [0, 1, 2, 3]


def test_a_given_partition_wins_over_the_key() -> None:
    keys = pa.array([b"a", b"a", None], pa.binary())
    found = Partitioner(9, 0).partitions(keys, pa.array([7, None, 8], pa.int32()), 3)
    assert found.tolist() == [7, (murmur2(b"a") & 0x7FFFFFFF) % 9, 8]


@pytest.mark.parametrize("wrong", [-1, 4])
def test_a_partition_that_the_topic_does_not_have_is_named(wrong: int) -> None:
    with pytest.raises(InvalidRecordError, match=rf"column partition: {wrong} in a topic of 4 partitions \(0 to 3\)"):
        Partitioner(4, 0).partitions(None, pa.array([0, wrong], pa.int32()), 2)


def split(ddl: str, rows: dict[str, list[Any]], topic: str | None = None, partitions: int = 3) -> list[Any]:
    schema = schema_of(ddl)
    kinds = {
        "string": pa.string(),
        "binary": pa.binary(),
        "int": pa.int32(),
        "timestamp": pa.timestamp("us", "UTC"),
    }
    arrays = {
        field.name: pa.array(rows[field.name], kinds.get(field.dataType.simpleString())) for field in schema.fields
    }
    splitter = RowSplitter(SinkColumns.of(schema, topic), topic, lambda _: partitions, 0, ManualClock(12_345))
    return [
        (name, partition, records.to_pylist())
        for name, partition, records in splitter.split(pa.RecordBatch.from_pydict(arrays))
    ]


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.none() | st.text(max_size=5)), min_size=1, max_size=40))
@settings(deadline=None)
def test_each_row_is_in_one_place_and_in_order(rows: list[tuple[str, str | None]]) -> None:
    """Rows of a topic and partition come out once, in the order in which they came in."""
    parts = split(
        "topic string, key string, value string",
        {
            "topic": [t for t, _ in rows],
            "key": [k for _, k in rows],
            "value": [f"{n}" for n in range(len(rows))],
        },
    )
    seen = [int(record["value"]) for _, _, records in parts for record in records]
    assert sorted(seen) == list(range(len(rows)))
    by_place: dict[tuple[str, int], list[int]] = {}
    for topic, partition, records in parts:
        for record in records:
            number = int(record["value"])
            assert rows[number][0] == topic
            by_place.setdefault((topic, partition), []).append(number)
            key = rows[number][1]
            if key is not None:
                assert partition == (murmur2(key.encode()) & 0x7FFFFFFF) % 3
    assert all(numbers == sorted(numbers) for numbers in by_place.values())


def test_the_option_wins_over_the_column_topic() -> None:
    parts = split("topic string, value string", {"topic": ["a", "b"], "value": ["1", "2"]}, "chosen", 1)
    assert [(topic, len(records)) for topic, _, records in parts] == [("chosen", 2)]


def test_the_time_is_now_where_there_is_none() -> None:
    (part,) = split("value string, timestamp timestamp", {"value": ["1", "2"], "timestamp": [7_999, None]}, "t", 1)
    assert [record["timestamp"] for record in part[2]] == [7, 12_345]
    (part,) = split("value string", {"value": ["1"]}, "t", 1)
    assert part[2][0]["timestamp"] == 12_345


def test_a_row_without_a_topic_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match="column topic has a null"):
        split("topic string, value string", {"topic": ["a", None], "value": ["1", "2"]})


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("key string", r"required column value is missing \(there are key\)"),
        ("value int", "column value is int, expected string or binary"),
        ("value string, key bigint", "column key is bigint, expected string or binary"),
        ("value string, partition bigint", "column partition is bigint, expected int"),
        ("value string, timestamp bigint", "column timestamp is bigint, expected timestamp"),
        ("value string, topic binary", "column topic is binary, expected string"),
        ("value string, headers array<string>", "column headers is array<string>, expected array<struct"),
        ("value string, headers string", "column headers is string, expected array<struct"),
    ],
)
def test_a_column_of_a_wrong_type_is_named(ddl: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SinkColumns.of(schema_of(ddl), "t")


def test_a_topic_has_to_be_named() -> None:
    with pytest.raises(UsageError, match="there is no column topic: option topic names"):
        SinkColumns.of(schema_of("value string"), None)
