"""Scans that hand columns to Spark: the same answers as by rows, whatever the plan above, and no memory kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, Row, SparkSession, functions as F
from pyspark.sql.pandas.functions import pandas_udf

from stratalog.records.compression import Codec
from tests.spark.partitions import T0, Batch, Partition, steady

pytestmark = pytest.mark.spark

Query = Callable[[DataFrame], DataFrame]

BY_COLUMNS = "spark.stratalog.scan.columns"


@pytest.fixture(scope="module")
def partitions(tmp_path_factory: pytest.TempPathFactory) -> list[Partition]:
    """Null keys, values and headers in between, compressed and not: several Arrow batches in a split."""
    root = tmp_path_factory.mktemp("columns")
    found = []
    for number, codec in enumerate([Codec.ZSTD, Codec.NONE]):
        partition = Partition(root, number=number)
        partition.segment([*steady(60, codec=codec), Batch([T0] * 3, log_append_time_ms=T0 + 9_000)])
        found.append(partition)
    return found


@pytest.fixture
def records(spark: SparkSession, partitions: list[Partition]) -> DataFrame:
    return load(spark, partitions, includeHeaders="true")


def load(spark: SparkSession, partitions: list[Partition], **options: str) -> DataFrame:
    given = {"path": str(partitions[0].root), "subscribe": "orders"} | options
    return spark.read.format("stratalog").options(**given).load()


@contextmanager
def conf(spark: SparkSession, **values: str) -> Iterator[None]:
    names = {name.replace("__", "."): value for name, value in values.items()}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in names:
            spark.conf.unset(name)


def arrow_memory(spark: SparkSession) -> int:
    """Bytes that Spark's Arrow allocator has given out in this JVM, tasks that run included."""
    jvm: Any = spark._jvm
    return int(jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator().getAllocatedMemory())


@pytest.fixture(autouse=True)
def no_memory_is_kept(spark: SparkSession) -> Iterator[None]:
    """No test leaves more Arrow memory given out than there was.

    There may be some: of rows on their way to Python, Spark does not free the last ones when a task fails because of
    the plan below (`raise_error`), and tests of the sink have such tasks.
    """
    before = arrow_memory(spark)
    yield
    assert arrow_memory(spark) <= before


def is_columnar(found: DataFrame) -> bool:
    return bool(found._jdf.queryExecution().sparkPlan().collectLeaves().head().supportsColumnar())


def user_function_beside_headers(records: DataFrame) -> DataFrame:
    @pandas_udf("long")  # type: ignore[call-overload, untyped-decorator]
    def twice(offsets: pd.Series) -> pd.Series:
        return offsets * 2

    return records.select("headers", twice("offset"))


def rows(found: DataFrame) -> list[Row]:
    return sorted(found.collect(), key=repr)


def union_of_filters(records: DataFrame) -> DataFrame:
    return records.filter("partition = 0 and offset < 7").union(records.filter("partition = 1 and offset >= 290"))


def join_with_itself(records: DataFrame) -> DataFrame:
    left = records.select("offset", "value", F.col("topic").alias("t")).filter("offset % 3 = 0")
    return left.join(records.filter("partition = 1").select("offset", "key"), "offset", "left")


def user_function(records: DataFrame) -> DataFrame:
    """Spark hands columns straight on to Python, and queues what else the rows have until the answers come."""

    @pandas_udf("string")  # type: ignore[call-overload, untyped-decorator]
    def both(topics: pd.Series, offsets: pd.Series) -> pd.Series:
        return topics + ":" + offsets.astype(str)

    return records.select("value", "key", both("topic", "offset"), "partition")


