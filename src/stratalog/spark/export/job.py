"""Run an export: add new records of topics to a table, each one once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame, SparkSession, functions as F

from stratalog.errors import UsageError
from stratalog.jobs import SILENT, Column, Progress, Report
from stratalog.spark.builder import absolute
from stratalog.spark.export.commits import Commit, OffsetRange, next_commit
from stratalog.spark.export.counts import Counts
from stratalog.spark.export.decoding import Decoding, Json, infer_json_schema
from stratalog.spark.export.evolution import check_evolution
from stratalog.spark.export.formats import open_target
from stratalog.spark.export.layout import DECODED, RECORD_COLUMNS, ExportLayout
from stratalog.spark.export.ranges import new_ranges, reading_options, steps
from stratalog.spark.export.targets import CommitResult, ExportTarget
from stratalog.spark.options import ReadOptions, option_text
from stratalog.util import random_uuid

#: `decode="json"`: the schema is inferred from the first values, and kept.
INFERRED_JSON: Final = "json"


@dataclass(frozen=True, slots=True)
class ExportedPartition:
    """The offsets [start, end) of a partition that one run added, the number of `records`, and those `undecoded`."""

    topic: str
    partition: int
    start: int
    end: int
    records: int
    undecoded: int


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The result of one run. `files` and `size` (bytes) are as the engine reports them."""

    table: str
    format: str
    partitions: Sequence[ExportedPartition] = field(default_factory=tuple)
    files: int = 0
    size: int = 0
    commits: int = 0

    @property
    def records(self) -> int:
        return sum(each.records for each in self.partitions)

    @property
    def undecoded(self) -> int:
        return sum(each.undecoded for each in self.partitions)

    def report(self) -> Report:
        """Return the summary that the command prints."""
        columns = [
            Column("topic"),
            Column("partition"),
            Column("start_offset"),
            Column("end_offset"),
            Column("records"),
            Column("undecoded"),
        ]
        rows = [
            (each.topic, each.partition, each.start, each.end, each.records, each.undecoded) for each in self.partitions
        ]
        totals = {
            "records": self.records,
            "undecoded": self.undecoded,
            "files": self.files,
            "bytes": self.size,
            "commits": self.commits,
        }
        title = f"exported to {self.format} table {self.table}" if rows else f"nothing new for {self.table}"
        return Report(title, columns, rows, totals)


def export(
    spark: SparkSession,
    *,
    source: Mapping[str, str | int | bool],
    to: str,
    table_format: str = "parquet",
    partition_by: Sequence[str] = ("date",),
    decode: Decoding | str | None = None,
    offsets_per_commit: int | None = None,
    target_options: Mapping[str, str] | None = None,
    progress: Progress = SILENT,
) -> ExportResult:
    """Add new records of topics to a table, each exactly once even if runs crash.

    `source` are options of `format("stratalog")` (`path`, `remote`, `subscribe`, `includeHeaders`, ...); starting
    options are for partitions that were never exported. `to` is a directory or the URL of an object store (Parquet), a
    path or table (Delta), a table of a catalog (Iceberg). `partition_by`: some of date, hour, topic, partition; date
    and hour are those of the record's timestamp, in UTC. `decode`: "json" (schema inferred once), `Json`, `Avro` or
    `Protobuf`. `target_options` are for a Parquet table in an object store.

    The commit that adds the rows also records the offsets. `offsets_per_commit` (of each partition) splits a long run
    into several commits, so that an interrupted run resumes after the last one. Only one run at a time can export to a
    table: of two, one raises OverlappingRunsError. Raises UsageError for invalid arguments, before anything is written,
    and DataLossError if the next offsets were deleted.
    """
    options = {name: option_text(value) for name, value in source.items()}
    options |= {name: absolute(text) for name, text in options.items() if name.lower() == "path"}
    layout = ExportLayout.of(partition_by)
    if offsets_per_commit is not None and offsets_per_commit < 1:
        raise UsageError(f"offsets per commit {offsets_per_commit}: expected a number greater than 0")
    _check_decoding(spark, decode)
    ReadOptions.parse(options)  # reports invalid options before the table is touched
    target = open_target(spark, table_format, to, target_options or {})
    return _Run(
        spark=spark, options=options, target=target, to=to, layout=layout, decode=decode, progress=progress
    ).export(offsets_per_commit)


