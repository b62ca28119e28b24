"""Options of the source: names and meanings of Spark's Kafka source, and a few of our own. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from stratalog.errors import UsageError
from stratalog.spark.options.kafka import broker_options, isolation_level
from stratalog.spark.options.limits import EARLIEST, LATEST, Limit, LimitKind, check_order, limit, no_ending
from stratalog.spark.options.partition_json import TopicPartition
from stratalog.spark.options.reader import BadValueError, OptionReader
from stratalog.spark.options.subscription import Subscription, subscription
from stratalog.util import uuid_from_base64
from stratalog.wire.client import ConnectionOptions

__all__ = [
    "COLUMNS",
    "EARLIEST",
    "LATEST",
    "Limit",
    "LimitKind",
    "OptionReader",
    "ReadOptions",
    "Subscription",
    "TopicPartition",
]

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""Columns of the source in their order; `headers` only with `includeHeaders` or when asked for."""

SPLIT_BYTES_DEFAULT: Final = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Validated options of a read. `docs/reference/spark_source.md` explains each one."""

    paths: tuple[str, ...]
    remote_url: str | None
    remote_options: Mapping[str, str] = field(repr=False)
    subscription: Subscription
    starting: Limit
    ending: Limit
    timestamp_strategy_is_latest: bool
    columns: tuple[str, ...]
    fail_on_data_loss: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    split_bytes: int
    read_committed: bool
    timestamp_disorder_ms: int | None
    push_filters: bool | None
    #: Ids that select topics where several have the same name.
    topic_ids: frozenset[UUID]
    #: How to reach the brokers; None to read without them.
    broker: ConnectionOptions | None

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool = False) -> ReadOptions:
        """Parse the options of a batch query, or of a stream, which has no end. Raises UsageError."""
        reader = OptionReader(options)
        paths = reader.paths()
        remote_url = reader.text("remote")
        broker = broker_options(options)
        if not paths and remote_url is None and broker is None:
            raise UsageError(
                "nothing to read: set option path to data directories, remote to the URL of an object store, "
                "kafka.bootstrap.servers to the address of a broker, or several of them"
            )
        parsed = cls(
            paths=paths,
            remote_url=remote_url,
            remote_options=reader.remote_options(),
            subscription=subscription(reader),
            starting=limit(reader, "starting", LimitKind.LATEST if streaming else LimitKind.EARLIEST, streaming),
            ending=no_ending(reader) if streaming else limit(reader, "ending", LimitKind.LATEST),
            timestamp_strategy_is_latest=reader.choice(
                "startingOffsetsByTimestampStrategy", ("error", "latest"), "error"
            )
            == "latest",
            columns=_columns(reader),
            fail_on_data_loss=reader.boolean("failOnDataLoss", True),
            min_partitions=reader.positive("minPartitions"),
            max_records_per_partition=reader.positive("maxRecordsPerPartition"),
            split_bytes=reader.byte_count("splitBytes", SPLIT_BYTES_DEFAULT),
            read_committed=isolation_level(reader),
            timestamp_disorder_ms=reader.duration_ms("timestampDisorder"),
            push_filters=reader.maybe_boolean("pushFilters"),
            topic_ids=reader.parsed("topicId", _topic_ids, "topic ids as Kafka writes them, with commas between")
            or frozenset(),
            broker=broker,
        )
        reader.refuse_unknown()
        check_order(parsed.starting, parsed.ending)
        return parsed


def _columns(reader: OptionReader) -> tuple[str, ...]:
    include_headers = reader.boolean("includeHeaders", False)
    columns = reader.parsed("columns", _column_names, f"some of {', '.join(COLUMNS)}, with commas between")
    if columns is not None:
        return columns
    return COLUMNS if include_headers else COLUMNS[:-1]


def _topic_ids(value: str) -> frozenset[UUID]:
    return frozenset(uuid_from_base64(each.strip()) for each in value.split(","))


def _column_names(value: str) -> tuple[str, ...]:
    by_lower = {name.lower(): name for name in COLUMNS}
    names = [name.strip() for name in value.split(",")]
    for name in names:
        if name.lower() not in by_lower:
            raise BadValueError(f"{name!r} is not a column")
    wanted = tuple(dict.fromkeys(by_lower[name.lower()] for name in names))
    if len(wanted) < len(names):
        raise BadValueError("a column is given twice")
    return wanted
