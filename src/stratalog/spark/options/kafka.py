"""Options that begin with `kafka.`: properties of Kafka's consumer. Pure.

As in Spark's Kafka source, any property is accepted, except those that would break the guarantees of the source.
Properties of the connection are used. Those of a consumer (poll sizes, group, buffers) have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from stratalog.errors import UsageError
from stratalog.spark.options.reader import OptionReader
from stratalog.wire.client import ConnectionOptions, client_properties

BOOTSTRAP_SERVERS: Final = "kafka.bootstrap.servers"
COMMAND_CONFIG: Final = "commandConfig"

_OF_A_CONNECTION: Final = (
    "client.id",
    "default.api.timeout.ms",
    "request.timeout.ms",
    "retry.backoff.ms",
    "sasl.",
    "security.protocol",
    "socket.connection.setup.timeout.ms",
    "ssl.",
)

_ISOLATION_LEVELS: Final = ("read_uncommitted", "read_committed")
_BY_OPTION: Final = "startingOffsets, startingTimestamp and the like say where a query begins"
_AS_BYTES: Final = "{0}s are given as bytes; use cast, from_json, from_avro and other functions on column {0}"

#: Properties that Spark's Kafka source refuses too, and why.
_REFUSED: Final[Mapping[str, str]] = {
    "kafka.auto.offset.reset": _BY_OPTION,
    "kafka.key.deserializer": _AS_BYTES.format("key"),
    "kafka.value.deserializer": _AS_BYTES.format("value"),
    "kafka.enable.auto.commit": "the source commits no offsets",
    "kafka.interceptor.classes": "there is no consumer here that could run them, and they could change what is read",
}


def broker_options(options: Mapping[str, str]) -> ConnectionOptions | None:
    """Return how to reach the cluster, or None without `kafka.bootstrap.servers`. Raises UsageError."""
    by_name = {name.lower(): str(value) for name, value in options.items()}
    for name, why in _REFUSED.items():
        if name in by_name:
            raise UsageError(f"option {name} is not supported: {why}")
    if BOOTSTRAP_SERVERS not in by_name:
        return None
    return ConnectionOptions.of(by_name, what=f"option {BOOTSTRAP_SERVERS}")


def with_client_properties(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options, with further connection properties from the file of `commandConfig`.

    Options take precedence over the file. Other properties of the file are ignored, because other programs use such
    files too. The brokers must be given in `kafka.bootstrap.servers`. A UsageError names the file.
    """
    found = {name: str(value) for name, value in options.items() if name.lower() != COMMAND_CONFIG.lower()}
    if len(found) == len(options):
        return found
    (path,) = (str(value) for name, value in options.items() if name.lower() == COMMAND_CONFIG.lower())
    given = {name.lower() for name in found}
    for name, value in client_properties(Path(path), f"option {COMMAND_CONFIG}").items():
        option = f"kafka.{name}"
        if name.startswith(_OF_A_CONNECTION) and option not in given:
            found[option] = value
    return found


def isolation_level(reader: OptionReader) -> bool:
    """Return whether to read only committed records, from `isolationLevel` or Spark's `kafka.isolation.level`."""
    name, kafka_name = "isolationLevel", "kafka.isolation.level"
    own, kafka = (reader.choice(each, _ISOLATION_LEVELS, "") for each in (name, kafka_name))
    if own and kafka and own != kafka:
        raise UsageError(f"option {name}={own} contradicts {kafka_name}={kafka}; one of them is enough")
    return (own or kafka) == "read_committed"
