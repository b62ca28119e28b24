"""A stream's offsets: the next offset of each partition, as JSON in the form of Spark's Kafka source.

    {"flights": {"0": 123, "1": 45}, "orders": {"0": 7}}

Spark compares offsets by their text and keeps them in the checkpoint: topics and partitions are sorted, so that equal
offsets are equal text. Checkpoints of the Kafka source can be read too. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from stratalog.errors import StratalogError
from stratalog.spark.options import TopicPartition

Offsets = Mapping[TopicPartition, int]

_PARTITION = re.compile(r"0|[1-9]\d*")


class CorruptOffsetsError(StratalogError):
    """A checkpoint does not have offsets of this source."""


def parse(document: Any) -> dict[TopicPartition, int]:
    """Return the offsets of a document. Raises CorruptOffsetsError."""
    if not isinstance(document, dict):
        raise _corrupt(document)
    found: dict[TopicPartition, int] = {}
    for topic, by_partition in document.items():
        if not isinstance(by_partition, dict):
            raise _corrupt(document)
        for partition, offset in by_partition.items():
            is_whole = isinstance(offset, int) and not isinstance(offset, bool) and offset >= 0
            if not is_whole or not _PARTITION.fullmatch(partition):
                raise _corrupt({topic: {partition: offset}})
            found[topic, int(partition)] = offset
    return found


def name(key: TopicPartition) -> str:
    """Return `topic-partition` for messages."""
    return f"{key[0]}-{key[1]}"


def _corrupt(found: Any) -> CorruptOffsetsError:
    return CorruptOffsetsError(
        f'the checkpoint has {str(found)[:200]} where offsets by partition, such as {{"topicA":{{"0":123}}}}, belong; '
        "is it of another source?"
    )
