"""Exports into Parquet tables, through Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from stratalog.errors import UsageError
from stratalog.records.batch_builder import build_batch
from stratalog.records.control import ControlType
from stratalog.records.record import Record
from stratalog.spark.export import Avro, Json, Protobuf, export, read_table
from stratalog.spark.options.data_loss import DataLossError
from tests.spark.partitions import T0, Batch, Partition, expected_row, steady

HALF_HOUR_MS = 1_800_000

Source = dict[str, str | int | bool]


def table_rows(table: DataFrame) -> list[dict[str, Any]]:
    found = table.orderBy("topic", "partition", "offset").collect()
    return [row.asDict(recursive=True) for row in found]


def utc(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with its time in UTC: Spark gives naive ones, of the session's zone, which the fixture has in UTC."""
    return dict(row) | {"timestamp": row["timestamp"].replace(tzinfo=UTC)}


def expected(partition: Partition) -> list[dict[str, Any]]:
    rows = [expected_row(partition, each) for each in partition.records]
    return [row | {"date": row["timestamp"].date()} for row in rows]


def write_values(root: Path, values: list[bytes | None], topic: str = "values", start: int = 0) -> Source:
    """A segment of one partition with these values, a second apart."""
    directory = root / f"{topic}-0"
    directory.mkdir(parents=True, exist_ok=True)
    found = [Record(start + i, T0 + i * 1000, b"k", value) for i, value in enumerate(values)]
    (directory / f"{start:020d}.log").write_bytes(build_batch(found, base_offset=start))
    return {"path": str(root), "subscribe": topic}


def test_each_run_adds_what_is_new_and_nothing_twice(tmp_path: Path, spark: SparkSession) -> None:
    partitions = [Partition(tmp_path / "data", number=number) for number in range(2)]
    to = str(tmp_path / "table")
    source: Source = {"path": str(tmp_path / "data"), "subscribe": "orders", "includeHeaders": True}
    for partition in partitions:
        partition.segment(steady(20, step_ms=HALF_HOUR_MS))
    first = export(spark, source=source, to=to)
    assert [(each.partition, each.start, each.end, each.records) for each in first.partitions] == [
        (0, 0, 100, 100),
        (1, 0, 100, 100),
    ]
    assert export(spark, source=source, to=to).records == 0

    partitions[1].segment(steady(5, step_ms=HALF_HOUR_MS))
    partitions.append(Partition(tmp_path / "data", number=2))
    partitions[2].segment(steady(3))
    later = export(spark, source=source, to=to, offsets_per_commit=10)
    assert [(each.partition, each.start, each.end) for each in later.partitions] == [
        (1, 100, 125),
        (2, 0, 15),
    ]
    assert later.commits == 3

    table = read_table(spark, to)
    assert [utc(row) for row in table_rows(table)] == [row for each in partitions for row in expected(each)]
    # A client that reads the directory as plain Parquet finds the same.
    assert spark.read.parquet(to).count() == table.count()
    days = {path.name for path in Path(to).glob("date=*")}
    assert days == {f"date={row['date']}" for each in partitions for row in expected(each)}


def test_a_table_in_an_object_store_partitioned_by_topic_and_hour(tmp_path: Path, spark: SparkSession) -> None:
    for topic in ("orders", "returns"):
        Partition(tmp_path / "data", topic).segment(steady(4, start=T0, step_ms=HALF_HOUR_MS))
    to = (tmp_path / "store").as_uri()
    source = {"path": str(tmp_path / "data"), "subscribePattern": ".*"}
    result = export(
        spark,
        source=source,
        to=to,
        partition_by=("topic", "date", "hour"),
        target_options={"timeout_ms": "5000"},
    )
    assert (result.records, result.size > 0) == (40, True)
    found = read_table(spark, to)
    assert found.columns == [
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "key",
        "value",
        "date",
        "hour",
    ]
    for row in found.collect():
        assert (row.date, row.hour) == (row.timestamp.date(), row.timestamp.hour)
        assert row.topic in ("orders", "returns")
    hour = datetime.fromtimestamp(T0 / 1000, UTC)
    assert (tmp_path / "store" / "topic=orders" / f"date={hour:%Y-%m-%d}" / f"hour={hour.hour}").is_dir()


