"""The source and the sink with Python types: `read`, `read_stream`, `write`, `write_stream`.

Each argument is the option of the same name in snake case: `starting_offsets` is `startingOffsets`. Values have Python
types: a `datetime`, a `timedelta`, a list of topics, offsets by (topic, partition). An invalid value raises UsageError
before Spark is called. A test compares the arguments with the options of source and sink.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from stratalog.errors import UsageError
from stratalog.spark.options import by_topic, option_text
from stratalog.spark.session import make_active

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

FORMAT = "stratalog"

TopicPartition = tuple[str, int]
Path = str | PathLike[str]
#: Milliseconds since the epoch, or a time; one without a zone is in UTC.
Time = int | datetime
#: A number of bytes, or text such as "64m".
Bytes = int | str
#: Milliseconds, a difference of times, or text such as "10m".
Duration = int | str | timedelta


def read(
    spark: SparkSession,
    *,
    path: Path | Iterable[Path] | None = None,
    remote: str | None = None,
    remote_options: Mapping[str, str] | None = None,
    kafka: Mapping[str, str] | None = None,
    subscribe: str | Iterable[str] | None = None,
    subscribe_pattern: str | None = None,
    assign: Iterable[TopicPartition] | None = None,
    topic_id: str | Iterable[str] | None = None,
    starting_offsets: Literal["earliest"] | Mapping[TopicPartition, int] | None = None,
    ending_offsets: Literal["latest"] | Mapping[TopicPartition, int] | None = None,
    starting_timestamp: Time | None = None,
    ending_timestamp: Time | None = None,
    starting_offsets_by_timestamp: Mapping[TopicPartition, Time] | None = None,
    ending_offsets_by_timestamp: Mapping[TopicPartition, Time] | None = None,
    starting_offsets_by_timestamp_strategy: Literal["error", "latest"] | None = None,
    include_headers: bool | None = None,
    columns: Iterable[str] | None = None,
    fail_on_data_loss: bool | None = None,
    isolation_level: Literal["read_uncommitted", "read_committed"] | None = None,
    split_bytes: Bytes | None = None,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
    timestamp_disorder: Duration | None = None,
    push_filters: bool | None = None,
) -> DataFrame:
    """Return the records of topics, as `spark.read.format("stratalog")` does.

    docs/reference/spark_source.md explains each option.

        stratalog.spark.read(spark, path="/data", subscribe=["orders"], starting_offsets={("orders", 0): 5})

    `path` (data directories), `remote` (URL of an object store, with `remote_options`) and `kafka` (properties of a
    client, `{"bootstrap.servers": "host:9092"}`) select the place, at least one of them; `subscribe`,
    `subscribe_pattern` and `assign` select the topics, exactly one of them. None means the option's default. Raises
    UsageError.
    """
    arguments = {name: value for name, value in locals().items() if name != "spark"}
    from stratalog.spark.options import ReadOptions  # keeps `import stratalog.spark` cheap

    options = encode(arguments)
    ReadOptions.parse(options)
    return spark.read.format(FORMAT).options(**options).load()


def read_stream(
    spark: SparkSession,
    *,
    path: Path | Iterable[Path] | None = None,
    remote: str | None = None,
    remote_options: Mapping[str, str] | None = None,
    kafka: Mapping[str, str] | None = None,
    subscribe: str | Iterable[str] | None = None,
    subscribe_pattern: str | None = None,
    assign: Iterable[TopicPartition] | None = None,
    topic_id: str | Iterable[str] | None = None,
    starting_offsets: Literal["earliest", "latest"] | Mapping[TopicPartition, int] | None = None,
    starting_timestamp: Time | None = None,
    starting_offsets_by_timestamp: Mapping[TopicPartition, Time] | None = None,
    starting_offsets_by_timestamp_strategy: Literal["error", "latest"] | None = None,
    max_offsets_per_trigger: int | None = None,
    min_offsets_per_trigger: int | None = None,
    max_bytes_per_trigger: Bytes | None = None,
    max_trigger_delay: Duration | None = None,
    remote_poll_interval: Duration | None = None,
    include_headers: bool | None = None,
    columns: Iterable[str] | None = None,
    fail_on_data_loss: bool | None = None,
    isolation_level: Literal["read_uncommitted", "read_committed"] | None = None,
    split_bytes: Bytes | None = None,
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
    timestamp_disorder: Duration | None = None,
    push_filters: bool | None = None,
) -> DataFrame:
    """Return the records as a stream. It begins at the latest offsets by default: docs/reference/spark_streaming.md."""
    arguments = {name: value for name, value in locals().items() if name != "spark"}
    from stratalog.spark.stream import StreamOptions  # keeps `import stratalog.spark` cheap

    options = encode(arguments)
    StreamOptions.parse(options)
    return spark.readStream.format(FORMAT).options(**options).load()


def write(
    rows: DataFrame,
    *,
    path: Path | None = None,
    remote: str | None = None,
    remote_options: Mapping[str, str] | None = None,
    topic: str | None = None,
    partitions: int | None = None,
    codec: Literal["none", "gzip", "snappy", "lz4", "zstd"] | None = None,
    level: int | None = None,
    batch_bytes: Bytes | None = None,
    segment_bytes: Bytes | None = None,
    index_format: Literal[8, 12] | None = None,
    sort_by_time: bool | None = None,
    include_headers: bool | None = None,
    query_id: str | None = None,
    batch_id: int | None = None,
) -> None:
    """Write rows as whole segments into a data directory or a bucket, all or none: docs/reference/spark_sink.md.

    `query_id` and `batch_id` together number a write, as in `foreachBatch`. A number is written once.
    """
    arguments = {name: value for name, value in locals().items() if name != "rows"}
    from stratalog.spark.sink import SinkOptions  # keeps `import stratalog.spark` cheap

    options = encode(arguments)
    SinkOptions.parse(options)
    make_active(rows.sparkSession)
    rows.write.format(FORMAT).mode("append").options(**options).save()


def write_stream(
    rows: DataFrame,
    *,
    checkpoint_location: Path,
    path: Path | None = None,
    remote: str | None = None,
    remote_options: Mapping[str, str] | None = None,
    topic: str | None = None,
    partitions: int | None = None,
    codec: Literal["none", "gzip", "snappy", "lz4", "zstd"] | None = None,
    level: int | None = None,
    batch_bytes: Bytes | None = None,
    segment_bytes: Bytes | None = None,
    index_format: Literal[8, 12] | None = None,
    sort_by_time: bool | None = None,
    include_headers: bool | None = None,
) -> DataStreamWriter:
    """Return a writer of a stream. Give it a trigger and start it. Each batch is written once."""
    arguments = {name: value for name, value in locals().items() if name != "rows"}
    from stratalog.spark.sink import SinkOptions  # keeps `import stratalog.spark` cheap

    options = encode(arguments)
    SinkOptions.parse(options)
    make_active(rows.sparkSession)
    return rows.writeStream.format(FORMAT).options(**options)


# --- from Python values to the text of options ------------------------------------------------------------------------


def encode(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return options from arguments that are not None. Pure. Raises UsageError for an unsupported value."""
    options: dict[str, str] = {}
    for name, value in arguments.items():
        if value is None:
            continue
        match name:
            case "remote_options":
                options |= {f"remote.{key}": str(each) for key, each in value.items()}
            case "kafka":
                options |= {f"kafka.{key}": str(each) for key, each in value.items()}
            case "assign":
                options["assign"] = _assignment(value)
            case "path" | "checkpoint_location":
                paths = [value] if isinstance(value, str | PathLike) else value
                options[option_name(name)] = ",".join(absolute(str(each)) for each in paths)
            case _:
                options[option_name(name)] = _text(name, value)
    return options


