"""Options of the source: names and meanings of Spark's Kafka source, and a few of our own. Pure.

Names are not case-sensitive, as everywhere in Spark. An error names the option, its value and what was expected. Options
that begin with `kafka.` are accepted and not used: no broker is asked.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from stratalog.errors import UsageError

TopicPartition = tuple[str, int]
T = TypeVar("T")

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""Columns of the source in their order; `headers` only with `includeHeaders` or when asked for."""

SPLIT_BYTES_DEFAULT: Final = 128 * 1024 * 1024

LATEST: Final = -1
EARLIEST: Final = -2

#: Kafka's internal topics: a pattern never means them.
INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", "__remote_log_metadata"}
)

_REMOTE_PREFIX: Final = "remote."
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class LimitKind(enum.Enum):
    """What a starting or ending limit is given as."""

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
    """Where reading begins or ends; `option` is the option that said so, for messages."""

    kind: LimitKind
    option: str
    timestamp_ms: int = 0
    by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Subscription:
    """Exactly one of: names of topics, a pattern that a topic's whole name matches, partitions."""

    topics: frozenset[str] | None = None
    pattern: re.Pattern[str] | None = None
    partitions: frozenset[TopicPartition] | None = None

    def wants_topic(self, topic: str) -> bool:
        if self.topics is not None:
            return topic in self.topics
        if self.pattern is not None:
            return topic not in INTERNAL_TOPICS and self.pattern.fullmatch(topic) is not None
        return any(topic == name for name, _ in self.partitions or ())

    def wants(self, topic: str, partition: int) -> bool:
        if self.partitions is not None:
            return (topic, partition) in self.partitions
        return self.wants_topic(topic)

    @property
    def named_topics(self) -> frozenset[str]:
        """Topics that were asked for by name, so that it is an error if they are missing."""
        if self.topics is not None:
            return self.topics
        return frozenset(topic for topic, _ in self.partitions or ())


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read, validated. `docs/spark.md` explains each one."""

    paths: tuple[str, ...]
    remote_url: str | None
    remote_options: Mapping[str, str]
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

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool = False) -> ReadOptions:
        """The options of a batch, or of a stream: that may begin at the latest offset (and does, if nothing else is said),
        and has no end. Raises UsageError."""
        reader = OptionReader(options)
        paths = reader.paths()
        remote_url = reader.text("remote")
        if not paths and remote_url is None:
            raise UsageError(
                "nothing to read: set option path to data directories, remote to the URL of an object store, or both"
            )
        parsed = cls(
            paths=paths,
            remote_url=remote_url,
            remote_options=reader.remote_options(),
            subscription=_subscription(reader),
            starting=_limit(
                reader, "starting", LimitKind.LATEST if streaming else LimitKind.EARLIEST, streaming
            ),
            ending=_no_ending(reader) if streaming else _limit(reader, "ending", LimitKind.LATEST),
            timestamp_strategy_is_latest=reader.choice(
                "startingOffsetsByTimestampStrategy", ("error", "latest"), "error"
            )
            == "latest",
            columns=_columns(reader),
            fail_on_data_loss=reader.boolean("failOnDataLoss", True),
            min_partitions=reader.positive("minPartitions"),
            max_records_per_partition=reader.positive("maxRecordsPerPartition"),
            split_bytes=reader.byte_count("splitBytes", SPLIT_BYTES_DEFAULT),
            read_committed=reader.choice(
                "isolationLevel", ("read_uncommitted", "read_committed"), "read_uncommitted"
            )
            == "read_committed",
            timestamp_disorder_ms=reader.duration_ms("timestampDisorder"),
            push_filters=reader.maybe_boolean("pushFilters"),
        )
        reader.refuse_unknown()
        return parsed


class OptionReader:
    """Typed access to the options; remembers which are known."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): (name, str(value)) for name, value in options.items()}
        self._known: set[str] = set()

    def text(self, name: str) -> str | None:
        """The value without blanks around it; an empty one is an error."""
        self._known.add(name.lower())
        found = self._options.get(name.lower())
        if found is None:
            return None
        value = found[1].strip()
        if not value:
            raise UsageError(f"option {name} is empty")
        return value

    def parsed(self, name: str, parse: Callable[[str], T], expected: str) -> T | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            return parse(value)
        except (ValueError, TypeError, KeyError) as error:
            detail = f" ({error})" if isinstance(error, _BadValueError) else ""
            raise UsageError(f"option {name}={value}: expected {expected}{detail}") from None

    def boolean(self, name: str, default: bool) -> bool:
        found = self.maybe_boolean(name)
        return default if found is None else found

    def maybe_boolean(self, name: str) -> bool | None:
        values = {"true": True, "false": False}
        return self.parsed(name, lambda value: values[value.lower()], "true or false")

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        known = {choice: choice for choice in choices}
        found = self.parsed(name, lambda value: known[value.lower()], " or ".join(choices))
        return found or default

    def positive(self, name: str) -> int | None:
        return self.parsed(name, _positive, "a whole number greater than 0")

    def byte_count(self, name: str, default: int) -> int:
        return self.maybe_byte_count(name) or default

    def maybe_byte_count(self, name: str) -> int | None:
        return self.parsed(name, _byte_count, "a number of bytes greater than 0, such as 67108864 or 64m")

    def duration_ms(self, name: str) -> int | None:
        return self.parsed(
            name, _duration_ms, "a time in milliseconds, or with a unit, such as 500, 30s, 10m or 1h"
        )

    def paths(self) -> tuple[str, ...]:
        """`path`, several with commas between; or what `load([..])` makes of a list."""
        several = self.parsed("paths", _json_strings, "a JSON list of paths")
        one = self.text("path")
        return tuple(several or ()) + tuple(p.strip() for p in (one or "").split(",") if p.strip())

    def remote_options(self) -> dict[str, str]:
        return {
            name[len(_REMOTE_PREFIX) :]: value
            for name, (_, value) in self._options.items()
            if name.startswith(_REMOTE_PREFIX)
        }

    def refuse_unknown(self) -> None:
        """A misspelt option must not silently mean its default."""
        for lower, (name, value) in self._options.items():
            if (
                lower not in self._known
                and not lower.startswith((_REMOTE_PREFIX, "kafka."))
                and lower not in _UNUSED
            ):
                raise UsageError(f"option {name}={value} is unknown; docs/spark.md lists the options")


