"""What is written to a dead-letter topic (KIP-1191): headers that tell of a record, and a copy of it if wanted. Pure.

    __dlq.errors.topic, .partition, .offset   where the record lies, as text
    __dlq.errors.group                        the share group that could not process it
    __dlq.errors.delivery.count               how often it was handed out
    __dlq.errors.message                      why it is here

Key and value are those of the record where it was copied, null otherwise. The record's own headers are not copied.

Source: `ShareGroupDLQStateManager` and `ShareGroupDLQRecordFetcher` of Kafka 4.4.0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from stratalog.broker.share.record_runs import RecordRun
from stratalog.broker.share.state_records import ShareKey
from stratalog.errors import CorruptRecordError, InvalidRecordError
from stratalog.records import HEADER_SIZE, Codec, Record, RecordBatch, build_batch, iter_batches

#: Why a record comes here.
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
        """Return what is told of one of them."""
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
    """Keys and values of records from `next_offset` to `last`, of at most `bytes_max` bytes together.

    What is larger by itself is left out. So is a compressed batch that is larger unpacked, as a whole.
    """

    next_offset: int
    last: int
    bytes_max: int
    found: dict[int, Record] = field(default_factory=dict)
    #: Up to which offset all is found that there will be.
    resolved: int = -1
    is_full: bool = False
    _bytes: int = 0

    @property
    def wants_more(self) -> bool:
        return self.next_offset <= self.last and not self.is_full

    def take(self, data: bytes) -> bool:
        """Take in batches that were read from `next_offset` on; whether it brought this further."""
        before = self.next_offset
        for batch in iter_batches(data):
            if not self.wants_more:
                break
            try:
                self._take_batch(batch)
            except (CorruptRecordError, InvalidRecordError):  # damaged, or too large: told of without a copy
                self._resolve(min(batch.last_offset, self.last))
        return self.next_offset > before

    def give_up(self) -> None:
        """Look for no more of them."""
        self.resolved = max(self.resolved, self.last)

    def _take_batch(self, batch: RecordBatch) -> None:
        limits = {} if batch.codec is Codec.NONE else {"size_max": self.bytes_max}
        for record in batch.records(**limits):
            if record.offset < self.next_offset:
                continue
            if record.offset > self.last:
                return
            size = _size(record)
            if size <= self.bytes_max:
                if self._bytes + size > self.bytes_max:
                    self.is_full = True
                    return
                self.found[record.offset] = record
                self._bytes += size
                self.is_full = self._bytes >= self.bytes_max
            self._resolve(record.offset)

    def _resolve(self, offset: int) -> None:
        self.resolved = max(self.resolved, offset)
        self.next_offset = max(self.next_offset, offset + 1)


def batch_for(dead: DeadRecords, first: int, copies: CopiedRecords, bytes_max: int, now_ms: int) -> tuple[int, bytes]:
    """Return a batch that tells of the dead records from `first` on, and of how many: as many as it may hold, or one.

    Any thread may do it.
    """
    letters: list[Record] = []
    size = HEADER_SIZE
    for offset in range(first, max(first, min(dead.last, copies.resolved)) + 1):
        found = copies.found.get(offset)
        key, value = (None, None) if found is None else (found.key, found.value)
        letter = Record(len(letters), now_ms, _bytes_of(key), _bytes_of(value), dead.headers(offset))
        size += _size(letter)
        if size > bytes_max and letters:
            break
        letters.append(letter)
    return len(letters), build_batch(letters)


def _size(record: Record) -> int:
    return len(build_batch([record], base_offset=record.offset)) - HEADER_SIZE


def _bytes_of(data: bytes | None) -> bytes | None:
    return None if data is None else bytes(data)
