"""Segments of one partition directory, as they are while a broker may append, roll and delete."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from stratalog.errors import CorruptRecordError, KafkaError
from stratalog.inspect import Mark, Place, PlaceTier
from stratalog.log import SegmentFiles, list_segments_once, scan_headers, undisturbed
from stratalog.log.format import LARGE, LEGACY
from stratalog.log.index import time_index
from stratalog.records import HEADER_SIZE, RecordBatch
from stratalog.spark.model import Segment
from stratalog.spark.options import OnDataLoss
from stratalog.spark.planning.indexes import offset_entries
from stratalog.util import REAL_FILESYSTEM, File, FileSystem

NO_TIMESTAMP: Final = -1

#: Headers are looked for in steps of this size around an entry of a time index.
_PROOF_WINDOW: Final = 8 * 1024

#: A batch that misses at least this many bytes at its end counts as torn, not as damaged.
_TORN_ZEROS: Final = 16


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """A segment that another follows, as a look found it when its `.log` had `file_size` bytes."""

    file_size: int
    next_base: int
    segment: Segment


class LocalSpan(NamedTuple):
    """Segments, and between which offsets their log has its records: those that are in none were compacted."""

    segments: list[Segment]
    begin: int
    end: int


class SegmentListing:
    """The segments of a partition directory now; a running broker may append, roll and delete at the same time.

    `on_damage` gets bytes that no crash explains and that cannot be read around. `sealed` has the result of an earlier
    look by base offset: those files are not opened again, and it is updated.
    """

    def __init__(
        self,
        directory: Path,
        on_damage: OnDataLoss,
        fs: FileSystem = REAL_FILESYSTEM,
        sealed: dict[int, SealedSegment] | None = None,
    ) -> None:
        self._directory = directory
        self._on_damage = on_damage
        self._fs = fs
        self._sealed = {} if sealed is None else sealed
        self._damages: list[tuple[str, int, int]] = []

    def list(self) -> list[Segment]:
        """All that have records, in order."""
        return self.between(0, None).segments

    def between(self, start: int, end: int | None) -> LocalSpan:
        """Return what there is of the offsets [start, end); `end` None: up to the end of the log."""
        found = undisturbed(self._directory, lambda: self._look(start, end), self._fs)
        for damage in self._damages:
            self._on_damage(*damage)
        return found

    def _look(self, start: int, end: int | None) -> LocalSpan:
        self._damages.clear()
        files = list_segments_once(self._directory, self._fs)
        found, sealed = [], {}
        log_end: int | None = files[0].base_offset if files else None
        followers = [*files[1:], None] if files else []  # a partition that is being made has no log yet
        for each, following in zip(files, followers, strict=True):
            next_base = None if following is None else following.base_offset
            if (next_base is not None and next_base <= start) or (end is not None and each.base_offset >= end):
                log_end = each.base_offset if next_base is None else next_base
                continue
            segment = self._known(each, next_base) or self._segment(each, next_base)
            if next_base is not None:
                sealed[each.base_offset] = SealedSegment(each.size, next_base, segment)
            log_end = segment.end_offset if next_base is None else next_base
            if segment.end_offset > segment.base_offset:
                found.append(segment)
        self._sealed.clear()
        self._sealed.update(sealed)
        begin = files[0].base_offset if files else 0
        return LocalSpan(found, begin, begin if log_end is None else log_end)

    def _known(self, files: SegmentFiles, next_base: int | None) -> Segment | None:
        known = self._sealed.get(files.base_offset)
        is_same = known is not None and (known.file_size, known.next_base) == (files.size, next_base)
        return known.segment if known is not None and is_same else None

    def _segment(self, files: SegmentFiles, next_base: int | None) -> Segment:
        with self._fs.open(files.log) as log:
            size = log.size()
            near_end = self._near_end(files, log)
            tail = read_tail(log, *near_end)
            if tail.mark is None and near_end[0]:  # the one batch from there on is torn
                near_end = 0, files.base_offset
                tail = read_tail(log, *near_end)
            newest = self._newest(files, log, near_end, tail) if near_end[0] else tail.max_timestamp_ms
            if next_base is not None and self._fs.size(files.log) != size:
                newest = None  # another file was put in its place, and the time index may be that one's
        rest = size - tail.end_position
        lost = 0 if next_base is None else max(0, next_base - tail.end_offset)
        if tail.damage is not None:
            self._damages.append((tail.damage, lost, rest))
        elif next_base is not None and rest:
            damage = (
                f"{files.log}: {rest} bytes at position {tail.end_position} are no whole batch, but a segment with "
                f"base offset {next_base} follows; offsets {tail.end_offset} to {next_base - 1}"
            )
            self._damages.append((damage, lost, rest))
        return Segment(
            base_offset=files.base_offset,
            end_offset=tail.end_offset if next_base is None else min(tail.end_offset, next_base),
            size=tail.end_position,
            max_timestamp_ms=newest,
            log=Place(PlaceTier.LOCAL, str(files.log), tail.mark),
            index=_local(files.index),
            time_index=_local(files.timeindex),
            txn_index=None if files.txnindex is None else _local(files.txnindex),
            snapshot=None if files.snapshot is None else _local(files.snapshot),
            is_active=next_base is None,
        )

    def _near_end(self, files: SegmentFiles, log: File) -> tuple[int, int]:
        """Return position and base offset of a batch near the end, found by the offset index and proved by its header.

        Without one, the beginning of the file.
        """
        for form in (LEGACY, LARGE):
            entry = self._last_entry(files.index, form.entry_size)
            if entry is None:
                continue
            relative, position = form.entry.unpack(entry)
            if 0 < position <= files.size - HEADER_SIZE and relative > 0:
                header = log.pread(HEADER_SIZE, position)
                batch = RecordBatch(header) if len(header) == HEADER_SIZE else None
                if batch and batch.magic == 2 and 0 < batch.base_offset - files.base_offset <= relative:
                    return position, batch.base_offset
        return 0, files.base_offset

    def _newest(self, files: SegmentFiles, log: File, near_end: tuple[int, int], tail: Tail) -> int | None:
        """Return the newest timestamp, from the time index if the log proves it, and the tail; None if unknown."""
        entry = self._last_entry(files.timeindex, time_index.ENTRY_SIZE)
        if entry is None:
            return None
        timestamp_ms, relative = time_index.ENTRY.unpack(entry)
        offset = files.base_offset + relative
        position, base_offset = near_end
        if offset < base_offset:  # seldom: the newest record is not near the end
            entries = offset_entries(self._fs.read_bytes(files.index), files.base_offset, files.size)
            position = entries.position_before(offset)
        if not proves_timestamp(log, position, timestamp_ms, offset):
            return None
        return max(int(timestamp_ms), tail.max_timestamp_ms)

    def _last_entry(self, index: Path, entry_size: int) -> bytes | None:
        """Return the last entry of an index file that is not part of a zero tail."""
        try:
            with self._fs.open(index) as file:
                return _last_nonzero(file, file.size() // entry_size, entry_size)
        except FileNotFoundError:
            return None


def _local(path: Path) -> Place:
    return Place(PlaceTier.LOCAL, str(path))


def _last_nonzero(file: File, entries: int, entry_size: int) -> bytes | None:
    """Return the last entry with any bit set, by bisection: a preallocated index is zero after its entries."""
    if entries and any(last := file.pread(entry_size, (entries - 1) * entry_size)):
        return last
    low, high = 0, entries  # the slots before `low` are used, those from `high` on are not
    while low < high:
        middle = (low + high) // 2
        if any(file.pread(entry_size, middle * entry_size)):
            low = middle + 1
        else:
            high = middle
    return file.pread(entry_size, (low - 1) * entry_size) if low else None


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of the whole batches of a `.log`, their newest timestamp, and the `mark` of the last one.

    `damage` describes the bytes there, unless a crash or a write in progress explains them.
    """

    end_position: int
    end_offset: int
    max_timestamp_ms: int
    damage: str | None = None
    mark: Mark | None = None


