"""Decoded batches and records of a partition in either tier, and the latest ones of a topic, live."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import re2

from stratalog.broker.access import AclOperation
from stratalog.engine import Partition
from stratalog.errors import OffsetOutOfRangeError, StratalogError
from stratalog.log.format import Isolation
from stratalog.records import (
    MAGIC,
    FilterReaders,
    Record,
    RecordBatch,
    RecordCondition,
    compile_condition,
    iter_batches,
)
from stratalog.util import SYSTEM_CLOCK
from stratalog.web.declarations import Console
from stratalog.web.fields import InputField, choice, moment_ms, whole, words
from stratalog.web.pages.record_text import FORMATS, record_json
from stratalog.web.viewer import ConsoleViewer

_FILTER_MAX: Final = 1000
#: Bytes read of a log at a time; a single batch may be larger.
_READ_BYTES: Final = 512 * 1024
#: Bytes that a page reads at most, even if few records pass its filters.
_SCAN_BYTES_MAX: Final = 16 * 1024 * 1024
_BATCHES_A_PAGE: Final = 50
_DECOMPRESSED_MAX: Final = 64 * 1024 * 1024
_PARTITIONS_MAX: Final = 200

BATCHES_FIELDS = (whole("offset", None, help="The batch with this offset, and those after it."),)
RECORDS_FIELDS = (
    whole("offset", None, help="The first record to show."),
    whole("count", 20, 1, 200, help="Records on a page."),
    choice("key", FORMATS, help="Format of keys."),
    choice("value", FORMATS, help="Format of values."),
)


def _cursor(text: str) -> dict[int, int]:
    """Parse where a live view continues: partition:offset, separated by commas."""
    found = {}
    for part in text.split(","):
        number, _, offset = part.partition(":")
        if not (number.isascii() and offset.isascii() and number.isdigit() and offset.isdigit()):
            raise ValueError("expected partition:offset,...")
        found[int(number)] = int(offset)
    return found


def check_start(text: str) -> str:
    """Return the start of a view, if it is valid; else ValueError."""
    if text in ("newest", "oldest"):
        return text
    moment_ms(text, 0)
    return text


class _LinearPattern:
    """A regular expression with linear search time, whatever a viewer enters."""

    def __init__(self, text: str) -> None:
        options = re2.Options()
        options.log_errors = False
        try:
            self._compiled = re2.compile(text, options)
        except re2.error as error:
            raise ValueError(str(error)) from None

    def search(self, text: str) -> object:
        return self._compiled.search(text.encode("utf-8", "backslashreplace"))


def _condition(text: str) -> RecordCondition:
    if len(text) > _FILTER_MAX:
        raise ValueError(f"expected at most {_FILTER_MAX} characters")
    return compile_condition(
        text, FilterReaders(lambda time: moment_ms(time, SYSTEM_CLOCK.now_ms()), pattern=_LinearPattern)
    )


@dataclass(frozen=True, slots=True)
class _RecordInTopic:
    """A record for a filter condition."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


MESSAGES_FIELDS = (
    whole("partition", None, 0, 1_000_000, help="Only this partition; empty: all."),
    InputField(
        "start", check_start, "newest", "newest, oldest, an offset, or a time such as -15m or 2026-01-31T12:00."
    ),
    whole("count", 20, 1, 200, help="Records to show."),
    words("keys", longest=500, help="Only records whose key contains this."),
    words("contains", longest=500, help="Only records whose value contains this."),
    words("header", longest=500, help="Only records with a header of this name, or NAME=VALUE."),
    InputField("filter", _condition, None, 'A condition: key ~ "x" and value.user.id > 5 and headers.trace exists'),
    choice("key", FORMATS, help="Format of keys."),
    choice("value", FORMATS, help="Format of values."),
    InputField("cursor", _cursor, None, "Where the previous view ended."),
)


# --- one partition ----------------------------------------------------------------------------------------------------


def _read(partition: Partition, offset: int, size: int = _READ_BYTES) -> bytes:
    """Return whole batches from the one with `offset` on, of either tier; empty at the end of the log."""
    if partition.is_remote(offset):
        return partition.read_remote(offset, size).records
    data = partition.read(offset, size, isolation=Isolation.HIGH_WATERMARK)
    return b"" if data.slice is None else data.slice.read()


