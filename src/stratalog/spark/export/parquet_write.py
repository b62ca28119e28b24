"""Write rows to Parquet files on the workers, one for each task and partition of the table, and count them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from stratalog.spark.export.commits import DataFile
from stratalog.spark.export.counts import Counts, count_rows
from stratalog.spark.export.files import TableFiles
from stratalog.spark.export.parquet_table import file_name
from stratalog.util import random_uuid

#: The size in bytes at which a file is closed.
FILE_BYTES: Final = 512 * 1024 * 1024

#: Files open at a time in one task. Opening another closes the least recently written one.
_OPEN_FILES_MAX: Final = 32

#: The name of the directory for nulls, as in Spark and Hive.
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The files of one task."""

    files: tuple[DataFile, ...]
    counts: Counts


@dataclass(slots=True)
class _OpenFile:
    """A file that is being written. `path` is relative to the table."""

    path: str
    context: AbstractContextManager[Path]
    local: Path
    writer: Any
    records: int = 0

    def write(self, rows: pa.RecordBatch) -> None:
        self.writer.write_batch(rows)
        self.records += rows.num_rows

    @property
    def size(self) -> int:
        return self.local.stat().st_size

    def close(self) -> DataFile:
        self.writer.close()
        size = self.size
        self.context.__exit__(None, None, None)
        return DataFile(self.path, size, self.records)

    def give_up(self, error: BaseException) -> None:
        self.writer.close()
        self.context.__exit__(type(error), error, error.__traceback__)


@dataclass(frozen=True, slots=True)
class ParquetWriter:
    """For `DataFrame.mapInArrow`: takes rows and yields one row of pickled `WrittenFiles`."""

    files: TableFiles
    run_id: str
    partition_by: tuple[str, ...]
    file_bytes: int = FILE_BYTES

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        written = pickle.dumps(self.write(batches))
        yield pa.RecordBatch.from_arrays([pa.array([written], pa.binary())], ["written"])

    def write(self, batches: Iterator[pa.RecordBatch]) -> WrittenFiles:
        """Write the rows to complete, durable files. After an error no file is left unfinished."""
        task = _Task(self)
        try:
            for batch in batches:
                task.add(batch)
            return task.finish()
        except BaseException as error:
            task.give_up(error)
            raise


@dataclass(slots=True)
class _Task:
    plan: ParquetWriter
    counts: Counts = field(default_factory=Counts)
    _open: dict[str, _OpenFile] = field(default_factory=dict)
    _done: list[DataFile] = field(default_factory=list)

    def add(self, rows: pa.RecordBatch) -> None:
        self.counts += count_rows(rows)
        for directory, part in split_rows(rows, self.plan.partition_by):
            file = self._open.pop(directory, None) or self._create(directory, part.schema)
            file.write(part)
            if file.size >= self.plan.file_bytes:
                self._done.append(file.close())
            else:
                self._open[directory] = file  # as the last of them
            if len(self._open) > _OPEN_FILES_MAX:
                self._done.append(self._open.pop(next(iter(self._open))).close())

    def finish(self) -> WrittenFiles:
        while self._open:
            self._done.append(self._open.popitem()[1].close())
        return WrittenFiles(tuple(self._done), self.counts)

    def give_up(self, error: BaseException) -> None:
        """Delete unfinished files. The run's next commit deletes the complete ones."""
        while self._open:
            self._open.popitem()[1].give_up(error)

    def _create(self, directory: str, schema: pa.Schema) -> _OpenFile:
        path = f"{directory}{file_name(self.plan.run_id, random_uuid().hex)}"
        context = self.plan.files.writing(path)
        local = context.__enter__()
        writer = parquet.ParquetWriter(local, schema, compression="zstd")
        return _OpenFile(path, context, local, writer)


def split_rows(rows: pa.RecordBatch, partition_by: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield rows by their directory ("a=1/", or "" for none), without the columns in its name."""
    if not rows.num_rows:
        return
    if not partition_by:
        yield "", rows
        return
    rest = rows.select([name for name in rows.schema.names if name not in partition_by])
    texts = [pc.fill_null(rows.column(name).cast(pa.string()), _NULL) for name in partition_by]
    keys = pc.binary_join_element_wise(*texts, "/").dictionary_encode()
    codes = keys.indices.to_numpy()
    for code, key in enumerate(keys.dictionary.to_pylist()):
        named = zip(partition_by, key.split("/"), strict=True)
        directory = "".join(f"{name}={quote(text, safe='')}/" for name, text in named)
        yield (
            directory,
            rest if len(keys.dictionary) == 1 else rest.take(pa.array(np.flatnonzero(codes == code))),
        )