def read_tail(log: File, start: int, base_offset: int) -> Tail:
    """Walk the headers from `start`, where a batch with `base_offset` begins.

    Torn, and left out: an incomplete batch; zeros (preallocation, or pages that never reached the disk); a last batch
    whose CRC fails because it ends in zeros. Any other batch counts by its header, and is checked when it is read.
    """
    size = log.size()
    end = Tail(start, base_offset, NO_TIMESTAMP)
    before, last, damage = end, None, None
    position_before, at = -1, -1
    try:
        for position, batch in scan_headers(log, start, size):
            before, position_before, at, last = end, at, position, batch.size
            newest = max(end.max_timestamp_ms, batch.max_timestamp)
            end = Tail(position + batch.size, batch.next_offset, newest)
    except CorruptRecordError as error:
        if any(log.pread(HEADER_SIZE, end.end_position)):
            damage = str(error)
    if last is not None and _is_torn(log.pread(last, at)):
        end, at = before, position_before
    mark = None if at < 0 else Mark(at, log.pread(min(HEADER_SIZE, end.end_position - at), at))
    return replace(end, damage=damage, mark=mark)


def _is_torn(batch: bytes) -> bool:
    """Whether the pages at the end of this batch were never written: its CRC fails, and its last bytes are zero."""
    return not any(batch[-_TORN_ZEROS:]) and not RecordBatch(batch).is_crc_valid


def proves_timestamp(log: File, position: int, timestamp_ms: int, offset: int) -> bool:
    """Whether the batch that holds the offset of a time index entry has the entry's timestamp as its newest.

    A batch at or before that one begins at `position`.
    """
    try:
        for _, batch in scan_headers(log, position, window_size=_PROOF_WINDOW):
            if batch.next_offset > offset:
                return batch.base_offset <= offset and batch.max_timestamp == timestamp_ms
    except KafkaError:
        return False
    return False
