"""Check the CRC of batches found on disk before they are served.

Batches that this process wrote or recovered are sound. Others are checked once, on their first read: size, CRC, and
ascending offsets within the bounds of the segment. Checked ranges are remembered, so reading through a segment costs
one check per opening, and reading near the end costs none. (Kafka serves what is on disk and leaves the check to its
clients.)

    unchecked_end      this process wrote everything from this position on: one comparison for most reads
    servable(...)      how many bytes from a position may be served; CorruptRecordError for a damaged first batch

Damage is never repaired or removed here: readers get the records before it, then an error with file and position.
Thread safety: any number of readers; ranges are replaced as a whole.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Final

from typing_extensions import Buffer

from stratalog.errors import CorruptRecordError
from stratalog.records import (
    ATTRIBUTES_AT,
    BATCH_SIZE_MIN,
    HEADER,
    HEADER_SIZE,
    LENGTH_MIN,
    LOG_OVERHEAD,
    MAGIC,
    batch_at,
)
from stratalog.records.legacy import find_header
from stratalog.util import File, crc32c

logger = logging.getLogger(__name__)

_CHUNK_SIZE: Final = 1024 * 1024
#: With more ranges than this, the oldest are forgotten and checked again.
_RANGES_MAX: Final = 4096

_unpack_header = HEADER.unpack_from


class SoundBytes:
    """`path` and `base_offset` are those of the segment. Bytes below `unchecked_end` were found on disk."""

    __slots__ = ("_base_offset", "_bounds", "_lock", "_named", "path", "unchecked_end")

    def __init__(self, path: Path, base_offset: int, unchecked_end: int) -> None:
        self.path = path
        self.unchecked_end = unchecked_end
        self._base_offset = base_offset
        self._lock = threading.Lock()
        #: Start and end of each range in turn, ascending.
        self._bounds: tuple[int, ...] = ()
        self._named: set[int] = set()

    def trust(self) -> None:
        """Mark all bytes as checked."""
        self.unchecked_end = 0
        self._bounds = ()

    def distrust(self, size: int) -> None:
        """Mark the first `size` bytes as unchecked."""
        self.unchecked_end = size
        self._bounds = ()

    def cut(self, position: int) -> None:
        """Record that the segment was truncated at `position`, after which this process writes."""
        self.unchecked_end = min(self.unchecked_end, position)

    def servable(self, file: File, position: int, size: int, size_bytes: int, end_offset: int) -> int:
        """Return how many of `size` bytes from the batch at `position` may be served.

        Returns less than `size` if a later batch is damaged. Offsets must be below `end_offset`. Raises
        CorruptRecordError, with file and position, for a damaged first batch.
        """
        end = min(position + size, self.unchecked_end)
        known = self._known_up_to(position)
        if known >= end:
            return size
        sound, flaw = self._check(file, known, end, size_bytes, end_offset)
        if sound > known:
            self._remember(known, sound)
        if flaw is None:
            if sound >= self.unchecked_end and self._known_up_to(0) >= self.unchecked_end:
                self.trust()
            return size
        message = f"{self.path}: the batch at position {sound} is damaged: {flaw}"
        if sound not in self._named:
            self._named.add(sound)
            logger.error("%s; readers get an error, and the file is left as it is", message)
        if sound == position:
            raise CorruptRecordError(message)
        return sound - position

    def name_gap(self, offset: int, next_offset: int) -> None:
        """Warn once that an uncompacted log lacks records from `offset` to the end of this segment.

        The segment cannot tell whether the topic was once compacted, in which case nothing is lost.
        """
        if -1 in self._named or offset >= next_offset:
            return
        self._named.add(-1)
        logger.warning(
            "%s: offsets %d to %d are missing, which is a loss unless the topic was compacted once; readers skip them",
            self.path,
            offset,
            next_offset - 1,
        )

    def _known_up_to(self, position: int) -> int:
        """Return the end of the range that holds `position`, or `position` if none does."""
        bounds = self._bounds
        at = bisect_right(bounds, position)
        return bounds[at] if at & 1 else position

    def _remember(self, start: int, end: int) -> None:
        with self._lock:
            bounds = self._bounds
            first, last = bisect_left(bounds, start), bisect_right(bounds, end)
            middle = (() if first & 1 else (start,)) + (() if last & 1 else (end,))
            merged = (*bounds[:first], *middle, *bounds[last:])
            self._bounds = merged if len(merged) <= 2 * _RANGES_MAX else (start, end)

    def _check(self, file: File, start: int, end: int, size_bytes: int, end_offset: int) -> tuple[int, str | None]:
        """Return the end of the sound batches between `start` and `end`, and what is wrong there.

        Also checks the header of the next batch: the CRC does not cover offsets, so they have to match their
        neighbours.
        """
        position, expected = start, self._base_offset
        previous, is_previous_sure = -1, False
        data, data_at = b"", start
        while size_bytes - position >= BATCH_SIZE_MIN:
            at = position - data_at
            if at + HEADER_SIZE > len(data):
                data, data_at, at = file.pread(min(_CHUNK_SIZE, size_bytes - position), position), position, 0
            header = header_at(data, at, len(data))
            is_beyond = position >= end
            if header is None:
                return position, None if is_beyond else "no batch header is there"
            if previous >= 0 and header[0] < expected:
                if not is_previous_sure and not self._follows(file, previous):
                    return previous, f"the batch behind it begins at offset {header[0]}, before its end"
                return (
                    position,
                    None if is_beyond else f"it begins at offset {header[0]}, expected {expected}",
                )
            size = header[1] + LOG_OVERHEAD
            if is_beyond or position + size > end:
                return position, None
            if at + size > len(data):
                data, data_at, at = (
                    file.pread(max(size, min(_CHUNK_SIZE, end - position)), position),
                    position,
                    0,
                )
            last_offset = header[0] + header[6]
            if not expected <= header[0] <= last_offset < end_offset:
                wanted = f"{expected} to {end_offset - 1}"
                return position, f"its offsets are {header[0]} to {last_offset}, expected within {wanted}"
            flaw = crc_flaw(data, at, header)
            if flaw is not None:
                return position, flaw
            previous, is_previous_sure = position, header[0] == expected
            position, expected = position + size, last_offset + 1
        return position, None

    def _follows(self, file: File, position: int) -> bool:
        """Return whether the batch at `position` begins where the previous one ends.

        Which of two contradicting batches is reported must not depend on where a check began.
        """
        at, expected = 0, self._base_offset
        while at <= position:
            data = file.pread(HEADER_SIZE, at)
            header = header_at(data, 0, len(data))
            if header is None:
                return False
            if at == position:
                return header[0] == expected
            at, expected = at + header[1] + LOG_OVERHEAD, header[0] + header[6] + 1
        return False


def header_at(data: Buffer, at: int, limit: int) -> tuple[int, ...] | None:
    """Return the header fields (`batch_format.HEADER`) of a batch of any format at `at`, or None if there is none."""
    if at + HEADER_SIZE <= limit:
        header = _unpack_header(data, at)
        if header[3] == MAGIC and header[1] >= LENGTH_MIN:
            return header
    return find_header(data, at, limit)


def crc_flaw(data: Buffer, at: int, header: tuple[int, ...]) -> str | None:
    """Return what is wrong with the content of the whole batch at `at`, or None."""
    if header[3] != MAGIC:
        return None if batch_at(data, at).is_crc_valid else "its CRC-32 is wrong"
    return wrong_crc(header, crc32c(memoryview(data)[at + ATTRIBUTES_AT : at + header[1] + LOG_OVERHEAD]))


def wrong_crc(header: tuple[int, ...], computed: int) -> str | None:
    """Return a message if the CRC-32C of a batch's bytes differs from its header, else None."""
    if computed == header[4]:
        return None
    return f"its CRC-32C is {header[4]:#010x}, its bytes have {computed:#010x}"
