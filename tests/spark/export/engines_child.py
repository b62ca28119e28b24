"""Exports into Delta and Iceberg tables with a Spark that has the engines; prints what happened as JSON.

python -m tests.spark.export.engines_child DIRECTORY JAR..
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

from pyspark.sql import SparkSession

import stratalog.spark
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.spark.export import Avro, Json, export, read_table
from stratalog.spark.export.delta_table import DeltaTarget
from stratalog.spark.export.engines import MEMORY, EngineTarget
from stratalog.spark.export.iceberg_table import IcebergTarget
from stratalog.spark.export.parquet_table import OverlappingRunsError

T0 = 1_700_000_000_000
SCHEMA = (
    '{"type":"record","name":"r","fields":[{"name":"a","type":["null","long"]},{"name":"b","type":["string","null"]}]}'
)


class DiedError(BaseException):
    """The driver is gone."""


def write(root: Path, topic: str, start: int, values: Sequence[bytes | None]) -> dict[str, str | int | bool]:
    directory = root / f"{topic}-0"
    directory.mkdir(parents=True, exist_ok=True)
    records = [Record(start + i, T0 + (start + i) * 3_600_000, b"k", value) for i, value in enumerate(values)]
    (directory / f"{start:020d}.log").write_bytes(build_batch(records, base_offset=start))
    return {"path": str(root), "subscribe": topic}


def try_engine(spark: SparkSession, root: Path, kind: str, to: str) -> dict[str, Any]:
    """Runs, one that dies after its commit, one after the engine forgot its commits, and a schema that grows."""
    found: dict[str, Any] = {}
    keywords: dict[str, Any] = {"to": to, "table_format": kind, "partition_by": ("date",)}
    schema = Json("id BIGINT")
    source = write(root, f"events-{kind}", 0, [b'{"id":%d,"x":{"y":1}}' % i for i in range(40)] + [b"?"])
    first = export(spark, source=source, decode=schema, **keywords)
    found["first"] = [first.records, first.undecoded, first.files > 0, first.size > 0]
    found["nothing new"] = export(spark, source=source, decode=schema, **keywords).records

    write(root, f"events-{kind}", 41, [b'{"id":41}'] * 9)
    remember: type[EngineTarget] = DeltaTarget if kind == "delta" else IcebergTarget
    kept = remember._remember
    setattr(remember, "_remember", die)  # noqa: B010
    try:
        export(spark, source=source, decode=schema, **keywords)
    except DiedError:
        found["died"] = read_table(spark, to, table_format=kind).count()
    setattr(remember, "_remember", kept)  # noqa: B010
    found["after death"] = export(spark, source=source, decode=schema, **keywords).records

    write(root, f"events-{kind}", 50, [b'{"id":50,"x":{"y":7}}'])
    found["grown"] = export(spark, source=source, decode=Json("id BIGINT, x STRUCT<y: INT>"), **keywords).records
    table = read_table(spark, to, table_format=kind)
    found["offsets"] = sorted(row.offset for row in table.select("offset").collect())
    found["grown value"] = table.where("offset = 50").select("data.x.y").collect()[0][0]
    found["days"] = table.select("date").distinct().count()

    found["overlapping"] = overlap(spark, root, kind, keywords, remember)

    # The engine has no commit of an export any more: the table property knows.
    forgotten = {"delta": "_history", "iceberg": "_last_snapshot"}[kind]
    kept = getattr(remember, forgotten)
    setattr(remember, forgotten, lambda _self: [] if kind == "delta" else None)
    target = remember(spark, to)
    last = target.recover()
    found["property"] = last.next_offsets[f"events-{kind}", 0] if last else None
    setattr(remember, forgotten, kept)
    return found


def overlap(
    spark: SparkSession, root: Path, kind: str, keywords: dict[str, Any], target: type[EngineTarget]
) -> list[Any]:
    """Another run commits before a run's rows are written, behind that, and at the same time; then a stranger does."""
    found: list[Any] = []
    number = first = 51

    def run() -> str:
        try:
            decode = Json("id BIGINT, x STRUCT<y: INT>")
            return str(export(spark, source=source, decode=decode, **keywords).records)
        except OverlappingRunsError:
            return "refused"

    def interrupted(step: str, interrupt: Callable[[], Any]) -> str:
        kept = getattr(target, step)

        def hooked(self: EngineTarget, *arguments: Any) -> None:
            setattr(target, step, kept)
            interrupt()
            kept(self, *arguments)

        setattr(target, step, hooked)
        return run()

    for step in ("_append", "_publish") if kind == "iceberg" else ("_append",):
        source = write(root, f"events-{kind}", number, [b"{}"] * 10)
        found.append([interrupted(step, lambda: found.append(run()))])
        number += 10
    source = write(root, f"events-{kind}", number, [b"{}"] * 10)
    append, both_there = target._append, Barrier(2)

    def together(self: EngineTarget, *arguments: Any) -> None:
        both_there.wait()
        append(self, *arguments)

    setattr(target, "_append", together)  # noqa: B010
    with ThreadPoolExecutor(2) as both:
        found.append(sorted(both.map(lambda _: run(), range(2))))
    setattr(target, "_append", append)  # noqa: B010
    if kind == "iceberg":
        source = write(root, f"events-{kind}", number + 10, [b"{}"] * 10)
        stranger = f"INSERT INTO {keywords['to']} SELECT * FROM {keywords['to']} WHERE offset = 0"
        found.append(interrupted("_publish", lambda: spark.sql(stranger)))
        spark.sql(f"DELETE FROM {keywords['to']} WHERE offset = 0")
    table = read_table(spark, keywords["to"], table_format=kind)
    offsets = sorted(row.offset for row in table.select("offset").collect() if row.offset >= first)
    found.append(offsets == list(range(first, first + len(offsets))) and len(offsets))
    if kind == "iceberg":
        found.append([row.name for row in spark.sql(f"SELECT name FROM {keywords['to']}.refs").collect()])
    return found


