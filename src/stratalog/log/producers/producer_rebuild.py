"""The state of producers as of an offset: the newest snapshot, and the batches behind it. Source: Kafka's `UnifiedLog`.

A damaged batch does not show what its producer did. It is logged, and the rest of its segment is left out.
"""

from __future__ import annotations

import logging

from stratalog.errors import CorruptRecordError, InvalidRecordError, InvalidTxnStateError
from stratalog.log.producers.producer_state import ProducerStateManager
from stratalog.log.segment import LogSegment, SegmentTable
from stratalog.records import LOG_OVERHEAD

logger = logging.getLogger(__name__)


def rebuild_producer_state(
    producers: ProducerStateManager,
    segments: SegmentTable,
    *,
    log_start_offset: int,
    last_offset: int,
    now_ms: int,
    after_clean_shutdown: bool,
) -> None:
    """Bring `producers` to the state as of `last_offset`, from the newest snapshot and the batches behind it.

    Takes snapshots at the base offsets of the last two segments on the way, and at the end. A log that was closed
    cleanly and has no snapshot at all has no producers to find (Kafka's way to skip the scan of an old log).
    """
    to_snapshot = {segment.base_offset for segment in segments.all[-2:]}
    if producers.snapshots.latest_offset is None and after_clean_shutdown:
        for offset in (*sorted(to_snapshot), last_offset):
            producers.take_snapshot(offset)
        return
    was_empty = producers.is_empty and producers.map_end_offset >= last_offset
    producers.truncate_and_reload(log_start_offset, last_offset, now_ms)
    if last_offset > producers.map_end_offset and not was_empty:
        for segment in segments.from_offset(producers.map_end_offset):
            if segment.base_offset >= last_offset:
                break
            start = max(segment.base_offset, producers.map_end_offset, log_start_offset)
            producers.update_map_end_offset(start)
            if segment.base_offset in to_snapshot:
                producers.take_snapshot()
            _feed(producers, segment, start, last_offset)
    producers.update_map_end_offset(last_offset)
    producers.take_snapshot()


def _feed(producers: ProducerStateManager, segment: LogSegment, start_offset: int, end_offset: int) -> None:
    """Give the batches of producers from `start_offset` on, up to `end_offset`, to their state."""
    updates = producers.prepare("replication")
    try:
        found = segment.translate_offset(start_offset)
        if found is None:
            return
        for position, header in segment.headers(found.position):
            if header[0] >= end_offset:
                break
            if header[9] >= 0:
                batch = segment.read_batch(position, header[1] + LOG_OVERHEAD)
                batch.ensure_valid()
                updates.add(batch)
    except (CorruptRecordError, InvalidRecordError, InvalidTxnStateError) as error:
        logger.warning("%s: the producer state after offset %d is not known: %s", producers.name, start_offset, error)
    producers.commit(updates)
