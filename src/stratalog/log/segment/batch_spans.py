"""Positions and offsets of the batches of a `.log`, from their headers alone.

For checks that trust nothing: bytes that are no batch are a result (None, or the end of the walk), not an error.
Messages of formats 0 and 1 count as batches of one. Of a wrapper message only the last offset is known without
decompression; it is used for both offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from typing_extensions import Buffer

from stratalog.records import HEADER_SIZE, LOG_OVERHEAD, STOP, WINDOW_SIZE, walk


class LogReader(Protocol):
    """Bytes of a `.log` by position. Fewer than requested only at its end."""

    def pread(self, size: int, position: int, /) -> Buffer: ...


class BatchSpan(NamedTuple):
    """A batch: first and last offset, size in bytes, largest timestamp (-1 for none)."""

    base_offset: int
    last_offset: int
    size: int
    max_timestamp: int


def span_at(log: LogReader, log_size: int, position: int) -> BatchSpan | None:
    """Return the batch that begins at `position`. None if there is none, or it does not end within `log_size`."""
    if position < 0:
        return None
    return next((span for _, span in spans(log, log_size, position, window_size=HEADER_SIZE)), None)


def spans(
    log: LogReader, log_size: int, position: int = 0, *, window_size: int = WINDOW_SIZE
) -> Iterator[tuple[int, BatchSpan]]:
    """Yield position and span of each batch from `position` up to the first bytes that are no whole batch."""
    batches = walk(log.pread, log_size, start=position, on_damage=STOP, with_records=False, window_size=window_size)
    for at, batch in batches:
        header = batch.header
        if header[0] < 0 or header[6] < 0:
            return
        yield at, BatchSpan(header[0], header[0] + header[6], header[1] + LOG_OVERHEAD, header[8])
