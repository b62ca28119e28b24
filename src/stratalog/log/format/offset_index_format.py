"""Byte layouts of an offset index entry, and their detection from a file. Big-endian, signed. Pure.

    legacy format, 8 bytes                      large format, 12 bytes (KIP-1333)
    at  size  field                             at  size  field
     0     4  offset - base offset               0     4  offset - base offset
     4     4  position in the .log               4     8  position in the .log

Both fields only grow from entry to entry. A file holds entries of one format and says nowhere which:
`detect_from_entries` judges by size and content as KIP-1333 does, `offset_index_proof.detect_from_log` asks the `.log`,
and is preferred where the log is available. `docs/formats/offset_index.md` has worked examples. Sources: the
storage document ("Offset Index"), KIP-1333.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from typing_extensions import Buffer

from stratalog.log.format.values import OffsetPosition


@dataclass(frozen=True, slots=True)
class OffsetIndexFormat:
    """The layout of an entry: `entry` packs (relative offset, position), `position` the latter alone."""

    name: str
    entry: struct.Struct
    position: struct.Struct
    position_max: int

    def __str__(self) -> str:
        return f"{self.name} ({self.entry_size} bytes an entry)"

    def __reduce__(self) -> tuple[object, ...]:
        return format_of, (self.entry_size,)  # there are two of them, in every process

    @property
    def entry_size(self) -> int:
        return self.entry.size


RELATIVE_OFFSET: Final = struct.Struct(">i")
LEGACY: Final = OffsetIndexFormat("legacy", struct.Struct(">ii"), struct.Struct(">i"), 0x7FFF_FFFF)
LARGE: Final = OffsetIndexFormat("large", struct.Struct(">iq"), struct.Struct(">q"), 0x7FFF_FFFF_FFFF_FFFF)

_BY_ENTRY_SIZE: Final = {LEGACY.entry_size: LEGACY, LARGE.entry_size: LARGE}


def format_of(entry_size: int) -> OffsetIndexFormat:
    """Return the format with entries of 8 or 12 bytes. Raises ValueError for any other size."""
    try:
        return _BY_ENTRY_SIZE[entry_size]
    except KeyError:
        raise ValueError(f"offset index entries have 8 or 12 bytes, not {entry_size}") from None


def decode_entries(data: Buffer, base_offset: int, form: OffsetIndexFormat = LEGACY) -> Iterator[OffsetPosition]:
    """Yield every whole entry in `data`, as absolute offsets; a partial one at the end is left out."""
    view = memoryview(data)
    whole = view.nbytes // form.entry_size * form.entry_size
    for relative, position in form.entry.iter_unpack(view[:whole]):
        yield OffsetPosition(base_offset + relative, position)


def first_fault(data: Buffer, form: OffsetIndexFormat, entries: int) -> int | None:
    """Return the first of `entries` entries that is negative or not larger in both fields than the one before.

    None if none is.

    A position of 0 may stand in the first entry only. Large indexes are checked by numpy, at memory speed.
    """
    if entries > _FAULTS_BY_NUMPY:
        from stratalog.log.format.index_arrays import first_not_ascending, offset_table  # start-up cost: numpy

        table = offset_table(data, form, entries)
        return first_not_ascending(table["offset"], table["position"])
    size = form.entry_size
    before = (-1, -1)
    for slot, entry in enumerate(form.entry.iter_unpack(memoryview(data)[: entries * size])):
        if entry[0] <= before[0] or entry[1] <= before[1]:
            return slot
        before = entry
    return None


class Evidence(enum.Enum):
    """The evidence for a file's format, from certain to none."""

    LOG = "batches stand in the log where its entries point"
    SIZE = "no other entry size divides the file's"
    CONTENT = "read otherwise, its entries would descend"
    FIRST = "its first entry can be that of one format only"
    EMPTY = "it has no entries"
    EXPECTED = "its entries ascend read either way; taken for what was expected"
    NONE = "corrupt"


@dataclass(frozen=True, slots=True)
class Detection:
    """The format of an index file. Of a corrupt one (`NONE`) it is the expected format, in which it is rebuilt."""

    format: OffsetIndexFormat
    evidence: Evidence
    #: What was looked at, for people: one clause, without the file's name.
    reason: str

    @property
    def is_corrupt(self) -> bool:
        return self.evidence is Evidence.NONE

    @property
    def is_guess(self) -> bool:
        """Whether a caller that relies on this evidence must warn."""
        return self.evidence is Evidence.EXPECTED

    def __str__(self) -> str:
        return f"{self.format}: {self.reason}"


