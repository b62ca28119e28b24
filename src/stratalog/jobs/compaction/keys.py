"""Step 1: the keys of a segment, and their offsets.

Records of aborted transactions do not count. Entries are packed bucket by bucket: all hashes (16 bytes each), then all
offsets relative to the segment's base (4 bytes each, native order). Memory does not depend on the segment's size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from stratalog.jobs.compaction import keys_kernel
from stratalog.jobs.compaction.sources import CHUNK_BYTES, OpenRecords, open_records
from stratalog.jobs.compaction.values import KeysTask, SegmentSummary
from stratalog.log.cleaner import SCRATCH_SIZE, Chunk, CleanedTransactions, address_of, context as at
from stratalog.records import ControlType, RecordBatch, batch_format as fmt, parse_control_key
from stratalog.util import SYSTEM_CLOCK

#: The number of entries to collect before they are passed on: minimum, maximum, and for each bucket.
_ENTRIES_MIN: Final = 1 << 18
_ENTRIES_MAX: Final = 1 << 21
_ENTRIES_A_BUCKET: Final = 1 << 11


class Packed(NamedTuple):
    """Entries of one bucket of one segment; a larger `sequence` has larger offsets."""

    bucket: int
    sequence: int
    data: bytes


class KeyCollector:
    """Buffers of one worker, used for one segment after the other. Not thread-safe."""

    def __init__(self) -> None:
        self._chunk = Chunk(CHUNK_BYTES)
        self._scratch = np.zeros(SCRATCH_SIZE, np.uint8)
        self._entries: npt.NDArray[np.int64] = np.empty((0, keys_kernel.ENTRY_WORDS), np.int64)

    def collect(self, task: KeysTask) -> Iterator[Packed | SegmentSummary]:
        """Yield the entries of a segment, then its summary. Raises CorruptRecordError with file and position."""
        started = SYSTEM_CLOCK.monotonic()
        self._task, self._sequence, self._special, self._wanted = task, 0, 0, 0
        self._commits: set[int] = set()
        self._aborts: set[int] = set()
        self._transactions = CleanedTransactions()
        self._transactions.add_aborted(task.aborted)
        self._reserve(min(max(task.buckets * _ENTRIES_A_BUCKET, _ENTRIES_MIN), _ENTRIES_MAX))
        context = self._chunk.context
        context.map = address_of(self._scratch)
        context.out_size = context.messages_read = context.invalid = 0
        context.has_tombstones = context.count = context.retained = 0
        self._keys = self._markers = self._special_batches = 0
        with open_records(task.source, task.places) as records:
            yield from self._read(records)
        yield from self._packed()
        yield SegmentSummary(
            part=task.part,
            segment=task.segment,
            bytes=task.source.size,
            batches=context.count + self._special,
            records=context.messages_read,
            keys=self._keys,
            keyless=context.invalid,
            tombstones=context.has_tombstones,
            markers=self._markers,
            special_batches=self._special_batches + context.retained,
            seconds=SYSTEM_CLOCK.monotonic() - started,
            met=self._transactions.met,
            commits=frozenset(self._commits),
            aborts=frozenset(self._aborts),
        )

    def _reserve(self, count: int) -> None:
        if len(self._entries) < count:
            self._entries = np.empty((count, keys_kernel.ENTRY_WORDS), np.int64)
        self._chunk.context.out = address_of(self._entries)
        self._chunk.context.out_capacity = len(self._entries)

    def _read(self, records: OpenRecords) -> Iterator[Packed]:
        chunk, position = self._chunk, 0
        try:
            while position < records.size_bytes:
                chunk.read(records, position)
                yield from self._read_chunk()
                if chunk.position == 0:
                    chunk.grow_for_batch()
                position += chunk.position
        finally:
            chunk.restore()

    def _read_chunk(self) -> Iterator[Packed]:
        chunk = self._chunk
        while True:
            with chunk.errors_named():
                keys_kernel.collect_chunk(chunk.address)
                status = chunk.status
                if status == at.DONE:
                    return
                batch = chunk.batch()
                is_taken = status != at.OUT_FULL and self._take(batch)
            if is_taken:
                self._special += 1
                chunk.advance(batch.size)
                continue
            wanted = self._wanted if batch.magic < fmt.MAGIC else batch.record_count
            yield from self._packed()
            self._reserve(wanted)

    def _take(self, batch: RecordBatch) -> bool:
        """Process a batch that the native loop skipped. Return False if there is no room for its entries."""
        if batch.is_control:
            self._special_batches += 1
            self._take_marker(batch)
            return True
        if batch.is_transactional:
            self._special_batches += 1
            if self._transactions.on_data(batch):
                self._count(batch.record_count)
                return True
        if batch.magic < fmt.MAGIC:
            self._special_batches += 1
            return self._take_plainly(batch)
        payload = np.frombuffer(batch.decompressed_payload(), np.uint8)
        header = self._chunk.header_address()
        status = keys_kernel.collect_keys(self._chunk.address, header, address_of(payload), len(payload))
        if status == at.MALFORMED:
            for _ in batch.records():  # raises the same fault with a better message
                pass
            raise ValueError(f"malformed records in {batch!r}")
        return bool(status == at.DONE)

    def _count(self, records: int) -> None:
        self._chunk.context.messages_read += records

    def _take_marker(self, batch: RecordBatch) -> None:
        self._transactions.on_control(batch)
        self._markers += 1
        self._count(1)
        record = next(batch.records(), None)
        kind = None if record is None else parse_control_key(record.key)
        if kind is ControlType.COMMIT:
            self._commits.add(batch.producer_id)
        elif kind is ControlType.ABORT:
            self._aborts.add(batch.producer_id)

    def _take_plainly(self, batch: RecordBatch) -> bool:
        context = self._chunk.context
        records = list(batch.records())
        if context.out_size + len(records) > len(self._entries):
            self._wanted = len(records)
            return False
        for record in records:
            context.has_tombstones += record.value is None
            if record.key is None:
                context.invalid += 1
                continue
            digest = np.frombuffer(hashlib.md5(record.key, usedforsecurity=False).digest(), "<i8")
            self._entries[context.out_size] = (*digest, record.offset)
            context.out_size += 1
        self._count(len(records))
        return True

    def _packed(self) -> Iterator[Packed]:
        """Yield the collected entries, packed by bucket."""
        task, count = self._task, self._chunk.context.out_size
        if not count:
            return
        hashes: npt.NDArray[Any] = np.empty((count, 2), np.int64)
        offsets = np.empty(count, np.uint32)
        ends = np.zeros(task.buckets + 1, np.int64)
        entries = self._entries[:count]
        keys_kernel.scatter(entries, task.source.base_offset, task.buckets, ends, hashes, offsets)
        for bucket, (start, end) in enumerate(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)):
            if start < end:
                data = hashes[start:end].tobytes() + offsets[start:end].tobytes()
                yield Packed(task.first_bucket + bucket, self._sequence, data)
        self._sequence += 1
        self._keys += count
        self._chunk.context.out_size = 0
