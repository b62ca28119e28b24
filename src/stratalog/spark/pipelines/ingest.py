"""Load files into a topic: Parquet, JSON, CSV, whatever Spark reads, at the speed of disks.

Files are taken in the order of their paths, in rounds; each round is written by the bulk sink and published in one step, so
a topic never shows half of one. Offsets follow the order of files and of the rows in them, or with `sort_by_time` that of
timestamps within a round.

With a `state` the job is incremental and restartable: it remembers which files it has loaded. Exactly once: a round has a
number, is noted before it is written, and the sink knows by name and number which round it has published. So whoever finds
a noted round after a crash asks the sink whether it happened.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from stratalog.errors import StratalogError, UsageError
from stratalog.spark.pipelines.progress import SILENT, Progress
from stratalog.spark.pipelines.report import Column, Report, Unit
from stratalog.spark.pipelines.runner import parallelism
from stratalog.spark.pipelines.state import State
from stratalog.spark.session import make_active
from stratalog.spark.sink.options import SinkOptions
from stratalog.spark.sink.writer import Target, target_of
from stratalog.util.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS: Final = ("parquet", "json", "csv", "orc", "text")

#: What a round takes at most: a plan of many files is slow to make, and what was not published is done again after a crash.
FILES_PER_ROUND: Final = 128
BYTES_PER_ROUND: Final = 64 << 30
#: Input that a task reads at least: every task makes a segment for each partition that its rows belong to.
_TASK_BYTES: Final = 64 << 20
_ERROR: Final = re.compile(r"stratalog\.errors\.\w+: (.*)")


class IngestError(StratalogError):
    """A round failed; nothing of it is visible. The rounds before it are."""


@dataclass(frozen=True, slots=True)
class Rows:
    """How a row becomes a record: SQL expressions over the columns of the files.

    `value` None is the whole row as JSON. A `timestamp` may be a timestamp, a date, or a number of milliseconds.
    """

    value: str | None = None
    key: str | None = None
    timestamp: str | None = None
    headers: str | None = None
    partition: str | None = None


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as it was listed. Times in milliseconds."""

    path: str
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Round:
    """What was published in one step."""

    files: int
    bytes: int
    records: int
    seconds: float


@dataclass(frozen=True, slots=True)
class IngestResult:
    """`known` files were loaded before; `changed` are those of them that are others by now, and were left out."""

    topic: str
    rounds: tuple[Round, ...]
    known: int
    changed: tuple[str, ...] = field(default=())

    @property
    def records(self) -> int:
        return sum(each.records for each in self.rounds)

    @property
    def files(self) -> int:
        return sum(each.files for each in self.rounds)

    def report(self) -> Report:
        columns = [
            Column("round"), Column("files"), Column("input_bytes", Unit.BYTES), Column("records"),
            Column("seconds"), Column("records_per_second"),
        ]  # fmt: skip
        rows = [
            [number, each.files, each.bytes, each.records, round(each.seconds, 3), round(each.records / each.seconds)]
            for number, each in enumerate(self.rounds, start=1)
        ]  # fmt: skip
        totals = {
            "files": self.files,
            "input_bytes": sum(each.bytes for each in self.rounds),
            "records": self.records,
            "loaded_before": self.known,
            "changed_since": len(self.changed),
        }
        return Report(f"loaded into {self.topic}", columns, rows, totals)


def ingest(
    spark: SparkSession,
    source: str | Sequence[str],
    topic: str,
    *,
    sink: Mapping[str, str | int | bool],
    rows: Rows | None = None,
    file_format: str = "parquet",
    read_options: Mapping[str, str] | None = None,
    schema: str | None = None,
    sort_by_time: bool = False,
    state: State | None = None,
    files_per_round: int = FILES_PER_ROUND,
    bytes_per_round: int = BYTES_PER_ROUND,
    progress: Progress = SILENT,
    clock: Clock = SYSTEM_CLOCK,
) -> IngestResult:
    """Load the files at `source` (paths, directories, globs) into `topic`; `sink` are options of the bulk sink.

    `read_options` and `schema` (DDL) are for the reader of the files. Without `state` all files are loaded, whatever was
    loaded before. UsageError before any job starts for options that are wrong; IngestError when a round fails.
    """
    if file_format not in FORMATS:
        raise UsageError(f"format {file_format}: expected one of {', '.join(FORMATS)}")
    paths = [source] if isinstance(source, str) else list(source)
    job = _Job(
        spark, paths, topic, sink, rows or Rows(), file_format, read_options or {}, schema, sort_by_time
    )
    query = _query_id(topic, "" if state is None else state.location)
    memory = _Memory(state, job.target(query), topic, query)
    listed = job.list_files()
    fresh = [file for file in listed if file.path not in memory.files]
    changed = [
        f.path for f in listed if f.path in memory.files and memory.files[f.path] != [f.size, f.modified_ms]
    ]
    done: list[Round] = []
    progress.begin(f"loading {topic}", sum(file.size for file in fresh))
    try:
        for files in _rounds(fresh, files_per_round, bytes_per_round):
            started = clock.monotonic()
            memory.begin(files)
            records = job.write(files, memory.options())
            memory.end()
            size = sum(file.size for file in files)
            done.append(Round(len(files), size, records, max(clock.monotonic() - started, 1e-6)))
            progress.advance(size)
    finally:
        progress.end()
    return IngestResult(topic, tuple(done), len(listed) - len(fresh), tuple(changed))


