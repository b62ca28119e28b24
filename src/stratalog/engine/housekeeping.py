"""Periodic work on all logs: retention, flushes, expiry of producers, removal of deleted files."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from pathlib import Path

from stratalog.engine.cleaning import CleanerManager
from stratalog.engine.dirs import LogDirs
from stratalog.engine.partition import Partition
from stratalog.errors import KafkaStorageError, is_shortage
from stratalog.log import PartitionLog
from stratalog.log.format import TopicPartition
from stratalog.util import Clock, FileSystem

logger = logging.getLogger(__name__)


class Housekeeping:
    """Periodic work. `partitions` returns the served ones. Thread-safe.

    `on_disk_error` is called with the data directory and the reason when a directory cannot be removed.
    """

    def __init__(
        self,
        partitions: Callable[[], list[Partition]],
        dirs: LogDirs,
        cleaning: CleanerManager,
        *,
        clock: Clock,
        fs: FileSystem,
        on_disk_error: Callable[[Path, str], object],
    ) -> None:
        self._partitions = partitions
        self._dirs = dirs
        self._cleaning = cleaning
        self._clock = clock
        self._fs = fs
        self._on_disk_error = on_disk_error
        self._lock = threading.Lock()
        self._condemned: list[tuple[float, Path]] = []

    def apply_retention(self) -> int:
        """Apply retention to every partition that is not compacted. Return the number of deleted segments.

        The cleaner does this for compacted ones.
        """
        paused = self._cleaning.pause_not_compacted()
        try:
            return sum(self._each_log(lambda log: len(log.delete_old_segments()), within=paused))
        finally:
            self._cleaning.resume(paused)

    def flush_due(self) -> None:
        """Flush sealed segments, and logs whose flush.ms is over."""
        now_ms = self._clock.now_ms()
        self._each_log(lambda log: log.flush_if_due(now_ms))

    def expire_producers(self, expiration_ms: int) -> None:
        """Forget idempotent producers that were idle for `expiration_ms`."""
        now_ms = self._clock.now_ms()
        self._each_log(lambda log: log.expire_producers(now_ms, expiration_ms))

    def condemn(self, path: Path, delay_ms: float = 0) -> None:
        """Schedule the removal of a renamed directory."""
        with self._lock:
            self._condemned.append((self._clock.monotonic() + delay_ms / 1000, path))

    def purge(self) -> None:
        """Remove deleted files and directories whose delay is over."""
        now_ms = self._clock.now_ms()
        self._each_log(lambda log: log.purge_deleted(now_ms))
        now = self._clock.monotonic()
        with self._lock:
            due = [path for when, path in self._condemned if when <= now]
            self._condemned = [(when, path) for when, path in self._condemned if when > now]
        for path in due:
            try:
                self._fs.remove_tree(path)
            except OSError as error:
                if is_shortage(error):
                    self.condemn(path)
                    continue
                self._on_disk_error(path.parent, f"{path.name} cannot be removed: {error.strerror or error}")

    def _each_log(
        self, work: Callable[[PartitionLog], int], *, within: Collection[TopicPartition] | None = None
    ) -> list[int]:
        """Call `work` for every log. A disk error of one does not stop the others."""
        results = []
        for partition in self._partitions():
            if within is not None and (partition.topic, partition.partition) not in within:
                continue
            try:
                results.append(work(partition.log))
            except KafkaStorageError as error:
                if partition.failure is None and not self._dirs.is_offline(partition.log.directory.parent):
                    logger.error("%s", error)
        return results
