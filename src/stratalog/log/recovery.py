"""From the files of a partition directory to its segments and producer state, whatever state they were left in.

    1  `.deleted` files go, and a replacement that was interrupted is finished or undone (`interrupted_swaps`)
    2  index files without a `.log` go; a segment with a missing or damaged index is read again and gets new ones
    3  after an unclean stop, every segment at or behind the recovery point is read again: a tail that is no sound batch
       is cut off, with all segments behind it
    4  leader epochs and producer state are brought to the offsets that are left

Nothing that was flushed is lost by that; what is read again is checked batch by batch, by header and CRC. Source: Kafka's
`LogLoader`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stratalog.config.topic import LogConfig
from stratalog.errors import CorruptIndexError, InvalidTxnStateError
from stratalog.log.file_names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    log_file,
    parse_file_name,
)
from stratalog.log.interrupted_swaps import finish_swaps
from stratalog.log.leader_epochs import LeaderEpochCache
from stratalog.log.producer_state import ProducerStateManager
from stratalog.log.segment import LogSegment
from stratalog.log.segments import Segments
from stratalog.records.batch import RecordBatch
from stratalog.records.batch_format import LOG_OVERHEAD
from stratalog.util.clock import Clock
from stratalog.util.filesystem import FileSystem

logger = logging.getLogger(__name__)

_END: Final = 0x7FFF_FFFF_FFFF_FFFF


@dataclass
class LoadedLog:
    """What `load_log` found and made."""

    segments: Segments
    log_start_offset: int
    recovery_point: int
    log_end_offset: int
    #: Files that were renamed to `.deleted` and are to be removed after the delay.
    condemned: list[Path] = field(default_factory=list)


@dataclass
class _Mended:
    """What recovery did, for its one line in the log."""

    segments_read: int = 0
    bytes_read: int = 0
    bytes_cut: int = 0
    segments_dropped: int = 0
    indexes_rebuilt: int = 0

    def __str__(self) -> str:
        parts = [f"read {self.segments_read} segments ({self.bytes_read} bytes)"]
        if self.bytes_cut or self.segments_dropped:
            parts.append(
                f"cut {self.bytes_cut} bytes of a torn tail and {self.segments_dropped} segments behind it"
            )
        if self.indexes_rebuilt:
            parts.append(f"rebuilt the indexes of {self.indexes_rebuilt}")
        return ", ".join(parts)


class LogLoader:
    """One load of one directory; see the module. Use `load` once."""

    def __init__(
        self,
        directory: Path,
        name: str,
        config: LogConfig,
        *,
        clock: Clock,
        fs: FileSystem,
        clean_shutdown: bool,
        recovery_point: int,
        log_start_offset: int,
        leader_epochs: LeaderEpochCache,
        producers: ProducerStateManager,
    ) -> None:
        self._directory = directory
        self._name = name
        self._config = config
        self._clock = clock
        self._fs = fs
        self._clean = clean_shutdown
        self._recovery_point = recovery_point
        self._log_start_offset = log_start_offset
        self._epochs = leader_epochs
        self._producers = producers
        self._segments: list[LogSegment] = []
        self._condemned: list[Path] = []
        self._mended = _Mended()

    def load(self) -> LoadedLog:
        """Raises OSError for files that cannot be read or mended."""
        started = self._clock.monotonic()
        finish_swaps(self._directory, self._fs)
        self._open_segments()
        self._recover_damaged()
        if not self._clean:
            self._recover_unflushed()
        log_end_offset = self._log_end_offset()
        if not self._segments:
            segment = self._open(self._log_start_offset, preallocate=self._config.preallocate)
            self._segments.append(segment)
            log_end_offset = self._log_start_offset
        assert log_end_offset is not None
        recovery_point = log_end_offset if self._clean else min(self._recovery_point, log_end_offset)
        self._segments[-1].resize_indexes(self._config.segment_index_bytes)
        log_start_offset = self._log_start_offset
        if not self._config.remote_storage_enable:
            log_start_offset = max(log_start_offset, self._segments[0].base_offset)
        self._epochs.truncate_from_end(log_end_offset)
        self._epochs.truncate_from_start(self._log_start_offset)
        segments = Segments(tuple(self._segments))
        self._producers.remove_stray_snapshots([segment.base_offset for segment in segments])
        rebuild_producer_state(
            self._producers,
            segments,
            log_start_offset=log_start_offset,
            last_offset=log_end_offset,
            now_ms=self._clock.now_ms(),
            after_clean_shutdown=self._clean,
        )
        self._report(log_end_offset, self._clock.monotonic() - started)
        return LoadedLog(segments, log_start_offset, recovery_point, log_end_offset, self._condemned)

    def _report(self, log_end_offset: int, seconds: float) -> None:
        mended = self._mended
        if mended.segments_read or mended.segments_dropped:
            level = logging.WARNING if mended.bytes_cut or mended.segments_dropped else logging.INFO
            logger.log(level, "%s: recovered: %s; the log ends at offset %d (%.0f ms)",
                       self._name, mended, log_end_offset, seconds * 1000)  # fmt: skip

    def _open(self, base_offset: int, *, preallocate: bool = False) -> LogSegment:
        return LogSegment(
            self._directory,
            base_offset,
            self._config,
            clock=self._clock,
            fs=self._fs,
            preallocate=preallocate,
        )

    def _open_segments(self) -> None:
        for name in self._fs.list_dir(self._directory):
            parsed = parse_file_name(name)
            if parsed is None or parsed[1] == SNAPSHOT_SUFFIX or parsed[2]:
                continue
            base_offset, suffix, _ = parsed
            if suffix != LOG_SUFFIX:
                if not self._fs.exists(self._directory / log_file(base_offset)):
                    logger.warning("%s: removing index %s, which has no log", self._name, name)
                    self._fs.remove(self._directory / name)
                continue
            self._segments.append(self._open(base_offset))

    def _recover_damaged(self) -> None:
        """Give new indexes to the segments whose indexes cannot be right, as far as they are not read again anyway."""
        unflushed = () if self._clean else self._unflushed()
        for segment in self._segments:
            try:
                segment.check_indexes()
            except CorruptIndexError as error:
                self._mended.indexes_rebuilt += 1
                if segment not in unflushed:
                    logger.warning("%s: reading a segment again for new indexes: %s", self._name, error)
                    self._recover_segment(segment, self._segments[: self._segments.index(segment)])
            segment.release_indexes()

    def _unflushed(self) -> tuple[LogSegment, ...]:
        return Segments(tuple(self._segments)).from_offset(self._recovery_point)

    def _recover_unflushed(self) -> None:
        for segment in self._unflushed():
            if self._recover_segment(segment, self._segments):
                self._drop(self._segments[self._segments.index(segment) + 1 :])
                return

    def _recover_segment(self, segment: LogSegment, row: Sequence[LogSegment]) -> int:
        """Read a segment again; return how many bytes were cut.

        `row`: the segments that there are by then. Producer snapshots are taken at the last two of them on the way.
        """
        producers = ProducerStateManager(self._name, self._directory, clock=self._clock, fs=self._fs)
        rebuild_producer_state(
            producers,
            Segments(tuple(row)),
            log_start_offset=self._log_start_offset,
            last_offset=segment.base_offset,
            now_ms=self._clock.now_ms(),
            after_clean_shutdown=False,
        )

        def on_batch(batch: RecordBatch) -> None:
            latest = self._epochs.latest_epoch
            if batch.partition_leader_epoch > (-1 if latest is None else latest):
                self._epochs.assign(batch.partition_leader_epoch, batch.base_offset)
            if batch.has_producer_id:
                try:
                    aborted = producers.update(batch)
                except InvalidTxnStateError as error:
                    logger.warning("%s: %s", self._name, error)
                    return
                if aborted is not None:
                    segment.txn_index.append(aborted)

        cut = segment.recover(on_batch, epoch=self._epochs.latest_epoch, expected_offset=segment.base_offset)
        producers.take_snapshot(segment.read_next_offset())
        self._mended.segments_read += 1
        self._mended.bytes_read += segment.size_bytes + cut
        self._mended.bytes_cut += cut
        return cut

    def _log_end_offset(self) -> int | None:
        """The end of the segments; None if there are none, or all end before the log starts and are dropped."""
        if not self._segments:
            return None
        end = self._segments[-1].read_next_offset()
        if end >= self._log_start_offset:
            return end
        logger.warning("%s: the log ends at offset %d, before its start offset %d: dropping what is there",
                       self._name, end, self._log_start_offset)  # fmt: skip
        self._drop(list(self._segments))
        self._epochs.clear()
        self._producers.truncate_fully_and_start_at(self._log_start_offset)
        return None

    def _drop(self, segments: Sequence[LogSegment]) -> None:
        for segment in segments:
            self._segments.remove(segment)
            segment.close()
            segment.change_suffix("", DELETED_SUFFIX)
            self._condemned += [*segment.index_paths, segment.log_path]
            snapshot = self._producers.mark_snapshot_deleted(segment.base_offset)
            if snapshot is not None:
                self._condemned.append(snapshot)
        self._mended.segments_dropped += len(segments)


def rebuild_producer_state(
    producers: ProducerStateManager,
    segments: Segments,
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
    if producers.latest_snapshot_offset is None and after_clean_shutdown:
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
    found = segment.translate_offset(start_offset)
    if found is None:
        return
    updates = producers.prepare("replication")
    for position, header in segment.headers(found.position):
        if header[0] >= end_offset:
            break
        if header[9] >= 0:
            updates.add(segment.read_batch(position, header[1] + LOG_OVERHEAD))
    producers.commit(updates)
