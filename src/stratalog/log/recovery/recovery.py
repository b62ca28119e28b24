"""Load the segments and producer state of a partition directory, whatever state a crash left it in.

    1  remove `.deleted` files, and finish or undo an interrupted replacement (`interrupted_swaps`)
    2  remove index files without a `.log`; rebuild missing or damaged indexes from their segment
    3  after an unclean stop, read every segment at or above the recovery point again: anything from there on that is no
       sound batch is cut, with all later segments
    4  bring leader epochs and producer state to the remaining offsets

Below the recovery point, and anywhere after a clean stop, nothing is cut or removed. Damage there is logged and kept,
and readers get an error for it. If it hides where the log ends, the segment is sealed unchanged, and the log goes on in
a new one at or above the recovery point, so that no offset is assigned twice. If the recovery point is unknown,
everything may have been flushed, and only a torn write at the very end is cut. Bytes cut above the recovery point are
thrown away only if a torn write explains them; others are kept beside the log (`kept_cuts`). Of flushed segments only a
few headers are read, to check their indexes. Source: Kafka's `LogLoader`, which cuts in either case and keeps nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from stratalog.config import LogConfig
from stratalog.errors import CorruptIndexError, CorruptRecordError, InvalidTxnStateError
from stratalog.log.format import DELETED_SUFFIX, LOG_SUFFIX, SNAPSHOT_SUFFIX, log_file, parse_file_name
from stratalog.log.leader_epochs import LeaderEpochCache
from stratalog.log.producers import ProducerStateManager, rebuild_producer_state
from stratalog.log.recovery.index_ends import check_index_ends
from stratalog.log.recovery.interrupted_swaps import finish_swaps
from stratalog.log.recovery.kept_cuts import has_content, keep_log, keep_tail
from stratalog.log.recovery.overflow import split_overflowed, split_segment
from stratalog.log.recovery.segment_recovery import OverflowedSegmentError, SoundBatches
from stratalog.log.resumption import content_end
from stratalog.log.segment import LogBytes, LogSegment, SegmentTable
from stratalog.records import RecordBatch
from stratalog.util import Clock, FileSystem

logger = logging.getLogger(__name__)

#: Greater than any offset.
_NO_END: Final = 0x7FFF_FFFF_FFFF_FFFF


@dataclass
class LoadedLog:
    segments: SegmentTable
    log_start_offset: int
    recovery_point: int
    log_end_offset: int
    #: Files renamed to `.deleted`, to be removed after the delay.
    condemned: list[Path] = field(default_factory=list)


@dataclass
class _Mended:
    """Counts of what recovery did, for its summary in the log."""

    segments_read: int = 0
    bytes_read: int = 0
    bytes_cut: int = 0
    segments_dropped: int = 0
    indexes_rebuilt: int = 0

    def __str__(self) -> str:
        parts = [f"read {self.segments_read} segments ({self.bytes_read} bytes)"]
        if self.bytes_cut or self.segments_dropped:
            parts.append(f"cut {self.bytes_cut} bytes and {self.segments_dropped} segments after them")
        if self.indexes_rebuilt:
            parts.append(f"rebuilt the indexes of {self.indexes_rebuilt}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSettings:
    """What the caller knows of a log before it is opened; see `PartitionLog.open`."""

    config: LogConfig
    clock: Clock
    fs: FileSystem
    clean_shutdown: bool
    recovery_point: int | None
    log_start_offset: int

    @property
    def is_flush_known(self) -> bool:
        return self.recovery_point is not None

    @property
    def flushed_to(self) -> int:
        """Everything below was flushed or is unwanted: damage there cuts nothing."""
        if self.clean_shutdown or self.recovery_point is None:
            return _NO_END
        return max(self.recovery_point, self.log_start_offset)

    @property
    def synced_to(self) -> int:
        """The recovery point, or 0 if it equals the log start: then, as in Kafka, it may not have been synced."""
        point = self.recovery_point or 0
        return point if point > self.log_start_offset else 0


class LogLoader:
    """Loads one directory. Call `load` once."""

    def __init__(
        self,
        directory: Path,
        name: str,
        settings: OpenSettings,
        leader_epochs: LeaderEpochCache,
        producers: ProducerStateManager,
    ) -> None:
        self._directory = directory
        self._name = name
        self._settings = settings
        self._config = settings.config
        self._clock = settings.clock
        self._fs = settings.fs
        self._clean = settings.clean_shutdown
        self._recovery_point = settings.recovery_point or 0
        self._log_start_offset = settings.log_start_offset
        self._epochs = leader_epochs
        self._producers = producers
        self._segments: list[LogSegment] = []
        self._condemned: list[Path] = []
        self._mended = _Mended()
        #: The offset after the last sound batch of each segment that was read again.
        self._scanned: dict[LogSegment, SoundBatches] = {}
        #: Base offsets that have an index, but no log.
        self._without_log: set[int] = set()
        #: Base offsets of segments that were split, or could not be.
        self._split: set[int] = set()

    def load(self) -> LoadedLog:
        """Load the directory. Raises OSError for files that cannot be read or repaired."""
        started = self._clock.monotonic()
        finish_swaps(self._directory, self._fs)
        split_overflowed(
            self._directory, self._config, clock=self._clock, fs=self._fs, log_end_offset=self._recovery_point
        )
        log_end_offset = self._load_segments()
        recovery_point = log_end_offset if self._clean else min(self._recovery_point, log_end_offset)
        self._segments[-1].resize_indexes(self._config.segment_index_bytes)
        log_start_offset = self._log_start_offset
        if not self._config.remote_storage_enable:
            log_start_offset = max(log_start_offset, self._segments[0].base_offset)
        self._epochs.truncate_from_end(log_end_offset)
        self._epochs.truncate_from_start(self._log_start_offset)
        segments = SegmentTable(tuple(self._segments))
        self._producers.snapshots.delete_strays([segment.base_offset for segment in segments])
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

    def _load_segments(self) -> int:
        """Open and repair all segments. Return the log end offset."""
        while True:
            try:
                self._open_segments()
                self._recover_damaged()
                if not self._clean:
                    self._recover_unflushed()
                return self._log_end_offset()
            except OverflowedSegmentError as found:
                self._split.add(found.base_offset)
                for segment in self._segments:
                    segment.close()
                self._segments.clear()
                self._scanned.clear()
                split_segment(self._directory, found.base_offset, self._config, clock=self._clock, fs=self._fs)

    def _report(self, log_end_offset: int, seconds: float) -> None:
        mended = self._mended
        if mended.segments_read or mended.segments_dropped:
            level = logging.WARNING if mended.bytes_cut or mended.segments_dropped else logging.INFO
            logger.log(
                level,
                "%s: recovered: %s; the log ends at offset %d (%.0f ms)",
                self._name,
                mended,
                log_end_offset,
                seconds * 1000,
            )

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
            if suffix == LOG_SUFFIX:
                self._segments.append(self._open(base_offset))
            elif not self._fs.exists(self._directory / log_file(base_offset)):
                logger.warning(
                    "%s: removing index %s, which has no log; records from offset %d on are lost",
                    self._name,
                    name,
                    base_offset,
                )
                self._without_log.add(base_offset)
                self._fs.remove(self._directory / name)

    # --- reading again ----------------------------------------------------------------------------------------------

    def _recover_damaged(self) -> None:
        """Rebuild implausible indexes, unless recovery reads the segment again anyway."""
        unflushed = () if self._clean else self._unflushed()
        for segment in list(self._segments):
            try:
                check_index_ends(segment, self._fs)
            except (CorruptIndexError, CorruptRecordError) as error:
                self._mended.indexes_rebuilt += 1
                if segment not in unflushed:
                    logger.warning("%s: reading a segment again for new indexes: %s", self._name, error)
                    self._recover_segment(segment, self._segments[: self._segments.index(segment)], _NO_END)
            segment.release_indexes()

    def _unflushed(self) -> tuple[LogSegment, ...]:
        return SegmentTable(tuple(self._segments)).from_offset(self._recovery_point)

    def _recover_unflushed(self) -> None:
        for segment in self._unflushed():
            if self._recover_segment(segment, self._segments, self._settings.flushed_to):
                return

    def _recover_segment(self, segment: LogSegment, row: Sequence[LogSegment], flushed_to: int) -> bool:
        """Read a segment again. Return whether the log was cut there.

        `row`: the segments at that time. Takes producer snapshots at the last two of them.
        """
        producers = ProducerStateManager(
            self._name,
            self._directory,
            clock=self._clock,
            fs=self._fs,
            expiration_ms=self._producers.expiration_ms,
        )
        rebuild_producer_state(
            producers,
            SegmentTable(tuple(row)),
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

        is_end = False

        def before_cut(content: LogBytes, sound: SoundBatches) -> None:
            nonlocal is_end
            behind = self._segments[self._segments.index(segment) + 1 :]
            if (
                behind
                and behind[0].base_offset == sound.next_offset
                and content_end(content, sound.size_bytes) == sound.size_bytes
            ):
                return  # a preallocated file that was to be trimmed when the next one was begun
            is_end = True
            kept = keep_tail(segment.log_path, content, sound, self._fs, is_last=self._is_last(segment))
            logger.warning(
                "%s: cut %s at position %d, %d bytes from offset %d on: %s%s",
                self._name,
                segment.log_path.name,
                sound.size_bytes,
                content.size - sound.size_bytes,
                sound.next_offset,
                sound.flaw,
                f"; they are kept in {kept.name}" if kept else "",
            )
            # Those after the cut first: a crash in between must not leave them after a log that looks whole.
            self._drop_unread(behind)

        size = segment.file.size()
        # A segment wholly below the log start is no part of the log: its damage does not drop later segments.
        reaches_start = self._end_offset_of(segment) > self._log_start_offset
        sound = segment.recover(
            on_batch,
            epoch=self._epochs.latest_epoch,
            flushed_to=flushed_to,
            end_offset=self._end_offset_of(segment),
            may_overflow=segment.base_offset not in self._split,
            cut_torn_write=not self._settings.is_flush_known and not self._clean and segment is self._segments[-1],
            synced_to=self._settings.synced_to if reaches_start and flushed_to != _NO_END else None,
            before_cut=before_cut,
        )
        producers.take_snapshot(sound.next_offset)
        self._scanned[segment] = sound
        for damage in sound.damage:
            logger.error(
                "%s: %s is damaged from position %d to %d: %s; %s are lost, the file is left as it is",
                self._name,
                segment.log_path.name,
                damage.position,
                damage.end,
                damage.reason,
                f"records from offset {damage.first_offset} on"
                if damage.end_offset < 0
                else f"offsets {damage.first_offset} to {damage.end_offset - 1}",
            )
        self._name_gap(segment, sound)
        self._mended.segments_read += 1
        self._mended.bytes_read += size
        self._mended.bytes_cut += size - segment.size_bytes
        return is_end

    def _is_last(self, segment: LogSegment) -> bool:
        """Return whether nothing was written after the segment."""
        return not any(map(has_content, self._segments[self._segments.index(segment) + 1 :]))

    def _name_gap(self, segment: LogSegment, sound: SoundBatches) -> None:
        """Log which offsets are missing between a segment that was read again and the next one."""
        end_offset = self._end_offset_of(segment)
        if sound.flaw or sound.damage or self._config.compacted or sound.next_offset >= end_offset:
            return
        if end_offset < _NO_END:
            logger.warning(
                "%s: %s ends before offset %d, and what follows begins at %d; the records between are lost",
                self._name,
                segment.log_path.name,
                sound.next_offset,
                end_offset,
            )

    def _end_offset_of(self, segment: LogSegment) -> int:
        """Greater than any offset of the segment."""
        behind = self._segments.index(segment) + 1
        if behind < len(self._segments):
            return self._segments[behind].base_offset
        return self._recovery_point if self._is_end_certain else _NO_END

    @property
    def _is_end_certain(self) -> bool:
        """Return whether the checkpoint and a snapshot agree that a clean stop ended the log at the recovery point."""
        return self._clean and self._producers.snapshots.latest_offset == self._recovery_point

    # --- where the log ends -----------------------------------------------------------------------------------------

    def _log_end_offset(self) -> int:
        """Return the end of the segments. Creates one if there is none."""
        if not self._segments:
            return self._begin_at(self._known_end(self._log_start_offset, is_whole=True))
        last = self._segments[-1]
        end, is_whole = self._end_of_last(last)
        if is_whole and end < self._log_start_offset:
            logger.warning(
                "%s: the log ends at offset %d, before its start offset %d: dropping what is there",
                self._name,
                end,
                self._log_start_offset,
            )
            self._drop(list(self._segments))
            self._epochs.clear()
            self._producers.truncate_fully_and_start_at(self._log_start_offset)
            return self._begin_at(self._log_start_offset)
        known_end = self._known_end(end, is_whole=is_whole)
        is_lost = known_end == self._recovery_point or any(end <= base for base in self._without_log)
        if is_whole and not (known_end > end and is_lost):
            return end
        if known_end > end:
            logger.error(
                "%s: the log ended at offset %d, what is left of it at %d; the records between are lost",
                self._name,
                known_end,
                end,
            )
        last.become_inactive()
        return self._begin_at(max(known_end, last.base_offset + 1, self._log_start_offset))

    def _end_of_last(self, last: LogSegment) -> tuple[int, bool]:
        """Return where the last segment ends, and whether it ends with a whole batch."""
        sound = self._scanned.get(last)
        if sound is None:
            try:
                end, size = last.read_end()
            except CorruptRecordError:
                size = -1
            if size == last.size_bytes and not (self._is_end_certain and end > self._recovery_point):
                if end - 1 > last.last_offset_max and last.base_offset not in self._split:
                    raise OverflowedSegmentError(last.base_offset)
                return end, True
            self._recover_segment(last, self._segments[:-1], _NO_END)
            sound = self._scanned[last]
        is_whole = not sound.damage or sound.damage[-1].end < last.size_bytes
        return sound.next_offset, is_whole

    def _known_end(self, end: int, *, is_whole: bool) -> int:
        """Return where a log that may have lost its end had ended, at least `end`.

        A clean stop leaves a snapshot there. A recovery point has no checksum: it counts if the log is damaged at its
        end, or if there is a snapshot at the same offset.
        """
        snapshot = self._producers.snapshots.latest_offset
        if snapshot is not None and (self._clean or not self._settings.is_flush_known):
            end = max(end, snapshot)
        if not is_whole or snapshot == self._recovery_point:
            end = max(end, self._recovery_point)
        return end

    def _begin_at(self, base_offset: int) -> int:
        """Add an empty segment at the end."""
        self._segments.append(self._open(base_offset, preallocate=self._config.preallocate))
        return base_offset

    # --- dropping ---------------------------------------------------------------------------------------------------

    def _drop_unread(self, segments: Sequence[LogSegment]) -> None:
        """Drop the segments after a cut, the last one first. Keep the bytes of those with records."""
        going = segments[::-1]
        for segment in going:
            if has_content(segment):
                kept = keep_log(segment.log_path, self._fs)
                logger.warning(
                    "%s: %s follows the cut and is no longer part of the log; its %d bytes are kept in %s",
                    self._name,
                    segment.log_path.name,
                    segment.size_bytes,
                    kept.name,
                )
                segment.log_path = kept
        self._drop(going)

    def _drop(self, segments: Sequence[LogSegment]) -> None:
        for segment in segments:
            self._segments.remove(segment)
            segment.close()
            if segment.log_path.name.endswith(LOG_SUFFIX):
                segment.change_suffix("", DELETED_SUFFIX)
                self._condemned += [*segment.index_paths, segment.log_path]
            else:
                for path in segment.index_paths:
                    self._fs.remove(path)
            snapshot = self._producers.snapshots.mark_deleted(segment.base_offset)
            if snapshot is not None:
                self._condemned.append(snapshot)
        self._mended.segments_dropped += len(segments)
