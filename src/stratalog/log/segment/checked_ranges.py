"""No batch is served whose CRC fails.

Which bytes of a `.log` are known to be sound, and the check of those that are not.

What this process wrote, or read again in a recovery, is sound. What it found on disk is checked once, where it is first
read: size, CRC, and that offsets ascend within the bounds of the segment. What was checked is remembered as ranges, so
a reader that goes through a segment pays for it once per opening, and one that stays near the end never does. (Kafka
hands out what is on the disk and leaves the check to its clients.)

    unchecked_end      everything from this position on was written here: one comparison for most reads
    servable(...)      how many bytes from a position may be handed out; CorruptRecordError if not even its first batch

Damage is never repaired or removed here: readers get the records before it, then an error that names file and position.
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
#: More ranges than this are forgotten, and checked again.
_RANGES_MAX: Final = 4096

_unpack_header = HEADER.unpack_from


class SoundBytes:
    """See the module.

    `path` and `base_offset` are those of the segment; bytes below `unchecked_end` were found on disk.
    """

    __slots__ = ("_base_offset", "_bounds", "_lock", "_named", "path", "unchecked_end")

    def __init__(self, path: Path, base_offset: int, unchecked_end: int) -> None:
        self.path = path
        self.unchecked_end = unchecked_end
        self._base_offset = base_offset
        self._lock = threading.Lock()
        #: Begin and end of each range in turn, ascending.
        self._bounds: tuple[int, ...] = ()
        self._named: set[int] = set()

    def trust(self) -> None:
        """Take all that exists as checked."""
        self.unchecked_end = 0
        self._bounds = ()

    def distrust(self, size: int) -> None:
        """Take the first `size` bytes as unchecked."""
        self.unchecked_end = size
        self._bounds = ()

    def cut(self, position: int) -> None:
        """End the segment at `position`; what comes behind is written by this process."""
        self.unchecked_end = min(self.unchecked_end, position)

    def servable(self, file: File, position: int, size: int, size_bytes: int, end_offset: int) -> int:
        """Return how many of `size` bytes from the batch at `position` on may be handed out.

        `size` if nothing is wrong; less if a batch behind the first one is damaged. `size_bytes` is that of the
        segment, and no offset in it reaches `end_offset`. Raises CorruptRecordError, naming the place, for a damaged
        first batch.
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
        """Say, once, that a log that is not compacted has no records from `offset` on at the end of this segment.

        Whether it was compacted once, and the gap is no loss, cannot be seen by the segment.
        """
        if -1 in self._named or offset >= next_offset:
            return
        self._named.add(-1)
        logger.warning(
            "%s: offsets %d to %d are not there, which is a loss unless the topic was compacted once; readers go on"
            " behind them",
            self.path,
            offset,
            next_offset - 1,
        )

    def _known_up_to(self, position: int) -> int:
        """Return the end of the range that holds `position`; `position` itself if none does."""
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
        """Return where the sound batches from `start` on end, of those that end before `end`; and what is wrong there.

        The header behind the last one is looked at too: the offsets of a batch are not under its CRC, and have to fit
        its neighbours.
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
        """Return whether the batch at `position` begins where the one before it ends.

        A check may have begun with it. Which of two batches that contradict each other is at fault must not depend on
        that.
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
    """Return the fields (`batch_format.HEADER`) of a batch of any format that may begin at `at`.

    None if none can.
    """
    if at + HEADER_SIZE <= limit:
        header = _unpack_header(data, at)
        if header[3] == MAGIC and header[1] >= LENGTH_MIN:
            return header
    return find_header(data, at, limit)


def crc_flaw(data: Buffer, at: int, header: tuple[int, ...]) -> str | None:
    """Return what is wrong with the content of the batch at `at`, which is there as a whole; None: nothing."""
    if header[3] != MAGIC:
        return None if batch_at(data, at).is_crc_valid else "its CRC-32 is wrong"
    return wrong_crc(header, crc32c(memoryview(data)[at + ATTRIBUTES_AT : at + header[1] + LOG_OVERHEAD]))


def wrong_crc(header: tuple[int, ...], computed: int) -> str | None:
    """Say that the CRC-32C of a batch's bytes is not that of its header; None: it is."""
    if computed == header[4]:
        return None
    return f"its CRC-32C is {header[4]:#010x}, its bytes have {computed:#010x}"
