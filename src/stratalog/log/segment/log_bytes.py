"""The bytes of a `.log` by position, read one window at a time, for searches past damage.

Without memory mapping: unreadable bytes raise OSError instead of a signal, and memory use stays constant.
"""

from __future__ import annotations

from typing import Final, Protocol

from typing_extensions import Buffer

from stratalog.log.segment.batch_spans import LogReader
from stratalog.log.segment.checked_ranges import header_at, wrong_crc
from stratalog.records import ATTRIBUTES_AT, HEADER_SIZE, LOG_OVERHEAD, MAGIC, RecordBatch, batch_at
from stratalog.util import crc32c

WINDOW_SIZE: Final = 256 * 1024


class FillingReader(LogReader, Protocol):
    """A reader that also reads into memory of its caller."""

    def pread_into(self, buffer: memoryview, position: int, /) -> int:
        """Fill a buffer, and return how many bytes there were: fewer than its size only at the end."""


class _Memory:
    def __init__(self, data: Buffer) -> None:
        self._data = memoryview(data)

    def pread(self, size: int, position: int, /) -> Buffer:
        return self._data[position : position + size]

    def pread_into(self, buffer: memoryview, position: int, /) -> int:
        data = self._data[position : position + len(buffer)]
        buffer[: len(data)] = data
        return len(data)


class LogBytes:
    """The first `size` bytes of a `.log`. Not thread-safe.

    A concurrently truncated file reads as zeros, which are no batches.
    """

    def __init__(self, log: FillingReader, size: int) -> None:
        self.size = size
        self._log = log
        self._window = memoryview(b"")
        self._window_at = 0

    @classmethod
    def of(cls, data: Buffer) -> LogBytes:
        """Wrap bytes in memory."""
        return cls(_Memory(data), memoryview(data).nbytes)

    def at(self, position: int, size: int) -> memoryview:
        """Return up to `size` bytes from `position` on. Fewer only at the end."""
        size = min(size, self.size - position)
        if size <= 0:
            return memoryview(b"")
        start = position - self._window_at
        if start < 0 or start + size > len(self._window):
            self._window, self._window_at, start = self.window(position, size), position, 0
        return self._window[start : start + size]

    def window(self, position: int, size: int = 0) -> memoryview:
        """Read a window of at least `size` bytes, except at the end."""
        wanted = min(max(size, WINDOW_SIZE), self.size - position)
        data = self._log.pread(wanted, position)
        got = memoryview(data).nbytes
        return memoryview(data if got == wanted else bytes(data) + bytes(wanted - got))

    def fill(self, room: memoryview, position: int) -> memoryview:
        """Read what fits into memory of the caller, which costs half of a window: no new page is touched."""
        filled = room[: self.size - position]
        got = self._log.pread_into(filled, position)
        filled[got:] = bytes(len(filled) - got)
        return filled

    def header(self, position: int) -> tuple[int, ...] | None:
        head = self.at(position, HEADER_SIZE)
        return header_at(head, 0, len(head))

    def crc_flaw(self, position: int, header: tuple[int, ...]) -> str | None:
        """Return what is wrong with the content of the whole batch at `position`, or None."""
        size = header[1] + LOG_OVERHEAD
        if header[3] != MAGIC:
            return None if batch_at(self.at(position, size)).is_crc_valid else "its CRC-32 is wrong"
        end, crc = position + size, 0
        for start in range(position + ATTRIBUTES_AT, end, WINDOW_SIZE):
            crc = crc32c(self.at(start, min(WINDOW_SIZE, end - start)), crc)
        return wrong_crc(header, crc)

    def batch(self, position: int) -> RecordBatch:
        """Return the batch at `position`, whose header is sound."""
        header = header_at(self._log.pread(HEADER_SIZE, position), 0, HEADER_SIZE)
        assert header is not None
        return batch_at(self._log.pread(header[1] + LOG_OVERHEAD, position))
