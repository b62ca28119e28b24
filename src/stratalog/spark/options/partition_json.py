"""JSON with numbers by partition, or with partitions, in the form of Spark's Kafka source. Pure.

A wrong value raises ValueError; the text of a `BadValueError` says why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from stratalog.spark.options.reader import BadValueError

TopicPartition = tuple[str, int]


def json_by_partition(value: str) -> dict[TopicPartition, int]:
    """Parse numbers by partition, such as `{"topic": {"0": 23, "1": -2}}`."""
    document = json.loads(value, object_pairs_hook=_unique_pairs)
    if not isinstance(document, dict) or not document:
        raise ValueError
    found = {}
    for topic, by_partition in document.items():
        if not isinstance(by_partition, dict) or not by_partition:
            raise BadValueError(f"no partitions for {topic}")
        for partition, number in by_partition.items():
            is_whole = isinstance(number, int) and not isinstance(number, bool)
            if not re.fullmatch(r"[0-9]+", partition) or not is_whole:
                raise BadValueError(f"{topic} has {partition!r}: {json.dumps(number)}")
            found[topic, int(partition)] = number
    return found


def by_topic(values: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return numbers by partition, sorted, in the form that `json_by_partition` parses."""
    document: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(values):
        document.setdefault(topic, {})[str(partition)] = values[topic, partition]
    return document


def json_assignment(value: str) -> frozenset[TopicPartition]:
    """Parse partitions, such as `{"topicA": [0, 1], "topicB": [2]}`."""
    document = json.loads(value)
    if not isinstance(document, dict) or not document:
        raise ValueError
    found = set()
    for topic, partitions in document.items():
        if not isinstance(partitions, list) or not partitions:
            raise BadValueError(f"{topic} has no list of partitions")
        for partition in partitions:
            if isinstance(partition, bool) or not isinstance(partition, int) or partition < 0:
                raise BadValueError(f"{topic} has {json.dumps(partition)}")
            found.add((topic, partition))
    return frozenset(found)


def _unique_pairs(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise BadValueError(f"{key} is given twice")
        found[key] = value
    return found
