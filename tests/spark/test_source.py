"""The data source in Spark itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession, functions as F

import stratalog.spark
from stratalog.records.compression import Codec
from tests.spark.partitions import T0, Batch, Partition, expected_row, steady

pytestmark = pytest.mark.spark

Load = Callable[..., DataFrame]


@pytest.fixture
def load(spark: SparkSession, tmp_path: Path) -> Load:
    def load(**options: Any) -> DataFrame:
        defaults = {"path": str(tmp_path / "data"), "subscribe": "orders"}
        given = {name.replace("__", "."): value for name, value in options.items()}
        return spark.read.format("stratalog").options(**(defaults | given)).load()

    return load


@pytest.fixture
def topic(tmp_path: Path) -> list[Partition]:
    """Two partitions of two segments; the first segment of one is only in the bucket."""
    found = []
    for number in range(2):
        partition = Partition(tmp_path / "data", number=number)
        base = partition.segment(steady(40, codec=Codec.ZSTD if number else Codec.NONE))
        partition.segment([*steady(20, start=T0 + 200_000), Batch([T0] * 3, log_append_time_ms=T0 + 400_000)])
        if number == 0:
            partition.upload(f"file://{tmp_path}/bucket", base)
            partition.drop_local(base)
        found.append(partition)
    return found


def bucket(tmp_path: Path) -> str:
    return f"file://{tmp_path}/bucket"


def test_the_schema_is_that_of_sparks_kafka_source(load: Load, topic: list[Partition]) -> None:
    assert load().schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    assert load(includeHeaders="true").schema["headers"].dataType.simpleString() == (
        "array<struct<key:string,value:binary>>"
    )
    assert load(columns="offset,value").columns == ["offset", "value"]


def test_every_record_of_both_tiers(load: Load, topic: list[Partition], tmp_path: Path) -> None:
    found = load(remote=bucket(tmp_path), includeHeaders="true", splitBytes="2k").orderBy("partition", "offset")
    rows = [row.asDict(recursive=True) for row in found.collect()]
    expected = [expected_row(partition, each) for partition in topic for each in partition.records]
    for row in expected:
        row["timestamp"] = row["timestamp"].replace(tzinfo=None)  # as Spark shows it, in the session's zone: UTC
        row["key"], row["value"] = as_bytes(row["key"]), as_bytes(row["value"])
    assert [normal(row) for row in rows] == [normal(row) for row in expected]


def as_bytes(value: bytes | None) -> bytes | None:
    return None if value is None else bytes(value)


def normal(row: dict[str, Any]) -> dict[str, Any]:
    """Times as numbers, bytearrays as bytes."""
    headers = row["headers"]
    return row | {
        "key": as_bytes(row["key"]),
        "value": as_bytes(row["value"]),
        "timestamp": row["timestamp"].isoformat(),
        "headers": headers and [(each["key"], as_bytes(each["value"])) for each in headers],
    }


def test_filters_are_pushed_down(load: Load, topic: list[Partition], tmp_path: Path) -> None:
    records = load(remote=bucket(tmp_path))
    found = records.filter("partition = 1 and offset between 10 and 12 or 1 = 0").select("partition", "offset")
    assert sorted(found.collect()) == [(1, 10), (1, 11), (1, 12)]
    plan = found._jdf.queryExecution().executedPlan().toString()
    assert "Filter " not in plan  # applied by the source: nothing is left for Spark to do


def test_columns_are_pruned(load: Load, topic: list[Partition], tmp_path: Path) -> None:
    records = load(remote=bucket(tmp_path), includeHeaders="true")

    def read(found: DataFrame) -> str:
        plan = found._jdf.queryExecution().executedPlan().toString()
        return str(plan)[str(plan).index("stratalog[") :].split("]")[0]

    some = records.filter("offset < 2 and length(key) > 0").select("value", "headers.key")
    assert [name.split("#")[0] for name in read(some)[len("stratalog[") :].split(", ")] == [
        "key",
        "value",
        "offset",
        "headers",
    ]
    assert sorted((row.value[:7], row.key) for row in some.collect()) == [(b"value-1", None)] * 2
    assert read(records.groupBy().count()).startswith("stratalog[partition#")
    assert records.count() == sum(len(partition.records) for partition in topic)


@pytest.mark.parametrize("pushed", ["true", "false"])
def test_filters_give_the_same_pushed_or_not(load: Load, topic: list[Partition], tmp_path: Path, pushed: str) -> None:
    records = load(remote=bucket(tmp_path), pushFilters=pushed)
    condition = (
        "timestamp >= timestamp'2023-11-14 22:16:00' and timestamp < timestamp'2023-11-14 22:16:30.5' "
        "and not offset in (165, 166) and topic = 'orders' and partition <> 1 and length(value) > 0 and offset is not "
        "null"
    )
    found = sorted(row.offset for row in records.filter(condition).collect())
    assert found == [offset for offset in range(160, 191) if offset not in (165, 166) and offset % 7]


def test_scans_of_one_dataframe_do_not_disturb_each_other(load: Load, topic: list[Partition], tmp_path: Path) -> None:
    """Spark 4.3 shares pushed filters among them; see stratalog.spark.jvm.scan_rule."""
    records = load(remote=bucket(tmp_path))
    total = sum(len(partition.records) for partition in topic)
    assert records.filter("offset < 5").count() == 10
    assert records.count() == total
    both = records.filter("partition = 0 and offset < 7").union(records.filter("partition = 1 and offset >= 300"))
    assert {tuple(row) for row in both.groupBy("partition").count().collect()} == {(0, 7), (1, 3)}
    left, right = records.filter("partition = 0 and offset < 9"), records.filter("partition = 1")
    assert left.join(right, "offset").count() == 9
    records.createOrReplaceTempView("records")
    (row,) = records.sparkSession.sql(
        "select (select count(*) from records where offset < 3), (select count(*) from records where offset < 4), "
        "(select count(*) from records)"
    ).collect()
    assert tuple(row) == (6, 8, total)
    cached = records.filter("offset < 2").cache()
    assert (cached.count(), records.filter("offset < 20 and partition = 1").count()) == (4, 20)
    cached.unpersist()


def test_each_query_takes_its_own_snapshot(load: Load, topic: list[Partition], tmp_path: Path) -> None:
    records = load(remote=bucket(tmp_path))
    before = records.count()
    topic[0].segment(steady(2))
    assert records.count() == before + 10


def test_a_schema_of_ones_own(spark: SparkSession, topic: list[Partition], tmp_path: Path) -> None:
    reader = spark.read.format("stratalog").option("path", str(tmp_path / "data")).option("subscribe", "orders")
    found = reader.schema("value binary, offset long").load().filter("offset = 210")
    assert {tuple(row.asDict()) for row in found.collect()} == {("value", "offset")}
    with pytest.raises(AnalysisException, match="column value string in the schema: expected binary"):
        reader.schema("value string").load().count()


def test_no_columns_at_all(load: Load, topic: list[Partition], tmp_path: Path) -> None:
    assert load(remote=bucket(tmp_path), columns="topic").count() == sum(len(p.records) for p in topic)


def test_nothing_to_read(load: Load, topic: list[Partition]) -> None:
    assert load().filter("offset < 0").collect() == []
    assert load().filter("partition = 77").count() == 0


def test_a_wrong_option_is_one_clear_line(load: Load, topic: list[Partition]) -> None:
    with pytest.raises(
        AnalysisException, match=r"(?m)^.*UsageError: option splitBytes=tiny: expected a number of bytes"
    ):
        load(splitBytes="tiny")
    with pytest.raises(AnalysisException, match=r"(?m)^.*UsageError: there is no topic visits in .*/data"):
        load(subscribe="visits").count()


def test_a_corrupt_batch_fails_the_query(load: Load, topic: list[Partition], tmp_path: Path) -> None:
    path = topic[1].logs[0]
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    with pytest.raises(PythonException, match=rf"DataLossError: {path}: batch at position 0 .*CRC"):
        load().count()
    assert load(failOnDataLoss="false").filter("partition = 1").agg(F.min("offset")).collect()[0][0] == 5


def test_limit_reads_only_a_little(load: Load, topic: list[Partition]) -> None:
    assert len(load().limit(3).collect()) == 3


def test_min_partitions(load: Load, topic: list[Partition], tmp_path: Path) -> None:
    records = load(remote=bucket(tmp_path), minPartitions="9")
    assert records.rdd.getNumPartitions() >= 9


def test_register_may_be_called_again(spark: SparkSession, load: Load, topic: list[Partition]) -> None:
    stratalog.spark.register(spark)
    assert load().filter("partition = 1 and offset = 1").count() == 1


def test_importing_the_package_is_cheap() -> None:
    heavy = {"pyspark", "pyarrow", "numba", "numpy"}
    program = f"import sys, stratalog.spark; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_second_session_in_the_same_jvm_can_be_reported_the_source_too(spark: SparkSession, tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    partition.segment([Batch([T0, T0 + 1])])
    other = spark.newSession()
    stratalog.spark.register(other)
    assert SparkSession.getActiveSession() is not other
    for session in (spark, other):
        frame = session.read.format("stratalog").option("path", str(tmp_path)).option("subscribe", "orders")
        assert frame.load().count() == 2
