"""Load any files through Spark, which reads the rows, evaluates the expressions and passes them to the sink."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession, functions as F
from pyspark.sql.types import BinaryType, DateType, IntegerType, LongType, StringType

from stratalog.errors import UsageError
from stratalog.spark.executor import parallelism
from stratalog.spark.ingest.values import IngestError, Rows, SourceFile, shown_files
from stratalog.spark.session import make_active

#: Least bytes that a task reads: every task makes a segment for each partition that its rows belong to.
TASK_BYTES: Final = 64 << 20
_ERROR: Final = re.compile(r"stratalog\.errors\.\w+: (.*)")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/+")
_GLOB: Final = re.compile(r"[*?\[{]")


@dataclass(frozen=True, slots=True)
class SparkInput:
    """The files to read, and how. `schema` is DDL."""

    paths: Sequence[str]
    rows: Rows
    file_format: str
    read_options: Mapping[str, str]
    schema: str | None
    sort_by_time: bool

    @property
    def base_path(self) -> str | None:
        """The directory below which directory names define columns, or None."""
        if len(self.paths) != 1 or _GLOB.search(self.paths[0]) or "basePath" in self.read_options:
            return None
        return self.paths[0]


def list_files(spark: SparkSession, paths: Sequence[str]) -> list[SourceFile]:
    """Return the files by path, without reading them. Raises UsageError."""
    try:
        frame = spark.read.format("binaryFile").load(list(paths))
        found = frame.selectExpr("path", "length", "unix_millis(modificationTime)").collect()
    except PySparkException as error:
        raise UsageError(f"{', '.join(paths)} cannot be listed: {reason(error)}") from error
    return sorted((SourceFile(*row) for row in found), key=lambda file: file.path)


def write_through_spark(
    spark: SparkSession, source: SparkInput, files: Sequence[SourceFile], sink: Mapping[str, str]
) -> int:
    """Publish the rows of `files` through the bulk sink, and return their number. Raises IngestError."""
    seen = Observation()
    make_active(spark)
    try:
        frame = _records(source, _ordered(spark, source, files))
        frame = frame.observe(seen, F.count(F.lit(1)).alias("records"))
        frame.write.format("stratalog").mode("append").options(**sink).save()
        return int(seen.get["records"])
    except PySparkException as error:
        names = shown_files([file.path for file in files])
        raise IngestError(f"{names}: {reason(error)}; nothing of this round was published") from error


def _ordered(spark: SparkSession, source: SparkInput, files: Sequence[SourceFile]) -> DataFrame:
    """Return the rows of the files in the order of the files.

    Spark reads several files in the order of their sizes, but keeps the order of a union, and `coalesce` joins
    neighbouring tasks.
    """
    parts = [_reader(spark, source, file.path).load(file.path) for file in files]
    frame: DataFrame = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
    tasks = max(parallelism(spark), -(-sum(file.size for file in files) // TASK_BYTES))
    return frame.coalesce(tasks)


def _reader(spark: SparkSession, source: SparkInput, path: str) -> Any:
    reader = spark.read.format(source.file_format).options(**source.read_options)
    if source.base_path is not None and not _is_named_by(path, source.base_path):
        reader = reader.option("basePath", source.base_path)  # adds the columns from directory names
    return reader if source.schema is None else reader.schema(source.schema)


def _is_named_by(path: str, base: str) -> bool:
    """Return whether the given path is the file itself, not a directory above it."""
    without_scheme = _SCHEME.sub("/", base) if _SCHEME.match(base) else base
    return path.endswith(without_scheme)


def _records(source: SparkInput, frame: DataFrame) -> DataFrame:
    rows = source.rows
    value = "to_json(struct(*))" if rows.value is None else rows.value
    selected = [f"{value} as value"]
    if rows.key is not None:
        selected.append(f"cast({rows.key} as string) as key")
    if rows.timestamp is not None:
        selected.append(f"{rows.timestamp} as timestamp")
    if rows.headers is not None:
        selected.append(f"{rows.headers} as headers")
    if rows.partition is not None:
        selected.append(f"cast({rows.partition} as int) as partition")
    records = _with_types(frame.selectExpr(*selected))
    return records.orderBy("timestamp") if source.sort_by_time else records


def _with_types(records: DataFrame) -> DataFrame:
    """Cast key and value to string or binary, and the timestamp to a timestamp."""
    kinds = {each.name: each.dataType for each in records.schema.fields}
    if not isinstance(kinds["value"], StringType | BinaryType):
        records = records.withColumn("value", F.col("value").cast("string"))
    kind = kinds.get("timestamp")
    if isinstance(kind, LongType | IntegerType):
        records = records.withColumn("timestamp", F.timestamp_millis(F.col("timestamp").cast("bigint")))
    elif isinstance(kind, StringType | DateType):
        records = records.withColumn("timestamp", F.col("timestamp").cast("timestamp"))
    return records


def reason(error: Exception) -> str:
    """Return the message of our own error within Spark's error, else the first line."""
    text = str(error)
    ours = _ERROR.findall(text)
    return (ours[-1] if ours else next(iter(text.strip().splitlines()), type(error).__name__)).strip()
