"""Rebuild offset and time index of a remote segment from its records, when the stored ones are damaged.

The records are fetched once from end to end in ranges of `RANGE_BYTES`, one of which is in memory, and only headers are
read. The result is that of recovering a log segment (`log.recovery.segment_recovery`).
"""

from __future__ import annotations

from pathlib import Path

from stratalog.errors import CorruptRecordError, DamagedRemoteObjectError, UnsupportedForMessageFormatError
from stratalog.log import scan_headers
from stratalog.log.format import LARGE, LEGACY, format_of
from stratalog.log.index import ENTRY_SIZE, NO_TIMESTAMP, OffsetIndex, TimeIndex
from stratalog.remote.api import INT32_MAX, RemoteLogSegmentMetadata, RemoteStorageManager, fetch_records
from stratalog.util import File, FileSystem

RANGE_BYTES = 8 * 1024 * 1024
ALIGNMENT_BYTES = 1024 * 1024

#: Default of `index.interval.bytes`: a segment does not record its own.
INTERVAL_BYTES = 4096


class RemoteRecords(File):
    """The records of a remote segment as a file. Every read is a fetch."""

    def __init__(self, rsm: RemoteStorageManager, metadata: RemoteLogSegmentMetadata) -> None:
        super().__init__(str(metadata.segment_id), -1)
        self._rsm = rsm
        self._metadata = metadata

    def size(self) -> int:
        return self._metadata.segment_size_bytes

    def pread(self, size: int, position: int) -> bytes:
        """Read up to the end of a checksum, which may be more than `size`. Raises RemoteStorageError."""
        end = -(-(position + size) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        end = min(end, self.size())
        return bytes(fetch_records(self._rsm, self._metadata, position, end))


def rebuild_indexes(
    records: File,
    metadata: RemoteLogSegmentMetadata,
    offset_index_path: Path,
    time_index_path: Path,
    fs: FileSystem,
    *,
    entry_size: int | None = None,
) -> int:
    """Write both index files, which must not exist, from the records. Return the entry size of the offset index.

    `entry_size` is used if positions fit; the default is 8 if they fit. Raises DamagedRemoteObjectError when the
    records are no whole batches of the segment, RemoteStorageError, OSError.
    """
    form = LEGACY if entry_size is None else format_of(entry_size)
    if metadata.segment_size_bytes > INT32_MAX:
        form = LARGE
    slots = metadata.segment_size_bytes // INTERVAL_BYTES + 2
    base = metadata.start_offset
    with (
        OffsetIndex(
            offset_index_path, base, max_size=slots * form.entry_size, fs=fs, entry_size=form.entry_size
        ) as offsets,
        TimeIndex(time_index_path, base, max_size=slots * ENTRY_SIZE, fs=fs) as times,
    ):
        try:
            _fill(records, metadata, offsets, times)
        except (CorruptRecordError, UnsupportedForMessageFormatError) as error:
            raise DamagedRemoteObjectError(
                f"the indexes of {metadata.segment_id} cannot be rebuilt, its records are damaged too: {error}"
            ) from error
    return form.entry_size


def _fill(records: File, metadata: RemoteLogSegmentMetadata, offsets: OffsetIndex, times: TimeIndex) -> None:
    largest, largest_offset = NO_TIMESTAMP, metadata.start_offset
    end = last_entry = 0
    expected = metadata.start_offset
    for position, batch in scan_headers(records, window_size=RANGE_BYTES):
        last_offset = batch.last_offset
        if batch.base_offset < expected or last_offset > metadata.end_offset:
            raise CorruptRecordError(
                f"the batch at position {position} has offsets {batch.base_offset} to {last_offset}, expected them "
                f"from {expected} to {metadata.end_offset}"
            )
        if batch.max_timestamp > largest:
            largest, largest_offset = batch.max_timestamp, last_offset
        if position - last_entry > INTERVAL_BYTES:
            offsets.append(last_offset, position)
            times.maybe_append(largest, largest_offset)
            last_entry = position
        expected, end = last_offset + 1, position + batch.size
    if end != records.size():
        raise CorruptRecordError(f"the batch at position {end} is not whole")
    times.maybe_append(largest, largest_offset, skip_full_check=True)
