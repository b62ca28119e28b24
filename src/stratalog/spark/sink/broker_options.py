"""Options of a write through brokers, checked before any job starts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from stratalog.errors import UsageError
from stratalog.records import Codec
from stratalog.spark.options import BOOTSTRAP_SERVERS, OptionReader
from stratalog.spark.sink.options import codec_level, stream_name, whole_number
from stratalog.wire.client import ConnectionOptions

#: Fits the default `message.max.bytes` of a broker, with room for the overhead of a codec.
BATCH_BYTES: Final = 512 * 1024
TRANSACTION_TIMEOUT_MS: Final = 900_000
_DELIVERIES: Final = ("exactlyOnce", "atLeastOnce")

#: Properties that Spark's Kafka sink refuses, and those that this sink sets itself.
_REFUSED: Final[Mapping[str, str]] = {
    "kafka.key.serializer": "keys are written as the bytes of column key",
    "kafka.value.serializer": "values are written as the bytes of column value",
    "kafka.enable.idempotence": "every write is idempotent",
    "kafka.acks": "every write waits for all in-sync replicas",
    "kafka.transactional.id": "the sink names its transactions itself; queryId says by what",
}


@dataclass(frozen=True, slots=True)
class BrokerSinkOptions:
    """`stream` names a query that resumes after a restart, `batch` numbers a write; see `SinkOptions`."""

    cluster: ConnectionOptions
    topic: str | None
    codec: Codec
    level: int | None
    batch_bytes: int
    include_headers: bool
    is_transactional: bool
    transaction_timeout_ms: int
    stream: str | None
    batch: int | None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> BrokerSinkOptions:
        """Parse the options of a write through brokers. A UsageError names the option."""
        by_name = {name.lower(): str(value) for name, value in options.items()}
        for name, why in _REFUSED.items():
            if name in by_name:
                raise UsageError(f"option {name} is not supported: {why}")
        read = OptionReader(options)
        if read.paths() or read.text("remote") is not None:
            raise UsageError(
                f"a write goes to one place: {BOOTSTRAP_SERVERS} through brokers, path or remote past them"
            )
        codec = read.parsed("codec", Codec.from_name, "none, gzip, snappy, lz4 or zstd")
        codec = codec or _producers_codec(by_name)
        checkpoint, query = read.text("checkpointLocation"), read.text("queryId")
        parsed = cls(
            cluster=ConnectionOptions.of(by_name, what=f"option {BOOTSTRAP_SERVERS}"),
            topic=read.text("topic"),
            codec=codec,
            level=codec_level(read, codec),
            batch_bytes=read.byte_count("batchBytes", BATCH_BYTES),
            include_headers=read.boolean("includeHeaders", True),
            is_transactional=read.choice("delivery", _DELIVERIES, "exactlyOnce") == "exactlyOnce",
            transaction_timeout_ms=read.duration_ms("transactionTimeout") or TRANSACTION_TIMEOUT_MS,
            stream=stream_name(checkpoint) if query is None else stream_name(query, read.text("topic")),
            batch=read.parsed(
                "batchId", whole_number, "a whole number, 0 or more, larger than that of the batch before"
            ),
        )
        read.refuse_unknown()
        if parsed.batch is not None and query is None:
            raise UsageError(f"option batchId={parsed.batch}: option queryId has to say whose batch this is")
        return parsed


def goes_through_brokers(options: Mapping[str, str]) -> bool:
    return any(name.lower() == BOOTSTRAP_SERVERS for name in options)


def _producers_codec(options: Mapping[str, str]) -> Codec:
    """Return the codec of `kafka.compression.type`, which Spark's sink passes to Kafka's producer."""
    name = options.get("kafka.compression.type", "none")
    try:
        return Codec.from_name(name)
    except ValueError:
        raise UsageError(f"option kafka.compression.type={name}: expected none, gzip, snappy, lz4 or zstd") from None
