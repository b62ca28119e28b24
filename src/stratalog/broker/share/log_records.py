"""Record batches that were read to be handed out: as many of them as are needed, and what of them goes out.

Source: `ShareFetchUtils.maybeSliceFetchRecords` and `SharePartition.fetchAbortedTransactionRecordBatches` of Kafka
4.4.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stratalog.broker.share.record_runs import BatchOffsets, RecordRun
from stratalog.records import RecordBatch, checked_batch_size, iter_batches

if TYPE_CHECKING:
    from stratalog.log.format import FileSlice
    from stratalog.log.index import AbortedTransaction

#: So much is read at once: enough for the records that a consumer takes at a time, if they are not large.
_CHUNK_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class _Piece:
    """What was read at once: whole batches, one behind the other, from the beginning of `data` on."""

    data: bytes
    batches: Sequence[RecordBatch]

    @property
    def end(self) -> int:
        """Return where in the data its last batch ends."""
        return self.batches[-1].start + self.batches[-1].size if self.batches else 0

    def between(self, first: int, last: int) -> memoryview:
        """Return the batches from that with the first offset, or the one behind it, up to that with the last."""
        begin = end = 0
        for batch in self.batches:
            if batch.base_offset > last:
                break
            if batch.base_offset <= first:
                begin = batch.start
            end = batch.start + batch.size
        return memoryview(self.data)[begin:end]


@dataclass(frozen=True, slots=True)
class ReadBatches:
    """Neighbouring batches of a log."""

    pieces: Sequence[_Piece]

    @property
    def batches(self) -> list[RecordBatch]:
        return [batch for piece in self.pieces for batch in piece.batches]

    @property
    def offsets(self) -> list[BatchOffsets]:
        return [BatchOffsets(batch.base_offset, batch.last_offset) for batch in self.batches]

    def with_records(self, acquired: Sequence[RecordRun]) -> bytes:
        """Return the batches from that with the first record that was handed out up to that with the last."""
        first, last = acquired[0].first, acquired[-1].last
        at = max((at for at, piece in enumerate(self.pieces) if piece.batches[0].base_offset <= first), default=0)
        parts = [piece.between(first, last) for piece in self.pieces[at:]]
        if len(parts) == 1 and len(parts[0]) == len(self.pieces[at].data):
            return self.pieces[at].data
        return b"".join(parts)

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
    batches = list(iter_batches(data))
    return ReadBatches([_Piece(data, batches)] if batches else [])


def read_batches(part: FileSlice, is_enough: Callable[[int], bool]) -> ReadBatches:
    """Read batches until `is_enough`, which gets the last offset so far. OSError if the file cannot be read.

    Each read begins with a batch, and is as large as its first one if that is large.
    """
    pieces: list[_Piece] = []
    position, wanted = 0, _CHUNK_BYTES
    while position < part.size:
        data = part.file.pread(min(wanted, part.size - position), part.position + position)
        piece = _Piece(data, list(iter_batches(data)))
        if piece.batches:
            pieces.append(piece)
            position += piece.end
            wanted = _CHUNK_BYTES
            if is_enough(piece.batches[-1].last_offset):
                break
        elif wanted == _CHUNK_BYTES and len(data) == wanted:
            wanted = max(checked_batch_size(data, 0), wanted + 1)
        else:  # the slice ends within a batch, or the file does
            break
    return ReadBatches(pieces)
