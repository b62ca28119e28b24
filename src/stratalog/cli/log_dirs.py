"""`stratalog log-dirs`: sizes of the log directories of each broker, and of the remote tier, in Kafka's JSON format."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from stratalog.broker import TAG as REMOTE_SIZES_TAG, decode
from stratalog.cli.connection import ClusterOptions
from stratalog.cli.options import Json, Topics
from stratalog.cli.out import on_terminal, print_json
from stratalog.errors import CorruptRecordError, UsageError
from stratalog.util import VARINT_BYTES_MAX, decode_unsigned, print_table
from stratalog.wire import ApiKey, message_module, read_message
from stratalog.wire.client import Client, Cluster, RefusedError, UnreachableError, check_topic

#: From 2 on messages have tagged fields.
_VERSIONS = (2, 4)
#: Fields before the results: throttle time, and from version 3 on the error of the whole response.
_ERROR_FROM = 3


@dataclass(frozen=True, slots=True)
class DirectoryListing:
    """The response of one broker: a `DescribeLogDirsResult` for each directory, and bytes in the remote tier."""

    broker: int
    directories: list[Any]
    remote: dict[tuple[str, int], int]


def describe(
    servers: ClusterOptions,
    topic: Topics = None,
    topic_list: Annotated[
        str | None, typer.Option("--topic-list", metavar="A,B", help="Same as --topic, for users of kafka-log-dirs.")
    ] = None,
    broker_list: Annotated[str | None, typer.Option("--broker-list", metavar="1,2", help="Only these brokers.")] = None,
    json_: Json = False,
) -> int:
    """Describe the size of every partition, by broker and directory.

    `remoteSize` is shown for partitions with a remote tier.

    \b
    Examples:
      stratalog log-dirs describe --bootstrap-server h:9092
      stratalog log-dirs describe --bootstrap-server h:9092 --topic-list orders \\
        --json
    """
    with servers.open() as cluster:
        brokers = sorted(cluster.nodes()) if broker_list is None else _ids(broker_list)
        names = [*(topic or ()), *_names(topic_list or "")]
        asked = topic is not None or topic_list is not None
        topics = _partitions_of(cluster, names) if asked else None
        listings = [_listing(broker, cluster.node(broker), topics) for broker in brokers]
    value = _as_json(listings)
    if json_:
        print_json(value)
    elif on_terminal():
        print_table(("broker", "directory", "partition", "bytes", "remote bytes", "lag"), _rows(listings))
    else:
        print("Querying brokers for log directories information")
        print(f"Received log directory information from brokers {','.join(map(str, brokers))}")
        print_json(value)
    return 0


def _names(text: str) -> list[str]:
    return [name for name in (part.strip() for part in text.split(",")) if name]


def _ids(text: str) -> list[int]:
    names = _names(text)
    if not names or not all(name.isdecimal() for name in names):
        raise UsageError(f"--broker-list {text}: expected ids of brokers, such as 1,2")
    return [int(name) for name in names]


def _partitions_of(cluster: Cluster, names: list[str]) -> list[dict[str, Any]]:
    """Return all partitions of topics; RefusedError for a topic that does not exist."""
    if not names:
        raise UsageError("--topic-list names no topic")
    answer = cluster.any.call(
        ApiKey.METADATA, (1, 12), topics=[{"name": name} for name in names], allow_auto_topic_creation=False
    )
    for topic in answer.topics:
        check_topic(topic.error_code, topic.name)
    return [
        {"topic": topic.name, "partitions": tuple(part.partition_index for part in topic.partitions)}
        for topic in answer.topics
    ]


def _listing(broker: int, client: Client, topics: list[dict[str, Any]] | None) -> DirectoryListing:
    directories, fields = describe_log_dirs(broker, client, topics)
    sizes = fields.get(REMOTE_SIZES_TAG)
    return DirectoryListing(broker, directories, {} if sizes is None else decode(sizes))


def describe_log_dirs(
    broker: int, client: Client, topics: list[dict[str, Any]] | None
) -> tuple[list[Any], dict[int, bytes]]:
    """Query a broker for its directories, with our own tagged fields. Raises UnreachableError or RefusedError."""
    version = client.version(ApiKey.DESCRIBE_LOG_DIRS, _VERSIONS)
    body = client.exchange(ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": topics})
    try:
        return _read_response(broker, version, body)
    except (CorruptRecordError, ValueError, KeyError, IndexError, struct.error) as error:
        raise UnreachableError(f"broker {broker} does not answer like a Kafka broker: {error}") from error


def _read_response(broker: int, version: int, body: bytes) -> tuple[list[Any], dict[int, bytes]]:
    """Decode a response in parts: kio does not support the tagged field that we add at its end."""
    module = message_module(ApiKey.DESCRIBE_LOG_DIRS, version, "response")
    position = 4
    if version >= _ERROR_FROM:
        (code,) = struct.unpack_from(">h", body, position)
        position += 2
        if code:
            raise RefusedError(f"broker {broker} refused to describe its log directories: error {code}")
    count, position = decode_unsigned(body, position, VARINT_BYTES_MAX)
    directories = []
    for _ in range(count - 1):
        directory, size = read_message(module.DescribeLogDirsResult, body, position)
        directories.append(directory)
        position += size
    return directories, _tagged_fields(body, position)


def _tagged_fields(body: bytes, position: int) -> dict[int, bytes]:
    fields = {}
    count, position = decode_unsigned(body, position, VARINT_BYTES_MAX)
    for _ in range(count):
        tag, position = decode_unsigned(body, position, VARINT_BYTES_MAX)
        size, position = decode_unsigned(body, position, VARINT_BYTES_MAX)
        fields[tag] = body[position : position + size]
        position += size
    return fields


def _as_json(listings: list[DirectoryListing]) -> dict[str, Any]:
    return {
        "brokers": [
            {
                "broker": listing.broker,
                "logDirs": [
                    {
                        "partitions": _partitions(listing, directory),
                        "error": _error(directory),
                        "logDir": directory.log_dir,
                    }
                    for directory in listing.directories
                ],
            }
            for listing in listings
        ],
        "version": 1,
    }


def _partitions(listing: DirectoryListing, directory: Any) -> list[dict[str, Any]]:
    found = []
    for topic in directory.topics:
        for part in topic.partitions:
            facts: dict[str, Any] = {
                "partition": f"{topic.name}-{part.partition_index}",
                "size": int(part.partition_size),
                "offsetLag": int(part.offset_lag),
                "isFuture": bool(part.is_future_key),
            }
            remote = listing.remote.get((topic.name, int(part.partition_index)))
            if remote is not None:
                facts["remoteSize"] = remote
            found.append(facts)
    return found


def _error(directory: Any) -> str | None:
    return directory.error_code.name.upper() if int(directory.error_code) else None


def _rows(listings: list[DirectoryListing]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for listing in listings:
        for directory in listing.directories:
            head = (listing.broker, directory.log_dir)
            if _error(directory):
                rows.append((*head, _error(directory), None, None, None))
            rows.extend(
                (*head, part["partition"], part["size"], part.get("remoteSize"), part["offsetLag"])
                for part in _partitions(listing, directory)
            )
    return rows