#: Options of Spark's Kafka source that make no difference here, and those of a stream's triggers (`spark.stream.options`).
_UNUSED: Final = frozenset(
    {
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "groupidprefix",
        "kafkaconsumer.polltimeoutms",
        "maxbytespertrigger",
        "maxoffsetspertrigger",
        "maxtriggerdelay",
        "minoffsetspertrigger",
        "remotepollinterval",
    }
)


class _BadValueError(ValueError):
    """A value that was understood far enough to say what is wrong with it."""


# --- values -------------------------------------------------------------------------------------------------------------


def _positive(value: str) -> int:
    number = int(value)
    if number < 1:
        raise ValueError
    return number


def _byte_count(value: str) -> int:
    match = re.fullmatch(r"(\d+)\s*(?:([kmg])(?:i?b)?|b)?", value.lower())
    if match is None:
        raise ValueError
    return _positive(match[1]) << {None: 0, "k": 10, "m": 20, "g": 30}[match[2]]


def _duration_ms(value: str) -> int:
    match = re.fullmatch(r"(\d+)\s*(ms|s|m|h|d)?", value.lower())
    if match is None:
        raise ValueError
    return int(match[1]) * _UNITS_MS[match[2] or "ms"]


def _json_strings(value: str) -> list[str]:
    found = json.loads(value)
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError
    return found


def _json_by_partition(value: str) -> dict[TopicPartition, int]:
    """{"topic": {"0": 23, "1": -2}}"""
    document = json.loads(value, object_pairs_hook=_unique_pairs)
    if not isinstance(document, dict) or not document:
        raise ValueError
    found = {}
    for topic, by_partition in document.items():
        if not isinstance(by_partition, dict) or not by_partition:
            raise _BadValueError(f"no partitions for {topic}")
        for partition, number in by_partition.items():
            is_whole = isinstance(number, int) and not isinstance(number, bool)
            if not re.fullmatch(r"[0-9]+", partition) or not is_whole:
                raise _BadValueError(f"{topic} has {partition!r}: {json.dumps(number)}")
            found[topic, int(partition)] = number
    return found


def _json_assignment(value: str) -> frozenset[TopicPartition]:
    """{"topicA": [0, 1], "topicB": [2]}"""
    document = json.loads(value)
    if not isinstance(document, dict) or not document:
        raise ValueError
    found = set()
    for topic, partitions in document.items():
        if not isinstance(partitions, list) or not partitions:
            raise _BadValueError(f"no list of partitions for {topic}")
        for partition in partitions:
            if isinstance(partition, bool) or not isinstance(partition, int) or partition < 0:
                raise _BadValueError(f"{topic} has {json.dumps(partition)}")
            found.add((topic, partition))
    return frozenset(found)