def read_table(
    spark: SparkSession,
    to: str,
    *,
    table_format: str = "parquet",
    target_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the committed rows of a table of exports. Raises UsageError if there is none."""
    return open_target(spark, table_format, to, target_options or {}).read()


@dataclass(slots=True)
class _Run:
    spark: SparkSession
    options: Mapping[str, str]
    target: ExportTarget
    to: str
    layout: ExportLayout
    decode: Decoding | str | None
    progress: Progress

    def export(self, offsets_per_commit: int | None) -> ExportResult:
        last = self.target.recover()
        self._check_same_layout(last)
        found = new_ranges(self.options, last.next_offsets if last else {})
        ranges, self.options = found.ranges, found.only_of_them(self.options)
        if not ranges:
            return ExportResult(self.to, self.target.name)
        decoding = self._settled_decoding(last, ranges)
        outcomes = []
        self.progress.begin(f"export to {self.to}", sum(each.end - each.start for each in ranges))
        try:
            for step in steps(ranges, offsets_per_commit):
                outcome, last = self._step(last, step, decoding)
                outcomes.append(outcome)
        finally:
            self.progress.end()
        return self._result(ranges, outcomes)

    def _step(
        self, last: Commit | None, step: Sequence[OffsetRange], decoding: Decoding | None
    ) -> tuple[CommitResult, Commit]:
        rows = self._records(step).withColumns({name: F.expr(sql) for name, sql in self.layout.derived.items()})
        if decoding is not None:
            rows = decoding.apply(rows)
        _check_schema(last, rows)
        decoded = decoding.text if decoding is not None else None
        commit = next_commit(last, random_uuid().hex, step, rows.schema.json(), self.layout.partition_by, decoded)
        return self.target.add(rows, commit, self.progress), commit

    def _settled_decoding(self, last: Commit | None, ranges: Sequence[OffsetRange]) -> Decoding | None:
        """Return the decoding. A schema to infer is the one that was inferred when the table was made."""
        if not isinstance(self.decode, str):
            return self.decode
        if last is not None and last.decoded is not None and last.decoded.startswith("json "):
            return Json(last.decoded.removeprefix("json "))
        return Json(infer_json_schema(self.spark, self._records(ranges)))

    def _records(self, ranges: Sequence[OffsetRange]) -> DataFrame:
        """Return the records of these ranges in the columns of the table, with values not yet decoded."""
        found = self.spark.read.format("stratalog").options(**reading_options(self.options, ranges)).load()
        return found.select(*(name for name in RECORD_COLUMNS if name in found.columns))

    def _check_same_layout(self, last: Commit | None) -> None:
        if last is None or not last.schema:
            return
        if tuple(last.partition_by) != self.layout.partition_by:
            raise UsageError(
                f"{self.to} is partitioned by {','.join(last.partition_by) or 'nothing'}, not "
                f"{','.join(self.layout.partition_by) or 'nothing'}; export to another table, or as this one is"
            )
        if (last.decoded is None) != (self.decode is None):
            raise UsageError(
                f"{self.to} has {'raw' if last.decoded is None else 'decoded'} values; export to another table, or as "
                "this one is"
            )

    def _result(self, ranges: Sequence[OffsetRange], outcomes: Sequence[CommitResult]) -> ExportResult:
        counts = sum((each.counts for each in outcomes), Counts())
        partitions = tuple(
            ExportedPartition(
                each.topic,
                each.partition,
                each.start,
                each.end,
                counts.records.get(each.key, 0),
                counts.undecoded.get(each.key, 0),
            )
            for each in ranges
        )
        files, size = sum(each.files or 0 for each in outcomes), sum(each.size or 0 for each in outcomes)
        return ExportResult(self.to, self.target.name, partitions, files, size, len(outcomes))


def _check_decoding(spark: SparkSession, decode: Decoding | str | None) -> None:
    if isinstance(decode, str):
        if decode != INFERRED_JSON:
            raise UsageError(f"decode={decode!r}: expected 'json', or Json, Avro or Protobuf of stratalog.spark.export")
    elif decode is not None:
        decode.check(spark)


def _check_schema(last: Commit | None, rows: DataFrame) -> None:
    """Raise UsageError, which names the column, if a column of the table is missing or has another type."""
    if last is None or not last.schema:
        return
    check_evolution(json.loads(last.schema), json.loads(rows.schema.json()), DECODED)
