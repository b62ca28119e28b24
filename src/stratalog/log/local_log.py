"""The local part of a partition: its segments, and the offsets that bound their valid content.

    log start offset <= local log start offset <= last stable offset <= high watermark <= end

`PartitionLog` decides, and this module changes the segments' files. Removed files are renamed to `.deleted` and
scheduled for removal. Source: Kafka's `LocalLog`.

Thread safety: a thread that changes anything holds the partition's lock. Attributes may be read without it: each is
replaced as a whole, segment tables are immutable, and `end` moves only after the bytes below it are written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from stratalog.config import LogConfig
from stratalog.errors import KafkaStorageError, ResourceShortageError, is_shortage
from stratalog.log.format import DELETED_SUFFIX, LogOffset
from stratalog.log.producers import ProducerStateManager
from stratalog.log.recovery import CondemnedFiles, LoadedLog
from stratalog.log.segment import LogSegment, SegmentTable
from stratalog.util import Clock, FileSystem

logger = logging.getLogger(__name__)

#: Its position is looked up when needed.
UNKNOWN_POSITION: Final = -1


class LocalLog:
    """The segments and offsets of a partition. `name` is `<topic>-<partition>`, for messages."""

    __slots__ = (
        "active",
        "clock",
        "closed",
        "condemned",
        "config",
        "directory",
        "end",
        "failure",
        "first_unstable_offset",
        "fs",
        "high_watermark",
        "highest_offset_in_remote_storage",
        "local_log_start_offset",
        "log_start_offset",
        "name",
        "on_storage_error",
        "producers",
        "recovery_point",
        "sealed_end_offset",
        "segments",
        "sync_failed",
        "truncations",
        "write_bounds",
    )

    def __init__(
        self,
        directory: Path,
        name: str,
        config: LogConfig,
        *,
        clock: Clock,
        fs: FileSystem,
        producers: ProducerStateManager,
        loaded: LoadedLog,
    ) -> None:
        self.directory = directory
        self.name = name
        self.config = config
        self.clock = clock
        self.fs = fs
        self.producers = producers
        self.closed = False
        #: Why the log refuses all calls, once its directory has failed.
        self.failure: KafkaStorageError | None = None
        #: Called with each disk error, possibly with the partition's lock held.
        self.on_storage_error: Callable[[KafkaStorageError], object] | None = None
        #: Stores recovery point and log start offset durably, with the partition's lock held: before a truncation below
        #: the recovery point, and when the log start has moved. None: the owner of the log stores them periodically.
        self.write_bounds: Callable[[], object] | None = None
        #: A sync failed: the content of the disk is unknown from then on.
        self.sync_failed = False
        #: Counts starts and ends of truncations: if it changed, a reader may have read removed records.
        self.truncations = 0
        self.segments = loaded.segments
        self.active = active = loaded.segments.all[-1]
        self.log_start_offset = loaded.log_start_offset
        self.local_log_start_offset = max(loaded.log_start_offset, loaded.segments.all[0].base_offset)
        #: Everything below is on disk, durably.
        self.recovery_point = max(loaded.recovery_point, self.local_log_start_offset)
        #: Everything below is in sealed segments.
        self.sealed_end_offset = 0
        self.end = LogOffset(loaded.log_end_offset, active.base_offset, active.size_bytes)
        self.high_watermark = LogOffset(self.local_log_start_offset, UNKNOWN_POSITION, UNKNOWN_POSITION)
        #: The start of the oldest transaction that is open or not replicated, copied for readers without the lock.
        self.first_unstable_offset = producers.first_unstable_offset
        #: The last offset copied to the remote tier, or -1.
        self.highest_offset_in_remote_storage = -1
        self.condemned = CondemnedFiles(fs)
        self._condemn(loaded.condemned)

    @property
    def last_stable_offset(self) -> int:
        unstable, high_watermark = self.first_unstable_offset, self.high_watermark.offset
        if unstable is None or unstable > high_watermark:
            return high_watermark
        return max(unstable, self.log_start_offset)

    def unusable(self) -> KafkaStorageError:
        """Return the error of a log that is closed, or whose sync failed."""
        if self.failure is not None:
            return self.failure
        if self.sync_failed:
            return KafkaStorageError(f"{self.directory}: an earlier sync failed; check the disk and open the log again")
        return KafkaStorageError(f"{self.name}: the log is closed")

    def storage_error(self, what: str, error: OSError) -> KafkaStorageError:
        """Return the error to raise for an OSError, after passing it to the watcher of the directory.

        A lack of file descriptors is no disk failure: the call may be repeated.
        """
        message = f"{self.directory}: {what} failed: {error.strerror or error}"
        if is_shortage(error):
            logger.error("%s; the limit of open files is too low, see ulimit -n", message)
            return ResourceShortageError(message)
        failure = KafkaStorageError(message)
        if self.on_storage_error is not None:
            self.on_storage_error(failure)
        return failure

    @contextmanager
    def whole_or_unusable(self, what: str) -> Iterator[None]:
        """Guard a change of several steps: any exception closes the log.

        It refuses all calls until it is opened again, because memory and disk may disagree. An OSError is raised as a
        KafkaStorageError.
        """
        try:
            yield
        except Exception as error:
            if isinstance(error, OSError):
                self.failure = self.storage_error(what, error)
            else:
                self.failure = KafkaStorageError(
                    f"{self.directory}: {what} failed half-way ({error}); open the log again"
                )
            if not self.closed:
                self.close()
            if isinstance(error, OSError):
                raise self.failure from error
            raise

    # --- bounds for recovery ----------------------------------------------------------------------------------------

    def bounds_changed(self) -> None:
        """Call `write_bounds`, if it is set."""
        if self.write_bounds is not None:
            self.write_bounds()

    def end_will_be(self, offset: int) -> None:
        """Prepare a truncation that will end the log at `offset`.

        Lowers the recovery point first, because recovery cuts nothing below it.
        """
        if offset < self.recovery_point:
            self.recovery_point = offset
            self.bounds_changed()

    # --- adding segments --------------------------------------------------------------------------------------------

    def roll(self) -> LogSegment:
        """Do `roll_at` the end. KafkaStorageError when the log is closed or the disk fails."""
        if self.closed:
            raise self.unusable()
        try:
            return self.roll_at(self.end.offset)
        except OSError as error:
            raise self.storage_error("roll", error) from error

    def roll_at(self, expected_offset: int) -> LogSegment:
        """Seal the active segment, begin one at `expected_offset` or the end, and take a producer snapshot there.

        An empty active segment is replaced; if that fails, KafkaStorageError is raised and the log is unusable. An
        OSError leaves the segments unchanged.
        """
        base_offset = max(expected_offset, self.end.offset)
        active = self.active
        if active.base_offset == base_offset:  # nothing was written: only its indexes can have failed
            with self.whole_or_unusable("roll"):
                self._replace_active(base_offset)
        else:
            active.become_inactive(is_flushed=self.recovery_point >= self.end.offset)
            segment = self._new_segment(base_offset)
            self._install(self.segments.added(segment), self.end.offset)
        self.sealed_end_offset = base_offset
        self.producers.update_map_end_offset(base_offset)
        self.producers.take_snapshot(sync=False)
        return self.active

    def _new_segment(self, base_offset: int) -> LogSegment:
        """Return an empty segment. Removes files that a crash left under its name first."""
        return LogSegment.create(self.directory, base_offset, self.config, clock=self.clock, fs=self.fs)

    def _replace_active(self, base_offset: int) -> None:
        """Replace the active segment by an empty one.

        Both have the same names, so the old one is renamed before readers see the new one. A reader that finds neither
        tries again.
        """
        self._condemn_files(self.active)
        segment = self._new_segment(base_offset)
        self._install(SegmentTable((*self.segments.all[:-1], segment)), base_offset)

    def _install(self, segments: SegmentTable, end_offset: int) -> None:
        """Publish a new segment table that ends at `end_offset`."""
        at_end = self.high_watermark.offset >= self.end.offset
        self.segments = segments
        self.active = active = segments.all[-1]
        self.end = LogOffset(end_offset, active.base_offset, active.size_bytes)
        if at_end or self.high_watermark.offset >= end_offset:
            self.high_watermark = self.end
        self.recovery_point = min(self.recovery_point, end_offset)
        self.sealed_end_offset = min(self.sealed_end_offset, end_offset)

    # --- removing segments ------------------------------------------------------------------------------------------

    def kept_up_to(self, offset: int) -> tuple[LogSegment, ...]:
        """Return the segments that a truncation to `offset` keeps. `offset` is at or above the first base offset.

        Raises CorruptRecordError if damage hides the position in the last of them.
        """
        kept = self.segments.all[: self.segments.floor(offset) + 1]
        kept[-1].translate_offset(offset)
        return kept

    def truncate_to(self, offset: int, kept: tuple[LogSegment, ...]) -> None:
        """Drop everything from `offset` on. `kept` are the segments up to it.

        Readers see the shorter table before the first file is renamed. Segments are durably removed from the last one
        on, before the remaining one is cut: a crash at any time leaves a log without gaps.
        """
        self.truncations += 1
        try:
            behind = self.segments.all[len(kept) :]
            self._install(SegmentTable(kept), offset)
            for segment in reversed(behind):
                self._condemn_segment(segment)
            if behind:
                self.fs.sync_dir(self.directory)
            kept[-1].truncate_to(offset)
            self.log_start_offset = min(offset, self.log_start_offset)
            self.local_log_start_offset = min(offset, self.local_log_start_offset)
            self._install(SegmentTable(kept), offset)
        finally:
            self.truncations += 1

    def restart_at(self, offset: int, log_start_offset: int) -> None:
        """Drop everything. The next local record gets `offset`."""
        self.truncations += 1
        try:
            before = self.segments.all[:-1]
            self.segments = SegmentTable((self.active,))
            for segment in before:
                self._condemn_files(segment)
            self._replace_active(offset)
            self.log_start_offset = log_start_offset
            self.local_log_start_offset = offset
            self.high_watermark = self.end
        finally:
            self.truncations += 1

    def drop_first(self, count: int) -> None:
        """Remove the oldest `count` segments. At least one is left."""
        dropped = self.segments.all[:count]
        self.segments = self.segments.without_first(count)
        for segment in dropped:
            self._condemn_segment(segment)

    # --- replacing segments -----------------------------------------------------------------------------------------

    def replace(self, old: Sequence[LogSegment], new: Sequence[LogSegment]) -> None:
        """Replace `old`, without the active segment, by `new`. Readers see either the old or the new segments.

        Keeps snapshots at the starts of new segments.
        """
        going = set(old)
        row = [*(segment for segment in self.segments if segment not in going), *new]
        self.segments = SegmentTable(tuple(sorted(row, key=lambda segment: segment.base_offset)))
        begun = {segment.base_offset for segment in new}
        if self.high_watermark.segment_base_offset in {segment.base_offset for segment in old}:
            self.high_watermark = LogOffset(self.high_watermark.offset, UNKNOWN_POSITION, UNKNOWN_POSITION)
        for segment in old:
            if segment.base_offset in begun:
                self._condemn_files(segment)
            else:
                self._condemn_segment(segment)

    def _condemn_segment(self, segment: LogSegment) -> None:
        """Rename a segment's files and its snapshot to `.deleted`, and schedule their removal."""
        self._condemn_files(segment)
        snapshot = self.producers.snapshots.mark_deleted(segment.base_offset)
        if snapshot is not None:
            self._condemn([snapshot])

    def _condemn_files(self, segment: LogSegment) -> None:
        segment.change_suffix("", DELETED_SUFFIX)
        self._condemn([*segment.index_paths, segment.log_path])

    def _condemn(self, paths: Iterable[Path]) -> None:
        self.condemned.add(paths, self.clock.now_ms() + self.config.file_delete_delay_ms)

    def close(self) -> None:
        self.closed = True
        for segment in self.segments:
            segment.close()
        self.segments = SegmentTable(())
