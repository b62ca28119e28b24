"""Sizes of the remote tier in DescribeLogDirs: our own tagged field at the end of the response.

Kafka's protocol has no field for them. It is included only if a partition has a remote tier; clients that do not know
it skip it (KIP-482). Its data is JSON: {topic: {partition: bytes of finished remote segments}}.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from stratalog.errors import StratalogError

if TYPE_CHECKING:
    from stratalog.engine import Partition

logger = logging.getLogger(__name__)

#: Far above the tags that Kafka assigns.
TAG = 10_000


def remote_sizes(partitions: Iterable[Partition]) -> dict[tuple[str, int], int]:
    """Return the bytes in the remote tier of each partition that has one, if currently known; may block."""
    sizes = {}
    for partition in partitions:
        if partition.remote is None:
            continue
        try:
            answer = partition.remote.sizes(partition.topic_id_partition)
        except StratalogError as error:
            logger.warning("%s-%d: size of the remote tier: %s", partition.topic, partition.partition, error)
        else:
            sizes[partition.topic, partition.partition] = answer.readable_bytes
    return sizes


def encode(sizes: Mapping[tuple[str, int], int]) -> bytes:
    by_topic: dict[str, dict[str, int]] = {}
    for (topic, partition), size in sizes.items():
        by_topic.setdefault(topic, {})[str(partition)] = size
    return json.dumps(by_topic, separators=(",", ":")).encode()


def decode(data: bytes) -> dict[tuple[str, int], int]:
    """Return the sizes. Raises ValueError unless the data is from `encode`."""
    by_topic: Any = json.loads(data)
    try:
        return {
            (str(topic), int(partition)): int(size)
            for topic, partitions in by_topic.items()
            for partition, size in partitions.items()
        }
    except (AttributeError, TypeError) as error:
        raise ValueError("sizes of the remote tier are no {topic: {partition: bytes}}") from error
