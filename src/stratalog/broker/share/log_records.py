"""Record batches that were read to be handed out: as many of them as are needed, and what of them goes out.

Source: `ShareFetchUtils.maybeSliceFetchRecords` and `SharePartition.fetchAbortedTransactionRecordBatches` of Kafka
4.4.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stratalog.broker.share.record_runs import BatchOffsets, RecordRun
from stratalog.records import RecordBatch, iter_batches

if TYPE_CHECKING:
    from stratalog.log.format import FileSlice
    from stratalog.log.index import AbortedTransaction

#: So much is read at once: enough for the records that a consumer takes at a time, if they are not large.
_CHUNK_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class ReadBatches:
    """Whole batches, one behind the other at the beginning of `data`."""

    data: bytes
    batches: Sequence[RecordBatch]

    @property
    def offsets(self) -> list[BatchOffsets]:
        return [BatchOffsets(batch.base_offset, batch.last_offset) for batch in self.batches]

    def with_records(self, acquired: Sequence[RecordRun]) -> bytes:
        """Return the batches from that with the first record that was handed out up to that with the last."""
        first, last = acquired[0].first, acquired[-1].last
        begin = end = 0
        for batch in self.batches:
            if batch.base_offset > last:
                break
            if batch.base_offset <= first:
                begin = batch.start
            end = batch.start + batch.size
        return self.data[begin:end]

    def aborted(self, transactions: Sequence[AbortedTransaction]) -> list[BatchOffsets]:
        """Return the batches whose records are of transactions that were aborted."""
        waiting = sorted(transactions, key=lambda each: each.first_offset, reverse=True)
        open_ids: set[int] = set()
        found = []
        for batch in self.batches:
            if not batch.has_producer_id:
                continue
            while waiting and waiting[-1].first_offset <= batch.last_offset:
                open_ids.add(waiting.pop().producer_id)
            if batch.is_control:
                open_ids.discard(batch.producer_id)
            elif batch.is_transactional and batch.producer_id in open_ids:
                found.append(BatchOffsets(batch.base_offset, batch.last_offset))
        return found


def batches_in(data: bytes) -> ReadBatches:
    """Return the whole batches at the beginning of some bytes. CorruptRecordError for what can be no batch."""
    return ReadBatches(data, list(iter_batches(data)))


def read_batches(part: FileSlice, is_enough: Callable[[int], bool]) -> ReadBatches:
    """Read batches until `is_enough`, which gets the last offset so far. OSError if the file cannot be read."""
    if part.size <= _CHUNK_BYTES:
        return batches_in(part.read())
    data = bytearray()
    batches: list[RecordBatch] = []
    end = 0
    while len(data) < part.size:
        missing = batches[-1].size if batches else 0  # large ones follow large ones
        size = min(max(_CHUNK_BYTES, missing), part.size - len(data))
        chunk = part.file.pread(size, part.position + len(data))
        if not chunk:
            break
        data += chunk
        for batch in iter_batches(bytes(memoryview(data)[end:])):
            batches.append(batch)
            end += batch.size
        if batches and is_enough(batches[-1].last_offset):
            break
    return batches_in(bytes(memoryview(data)[:end]))
