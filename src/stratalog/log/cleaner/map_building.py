"""Fill the offset map from the dirty part of a log.

The map ends with the last record whose key fits, even in the middle of a batch. The rest waits for the next cleaning.
Data of aborted transactions is ignored. Source: Kafka's `Cleaner.buildOffsetMap`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

import numpy as np

from stratalog.errors import CorruptRecordError
from stratalog.log.cleaner import context as at, keys_kernel
from stratalog.log.cleaner.chunk import Chunk, address_of
from stratalog.log.cleaner.log_view import aborted_transactions, segments_between
from stratalog.log.cleaner.offset_map import OffsetMap
from stratalog.log.cleaner.throttle import Throttle
from stratalog.log.cleaner.transactions import CleanedTransactions
from stratalog.log.cleaner.values import CleanerStats
from stratalog.log.partition_log import PartitionLog
from stratalog.log.segment import LogSegment
from stratalog.records import RecordBatch, batch_format as fmt

_GOES_ON: Final = False
_IS_FULL: Final = True


class MapBuilder:
    def __init__(
        self,
        offset_map: OffsetMap,
        buffer_bytes: int,
        throttle: Throttle,
        stats: CleanerStats,
        check_abort: Callable[[], None],
    ) -> None:
        self._map = offset_map
        self._chunk = Chunk(buffer_bytes)
        self._throttle = throttle
        self._stats = stats
        self._check_abort = check_abort
        self._transactions = CleanedTransactions()

    def build(self, log: PartitionLog, start_offset: int, end_offset: int) -> None:
        """Map the records between the two offsets, or as many of the first ones as fit in the map.

        The map then reaches up to its `latest_offset`. Raises CorruptRecordError and the errors of `check_abort`.
        """
        self._map.clear()
        segments = segments_between(log.segments, start_offset, end_offset)
        self._transactions.add_aborted(aborted_transactions(log, start_offset, end_offset))
        self._chunk.context.map = self._map.address
        self._chunk.context.start_offset = start_offset
        self._chunk.context.messages_read = 0
        ends = [*(following.base_offset for _, following in pairwise(segments)), end_offset]
        try:
            for segment, segment_end in zip(segments, ends, strict=False):
                self._check_abort()
                if self._add_segment(segment, start_offset, segment_end) is _IS_FULL:
                    break
        finally:
            self._stats.map_messages_read += self._chunk.context.messages_read

    def _add_segment(self, segment: LogSegment, start_offset: int, end_offset: int) -> bool:
        chunk, position = self._chunk, _position_before(segment, start_offset)
        while position < segment.size_bytes:
            self._check_abort()
            self._throttle.maybe_throttle(chunk.read(segment, position))
            with chunk.errors_named():
                is_full = self._add_chunk(start_offset)
            if is_full:
                return _IS_FULL
            if chunk.position == 0:
                chunk.grow_for_batch()
            position += chunk.position
            self._stats.map_bytes_read += chunk.position
        # The offsets after the last batch, up to the next segment, belong to no batch.
        self._map.update_latest_offset(end_offset - 1)
        return _GOES_ON

    def _add_chunk(self, start_offset: int) -> bool:
        chunk = self._chunk
        while True:
            keys_kernel.put_chunk(chunk.address)
            status = chunk.status
            if status == at.DONE:
                return _GOES_ON
            if status == at.MAP_FULL:
                return _IS_FULL
            batch = chunk.batch()
            if self._add_batch(batch, start_offset) is _IS_FULL:
                return _IS_FULL
            if batch.last_offset >= start_offset:
                self._map.update_latest_offset(batch.last_offset)
            chunk.advance(batch.size)

    def _add_batch(self, batch: RecordBatch, start_offset: int) -> bool:
        """Add a batch that the loop over the chunk left to Python; return whether the map is full before its end."""
        if batch.is_control:
            self._transactions.on_control(batch)
            self._count(1)
            return _GOES_ON
        if self._transactions.on_data(batch):
            self._count(batch.record_count)
            return _GOES_ON
        if batch.magic < fmt.MAGIC:
            return self._add_plainly(batch, start_offset)
        return self._add_payload(batch)

    def _count(self, messages: int) -> None:
        self._chunk.context.messages_read += messages

    def _add_payload(self, batch: RecordBatch) -> bool:
        payload = np.frombuffer(batch.decompressed_payload(), np.uint8)
        status = keys_kernel.put_keys(
            self._chunk.address, self._chunk.header_address(), address_of(payload), len(payload)
        )
        if status == at.MALFORMED:
            for _ in batch.records():  # raises an error that describes the damage
                pass
            raise ValueError(f"malformed records in {batch!r}")
        return bool(status == at.MAP_FULL)

    def _add_plainly(self, batch: RecordBatch, start_offset: int) -> bool:
        for record in batch.records():
            if record.key is not None and record.offset >= start_offset:
                if self._map.size >= self._map.size_wanted:
                    return _IS_FULL
                self._map.put(record.key, record.offset)
            self._count(1)
        return _GOES_ON


def _position_before(segment: LogSegment, offset: int) -> int:
    """Return the position to read from for `offset`: that of the index entry before it if it is correct, else 0."""
    entry = segment.offset_index.lookup(offset)
    if entry.position == 0:
        return 0
    try:
        _, header = next(segment.headers(entry.position))
    except (CorruptRecordError, StopIteration):
        return 0
    return entry.position if header[0] + header[6] == entry.offset else 0
