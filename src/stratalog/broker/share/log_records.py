"""Batches that are read for share fetches, and the part of them that is sent.

Source: `ShareFetchUtils.maybeSliceFetchRecords` and `SharePartition.fetchAbortedTransactionRecordBatches` of Kafka
4.4.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stratalog.broker.share.record_runs import BatchOffsets, RecordRun
from stratalog.log.format import FileSlice
from stratalog.records import RecordBatch, checked_batch_size, iter_batches

if TYPE_CHECKING:
    from stratalog.log.index import AbortedTransaction
    from stratalog.util import File

#: Size of one read: enough for the records that a consumer takes at a time, unless they are large.
_CHUNK_BYTES: Final = 256 * 1024
#: Fewer bytes are sent with the response, not from the file.
SLICE_BYTES_MIN: Final = 4096


@dataclass(frozen=True, slots=True)
class _Piece:
    """The result of one read: consecutive complete batches from the beginning of `data` on."""

    data: bytes
    batches: Sequence[RecordBatch]
    #: Where the data is in the file; 0 if it is from none.
    position: int = 0

    @property
    def end(self) -> int:
        """Return the end of the last batch in the data."""
        return self.batches[-1].start + self.batches[-1].size if self.batches else 0

    def between(self, first: int, last: int) -> tuple[int, int]:
        """Return begin and end of the batches from the one with the first offset, or the next, to that of the last."""
        begin = end = 0
        for batch in self.batches:
            if batch.base_offset > last:
                break
            if batch.base_offset <= first:
                begin = batch.start
            end = batch.start + batch.size
        return begin, end


@dataclass(frozen=True, slots=True)
class ReadBatches:
    pieces: Sequence[_Piece]
    #: Where the pieces are, one behind the other; None if they are from the remote tier.
    file: File | None = None

    @property
    def batches(self) -> list[RecordBatch]:
        return [batch for piece in self.pieces for batch in piece.batches]

    @property
    def offsets(self) -> list[BatchOffsets]:
        return [BatchOffsets(batch.base_offset, batch.last_offset) for batch in self.batches]

    def with_records(self, acquired: Sequence[RecordRun]) -> bytes | FileSlice:
        """Return the batches from the first to the last acquired record; many bytes as a part of their file."""
        first, last = acquired[0].first, acquired[-1].last
        at = max((at for at, piece in enumerate(self.pieces) if piece.batches[0].base_offset <= first), default=0)
        parts = [(piece, *piece.between(first, last)) for piece in self.pieces[at:]]
        size = sum(end - begin for _, begin, end in parts)
        if self.file is not None and size >= SLICE_BYTES_MIN:
            piece, begin, _ = next(part for part in parts if part[1] < part[2])
            return FileSlice(self.file, piece.position + begin, size)
        return b"".join(memoryview(piece.data)[begin:end] for piece, begin, end in parts)

    def aborted(self, transactions: Sequence[AbortedTransaction]) -> list[BatchOffsets]:
        """Return the batches of aborted transactions."""
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
    """Return the complete batches at the beginning of `data`. CorruptRecordError for invalid ones."""
    batches = list(iter_batches(data))
    return ReadBatches([_Piece(data, batches)] if batches else [])


def read_batches(part: FileSlice, is_enough: Callable[[int], bool]) -> ReadBatches:
    """Read batches until `is_enough`, which gets the last offset so far, returns True.

    Each read starts at a batch and contains at least that one. Raises OSError if the file cannot be read.
    """
    pieces: list[_Piece] = []
    position, wanted = 0, _CHUNK_BYTES
    while position < part.size:
        data = part.file.pread(min(wanted, part.size - position), part.position + position)
        piece = _Piece(data, list(iter_batches(data)), part.position + position)
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
    return ReadBatches(pieces, part.file)
