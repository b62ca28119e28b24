"""Flush appended records, and track the offset up to which the log is durable.

After a failed sync the content of the disk is unknown: the log then refuses every append and flush until it is opened
again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from stratalog.errors import KafkaStorageError, is_shortage
from stratalog.log.local_log import LocalLog
from stratalog.log.producers import SnapshotFile
from stratalog.log.segment import LogSegment
from stratalog.util import FileSystem, sync_file


class FlushTimes(NamedTuple):
    """The number of flushes of a log and their total time."""

    times: int = 0
    total_ms: float = 0.0


class Flusher:
    """Moves the recovery point of a log. Thread-safe; syncs run without the lock."""

    def __init__(
        self,
        local: LocalLog,
        lock: AbstractContextManager[object],
        *,
        sync_small_files: Callable[[], object] = lambda: None,
        has_durable_names: bool = True,
    ) -> None:
        """`sync_small_files` syncs the other files of the directory; the first flush calls it.

        `has_durable_names`: whether the directory was synced since files were created or renamed in it.
        """
        self._local = local
        self._sync_small_files = sync_small_files
        self._lock = lock
        self._last_flush_ms = local.clock.now_ms()
        #: Whether the name of the partition's directory is known to be durable.
        self._is_directory_synced = False
        self._has_durable_names = has_durable_names
        #: Counts only flushes that had something to do.
        self.times = FlushTimes()

    def flush(self, up_to: int | None = None) -> None:
        """Make every record below `up_to` (default: all) durable.

        Raises KafkaStorageError for this or an earlier failure.
        """
        local = self._local
        if local.sync_failed:
            raise local.unusable()
        truncations = local.truncations
        end_offset = local.end.offset
        end = end_offset if up_to is None else min(up_to, end_offset)
        start = local.recovery_point
        if end <= start:
            return
        if local.closed:
            raise local.unusable()
        began = local.clock.monotonic()
        segments = [segment for segment in local.segments.from_offset(start) if segment.base_offset < end]
        for segment in segments:
            self._disk(segment.write_out, segment)
        for segment in segments:
            self._sync(segment.flush, segment)
        snapshots = self._sync_snapshots(end)
        has_new_names = bool(snapshots) or any(segment.base_offset >= start for segment in segments)
        if has_new_names or not self._is_directory_synced:
            self._sync(self._sync_names)
        took_ms = (local.clock.monotonic() - began) * 1000
        with self._lock:
            self.times = FlushTimes(self.times.times + 1, self.times.total_ms + took_ms)
            is_as_it_was = truncations == local.truncations
            if is_as_it_was:
                local.recovery_point = max(local.recovery_point, min(end, local.end.offset))
                local.producers.snapshots.forget_unsynced(snapshots)  # a roll may have taken another since
                self._last_flush_ms = local.clock.now_ms()
        if not is_as_it_was:  # what was appended after a truncation may not have been synced
            self.flush(up_to)

    def flush_for_stop(self) -> None:
        """Make durable what a clean stop leaves: all records, and a snapshot at the end. Hold the log's lock."""
        local = self._local
        self.flush()
        is_new = local.producers.take_snapshot() is not None
        is_unnamed = not (self._has_durable_names or self._is_directory_synced)
        if self._sync_snapshots(local.end.offset) or is_new or is_unnamed:
            local.fs.sync_dir(local.directory)

    def _sync_snapshots(self, end: int) -> list[SnapshotFile]:
        """Sync and return the producer snapshots up to `end` that rolls have taken.

        Recovery reads nothing below the recovery point, so a snapshot there has to be complete.
        """
        local = self._local
        with self._lock:
            snapshots = local.producers.snapshots.unsynced(end)
        for snapshot in snapshots:
            self._sync(partial(_sync_if_there, snapshot.path, local.fs))
        return snapshots

    def _sync_names(self) -> None:
        """Make the names of new segments durable.

        Once also that of the directory, which may be new.
        """
        local = self._local
        if not self._is_directory_synced:
            self._sync_small_files()
        local.fs.sync_dir(local.directory)
        if not self._is_directory_synced:
            local.fs.sync_dir(local.directory.parent)
            self._is_directory_synced = True

    def _sync(self, sync: Callable[[], None], segment: LogSegment | None = None) -> None:
        """Sync files. After a failure the log is unusable, since the content of the disk is unknown."""
        self._disk(sync, segment, is_sync=True)

    def _disk(self, work: Callable[[], None], segment: LogSegment | None = None, *, is_sync: bool = False) -> None:
        """Work on files that other threads may close, rename or remove concurrently.

        An error counts as a disk failure only if none of that happened.
        """
        local = self._local
        try:
            work()
        except (OSError, ValueError, KafkaStorageError) as error:  # both others: of what was closed
            with self._lock:
                if local.closed:
                    raise local.unusable() from None
                if segment is not None and segment not in local.segments.all:
                    return
                if not isinstance(error, OSError):
                    raise
                # A file that could not be opened was not synced. It can be once there are descriptors again.
                local.sync_failed = local.sync_failed or (is_sync and not is_shortage(error))
            raise local.storage_error("flush", error) from error

    def flush_if_due(self, now_ms: int) -> bool:
        """Flush as flush.ms requires, or the segments sealed since the last flush.

        Return whether there was anything to do.
        """
        local = self._local
        if local.closed:
            return False
        if now_ms - self._last_flush_ms >= local.config.flush_ms and local.end.offset > local.recovery_point:
            self.flush()
            return True
        if local.sealed_end_offset > local.recovery_point:
            self.flush(local.sealed_end_offset)
            return True
        return False


def _sync_if_there(path: Path, fs: FileSystem) -> None:
    with suppress(FileNotFoundError):  # it was removed with its segment
        sync_file(path, fs)
