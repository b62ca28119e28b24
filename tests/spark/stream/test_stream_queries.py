"""Streaming queries as Spark runs them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from stratalog.spark.stream import lag
from tests.spark.partitions import Partition, steady
from tests.support.late_workers import despite_late_workers

pytestmark = pytest.mark.spark


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    found = Partition(tmp_path / "data")
    found.segment(steady(8))
    found.segment(steady(8))
    return found


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table"


class Streams:
    """Queries over one data directory, with one checkpoint, into one table."""

    def __init__(self, spark: SparkSession, partition: Partition, table: Path) -> None:
        self.spark = spark
        self.partition = partition
        self.table = table
        self.checkpoint = table.with_name("checkpoint")

    def frame(self, **options: Any) -> DataFrame:
        reader = self.spark.readStream.format("stratalog").option("path", str(self.partition.root))
        reader = reader.option("subscribe", "orders").option("startingOffsets", "earliest")
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader.load()

    def writer(self, frame: DataFrame, each_batch: Callable[[DataFrame, int], None] | None = None) -> DataStreamWriter:
        writer = frame.writeStream.option("checkpointLocation", str(self.checkpoint))
        if each_batch is not None:
            return writer.foreachBatch(each_batch)
        return writer.format("parquet").option("path", str(self.table))

    def finish(self, **options: Any) -> StreamingQuery:
        """Run a query into the table, to the end of what is there."""
        query = self.writer(self.frame(**options)).trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    def offsets(self) -> list[tuple[int, int]]:
        """What the table has."""
        rows = self.spark.read.parquet(str(self.table)).select("partition", "offset").collect()
        return sorted((row["partition"], row["offset"]) for row in rows)

    def logged(self) -> list[dict[str, dict[str, int]]]:
        """The offsets in the checkpoint."""
        files = sorted((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        return [json.loads(path.read_text().splitlines()[-1]) for path in files]


@pytest.fixture
def streams(spark: SparkSession, partition: Partition, table: Path) -> Streams:
    return Streams(spark, partition, table)


def every_offset(*partitions: Partition) -> list[tuple[int, int]]:
    return sorted((each.number, record.offset) for each in partitions for record in each.records)


def test_available_now_keeps_its_limits_and_a_restart_goes_on(streams: Streams, partition: Partition) -> None:
    query = streams.finish(maxOffsetsPerTrigger=30)
    assert streams.logged() == [{"orders": {"0": end}} for end in (30, 60, 80)]
    progress = query.recentProgress
    assert [lag(each).total for each in progress] == [50, 20, 0]
    assert lag(progress[0]).metrics["maxOffsetsBehindLatest"] == "50"
    assert [each.numInputRows for each in progress] == [30, 30, 20]
    second = Partition(partition.root, number=1)
    second.segment(steady(2))
    partition.segment(steady(1))
    streams.finish()
    assert streams.logged()[3:] == [{"orders": {"0": 85, "1": 10}}]
    assert streams.offsets() == every_offset(partition, second)


def test_a_stream_gives_what_a_batch_gives(streams: Streams) -> None:
    streams.finish(includeHeaders="true", splitBytes="300", minPartitions=3)
    read = streams.spark.read.format("stratalog").option("path", str(streams.partition.root))
    batch = read.option("subscribe", "orders").option("includeHeaders", "true").load()
    stream = streams.spark.read.parquet(str(streams.table))
    assert stream.schema == batch.schema
    assert stream.orderBy("offset").collect() == batch.orderBy("offset").collect()


def test_columns_and_rows_are_the_same(streams: Streams, partition: Partition) -> None:
    """Micro-batches read by columns, only those that are used, and by rows, as of any Python source."""
    second = Partition(partition.root, number=1)
    second.segment(steady(4))

    def run(by_columns: str) -> tuple[list[str], str]:
        streams.spark.conf.set("spark.stratalog.scan.columns", by_columns)
        frame = streams.frame(maxOffsetsPerTrigger=60)
        shapes = (
            frame.selectExpr("cast(value as string) as text", "0L as number"),
            frame.where("offset % 3 = 0").selectExpr("cast(key as string)", "offset + partition"),
            frame.where("timestampType = 0").selectExpr("topic", "1L"),
            frame.selectExpr("'nothing of it'", "2L"),
        )
        rows: list[str] = []
        union = shapes[0].union(shapes[1]).union(shapes[2]).union(shapes[3])
        writer = union.writeStream.foreachBatch(lambda batch, _: rows.extend(map(str, batch.collect())))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        assert [each.numInputRows for each in query.recentProgress] == [4 * 60, 4 * 40]
        return sorted(rows), str(query._jsq.explainInternal(False))

    try:
        columns, plan = run("true")
        rows, plan_of_rows = run("false")
    finally:
        streams.spark.conf.unset("spark.stratalog.scan.columns")
    assert columns == rows
    assert len(rows) == 100 + 34 + 100 + 100
    assert ("ColumnarMicroBatch" in plan, "ColumnarMicroBatch" in plan_of_rows) == (True, False)


def test_a_batch_that_failed_is_the_same_again(streams: Streams, partition: Partition) -> None:
    seen: list[tuple[int, list[int]]] = []

    def fails_once(frame: DataFrame, batch: int) -> None:
        seen.append((batch, sorted(row["offset"] for row in frame.select("offset").collect())))
        if len(seen) == 2:
            raise ValueError("the sink is full")

    def run() -> StreamingQuery:
        frame = streams.frame(maxOffsetsPerTrigger=30, columns="offset")
        return streams.writer(frame, fails_once).trigger(availableNow=True).start()

    with pytest.raises(StreamingQueryException, match="the sink is full"):
        run().awaitTermination()
    partition.segment(steady(1))
    run().awaitTermination()
    assert [batch for batch, _ in seen] == [0, 1, 1, 2]
    assert seen[1] == seen[2]
    done = dict(seen)
    assert [offset for batch in sorted(done) for offset in done[batch]] == list(range(85))


def test_a_running_stream_follows_the_log_and_is_stopped_anywhere(streams: Streams, partition: Partition) -> None:
    second = Partition(partition.root, number=1)
    for round_ in range(2):
        query = streams.writer(streams.frame(maxBytesPerTrigger="1k")).start()
        try:
            query.processAllAvailable()
            (partition if round_ else second).segment(steady(3))
            if not round_:
                query.processAllAvailable()
        finally:
            query.stop()
    streams.finish()
    assert streams.offsets() == every_offset(partition, second)


def test_trigger_once_takes_all_at_once(streams: Streams) -> None:
    query = streams.writer(streams.frame(maxOffsetsPerTrigger=7)).trigger(once=True).start()
    query.awaitTermination()
    assert streams.logged() == [{"orders": {"0": 80}}]


def test_lost_offsets_end_the_query_or_are_left_out(streams: Streams, partition: Partition) -> None:
    frame = streams.frame(startingOffsets='{"orders":{"0":5}}', maxOffsetsPerTrigger=10)
    streams.writer(frame).trigger(once=True).start().awaitTermination()
    partition.segment(steady(2))
    partition.segment(steady(2))
    for base in partition.bases[:-1]:
        partition.drop_local(base)
    with pytest.raises(StreamingQueryException, match="orders-0: the offsets from 80 to 89 are gone"):
        streams.finish()
    streams.finish(failOnDataLoss="false")
    assert streams.offsets()[-10:] == [(0, offset) for offset in range(90, 100)]


def test_a_checkpoint_of_sparks_kafka_source_is_taken_over(streams: Streams) -> None:
    """The files as Spark writes them, with offsets as its Kafka source writes them."""
    for directory, text in {
        "offsets": '{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{}}\n{"orders":{"0":33}}',
        "commits": '{"nextBatchWatermarkMs":0}',
        "sources/0": '{"orders":{"0":0}}',
    }.items():
        (streams.checkpoint / directory).mkdir(parents=True)
        (streams.checkpoint / directory / "0").write_text(f"v1\n{text}")
    (streams.checkpoint / "metadata").write_text('{"id":"0d4a3f0e-0f0a-4d5e-9f4c-0c3b1f9a7e10"}')
    found: list[int] = []
    query = streams.writer(
        streams.frame(),
        lambda frame, _: found.extend(row["offset"] for row in frame.select("offset").collect()),
    )
    query.trigger(availableNow=True).start().awaitTermination()
    assert found == list(range(33, 80))


def test_a_wrong_option_fails_before_there_is_a_query(streams: Streams) -> None:
    with pytest.raises(AnalysisException, match="option maxOffsetsPerTrigger=none"):
        streams.frame(maxOffsetsPerTrigger="none")
    with pytest.raises(AnalysisException, match=r"(?i)option maxOfsetsPerTrigger=3 is unknown"):
        streams.frame(maxOfsetsPerTrigger="3")


def test_a_batch_query_has_no_use_for_the_limits_of_a_stream(spark: SparkSession, partition: Partition) -> None:
    read = spark.read.format("stratalog").option("path", str(partition.root)).option("subscribe", "orders")
    assert read.option("maxOffsetsPerTrigger", "7").option("maxTriggerDelay", "1m").load().count() == 80


def test_the_examples_of_the_documentation_run(spark: SparkSession, tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "spark_streaming.md").read_text()
    follow, how_far = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    flights = Partition(tmp_path / "data", "flights")
    moved = flights.segment(steady(2))
    flights.segment(steady(2))
    (tmp_path / "bucket").mkdir()
    flights.upload((tmp_path / "bucket").as_uri(), moved)
    flights.drop_local(moved)
    for name, stands_for in {
        "/var/lib/stratalog": tmp_path / "data",
        "s3://bucket/tiered": (tmp_path / "bucket").as_uri(),
        "/tables/arrivals": tmp_path / "table",
        "/checkpoints/arrivals": tmp_path / "checkpoint",
    }.items():
        assert name in follow
        follow = follow.replace(name, str(stands_for))
    names: dict[str, Any] = {}
    despite_late_workers(lambda: exec(follow + how_far, names))
    assert names["behind"].total == 0
    rows = spark.read.parquet(str(tmp_path / "table")).collect()
    assert sorted(row["offset"] for row in rows) == [each.offset for each in flights.records]
