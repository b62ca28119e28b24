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
    """How an entry is laid out: `entry` packs (relative offset, position)."""

    entry: struct.Struct
    position_max: int

    @property
    def entry_size(self) -> int:
        return self.entry.size


LEGACY: Final = OffsetIndexFormat(struct.Struct(">ii"), 0x7FFF_FFFF)
LARGE: Final = OffsetIndexFormat(struct.Struct(">iq"), 0x7FFF_FFFF_FFFF_FFFF)

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
