"""The partitions of log directories that no broker serves, and the offsets up to which they are clean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stratalog.errors import UsageError
from stratalog.jobs.compaction.rewrite import ATTEMPT_SUFFIX
from stratalog.log import PartitionDirectory, list_partitions
from stratalog.log.format import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    OffsetCheckpoint,
)
from stratalog.log.recovery import known_recovery_point
from stratalog.util import REAL_FILESYSTEM, FileSystem

_CHECKPOINTS: Final = (CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS)


@dataclass(frozen=True, slots=True)
class LocalPartition:
    """A partition directory, and its entries in the checkpoints of its log directory, None without an entry."""

    topic: str
    partition: int
    path: Path
    was_clean: bool
    cleaned_to: int | None
    high_watermark: int | None
    log_start_offset: int
    recovery_point: int | None


def local_partitions(
    directories: Sequence[Path], topics: Sequence[str] | None, fs: FileSystem = REAL_FILESYSTEM
) -> list[LocalPartition]:
    """Return the partitions of `topics`, by default of all.

    Raises UsageError if one is missing, and CorruptCheckpointError.
    """
    found = [
        partition
        for directory in directories
        for partition in _partitions(directory, fs)
        if topics is None or partition.topic in topics
    ]
    missing = sorted(set(topics or ()) - {partition.topic for partition in found})
    if missing:
        raise UsageError(f"no partition of {', '.join(missing)} in {', '.join(map(str, directories))}")
    return found


def _partitions(directory: Path, fs: FileSystem) -> list[LocalPartition]:
    cleaner, watermarks, starts, recovery = (OffsetCheckpoint(directory / name, fs).read() for name in _CHECKPOINTS)
    was_clean = fs.exists(directory / CLEAN_SHUTDOWN)

    def partition(found: PartitionDirectory) -> LocalPartition:
        key = found.topic, found.partition
        return LocalPartition(
            *key,
            found.path,
            was_clean,
            cleaner.get(key),
            watermarks.get(key),
            starts.get(key, 0),
            known_recovery_point(recovery.get(key, 0)),
        )

    return [partition(found) for found in list_partitions(directory, fs)]


def note_cleaned(directory: Path, topic: str, partition: int, offset: int, fs: FileSystem = REAL_FILESYSTEM) -> None:
    """Record in the cleaner's checkpoint that everything below `offset` is clean."""
    checkpoint = OffsetCheckpoint(directory / CLEANER_OFFSETS, fs)
    checkpoint.write(checkpoint.read() | {(topic, partition): offset})


def clear_attempts(directory: Path, fs: FileSystem = REAL_FILESYSTEM) -> None:
    """Remove the leftovers of unfinished rewrites from a partition directory."""
    for name in fs.list_dir(directory):
        if name.endswith(ATTEMPT_SUFFIX):
            fs.remove_tree(directory / name)
