"""`--from` and `--to`: a part of a file, by offsets or by byte positions.

    1000      an offset
    @65536    a position in the file, in bytes

From the batch that holds the first offset (or begins at or after the first position) to before the batch that begins
at or after the end. Batches are whole: one that holds the first offset among others is printed with all its records.
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
        """UsageError for anything but `<offset>` and `@<position>`."""
        if text is None:
            return None
        match = _BOUND.fullmatch(text)
        if match is None:
            raise UsageError(f"{option} {text}: expected an offset, or @ and a position in bytes")
        return Bound(int(match[2]), bool(match[1]))


@dataclass(frozen=True, slots=True)
class DumpRange:
    """From `start` (inclusive) to `end` (exclusive); None: where the file begins or ends."""

    start: Bound | None = None
    end: Bound | None = None

    def holds(self, offset: int, position: int | None = None) -> bool:
        """Return whether an index entry is wanted. Entries without a position (None) are judged by offset alone."""
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
    """Return where in a `.log` the wanted batches begin and end.

    An entry of the offset index is believed if its batch is at its position. The search ends at damage: the dump begins
    there, and reports it.
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
    """Position of the first batch that a bound lets in (`at_start`), or shuts out."""
    if bound.is_position and reader.is_sound(bound.value):
        return bound.value  # also after damage, which no search gets past
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
    """Return the position of the last entry before the bound that a batch with its offset stands at, or 0."""
    for entry in reversed(entries):
        is_before = entry.position <= bound.value if bound.is_position else entry.offset < bound.value
        if is_before and reader.last_offset_at(entry.position) == entry.offset:
            return entry.position
    return 0


def index_entries(log: BatchReader, stem: str, base_offset: int) -> Iterator[OffsetPosition]:
    """Yield the entries of the offset index beside a `.log`, up to its zero tail; none if there is no index."""
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
