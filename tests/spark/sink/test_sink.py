"""The sink through Spark itself: batch and stream, both targets, and the faults that only Spark makes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from stratalog.remote.catalog import list_remote_segments
from stratalog.remote.storage.object_store import ObjectStore

pytestmark = pytest.mark.spark

_HEADERS = "array(named_struct('key', 'n', 'value', cast(cast(id as string) as binary)))"


def read(spark: SparkSession, option: str, place: str, **more: str) -> DataFrame:
    return (
        spark.read.format("stratalog")
        .option(option, place)
        .option("subscribe", "orders")
        .options(**more)
        .load()
    )


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
    rows = spark.range(0, 1000, 1, 2).selectExpr(
        "if(id = 900, raise_error('bad row'), cast(id as string)) as value"
    )
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
    writer = (
        rows.write.format("stratalog").mode("append").option("path", str(tmp_path)).option("topic", "orders")
    )
    with pytest.raises(PySparkException, match=message):
        writer.options(**options).save()
    assert list(tmp_path.iterdir()) == []


def test_a_stream_that_is_started_again_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    bucket, source = tmp_path / "bucket", tmp_path / "in"
    bucket.mkdir()

    def run() -> None:
        stream = spark.readStream.schema("value string").format("parquet").load(str(source))
        query = (
            stream.writeStream.format("stratalog")
            .option("remote", bucket.as_uri())
            .option("topic", "orders")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    spark.range(0, 10).selectExpr("cast(id as string) value").coalesce(1).write.parquet(str(source))
    run()
    spark.range(10, 20).selectExpr("cast(id as string) value").coalesce(1).write.mode("append").parquet(
        str(source)
    )
    # The driver dies between the publication and the note that the batch is done: the batch is tried again.
    for note in (tmp_path / "checkpoint" / "commits").iterdir():
        note.unlink()
    run()
    found = read(spark, "remote", bucket.as_uri()).selectExpr("cast(value as string) v", "offset")
    rows = found.orderBy("offset").toArrow().to_pylist()
    assert [row["offset"] for row in rows] == list(range(20))
    assert sorted(int(row["v"]) for row in rows) == list(range(20))
    assert pa.compute.max(found.toArrow().column("offset")).as_py() == 19
    store = ObjectStore.from_url(bucket.as_uri())
    assert sum(m.end_offset - m.base_offset + 1 for m in list_remote_segments(store, covered=True)) == 20
