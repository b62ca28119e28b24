"""`--from` and `--to`: a part of a file, by offsets or by byte positions.

    1000      an offset
    @65536    a position in the file, in bytes

A range begins with the batch that contains the first offset (or begins at or after the first position), and ends before
the batch that begins at or after the end. Batches are printed whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from stratalog.cli.dump.batch_reader import BatchReader
from stratalog.cli.dump.source import DumpSource, read_all
from stratalog.errors import UsageError
from stratalog.log.format import OFFSET_INDEX_SUFFIX, OffsetPosition, decode_entries, detect_from_log

_BOUND: Final = re.compile(r"(@?)(\d{1,19})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Bound:
    """An offset or a position."""

    value: int
    is_position: bool = False

    @staticmethod
    def parse(text: str | None, option: str) -> Bound | None:
        """Parse `<offset>` or `@<position>`. Raises UsageError."""
        if text is None:
            return None
        match = _BOUND.fullmatch(text)
        if match is None:
            raise UsageError(f"{option} {text}: expected an offset, or @ and a position in bytes")
        return Bound(int(match[2]), bool(match[1]))


@dataclass(frozen=True, slots=True)
class DumpRange:
    """From `start` (inclusive) to `end` (exclusive); None: the start or end of the file."""

    start: Bound | None = None
    end: Bound | None = None

    def holds(self, offset: int, position: int | None = None) -> bool:
        """Return whether an index entry is in the range: by offset alone if it has no position (None)."""
        return self._is_from_start(offset, position) and not self._is_behind(offset, position)

    def _is_from_start(self, offset: int, position: int | None) -> bool:
        start = self.start
        if start is None:
            return True
        if not start.is_position:
            return offset >= start.value
        return position is None or position >= start.value

    def _is_behind(self, offset: int, position: int | None) -> bool:
        end = self.end
        if end is None:
            return False
        if not end.is_position:
            return offset >= end.value
        return position is not None and position >= end.value


WHOLE: Final = DumpRange()


def positions(source: DumpSource, stem: str, base_offset: int, wanted: DumpRange) -> tuple[int, int]:
    """Return the positions in a `.log` where the batches of the range begin and end.

    An entry of the offset index is used if its batch is at its position. The search ends at damage: the dump begins
    there and reports it.
    """
    start, end = wanted.start, wanted.end
    if start is None and end is None:
        return 0, source.size
    reader = BatchReader(source)
    entries = list(index_entries(reader, stem, base_offset))
    first = 0 if start is None else _find(reader, entries, start, at_start=True)
    last = source.size if end is None else _find(reader, entries, end, at_start=False)
    return first, max(first, last)


def _find(reader: BatchReader, entries: list[OffsetPosition], bound: Bound, *, at_start: bool) -> int:
    """Return the position of the first batch that a bound includes (`at_start`) or excludes."""
    if bound.is_position and reader.is_sound(bound.value):
        return bound.value  # also after damage, where a search ends
    position = _proven_start(reader, entries, bound)
    while (batch := reader.batch(position, whole=False)) is not None:
        if bound.is_position:
            is_found = position >= bound.value
        else:
            is_found = (batch.last_offset if at_start else batch.base_offset) >= bound.value
        if is_found:
            return position
        position += batch.size
    if at_start and position < reader.source.size:
        return position
    return reader.source.size


def _proven_start(reader: BatchReader, entries: list[OffsetPosition], bound: Bound) -> int:
    """Return the position of the last valid index entry before the bound, or 0."""
    for entry in reversed(entries):
        is_before = entry.position <= bound.value if bound.is_position else entry.offset < bound.value
        if is_before and reader.last_offset_at(entry.position) == entry.offset:
            return entry.position
    return 0


def index_entries(log: BatchReader, stem: str, base_offset: int) -> Iterator[OffsetPosition]:
    """Yield the entries of a `.log`'s offset index, up to its zero tail; none without an index."""
    index = log.source.sibling(stem + OFFSET_INDEX_SUFFIX) if stem else None
    if index is None:
        return
    data = read_all(index)
    index.close()
    form = detect_from_log(data, base_offset, log, log.source.size).format
    for slot, entry in enumerate(decode_entries(data, base_offset, form)):
        if entry.offset == base_offset and slot:
            return
        yield entry
