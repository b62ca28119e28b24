"""Load files that Spark can read (Parquet, JSON, CSV, ...) into a topic.

Files are loaded in the order of their paths, in rounds. The bulk sink writes each round and publishes it in one step,
so a topic never shows half of one. Offsets follow the order of files and of the rows in them, or with `sort_by_time`
the order of timestamps within a round.

There are two ways from files to the sink, with equal records: through Spark's readers (`through_spark`), and without
them for Parquet files that do not need Spark (`direct`).

With a `state` the job is incremental and restartable: it records which files it has loaded. Each one is loaded exactly
once: a round has a number and is recorded before it is written, and the sink knows by name and number which rounds it
has published. So a run that finds a recorded round after a crash asks the sink whether it was published.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from stratalog.errors import UsageError
from stratalog.jobs import SILENT, Progress, State
from stratalog.spark.ingest.direct import DirectReader
from stratalog.spark.ingest.memory import Memory, query_id
from stratalog.spark.ingest.parquet_plan import Indirect
from stratalog.spark.ingest.through_spark import SparkInput, list_files, write_through_spark
from stratalog.spark.ingest.values import IngestResult, Round, Rows, SourceFile
from stratalog.spark.options import option_text
from stratalog.spark.sink import SinkOptions, WriteTarget, target_of
from stratalog.util import SYSTEM_CLOCK, Clock

FORMATS: Final = ("parquet", "json", "csv", "orc", "text")

#: Limits of a round: a plan of many files is slow to make, and an unpublished round is repeated after a crash.
FILES_PER_ROUND: Final = 128
BYTES_PER_ROUND: Final = 64 << 30


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
    direct: bool = True,
    progress: Progress = SILENT,
    clock: Clock = SYSTEM_CLOCK,
) -> IngestResult:
    """Load the files at `source` (paths, directories, globs) into `topic`; `sink` are options of the bulk sink.

    `read_options` and `schema` (DDL) are for the reader of the files. Without `state` all files are loaded, even those
    loaded before. With `direct` False, Spark reads all files. Raises UsageError for invalid options before any job
    starts, IngestError if a round fails.
    """
    rows = rows or Rows()
    if file_format not in FORMATS:
        raise UsageError(f"format {file_format}: expected one of {', '.join(FORMATS)}")
    if sort_by_time and rows.timestamp is None:
        raise UsageError("to sort by time an expression has to say what the timestamp is")
    paths = [source] if isinstance(source, str) else list(source)
    reading = SparkInput(paths, rows, file_format, read_options or {}, schema, sort_by_time)
    options = {name: option_text(value) for name, value in sink.items()} | {"topic": topic}
    query = query_id(topic, "" if state is None else state.location)
    memory = Memory(state, _target(options, topic, query), topic, query)
    listed = list_files(spark, paths)
    fresh = [file for file in listed if file.path not in memory.files]
    changed = [f.path for f in listed if f.path in memory.files and memory.files[f.path] != [f.size, f.modified_ms]]
    job = _Job(spark, reading, options, direct, progress)
    done: list[Round] = []
    progress.begin(f"loading {topic}", sum(file.size for file in fresh))
    try:
        for files in _rounds(fresh, files_per_round, bytes_per_round):
            started = clock.monotonic()
            memory.begin(files)
            records, through_spark = job.write(files, memory.options())
            memory.end()
            size = sum(file.size for file in files)
            seconds = max(clock.monotonic() - started, 1e-6)
            done.append(Round(len(files), size, records, seconds, through_spark))
    finally:
        progress.end()
    return IngestResult(topic, tuple(done), len(listed) - len(fresh), tuple(changed))


def _target(options: Mapping[str, str], topic: str, query: str) -> WriteTarget:
    """Check the options and return the target. Raises UsageError or RemoteStorageError."""
    target = target_of(SinkOptions.parse({**options, "queryId": query}))
    target.plan(topic).partitions_of(topic)
    return target


@dataclass(frozen=True, slots=True)
class _Job:
    """The parts of a load that stay the same from round to round."""

    spark: SparkSession
    source: SparkInput
    options: Mapping[str, str]
    direct: bool
    progress: Progress

    def write(self, files: Sequence[SourceFile], round_options: Mapping[str, str]) -> tuple[int, str | None]:
        """Publish the rows of `files`. Return their number, and why Spark read the files, or None if it did not."""
        sink = {**self.options, **round_options}
        why: str | None = "asked to"
        if self.direct:
            try:
                return DirectReader(self.spark, self.source, self.progress).load(files, sink), None
            except Indirect as reason:
                why = str(reason)
        records = write_through_spark(self.spark, self.source, files, sink)
        self.progress.advance(sum(file.size for file in files))
        return records, why


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
