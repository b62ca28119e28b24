"""Look at partition directories from outside: no locks, nothing is changed, no broker is needed.

For Spark, `stratalog dump` and other offline tools. A live partition may roll, grow and delete meanwhile: a listing is what
was there at that moment, and a reader stops at the first batch that is not complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from stratalog.errors import CorruptRecordError
from stratalog.log.file_names import (
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TXN_INDEX_SUFFIX,
    log_file,
    offset_index_file,
    parse_file_name,
    parse_partition_dir,
    time_index_file,
)
from stratalog.records.batch import RecordBatch, batch_at, checked_batch_size
from stratalog.records.batch_format import HEADER_SIZE, HEADER_SIZE_UP_TO_MAGIC, MAGIC, MAGIC_AT
from stratalog.util.filesystem import REAL_FILESYSTEM, File, FileSystem, StrPath

#: Headers are read in windows of this size; a batch that is larger is stepped over unread.
WINDOW_SIZE: Final = 128 * 1024


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The files of one segment. `index` and `timeindex` are where they belong, there or not; the others only if there.

    `size` is that of the `.log` at the time of the listing. `snapshot` is the producer state at the base offset.
    """

    base_offset: int
    log: Path
    index: Path
    timeindex: Path
    txnindex: Path | None
    snapshot: Path | None
    size: int


class PartitionDirectory(NamedTuple):
    topic: str
    partition: int
    path: Path


def list_partitions(data_dir: StrPath, fs: FileSystem = REAL_FILESYSTEM) -> list[PartitionDirectory]:
    """The live partition directories in a data directory, by topic and partition."""
    found = []
    for name in fs.list_dir(data_dir):
        parsed = parse_partition_dir(name)
        path = Path(data_dir) / name
        if parsed is not None and fs.is_dir(path):
            found.append(PartitionDirectory(*parsed, path))
    return sorted(found)


def list_segments(directory: StrPath, fs: FileSystem = REAL_FILESYSTEM) -> list[SegmentFiles]:
    """The segments of a partition directory, by base offset; files that are being deleted or replaced are left out."""
    root = Path(directory)
    by_suffix: dict[str, set[int]] = {}
    for name in fs.list_dir(root):
        parsed = parse_file_name(name)
        if parsed is not None and not parsed[2]:
            by_suffix.setdefault(parsed[1], set()).add(parsed[0])
    with_txnindex = by_suffix.get(TXN_INDEX_SUFFIX, set())
    with_snapshot = by_suffix.get(SNAPSHOT_SUFFIX, set())
    segments = []
    for base in sorted(by_suffix.get(LOG_SUFFIX, ())):
        log = root / log_file(base)
        try:
            size = fs.size(log)
        except FileNotFoundError:  # deleted since the listing
            continue
        segments.append(
            SegmentFiles(
                base,
                log,
                root / offset_index_file(base),
                root / time_index_file(base),
                log.with_suffix(TXN_INDEX_SUFFIX) if base in with_txnindex else None,
                log.with_suffix(SNAPSHOT_SUFFIX) if base in with_snapshot else None,
                size,
            )
        )
    return segments


class BatchHeader(NamedTuple):
    """A batch in a file: where it begins, and a view on (at least) its header. Only header fields may be asked for."""

    position: int
    batch: RecordBatch


def scan_headers(
    file: File, start: int = 0, end: int | None = None, *, window_size: int = WINDOW_SIZE
) -> Iterator[BatchHeader]:
    """The headers of the batches between two positions of a `.log`, in order, reading as little as that needs.

    `start` must be where a batch begins. Ends before the first batch that is not complete; the caller sees that from the
    last one's position and size. Raises CorruptRecordError, naming file and position, for bytes that cannot be a batch.
    Messages of formats 0 and 1 are there as a whole: the base offset of a wrapper is in what it holds.
    """
    limit = file.size() if end is None else min(end, file.size())
    position = start
    window, window_at = b"", start
    while limit - position >= HEADER_SIZE_UP_TO_MAGIC:
        at = position - window_at
        if at + HEADER_SIZE > len(window):
            window, window_at, at = file.pread(min(window_size, limit - position), position), position, 0
            if len(window) < HEADER_SIZE_UP_TO_MAGIC:  # the file was cut meanwhile
                return
        try:
            size = checked_batch_size(window, at)
        except CorruptRecordError as error:
            raise CorruptRecordError(f"{file.path}: no batch at position {position}: {error}") from None
        if position + size > limit:
            return
        if window[at + MAGIC_AT] != MAGIC and at + size > len(window):
            window, window_at, at = file.pread(max(window_size, size), position), position, 0
        yield BatchHeader(position, batch_at(window, at))
        position += size
