"""The sources of `retention explain`: the files of log directories, a broker, or both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stratalog.cli.connection import ClusterOptions
from stratalog.cli.log_dirs import describe_log_dirs
from stratalog.cli.topic_configs import served_configs, stored_configs
from stratalog.errors import UnknownTopicOrPartitionError, UnsupportedVersionError, UsageError
from stratalog.jobs.retention import KnownOffsets
from stratalog.log import list_partitions
from stratalog.wire.client import (
    EARLIEST_LOCAL_OFFSET,
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    LATEST_TIERED_OFFSET,
    MAX_TIMESTAMP_OFFSET,
    Cluster,
)


@dataclass(frozen=True, slots=True)
class ServedPartition:
    """A partition as a broker reports it. `newest_ms` is the largest record timestamp, -1 if there is none.

    `size_bytes` is its size in the broker's directories, None if unknown.
    """

    partition: int
    offsets: KnownOffsets
    newest_ms: int
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class RetentionSources:
    """The topic's settings, the numbers of its partitions on disk, and a broker's report of them."""

    properties: dict[str, str]
    partitions: frozenset[int]
    served: tuple[ServedPartition, ...]
    #: What is unknown, one line each.
    notes: tuple[str, ...]


def gather(
    topic: str, directories: Sequence[Path], bootstrap_server: str | None, command_config: Path | None = None
) -> RetentionSources:
    """UsageError when there is neither; UnknownTopicOrPartitionError when the topic is unknown."""
    if not directories and bootstrap_server is None:
        raise UsageError("no source given: use --data-dir DIR, --bootstrap-server H:P, or both")
    notes: list[str] = []
    served: tuple[ServedPartition, ...] = ()
    properties: dict[str, str] | None = None
    if bootstrap_server is not None:
        with ClusterOptions(bootstrap_server=bootstrap_server, command_config=command_config).open() as cluster:
            properties = served_configs(cluster, [topic])[topic]
            served = tuple(_served(cluster, topic))
    partitions = _on_disk(topic, directories)
    if directories and not partitions:
        raise UnknownTopicOrPartitionError(f"{topic}: no partition of this topic in {', '.join(map(str, directories))}")
    if properties is None:
        stored = stored_configs(directories)
        if topic not in stored:
            notes.append(
                f"the settings of {topic} are not in these directories, so Kafka's defaults are assumed; "
                "give --bootstrap-server or --what-if"
            )
        properties = stored.get(topic, {})
        notes.append("no broker was asked: the end of the log is assumed to be the high watermark")
    if not directories:
        notes.append(
            "Kafka's protocol does not describe segments, so only whole partitions are explained; "
            "give --data-dir on the broker's machine for segments"
        )
    return RetentionSources(properties, frozenset(partitions), served, tuple(notes))


def _on_disk(topic: str, directories: Sequence[Path]) -> set[int]:
    return {number for each in directories for name, number, _ in list_partitions(each) if name == topic}


def _served(cluster: Cluster, topic: str) -> list[ServedPartition]:
    numbers = range(len(cluster.topic(topic).partitions))
    keys = [(topic, number) for number in numbers]
    starts = cluster.list_offsets(dict.fromkeys(keys, EARLIEST_OFFSET))
    ends = cluster.list_offsets(dict.fromkeys(keys, LATEST_OFFSET))
    newest = cluster.list_offsets(dict.fromkeys(keys, MAX_TIMESTAMP_OFFSET))
    try:
        local = cluster.list_offsets(dict.fromkeys(keys, EARLIEST_LOCAL_OFFSET))
        tiered = cluster.list_offsets(dict.fromkeys(keys, LATEST_TIERED_OFFSET))
    except (UsageError, UnsupportedVersionError):  # a broker older than tiered storage
        local, tiered = {}, {}
    sizes = _sizes(cluster, topic)
    return [
        ServedPartition(
            number,
            KnownOffsets(
                starts[key].offset,
                ends[key].offset,
                local[key].offset if key in local else None,
                tiered[key].offset if key in tiered else None,
            ),
            newest[key].timestamp_ms if newest[key].offset >= 0 else -1,
            sizes.get(number),
        )
        for number, key in zip(numbers, keys, strict=True)
    ]


def _sizes(cluster: Cluster, topic: str) -> dict[int, int]:
    """Bytes of each partition in the broker's directories: the largest replica."""
    sizes: dict[int, int] = {}
    numbers = tuple(range(len(cluster.topic(topic).partitions)))
    for broker in sorted(cluster.nodes()):
        directories, _ = describe_log_dirs(broker, cluster.node(broker), [{"topic": topic, "partitions": numbers}])
        for directory in directories:
            for described in directory.topics:
                for partition in described.partitions:
                    if not partition.is_future_key:
                        number = partition.partition_index
                        sizes[number] = max(sizes.get(number, 0), partition.partition_size)
    return sizes
