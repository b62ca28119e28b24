"""The rows of a Spark job, as soon as its tasks return them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from stratalog.spark.jvm import is_connect
from stratalog.util import random_uuid

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def stream_column(spark: SparkSession, frame: DataFrame) -> Generator[bytes, None, None]:
    """Yield the first column of a table while it is computed. Closing it early interrupts the job."""
    tag = f"stratalog-{random_uuid().hex}"
    spark.addTag(tag)
    finished = False
    try:
        batches = _connect_rows(frame) if is_connect(spark) else _classic_rows(frame)
        yield from batches
        finished = True
    finally:
        if not finished:
            with suppress(Exception):  # the session may have ended; the original error counts
                spark.interruptTag(tag)
        with suppress(Exception):
            spark.removeTag(tag)


def _connect_rows(frame: DataFrame) -> Iterator[bytes]:
    """Yield the rows of one job: Connect's iterator, whose partitions arrive in their order."""
    for row in frame.toLocalIterator():
        yield bytes(row[0])


def _classic_rows(frame: DataFrame) -> Iterator[bytes]:
    """Yield the rows of each partition as soon as it is done, in that order.

    A classic session's `toLocalIterator` runs one partition after the other, and `collect` and `toArrow` return at the
    end. But the JVM sends each partition when it is done, and the order of all of them last. A pyspark that does not do
    so returns all rows at the end.
    """
    from pyspark.errors.exceptions.captured import unwrap_spark_exception  # private, and not in every pyspark
    from pyspark.util import _load_from_socket

    collect = getattr(getattr(frame, "_jdf", None), "collectAsArrowToPython", None)
    is_context = hasattr(_load_from_socket, "__wrapped__")  # not so before Spark 4.2
    if collect is None or not is_context:
        yield from frame.toArrow().column(0).to_pylist()
        return

    port, secret, server = collect()
    try:
        with _load_from_socket((port, secret), _arrival_serializer()) as batches:
            for batch in batches:
                yield from batch.column(0).to_pylist()
    except Exception:
        with unwrap_spark_exception():
            server.getResult()  # raises the error of the JVM
        raise
    with unwrap_spark_exception():
        server.getResult()


def _arrival_serializer() -> Any:
    """Arrow batches as they arrive; what follows them is their order, or an error."""
    from pyspark import serializers  # keeps `import stratalog.spark` cheap
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer

    untyped: Any = serializers

    class ArrivalSerializer(ArrowStreamSerializer):
        def load_stream(self, stream: Any) -> Iterator[pa.RecordBatch]:
            yield from super().load_stream(stream)
            count = untyped.read_int(stream)
            if count == -1:
                raise PySparkRuntimeError(untyped.UTF8Deserializer().loads(stream))
            for _ in range(count):
                untyped.read_int(stream)

    return ArrivalSerializer()
