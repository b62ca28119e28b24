"""Rebuild offset and time indexes from their log, or convert an offset index to the other format.

No process may have the log open. Each file is replaced atomically and read back. The entries are those that Kafka's
`LogSegment.recover` writes, in the formats of KIP-1333.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stratalog.errors import CorruptIndexError
from stratalog.inspect import offset_entries
from stratalog.jobs.index.check import verify_offset_index
from stratalog.jobs.index.spans_over_damage import spans_over_damage
from stratalog.log.format import LARGE, LEGACY, OffsetIndexFormat, OffsetPosition, TimestampOffset, detect_in_file
from stratalog.log.index import RELATIVE_OFFSET_MAX, time_index
from stratalog.util import REAL_FILESYSTEM, FileSystem, write_atomic

INDEX_INTERVAL_BYTES: Final = 4096


@dataclass(frozen=True, slots=True)
class LogIndexes:
    """The entries that both indexes of a log should have."""

    offset: list[OffsetPosition]
    time: list[TimestampOffset]
    #: Where the last whole batch ends. Bytes after it are not indexed.
    size_bytes: int


def index_log(
    log_path: Path,
    base_offset: int,
    *,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    fs: FileSystem = REAL_FILESYSTEM,
) -> LogIndexes:
    """Return the entries for a log, as a broker makes them when it recovers a flushed segment.

    Reads headers and skips their CRCs. After bytes that are not a header, the next batch is found by its CRC.
    """
    offset: list[OffsetPosition] = []
    time: list[TimestampOffset] = []
    largest = last = TimestampOffset(time_index.NO_TIMESTAMP, base_offset)
    end = last_entry_at = 0
    expected = base_offset
    with fs.open(log_path) as log:
        for position, batch, is_behind_damage in spans_over_damage(log, base_offset):
            if not expected <= batch.base_offset <= batch.last_offset <= base_offset + RELATIVE_OFFSET_MAX:
                break
            if batch.max_timestamp > largest.timestamp_ms:
                largest = TimestampOffset(batch.max_timestamp, batch.last_offset)
            # A batch after damage gets its own entry, so that readers can get past the damage.
            if position - last_entry_at > index_interval_bytes or is_behind_damage:
                offset.append(OffsetPosition(batch.last_offset, position))
                if largest.timestamp_ms > last.timestamp_ms:
                    time.append(largest)
                    last = largest
                last_entry_at = position
            end, expected = position + batch.size, batch.last_offset + 1
    if largest.timestamp_ms > last.timestamp_ms:
        time.append(largest)
    return LogIndexes(offset, time, end)


def write_offset_index(
    path: Path,
    base_offset: int,
    entries: list[OffsetPosition],
    form: OffsetIndexFormat,
    fs: FileSystem = REAL_FILESYSTEM,
) -> None:
    """Replace an offset index by these entries. Raises ValueError, and writes nothing, if one does not fit."""
    if entries and entries[-1].position > form.position_max:
        raise ValueError(
            f"{path}: position {entries[-1].position} does not fit entries of {form.entry_size} bytes, whose largest is"
            f" {form.position_max}"
        )
    pack = form.entry.pack
    write_atomic(path, b"".join(pack(e.offset - base_offset, e.position) for e in entries), fs)


def write_time_index(
    path: Path, base_offset: int, entries: list[TimestampOffset], fs: FileSystem = REAL_FILESYSTEM
) -> None:
    """Replace a time index by these entries."""
    pack = time_index.ENTRY.pack
    write_atomic(path, b"".join(pack(e.timestamp_ms, e.offset - base_offset) for e in entries), fs)


def rebuild_segment(
    log_path: Path,
    index_path: Path,
    time_index_path: Path,
    base_offset: int,
    *,
    form: OffsetIndexFormat,
    index_interval_bytes: int = INDEX_INTERVAL_BYTES,
    fs: FileSystem = REAL_FILESYSTEM,
) -> LogIndexes:
    """Rebuild both indexes of a log, whatever their content. Raises ValueError if the log is too large for `form`."""
    made = index_log(log_path, base_offset, index_interval_bytes=index_interval_bytes, fs=fs)
    write_offset_index(index_path, base_offset, made.offset, form, fs)
    write_time_index(time_index_path, base_offset, made.time, fs)
    return made


def convert_offset_index(
    log_path: Path, path: Path, base_offset: int, form: OffsetIndexFormat, fs: FileSystem = REAL_FILESYSTEM
) -> bool:
    """Convert an offset index. Return False if it already has the format, or has no entries.

    The caller must have verified the entries. The new file is read back and compared with the log. Raises
    CorruptIndexError if the file is not an offset index or the comparison fails, and ValueError if a position does not
    fit the format. A file that cannot be converted stays unchanged.
    """
    found = detect_in_file(path, base_offset, fs=fs, log_path=log_path, always_prove=True)
    if found.is_corrupt:
        raise CorruptIndexError(f"{path}: {found.reason}")
    entries = offset_entries(path, base_offset, found.format, fs)
    if not entries or found.format is form:
        return False
    write_offset_index(path, base_offset, entries, form, fs)
    faults = verify_offset_index(log_path, path, base_offset, expected=form, fs=fs)
    if faults or offset_entries(path, base_offset, form, fs) != entries:
        raise CorruptIndexError(str(faults[0]) if faults else f"{path}: it differs from what was written")
    return True


def format_for_rebuild(
    log_path: Path, path: Path, base_offset: int, fs: FileSystem = REAL_FILESYSTEM
) -> OffsetIndexFormat:
    """Return the format for rebuilding an index if the finalized metadata.version is unknown: the format it has.

    A corrupt or missing index gets the 8-byte format, which every broker reads, unless the log is too large for it.
    """
    found = detect_in_file(path, base_offset, fs=fs, log_path=log_path, always_prove=True)
    form = LEGACY if found.is_corrupt else found.format
    return LARGE if fs.size(log_path) > LEGACY.position_max else form
