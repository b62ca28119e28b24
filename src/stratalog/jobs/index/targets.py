"""The plan of a job on indexes: those of a file, a partition directory or a data directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stratalog.errors import UsageError
from stratalog.log import list_partitions, list_segments
from stratalog.log.format import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    log_file,
    offset_index_file,
    parse_file_name,
    parse_partition_dir,
    time_index_file,
)


@dataclass(frozen=True, slots=True)
class SegmentTarget:
    """The requested indexes of one segment, which may not exist, and the log that they belong to."""

    base_offset: int
    log: Path
    offset_index: Path | None
    time_index: Path | None
    #: Whether it is not the last segment of its partition, so that nothing is appended to it anymore.
    is_sealed: bool

    def __str__(self) -> str:
        return str(self.log)

    @property
    def log_size(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0


@dataclass(frozen=True, slots=True)
class Target:
    """The target that a path names. `data_dir` is the directory that a broker would lock to serve it."""

    data_dir: Path
    segments: tuple[SegmentTarget, ...]

    def require_logs(self) -> None:
        """Raise UsageError unless every log exists."""
        for segment in self.segments:
            if not segment.log.exists():
                raise UsageError(f"{segment.log}: this log does not exist, so the index cannot be compared with it")


def find_target(path: Path) -> Target:
    """Return the target of a path. Raises UsageError unless it is an index, a log, or a directory of such files."""
    if not path.exists():
        raise UsageError(f"{path}: no such file or directory")
    path = path.resolve()
    if not path.is_dir():
        return Target(path.parent.parent, (_of_file(path),))
    segments = targets_in(path)
    if segments or parse_partition_dir(path.name) is not None:
        return Target(path.parent, segments)
    partitions = list_partitions(path)
    if not partitions:
        raise UsageError(f"{path}: expected partitions or segments in this directory, found none")
    return Target(path, tuple(segment for partition in partitions for segment in targets_in(partition.path)))


def targets_in(directory: Path) -> tuple[SegmentTarget, ...]:
    """Return the segments of a partition directory, in order."""
    found = list_segments(directory)
    return tuple(
        SegmentTarget(segment.base_offset, segment.log, segment.index, segment.timeindex, segment is not found[-1])
        for segment in found
    )


def _of_file(path: Path) -> SegmentTarget:
    parsed = parse_file_name(path.name)
    if parsed is None or parsed[1] not in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX):
        raise UsageError(f"{path}: expected the name of an offset index, a time index or a log")
    base_offset, suffix, second = parsed
    directory = path.parent
    last = max((segment.base_offset for segment in list_segments(directory)), default=base_offset)
    return SegmentTarget(
        base_offset,
        directory / (log_file(base_offset) + second),
        None if suffix == TIME_INDEX_SUFFIX else directory / (offset_index_file(base_offset) + second),
        None if suffix == OFFSET_INDEX_SUFFIX else directory / (time_index_file(base_offset) + second),
        base_offset < last,
    )
