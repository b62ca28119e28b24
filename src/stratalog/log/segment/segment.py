"""One segment: a `.log` and its three indexes.

The `.log` is a sequence of record batches. A batch gets an index entry when more than `index.interval.bytes` were
appended since the batch of the last entry. The time index then also gets the largest timestamp so far, and once more
when the segment stops being active. Source: Kafka's `LogSegment`; every file has the same bytes.

Thread safety: one writer at a time (the log's lock); any thread may call `read`, `translate_offset` and the searches.
`size_bytes` grows only after the bytes are written, so readers never see a partial batch. The `.log` may be parked at
any time and is opened again at its next use (`open_segments`). The file of a deleted segment stays open while a reader
holds the segment or a slice of it; its indexes may be gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import Buffer

from stratalog.config import LogConfig
from stratalog.log.append import RELATIVE_OFFSET_MAX
from stratalog.log.format import (
    DELETED_SUFFIX,
    LARGE,
    LEGACY,
    TimestampOffset,
    log_file,
    offset_index_file,
    time_index_file,
    txn_index_file,
)
from stratalog.log.index import AbortedTransaction, OffsetIndex, TimeIndex, TransactionIndex
from stratalog.log.recovery import SoundBatches, index_sound_batches
from stratalog.log.segment.checked_ranges import SoundBytes
from stratalog.log.segment.log_bytes import LogBytes
from stratalog.log.segment.open_segments import OPEN_SEGMENTS
from stratalog.log.segment.segment_indexes import SegmentIndexes, with_suffix
from stratalog.log.segment.segment_times import TimedSegment
from stratalog.records import NO_TIMESTAMP, RecordBatch
from stratalog.util import Clock, File, FileSystem, random_uuid

if TYPE_CHECKING:
    from stratalog.log.append import BatchFacts


class LogSegment(TimedSegment):
    """A segment of a log. `base_offset` is a lower bound of all its offsets."""

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
        """Open or create the files of a segment. Indexes are opened, or created, at their first use.

        `preallocate` gives a new `.log` its full size at once, with `size_bytes` still 0.
        """
        self.base_offset = base_offset
        #: Index entries hold offsets relative to the base offset in 32 bits, whatever the segment's size.
        self.last_offset_max = base_offset + RELATIVE_OFFSET_MAX
        self.log_path = directory / (log_file(base_offset) + suffix)
        self.roll_jitter_ms = _roll_jitter_ms(config)
        self._fs = fs
        self._clock = clock
        self.index_interval_bytes = config.index_interval_bytes
        self._indexes = SegmentIndexes(
            directory,
            base_offset,
            suffix=suffix,
            size_max=config.segment_index_bytes,
            fs=fs,
            new_format=LARGE if config.use_large_index_format else LEGACY,
        )
        is_new = not fs.exists(self.log_path)
        super().__init__(is_new=is_new)
        #: Read and reset by `open_segments`.
        self.is_used = False
        #: Held while the `.log` is opened, parked, renamed or closed.
        self._file_lock = threading.Lock()
        #: None: parked.
        self._file: File | None = OPEN_SEGMENTS.open(lambda: fs.open(self.log_path, create=True))
        self._may_be_parked = True
        OPEN_SEGMENTS.admit(self)
        self.size_bytes = 0 if is_new else self.file.size()
        #: Which bytes may be served without another check.
        self.sound = SoundBytes(self.log_path, base_offset, self.size_bytes)
        self._is_preallocated = is_new and preallocate
        if self._is_preallocated:
            self.file.truncate(config.segment_bytes)
        #: False: the files hold the remains of a failed append.
        self.is_tail_certain = True
        self.created_ms = clock.now_ms()
        self._bytes_since_index_entry = 0

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
        """Create an empty segment with both indexes at full size.

        Removes files that a crash left under its name first.
        """
        names = (log_file, offset_index_file, time_index_file, txn_index_file)
        for name in names:
            fs.remove(directory / (name(base_offset) + suffix))
        return cls(directory, base_offset, config, clock=clock, fs=fs, suffix=suffix, preallocate=config.preallocate)

    def __repr__(self) -> str:
        return f"LogSegment({self.log_path.name}, {self.size_bytes} bytes)"

    # --- the `.log` -------------------------------------------------------------------------------------------------

    @property
    def file(self) -> File:
        """The open `.log`. Hold it as long as it has to stay open. Raises OSError if it cannot be opened again."""
        self.is_used = True
        file = self._file
        return file if file is not None else self._open_again()

    def _open_again(self) -> File:
        def opening() -> File:
            with self._file_lock:
                if self._file is None:
                    self._file = self._fs.open(self.log_path, write=True)
                return self._file

        file = OPEN_SEGMENTS.open(opening)
        OPEN_SEGMENTS.admit(self)
        return file

    def park(self) -> None:
        """Close the `.log` until its next use."""
        with self._file_lock:
            if self._may_be_parked:
                self._file = None

    def keep_open(self) -> None:
        """Keep the `.log` open from now on, because its name will go. Raises OSError if it cannot be opened again."""
        while True:
            file = self.file
            with self._file_lock:
                if self._file is file:  # else it was parked in between
                    self._may_be_parked = False
                    break
        OPEN_SEGMENTS.forget(self)

    # --- indexes ----------------------------------------------------------------------------------------------------

    @property
    def offset_index(self) -> OffsetIndex:
        return self._indexes.offset

    @property
    def time_index(self) -> TimeIndex:
        return self._indexes.time

    @property
    def txn_index(self) -> TransactionIndex:
        return self._indexes.txn

    @property
    def offset_index_path(self) -> Path:
        return self._indexes.offset_path

    @property
    def time_index_path(self) -> Path:
        return self._indexes.time_path

    @property
    def index_paths(self) -> tuple[Path, Path, Path]:
        """Offset index, time index, transaction index (which may not exist)."""
        return self._indexes.paths

    @property
    def indexes_full(self) -> bool:
        return self._indexes.is_full

    @property
    def size_max(self) -> int:
        """The largest size for which the offset index can hold positions."""
        return self.offset_index.format.position_max

    def resize_indexes(self, size: int) -> None:
        """Make room for more entries, for the active segment."""
        self._indexes.resize(size)

    def release_indexes(self) -> None:
        """Close the indexes until their next use, as when opening a log of thousands of segments."""
        self._indexes.release()

    # --- writing ----------------------------------------------------------------------------------------------------

    def append(
        self,
        parts: Sequence[Buffer],
        size: int,
        batches: Sequence[BatchFacts],
        aborted: Sequence[AbortedTransaction] = (),
    ) -> None:
        """Write whole batches, `size` bytes in all, at the end.

        `batches` describes them in order, and `aborted` the transactions that their markers abort. Offsets below the
        base offset or too far above it raise ValueError before anything is written. An OSError leaves the segment
        unchanged. If undoing the write fails too, `is_tail_certain` is False: the files may hold unacknowledged
        records, and nothing more may be appended.
        """
        position, file = self.size_bytes, self.file
        if not self.base_offset <= batches[0].base_offset <= batches[-1].last_offset <= self.last_offset_max:
            raise ValueError(
                f"{self.log_path}: offsets {batches[0].base_offset} to {batches[-1].last_offset} do not lie between"
                f" {self.base_offset} and {self.last_offset_max}"
            )
        try:
            if len(parts) == 1:
                file.write_at(parts[0], position)
            else:
                file.writev_at(parts, position)
        except OSError:
            self._cut_back(position)
            raise
        try:
            for transaction in aborted:
                self.txn_index.append(transaction)
            self._index(position, batches)
        except OSError:
            self._cut_back(position)
            self._cut_back_indexes(batches[0].base_offset)
            raise
        if position == 0:
            self._first_batch_timestamp = batches[0].max_timestamp
        self.size_bytes = position + size

    def _index(self, position: int, batches: Sequence[BatchFacts]) -> None:
        """Add index entries for batches written at `position`."""
        largest_before = self.max_timestamp
        largest, largest_offset = largest_before
        since = self._bytes_since_index_entry
        interval = self.index_interval_bytes
        for batch in batches:
            if batch.max_timestamp > largest:
                largest, largest_offset = batch.max_timestamp, batch.last_offset
            if since > interval and not self._indexes.is_full:
                self._indexes.append(batch.last_offset, position, largest, largest_offset)
                since = 0
            position += batch.size
            since += batch.size
        self._bytes_since_index_entry = since
        if largest > largest_before.timestamp_ms:
            self.raise_max_timestamp(TimestampOffset(largest, largest_offset))

    def _cut_back(self, size: int) -> None:
        """Undo a failed write.

        A preallocated file also loses its preallocated space: recovery would find the batch there.
        """
        self._is_preallocated = False
        try:
            self.file.truncate(size)
        except OSError:
            self.is_tail_certain = False  # the first error says more

    def _cut_back_indexes(self, offset: int) -> None:
        """Remove the index entries of a failed write of batches from `offset` on."""
        try:
            self._indexes.truncate_to(offset)
        except OSError:
            self.is_tail_certain = False

    def become_inactive(self, *, is_flushed: bool = False) -> None:
        """Seal the full segment: add the last time index entry and trim all files.

        `is_flushed`: all records are durable, and no flush follows. The trim of the `.log` is then synced too: zeros
        that reappear at its end would look like damage to flushed records.
        """
        self._indexes.seal(self.max_timestamp)
        if self._is_preallocated:
            self.file.truncate(self.size_bytes)
            self._is_preallocated = False
            if is_flushed:
                self.file.sync()

    def write_out(self) -> None:
        """Write buffered index entries. An OSError changes nothing; the call may be repeated."""
        self._indexes.write_out()

    def flush(self) -> None:
        """Make everything appended so far durable."""
        self.file.sync()
        self._indexes.flush()

    def truncate_to(self, offset: int) -> int:
        """Drop every batch that ends at or after `offset`. Return the number of bytes removed.

        A batch that contains `offset` is dropped whole.
        """
        found = self.translate_offset(offset)
        self._indexes.truncate_to(offset)
        self._indexes.resize(self._indexes.size_max)
        removed = 0
        if found is not None:
            removed = self.size_bytes - found.position
            self.size_bytes = found.position
            self.sound.cut(found.position)
            self.file.truncate(found.position)
            self.file.sync()  # a power failure may otherwise restore it in place of what is appended next
            self._is_preallocated = False
        if self.size_bytes == 0:
            self.created_ms = self._clock.now_ms()
            self._first_batch_timestamp = None
        self._bytes_since_index_entry = 0
        self._max_timestamp, self._is_max_timestamp_proven = self._read_max_timestamp()
        return removed

    def recover(
        self,
        on_batch: Callable[[RecordBatch], None],
        *,
        epoch: int | None,
        flushed_to: int,
        end_offset: int,
        may_overflow: bool = False,
        cut_torn_write: bool = False,
        synced_to: int | None = None,
        before_cut: Callable[[LogBytes, SoundBatches], object],
    ) -> SoundBatches:
        """Check every batch and rebuild the indexes. Return the result.

        A batch is sound if its header, size and CRC are right, and its offsets are above those of the previous batch,
        at least the base offset, and below `end_offset`. From the offset `flushed_to` on, the file is cut before the
        first unsound batch. Before that, damage is skipped and kept; with `cut_torn_write`, a partial batch or zeros at
        the end of the file are cut all the same. Damage that no sound batch follows is cut from `synced_to` on
        (default: `flushed_to`). `before_cut` sees the file while it is whole.

        `on_batch` is called for the first batch of each leader epoch after `epoch`, and for batches that determine
        producer state: outside of transactions, the last few of each producer. Its view is valid during the call only.
        A batch for which it raises CorruptRecordError or InvalidRecordError is unsound.

        With `may_overflow`, raises OverflowedSegmentError for sound batches too far from the base offset for the
        indexes; otherwise these are unsound.
        """
        self._indexes.reset()
        file_size = self.file.size()
        self.size_bytes = file_size
        sound = SoundBatches(0, TimestampOffset(NO_TIMESTAMP, self.base_offset), self.base_offset, (), None)
        if file_size:
            log = LogBytes(self.file, file_size)
            sound = index_sound_batches(
                log,
                self._indexes,
                on_batch,
                epoch=-1 if epoch is None else epoch,
                flushed_to=flushed_to,
                end_offset=end_offset,
                index_interval_bytes=self.index_interval_bytes,
                may_overflow=may_overflow,
                cut_torn_write=cut_torn_write,
                synced_to=synced_to,
            )
            if sound.size_bytes < file_size:
                before_cut(log, sound)
        self.size_bytes, self._max_timestamp = sound.size_bytes, sound.max_timestamp
        if self.size_bytes < file_size:
            self.file.truncate(self.size_bytes)
            # A clean stop must find nothing to flush: after it, a restored tail would not be cut again.
            self.file.sync()
        if sound.damage:
            self.sound.distrust(self.size_bytes)
        else:
            self.sound.trust()
        self._bytes_since_index_entry = 0
        self._first_batch_timestamp = None
        self._is_max_timestamp_proven = True
        self._indexes.seal(self.max_timestamp)
        return sound

    # --- end --------------------------------------------------------------------------------------------------------

    def change_suffix(self, old: str, new: str) -> None:
        """Replace the suffix `old` of all files by `new`. A segment that is to be deleted stays open.

        Renames the `.log` first: recovery treats the other files with its suffix as its own.
        """
        if new == DELETED_SUFFIX:
            self.keep_open()
        target = with_suffix(self.log_path, old, new)
        with self._file_lock:
            self._fs.rename(self.log_path, target)
            self.log_path = self.sound.path = target
        self._indexes.change_suffix(old, new)

    def remove_files(self) -> None:
        """Remove all files. Holders of the segment or a slice of it can still read its `.log`."""
        self.keep_open()
        for path in (*self.index_paths, self.log_path):
            self._fs.remove(path)

    def close(self) -> None:
        """Close all files. The `.log` stays open as long as a slice of it lives."""
        with self._file_lock:
            self._file = File(self.log_path, -1)
            self._may_be_parked = False
        OPEN_SEGMENTS.forget(self)
        self._indexes.close()


def _roll_jitter_ms(config: LogConfig) -> int:
    """Return a random time up to segment.jitter.ms, so that not all segments roll at once."""
    limit = min(config.segment_jitter_ms, config.segment_ms)
    return (random_uuid().int & 0xFFFF_FFFF_FFFF) % limit if limit > 0 else 0
