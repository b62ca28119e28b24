"""The scan of a segment whose end is in doubt: which batches are sound, and the indexes made anew from them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from stratalog.errors import CorruptRecordError, InvalidRecordError
from stratalog.log.producer_state import BATCHES_KEPT
from stratalog.log.roll import RELATIVE_OFFSET_MAX
from stratalog.log.segment_indexes import SegmentIndexes
from stratalog.log.values import TimestampOffset
from stratalog.records.batch import RecordBatch, batch_at
from stratalog.records.batch_format import (
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
)
from stratalog.records.legacy_format import find_header
from stratalog.util.crc32c import crc32c

_TRANSACTION_BITS: Final = TRANSACTIONAL_BIT | CONTROL_BIT

_NO_HEADER: Final = (-1,) * 13

_unpack_header = HEADER.unpack_from

OnBatch = Callable[[RecordBatch], None]


class SoundBatches(NamedTuple):
    """What a scan found: bytes up to the end of the last sound batch, and the largest timestamp among them."""

    size_bytes: int
    max_timestamp: TimestampOffset


def index_sound_batches(
    view: memoryview,
    indexes: SegmentIndexes,
    on_batch: OnBatch,
    *,
    epoch: int,
    expected_offset: int,
    index_interval_bytes: int,
) -> SoundBatches:
    """Check every batch in the `.log` that `view` shows up to the first unsound one, and index them.

    The contract of `LogSegment.recover` says what is sound and which batches `on_batch` is told. The loop is flat for
    speed. The indexes are empty before it.
    """
    limit = len(view)
    position = last_index_entry = 0
    base_offset = indexes.base_offset
    highest, last_indexable = base_offset + RELATIVE_OFFSET_MAX, indexes.offset.format.position_max
    largest, largest_offset = NO_TIMESTAMP, base_offset
    recent: dict[int, deque[int]] = {}
    while position + BATCH_SIZE_MIN <= limit:
        header = _unpack_header(view, position) if position + HEADER_SIZE <= limit else _NO_HEADER
        if header[3] != MAGIC or header[1] < LENGTH_MIN:
            header = find_header(view, position, limit) or _NO_HEADER
        end = position + header[1] + LOG_OVERHEAD
        if header is _NO_HEADER or end > limit:
            break
        last_offset = header[0] + header[6]
        if header[0] < expected_offset or not header[0] <= last_offset <= highest:
            break
        if header[3] == MAGIC:
            if crc32c(view[position + ATTRIBUTES_AT : end]) != header[4]:
                break
        elif not batch_at(view, position).is_crc_valid:
            break
        if header[8] > largest:
            largest, largest_offset = header[8], last_offset
        if (
            index_interval_bytes < position - last_index_entry
            and position <= last_indexable
            and not indexes.is_full
        ):
            indexes.append(last_offset, position, largest, largest_offset)
            last_index_entry = position
        producer_id = header[9]
        if header[2] > epoch or (
            producer_id >= 0 and (header[5] & _TRANSACTION_BITS or producer_id not in recent)
        ):
            try:
                _tell(view, (*recent.get(producer_id, ()), position), on_batch)
            except (CorruptRecordError, InvalidRecordError):
                break
            if producer_id >= 0:
                recent[producer_id] = deque(maxlen=BATCHES_KEPT)
            epoch = max(epoch, header[2])
        elif producer_id >= 0:
            recent[producer_id].append(position)
        expected_offset = last_offset + 1
        position = end
    for positions in recent.values():
        _tell(view, positions, on_batch)
    return SoundBatches(position, TimestampOffset(largest, largest_offset))


def _tell(view: memoryview, positions: Iterable[int], on_batch: OnBatch) -> None:
    for position in positions:
        on_batch(RecordBatch(view, position))
