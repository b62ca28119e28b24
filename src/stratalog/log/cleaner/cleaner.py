"""One cleaning of one log.

    1  read the dirty part and note the newest offset of each key in the offset map, until it is full
    2  group the segments below that into runs that make one segment each
    3  filter each group into a new `.cleaned` segment, with its indexes, and flush it
    4  replace the group with it (`PartitionLog.replace_segments`)

The result equals that of Apache Kafka's cleaner, batch by batch. `docs/explanation/compaction.md` explains which
records are kept. Source: Kafka's `Cleaner`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from stratalog.log.cleaner.filter_plain import FilterRules
from stratalog.log.cleaner.grouping import SegmentSizes, group_by_size
from stratalog.log.cleaner.log_view import aborted_transactions, last_records, segments_between
from stratalog.log.cleaner.map_building import MapBuilder
from stratalog.log.cleaner.offset_map import OffsetMap
from stratalog.log.cleaner.rewriting import RewritingFacts, SegmentRewriter
from stratalog.log.cleaner.throttle import Throttle
from stratalog.log.cleaner.transactions import CleanedTransactions
from stratalog.log.cleaner.values import CleanerSettings, CleanerStats, CleaningAborted, CleanResult
from stratalog.log.format import CLEANED_SUFFIX
from stratalog.log.partition_log import PartitionLog
from stratalog.log.segment import LogSegment
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, Clock, FileSystem

__all__ = ["CleanResult", "Cleaner", "CleanerSettings", "CleanerStats", "CleaningAborted"]

logger = logging.getLogger(__name__)


class Cleaner:
    """The state of one cleaner thread: an offset map, allocated once and emptied for each log.

    Nothing else outlives a cleaning: records pass through buffers that are made for each new segment and freed with it.
    Memory: `dedupe_buffer_bytes` for the map, which the system provides page by page as it is written, and about three
    times `io_buffer_bytes`, more only while a larger batch is cleaned. Not thread-safe; `throttle` may be shared.
    """

    def __init__(
        self,
        settings: CleanerSettings,
        *,
        clock: Clock = SYSTEM_CLOCK,
        fs: FileSystem = REAL_FILESYSTEM,
        throttle: Throttle | None = None,
    ) -> None:
        """Allocate the map. Raises ValueError if it cannot hold a single key."""
        self._clock = clock
        self._fs = fs
        self._throttle = throttle or Throttle(clock=clock)
        self._map = OffsetMap(settings.dedupe_buffer_bytes, settings.load_factor)
        self._buffer_bytes = settings.io_buffer_bytes

    def clean(
        self,
        log: PartitionLog,
        *,
        first_dirty_offset: int,
        first_uncleanable_offset: int,
        now_ms: int,
        check_abort: Callable[[], None],
    ) -> CleanResult:
        """Clean the log below `first_uncleanable_offset`, or as far as the map reaches.

        Everything below `first_dirty_offset` was cleaned before. `now_ms` decides which tombstones have expired. The
        active segment is not cleaned: the caller ensures that `first_uncleanable_offset` is not within or after it.
        `check_abort` is called regularly. Its error (CleaningAborted) ends the cleaning, as does CorruptRecordError,
        which names file and position. Groups that were already replaced stay replaced; the others are unchanged. Raises
        KafkaStorageError or OSError for errors of the disk.
        """
        stats = CleanerStats(self._clock.now_ms())
        MapBuilder(self._map, self._buffer_bytes, self._throttle, stats, check_abort).build(
            log, first_dirty_offset, first_uncleanable_offset
        )
        end_offset = self._map.latest_offset + 1
        stats.map_complete_ms = self._clock.now_ms()
        job = _Rewriting(self, log, stats, check_abort, _legacy_horizon_ms(log, first_dirty_offset), now_ms)
        for group in _groups(log, end_offset, first_uncleanable_offset):
            job.rewrite_group(group)
        stats.buffer_utilization = self._map.utilization
        stats.end_ms = self._clock.now_ms()
        logger.info("%s", stats.line(log.directory.name, first_dirty_offset, end_offset))
        if stats.invalid_messages_read:
            logger.warning(
                "%s: dropped %d records without a key from a compacted log",
                log.directory.name,
                stats.invalid_messages_read,
            )
        return CleanResult(end_offset, stats)


class _Rewriting:
    """The second half of one cleaning."""

    def __init__(
        self,
        cleaner: Cleaner,
        log: PartitionLog,
        stats: CleanerStats,
        check_abort: Callable[[], None],
        legacy_horizon_ms: int,
        now_ms: int,
    ) -> None:
        self._log = log
        self._stats = stats
        self._check_abort = check_abort
        self._map, self._buffer_bytes = cleaner._map, cleaner._buffer_bytes
        self._clock, self._fs, self._throttle = cleaner._clock, cleaner._fs, cleaner._throttle
        self._legacy_horizon_ms = legacy_horizon_ms
        self._now_ms = now_ms
        self._transactions = CleanedTransactions()

    def rewrite_group(self, group: Sequence[LogSegment]) -> None:
        """Replace the group with one new segment, which is removed after an error."""
        log = self._log
        cleaned = LogSegment.create(
            log.directory,
            group[0].base_offset,
            log.config,
            clock=self._clock,
            fs=self._fs,
            suffix=CLEANED_SUFFIX,
        )
        try:
            self._fill(cleaned, group)
        except BaseException:
            cleaned.close()
            cleaned.remove_files()
            raise
        log.replace_segments([cleaned], group)
        self._stats.segments_cleaned += len(group)
        self._stats.segments_written += 1

    def _fill(self, cleaned: LogSegment, group: Sequence[LogSegment]) -> None:
        log, transactions = self._log, self._transactions
        rewriter = SegmentRewriter(cleaned, self._buffer_bytes, self._throttle, self._stats, self._check_abort)
        transactions.retain = cleaned.txn_index.append
        active_producers = last_records(log)
        ends = [*(segment.base_offset for segment in group[1:]), group[-1].read_next_offset()]
        for segment, end_offset in zip(group, ends, strict=True):
            transactions.add_aborted(aborted_transactions(log, segment.base_offset, end_offset))
            rules = FilterRules(
                self._map,
                self._now_ms,
                log.config.delete_retention_ms,
                segment.last_modified_ms > self._legacy_horizon_ms,
            )
            facts = RewritingFacts(rules, transactions, active_producers, log.high_watermark)
            rewriter.rewrite(segment, facts)
        cleaned.become_inactive()
        cleaned.flush()
        modified_ms = group[-1].last_modified_ms
        for path in (cleaned.log_path, cleaned.offset_index_path, cleaned.time_index_path):
            self._fs.set_mtime_ms(path, modified_ms)


def _legacy_horizon_ms(log: PartitionLog, first_dirty_offset: int) -> int:
    """Return the time in ms: segments last changed before it lose their tombstones of formats 0 and 1."""
    clean = segments_between(log.segments, 0, first_dirty_offset)
    return clean[-1].last_modified_ms - log.config.delete_retention_ms if clean else 0


def _groups(log: PartitionLog, end_offset: int, first_uncleanable_offset: int) -> list[list[LogSegment]]:
    segments = segments_between(log.segments, 0, end_offset)
    facts = [
        SegmentSizes(
            segment.base_offset,
            segment.size_bytes,
            segment.offset_index.size_in_bytes,
            segment.time_index.size_in_bytes,
        )
        for segment in segments
    ]
    groups = group_by_size(
        facts,
        size_max=log.config.segment_bytes,
        index_size_max=log.config.segment_index_bytes,
        first_uncleanable_offset=first_uncleanable_offset,
    )
    return [[segments[at] for at in group] for group in groups]
