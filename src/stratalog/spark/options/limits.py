"""The options that say where reading begins and ends: offsets or timestamps, for all or by partition. Pure."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from stratalog.errors import UsageError
from stratalog.spark.options.partition_json import TopicPartition, json_by_partition
from stratalog.spark.options.reader import BadValueError, OptionReader

LATEST: Final = -1
EARLIEST: Final = -2


class LimitKind(enum.Enum):
    """The form of a starting or ending limit."""

    EARLIEST = "earliest"
    LATEST = "latest"
    #: one timestamp for all partitions
    TIMESTAMP = "timestamp"
    #: offsets by partition, with -1 (latest) and -2 (earliest)
    OFFSETS = "offsets"
    #: timestamps by partition
    TIMESTAMPS = "timestamps"


@dataclass(frozen=True, slots=True)
class Limit:
    """Where reading begins or ends. `option` is the option that set it, for messages."""

    kind: LimitKind
    option: str
    timestamp_ms: int = 0
    by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)


def no_ending(reader: OptionReader) -> Limit:
    for name in ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"):
        value = reader.text(name)
        if value is not None:
            raise UsageError(f"option {name}={value}: a stream has no end; it is for batch queries")
    return Limit(LimitKind.LATEST, "endingOffsets")


def limit(reader: OptionReader, side: str, default: LimitKind, streaming: bool = False) -> Limit:
    """Return the limit of one side, from the first of its three options that is set, in the order of Spark's source."""
    by_timestamp = f"{side}OffsetsByTimestamp"
    name = f"{side}Timestamp"
    one = reader.parsed(name, _timestamp, "milliseconds since the epoch")
    example = 'milliseconds by partition, such as {"topicA":{"0":1700000000000}}'
    each = reader.parsed(by_timestamp, _json_timestamps, example)
    offsets = _offsets(reader, f"{side}Offsets", default, streaming=streaming)
    if one is not None:
        return Limit(LimitKind.TIMESTAMP, name, timestamp_ms=one)
    if each is not None:
        return Limit(LimitKind.TIMESTAMPS, by_timestamp, by_partition=each)
    return offsets


def _offsets(reader: OptionReader, name: str, default: LimitKind, *, streaming: bool) -> Limit:
    """Parse `earliest`, `latest` or offsets. A batch cannot start at the latest offset or end at the earliest."""
    value = reader.text(name)
    if value is None:
        return Limit(default, name)
    words = {LimitKind.EARLIEST.value: EARLIEST, LimitKind.LATEST.value: LATEST}
    refused = None if streaming else LATEST if default is LimitKind.EARLIEST else EARLIEST
    why = f"a batch query cannot {'start at the end' if refused == LATEST else 'end at the start'}"
    if value.lower() in words:
        if words[value.lower()] == refused:
            raise UsageError(f"option {name}={value}: {why}")
        return Limit(LimitKind(value.lower()), name)
    allowed = {word: number for word, number in words.items() if number != refused}
    example = {"0": 23, **{str(partition): number for partition, number in enumerate(allowed.values(), 1)}}
    expected = f"{', '.join(allowed)}, or offsets by partition, such as {json.dumps({'topicA': example})}"
    found = reader.parsed(name, json_by_partition, expected) or {}
    for (topic, partition), offset in found.items():
        if offset == refused:
            word = next(word for word, number in words.items() if number == refused)
            raise UsageError(f"option {name}={value}: {topic}-{partition} has {refused}, which is {word}; {why}")
        if offset < EARLIEST:
            raise UsageError(f"option {name}={value}: {topic}-{partition} has {offset}; expected {expected}")
    return Limit(LimitKind.OFFSETS, name, by_partition=found)


def _timestamp(value: str) -> int:
    number = int(value)
    if number < 0:
        raise ValueError
    return number


def _json_timestamps(value: str) -> dict[TopicPartition, int]:
    found = json_by_partition(value)
    for (topic, partition), timestamp in found.items():
        if timestamp < 0:
            raise BadValueError(f"{timestamp} for {topic}-{partition}")
    return found


def check_order(starting: Limit, ending: Limit) -> None:
    """Raise UsageError if both sides give a partition the same kind of limit, and the start is after the end."""
    if starting.kind is not ending.kind:
        return
    for (topic, partition), start in starting.by_partition.items():
        end = ending.by_partition.get((topic, partition))
        if end is not None and 0 <= end < start:
            raise UsageError(
                f"option {starting.option} has {start} for {topic}-{partition}, which is past {end}, "
                f"where {ending.option} ends"
            )