def absolute(paths: str) -> str:
    """Make comma-separated paths absolute, except URLs: planners and workers have other working directories."""
    found = (each.strip() for each in paths.split(","))
    return ",".join(each if not each or ":/" in each else os.path.abspath(each) for each in found)


def option_name(argument: str) -> str:
    """Return the name of an option: `startingOffsets` for `starting_offsets`."""
    first, *rest = argument.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _text(name: str, value: Any) -> str:
    match value:
        case int() | str():
            return option_text(value)
        case datetime() | timedelta():
            return str(_milliseconds(value))
        case Mapping():
            return _by_partition(name, value)
        case PathLike():
            return str(value.__fspath__())
        case Iterable():
            return ",".join(str(each) for each in value)
    raise UsageError(f"{name}={value!r}: {type(value).__name__} is not a valid type of an option")


def _milliseconds(value: Any) -> int:
    """Return the milliseconds of a number, a time or a difference of times."""
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        value = aware - datetime(1970, 1, 1, tzinfo=UTC)
    return value // timedelta(milliseconds=1) if isinstance(value, timedelta) else int(value)


def _by_partition(name: str, value: Mapping[Any, Any]) -> str:
    """Return {("orders", 0): 5} as the JSON of the option."""
    return json.dumps(by_topic({_topic_partition(name, key): _milliseconds(each) for key, each in value.items()}))


def _assignment(value: Iterable[TopicPartition]) -> str:
    found: dict[str, list[int]] = {}
    for each in value:
        topic, partition = _topic_partition("assign", each)
        found.setdefault(topic, []).append(partition)
    return json.dumps(found)


def _topic_partition(name: str, key: Any) -> TopicPartition:
    match key:
        case (str(topic), int(partition)):
            return topic, partition
    raise UsageError(f'{name}: {key!r} is not a partition; expected (topic, number), such as ("orders", 0)')