def detect_from_entries(data: Buffer, expected: OffsetIndexFormat = LEGACY) -> Detection:
    """Judge an index file by its bytes alone, as KIP-1333 does ("Auto-detection for existing files").

    By size where only one entry size divides it. Else by content: in the right format neither field descends or is
    negative, over the first few entries. A size that neither divides and content that fits neither are corrupt. Zeros
    at the end of the file (of an index that was in use) are no entries.

    Where the document is left with both, it takes `expected`, the format of the level in force (legacy for a caller
    that does not know it). Here the first entry decides: it stands for the second batch at the earliest, so its
    position is above 0, and at most `index.interval.bytes` and one batch from the beginning, both below 2^31, so it is
    below 2^32. Read as large, the first position of a legacy index is its first position times 2^32 at least; read as
    legacy, that of a large one is 0. An index that no broker writes is left to `expected`, and is a guess: one, too,
    that read as legacy begins with offset 0 at position 0 and continues without a fault, and read as large has relative
    offset 0 first.
    """
    view = memoryview(data).cast("B")
    size = len(view)
    if not size:
        return Detection(expected, Evidence.EMPTY, "the file is empty")
    fits = [form for form in FORMATS if size % form.entry_size == 0]
    if not fits:
        return Detection(expected, Evidence.NONE, f"{size} bytes are no multiple of 8 or 12")
    used = used_size(view)
    if not used:
        form = fits[0] if len(fits) == 1 else expected
        return Detection(form, Evidence.EMPTY, f"{size} bytes of zeros")
    if len(fits) == 1:
        return Detection(fits[0], Evidence.SIZE, f"{fits[0].entry_size} alone divides {size} bytes")
    left = [form for form in fits if _ascends(view[:used], form)]
    if not left:
        return Detection(expected, Evidence.NONE, f"{size} bytes that ascend in neither format")
    if len(left) == 1:
        entry_size = left[0].entry_size
        return Detection(left[0], Evidence.CONTENT, f"entries of {entry_size} bytes ascend, others do not")
    for form in left:
        first = form.entry.unpack_from(view)
        begins_the_log = (
            form is LARGE and first[0] == 0 and first_fault(view, LEGACY, used_entries(view, LEGACY)) is None
        )
        if 0 < first[1] <= _FIRST_POSITION_MAX and not begins_the_log:
            reason = f"both ascend, but only with {form.entry_size} bytes an entry can the first position be {first[1]}"
            return Detection(form, Evidence.FIRST, reason)
    return Detection(
        expected, Evidence.EXPECTED, "its entries ascend in both formats; it is taken for the expected one"
    )


def used_size(data: Buffer) -> int:
    """Bytes up to the last one that is not zero: the preallocated tail of an index in use has no entries."""
    view = memoryview(data).cast("B")
    end = len(view)
    while end:
        start = max(0, end - _ZEROS_LOOKED_AT)
        piece = bytes(view[start:end])
        if piece != bytes(len(piece)):  # a tail of 20 MiB is nothing special, and rstrip works byte by byte
            return start + len(piece.rstrip(b"\0"))
        end = start
    return 0


def used_entries(data: Buffer, form: OffsetIndexFormat) -> int:
    """Return how many entries lie before the zero tail."""
    return -(-used_size(data) // form.entry_size)


def _ascends(used: memoryview, form: OffsetIndexFormat) -> bool:
    """Return whether neither field descends or is negative over the first few entries; `used` may end within one."""
    data = bytes(used[: _ENTRIES_LOOKED_AT * form.entry_size])
    data += bytes(-len(data) % form.entry_size)
    before = (0, 0)
    for entry in form.entry.iter_unpack(data):
        if entry[0] < before[0] or entry[1] < before[1]:
            return False
        before = entry
    return True


FORMATS: Final = (LEGACY, LARGE)
_ENTRIES_LOOKED_AT: Final = 24
#: `index.interval.bytes` and the size of a batch are at most 2^31-1 each.
_FIRST_POSITION_MAX: Final = 2 * 0x7FFF_FFFF
#: Below it, to import numpy takes longer than to do without.
_FAULTS_BY_NUMPY: Final = 20_000
_ZEROS_LOOKED_AT: Final = 64 * 1024
