"""The offset up to which each compacted log is clean: `cleaner-offset-checkpoint` of each data directory.

Not thread-safe: hold the lock of `CleanerManager`. Each change writes the whole file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from stratalog.errors import CorruptCheckpointError, is_shortage
from stratalog.log.format import CLEANER_OFFSETS, OffsetCheckpoint, TopicPartition
from stratalog.util import FileSystem

logger = logging.getLogger(__name__)


class CleanerCheckpoints:
    """Cleaner checkpoints of all directories. An unreadable one counts as empty: more is cleaned, nothing is lost.

    `on_disk_error` is called with the directory and the reason when a write fails.
    """

    def __init__(self, data_dirs: Iterable[Path], fs: FileSystem, on_disk_error: Callable[[Path, str], object]) -> None:
        self._on_disk_error = on_disk_error
        self._files = {path: OffsetCheckpoint(path / CLEANER_OFFSETS, fs) for path in data_dirs}
        self._offsets = {path: _read(file) for path, file in self._files.items()}

    def get(self, data_dir: Path, partition: TopicPartition) -> int | None:
        """Return the offset below which this partition is clean.

        None: unknown, or the directory is no longer served.
        """
        return self._offsets.get(data_dir, {}).get(partition)

    def put(self, data_dir: Path, partition: TopicPartition, offset: int, known: Collection[TopicPartition]) -> None:
        """Write an offset, and drop entries of partitions that are not `known`."""
        if data_dir in self._files:
            kept = {key: value for key, value in self._offsets[data_dir].items() if key in known}
            self._write(data_dir, {**kept, partition: offset})

    def remove(self, data_dir: Path, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions, with one write."""
        offsets = self._offsets.get(data_dir, {})
        gone = offsets.keys() & set(partitions)
        if gone:
            self._write(data_dir, {key: value for key, value in offsets.items() if key not in gone})

    def truncate(self, data_dir: Path, partition: TopicPartition, offset: int) -> None:
        """Lower the offset to `offset`, where the log ends now."""
        offsets = self._offsets.get(data_dir, {})
        if offsets.get(partition, offset) > offset:
            self._write(data_dir, {**offsets, partition: offset})

    def move(self, partition: TopicPartition, source: Path, target: Path) -> None:
        """Move the partition's checkpoint to the file in `target`."""
        offset = self.get(source, partition)
        if offset is not None and target in self._files:
            self.remove(source, [partition])
            self._write(target, {**self._offsets[target], partition: offset})

    def forget(self, data_dir: Path) -> None:
        """Stop using the checkpoint of a directory that failed."""
        self._files.pop(data_dir, None)
        self._offsets.pop(data_dir, None)

    def _write(self, data_dir: Path, offsets: dict[TopicPartition, int]) -> None:
        self._offsets[data_dir] = offsets
        try:
            self._files[data_dir].write(offsets)
        except OSError as error:
            if is_shortage(error):  # memory counts; at worst, a log is cleaned again after a restart
                logger.error("%s of %s cannot be written: %s", CLEANER_OFFSETS, data_dir, error.strerror)
                return
            self._on_disk_error(data_dir, f"{CLEANER_OFFSETS} cannot be written: {error.strerror or error}")


def _read(file: OffsetCheckpoint) -> dict[TopicPartition, int]:
    try:
        return file.read()
    except (CorruptCheckpointError, OSError) as error:
        logger.warning("All compacted logs of %s count as dirty: %s", file.path.parent, error)
        return {}
