"""Where the batches of a `.log` lie and which offsets they hold, from their headers alone: for checks that trust
nothing.

Bytes that are no batch are an answer here (None, or the end of the walk), not an error. Messages of formats 0 and 1
count as batches of one; of a wrapper only the last offset is known without its records, and stands for both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from typing_extensions import Buffer

from stratalog.records.batch_format import (
    BATCH_SIZE_MIN,
    HEADER,
    HEADER_SIZE,
    LENGTH_MIN,
    LOG_OVERHEAD,
    MAGIC,
)
from stratalog.records.legacy.format import find_header

_WINDOW_SIZE: Final = 128 * 1024


class LogReader(Protocol):
    """Bytes of a `.log` by position; fewer than asked for only at its end."""

    def pread(self, size: int, position: int, /) -> Buffer: ...


class BatchSpan(NamedTuple):
    """A batch: first and last offset, size in bytes, largest timestamp (-1 for none)."""

    base_offset: int
    last_offset: int
    size: int
    max_timestamp: int


def span_at(log: LogReader, log_size: int, position: int) -> BatchSpan | None:
    """The batch that begins at `position`; None if none does, or it does not end within `log_size`."""
    if not 0 <= position <= log_size - BATCH_SIZE_MIN:
        return None
    return _span_in(bytes(log.pread(min(HEADER_SIZE, log_size - position), position)), 0, log_size - position)


def spans(log: LogReader, log_size: int, position: int = 0) -> Iterator[tuple[int, BatchSpan]]:
    """Position and span of each batch from `position` on, up to the first bytes that are no whole batch."""
    window, window_at = b"", position
    while log_size - position >= BATCH_SIZE_MIN:
        at = position - window_at
        if at + HEADER_SIZE > len(window):
            window, window_at, at = (bytes(log.pread(min(_WINDOW_SIZE, log_size - position), position)), position, 0)
        span = _span_in(window, at, log_size - position)
        if span is None:
            return
        yield position, span
        position += span.size


def _span_in(data: bytes, at: int, size_max: int) -> BatchSpan | None:
    header = HEADER.unpack_from(data, at) if at + HEADER_SIZE <= len(data) else None
    if header is None or header[3] != MAGIC or header[1] < LENGTH_MIN:
        header = find_header(data, at, len(data))
    if header is None or header[0] < 0 or header[6] < 0 or header[1] + LOG_OVERHEAD > size_max:
        return None
    return BatchSpan(header[0], header[0] + header[6], header[1] + LOG_OVERHEAD, header[8])
