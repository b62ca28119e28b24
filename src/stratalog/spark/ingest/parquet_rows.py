"""Read the row groups of Parquet files as rows for the sink, in each task of a direct load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from pyspark.sql import types
from pyspark.sql.types import StructType

from stratalog.spark.ingest.parquet_plan import (
    PARQUET_ERRORS,
    ColumnKind,
    FileColumn,
    ParquetInput,
    ReadTask,
    RowGroups,
    open_parquet,
)
from stratalog.spark.ingest.values import IngestError
from stratalog.util import REAL_FILESYSTEM, FileSystem

#: Limits of a batch of rows: bytes (about) and rows.
BATCH_BYTES: Final = 1 << 20
_BATCH_ROWS_MAX: Final = 1 << 15
#: Rows of a sample to estimate the width of dictionary-encoded values.
_SAMPLE_ROWS: Final = 256


def sink_schema(columns: Sequence[FileColumn]) -> StructType:
    header = types.StructType(
        [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
    )
    kinds: dict[str, types.DataType] = {
        "value": types.BinaryType(),
        "key": types.BinaryType(),
        "timestamp": types.TimestampType(),
        "headers": types.ArrayType(header),
        "partition": types.IntegerType(),
    }
    return types.StructType([types.StructField(each.target, kinds[each.target]) for each in columns])


def read_rows(task: ReadTask, fs: FileSystem = REAL_FILESYSTEM) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a task, in order, a batch in memory at a time.

    Raises IngestError for a file that cannot be read, or that changed since the load was planned.
    """
    for part in task.parts:
        yield from _naming(part.file, _rows_of(part, fs))


def _naming(file: ParquetInput, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield `rows`. Errors name the file."""
    while True:
        try:
            batch = next(rows, None)
        except PARQUET_ERRORS as error:
            reason = getattr(error, "strerror", None) or next(iter(str(error).splitlines()), "")
            raise IngestError(f"{file.path} cannot be read: {reason or type(error).__name__}") from error
        if batch is None:
            return
        yield batch


def _rows_of(part: RowGroups, fs: FileSystem) -> Iterator[pa.RecordBatch]:
    names = list(dict.fromkeys(column.name for column in part.file.columns))
    with open_parquet(part.file.path) as file:
        with fs.open(part.file.path) as opened:  # after the other: what was opened there is this one or an earlier one
            if (opened.size(), opened.mtime_ms()) != (part.file.size, part.file.modified_ms):
                raise IngestError(f"{part.file.path} was changed while it was loaded")
        for group in range(part.first, part.end):
            rows = _batch_rows(file, part.file, group, names)
            for batch in file.iter_batches(rows, row_groups=[group], columns=names, use_threads=False):
                yield _for_sink(batch, part.file.columns)


def _batch_rows(file: parquet.ParquetFile, of: ParquetInput, group: int, names: list[str]) -> int:
    """Return the number of rows of a batch, from the row group's size, or a sample where a dictionary hides it."""
    rows, size = of.groups[group]
    width = size / max(rows, 1)
    metadata = file.metadata.row_group(group)
    columns = [metadata.column(number) for number in range(metadata.num_columns)]
    if any(column.has_dictionary_page and column.path_in_schema in names for column in columns):
        sample = next(file.iter_batches(_SAMPLE_ROWS, row_groups=[group], columns=names, use_threads=False), None)
        if sample is not None:
            width = max(width, sum(_decoded(column).nbytes for column in sample.columns) / sample.num_rows)
    return max(1, min(int(BATCH_BYTES / max(width, 1)), _BATCH_ROWS_MAX))


def _decoded(array: Any) -> Any:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _for_sink(batch: pa.RecordBatch, columns: tuple[FileColumn, ...]) -> pa.RecordBatch:
    arrays = [_converted(batch.column(each.name), each) for each in columns]
    return pa.RecordBatch.from_arrays(arrays, [each.target for each in columns])


def _converted(array: Any, column: FileColumn) -> Any:
    array = _decoded(array)
    match column.target:
        case "value" | "key":
            return _content(array, column.kind)
        case "timestamp":
            return _timestamps(array, column.kind)
        case "partition":
            return array.cast(pa.int32())
        case _:
            return array


def _content(array: Any, kind: ColumnKind) -> Any:
    """Return keys or values as bytes. Numbers become decimal digits."""
    if kind in (ColumnKind.INTEGER, ColumnKind.SMALL):
        array = array.cast(pa.string())
    return array if array.type == pa.binary() else array.cast(pa.binary())


def _timestamps(array: Any, kind: ColumnKind) -> Any:
    """Return timestamps in microseconds; numbers are milliseconds. Raises ArrowInvalid (a ValueError) for overflow."""
    if kind is ColumnKind.INTEGER:
        return pc.multiply_checked(array.cast(pa.int64()), 1000).cast(pa.timestamp("us", "UTC"))
    return array.cast(pa.timestamp("us", array.type.tz))