def test_dates_before_1970_and_records_without_a_time(tmp_path: Path, spark: SparkSession) -> None:
    partition = Partition(tmp_path / "data")
    day_ms = 86_400_000
    partition.segment([Batch([-1, 0, -day_ms, -day_ms - 1, day_ms - 1])])
    export(spark, source={"path": str(tmp_path / "data"), "subscribe": "orders"}, to=str(tmp_path / "table"))
    found = read_table(spark, str(tmp_path / "table")).orderBy("offset").selectExpr("string(date)").collect()
    assert [row[0] for row in found] == ["1969-12-31", "1970-01-01", "1969-12-31", "1969-12-30", "1970-01-01"]


def test_only_committed_records_of_transactions_are_exported_and_open_ones_wait(
    tmp_path: Path, spark: SparkSession
) -> None:
    partition = Partition(tmp_path / "data")
    kind: dict[str, Any] = {"producer_id": 7, "transactional": True}
    aborted, committed = {"marker": ControlType.ABORT, **kind}, {"marker": ControlType.COMMIT, **kind}
    partition.segment([Batch([T0] * 3, **kind), Batch([T0], **aborted), Batch([T0] * 4, **kind)])
    source = {"path": str(tmp_path / "data"), "subscribe": "orders", "isolationLevel": "read_committed"}
    to = str(tmp_path / "table")
    first = export(spark, source=source, to=to)
    assert (first.partitions[0].end, first.records) == (4, 0)
    partition.segment([Batch([T0], **committed), Batch([T0] * 2)])
    assert export(spark, source=source, to=to).records == 6
    assert [row.offset for row in read_table(spark, to).orderBy("offset").collect()] == [4, 5, 6, 7, 9, 10]


def test_json_with_an_inferred_schema_keeps_it_and_loses_nothing(tmp_path: Path, spark: SparkSession) -> None:
    source = write_values(tmp_path / "data", [b'{"id":1,"who":{"name":"a"}}', b"{broken", None, b'{"id":2}'])
    to = str(tmp_path / "table")
    result = export(spark, source=source, to=to, decode="json")
    assert (result.records, result.undecoded) == (4, 1)
    write_values(tmp_path / "data", [b'{"id":"text"}', b'{"id":3,"new":true}'], start=4)
    assert export(spark, source=source, to=to, decode="json").undecoded == 1
    found = read_table(spark, to).orderBy("offset")
    assert found.schema["data"].dataType.simpleString() == "struct<id:bigint,who:struct<name:string>>"
    rows = [(row.data and row.data.id, row.undecoded and bytes(row.undecoded)) for row in found.collect()]
    assert rows == [
        (1, None),
        (None, b"{broken"),
        (None, None),
        (2, None),
        (None, b'{"id":"text"}'),
        (3, None),
    ]


def test_fields_may_be_added_but_not_change_or_go(tmp_path: Path, spark: SparkSession) -> None:
    source = write_values(tmp_path / "data", [b'{"id":1,"new":{"x":5}}'])
    to = str(tmp_path / "table")
    export(spark, source=source, to=to, decode=Json("id BIGINT"))
    write_values(tmp_path / "data", [b'{"id":2,"new":{"x":5}}'], start=1)
    for schema, column in (
        ("id STRING", "data.id of the table is long"),
        ("other BIGINT", r"data\.id .* missing"),
    ):
        with pytest.raises(UsageError, match=column):
            export(spark, source=source, to=to, decode=Json(schema))
    with pytest.raises(UsageError, match="has decoded values"):
        export(spark, source=source, to=to)
    with pytest.raises(UsageError, match="is partitioned by date, not topic"):
        export(spark, source=source, to=to, decode=Json("id BIGINT"), partition_by=("topic",))
    export(spark, source=source, to=to, decode=Json("id BIGINT, new STRUCT<x: INT>"))
    rows = read_table(spark, to).orderBy("offset").collect()
    assert [(row.data.id, row.data.new and row.data.new.x) for row in rows] == [(1, None), (2, 5)]


