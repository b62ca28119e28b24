"""Streams from and to buckets of a real S3 server, and that nothing they leave behind tells the secret."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.remote.storage.object_store import ObjectStore
from tests.spark.partitions import Partition, steady
from tests.support.s3_server import SECRET_KEY, S3Server

pytestmark = pytest.mark.spark

WRONG_SECRET = "a-secret-that-is-wrong"


class Copying:
    """A query that follows topics of one bucket and writes them to another, as one topic."""

    def __init__(self, spark: SparkSession, s3: S3Server, directory: Path) -> None:
        self.spark = spark
        self.s3 = s3
        self.source, self.target = s3.url("tiered/topics"), s3.url("tiered/copies")
        self.store = ObjectStore.from_url(self.source, s3.options)
        self.data, self.checkpoint = directory / "data", directory / "checkpoint"

    def options(self, url: str, **changed: str) -> dict[str, str]:
        return {"remote": url} | {f"remote.{name}": value for name, value in (self.s3.options | changed).items()}

    def frame(self, **changed: str) -> DataFrame:
        reader = self.spark.readStream.format("stratalog").options(**self.options(self.source, **changed))
        reader = reader.option("subscribePattern", "orders|returns").option("startingOffsets", "earliest")
        rows = reader.load()
        return rows.selectExpr("key", "concat(topic, '-', partition, '-', offset) as value")

    def run(self, *, source: DataFrame | None = None, **changed: str) -> StreamingQuery:
        """To the end of what the bucket has; `changed` are options of the sink's store."""
        writer = (self.frame() if source is None else source).writeStream.format("stratalog")
        writer = writer.options(**self.options(self.target, **changed)).option("topic", "copy")
        writer = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        query = writer.start()
        query.awaitTermination()
        return query

    def copied(self) -> list[str]:
        read = self.spark.read.format("stratalog").options(**self.options(self.target))
        rows = read.option("subscribe", "copy").load().selectExpr("cast(value as string)", "offset").collect()
        assert sorted(row["offset"] for row in rows) == list(range(len(rows)))
        return sorted(row["value"] for row in rows)


def values(*partitions: Partition) -> list[str]:
    """What the copy has, when these partitions were copied to their ends."""
    return sorted(f"{p.topic}-{p.number}-{each.offset}" for p in partitions for each in p.records)


def test_a_bucket_is_followed_and_copied_each_record_once_and_no_trace_has_the_secret(
    spark: SparkSession, s3: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copying = Copying(spark, s3, tmp_path)
    orders = Partition(copying.data, "orders")
    orders.upload_to(copying.store, orders.segment(steady(8)))
    copying.run()
    assert copying.copied() == values(orders)

    more = [Partition(copying.data, "orders", number=1), Partition(copying.data, "returns")]
    for partition in (orders, *more):
        partition.upload_to(copying.store, partition.segment(steady(4)))
    query = copying.run()
    assert copying.copied() == values(orders, *more)

    # The driver dies between the publication of the last batch and the note that it is done: the batch is tried again.
    notes = copying.checkpoint / "commits"
    last = max(int(note.name) for note in notes.glob("[0-9]*"))
    for name in (f"{last}", f".{last}.crc"):
        (notes / name).unlink()
    orders.upload_to(copying.store, orders.segment(steady(2)))
    copying.run()
    assert copying.copied() == values(orders, *more)
    target = ObjectStore.from_url(copying.target, s3.options)
    kept = sum(m.end_offset - m.base_offset + 1 for m in list_remote_segments(target, covered=True))
    assert kept == len(values(orders, *more))

    frame = copying.frame()
    for mode in ("extended", "formatted"):
        frame.explain(mode=mode)
    plans = frame._jdf.queryExecution().toString()
    traces = [path.read_bytes().decode("latin-1") for path in copying.checkpoint.rglob("*") if path.is_file()]
    traces += [each.json for each in query.recentProgress]
    orders.upload_to(copying.store, orders.segment(steady(1)))
    errors = [str(failed(copying, source=copying.frame(secret_access_key=WRONG_SECRET)))]
    errors.append(str(failed(copying, secret_access_key=WRONG_SECRET)))
    for text in errors:
        assert "the secret key is wrong" in text
    shown = capsys.readouterr()
    for text in (*traces, *errors, plans, shown.out, shown.err):
        assert SECRET_KEY not in text
        assert WRONG_SECRET not in text
    assert "stratalog" in plans


def failed(copying: Copying, *, source: DataFrame | None = None, **changed: str) -> StreamingQueryException:
    with pytest.raises(StreamingQueryException) as raised:
        copying.run(source=source, **changed)
    return raised.value