QUERIES: dict[str, Query] = {
    "every row": lambda records: records.select("*"),
    "columns that are the same in a partition, alone": lambda records: records.select("topic", "partition"),
    "topic alone": lambda records: records.select("topic").distinct(),
    "no column": lambda records: records.groupBy().count(),
    "nulls": lambda records: records.selectExpr("count(key)", "count(value)", "count(headers)", "count(*)"),
    "headers": lambda records: records.select("offset", F.explode("headers.key")),
    "filters on what is not sent": lambda records: records.filter("partition = 1 and topic = 'orders'").select("value"),
    "filters that leave nothing": lambda records: records.filter("partition = 7").select("topic", "value"),
    "sorted": lambda records: records.orderBy(F.desc("timestamp"), "partition", "offset").limit(9),
    "grouped": lambda records: records.groupBy("topic", "timestampType").agg(
        F.sum(F.length("value")), F.max("timestamp"), F.collect_set("partition")
    ),
    "union": union_of_filters,
    "join": join_with_itself,
    "user's function": user_function,
    "user's function beside headers": user_function_beside_headers,
}


@pytest.fixture(scope="module")
def by_rows(spark: SparkSession, partitions: list[Partition]) -> Callable[[Query], list[Row]]:
    """What a query gives when Spark takes rows, as of any Python data source; asked once."""

    @cache
    def answer(query: Query) -> list[Row]:
        with conf(spark, **{BY_COLUMNS: "false"}):
            found = query(load(spark, partitions, includeHeaders="true"))
            answered = rows(found)
            assert not is_columnar(found)
        return answered

    return answer


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
def test_columns_give_what_rows_give(
    records: DataFrame,
    by_rows: Callable[[Query], list[Row]],
    query: Query,
) -> None:
    by_columns = query(records)
    assert is_columnar(by_columns)
    assert rows(by_columns) == by_rows(query)


@pytest.mark.parametrize(
    "setting",
    [
        {"spark.sql.adaptive.enabled": "false"},
        {"spark.sql.codegen.wholeStage": "false"},
        {"spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false"},
        {"spark.sql.execution.arrow.maxRecordsPerOutputBatch": "7"},
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_columns_under_other_settings(
    spark: SparkSession,
    records: DataFrame,
    by_rows: Callable[[Query], list[Row]],
    setting: dict[str, str],
) -> None:
    for query in (union_of_filters, user_function):
        expected = by_rows(query)
        with conf(spark, **setting):
            assert rows(query(records)) == expected


def test_what_a_query_keeps_outlives_the_batches(
    spark: SparkSession, records: DataFrame, partitions: list[Partition], tmp_path: Path
) -> None:
    expected = rows(records)
    cached = records.cache()
    assert (rows(cached), rows(cached)) == (expected, expected)
    cached.unpersist()
    records.write.parquet(str(tmp_path / "parquet"))
    assert rows(spark.read.parquet(str(tmp_path / "parquet"))) == expected


def test_a_query_that_has_enough_frees_the_rest(spark: SparkSession, records: DataFrame) -> None:
    assert len(records.limit(3).collect()) == 3
    assert len(records.select("value").take(200)) == 200


def test_a_query_of_nothing(spark: SparkSession, partitions: list[Partition]) -> None:
    assert load(spark, partitions, startingOffsets='{"orders":{"0":303,"1":303}}').collect() == []


def test_a_choice_of_columns_that_lacks_the_cheapest(spark: SparkSession, partitions: list[Partition]) -> None:
    found = load(spark, partitions, columns="topic,value")
    assert [tuple(row) for row in found.select("topic").distinct().collect()] == [("orders",)]
    assert found.count() == sum(len(partition.records) for partition in partitions)


def test_a_task_that_fails_halfway_frees_what_it_took(spark: SparkSession, tmp_path: Path) -> None:
    partition = Partition(tmp_path, topic="damaged")
    partition.segment(steady(40, codec=Codec.ZSTD))
    log = bytearray(partition.logs[0].read_bytes())
    log[-3] ^= 1
    partition.logs[0].write_bytes(log)
    damaged = spark.read.format("stratalog").options(path=str(tmp_path), subscribe="damaged").load()
    with pytest.raises(PythonException, match="CRC"):
        damaged.agg(F.sum(F.length("value"))).collect()


def test_spark_reports_what_python_sent(spark: SparkSession, records: DataFrame) -> None:
    """The metrics that Spark shows of a Python data source's scan are there by columns too."""
    found = records.select("value")
    execution = found._jdf.queryExecution()
    assert len(found.collect()) > 0
    leaves = execution.executedPlan().collectLeaves()
    assert leaves.head().metrics().contains("pythonDataReceived")
