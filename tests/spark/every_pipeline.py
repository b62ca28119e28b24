"""Everything that Spark does for stratalog, once, on small data: what came of it is the same whatever Spark it ran on.

    python -m tests.spark.every_pipeline SETTINGS

SETTINGS is JSON: `directory` (a new one), `remote` with `options` (a bucket), `properties` of the session. Prints JSON:
what each step found, in plain values without times, random names and places.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import stratalog.spark
from stratalog.config.topic import LogConfig
from stratalog.jobs.audit.run import audit
from stratalog.jobs.compaction.result import CompactResult
from stratalog.jobs.compaction.run import compact_bucket, compact_data_dirs
from stratalog.jobs.index.run import convert_indexes, rebuild_indexes, verify_indexes
from stratalog.jobs.ledger import State
from stratalog.jobs.restore.records import restore_to_directory
from stratalog.jobs.retention.run import forecast_retention
from stratalog.log.partition_log import PartitionLog
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.spark import SparkExecutor, forecast_frame
from stratalog.spark.export import export, read_table
from stratalog.spark.ingest import Rows, ingest
from stratalog.spark.jvm.scan_rule import install_scan_rule
from stratalog.spark.pipelines.read import read_rows
from stratalog.spark.pipelines.stats import stats
from tests.jobs.compaction.lives import T0, upload, write_log
from tests.support.late_workers import despite_late_workers

COMPACTED = {"cleanup.policy": "compact", "internal.segment.bytes": "8192"}
DAY_MS = 86_400_000


@dataclass(frozen=True)
class Place:
    """Where everything lies."""

    directory: Path
    remote: str
    options: Mapping[str, str]

    def bucket(self, name: str) -> str:
        return f"{self.remote}/{name}"

    @property
    def data(self) -> Path:
        """A data directory with two partitions of `prices`, 600 and 700 records of 40 keys, in several segments."""
        return self.directory / "data"


def prepare(place: Place) -> None:
    for number in (0, 1):
        write_log(place.data / f"prices-{number}", records=600 + 100 * number)
    log = PartitionLog.open(place.data / "prices-0", LogConfig(), clean_shutdown=True)
    upload(log, ObjectStore.from_url(place.bucket("tiered"), dict(place.options)), topic="prices")
    log.close()
    files = place.directory / "files"
    files.mkdir()
    for number in range(3):
        lines = [json.dumps({"id": number * 100 + n, "at": T0 + number * 100 + n}) for n in range(100)]
        (files / f"{number}.json").write_text("\n".join(lines) + "\n")


def facts(frame: DataFrame) -> list[list[Any]]:
    """Which records there are, in order."""
    text = ("string(key) key", "string(value) value", "unix_millis(timestamp) at")
    rows = frame.selectExpr("topic", "partition", "offset", *text).collect()
    return sorted(list(row) for row in rows)


def read_with_filters(spark: SparkSession, place: Place) -> Any:
    """Pushed down or not, `columns` or not."""
    rows = stratalog.spark.read(spark, path=place.data, subscribe="prices", columns=["key", "partition", "offset"])
    some = rows.where("partition = 1 and offset between 100 and 130").select("offset", "partition")
    named = sorted(list(row) for row in some.collect())
    whole = stratalog.spark.read(spark, path=place.data, subscribe="prices", split_bytes="4k")
    late = whole.where("timestamp >= timestamp_millis(1700000000650)")
    # One table filtered in two ways: each has its own rows.
    both = whole.where("offset < 3").union(whole.where("offset >= 698")).select("partition", "offset")
    return [
        named,
        whole.count(),
        facts(late),
        sorted(list(row) for row in both.collect()),
        whole.groupBy("partition").count().orderBy("partition").toArrow().to_pylist(),
        rows.columns,
    ]


def write_in_bulk(spark: SparkSession, place: Place) -> Any:
    """To a bucket, and to a directory with entries of 12 bytes; read back."""
    rows = spark.range(0, 900, 1, 3).selectExpr(
        "string(id % 50) as key", "string(id) as value", "timestamp_millis(1700000000000 + id) as timestamp"
    )
    shape: dict[str, Any] = {"topic": "orders", "partitions": 3, "codec": "lz4", "segment_bytes": "8k"}
    url, directory = place.bucket("bulk"), place.directory / "bulk"
    directory.mkdir()
    stratalog.spark.write(rows, remote=url, remote_options=place.options, batch_bytes="1k", **shape)
    stratalog.spark.write(rows, path=directory, batch_bytes="1k", index_format=12, **shape)
    remote = facts(stratalog.spark.read(spark, remote=url, remote_options=place.options, subscribe="orders"))
    assert remote == facts(stratalog.spark.read(spark, path=directory, subscribe="orders"))
    return remote


def follow_a_stream(spark: SparkSession, place: Place) -> Any:
    """From the bucket that was written in bulk into another, in limited batches, and again when there is nothing
    new."""
    bucket: dict[str, Any] = {"remote": place.bucket("bulk"), "remote_options": place.options}
    target = place.bucket("streamed")
    counts = []
    for _ in range(2):
        rows = stratalog.spark.read_stream(
            spark, subscribe="orders", starting_offsets="earliest", max_offsets_per_trigger=400, **bucket
        )
        writer = stratalog.spark.write_stream(
            rows.select("key", "value", "timestamp", "partition"),
            topic="copied",
            partitions=3,
            remote=target,
            remote_options=place.options,
            checkpoint_location=place.directory / "checkpoint",
        )
        queries: list[StreamingQuery] = []

        def follow(writer: DataStreamWriter = writer, queries: list[StreamingQuery] = queries) -> None:
            queries.append(writer.trigger(availableNow=True).start())
            queries[-1].awaitTermination()

        despite_late_workers(follow)
        progress = [each for query in queries for each in query.recentProgress]
        counts.append([each.numInputRows for each in progress if each.numInputRows])
    found = stratalog.spark.read(spark, remote=target, remote_options=place.options, subscribe="copied")
    return [counts, facts(found)]


def ingest_files(spark: SparkSession, place: Place) -> Any:
    target = place.directory / "loaded"
    target.mkdir()
    sink: dict[str, str | int | bool] = {"path": str(target), "partitions": 2, "codec": "zstd"}
    found = []
    for _ in range(2):
        result = ingest(
            spark,
            str(place.directory / "files"),
            "loaded",
            sink=sink,
            rows=Rows(key="id", timestamp="at"),
            file_format="json",
            state=State(place.directory / "ingest-state"),
            files_per_round=2,
        )
        found.append([len(result.rounds), result.files, result.records, result.known])
    return [found, facts(stratalog.spark.read(spark, path=target, subscribe="loaded"))]


def audit_all(spark: SparkSession, place: Place) -> Any:
    options: dict[str, Any] = {"remote": place.bucket("tiered"), "remote_options": place.options}
    result = audit(executor=SparkExecutor(spark), paths=[place.data], **options)
    return [
        sorted(finding.kind for finding in result.findings),
        [result.partitions, result.segments, result.bytes, result.read_bytes],
    ]


def look_at_indexes(spark: SparkSession, place: Place) -> Any:
    """Verified, converted and back, and one that is lost rebuilt."""
    executor = SparkExecutor(spark)
    found = [
        verify_indexes(
            paths=[place.data], remote=place.bucket("tiered"), remote_options=place.options, executor=executor
        ),
        convert_indexes(12, paths=[place.data], executor=executor),
        convert_indexes(8, paths=[place.data], executor=executor),
    ]
    next(iter(sorted((place.data / "prices-0").glob("*.index")))).unlink()
    found.append(rebuild_indexes(paths=[place.data], only_damaged=True, executor=executor))
    found.append(verify_indexes(paths=[place.data], executor=executor))
    return [
        [each.action, each.segments, each.problems, json.loads(each.report().to_json())["totals"]] for each in found
    ]


def foresee_retention(spark: SparkSession, place: Place) -> Any:
    found = forecast_retention(
        executor=SparkExecutor(spark),
        paths=[place.data],
        configs={"prices": {"retention.ms": "1000"}},
        at_ms=T0 + DAY_MS,
    )
    return [json.loads(found.by_topic().to_json())["rows"], forecast_frame(spark, found).count()]


def count_stats(spark: SparkSession, place: Place) -> Any:
    found = stats(spark, paths=[place.data], remote=place.bucket("tiered"), remote_options=place.options, keys=True)
    return [json.loads(found.by_topic().to_json())["rows"], found.distinct_keys]


def read_on(spark: SparkSession, place: Place) -> Any:
    options = {"path": str(place.data), "subscribe": "prices"}
    rows = read_rows(spark, options, columns=["partition", "offset", "string(value) v"], where="offset % 100 = 7")
    return sorted(list(row.values()) for row in rows)


def export_table(spark: SparkSession, place: Place) -> Any:
    table = str(place.directory / "table")
    source: dict[str, str | int | bool] = {"path": str(place.data), "subscribe": "prices"}
    added = [export(spark, source=source, to=table).records for _ in range(2)]
    return [added, facts(read_table(spark, table))]


def restore_topic(spark: SparkSession, place: Place) -> Any:
    target = place.directory / "restored"
    result = restore_to_directory(
        place.bucket("tiered"), target, remote_options=place.options, executor=SparkExecutor(spark)
    )
    found = stratalog.spark.read(spark, path=target, subscribe="prices")
    return [result.copied_segments, result.copied_bytes, list(result.problems), facts(found)]


def compact_both(spark: SparkSession, place: Place) -> Any:
    """The directory and the bucket; the last step, since it changes them."""
    options = dict(place.options)
    local = compact_data_dirs([place.data], overrides=COMPACTED, executor=SparkExecutor(spark))
    remote = compact_bucket(
        place.bucket("tiered"),
        topics=["prices"],
        options=options,
        overrides=COMPACTED,
        grace_seconds=0,
        executor=SparkExecutor(spark),
    )
    rows = stratalog.spark.read(spark, remote=place.bucket("tiered"), remote_options=place.options, subscribe="prices")
    kept = stratalog.spark.read(spark, path=place.data, subscribe="prices")
    return [gains(local), gains(remote), facts(kept), facts(rows)]


def gains(result: CompactResult) -> Any:
    return [
        [each.topic, each.partition, each.segments_in, each.segments_out, each.records_in, each.records_out]
        for each in result.partitions
    ]


#: In this order: later steps read what earlier ones wrote.
STEPS: dict[str, Callable[[SparkSession, Place], Any]] = {
    "batch source": read_with_filters,
    "bulk sink": write_in_bulk,
    "stream source": follow_a_stream,
    "ingest": ingest_files,
    "audit": audit_all,
    "index": look_at_indexes,
    "retention": foresee_retention,
    "stats": count_stats,
    "read": read_on,
    "export": export_table,
    "restore": restore_topic,
    "compact": compact_both,
}


def run_all(spark: SparkSession, place: Place) -> dict[str, Any]:
    prepare(place)
    found: dict[str, Any] = {}
    for name, step in STEPS.items():
        print(f"step: {name}", file=sys.stderr, flush=True)
        found[name] = step(spark, place)
    return found


def ways(spark: SparkSession, place: Place) -> dict[str, bool]:
    """What this Spark lets the source do."""
    rows = stratalog.spark.read(spark, path=place.data, subscribe="prices").where("offset > 5").select("offset")
    scan = rows._jdf.queryExecution().sparkPlan().collectLeaves().head()
    return {"pushed down": install_scan_rule(spark)["scan-rule"] is None, "columnar": bool(scan.supportsColumnar())}


def main(settings: str) -> None:
    asked = json.loads(settings)
    place = Place(Path(asked["directory"]), asked["remote"], asked["options"])
    place.directory.mkdir(parents=True)
    spark = stratalog.spark.local_session("every pipeline", **asked["properties"])
    found = {"spark": spark.version, "found": run_all(spark, place), **ways(spark, place)}
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
