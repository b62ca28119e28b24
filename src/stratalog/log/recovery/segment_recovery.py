"""Scan a segment of doubtful content: find the sound batches and rebuild the indexes from them.

Above the offset up to which the log is known to be flushed, the first unsound byte ends the segment, as in Kafka: a
crash leaves that. Below it nothing is ever cut: damage is skipped up to the next sound batch, and stays in the file.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from stratalog.errors import CorruptRecordError, InvalidRecordError, StratalogError
from stratalog.log.append import RELATIVE_OFFSET_MAX
from stratalog.log.format import TimestampOffset
from stratalog.log.producers import BATCHES_KEPT
from stratalog.log.recovery.native_scan import NativeScan, Reached
from stratalog.log.resumption import content_end, next_sound
from stratalog.log.segment import LogBytes, SegmentIndexes, header_at
from stratalog.records import (
    ATTRIBUTES_AT,
    BATCH_SIZE_MIN,
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_MIN,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    RecordBatch,
    batch_at,
)
from stratalog.util import crc32c

_TRANSACTION_BITS: Final = TRANSACTIONAL_BIT | CONTROL_BIT

_unpack_header = HEADER.unpack_from

OnBatch = Callable[[RecordBatch], None]

#: A larger batch has its CRC checked before it is read into memory as a whole: its length may be wrong.
_LARGE: Final = 16 * 1024 * 1024


class OverflowedSegmentError(StratalogError):
    """A segment reaches further than its indexes can represent. Split it (`overflow`) and read it again."""

    def __init__(self, base_offset: int) -> None:
        super().__init__(f"the segment {base_offset} reaches further than its indexes can represent")
        self.base_offset = base_offset


class DamagedRange(NamedTuple):
    """A range of a `.log` that is no sound batch and was left unchanged."""

    position: int
    end: int
    #: The lost offsets: from this one up to before `end_offset` (-1: unknown).
    first_offset: int
    end_offset: int
    reason: str


class _Gap(NamedTuple):
    """The last batch does not follow the previous one; and the state before it."""

    position: int
    expected_offset: int
    largest_timestamp: int
    largest_offset: int


class SoundBatches(NamedTuple):
    #: Bytes up to the new end of the segment.
    size_bytes: int
    max_timestamp: TimestampOffset
    #: The offset after the last sound batch.
    next_offset: int
    #: Damage in the part that is kept.
    damage: tuple[DamagedRange, ...]
    #: Why the segment ends before the file does, or None.
    flaw: str | None


def index_sound_batches(  # noqa: C901
    log: LogBytes,
    indexes: SegmentIndexes,
    on_batch: OnBatch,
    *,
    epoch: int,
    flushed_to: int,
    end_offset: int,
    index_interval_bytes: int,
    may_overflow: bool,
    cut_torn_write: bool = False,
    synced_to: int | None = None,
) -> SoundBatches:
    """Check every batch in a `.log`, and index those that are sound.

    `LogSegment.recover` describes sound batches, `on_batch`, `flushed_to`, `end_offset`, `may_overflow`,
    `cut_torn_write` and `synced_to`. The loop is flat for speed, and `NativeScan` takes over most sound batches. The
    indexes must be empty.
    """
    limit = log.size
    view, view_at = memoryview(b""), 0
    position = last_index_entry = readable = 0
    expected_offset = base_offset = indexes.base_offset
    highest, last_indexable = (
        min(base_offset + RELATIVE_OFFSET_MAX, end_offset - 1),
        indexes.offset.format.position_max,
    )
    largest, largest_offset = NO_TIMESTAMP, base_offset
    recent: dict[int, deque[int]] = {}
    damage: list[DamagedRange] = []
    flaw: str | None = None
    gap: _Gap | None = None
    native = NativeScan(
        log, indexes, highest=highest, last_indexable=last_indexable, index_interval_bytes=index_interval_bytes
    )
    while position < limit:
        if native.plain_left:
            native.plain_left -= 1
        else:
            before = Reached(position, expected_offset, largest, largest_offset, last_index_entry)
            reached = native.go_on(before, epoch, recent)
            if reached.position > position:
                position, expected_offset, largest, largest_offset, last_index_entry = reached
                view, view_at, readable, gap = memoryview(b""), position, position, None
                continue
        behind = position + HEADER_SIZE
        if behind > readable and readable < limit:
            view, view_at = log.window(position), position
            readable = position + len(view)
        at = position - view_at
        header = _unpack_header(view, at) if behind <= readable else None
        if header is None or header[3] != MAGIC or header[1] < LENGTH_MIN:
            header = header_at(view, at, len(view))
        if header is None:
            end = last_offset = -1
        else:
            end = position + header[1] + LOG_OVERHEAD
            last_offset = header[0] + header[6]
            if readable < end <= limit:
                if end - position <= _LARGE or log.crc_flaw(position, header) is None:
                    view, view_at, at = log.window(position, end - position), position, 0
                    readable = position + len(view)
                else:
                    end = limit + 1
        if (
            header is None
            or end > limit
            or header[0] < expected_offset
            or not header[0] <= last_offset <= highest
            or (
                crc32c(view[at + ATTRIBUTES_AT : end - view_at]) != header[4]
                if header[3] == MAGIC
                else not batch_at(view, at).is_crc_valid
            )
        ):
            if may_overflow and highest < end_offset - 1 and _is_sound_but_far(log, position, expected_offset, highest):
                raise OverflowedSegmentError(base_offset)
            flaw = _flaw(log, position, header, expected_offset, highest)
            if gap is not None and header is not None and gap.expected_offset <= header[0] < expected_offset:
                # The CRC does not cover offsets: the previous batch has the wrong one.
                flaw = f"its offset is followed by {header[0]}"
                indexes.truncate_to(expected_offset - 1)
                expected_offset, largest, largest_offset = gap[1:]
                if expected_offset < flushed_to:
                    damage.append(DamagedRange(gap.position, position, expected_offset, header[0], flaw))
                    gap = flaw = None
                    continue
                position = gap.position
                break
            if expected_offset >= flushed_to or (cut_torn_write and is_torn_write(log, position, expected_offset)):
                break
            resumed, found_offset = next_sound(log, position, expected_offset, highest)
            if found_offset < 0 and synced_to is not None and expected_offset >= synced_to:
                break
            damage.append(DamagedRange(position, resumed, expected_offset, found_offset, flaw))
            flaw, position, gap = None, resumed, None
            last_index_entry = position - index_interval_bytes - 1  # an index entry of its own takes readers there
            continue
        gap = None if header[0] == expected_offset else _Gap(position, expected_offset, largest, largest_offset)
        if header[8] > largest:
            largest, largest_offset = header[8], last_offset
        if (
            index_interval_bytes < position - last_index_entry
            and 0 < position <= last_indexable
            and not indexes.is_full
        ):
            indexes.append(last_offset, position, largest, largest_offset)
            last_index_entry = position
        producer_id = header[9]
        if header[2] > epoch or (producer_id >= 0 and (header[5] & _TRANSACTION_BITS or producer_id not in recent)):
            try:
                _replay(log, recent.get(producer_id, ()), on_batch)
                on_batch(batch_at(view, at))
            except (CorruptRecordError, InvalidRecordError) as error:
                if expected_offset >= flushed_to:
                    flaw = str(error)
                    break
            if producer_id >= 0:
                recent[producer_id] = deque(maxlen=BATCHES_KEPT)
            epoch = max(epoch, header[2])
        elif producer_id >= 0:
            recent[producer_id].append(position)
        expected_offset = last_offset + 1
        position = end
    for positions in recent.values():
        _replay(log, (known for known in positions if known < position), on_batch)
    return SoundBatches(position, TimestampOffset(largest, largest_offset), expected_offset, tuple(damage), flaw)


def _replay(log: LogBytes, positions: Iterable[int], on_batch: OnBatch) -> None:
    for position in positions:
        on_batch(log.batch(position))


def _flaw(log: LogBytes, position: int, header: tuple[int, ...] | None, expected_offset: int, highest: int) -> str:
    """Return why there is no sound batch at `position`."""
    if header is None:
        rest = log.at(position, HEADER_SIZE)
        if len(rest) < BATCH_SIZE_MIN:
            return f"{len(rest)} bytes are no whole batch header"
        return "no batch header is there" if any(rest) else "there are zeros instead of a batch"
    size = header[1] + LOG_OVERHEAD
    if position + size > log.size:
        return f"a batch of {size} bytes is cut off after {log.size - position}"
    last_offset = header[0] + header[6]
    if header[0] < expected_offset or not header[0] <= last_offset <= highest:
        return f"its offsets are {header[0]} to {last_offset}, expected from {expected_offset} on"
    return log.crc_flaw(position, header) or "it is not sound"


def _is_sound_but_far(log: LogBytes, position: int, expected_offset: int, highest: int) -> bool:
    """Return whether the only fault of the batch at `position` is an offset above `highest`.

    The CRC does not cover offsets: they are trusted only if another sound batch follows.
    """
    for _ in range(2):
        header = log.header(position)
        if header is None:
            return False
        end, last_offset = position + header[1] + LOG_OVERHEAD, header[0] + header[6]
        if not expected_offset <= header[0] <= last_offset or last_offset <= highest:
            return False
        if end > log.size or log.crc_flaw(position, header) is not None:
            return False
        position, expected_offset = end, last_offset + 1
    return True


def is_torn_write(log: LogBytes, position: int, next_offset: int) -> bool:
    """Return whether the bytes from `position` on are the start of one batch of `next_offset`, or zeros."""
    limit = log.size
    if content_end(log, position) - position < BATCH_SIZE_MIN:
        return True
    header = log.header(position)
    if header is None or position + header[1] + LOG_OVERHEAD <= limit or header[0] != next_offset:
        return False
    return not has_sound_batch(log, position, next_offset)


def has_sound_batch(log: LogBytes, position: int, expected_offset: int) -> bool:
    """Return whether a sound batch follows the unsound bytes at `position`, which rules out a torn write."""
    return next_sound(log, position, expected_offset, 0x7FFF_FFFF_FFFF_FFFF)[1] >= 0
