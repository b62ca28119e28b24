"""Check the contents of a segment's objects against each other. Pure: the caller passes the bytes in.

Records come in pieces, in order. One piece and part of the previous one are in memory. Indexes come whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from typing_extensions import Buffer

from stratalog.errors import (
    CorruptCheckpointError,
    CorruptIndexError,
    CorruptRecordError,
    CorruptSnapshotError,
    UnsupportedForMessageFormatError,
)
from stratalog.jobs.audit.findings import AuditKind
from stratalog.log.format import (
    OffsetIndexFormat,
    OffsetPosition,
    TimestampOffset,
    decode_epochs,
    detect_from_entries,
    format_of,
    offset_index_format,
    producer_snapshot,
    used_size,
)
from stratalog.log.index import time_index, txn_index
from stratalog.records import HEADER_SIZE_UP_TO_MAGIC, RecordBatch, checked_batch_size, iter_batches
from stratalog.remote.storage import ObjectKind
from stratalog.util import crc32c


@dataclass(frozen=True, slots=True)
class ContentFault:
    """A fault in one object's content."""

    object: ObjectKind
    kind: AuditKind
    text: str


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected records of a segment. `max_timestamp` is a bound; offsets are inclusive."""

    base_offset: int
    end_offset: int
    size: int
    max_timestamp: int
    block_bytes: int
    #: None when nothing is known of them.
    block_crc32c: Sequence[int] | None
    offset_index_entry_size: int | None


class IndexEntries:
    """The entries of both indexes, compared with each batch in turn."""

    def __init__(self, expected: Expected, offset_index: Buffer | None, time_index_data: Buffer | None) -> None:
        self.faults: list[ContentFault] = []
        self._offsets = self._offset_entries(expected, offset_index)
        self._times = self._time_entries(expected, time_index_data)
        self._next_offset = next(self._offsets, None)
        self._next_time = next(self._times, None)
        self._last_time_ms = -1
        self._has_times = time_index_data is not None
        self._largest_ms = -1

    def _offset_entries(self, expected: Expected, data: Buffer | None) -> Iterator[OffsetPosition]:
        if data is None:
            return
        view = memoryview(data).cast("B")
        form = self._offset_format(expected, view)
        if form is None:
            return
        used = -(-used_size(view) // form.entry_size)
        if (slot := offset_index_format.first_fault(view, form, used)) is not None:
            self._fault(ObjectKind.OFFSET_INDEX, f"entry {slot} does not ascend")
            return
        yield from offset_index_format.decode_entries(view[: used * form.entry_size], expected.base_offset, form)

    def _offset_format(self, expected: Expected, view: memoryview) -> OffsetIndexFormat | None:
        known = expected.offset_index_entry_size
        if known is not None and len(view) % known == 0:
            return format_of(known)
        found = detect_from_entries(view)
        if known is not None or found.is_corrupt:
            self._fault(ObjectKind.OFFSET_INDEX, f"it is not an offset index: {found.reason}")
            return None
        return found.format

    def _time_entries(self, expected: Expected, data: Buffer | None) -> Iterator[TimestampOffset]:
        if data is None:
            return
        view = memoryview(data).cast("B")
        if len(view) % time_index.ENTRY_SIZE:
            self._fault(ObjectKind.TIME_INDEX, f"{len(view)} bytes are not a multiple of {time_index.ENTRY_SIZE}")
            return
        entries = len(view) // time_index.ENTRY_SIZE
        if (slot := time_index.first_fault(view, entries)) is not None:
            self._fault(ObjectKind.TIME_INDEX, f"entry {slot} does not ascend")
            return
        yield from time_index.decode_entries(view, expected.base_offset)

    def meet(self, position: int, batch: RecordBatch) -> None:
        """Compare entries with the next batch. Reads only its header."""
        base, last = batch.base_offset, batch.last_offset
        entry = self._next_offset
        if entry is not None and entry.position <= position:
            if entry.position < position or not base <= entry.offset <= last:
                self._fault(
                    ObjectKind.OFFSET_INDEX,
                    f"the entry for offset {entry.offset} points at position {entry.position}, where no batch has it",
                )
                self._next_offset = None
            else:
                self._next_offset = next(self._offsets, None)
        largest = max(self._largest_ms, batch.max_timestamp)
        while self._next_time is not None and self._next_time.offset <= last:
            timestamp_ms, offset = self._next_time
            if timestamp_ms != largest or offset < base:
                self._fault(
                    ObjectKind.TIME_INDEX,
                    f"the entry for offset {offset} has timestamp {timestamp_ms}, the largest up to there is {largest}",
                )
                self._next_time = None
                break
            self._last_time_ms = timestamp_ms
            self._next_time = next(self._times, None)
        self._largest_ms = largest

    def stop(self) -> None:
        """Stop checking entries. After a damaged batch, entries that point at or after it may still be right."""
        self._next_offset = self._next_time = None

    def end(self, size: int) -> None:
        """Finish after the last batch. The records have `size` bytes."""
        if self._next_offset is not None:
            offset, position = self._next_offset
            self._fault(
                ObjectKind.OFFSET_INDEX,
                f"the entry for offset {offset} points to position {position} of {size}",
            )
        if self._next_time is not None:
            self._fault(ObjectKind.TIME_INDEX, f"an entry is for offset {self._next_time.offset}, after the last")
        is_faultless = not any(fault.object is ObjectKind.TIME_INDEX for fault in self.faults)
        if self._has_times and is_faultless and self._last_time_ms < self._largest_ms:
            self._fault(
                ObjectKind.TIME_INDEX,
                f"its last timestamp is {self._last_time_ms}, the segment's largest is {self._largest_ms}",
            )

    def _fault(self, kind: ObjectKind, text: str) -> None:
        self.faults.append(ContentFault(kind, AuditKind.WRONG_INDEX, text))


class RecordsWalk:
    """The records of one segment, piece by piece. Every piece but the last consists of whole blocks.

    `faults` is complete after `end`. `block_crc32c` and `crc32c` are the checksums of the bytes received.
    """

    def __init__(self, expected: Expected, entries: IndexEntries) -> None:
        self._expected = expected
        self._entries = entries
        self._records: list[ContentFault] = []
        self._batch_faults = 0
        self._rest = b""
        self._position = 0
        self._next_offset = expected.base_offset
        self._is_lost = False
        self._largest_ms = -1
        self.crc32c = 0
        self.block_crc32c: list[int] = []

    @property
    def faults(self) -> list[ContentFault]:
        return [*self._records, *self._entries.faults]

    @property
    def records_are_sound(self) -> bool:
        return not self._records

    @property
    def _is_damaged(self) -> bool:
        return any(fault.kind is AuditKind.DAMAGED_OBJECT for fault in self._records)

    def feed(self, piece: Buffer) -> None:
        view = memoryview(piece).cast("B")
        self._check_blocks(view)
        if self._is_lost:
            return
        data = self._rest + bytes(view) if self._rest else bytes(view)
        try:
            consumed = self._walk(data)
        except (CorruptRecordError, UnsupportedForMessageFormatError) as error:
            self.lose(AuditKind.DAMAGED_BATCH, f"no batch after position {self._position}: {error}")
            return
        self._position += consumed
        self._rest = data[consumed:]

    def end(self) -> None:
        if self._rest and not self._is_lost:
            self.lose(AuditKind.DAMAGED_BATCH, f"the batch at position {self._position} is incomplete")
        if self._batch_faults > 1:
            self._fault(AuditKind.DAMAGED_BATCH, f"{self._batch_faults - 1} more batches are damaged")
        expected, blocks = self._expected.block_crc32c, len(self.block_crc32c)
        if expected is not None and blocks < len(expected) and not self._is_damaged:
            self._fault(AuditKind.DAMAGED_OBJECT, f"it ends after {blocks} of {len(expected)} blocks")
        if not self._is_lost and not self._batch_faults:
            self._entries.end(self._expected.size)

    def _walk(self, data: bytes) -> int:
        consumed = 0
        for batch in iter_batches(data):
            self._check(self._position + batch.start, batch)
            consumed = batch.start + batch.size
        left = len(data) - consumed
        if left >= HEADER_SIZE_UP_TO_MAGIC:
            size = checked_batch_size(data, consumed)
            if self._position + consumed + size > self._expected.size:
                raise CorruptRecordError(
                    f"position {consumed}: a batch of {size} bytes extends past the end at {self._expected.size}"
                )
        return consumed

    def _check(self, position: int, batch: RecordBatch) -> None:
        base, last = batch.base_offset, batch.last_offset
        where = f"the batch at position {position} with offsets {base} to {last}"
        if not batch.is_crc_valid:
            self._batch_fault(f"{where} does not match its checksum")
            return
        if base < self._next_offset or last > self._expected.end_offset:
            self._batch_fault(f"{where} should be within {self._next_offset} to {self._expected.end_offset}")
            return
        if batch.max_timestamp > self._expected.max_timestamp:
            self._batch_fault(
                f"{where} has timestamp {batch.max_timestamp}, the segment's largest is {self._expected.max_timestamp}"
            )
        self._next_offset = last + 1
        self._entries.meet(position, batch)

    def _check_blocks(self, view: memoryview) -> None:
        size, expected = self._expected.block_bytes, self._expected.block_crc32c
        self.crc32c = crc32c(view, self.crc32c)
        for at in range(0, len(view), size):
            found, number = crc32c(view[at : at + size]), len(self.block_crc32c)
            self.block_crc32c.append(found)
            if expected is not None and not self._is_damaged and (number >= len(expected) or found != expected[number]):
                self._fault(
                    AuditKind.DAMAGED_OBJECT, f"the block at position {number * size} does not match its checksum"
                )

    def lose(self, kind: AuditKind, text: str) -> None:
        """Record why no batches can be read from here on."""
        self._is_lost = True
        self._rest = b""
        self._fault(kind, text)

    def _batch_fault(self, text: str) -> None:
        self._batch_faults += 1
        self._entries.stop()
        if self._batch_faults == 1:
            self._fault(AuditKind.DAMAGED_BATCH, text)

    def _fault(self, kind: AuditKind, text: str) -> None:
        self._records.append(ContentFault(ObjectKind.LOG, kind, text))


def check_small(kind: ObjectKind, data: Buffer, last_epoch: int) -> ContentFault | None:
    """Return the fault of a transaction index, producer snapshot or leader epoch checkpoint, if any."""
    try:
        if kind is ObjectKind.TXN_INDEX:
            for _ in txn_index.decode_entries(data):
                continue
        elif kind is ObjectKind.PRODUCER_SNAPSHOT:
            producer_snapshot.decode(data)
        elif kind is ObjectKind.LEADER_EPOCHS:
            epochs = decode_epochs(bytes(data))
            if not epochs or epochs[-1].epoch != last_epoch:
                return ContentFault(kind, AuditKind.WRONG_INDEX, f"its last epoch is not {last_epoch}")
    except (CorruptIndexError, CorruptSnapshotError, CorruptCheckpointError) as error:
        return ContentFault(kind, AuditKind.WRONG_INDEX, str(error))
    return None
