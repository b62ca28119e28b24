"""Checkpoints of the data directories, by partition.

Read at startup, written from the current logs.

    recovery-point-offset-checkpoint    everything below is on disk
    log-start-offset-checkpoint         where the log begins; no entry for 0
    replication-offset-checkpoint       the high watermark

Entries of partitions that are not served (of unknown topics, or that could not be opened) are kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from stratalog.engine.dirs.data_dir import DataDir
from stratalog.engine.dirs.log_dirs import LogDirs
from stratalog.log import PartitionLog
from stratalog.log.format import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS, TopicPartition
from stratalog.log.recovery import known_recovery_point

_FACTS: Final[dict[str, Callable[[PartitionLog], int]]] = {
    RECOVERY_POINTS: lambda log: log.recovery_point,
    LOG_START_OFFSETS: lambda log: log.log_start_offset,
    HIGH_WATERMARKS: lambda log: log.high_watermark,
}

ALL_CHECKPOINTS: Final = tuple(_FACTS)


class Checkpointed(NamedTuple):
    """The entries of one partition, 0 without one.

    `recovery_point` is None if its checkpoint is damaged.
    """

    recovery_point: int | None
    log_start_offset: int
    high_watermark: int = 0


class DirCheckpoints:
    """Checkpoints of all directories. Thread-safe."""

    def __init__(self, dirs: LogDirs) -> None:
        self._dirs = dirs
        self._lock = threading.Lock()
        self._found: dict[tuple[Path, str], dict[TopicPartition, int]] = {}
        #: Directories with unreadable recovery points at startup.
        self._flush_unknown: set[Path] = set()
        #: The current content of the files.
        self._on_disk: dict[tuple[Path, str], frozenset[TopicPartition]] = {}

    def read(self, data_dir: DataDir) -> None:
        """Read those of one directory. Raises OSError; a damaged one counts as empty."""
        found = {name: self._dirs.read_checkpoint(data_dir, name) for name in _FACTS}
        with self._lock:
            for name, offsets in found.items():
                self._found[data_dir.path, name] = offsets or {}
                self._on_disk[data_dir.path, name] = frozenset(offsets or {})
            if found[RECOVERY_POINTS] is None:
                self._flush_unknown.add(data_dir.path)

    def of(self, directory: Path, partition: TopicPartition) -> Checkpointed:
        with self._lock:
            recovery_point, start, high_watermark = (
                self._found.get((directory, name), {}).get(partition, 0) for name in _FACTS
            )
        is_known = directory not in self._flush_unknown
        return Checkpointed(known_recovery_point(recovery_point) if is_known else None, start, high_watermark)

    def expect(self, directory: Path, partition: TopicPartition, bounds: Checkpointed) -> None:
        """Record the entries of a partition that is not served there yet."""
        with self._lock:
            for name, offset in zip(_FACTS, bounds, strict=True):
                self._found.setdefault((directory, name), {})[partition] = offset or 0

    def forget(self, directory: Path, partition: TopicPartition) -> None:
        """Drop a partition that is no longer in the directory."""
        with self._lock:
            for name in _FACTS:
                self._found.get((directory, name), {}).pop(partition, None)

    def still_names(self, directory: Path, partition: TopicPartition) -> bool:
        """Return whether a file still has an entry of the partition. After a crash it would apply to a new one."""
        with self._lock:
            return any(partition in self._on_disk.get((directory, name), ()) for name in _FACTS)

    def write(self, data_dir: DataDir, logs: Iterable[PartitionLog], names: Collection[str] = ALL_CHECKPOINTS) -> bool:
        """Write those (or some) of one directory, for its served `logs`. Return whether the disk succeeded.

        A disk error takes the directory out of service (`LogDirs.write_checkpoint`).
        """
        here = {(log.topic, log.partition): log for log in logs}
        with self._lock:
            for name in names:
                fact = _FACTS[name]
                offsets = {
                    partition: offset
                    for partition, offset in self._found.get((data_dir.path, name), {}).items()
                    if partition not in here
                }
                offsets |= {partition: fact(log) for partition, log in here.items()}
                if name == LOG_START_OFFSETS:
                    offsets = {partition: offset for partition, offset in offsets.items() if offset > 0}
                if not self._dirs.write_checkpoint(data_dir, name, offsets):
                    return False
                self._on_disk[data_dir.path, name] = frozenset(offsets)
        return True
