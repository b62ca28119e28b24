"""Runs of an export into a Parquet table without Spark: one partition, records that are their offsets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
from pyarrow import parquet

from stratalog.spark.export.commits import OffsetRange, next_commit
from stratalog.spark.export.files import TableFiles
from stratalog.spark.export.parquet_table import ParquetTable
from stratalog.spark.export.parquet_write import ParquetWriter

SCHEMA = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("date", pa.string())])


def rows(start: int, end: int) -> pa.RecordBatch:
    offsets = list(range(start, end))
    dates = [f"2023-07-{1 + offset // 7 % 28:02d}" for offset in offsets]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(["t"] * len(offsets)),
            pa.array([0] * len(offsets), pa.int32()),
            pa.array(offsets),
            pa.array(dates),
        ],
        schema=SCHEMA,
    )


def run(files: TableFiles, run_id: str, end: int, *, before_commit: Callable[[], None] = lambda: None) -> None:
    """One export up to `end`; dies where the files or `before_commit` do, without any cleaning."""
    table = ParquetTable(files)
    last = table.recover()
    start = last.next_offsets.get(("t", 0), 0) if last else 0
    if start >= end:
        return
    commit = next_commit(last, run_id, [OffsetRange("t", 0, start, end)], "s", ("date",), None)
    table.begin(run_id)
    written = ParquetWriter(files, run_id, ("date",)).write(iter([rows(start, end)]))
    before_commit()
    table.commit(replace(commit, files=written.files))


def offsets(files: TableFiles, paths: Sequence[str]) -> list[int]:
    found: list[int] = []
    for path in paths:
        found += parquet.read_table(pa.BufferReader(files.read(path))).column("offset").to_pylist()
    return sorted(found)


def data_paths(files: TableFiles) -> list[str]:
    return [path for path in files.list() if path.endswith(".parquet")]
