"""The rows of a job of several steps as a DataFrame (`stratalog.jobs.StepRows`).

No RDDs: they run in classic sessions and over Spark Connect. Spark spills what memory does not hold.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as F

from stratalog.spark.result_stream import stream_column

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class SparkRows:
    """A DataFrame that is computed when its values are read. Persisted ones are added to `kept_frames`."""

    def __init__(self, spark: SparkSession, frame: DataFrame, kept_frames: list[DataFrame]) -> None:
        self._spark = spark
        self._frame = frame
        self._kept_frames = kept_frames

    def _with(self, frame: DataFrame) -> SparkRows:
        return SparkRows(self._spark, frame, self._kept_frames)

    def map(self, step: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str) -> SparkRows:
        return self._with(self._frame.mapInArrow(step, schema))

    def exchange(self, key: str, parts: int, order: Sequence[str]) -> SparkRows:
        sorting = [F.desc(name[1:]) if name.startswith("-") else F.asc(name) for name in order]
        sent = self._frame.repartitionById(parts, (F.col(key) % parts).cast("int"))
        return self._with(sent.sortWithinPartitions(*sorting))

    def where(self, column: str, equals: int, *, negated: bool = False) -> SparkRows:
        wanted = F.col(column) != equals if negated else F.col(column) == equals
        return self._with(self._frame.where(wanted))

    def kept(self) -> SparkRows:
        frame = self._frame.persist(StorageLevel.MEMORY_AND_DISK)
        self._kept_frames.append(frame)
        return self._with(frame)

    def values(self, column: str) -> Generator[bytes, None, None]:
        return stream_column(self._spark, self._frame.select(column))
