"""Read the `.log` of a segment in either tier, once, from start to end."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from typing_extensions import Buffer

from stratalog.errors import RemoteResourceNotFoundError
from stratalog.inspect import ByteSources, Place, PlaceMissingError, PlaceTier
from stratalog.jobs.compaction.values import SourceSegment
from stratalog.log.cleaner import Readable
from stratalog.records import HEADER_SIZE, MAGIC, MAGIC_AT, RecordBatch, batch_at, checked_batch_size
from stratalog.util import ReadAhead

#: Bytes that a task reads at a time, and requests from a store.
CHUNK_BYTES: Final = 2 * 1024 * 1024
_BLOCK_BYTES: Final = 4 * 1024 * 1024
_BLOCKS_AHEAD: Final = 2


@dataclass(frozen=True, slots=True)
class OpenRecords:
    """See `log.cleaner.chunk.RecordsFile`."""

    log_path: str
    size_bytes: int
    file: Readable


@contextmanager
def open_records(source: SourceSegment, places: ByteSources) -> Iterator[OpenRecords]:
    """Open the records of a segment. Raises RemoteResourceNotFoundError or FileNotFoundError if it is gone."""
    if source.place.tier is PlaceTier.LOCAL:
        with places.open_local(source.place) as file:
            yield OpenRecords(source.name, source.size, file)
        return
    blocks = _RemoteBlocks(places, source.place, source.size)
    try:
        yield OpenRecords(source.name, source.size, blocks)
    finally:
        blocks.close()


def last_batch(records: OpenRecords) -> RecordBatch | None:
    """Return the last batch, found by headers: only its header if it is of format 2, otherwise all of it."""
    position, last = 0, None
    while position < records.size_bytes:
        size = min(HEADER_SIZE, records.size_bytes - position)
        last = position, checked_batch_size(_read(records, position, size), 0)
        position += last[1]
    if last is None:
        return None
    head = _read(records, last[0], min(HEADER_SIZE, last[1]))
    return batch_at(head if head[MAGIC_AT] == MAGIC else _read(records, *last), 0)


def _read(records: OpenRecords, position: int, size: int) -> bytes:
    data = bytearray(size)
    records.file.pread_into(memoryview(data), position)
    return bytes(data)


class _RemoteBlocks:
    """An object that is read in order, with a few blocks of read-ahead."""

    def __init__(self, places: ByteSources, place: Place, size: int) -> None:
        self._places, self._place, self._size = places, place, size
        self._ahead: ReadAhead[int] = ReadAhead(
            "compaction-read-ahead", threads=_BLOCKS_AHEAD, kept_max=_BLOCKS_AHEAD + 2
        )
        self.close = self._ahead.close

    def pread_into(self, buffer: memoryview, position: int) -> int:
        got, end = 0, min(position + len(buffer), self._size)
        starts = range(position - position % _BLOCK_BYTES, self._size, _BLOCK_BYTES)
        needed = max(-(-(end - starts.start) // _BLOCK_BYTES), 0)
        blocks = [(at, self._ask(at)) for at in starts[: needed + _BLOCKS_AHEAD]]
        for at, block in blocks[:needed]:
            piece = memoryview(block.result()).cast("B")[max(position - at, 0) : end - at]
            buffer[got : got + len(piece)] = piece
            got += len(piece)
        return got

    def _ask(self, at: int) -> Future[Buffer]:
        return self._ahead.ask(at, lambda: self._fetch(at, min(at + _BLOCK_BYTES, self._size)))

    def _fetch(self, start: int, end: int) -> Buffer:
        try:
            return self._places.get_range(self._place, start, end)
        except PlaceMissingError as error:
            raise RemoteResourceNotFoundError(str(error)) from error
