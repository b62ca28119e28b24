"""The sink through Spark itself: batch and stream, both targets, and the faults that only Spark makes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

_HEADERS = "array(named_struct('key', 'n', 'value', cast(cast(id as string) as binary)))"


def read(spark: SparkSession, option: str, place: str, **more: str) -> DataFrame:
    return spark.read.format("stratalog").option(option, place).option("subscribe", "orders").options(**more).load()


@pytest.mark.parametrize("kind", ["path", "remote"])
def test_what_is_written_is_read(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    place = str(tmp_path) if kind == "path" else tmp_path.as_uri()
    written = spark.range(0, 2000, 1, 3).selectExpr(
        "cast(id % 50 as string) as key",
        "cast(repeat(cast(id as string), 5) as binary) as value",
        "timestamp_millis(1700000000000 + id) as timestamp",
        f"if(id % 2 = 0, {_HEADERS}, null) as headers",
    )
    writer = written.write.format("stratalog").mode("append").option(kind, place).option("topic", "orders")
    writer.option("partitions", 3).option("codec", "lz4").option("segmentBytes", "32k").option(
        "batchBytes", "4k"
    ).save()
    found = read(spark, kind, place, includeHeaders="true")
    columns = ["cast(key as string) key", "value", "timestamp", "headers"]
    assert found.selectExpr(*columns).exceptAll(written.selectExpr(*columns)).count() == 0
    offsets = found.selectExpr("partition", "offset").toArrow().to_pylist()
    assert len(offsets) == 2000
    by_partition: dict[int, list[int]] = {}
    for row in offsets:
        by_partition.setdefault(row["partition"], []).append(row["offset"])
    assert set(by_partition) == {0, 1, 2}
    assert all(sorted(each) == list(range(len(each))) for each in by_partition.values())
    of_keys = found.selectExpr("key", "partition").distinct().count()
    assert of_keys == 50


def test_a_task_that_fails_fails_the_job_and_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 1000, 1, 2).selectExpr("if(id = 900, raise_error('bad row'), cast(id as string)) as value")
    with pytest.raises(PySparkException, match="bad row"):
        rows.write.format("stratalog").mode("append").option("remote", tmp_path.as_uri()).option(
            "topic", "orders"
        ).save()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (["id as value"], {}, "column value is bigint, expected string or binary"),
        (["'x' as value"], {"codec": "brotli"}, "option codec=brotli: expected none, gzip"),
        (["'x' as key"], {}, "required column value is missing"),
    ],
)
def test_wrong_columns_and_options_fail_before_any_task(
    spark: SparkSession, tmp_path: Path, columns: list[str], options: dict[str, str], message: str
) -> None:
    rows = spark.range(3).selectExpr(*columns)
    writer = rows.write.format("stratalog").mode("append").option("path", str(tmp_path)).option("topic", "orders")
    with pytest.raises(PySparkException, match=message):
        writer.options(**options).save()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["path", "remote"])
def test_a_stream_that_is_started_again_goes_on_and_one_that_begins_again_is_another(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    target, source, checkpoint = tmp_path / "target", tmp_path / "in", tmp_path / "checkpoint"
    target.mkdir()
    place = str(target) if kind == "path" else target.as_uri()

    def put(first: int) -> None:
        rows = spark.range(first, first + 10).selectExpr("cast(id as string) value").coalesce(1)
        rows.write.mode("append").parquet(str(source))

    def run() -> list[int]:
        """The values that are in the topic then."""
        stream = spark.readStream.schema("value string").format("parquet").load(str(source))
        query = (
            stream.writeStream.format("stratalog")
            .option(kind, place)
            .option("topic", "orders")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        found = read(spark, kind, place).selectExpr("cast(value as string) v", "offset").orderBy("offset")
        rows = found.toArrow().to_pylist()
        assert [row["offset"] for row in rows] == list(range(len(rows)))
        return sorted(int(row["v"]) for row in rows)

    put(0)
    assert run() == list(range(10))
    put(10)
    # The driver dies between the publication and the note that the batch is done: the batch is tried again.
    for note in (checkpoint / "commits").iterdir():
        note.unlink()
    assert run() == list(range(20))
    # Its batches count from 0 again, and are none of those that were published.
    shutil.rmtree(checkpoint)
    assert run() == sorted([*range(20), *range(20)])
    assert run() == sorted([*range(20), *range(20)])
