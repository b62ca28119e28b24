"""One segment: a `.log`, its three indexes, and what is known of its newest records.

The `.log` is a plain sequence of record batches. An index entry is made for a batch when more than
`index.interval.bytes` were appended since the batch of the last entry; the time index gets the largest timestamp so far
with it, and once more when the segment stops being active. Source: Kafka's `LogSegment`; every file has its bytes.

Thread safety: one writer at a time (the log's lock); `read`, `translate_offset` and the searches by any thread at any
time. `size_bytes` grows only after the bytes are written, so a reader never sees a batch that is not whole. Files and
maps of a segment that was deleted stay open as long as somebody holds the segment or a slice of it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from typing_extensions import Buffer

from stratalog.config.topic import LogConfig
from stratalog.errors import CorruptRecordError, InvalidRecordError, UnsupportedForMessageFormatError
from stratalog.log.file_names import (
    log_file,
    offset_index_file,
    time_index_file,
    txn_index_file,
)
from stratalog.log.offset_index import OffsetIndex
from stratalog.log.offset_index_format import LARGE, LEGACY, OffsetIndexFormat, detect_format
from stratalog.log.producer_state import BATCHES_KEPT
from stratalog.log.roll import RELATIVE_OFFSET_MAX
from stratalog.log.time_index import TimeIndex
from stratalog.log.txn_index import AbortedTransaction, TransactionIndex
from stratalog.log.values import BatchPosition, FileSlice, TimestampOffset
from stratalog.records.batch import RecordBatch
from stratalog.records.batch_format import (
    ATTRIBUTES_AT,
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LENGTH_MIN,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
)
from stratalog.util.clock import Clock
from stratalog.util.crc32c import crc32c
from stratalog.util.filesystem import File, FileSystem
from stratalog.util.uuids import random_uuid

if TYPE_CHECKING:
    from stratalog.log.append import BatchFacts

logger = logging.getLogger(__name__)

_TRANSACTION_BITS: Final = TRANSACTIONAL_BIT | CONTROL_BIT
#: Headers are read from disk in pieces of this size; as much as lies between two index entries, and some more.
_SCAN_CHUNK_SIZE: Final = 8192

_UNKNOWN: Final = TimestampOffset(-2, -1)

_unpack_header = HEADER.unpack_from


class LogSegment:
    """See the module. `base_offset` is a lower bound of all offsets in it."""

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        config: LogConfig,
        *,
        clock: Clock,
        fs: FileSystem,
        suffix: str = "",
        preallocate: bool = False,
    ) -> None:
        """Open the files of a segment, or make them. An index is opened, and made if it is missing, at its first use.

        `preallocate` gives a new `.log` its full size at once, with `size_bytes` still 0.
        """
        self.base_offset = base_offset
        self.log_path = directory / (log_file(base_offset) + suffix)
        self.roll_jitter_ms = _roll_jitter_ms(config)
        self._offset_index_path = directory / (offset_index_file(base_offset) + suffix)
        self._time_index_path = directory / (time_index_file(base_offset) + suffix)
        self._fs = fs
        self._clock = clock
        self._index_interval_bytes = config.index_interval_bytes
        self._index_size_max = config.segment_index_bytes
        self._new_index_format = LARGE if config.use_large_index_format else LEGACY
        self._index_lock = threading.Lock()
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        is_new = not fs.exists(self.log_path)
        self.file: File = fs.open(self.log_path, create=True)
        self.size_bytes = 0 if is_new else self.file.size()
        self._is_preallocated = is_new and preallocate
        if self._is_preallocated:
            self.file.truncate(config.segment_bytes)
        self.txn_index = TransactionIndex(
            directory / (txn_index_file(base_offset) + suffix), base_offset, fs=fs
        )
        self.created_ms = clock.now_ms()
        self._first_batch_timestamp: int | None = None
        self._bytes_since_index_entry = 0
        self._indexes_full: bool | None = None
        self._max_timestamp: TimestampOffset = _UNKNOWN

    @classmethod
    def create(
        cls,
        directory: Path,
        base_offset: int,
        config: LogConfig,
        *,
        clock: Clock,
        fs: FileSystem,
        suffix: str = "",
    ) -> LogSegment:
        """A new, empty segment, with both indexes at full size; files that a crash left under its name go first."""
        names = (log_file, offset_index_file, time_index_file, txn_index_file)
        for name in names:
            fs.remove(directory / (name(base_offset) + suffix))
        return cls(
            directory, base_offset, config, clock=clock, fs=fs, suffix=suffix, preallocate=config.preallocate
        )

    def __repr__(self) -> str:
        return f"LogSegment({self.log_path.name}, {self.size_bytes} bytes)"

    # --- indexes ----------------------------------------------------------------------------------------------------

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._offset_index
        return index if index is not None else self._open_offset_index()

    @property
    def time_index(self) -> TimeIndex:
        index = self._time_index
        return index if index is not None else self._open_time_index()

    def _open_offset_index(self) -> OffsetIndex:
        with self._index_lock:
            if self._offset_index is None:
                self._offset_index = OffsetIndex.open(
                    self._offset_index_path,
                    self.base_offset,
                    max_size=self._index_size_max,
                    fs=self._fs,
                    entry_size=self._index_format().entry_size,
                )
            return self._offset_index

    def _index_format(self) -> OffsetIndexFormat:
        """The format of the offset index on disk, which does not tell; of a new one as configured (KIP-1333).

        By size where only one fits, then by what stands in the log where the first entry points to.
        """
        path = self._offset_index_path
        size = self._fs.size(path) if self._fs.exists(path) else 0
        if size == 0:
            return self._new_index_format
        fitting = [form for form in (LEGACY, LARGE) if size % form.entry_size == 0]
        if len(fitting) == 2:
            with self._fs.open(path) as file:
                first = file.pread(LARGE.entry_size, 0)
            proven = [form for form in fitting if self._is_entry(*form.entry.unpack_from(first))]
            fitting = (
                proven if len(proven) == 1 else [detect_format(self._fs.read_bytes(path), self.base_offset)]
            )
        return fitting[0] if fitting else self._new_index_format

    def _is_entry(self, relative_offset: int, position: int) -> bool:
        """Whether a batch that ends at this offset stands at this position."""
        if not 0 <= position <= self.size_bytes - HEADER_SIZE:
            return False
        header = _unpack_header(self.file.pread(HEADER_SIZE, position))
        return bool(header[3] == MAGIC and header[0] + header[6] == self.base_offset + relative_offset)

    def _open_time_index(self) -> TimeIndex:
        with self._index_lock:
            if self._time_index is None:
                self._time_index = TimeIndex.open(
                    self._time_index_path, self.base_offset, max_size=self._index_size_max, fs=self._fs
                )
            return self._time_index

    @property
    def offset_index_path(self) -> Path:
        return self._offset_index_path

    @property
    def time_index_path(self) -> Path:
        return self._time_index_path

    @property
    def index_paths(self) -> tuple[Path, Path, Path]:
        """Offset index, time index, transaction index (which may not exist)."""
        return self._offset_index_path, self._time_index_path, self.txn_index.path

    @property
    def indexes_full(self) -> bool:
        known = self._indexes_full
        if known is None:
            known = self._indexes_full = self.offset_index.is_full or self.time_index.is_full
        return known

    @property
    def size_max(self) -> int:
        """The largest size that the positions of the offset index allow."""
        return self.offset_index.format.position_max

    def resize_indexes(self, size: int) -> None:
        """Make room for more entries: the segment is the active one."""
        self.offset_index.resize(max(size, self.offset_index.size_in_bytes))
        self.time_index.resize(max(size, self.time_index.size_in_bytes))
        self._indexes_full = None

    # --- times ------------------------------------------------------------------------------------------------------

    @property
    def max_timestamp(self) -> TimestampOffset:
        """The largest timestamp and the last offset of the first batch that has it; (-1, base offset) for none."""
        known = self._max_timestamp
        if known is _UNKNOWN:
            known = self._max_timestamp = self.time_index.last_entry
        return known

    def largest_timestamp(self) -> int:
        """The largest record timestamp, or the file's modification time when no record has one."""
        timestamp = self.max_timestamp.timestamp_ms
        return timestamp if timestamp >= 0 else self.last_modified_ms

    @property
    def last_modified_ms(self) -> int:
        return self._fs.mtime_ms(self.log_path)

    @property
    def first_batch_timestamp(self) -> int | None:
        """The max timestamp of the first batch (-1: it has none); None for an empty segment."""
        if self._first_batch_timestamp is None and self.size_bytes:
            for _, header in self.headers():
                self._first_batch_timestamp = header[8]
                break
        return self._first_batch_timestamp

    # --- writing ----------------------------------------------------------------------------------------------------

    def append(
        self,
        parts: Sequence[Buffer],
        size: int,
        batches: Sequence[BatchFacts],
        aborted: Sequence[AbortedTransaction] = (),
    ) -> None:
        """Write whole batches, `size` bytes in all, at the end.

        `batches` are those batches, in order, and `aborted` the transactions that markers among them abort. The caller
        has seen to it that the segment can hold them. An OSError leaves the segment as it was; if even that fails, the
        bytes behind `size_bytes` are no part of it.
        """
        position = self.size_bytes
        try:
            if len(parts) == 1:
                self.file.write_at(parts[0], position)
            else:
                self.file.writev_at(parts, position)
        except OSError:
            self._cut_back(position)
            raise
        if position == 0:
            self._first_batch_timestamp = batches[0].max_timestamp
        try:
            for transaction in aborted:
                self.txn_index.append(transaction)
            self._index(position, batches)
        except OSError:
            self._cut_back(position)
            self._cut_back_indexes(batches[0].base_offset)
            raise
        self.size_bytes = position + size

    def _index(self, position: int, batches: Sequence[BatchFacts]) -> None:
        """Make the index entries for batches that were written at `position`."""
        largest_before = self.max_timestamp
        largest, largest_offset = largest_before
        since = self._bytes_since_index_entry
        interval = self._index_interval_bytes
        for batch in batches:
            if batch.max_timestamp > largest:
                largest, largest_offset = batch.max_timestamp, batch.last_offset
            if since > interval and not self.indexes_full:
                self.offset_index.append(batch.last_offset, position)
                self.time_index.maybe_append(largest, largest_offset)
                self._indexes_full = None
                since = 0
            position += batch.size
            since += batch.size
        self._bytes_since_index_entry = since
        if largest > largest_before.timestamp_ms:
            self._max_timestamp = TimestampOffset(largest, largest_offset)

    def _cut_back(self, size: int) -> None:
        """Take back what a failed write left; a preallocated file keeps its length, and its tail has no meaning."""
        if self._is_preallocated:
            return
        try:
            self.file.truncate(size)
        except OSError:
            return  # the first error tells more; recovery cuts the tail

    def _cut_back_indexes(self, offset: int) -> None:
        """Take back the entries of a failed write of batches from `offset` on."""
        self._indexes_full = None
        try:
            self.offset_index.truncate_to(offset)
            self.time_index.truncate_to(offset)
            self.txn_index.truncate_to(offset)
        except OSError:
            return  # as above

    def become_inactive(self) -> None:
        """The segment is full: add the last time index entry and cut all files to what they hold."""
        self._seal_time_index()
        self.offset_index.trim_to_valid_size()
        self.time_index.trim_to_valid_size()
        self._indexes_full = None
        self._trim_log()

    def _seal_time_index(self) -> None:
        largest, index = self.max_timestamp, self.time_index
        if largest.timestamp_ms > index.last_entry.timestamp_ms:
            index.maybe_append(largest.timestamp_ms, largest.offset, skip_full_check=True)

    def _trim_log(self) -> None:
        if self._is_preallocated:
            self.file.truncate(self.size_bytes)
            self._is_preallocated = False

    def flush(self) -> None:
        """Make everything that was appended so far durable."""
        self.file.sync()
        for index in (self._offset_index, self._time_index, self.txn_index):
            if index is not None:
                index.flush()

    def truncate_to(self, offset: int) -> int:
        """Drop every batch that ends at or behind `offset`; return how many bytes went.

        A batch that holds `offset` among others goes whole.
        """
        found = self.translate_offset(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.resize_indexes(self._index_size_max)
        removed = 0
        if found is not None:
            removed = self.size_bytes - found.position
            self.size_bytes = found.position
            self.file.truncate(found.position)
            self._is_preallocated = False
        if self.size_bytes == 0:
            self.created_ms = self._clock.now_ms()
            self._first_batch_timestamp = None
        self._bytes_since_index_entry = 0
        self._max_timestamp = self._find_max_timestamp()
        return removed

    def _find_max_timestamp(self) -> TimestampOffset:
        """The last time index entry, or what the batches behind it have."""
        largest = self.time_index.last_entry
        for _, header in self.headers(self.offset_index.lookup(largest.offset).position):
            if header[8] > largest.timestamp_ms:
                largest = TimestampOffset(header[8], header[0] + header[6])
        return largest

    def recover(
        self, on_batch: Callable[[RecordBatch], None], *, epoch: int | None, expected_offset: int
    ) -> int:
        """Check every batch, cut the file behind the last sound one, and make the indexes anew; return the bytes cut.

        A batch is sound if its header, its size and its CRC are, and its offsets lie behind those of the one before it,
        not below `expected_offset`. `on_batch` is called for the first batch of each leader epoch after `epoch`, and for
        those batches of producers with an id from which their state follows: of batches outside of transactions, the
        last few of each producer will do. Its view is valid during the call only. A batch is not sound either if `on_batch`
        raises CorruptRecordError or InvalidRecordError for it.
        """
        self.offset_index.reset()
        self.time_index.reset()
        self.txn_index.reset()
        file_size = self.file.size()
        self.size_bytes = file_size
        self._max_timestamp = TimestampOffset(NO_TIMESTAMP, self.base_offset)
        valid_size = 0
        if file_size:
            with self._fs.map_file(self.file, file_size) as data, memoryview(data) as view:
                valid_size = self._scan_sound_batches(
                    view, on_batch, -1 if epoch is None else epoch, expected_offset
                )
        self.size_bytes = valid_size
        if valid_size < file_size:
            self.file.truncate(valid_size)
        self._bytes_since_index_entry = 0
        self._first_batch_timestamp = None
        self._indexes_full = None
        self._seal_time_index()
        self.offset_index.trim_to_valid_size()
        self.time_index.trim_to_valid_size()
        return file_size - valid_size

    def _scan_sound_batches(
        self, view: memoryview, on_batch: Callable[[RecordBatch], None], epoch: int, expected_offset: int
    ) -> int:
        """The loop of `recover`, flat for speed; return the position behind the last sound batch."""
        limit = len(view)
        position = last_index_entry = 0
        interval, highest = self._index_interval_bytes, self.base_offset + RELATIVE_OFFSET_MAX
        last_indexable = self.size_max
        largest, largest_offset = self._max_timestamp
        append_offset, append_time = self.offset_index.append, self.time_index.maybe_append
        recent: dict[int, deque[int]] = {}
        while position + HEADER_SIZE <= limit:
            header = _unpack_header(view, position)
            end = position + header[1] + LOG_OVERHEAD
            if header[3] != MAGIC or header[1] < LENGTH_MIN or end > limit:
                break
            last_offset = header[0] + header[6]
            if header[0] < expected_offset or not header[0] <= last_offset <= highest:
                break
            if crc32c(view[position + ATTRIBUTES_AT : end]) != header[4]:
                break
            if header[8] > largest:
                largest, largest_offset = header[8], last_offset
            if (
                interval < position - last_index_entry
                and position <= last_indexable
                and not self.indexes_full
            ):
                append_offset(last_offset, position)
                append_time(largest, largest_offset)
                self._indexes_full = None
                last_index_entry = position
            producer_id = header[9]
            if header[2] > epoch or (
                producer_id >= 0 and (header[5] & _TRANSACTION_BITS or producer_id not in recent)
            ):
                try:
                    self._tell(view, (*recent.get(producer_id, ()), position), on_batch)
                except (CorruptRecordError, InvalidRecordError):
                    break
                if producer_id >= 0:
                    recent[producer_id] = deque(maxlen=BATCHES_KEPT)
                epoch = max(epoch, header[2])
            elif producer_id >= 0:
                recent[producer_id].append(position)
            expected_offset = last_offset + 1
            position = end
        for positions in recent.values():
            self._tell(view, positions, on_batch)
        self._max_timestamp = TimestampOffset(largest, largest_offset)
        return position

    @staticmethod
    def _tell(view: memoryview, positions: Iterable[int], on_batch: Callable[[RecordBatch], None]) -> None:
        for position in positions:
            on_batch(RecordBatch(view, position))

    # --- reading ----------------------------------------------------------------------------------------------------

    def headers(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Position and header fields (`batch_format.HEADER`) of each whole batch from position `start` on, in order.

        Raises CorruptRecordError for bytes that are no batch header, UnsupportedForMessageFormatError for formats 0
        and 1.
        """
        limit = self.size_bytes if end is None else min(end, self.size_bytes)
        pread = self.file.pread
        chunk, chunk_start = b"", start
        position = start
        while position + HEADER_SIZE <= limit:
            at = position - chunk_start
            if at + HEADER_SIZE > len(chunk):
                chunk, chunk_start, at = pread(min(_SCAN_CHUNK_SIZE, limit - position), position), position, 0
                if len(chunk) < HEADER_SIZE:
                    return
            header = _unpack_header(chunk, at)
            if header[3] != MAGIC or header[1] < LENGTH_MIN:
                raise self._no_header(position, header)
            size = header[1] + LOG_OVERHEAD
            if position + size > limit:
                return
            yield position, header
            position += size

    def _no_header(
        self, position: int, header: tuple[int, ...]
    ) -> CorruptRecordError | UnsupportedForMessageFormatError:
        where = f"{self.log_path}: position {position}"
        if header[3] in (0, 1):
            return UnsupportedForMessageFormatError(f"{where}: message format {header[3]}, expected {MAGIC}")
        return CorruptRecordError(
            f"{where}: magic {header[3]} and length {header[1]}, expected {MAGIC} and at least {LENGTH_MIN}"
        )

    def translate_offset(self, offset: int) -> BatchPosition | None:
        """The first batch that ends at or behind `offset`; None if all end before it.

        An index entry that does not fit the batch at its position is not believed: the segment is then searched from
        its start.
        """
        entry = self.offset_index.lookup(offset)
        is_proven = entry.position == 0
        try:
            for position, header in self.headers(entry.position):
                last_offset = header[0] + header[6]
                if not is_proven and last_offset > entry.offset:
                    break
                is_proven = True
                if last_offset >= offset:
                    return BatchPosition(header[0], position, header[1] + LOG_OVERHEAD)
        except (CorruptRecordError, UnsupportedForMessageFormatError):
            if is_proven:
                raise
        if is_proven:
            return None
        logger.warning("%s: no batch that ends at offset %d stands at position %d; searching without the index",
                       self._offset_index_path, entry.offset, entry.position)  # fmt: skip
        for position, header in self.headers():
            if header[0] + header[6] >= offset:
                return BatchPosition(header[0], position, header[1] + LOG_OVERHEAD)
        return None

    def read_batch(self, position: int, size: int) -> RecordBatch:
        """The batch at a position that `headers` gave."""
        return RecordBatch(self.file.pread(size, position))

    def slice(self, position: int, size: int) -> FileSlice:
        return FileSlice(self.file, position, size)

    def find_timestamp(self, timestamp_ms: int, start_offset: int) -> TimestampOffset | None:
        """The first record from `start_offset` on that is not older than `timestamp_ms`."""
        indexed = self.time_index.lookup(timestamp_ms)
        start = self.offset_index.lookup(max(indexed.offset, start_offset)).position
        for position, header in self.headers(start):
            if header[8] >= timestamp_ms and header[0] + header[6] >= start_offset:
                for record in self.read_batch(position, header[1] + LOG_OVERHEAD).records():
                    if record.timestamp_ms >= timestamp_ms and record.offset >= start_offset:
                        return TimestampOffset(record.timestamp_ms, record.offset)
        return None

    def find_max_timestamp_record(self) -> TimestampOffset | None:
        """The first record with the segment's largest timestamp; None if no record has one."""
        largest = self.max_timestamp
        if largest.timestamp_ms < 0:
            return None
        for position, header in self.headers(self.offset_index.lookup(largest.offset).position):
            if header[8] == largest.timestamp_ms:
                for record in self.read_batch(position, header[1] + LOG_OVERHEAD).records():
                    if record.timestamp_ms == largest.timestamp_ms:
                        return TimestampOffset(record.timestamp_ms, record.offset)
        return None

    def read_next_offset(self) -> int:
        """The offset behind the last whole batch; the base offset if there is none."""
        next_offset = self.base_offset
        for _, header in self.headers(self.offset_index.last_entry.position):
            next_offset = header[0] + header[6] + 1
        return next_offset

    # --- end --------------------------------------------------------------------------------------------------------

    def change_suffix(self, old: str, new: str) -> None:
        """Rename all files, `old` for `new` at the end; open files and maps stay as they are."""
        with self._index_lock:
            self.txn_index.rename_to(_with_suffix(self.txn_index.path, old, new))
            for index, path in (
                (self._offset_index, self._offset_index_path),
                (self._time_index, self._time_index_path),
            ):
                target = _with_suffix(path, old, new)
                if index is not None:
                    index.rename_to(target)
                elif self._fs.exists(path):
                    self._fs.rename(path, target)
            self._offset_index_path = _with_suffix(self._offset_index_path, old, new)
            self._time_index_path = _with_suffix(self._time_index_path, old, new)
            target = _with_suffix(self.log_path, old, new)
            self._fs.rename(self.log_path, target)
            self.log_path = target

    def remove_files(self) -> None:
        """Remove all files; whoever holds the segment or a slice of it can still read."""
        for path in (*self.index_paths, self.log_path):
            self._fs.remove(path)

    def release_indexes(self) -> None:
        """Unmap the indexes until they are used again: a log of many segments is opened without keeping thousands."""
        with self._index_lock:
            for index in (self._offset_index, self._time_index):
                if index is not None:
                    index.close_handles()
            self._offset_index = self._time_index = None

    def close(self) -> None:
        """Let go of all files and leave them as they are; the `.log` stays open as long as a slice of it lives."""
        self.file = File(self.log_path, -1)
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.close_handles()
        self.txn_index.close()


def _with_suffix(path: Path, old: str, new: str) -> Path:
    return path.with_name(path.name.removesuffix(old) + new)


def _roll_jitter_ms(config: LogConfig) -> int:
    """A random time up to segment.jitter.ms, so that not all segments roll at once."""
    limit = min(config.segment_jitter_ms, config.segment_ms)
    return (random_uuid().int & 0xFFFF_FFFF_FFFF) % limit if limit > 0 else 0