def _unique_pairs(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _BadValueError(f"{key} is there twice")
        found[key] = value
    return found


# --- options ------------------------------------------------------------------------------------------------------------


def _subscription(reader: OptionReader) -> Subscription:
    topics = reader.parsed("subscribe", _topic_names, "names of topics with commas between")
    pattern = reader.parsed("subscribePattern", _pattern, "a regular expression")
    partitions = reader.parsed("assign", _json_assignment, 'partitions by topic, such as {"topicA":[0,1]}')
    given = [each for each in (topics, pattern, partitions) if each is not None]
    if len(given) != 1:
        raise UsageError(
            f"{len(given) or 'none'} of the options subscribe, subscribePattern and assign {'are' if given else 'is'} set; "
            "exactly one says what to read"
        )
    return Subscription(topics, pattern, partitions)


def _topic_names(value: str) -> frozenset[str]:
    names = frozenset(name.strip() for name in value.split(","))
    if "" in names:
        raise ValueError
    return names


def _pattern(value: str) -> re.Pattern[str]:
    try:
        return re.compile(value)
    except re.error as error:
        raise _BadValueError(str(error)) from None


def _no_ending(reader: OptionReader) -> Limit:
    for name in ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets"):
        value = reader.text(name)
        if value is not None:
            raise UsageError(f"option {name}={value}: a stream has no end; it is for batch queries")
    return Limit(LimitKind.LATEST, "endingOffsets")


def _limit(reader: OptionReader, side: str, default: LimitKind, streaming: bool = False) -> Limit:
    """Of the three options of one side the one that counts, in the order of Spark's source."""
    by_timestamp = f"{side}OffsetsByTimestamp"
    name = f"{side}Timestamp"
    one = reader.parsed(name, _timestamp, "milliseconds since the epoch")
    example = 'milliseconds by partition, such as {"topicA":{"0":1700000000000}}'
    each = reader.parsed(by_timestamp, _json_timestamps, example)
    offsets = (_stream_offsets if streaming else _offsets)(reader, f"{side}Offsets", default)
    if one is not None:
        return Limit(LimitKind.TIMESTAMP, name, timestamp_ms=one)
    if each is not None:
        return Limit(LimitKind.TIMESTAMPS, by_timestamp, by_partition=each)
    return offsets


def _offsets(reader: OptionReader, name: str, default: LimitKind) -> Limit:
    value = reader.text(name)
    if value is None or value.lower() == default.value:
        return Limit(default, name)
    is_start = default is LimitKind.EARLIEST
    refused, allowed = (LATEST, EARLIEST) if is_start else (EARLIEST, LATEST)
    word = "latest" if is_start else "earliest"
    why = f"a batch query cannot {'start at the end' if is_start else 'end at the start'}"
    if value.lower() == word:
        raise UsageError(f"option {name}={value}: {why}")
    example = json.dumps({"topicA": {"0": 23, "1": allowed}})
    expected = f"{default.value}, or offsets by partition, such as {example}"
    found = reader.parsed(name, _json_by_partition, expected) or {}
    for (topic, partition), offset in found.items():
        if offset == refused:
            raise UsageError(
                f"option {name}={value}: {topic}-{partition} has {refused}, which is {word}; {why}"
            )
        if offset < EARLIEST:
            raise UsageError(f"option {name}={value}: {topic}-{partition} has {offset}; expected {expected}")
    return Limit(LimitKind.OFFSETS, name, by_partition=found)


def _stream_offsets(reader: OptionReader, name: str, default: LimitKind) -> Limit:
    """Where a stream begins: both words, and both numbers."""
    value = reader.text(name)
    if value is None:
        return Limit(default, name)
    words = {LimitKind.EARLIEST.value: LimitKind.EARLIEST, LimitKind.LATEST.value: LimitKind.LATEST}
    if value.lower() in words:
        return Limit(words[value.lower()], name)
    example = json.dumps({"topicA": {"0": 23, "1": EARLIEST, "2": LATEST}})
    expected = f"earliest, latest, or offsets by partition, such as {example}"
    found = reader.parsed(name, _json_by_partition, expected) or {}
    for (topic, partition), offset in found.items():
        if offset < EARLIEST:
            raise UsageError(f"option {name}={value}: {topic}-{partition} has {offset}; expected {expected}")
    return Limit(LimitKind.OFFSETS, name, by_partition=found)


def _timestamp(value: str) -> int:
    number = int(value)
    if number < 0:
        raise ValueError
    return number


def _json_timestamps(value: str) -> dict[TopicPartition, int]:
    found = _json_by_partition(value)
    for (topic, partition), timestamp in found.items():
        if timestamp < 0:
            raise _BadValueError(f"{timestamp} for {topic}-{partition}")
    return found


def _columns(reader: OptionReader) -> tuple[str, ...]:
    include_headers = reader.boolean("includeHeaders", False)
    columns = reader.parsed("columns", _column_names, f"some of {', '.join(COLUMNS)}, with commas between")
    if columns is not None:
        return columns
    return COLUMNS if include_headers else COLUMNS[:-1]


def _column_names(value: str) -> tuple[str, ...]:
    by_lower = {name.lower(): name for name in COLUMNS}
    names = [name.strip() for name in value.split(",")]
    for name in names:
        if name.lower() not in by_lower:
            raise _BadValueError(f"{name!r} is none")
    wanted = tuple(dict.fromkeys(by_lower[name.lower()] for name in names))
    if len(wanted) < len(names):
        raise _BadValueError("one is there twice")
    return wanted
