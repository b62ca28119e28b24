"""Compare offset and time indexes with their log, entry by entry. Without a terminal.

    findings = verify_offset_index(log_path, index_path, base_offset)       # []: every entry is right
    findings += verify_time_index(log_path, time_index_path, base_offset, is_sealed=True)

Verifying changes nothing and needs no lock. If the segment is being written, entries made during the check may be
missed. Only batch headers are read, so records are not checked. `rebuild` rebuilds indexes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from stratalog.inspect import offset_entries, time_entries
from stratalog.jobs.index.spans_over_damage import spans_over_damage
from stratalog.log.format import (
    LEGACY,
    OffsetIndexFormat,
    OffsetPosition,
    TimestampOffset,
    detect_in_file,
    is_true_entry,
)
from stratalog.log.index import time_index
from stratalog.log.segment import BatchSpan, span_at
from stratalog.util import REAL_FILESYSTEM, File, FileSystem

#: The maximum number of reported faults: a file of another kind has as many faults as entries.
FAULTS_MAX: Final = 100


Entry = TypeVar("Entry", OffsetPosition, TimestampOffset)


class FaultKind(enum.Enum):
    MISSING = "missing"
    FORMAT = "format"
    ORDER = "order"
    NO_BATCH = "no batch"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True)
class IndexFault:
    """One fault: the file, the entry (None for the whole file), and what was found and expected."""

    path: Path
    kind: FaultKind
    slot: int | None
    message: str

    def __str__(self) -> str:
        where = "" if self.slot is None else f" entry {self.slot}:"
        return f"{self.path}:{where} {self.message}"


def verify_offset_index(
    log_path: Path,
    index_path: Path,
    base_offset: int,
    *,
    expected: OffsetIndexFormat = LEGACY,
    fs: FileSystem = REAL_FILESYSTEM,
) -> list[IndexFault]:
    """Return the faults of an offset index of either format. An entry is right if its batch begins at its position.

    `expected` is the format of the finalized metadata.version, which matters only for a file without entries. Zeros
    after the entries (of an index in use, or left by a crash) are not a fault. Raises OSError if a file cannot be read.
    """
    findings = _Faults(index_path)
    if not fs.exists(index_path):
        return findings.whole(FaultKind.MISSING, "there is no such index; it can be rebuilt from the log")
    found = detect_in_file(index_path, base_offset, fs=fs, log_path=log_path, expected=expected, always_prove=True)
    if found.is_corrupt:
        return findings.whole(FaultKind.FORMAT, f"not an offset index of this log: {found.reason}")
    entries = offset_entries(index_path, base_offset, found.format, fs)
    with fs.open(log_path) as log:
        log_size = log.size()
        for slot, entry in enumerate(entries):
            if findings.is_full:
                return findings.all
            if not is_true_entry(*entry, base_offset, log, log_size):
                findings.add(*_offset_fault(log, log_size, slot, entry))
    return findings.with_order(
        entries, lambda last, entry: last.offset < entry.offset and last.position < entry.position
    )


def _offset_fault(log: File, log_size: int, slot: int, entry: OffsetPosition) -> tuple[FaultKind, int, str]:
    batch = span_at(log, log_size, entry.position)
    if batch is None:
        what = f"offset {entry.offset}: no batch begins at position {entry.position} of {log_size} bytes of log"
        return FaultKind.NO_BATCH, slot, what
    what = (
        f"offset {entry.offset} at position {entry.position}, where the batch with offsets {batch.base_offset} to"
        f" {batch.last_offset} begins"
    )
    return FaultKind.OFFSET, slot, what


def verify_time_index(
    log_path: Path,
    index_path: Path,
    base_offset: int,
    *,
    is_sealed: bool = False,
    fs: FileSystem = REAL_FILESYSTEM,
) -> list[IndexFault]:
    """Return the faults of a time index. An entry is right if its batch has its timestamp, and none before it a larger.

    The last entry of a sealed segment must hold the largest timestamp, by which the segment is retained. Reads the
    headers of the whole log. Zeros after the entries are not a fault. Raises OSError if a file cannot be read.
    """
    findings = _Faults(index_path)
    if not fs.exists(index_path):
        return findings.whole(FaultKind.MISSING, "there is no such index; it can be rebuilt from the log")
    size = fs.size(index_path)
    if size % time_index.ENTRY_SIZE:
        what = f"not a time index: {size} bytes are not a multiple of {time_index.ENTRY_SIZE}"
        return findings.whole(FaultKind.FORMAT, what)
    entries = time_entries(index_path, base_offset, fs)
    with fs.open(log_path) as log:
        walk = _TimeWalk(spans_over_damage(log, base_offset))
        # By offset, so that one wrong entry does not lead the walk past the batches of later entries.
        for slot, entry in sorted(enumerate(entries), key=lambda pair: pair[1].offset):
            if findings.is_full:
                return findings.all
            fault = walk.fault(entry)
            if fault is not None:
                findings.add(fault[0], slot, fault[1])
        if is_sealed and not findings.all:
            last_ms, largest = entries[-1].timestamp_ms if entries else -1, walk.largest_of_all()
            if largest.timestamp_ms > last_ms:
                what = (
                    f"the last timestamp is {last_ms}, but the segment's largest is {largest.timestamp_ms}, at offset"
                    f" {largest.offset}"
                )
                findings.whole(FaultKind.INCOMPLETE, what)
    return findings.with_order(
        entries, lambda last, entry: last.timestamp_ms < entry.timestamp_ms and last.offset <= entry.offset
    )


class _TimeWalk:
    """A walk over batches with the largest timestamp so far. Entries come in order too, so each batch is read once."""

    def __init__(self, batches: Iterator[tuple[int, BatchSpan, bool]]) -> None:
        self._batches = batches
        self._batch = BatchSpan(-1, -1, 0, -1)
        self._largest = TimestampOffset(-1, -1)

    def fault(self, entry: TimestampOffset) -> tuple[FaultKind, str] | None:
        """Return the fault of the next entry, or None."""
        while self._batch.last_offset < entry.offset:
            if not self._step():
                what = f"timestamp {entry.timestamp_ms}: the log ends before offset {entry.offset}"
                return FaultKind.NO_BATCH, what
        batch, largest = self._batch, self._largest
        if batch.max_timestamp != entry.timestamp_ms:
            what = (
                f"timestamp {entry.timestamp_ms} for offset {entry.offset}, where the batch with offsets"
                f" {batch.base_offset} to {batch.last_offset} has {batch.max_timestamp}"
            )
            return FaultKind.TIMESTAMP, what
        if largest.timestamp_ms > entry.timestamp_ms:
            what = (
                f"timestamp {entry.timestamp_ms} for offset {entry.offset}, but offset {largest.offset} before it has"
                f" {largest.timestamp_ms}"
            )
            return FaultKind.TIMESTAMP, what
        return None

    def largest_of_all(self) -> TimestampOffset:
        while self._step():
            pass
        return self._largest

    def _step(self) -> bool:
        following = next(self._batches, None)
        if following is None:
            return False
        self._batch = following[1]
        if self._batch.max_timestamp > self._largest.timestamp_ms:
            self._largest = TimestampOffset(self._batch.max_timestamp, self._batch.last_offset)
        return True


class _Faults:
    def __init__(self, path: Path) -> None:
        self.all: list[IndexFault] = []
        self._path = path

    @property
    def is_full(self) -> bool:
        return len(self.all) > FAULTS_MAX

    def add(self, kind: FaultKind, slot: int | None, message: str) -> None:
        if len(self.all) == FAULTS_MAX:
            slot, message = None, f"more than {FAULTS_MAX} faults; the rest was not checked"
        self.all.append(IndexFault(self._path, kind, slot, message))

    def whole(self, kind: FaultKind, message: str) -> list[IndexFault]:
        self.add(kind, None, message)
        return self.all

    def with_order(self, entries: Sequence[Entry], ascends: Callable[[Entry, Entry], bool]) -> list[IndexFault]:
        """Return all faults by slot. Add one for each right entry that does not ascend from the right one before it."""
        wrong = {finding.slot for finding in self.all}
        before: Entry | None = None
        for slot, entry in enumerate(entries):
            if slot in wrong:
                continue
            if before is not None and not ascends(before, entry) and not self.is_full:
                self.add(FaultKind.ORDER, slot, f"{entry} is not larger than the entry before, {before}")
            before = entry
        return sorted(self.all, key=lambda finding: (finding.slot is None, finding.slot or 0))