def die(_self: EngineTarget, _commit: object) -> None:
    raise DiedError


def try_avro(spark: SparkSession, root: Path) -> list[Any]:
    values: list[bytes | None] = [b"\x02\x06\x00\x02x", b"\x00\x02", b"\x02", b"", None]
    export(spark, source=write(root, "avro", 0, values), to=str(root / "avro-table"), decode=Avro(SCHEMA))
    framed: list[bytes | None] = [
        b"\0\0\0\0\x07\x02\x06\x00\x02x",
        b"\0\0\0\0\x08\x02\x06\x00\x02x",
        b"\1" + b"\x02\x06\x00\x02x" * 2,
    ]
    decode = Avro(SCHEMA, confluent=True, schema_id=7)
    export(spark, source=write(root, "framed", 0, framed), to=str(root / "framed-table"), decode=decode)
    found = []
    for name in ("avro", "framed"):
        rows = read_table(spark, str(root / f"{name}-table")).orderBy("offset").collect()
        found.append(
            [
                [
                    None if row.data is None else list(row.data),
                    None if row.undecoded is None else row.undecoded.hex(),
                ]
                for row in rows
            ]
        )
    return found


def main(root: Path, jars: list[str]) -> None:
    extensions = (
        "io.delta.sql.DeltaSparkSessionExtension,org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    )
    conf: dict[str, Any] = {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": 2,
        "spark.databricks.delta.snapshotPartitions": 1,
        "spark.jars": ",".join(jars),
        "spark.sql.extensions": extensions,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(root / "lake"),
    }
    spark = stratalog.spark.local_session("engines", **conf)
    found = {
        "spark": spark.version,
        "memory": MEMORY,
        "delta": try_engine(spark, root, "delta", str(root / "delta")),
        "iceberg": try_engine(spark, root, "iceberg", "lake.db.events"),
        "avro": try_avro(spark, root),
    }
    spark.stop()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
