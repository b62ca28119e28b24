"""Byte layouts of an offset index entry. Big-endian, signed.

    legacy format, 8 bytes                      large format, 12 bytes (KIP-1333)
    at  size  field                             at  size  field
     0     4  offset - base offset               0     4  offset - base offset
     4     4  position in the .log               4     8  position in the .log

Both fields only grow from entry to entry. A file holds entries of one format and says nowhere which. `docs/formats/
offset_index.md` has a worked example. Sources: the storage document ("Offset Index"), KIP-1333 ("File format").
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from typing_extensions import Buffer

from stratalog.log.values import OffsetPosition


@dataclass(frozen=True, slots=True)
class OffsetIndexFormat:
    """How an entry is laid out: `entry` packs (relative offset, position), `position` the latter alone."""

    entry: struct.Struct
    position: struct.Struct
    position_max: int

    @property
    def entry_size(self) -> int:
        return self.entry.size


RELATIVE_OFFSET: Final = struct.Struct(">i")
LEGACY: Final = OffsetIndexFormat(struct.Struct(">ii"), struct.Struct(">i"), 0x7FFF_FFFF)
LARGE: Final = OffsetIndexFormat(struct.Struct(">iq"), struct.Struct(">q"), 0x7FFF_FFFF_FFFF_FFFF)

_BY_ENTRY_SIZE: Final = {LEGACY.entry_size: LEGACY, LARGE.entry_size: LARGE}


def format_of(entry_size: int) -> OffsetIndexFormat:
    """The format with entries of 8 or 12 bytes; ValueError for any other size."""
    try:
        return _BY_ENTRY_SIZE[entry_size]
    except KeyError:
        raise ValueError(f"offset index entries have 8 or 12 bytes, not {entry_size}") from None


def decode_entries(
    data: Buffer, base_offset: int, form: OffsetIndexFormat = LEGACY
) -> Iterator[OffsetPosition]:
    """Every whole entry in `data`, as absolute offsets; a partial one at the end is left out."""
    view = memoryview(data)
    whole = view.nbytes // form.entry_size * form.entry_size
    for relative, position in form.entry.iter_unpack(view[:whole]):
        yield OffsetPosition(base_offset + relative, position)


def detect_format(data: Buffer, base_offset: int, fallback: OffsetIndexFormat = LEGACY) -> OffsetIndexFormat:
    """The format of an index file by its content, as KIP-1333 tells them apart.

    By size where only one fits; else by the first entries, which must not descend; `fallback` where both or neither do.
    Only a hint: whoever has the `.log` at hand proves it there.
    """
    size = memoryview(data).nbytes
    fits = [form for form in (LEGACY, LARGE) if size % form.entry_size == 0]
    if len(fits) == 2:
        fits = [form for form in fits if _looks_right(data, base_offset, form)]
    return fits[0] if len(fits) == 1 else fallback


def _looks_right(data: Buffer, base_offset: int, form: OffsetIndexFormat) -> bool:
    before = OffsetPosition(base_offset, 0)
    for entry in decode_entries(memoryview(data)[: _ENTRIES_LOOKED_AT * form.entry_size], base_offset, form):
        if entry.offset < before.offset or entry.position < before.position:
            return False
        before = entry
    return True


_ENTRIES_LOOKED_AT: Final = 24
