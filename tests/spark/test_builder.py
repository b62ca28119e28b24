"""`stratalog.spark.read` and its like: their arguments are the options, and Python's values become the options'
text."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stratalog.spark
from stratalog.errors import UsageError
from stratalog.spark import builder
from stratalog.spark.options.read_options import ReadOptions
from stratalog.spark.options.reader import OptionReader
from stratalog.spark.sink.options import SinkOptions
from stratalog.spark.stream.options import StreamOptions
from tests.spark.partitions import T0, Partition, steady

#: Arguments that stand for many options each, or for an option that OptionReader knows by a method of its own.
WHOLE_GROUPS = {"remote_options", "kafka", "path"}
#: Options that Spark or `load([..])` set, and those that have a twin.
NOT_FOR_PEOPLE = {"paths", "kafka.isolation.level"}


def options_of(
    monkeypatch: pytest.MonkeyPatch, parse: Callable[[Mapping[str, str]], Any], minimum: dict[str, str]
) -> set[str]:
    """The options that `parse` looks at."""
    asked: set[str] = set()
    text = OptionReader.text

    def remembering(self: OptionReader, name: str) -> str | None:
        asked.add(name)
        return text(self, name)

    with monkeypatch.context() as patched:
        patched.setattr(OptionReader, "text", remembering)
        parse(minimum)
    return asked - NOT_FOR_PEOPLE


def arguments_of(function: Callable[..., Any]) -> set[str]:
    keywords = [each.name for each in inspect.signature(function).parameters.values() if each.kind is each.KEYWORD_ONLY]
    return {builder.option_name(name) for name in keywords if name not in WHOLE_GROUPS} | {"path"}


READ = {"path": "/data", "subscribe": "orders"}
WRITE = {"path": "/data", "topic": "orders"}


def test_the_arguments_are_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    stream_only_ends = {"endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"}
    assert arguments_of(builder.read) == options_of(monkeypatch, ReadOptions.parse, READ)
    assert arguments_of(builder.read_stream) == options_of(monkeypatch, StreamOptions.parse, READ) - stream_only_ends
    sink = options_of(monkeypatch, SinkOptions.parse, WRITE)
    assert arguments_of(builder.write) == sink - {"checkpointLocation"}
    assert arguments_of(builder.write_stream) == sink - {"queryId", "batchId"}


def test_python_values_become_the_text_of_options() -> None:
    plus_two = timezone(timedelta(hours=2))
    encoded = builder.encode(
        {
            "path": [Path("/a"), "/b"],
            "remote": None,
            "remote_options": {"region": "x"},
            "kafka": {"bootstrap.servers": "h:1"},
            "subscribe": ["a", "b"],
            "assign": [("a", 1), ("b", 0), ("a", 2)],
            "starting_offsets": {("a", 0): 5, ("a", 1): -2},
            "ending_offsets": "latest",
            "starting_timestamp": datetime(2023, 7, 1, 2, tzinfo=plus_two),
            "ending_timestamp": datetime(2023, 7, 1),
            "starting_offsets_by_timestamp": {("a", 0): datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)},
            "timestamp_disorder": timedelta(minutes=10),
            "max_records_per_partition": 7,
            "include_headers": True,
            "split_bytes": "64m",
        }
    )
    assert encoded == {
        "path": "/a,/b",
        "remote.region": "x",
        "kafka.bootstrap.servers": "h:1",
        "subscribe": "a,b",
        "assign": '{"a": [1, 2], "b": [0]}',
        "startingOffsets": '{"a": {"0": 5, "1": -2}}',
        "endingOffsets": "latest",
        "startingTimestamp": "1688169600000",
        "endingTimestamp": "1688169600000",
        "startingOffsetsByTimestamp": '{"a": {"0": -1000}}',
        "timestampDisorder": "600000",
        "maxRecordsPerPartition": "7",
        "includeHeaders": "true",
        "splitBytes": "64m",
    }


def test_wrong_arguments_are_named_at_once(spark: SparkSession) -> None:
    wrong: dict[str, dict[str, Any]] = {
        "nothing to read": {"subscribe": "a"},
        "exactly one": {"path": "/data"},
        "is not a partition": {"path": "/data", "assign": ["a-0"]},
        "option isolationLevel=serializable": {
            "path": "/d",
            "subscribe": "a",
            "isolation_level": "serializable",
        },
        "is not a valid type of an option": {"path": "/d", "subscribe": "a", "split_bytes": 1.5},
    }
    for problem, arguments in wrong.items():
        for function in (stratalog.spark.read, stratalog.spark.read_stream):
            with pytest.raises(UsageError, match=problem):
                function(spark, **arguments)
    with pytest.raises(UsageError, match="option codec=zip"):
        stratalog.spark.write(spark.range(1), path="/d", topic="a", codec="zip")  # type: ignore[arg-type]


def test_reading_and_writing_with_types(tmp_path: Path, spark: SparkSession) -> None:
    partition = Partition(tmp_path / "data")
    partition.segment(steady(4))
    found = stratalog.spark.read(
        spark,
        path=tmp_path / "data",
        assign=[("orders", 0)],
        starting_offsets={("orders", 0): 5},
        ending_timestamp=datetime.fromtimestamp(T0 / 1000 + 15, UTC),
        include_headers=True,
    )
    assert "headers" in found.columns
    assert [row.offset for row in found.collect()] == list(range(5, 15))
    (tmp_path / "out").mkdir()
    stratalog.spark.write(found.select("key", "value"), path=tmp_path / "out", topic="copy", partitions=1, codec="zstd")
    copied = stratalog.spark.read(spark, path=tmp_path / "out", subscribe="copy")
    assert [row.value for row in copied.collect()] == [each.value for each in partition.records[5:15]]


def test_a_stream_from_reader_to_writer(tmp_path: Path, spark: SparkSession) -> None:
    Partition(tmp_path / "data").segment(steady(4))
    rows = stratalog.spark.read_stream(
        spark,
        path=tmp_path / "data",
        subscribe="orders",
        starting_offsets="earliest",
        max_offsets_per_trigger=7,
    )
    (tmp_path / "out").mkdir()
    writer = stratalog.spark.write_stream(
        rows.select("key", "value"),
        checkpoint_location=tmp_path / "state",
        path=tmp_path / "out",
        topic="copy",
    )
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    assert stratalog.spark.read(spark, path=tmp_path / "out", subscribe="copy").count() == 20