def test_offsets_that_were_deleted_are_reported_or_skipped(tmp_path: Path, spark: SparkSession) -> None:
    partition = Partition(tmp_path / "data")
    partition.segment(steady(2))
    source: Source = {"path": str(tmp_path / "data"), "subscribe": "orders"}
    to = str(tmp_path / "table")
    export(spark, source=source, to=to)
    lost = partition.segment(steady(2))
    partition.segment(steady(2))
    for base in (0, lost):
        partition.drop_local(base)
    with pytest.raises(DataLossError, match="offset 10 is gone; the log begins at 20"):
        export(spark, source=source, to=to)
    assert read_table(spark, to).count() == 10
    assert export(spark, source=source | {"failOnDataLoss": False}, to=to).records == 10
    assert [row.offset for row in read_table(spark, to).select("offset").orderBy("offset").collect()] == [
        *range(10),
        *range(20, 30),
    ]


def test_mistakes_are_named_before_anything_is_written(tmp_path: Path, spark: SparkSession) -> None:
    source = write_values(tmp_path / "data", [b"no json"])
    to = tmp_path / "table"
    avro = '{"type":"record","name":"r","fields":[{"name":"a","type":"long"}]}'
    wrong: dict[str, dict[str, Any]] = {
        "expected some of date, hour": {"partition_by": ("day",)},
        "an hour belongs to a date": {"partition_by": ("hour",)},
        "is given twice": {"partition_by": ("date", "date")},
        "expected parquet, delta or iceberg": {"table_format": "orc"},
        "delta tables cannot be written with Spark 4.3": {"table_format": "delta"},
        "iceberg tables cannot be written with Spark 4.3": {"table_format": "iceberg"},
        "offsets per commit 0": {"offsets_per_commit": 0},
        "option subscrib=": {"source": {**source, "subscrib": "x"}},
        "there is no topic nowhere": {"source": {**source, "subscribe": "nowhere"}},
        "expected 'json', or": {"decode": "xml"},
        "expected a schema as DDL": {"decode": Json("id NOPE")},
        "no JSON object is among": {"decode": "json"},
        "is not an Avro schema": {"decode": Avro("{}")},
        "spark-avro": {"decode": Avro(avro)},
        "spark-protobuf": {"decode": Protobuf("a.B", b"")},
    }
    for problem, arguments in wrong.items():
        keywords: dict[str, Any] = {"source": source, "to": str(to)} | arguments
        with pytest.raises(UsageError, match=problem):
            export(spark, **keywords)
    assert not to.exists()
    with pytest.raises(UsageError, match="is not a table of an export"):
        read_table(spark, str(tmp_path))


def test_the_command(tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    from stratalog.cli.main import run

    write_values(tmp_path / "data", [b'{"id":1}', b"?"])
    command = [
        "spark",
        "export",
        "values",
        "--data-dir",
        str(tmp_path / "data"),
        "--to",
        str(tmp_path / "table"),
    ]
    command += ["--decode", "json", "--schema", "id BIGINT", "--partition-by", "none"]
    assert run([*command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["rows"] == [
        {"topic": "values", "partition": 0, "start_offset": 0, "end_offset": 2, "records": 2, "undecoded": 1}
    ]
    assert report["totals"]["commits"] == 1
    assert run(command) == 0
    assert "nothing new" in capsys.readouterr().out
    for problem, arguments in {
        "--schema needs --decode": ["--schema", "x"],
        "--decode xml: expected json": ["--decode", "xml"],
        "--decode avro needs --schema": ["--decode", "avro"],
        "--schema @nothing": ["--decode", "avro", "--schema", "@nothing"],
        "--decode protobuf needs --message": ["--decode", "protobuf"],
        "--to-option x: expected KEY=VALUE": ["--to-option", "x"],
        "expected some of date": ["--partition-by", "day"],
    }.items():
        assert run([*command[:7], *arguments]) == 2
        assert problem in capsys.readouterr().err
