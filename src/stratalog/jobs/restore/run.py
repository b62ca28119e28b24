"""Restore topics from the bucket alone: into an empty data directory, or as lost metadata of an existing one.

A mark in the data directory (`restore_marker`) shows that it is incomplete. The mark is set before the first change and
removed after the last, and a broker does not serve a marked directory. Run an interrupted restore again: it removes its
earlier files first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from stratalog.errors import DataDirError
from stratalog.inspect import restore_marker
from stratalog.jobs.restore.bucket import RestorePlan
from stratalog.jobs.restore.files import METADATA_TOPIC, write_metadata, write_partition
from stratalog.log.format import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    STRAY_DIR_SUFFIX,
    OffsetCheckpoint,
    parse_partition_dir,
)
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, Clock, FileSystem, random_uuid

#: Names that a new directory has on some file systems, and the temporary file of an unset mark.
_NO_CONTENT: Final = frozenset({"lost+found", f"{restore_marker.RESTORE_UNFINISHED}.tmp"})

#: Registers the topics of the plan with the broker, durably. The id is that of the metadata topic.
Register = Callable[[RestorePlan, UUID], None]


@dataclass(frozen=True, slots=True)
class Written:
    """Changes beyond the plan: aborted transactions, as lines of text."""

    notes: tuple[str, ...]


def check_target(data_dir: Path, *, metadata_only: bool, fs: FileSystem = REAL_FILESYSTEM) -> None:
    """Raise DataDirError unless a restore may write to `data_dir`."""
    content = set(fs.list_dir(data_dir)) - _NO_CONTENT if fs.is_dir(data_dir) else set()
    begun = restore_marker.begun(data_dir, fs) if content else None
    if begun is not None and (begun != restore_marker.EVERYTHING) != metadata_only:
        was = "without" if metadata_only else "with"
        raise DataDirError(f"{data_dir}: a restore {was} --metadata-only was not finished; run that one again")
    if metadata_only and not content:
        raise DataDirError(f"{data_dir} is empty; leave out --metadata-only")
    if not metadata_only and content and begun is None:
        raise DataDirError(
            f"{data_dir} is not empty; restore into a new directory (or, with `tier restore --metadata-only`, only the "
            "metadata of this one)"
        )


def write_restore(
    plan: RestorePlan,
    data_dir: Path,
    register: Register,
    *,
    metadata_only: bool = False,
    metadata_topic_id: UUID | None = None,
    metadata_partitions: int = 50,
    clock: Clock = SYSTEM_CLOCK,
    fs: FileSystem = REAL_FILESYSTEM,
) -> Written:
    """Carry out `plan`. The directory is marked as unfinished until this returns.

    No other process may use the directory. Raises DataDirError like `check_target`, OSError, and what `register`
    raises.
    """
    check_target(data_dir, metadata_only=metadata_only, fs=fs)
    fs.make_dirs(data_dir)
    topic_id = metadata_topic_id or random_uuid()
    if metadata_only:
        _set_aside_metadata(data_dir, fs)
    else:
        begin_empty(data_dir, fs)
    ends, notes = write_partitions(plan, data_dir, clock, fs)
    written = write_metadata(data_dir, topic_id, metadata_partitions, plan.segments, clock=clock, fs=fs)
    ends |= {(METADATA_TOPIC, number): end for number, end in written.items()}
    write_checkpoints(plan, data_dir, ends, fs)
    register(plan, topic_id)
    restore_marker.end(data_dir, fs)
    return Written(tuple(notes))


def write_partitions(
    plan: RestorePlan, data_dir: Path, clock: Clock, fs: FileSystem
) -> tuple[dict[tuple[str, int], int], list[str]]:
    """Write the directories of all partitions, without records. Return the end of each log, and notes for people."""
    ends: dict[tuple[str, int], int] = {}
    notes: list[str] = []
    for partition in plan.partitions:
        if partition.is_local:
            continue
        key = partition.partition.topic, partition.partition.partition
        ends[key], aborted = write_partition(data_dir, partition, clock=clock, fs=fs)
        notes += (
            f"{key[0]}-{key[1]}: the transaction of producer {producer} had no end in the bucket and is aborted"
            for producer in aborted
        )
    return ends, notes


def begin_empty(data_dir: Path, fs: FileSystem) -> None:
    """Set the mark, and remove the files of an earlier restore."""
    restore_marker.begin(data_dir, restore_marker.EVERYTHING, fs)
    for name in sorted(set(fs.list_dir(data_dir)) - _NO_CONTENT - {restore_marker.RESTORE_UNFINISHED}):
        _remove(data_dir / name, fs)


def _set_aside_metadata(data_dir: Path, fs: FileSystem) -> None:
    """Rename existing partitions of the metadata topic to `-stray`. Those of an earlier restore are removed."""
    half_made = restore_marker.begun(data_dir, fs) == restore_marker.METADATA
    if not half_made:
        restore_marker.begin(data_dir, restore_marker.ASIDE, fs)
    for name in fs.list_dir(data_dir):
        if (parse_partition_dir(name) or ("",))[0] != METADATA_TOPIC:
            continue
        if half_made:
            fs.remove_tree(data_dir / name)
        else:
            fs.rename(data_dir / name, data_dir / f"{name}.{random_uuid().hex}{STRAY_DIR_SUFFIX}")
    restore_marker.begin(data_dir, restore_marker.METADATA, fs)


def _remove(path: Path, fs: FileSystem) -> None:
    if fs.is_dir(path):
        fs.remove_tree(path)
    else:
        fs.remove(path)


def write_checkpoints(plan: RestorePlan, data_dir: Path, ends: Mapping[tuple[str, int], int], fs: FileSystem) -> None:
    """Add the new logs to the checkpoints, and remove the entries of an earlier metadata topic."""
    starts = {
        (each.partition.topic, each.partition.partition): each.log_start_offset
        for each in plan.partitions
        if not each.is_local
    }
    for name, offsets in ((RECOVERY_POINTS, ends), (HIGH_WATERMARKS, ends), (LOG_START_OFFSETS, starts)):
        checkpoint = OffsetCheckpoint(data_dir / name, fs)
        kept = {key: offset for key, offset in checkpoint.read().items() if key[0] != METADATA_TOPIC}
        checkpoint.write({**kept, **{key: offset for key, offset in offsets.items() if offset > 0}})
