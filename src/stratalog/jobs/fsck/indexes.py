"""Check the offset and time index of a segment against its `.log`. `jobs.index.check` has the checks themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stratalog.inspect import offset_entries, time_entries
from stratalog.jobs.fsck.actions import RebuildIndexes
from stratalog.jobs.fsck.findings import FileFinding, FsckFindings, FsckKind
from stratalog.jobs.fsck.segment import SegmentScan
from stratalog.jobs.index import INDEX_INTERVAL_BYTES, check
from stratalog.log.format import (
    LARGE,
    LEGACY,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    OffsetIndexFormat,
    TimestampOffset,
    detect_in_file,
)
from stratalog.log.index import time_index
from stratalog.log.segment import span_at, spans
from stratalog.util import File, FileSystem

_KINDS: Final = {
    check.FaultKind.MISSING: FsckKind.INDEX_MISSING,
    check.FaultKind.FORMAT: FsckKind.INDEX_DAMAGED,
}


def check_indexes(facts: SegmentScan, fs: FileSystem, *, is_sealed: bool, can_rebuild: bool) -> list[FileFinding]:
    """Return the faults of both indexes. `can_rebuild`: the log is sound, or will be once its tail is cut."""
    log, base_offset = facts.path, facts.base_offset
    index, times = log.with_suffix(OFFSET_INDEX_SUFFIX), log.with_suffix(TIME_INDEX_SUFFIX)
    form = index_format(facts, fs)
    action = RebuildIndexes(log, base_offset, form, INDEX_INTERVAL_BYTES) if can_rebuild else None
    found = check.verify_offset_index(log, index, base_offset, expected=form, fs=fs)
    found += check.verify_time_index(log, times, base_offset, is_sealed=is_sealed, fs=fs)
    findings = FsckFindings(log.parent.name)
    for one in found:
        position = None if one.slot is None else one.slot * _entry_size(one.path, form)
        kind = _KINDS.get(one.kind, FsckKind.INDEX_ENTRY)
        findings.add(kind, one.path, one.message, "entries that agree with the log", position=position, action=action)
    if not findings:
        _add_inexact(facts, index, times, form, fs, findings)
    return findings


def _entry_size(path: Path, form: OffsetIndexFormat) -> int:
    return time_index.ENTRY_SIZE if path.suffix == TIME_INDEX_SUFFIX else form.entry_size


def index_format(facts: SegmentScan, fs: FileSystem) -> OffsetIndexFormat:
    """Return the format of the existing offset index, or the format that the log needs."""
    index = facts.path.with_suffix(OFFSET_INDEX_SUFFIX)
    if fs.exists(index) and fs.size(index):
        detected = detect_in_file(index, facts.base_offset, fs=fs, log_path=facts.path, always_prove=True)
        if not detected.is_corrupt:
            return detected.format
    return LARGE if facts.sound_end > LEGACY.position_max else LEGACY


def _add_inexact(
    facts: SegmentScan, index: Path, times: Path, form: OffsetIndexFormat, fs: FileSystem, findings: FsckFindings
) -> None:
    """Report entries that are correct for readers, but differ from those that current Kafka writes."""

    def add(path: Path, slots: list[int], expected: str) -> None:
        if slots:
            found = f"{len(slots)} entries with another offset; readers do find what they look for"
            position = slots[0] * _entry_size(path, form)
            findings.add(FsckKind.INDEX_INEXACT, path, found, expected, position=position)

    with fs.open(facts.path) as log:
        spans_at = (
            (slot, entry.offset, span_at(log, facts.size, entry.position))
            for slot, entry in enumerate(offset_entries(index, facts.base_offset, form, fs))
        )
        slots = [slot for slot, offset, span in spans_at if span is None or span.last_offset != offset]
    add(index, slots, "the last offset of the batch at the position, as since Kafka 4.1")
    entries = time_entries(times, facts.base_offset, fs)
    if entries:
        with fs.open(facts.path) as log:
            exact = _record_setters(log, facts.size)
        slots = [slot for slot, entry in enumerate(entries) if entry not in exact]
        add(times, slots, "the last offset of the first batch with that timestamp, as since Kafka 3.7")


def _record_setters(log: File, log_size: int) -> set[TimestampOffset]:
    """Return timestamp and last offset of each batch whose timestamp is larger than all before it."""
    largest, exact = -1, set()
    for _, span in spans(log, log_size):
        if span.max_timestamp > largest:
            largest = span.max_timestamp
            exact.add(TimestampOffset(largest, span.last_offset))
    return exact
