"""Find where valid batches resume after damage in a `.log`.

What looks like a batch may be part of a record: a value may contain batches, with any offsets. So the damaged batch's
own header is trusted first, as far as possible. A run of sound batches is trusted if the log continues at its end: with
the next offset, with zeros, or not at all. A run inside a record does not, because the record does not end with its
value. If the log is also damaged at the end of a true run, the run has to begin right after the damaged batch's last
offset, and nothing after it may contradict it.

Batches in a record can still be mistaken for lost ones in three cases: the record's batch has lost its offsets too, and
theirs fit between its neighbours; it is the last of the segment, has lost its length, and theirs begin at exactly the
next offset; or the value was crafted to continue with the next offset.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from stratalog.log.segment import LogBytes
from stratalog.records import HEADER, HEADER_SIZE, LENGTH_MIN, LOG_OVERHEAD, MAGIC, MAGIC_AT

#: A batch of format 2 from its magic on: a CRC, only known attributes, a last offset delta >= 0.
_LIKE_A_BATCH: Final = re.compile(rb"(?s)\x02(?=.{4}\x00[\x00-\x7f][\x00-\x7f])")
_OFFSET_SIZE: Final = 8
_CHUNK_SIZE: Final = 1024 * 1024
_ZEROS: Final = bytes(_CHUNK_SIZE)
#: A run of this size is trusted without its end: no record is as large, and the cost per damage must be bounded.
_RUN_MAX: Final = 64 * 1024 * 1024
_DELTA_MAX: Final = 0x7FFF_FFFF

_unpack_header = HEADER.unpack_from


class Claim(NamedTuple):
    """What the damaged batch's header says."""

    #: Where it ends, 0 if unknown. After the end of the file: its length is wrong, or it was torn.
    end: int
    #: Its last offset, -1 if unknown.
    last_offset: int


#: The damage does not begin with a batch header.
NO_CLAIM: Final = Claim(0, -1)


def next_sound(log: LogBytes, position: int, expected_offset: int, highest: int) -> tuple[int, int]:
    """Return position and base offset of the next sound batch after the damage at `position`, or (end of file, -1)."""
    limit = log.size
    claim = claim_at(log, position, expected_offset, highest)
    if claim.end == limit:
        return limit, -1
    if 0 < claim.end < limit:
        following = _sound_at(log, claim.end, expected_offset + 1, highest)
        if following is not None:
            return claim.end, following
    return search(log, position + 1, expected_offset, highest, claim)


def claim_at(log: LogBytes, position: int, expected_offset: int, highest: int) -> Claim:
    """Return what the header of the damaged batch at `position` says, if its offsets are plausible."""
    if position + HEADER_SIZE > log.size:
        return NO_CLAIM
    header = _unpack_header(log.at(position, HEADER_SIZE))
    if not expected_offset <= header[0] <= header[0] + header[6] <= min(highest, expected_offset + _DELTA_MAX):
        return NO_CLAIM
    known = log.header(position)
    return Claim(0 if known is None else position + known[1] + LOG_OVERHEAD, header[0] + header[6])


def search(log: LogBytes, start: int, expected_offset: int, highest: int, claim: Claim) -> tuple[int, int]:
    """Return position and base offset of the first sound batch of the log from `start` on, or (end of file, -1)."""
    passed = start
    for at in _like_batches(log, start):
        if at < passed:
            continue
        found = _sound_at(log, at, expected_offset, highest)
        if found is None:
            continue
        end, next_offset = _run_end(log, at, highest)
        if _is_believed(log, at, found, end, next_offset, highest, claim):
            return at, found
        passed = end
    return log.size, -1


def _like_batches(log: LogBytes, start: int) -> Iterator[int]:
    """Yield the positions from `start` on of headers that look like those of batches."""
    last = log.size - HEADER_SIZE
    while start <= last:
        window = log.window(start)
        is_end = start + len(window) == log.size
        for match in _LIKE_A_BATCH.finditer(window, MAGIC_AT):
            at = start + match.start() - MAGIC_AT
            if at > last:
                return
            yield at
        if is_end:
            return
        start += len(window) - HEADER_SIZE + 1  # a header cut off by the window is whole in the next


def _sound_at(log: LogBytes, at: int, expected_offset: int, highest: int) -> int | None:
    """Return the base offset of the sound batch at `at`, or None if there is none."""
    header = _unpack_header(log.at(at, HEADER_SIZE)) if at + HEADER_SIZE <= log.size else None
    if header is None or header[3] != MAGIC or header[1] < LENGTH_MIN:
        return None
    if at + header[1] + LOG_OVERHEAD > log.size:
        return None
    if not expected_offset <= header[0] <= header[0] + header[6] <= highest:
        return None
    return header[0] if log.crc_flaw(at, header) is None else None


def _run_end(log: LogBytes, start: int, highest: int) -> tuple[int, int]:
    """Return the end of the consecutive sound batches from `start` on, and the offset after them."""
    at, next_offset = start, 0
    found: int | None = 0
    while found is not None and at - start < _RUN_MAX:
        header = _unpack_header(log.at(at, HEADER_SIZE))
        at += header[1] + LOG_OVERHEAD
        next_offset = header[0] + header[6] + 1
        found = _sound_at(log, at, next_offset, highest)
    return at, next_offset


def _is_believed(  # noqa: PLR0917
    log: LogBytes, at: int, base_offset: int, end: int, next_offset: int, highest: int, claim: Claim
) -> bool:
    """Return whether the sound batches from `at` to `end` are batches of the log; see the module."""
    limit = log.size
    if base_offset <= claim.last_offset:
        return False
    if end >= limit or end - at >= _RUN_MAX:
        return True
    if _is_contradicted(log, end, base_offset, highest):
        return False
    if _goes_on(log, end, next_offset):
        return True
    if claim.last_offset < 0 or base_offset == claim.last_offset + 1:
        is_within = at < claim.end <= limit and end <= claim.end
        return not (is_within and _goes_on(log, claim.end, claim.last_offset + 1))
    return 0 < claim.end <= at and _goes_on(log, claim.end, claim.last_offset + 1)


def _goes_on(log: LogBytes, end: int, next_offset: int) -> bool:
    """Return whether a batch of `next_offset`, possibly damaged or torn, or the end of the log is at `end`."""
    there = bytes(log.at(end, _OFFSET_SIZE))
    return next_offset.to_bytes(_OFFSET_SIZE, "big").startswith(there) or content_end(log, end) == end


def _is_contradicted(log: LogBytes, end: int, base_offset: int, highest: int) -> bool:
    """Return whether the next sound batch after `end` has a lower offset than a run from `base_offset`."""
    for at in _like_batches(log, end):
        found = _sound_at(log, at, 0, highest)
        if found is not None:
            return found <= base_offset
    return False


def content_end(log: LogBytes, start: int) -> int:
    """Return where the zeros at the end of a log begin, or `start` if nothing else follows it."""
    for end in range(log.size, start, -_CHUNK_SIZE):
        begin = max(start, end - _CHUNK_SIZE)
        content = bytes(log.window(begin, end - begin)[: end - begin])
        if content != _ZEROS[: len(content)]:
            return begin + len(content.rstrip(b"\0"))
    return start
