"""Decide whether offsets that no segment has were compacted away, or are missing.

Manifests record the topic's `cleanup.policy`. On a disk, other files show it: the cleaner's checkpoint, files of a
cleaning in progress, and segments that lack offsets inside, which only compaction makes.
"""

from __future__ import annotations

from pathlib import Path

from stratalog.errors import CorruptCheckpointError, CorruptRecordError
from stratalog.inspect import ByteSources, PlaceMissingError, PlaceTier
from stratalog.log import scan_headers
from stratalog.log.format import (
    CLEANED_SUFFIX,
    CLEANER_OFFSETS,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    OffsetCheckpoint,
    parse_file_name,
    parse_partition_dir,
)
from stratalog.spark.model import Segment, has_compact_policy
from stratalog.util import FileSystem


def explains(before: Segment, after: Segment, byte_sources: ByteSources) -> bool:
    """Return whether compaction may have removed everything between two consecutive segments."""
    remote = [each for each in (before, after) if each.tier is PlaceTier.REMOTE]
    if remote:
        return all(map(has_compact_policy, remote))
    local = [each for each in (before, after) if each.tier is PlaceTier.LOCAL]
    return bool(local) and (
        _is_cleaned(Path(local[0].log.name).parent, byte_sources.fs)
        or any(_has_gaps(each, byte_sources) for each in local)
    )


def _is_cleaned(directory: Path, fs: FileSystem) -> bool:
    """Return whether a partition has been cleaned or is being cleaned."""
    try:
        cleaned = OffsetCheckpoint(directory.parent / CLEANER_OFFSETS, fs).read()
    except CorruptCheckpointError:
        cleaned = {}
    if parse_partition_dir(directory.resolve().name) in cleaned:
        return True
    logs: dict[str, list[int]] = {}
    for name in fs.list_dir(directory):
        parsed = parse_file_name(name)
        if parsed is not None and parsed[1] == LOG_SUFFIX:
            logs.setdefault(parsed[2], []).append(parsed[0])
    if CLEANED_SUFFIX in logs or SWAP_SUFFIX in logs:
        return True
    # Retention deletes from the beginning: a file that disappears later in the log was replaced.
    return max(logs.get(DELETED_SUFFIX, [-1])) >= min(logs.get("", [0]))


def _has_gaps(segment: Segment, byte_sources: ByteSources) -> bool:
    """Return whether offsets are missing within a local segment."""
    expected = segment.base_offset
    try:
        with byte_sources.open_local(segment.log) as log:
            for _, batch in scan_headers(log, 0, segment.size):
                if batch.base_offset > expected:
                    return True
                if batch.magic >= 2 and batch.record_count < batch.next_offset - batch.base_offset:
                    return True
                expected = batch.next_offset
    except CorruptRecordError:
        return False
    except PlaceMissingError:  # just replaced
        return True
    return False