@dataclass(frozen=True, slots=True)
class _Job:
    """The parts of a load that stay the same from round to round."""

    spark: SparkSession
    paths: Sequence[str]
    topic: str
    sink: Mapping[str, str | int | bool]
    rows: Rows
    file_format: str
    read_options: Mapping[str, str]
    schema: str | None
    sort_by_time: bool

    @property
    def _sink_options(self) -> dict[str, str]:
        options = {name: _text(value) for name, value in self.sink.items()}
        return {**options, "topic": self.topic}

    def target(self, query: str) -> Target:
        """Checked: options, place, number of partitions. UsageError, RemoteStorageError."""
        target = target_of(SinkOptions.parse({**self._sink_options, "queryId": query}))
        target.plan(self.topic).partitions_of(self.topic)
        return target

    def list_files(self) -> list[SourceFile]:
        """By path. Nothing of them is read."""
        from pyspark.errors import PySparkException

        try:
            frame = self.spark.read.format("binaryFile").load(list(self.paths))
            found = frame.selectExpr("path", "length", "unix_millis(modificationTime)").collect()
        except PySparkException as error:
            raise UsageError(f"{', '.join(self.paths)} cannot be listed: {_reason(error)}") from error
        return sorted((SourceFile(*row) for row in found), key=lambda file: file.path)

    def write(self, files: Sequence[SourceFile], round_options: Mapping[str, str]) -> int:
        """Publish the rows of `files`; how many they were."""
        from pyspark.errors import PySparkException
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        seen = Observation()
        make_active(self.spark)
        try:
            frame = self._records(self._ordered(files)).observe(seen, F.count(F.lit(1)).alias("records"))
            writer = frame.write.format("stratalog").mode("append")
            writer.options(**self._sink_options, **round_options).save()
            return int(seen.get["records"])
        except PySparkException as error:
            names = files[0].path if len(files) == 1 else f"{files[0].path} to {files[-1].path}"
            raise IngestError(f"{names}: {_reason(error)}; nothing of this round was published") from error

    def _ordered(self, files: Sequence[SourceFile]) -> DataFrame:
        """The rows of the files, one behind the other.

        Spark reads several files in the order of their sizes, but what a union has in the order of its parts; and it joins
        neighbouring tasks when told to have fewer.
        """
        parts = [self._reader().load(file.path) for file in files]
        frame: DataFrame = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)
        tasks = max(parallelism(self.spark), -(-sum(file.size for file in files) // _TASK_BYTES))
        return frame.coalesce(tasks)

    def _reader(self) -> Any:
        reader = self.spark.read.format(self.file_format).options(**self.read_options)
        if (
            len(self.paths) == 1
            and not re.search(r"[*?\[{]", self.paths[0])
            and "basePath" not in self.read_options
        ):
            reader = reader.option(
                "basePath", self.paths[0]
            )  # so that columns of partition directories are there
        return reader if self.schema is None else reader.schema(self.schema)

    def _records(self, frame: DataFrame) -> DataFrame:
        rows = self.rows
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
        if self.sort_by_time:
            if rows.timestamp is None:
                raise UsageError("to sort by time an expression has to say what the timestamp is")
            records = records.orderBy("timestamp")
        return records


def _with_types(records: DataFrame) -> DataFrame:
    """Key and value as string or binary, the timestamp as one."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import BinaryType, DateType, IntegerType, LongType, StringType

    kinds = {each.name: each.dataType for each in records.schema.fields}
    if not isinstance(kinds["value"], StringType | BinaryType):
        records = records.withColumn("value", F.col("value").cast("string"))
    kind = kinds.get("timestamp")
    if isinstance(kind, LongType | IntegerType):
        records = records.withColumn("timestamp", F.timestamp_millis(F.col("timestamp").cast("bigint")))
    elif isinstance(kind, StringType | DateType):
        records = records.withColumn("timestamp", F.col("timestamp").cast("timestamp"))
    return records


class _Memory:
    """Which files were loaded, and the round that is under way."""

    def __init__(self, state: State | None, target: Target, topic: str, query: str) -> None:
        self._state = state
        self._name = f"ingest-{topic}"
        self._query = query
        document = (state.load(self._name) if state is not None else None) or {}
        self.files: dict[str, list[int]] = dict(document.get("files", {}))
        self._round = int(document.get("round", -1))
        self._pending: dict[str, list[int]] = {}
        pending = document.get("pending")
        if pending is not None and target.is_published(self._round):
            self.files |= pending

    def begin(self, files: Sequence[SourceFile]) -> None:
        """Note a round before it is written."""
        self._round += 1
        self._pending = {file.path: [file.size, file.modified_ms] for file in files}
        self._save(self._pending)

    def options(self) -> dict[str, str]:
        """By which the sink knows the round."""
        if self._state is None:
            return {}
        return {"queryId": self._query, "batchId": str(self._round)}

    def end(self) -> None:
        """The round is published."""
        self.files |= self._pending
        self._save(None)

    def _save(self, pending: dict[str, list[int]] | None) -> None:
        if self._state is not None:
            document = {"round": self._round, "files": self.files, "pending": pending}
            self._state.save(self._name, document)


def _rounds(files: Sequence[SourceFile], count_max: int, size_max: int) -> Iterator[list[SourceFile]]:
    """Cut the files into rounds; a file larger than a round is a round."""
    taken: list[SourceFile] = []
    size = 0
    for file in files:
        if taken and (len(taken) >= count_max or size + file.size > size_max):
            yield taken
            taken, size = [], 0
        taken.append(file)
        size += file.size
    if taken:
        yield taken


def _query_id(topic: str, location: str) -> str:
    return f"ingest {topic} {hashlib.sha256(location.encode()).hexdigest()[:16]}"


def _reason(error: Exception) -> str:
    """What one of ours has said within Spark's error, else its first line."""
    text = str(error)
    ours = _ERROR.findall(text)
    return (ours[-1] if ours else next(iter(text.strip().splitlines()), type(error).__name__)).strip()


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
