"""Reading the files that a Parquet table consists of.

Spark's own Parquet reader reads a directory, with all that it prunes. Workers read the files of an object store through
the client that wrote them, so that Spark needs no connector and no credentials. The whole table then goes through
Arrow.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from stratalog.spark.executor import parallelism
from stratalog.spark.export.commits import Commit
from stratalog.spark.export.files import LocalFiles, ObjectFiles
from stratalog.spark.reading import arrow_schema


def read_files(spark: SparkSession, files: LocalFiles | ObjectFiles, paths: Sequence[str], commit: Commit) -> DataFrame:
    """Return the table as of `commit`, which has its schema: files of runs before may have fewer columns."""
    schema = StructType.fromJson(json.loads(commit.schema))
    if not paths:
        return spark.createDataFrame([], schema)
    if isinstance(files, LocalFiles):
        # Spark puts the columns of directories after those of files.
        reader = spark.read.schema(schema).option("basePath", files.location)
        return reader.parquet(*(f"{files.location}/{path}" for path in paths)).select(*schema.fieldNames())
    chunks = min(len(paths), 8 * parallelism(spark))
    work = _Reading(files, [list(paths[number::chunks]) for number in range(chunks)], schema)
    return spark.range(0, chunks, 1, chunks).mapInArrow(work, schema)


class _Reading:
    """For `mapInArrow`: takes numbers of chunks of files, gives their rows."""

    def __init__(self, files: ObjectFiles, chunks: list[list[str]], schema: Any) -> None:
        self._files = files
        self._chunks = chunks
        self._schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = arrow_schema(self._schema)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for path in self._chunks[number]:
                    yield from read_file(self._files, path, schema)


def read_file(files: ObjectFiles, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one file, one row group at a time: columns of its directories, and nulls for those it lacks."""
    named = dict(part.split("=", 1) for part in path.split("/")[:-1])
    with files.open(path) as file, parquet.ParquetFile(file) as content:
        for batch in content.iter_batches():
            columns = []
            for field in schema:
                if field.name in named:
                    value = pa.scalar(unquote(named[field.name])).cast(field.type)
                    columns.append(pa.repeat(value, batch.num_rows))
                elif field.name in batch.schema.names:
                    columns.append(batch.column(field.name).cast(field.type))
                else:
                    columns.append(pa.nulls(batch.num_rows, field.type))
            yield pa.RecordBatch.from_arrays(columns, schema=schema)