def _batches(partition: Partition, offset: int, scan_bytes: int = _SCAN_BYTES_MAX) -> Iterator[RecordBatch]:
    """Yield the batches from an offset on, up to the high watermark or the limit of bytes."""
    left = scan_bytes
    while left > 0 and offset < partition.log.high_watermark:
        data = _read(partition, offset)
        before = offset
        for batch in iter_batches(data):
            if batch.last_offset < before:
                continue
            yield batch
            offset = batch.next_offset
        left -= max(len(data), 1)
        if offset == before:
            return


def _begin(viewer: ConsoleViewer, values: Mapping[str, Any]) -> tuple[Partition, int]:
    topic, number = values["topic"], values["partition"]
    viewer.check_topic(topic, AclOperation.READ)
    partition = viewer.partition(topic, number)
    start, end = partition.log.log_start_offset, partition.log.high_watermark
    offset = values["offset"]
    if offset is None:
        offset = start
    if not start <= offset <= end:
        raise OffsetOutOfRangeError(f"offset {offset} is not available: this partition has {start} to {end - 1}")
    return partition, offset


def batches(viewer: ConsoleViewer, console: Console, values: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG001
    """Return a page of batch headers."""
    partition, offset = _begin(viewer, values)
    found: list[dict[str, Any]] = []
    error = None
    try:
        for batch in _batches(partition, offset):
            if len(found) == _BATCHES_A_PAGE:
                break
            found.append(_batch_json(batch))
    except StratalogError as damage:
        error = str(damage)
    return {
        "topic": values["topic"],
        "partition": values["partition"],
        "offset": offset,
        "isRemote": partition.is_remote(offset),
        "batches": found,
        "error": error,
        **_ends(partition),
        "next": found[-1]["lastOffset"] + 1 if len(found) == _BATCHES_A_PAGE else None,
    }


def _ends(partition: Partition) -> dict[str, int]:
    log = partition.log
    return {"logStartOffset": log.log_start_offset, "highWatermark": log.high_watermark}


def _batch_json(batch: RecordBatch) -> dict[str, Any]:
    is_new = batch.magic == MAGIC
    return {
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "records": batch.record_count,
        "bytes": batch.size,
        "codec": batch.codec_name,
        "magic": batch.magic,
        "maxTimestampMs": batch.max_timestamp,
        "timestampType": ("CreateTime", "LogAppendTime")[batch.timestamp_type],
        "leaderEpoch": batch.partition_leader_epoch if is_new else None,
        "producerId": batch.producer_id if is_new and batch.has_producer_id else None,
        "producerEpoch": batch.producer_epoch if is_new and batch.has_producer_id else None,
        "isTransactional": is_new and batch.is_transactional,
        "isControl": is_new and batch.is_control,
        "isSound": batch.is_crc_valid if is_new else True,
    }


def _records_of(batch: RecordBatch) -> Iterator[Record]:
    return iter(()) if batch.magic == MAGIC and batch.is_control else batch.records(size_max=_DECOMPRESSED_MAX)


def records(viewer: ConsoleViewer, console: Console, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a page of decoded records."""
    partition, offset = _begin(viewer, values)
    found: list[dict[str, Any]] = []
    error = None
    try:
        for batch in _batches(partition, offset):
            for record in _records_of(batch):
                if record.offset >= offset:
                    found.append(record_json(record, values["key"], values["value"], console.schemas))
                if len(found) == values["count"]:
                    break
            if len(found) == values["count"]:
                break
    except StratalogError as damage:
        error = str(damage)
    last = found[-1]["offset"] + 1 if found else offset
    return {
        "topic": values["topic"],
        "partition": values["partition"],
        "offset": offset,
        "records": found,
        "error": error,
        **_ends(partition),
        "next": last if len(found) == values["count"] and last < partition.log.high_watermark else None,
    }


def raw(viewer: ConsoleViewer, topic: str, number: int, offset: int, part: str) -> bytes | None:
    """Return the key or value of one record. Raises OffsetOutOfRangeError when there is no such record."""
    partition, offset = _begin(viewer, {"topic": topic, "partition": number, "offset": offset})
    for batch in _batches(partition, offset, 1):
        for record in _records_of(batch):
            if record.offset == offset:
                return record.key if part == "key" else record.value
    raise OffsetOutOfRangeError(f"there is no record at offset {offset}")


# --- a topic, live ----------------------------------------------------------------------------------------------------


def messages(viewer: ConsoleViewer, console: Console, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return records of a topic that pass the filters, newest first, and where to continue."""
    topic = values["topic"]
    viewer.check_topic(topic, AclOperation.READ)
    partitions = viewer.here(topic)
    wanted = values["partition"]
    if wanted is not None:
        partitions = [viewer.partition(topic, wanted)]
    chosen = [each for each in partitions[:_PARTITIONS_MAX] if each.failure is None]
    count = values["count"]
    cursor = values["cursor"]
    found: list[dict[str, Any]] = []
    errors: list[str] = []
    ends: dict[int, int] = {}
    budget = max(_SCAN_BYTES_MAX // max(len(chosen), 1), _READ_BYTES)
    for partition in chosen:
        number = partition.partition
        passes = _filter(values, number)
        try:
            if cursor is not None:
                start = max(cursor.get(number, partition.log.high_watermark), partition.log.log_start_offset)
            else:
                start = _start(viewer, partition, values["start"], count)
            taken, ends[number] = _take(
                partition, start, passes, count, budget, newest=cursor is None and values["start"] == "newest"
            )
        except StratalogError as error:
            errors.append(f"partition {number}: {error}")
            continue
        found += [
            {"partition": number, **record_json(each, values["key"], values["value"], console.schemas)}
            for each in taken
        ]
    if wanted is None and (missing := viewer.not_here(topic)):
        errors.append(missing)
    found.sort(key=lambda each: (each["timestampMs"], each["offset"], each["partition"]), reverse=True)
    is_forward = cursor is None and values["start"] != "newest"
    return {
        "topic": topic,
        "partitions": len(partitions),
        "records": found[-count:] if is_forward else found[:count],
        "problems": errors,
        "cursor": ",".join(f"{number}:{offset}" for number, offset in sorted(ends.items())),
    }


def _start(viewer: ConsoleViewer, partition: Partition, start: str, count: int) -> int:
    first, end = partition.log.log_start_offset, partition.log.high_watermark
    if start == "newest":
        return max(end - count, first)
    if start == "oldest":
        return first
    if start.isdigit() and len(start) < 12:
        return min(max(int(start), first), end)
    at = partition.offset_for_timestamp(moment_ms(start, viewer.broker.clock.now_ms()))
    return end if at is None else max(at.offset, first)


def _take(
    partition: Partition, start: int, passes: Callable[[Record], bool], count: int, budget: int, *, newest: bool
) -> tuple[list[Record], int]:
    """Return up to `count` matching records, and the offset after the searched range.

    For the newest ones, earlier ranges are searched until there are enough, or the limit of bytes is reached.
    """
    end = partition.log.high_watermark
    found, behind, unpacked = _forward(
        partition, start, end, passes, budget, unpacked=_DECOMPRESSED_MAX, count=None if newest else count
    )
    step = count
    first = partition.log.log_start_offset
    while newest and len(found) < count and start > first and min(budget, unpacked) > 0:
        step *= 8
        earlier = max(start - step, first)
        more, _, unpacked = _forward(partition, earlier, start, passes, budget, unpacked=unpacked, count=None)
        found = more + found
        budget -= _READ_BYTES
        start = earlier
    return (found[-count:] if newest else found), behind


def _forward(
    partition: Partition,
    start: int,
    end: int,
    passes: Callable[[Record], bool],
    budget: int,
    *,
    unpacked: int,
    count: int | None,
) -> tuple[list[Record], int, int]:
    """Return the matching records, the offset after the searched range, and the rest of `unpacked`.

    That bounds the bytes of decompressed records: a small batch can contain very much.
    """
    found: list[Record] = []
    behind = start
    for batch in _batches(partition, start, budget):
        for record in _records_of(batch):
            if record.offset >= end:
                return found, behind, unpacked
            unpacked -= len(record.key or b"") + len(record.value or b"")
            if record.offset >= start and passes(record):
                found.append(record)
            behind = max(behind, record.offset + 1)
            if count is not None and len(found) == count:
                return found, behind, unpacked
        behind = max(behind, min(batch.next_offset, end))
        if unpacked <= 0:
            break
    return found, behind, unpacked


def _filter(values: Mapping[str, Any], partition: int) -> Callable[[Record], bool]:
    keys, contains = values["keys"].encode(), values["contains"].encode()
    name, has_value, value = values["header"].partition("=")
    condition, topic = values["filter"], values["topic"]

    def passes(record: Record) -> bool:
        if keys and (record.key is None or keys not in record.key):
            return False
        if contains and (record.value is None or contains not in record.value):
            return False
        if name and not any(
            key == name and (not has_value or (held or b"") == value.encode()) for key, held in record.headers
        ):
            return False
        return condition is None or condition(
            _RecordInTopic(
                topic=topic,
                partition=partition,
                offset=record.offset,
                timestamp=record.timestamp_ms,
                key=record.key,
                value=record.value,
                headers=record.headers,
            )
        )

    return passes
