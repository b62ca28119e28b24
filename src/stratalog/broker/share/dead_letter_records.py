"""Records of dead-letter topics (KIP-1191): headers that identify a record, and optionally a copy of it. Pure.

    __dlq.errors.topic, .partition, .offset   the position of the record, as text
    __dlq.errors.group                        the share group that could not process it
    __dlq.errors.delivery.count               how often it was delivered
    __dlq.errors.message                      the reason

Key and value are those of the record if it is copied, else null. The record's own headers are not copied.

Source: `ShareGroupDLQStateManager` and `ShareGroupDLQRecordFetcher` of Kafka 4.4.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from stratalog.broker.share.record_runs import BatchOffsets, RecordRun
from stratalog.broker.share.state_records import ShareKey
from stratalog.errors import CorruptRecordError, InvalidRecordError
from stratalog.records import HEADER_SIZE, Codec, Record, RecordBatch, build_batch, iter_batches

Header: TypeAlias = tuple[str, bytes | None]

#: Reasons for a dead letter.
REJECTED: Final = "Offset rejected by client."
DELIVERED_TOO_OFTEN: Final = "Offset delivery count exceeded the threshold."


@dataclass(frozen=True, slots=True)
class DeadRecords:
    """Neighbouring records of one partition that a share group gives up, and why."""

    key: ShareKey
    topic: str
    first: int
    last: int
    delivery_count: int
    cause: str

    @classmethod
    def of(cls, key: ShareKey, topic: str, run: RecordRun, cause: str) -> DeadRecords:
        return cls(key, topic, run.first, run.last, run.delivery_count, cause)

    def __str__(self) -> str:
        return f"records {self.first} to {self.last} of {self.topic}-{self.key.partition} of group {self.key.group_id}"

    def headers(self, offset: int) -> tuple[tuple[str, bytes], ...]:
        said = {
            "topic": self.topic,
            "partition": self.key.partition,
            "offset": offset,
            "group": self.key.group_id,
            "delivery.count": self.delivery_count,
            "message": self.cause,
        }
        return tuple((f"__dlq.errors.{name}", str(value).encode()) for name, value in said.items())


@dataclass(slots=True)
class CopiedRecords:
    """Keys and values of records in ascending ranges, of at most `bytes_max` bytes together.

    A larger record is left out. So is a compressed batch that is larger when decompressed, as a whole.
    """

    ranges: Sequence[BatchOffsets]
    bytes_max: int
    found: dict[int, Record] = field(default_factory=dict)
    #: All records up to this offset that can be copied have been found.
    resolved: int = -1
    is_full: bool = False
    _bytes: int = 0
    #: Index of the first range that is not resolved.
    _at: int = 0

    @property
    def wants_more(self) -> bool:
        return self._at < len(self.ranges) and not self.is_full

    @property
    def next_offset(self) -> int:
        """The offset to read from next, while `wants_more`."""
        return max(self.ranges[self._at].first, self.resolved + 1)

    def take(self, data: bytes) -> bool:
        """Copy from batches that were read from `next_offset` on; return whether this made progress."""
        before = self.resolved
        for batch in iter_batches(data):
            if not self.wants_more:
                break
            if batch.last_offset < self.next_offset:
                self._resolve(batch.last_offset)
                continue
            try:
                self._take_batch(batch)
            except (CorruptRecordError, InvalidRecordError):  # damaged, or too large: its letter has no copy
                self._resolve(batch.last_offset)
        return self.resolved > before

    def give_up(self) -> None:
        """Stop looking for the remaining records."""
        self._resolve(self.ranges[-1].last)

    def _take_batch(self, batch: RecordBatch) -> None:
        limits = {} if batch.codec is Codec.NONE else {"size_max": self.bytes_max}
        for record in batch.records(**limits):
            self._resolve(record.offset - 1)  # records before it no longer exist
            if not self.wants_more:
                return
            if record.offset >= self.next_offset and not self._copy(record):
                return

    def _copy(self, record: Record) -> bool:
        """Copy a record unless it is too large; return False if there is no room left for it."""
        size = _size(0, record.key, record.value, record.headers)
        if size <= self.bytes_max:
            if self._bytes + size > self.bytes_max:
                self.is_full = True
                return False
            self.found[record.offset] = record
            self._bytes += size
            self.is_full = self._bytes >= self.bytes_max
        self._resolve(record.offset)
        return True

    def _resolve(self, offset: int) -> None:
        self.resolved = max(self.resolved, offset)
        while self._at < len(self.ranges) and self.ranges[self._at].last <= self.resolved:
            self._at += 1


@dataclass(frozen=True, slots=True)
class LetterBatch:
    """A batch of `count` letters for the first `rows` rows, and for the next row up to `next_offset`.

    `next_offset` is None if that row has no letter yet.
    """

    data: bytes
    count: int
    rows: int
    next_offset: int | None


def batch_for(rows: Sequence[DeadRecords], copies: CopiedRecords, bytes_max: int, now_ms: int) -> LetterBatch:
    """Return a batch of letters for rows of dead records: as many as fit, or one letter.

    A row that does not fit after others is left to the next batch as a whole. Thread-safe.
    """
    letters: list[Record] = []
    size = 0
    for at, row in enumerate(rows):
        more, more_size = _letters(row, copies, len(letters), bytes_max, now_ms)
        if letters and (size + more_size > bytes_max or row.first > copies.resolved):
            return LetterBatch(build_batch(letters), len(letters), at, None)
        letters += more
        size += more_size
        if len(more) <= row.last - row.first:
            return LetterBatch(build_batch(letters), len(letters), at, row.first + len(more))
    return LetterBatch(build_batch(letters), len(letters), len(rows), None)


def _letters(
    row: DeadRecords, copies: CopiedRecords, before: int, bytes_max: int, now_ms: int
) -> tuple[list[Record], int]:
    """Return the letters of one row that fit in a batch of their own after `before` letters, and their size."""
    letters: list[Record] = []
    size = HEADER_SIZE
    for offset in range(row.first, max(row.first, min(row.last, copies.resolved)) + 1):
        found = copies.found.get(offset)
        key, value = (None, None) if found is None else (_bytes_of(found.key), _bytes_of(found.value))
        headers = row.headers(offset)
        delta = before + len(letters)
        more = _size(delta, key, value, headers)
        if size + more > bytes_max and letters:
            break
        size += more
        letters.append(Record(delta, now_ms, key, value, headers))
    return letters, size


def _size(delta: int, key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    size = 2 + _varint_size(delta) + _sized(key) + _sized(value) + _varint_size(len(headers))
    for name, content in headers:
        size += _sized(name.encode()) + _sized(content)
    return _varint_size(size) + size


def _sized(data: bytes | None) -> int:
    return 1 if data is None else _varint_size(len(data)) + len(data)


def _varint_size(number: int) -> int:
    """Return the size of a number of at least 0 as a zigzag varint."""
    return max((number.bit_length() + 7) // 7, 1)


def _bytes_of(data: bytes | None) -> bytes | None:
    return None if data is None else bytes(data)
