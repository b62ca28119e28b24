"""`stratalog index inspect`: the format of an index, how it was detected, and its entries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stratalog.cli.out import print_json
from stratalog.inspect import offset_entries, time_entries
from stratalog.jobs.index import SegmentTarget, Target
from stratalog.log.format import LARGE, Evidence, OffsetPosition, TimestampOffset, detect_in_file
from stratalog.log.index import ENTRY_SIZE
from stratalog.util import REAL_FILESYSTEM, print_table


@dataclass(frozen=True, slots=True)
class Inspected:
    """One index file: its format, the evidence for it, and its entries."""

    path: Path
    size: int
    format: str
    entry_size: int
    evidence: str
    reason: str
    is_corrupt: bool
    entries: list[OffsetPosition] | list[TimestampOffset]

    def as_json(self, limit: int) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "size": self.size,
            "format": self.format,
            "entrySize": self.entry_size,
            "evidence": self.evidence,
            "reason": self.reason,
            "corrupt": self.is_corrupt,
            "entries": len(self.entries),
            "shown": [{"slot": slot, **self.entries[slot]._asdict()} for slot in shown_slots(len(self.entries), limit)],
        }


def inspect_target(target: Target, limit: int, *, as_json: bool) -> int:
    """Print every index of the target; return the number of corrupt ones."""
    corrupt = 0
    found = list(_inspected(target))
    for index in found:
        corrupt += index.is_corrupt
        if as_json:
            print_json(index.as_json(limit))
    if as_json:
        return corrupt
    if len(found) == 1:
        _print_entries(found[0], limit)
    else:
        _print_summary(found)
    return corrupt


def _inspected(target: Target) -> Iterator[Inspected]:
    for segment in target.segments:
        if segment.offset_index is not None and segment.offset_index.exists():
            yield _offset_index(segment, segment.offset_index)
        if segment.time_index is not None and segment.time_index.exists():
            yield _time_index(segment, segment.time_index)


def _offset_index(segment: SegmentTarget, path: Path) -> Inspected:
    found = detect_in_file(path, segment.base_offset, fs=REAL_FILESYSTEM, log_path=segment.log, always_prove=True)
    form = found.format
    entries = [] if found.is_corrupt else offset_entries(path, segment.base_offset, form)
    evidence = found.evidence.name.lower()
    name = "none" if found.is_corrupt else form.name
    return Inspected(
        path=path,
        size=path.stat().st_size,
        format=name,
        entry_size=form.entry_size,
        evidence=evidence,
        reason=found.reason,
        is_corrupt=found.is_corrupt,
        entries=entries,
    )


def _time_index(segment: SegmentTarget, path: Path) -> Inspected:
    size = path.stat().st_size
    is_corrupt = size % ENTRY_SIZE != 0
    reason = f"{size} bytes are not a multiple of {ENTRY_SIZE}" if is_corrupt else f"{ENTRY_SIZE} divides {size} bytes"
    evidence = (Evidence.NONE if is_corrupt else Evidence.SIZE).name.lower()
    entries = [] if is_corrupt else time_entries(path, segment.base_offset)
    return Inspected(
        path=path,
        size=size,
        format="time",
        entry_size=LARGE.entry_size,
        evidence=evidence,
        reason=reason,
        is_corrupt=is_corrupt,
        entries=entries,
    )


def shown_slots(entries: int, limit: int) -> list[int]:
    """Return the first and last slots, `limit` in total; all for 0."""
    if not limit or entries <= limit:
        return list(range(entries))
    first = limit - limit // 2
    return [*range(first), *range(entries - limit // 2, entries)]


def _print_entries(index: Inspected, limit: int) -> None:
    kind = "time index" if index.format == "time" else f"offset index, {index.format} format"
    print(f"{index.path}: {kind}, {index.entry_size} bytes an entry: {index.reason}")
    print(f"{len(index.entries)} entries in {index.size} bytes")
    slots = shown_slots(len(index.entries), limit)
    columns = ("slot", *(index.entries[0]._fields if index.entries else ()))
    if slots:
        print_table(columns, [(slot, *index.entries[slot]) for slot in slots])
    if len(slots) < len(index.entries):
        print(f"only the first and last {limit} are shown; --limit 0 shows all")


def _print_summary(found: list[Inspected]) -> None:
    rows = []
    for index in found:
        first, last = (index.entries[0], index.entries[-1]) if index.entries else ("", "")
        ends = [" @ ".join(str(field) for field in entry) for entry in (first, last)]
        rows.append(
            (
                f"{index.path.parent.name}/{index.path.name}",
                index.format,
                len(index.entries),
                *ends,
                index.reason,
            )
        )
    print_table(("index", "format", "entries", "first", "last", "because"), rows)
