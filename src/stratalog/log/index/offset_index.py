"""`.index`: from an offset to a position in the `.log` from which that offset is found by reading on.

Invariant: offsets and positions strictly ascend. There is an entry for some batches only (one every
`index.interval.bytes`), so a lookup gives the nearest entry at or before the target. Kafka's `OffsetIndex`.
"""

from __future__ import annotations

from collections.abc import Iterator

from typing_extensions import Buffer

from stratalog.log.format import (
    LEGACY,
    RELATIVE_OFFSET,
    OffsetIndexFormat,
    OffsetPosition,
    decode_entries,
    first_fault,
    format_of,
)
from stratalog.log.index.index_file import RELATIVE_OFFSET_MAX, IndexFile
from stratalog.log.index.index_search import Array, count_up_to, look_up_many
from stratalog.util import REAL_FILESYSTEM, FileSystem, StrPath


class OffsetIndex(IndexFile[OffsetPosition]):
    """See the module, and `IndexFile` for life cycle and threads."""

    def __init__(
        self,
        path: StrPath,
        base_offset: int,
        *,
        max_size: int,
        fs: FileSystem = REAL_FILESYSTEM,
        writable: bool = True,
        entry_size: int = LEGACY.entry_size,
    ) -> None:
        self._take_format(format_of(entry_size))
        super().__init__(path, base_offset, entry_size=entry_size, max_size=max_size, fs=fs, writable=writable)

    @property
    def last_offset(self) -> int:
        """Offset of the last entry; the base offset for an empty index."""
        return self.last_entry.offset

    def append(self, offset: int, position: int) -> None:
        """Add an entry.

        The caller has made sure that the index is not full, that both are larger than those of the last entry, and that
        they fit (`can_append_offset`, `format.position_max`); otherwise ValueError. OSError on a full disk; nothing is
        added then.
        """
        entries, relative = self.entries, offset - self.base_offset
        if entries >= self.max_entries:
            raise ValueError(f"{self.path}: the index is full with {entries} entries")
        if entries and offset <= (self._last or self.last_entry).offset:
            raise ValueError(f"{self.path}: offset {offset} is not larger than the last, {self.last_offset}")
        if not (0 <= relative <= RELATIVE_OFFSET_MAX and 0 <= position <= self.format.position_max):
            raise ValueError(f"{self.path}: {self._misfit(offset, position)}")
        self._add(self._pack(relative, position))
        self._last = OffsetPosition(offset, position)

    def _misfit(self, offset: int, position: int) -> str:
        if position > self.format.position_max and self.format is LEGACY:
            return (
                f"position {position} is larger than {LEGACY.position_max}, the largest of an index with entries of"
                f" {LEGACY.entry_size} bytes. Finalize MetadataVersion to IBP_4_4_IV1 to enable large index format"
            )
        return (
            f"offset {offset} at position {position} does not fit an entry of {self.entry_size} bytes with base"
            f" offset {self.base_offset}"
        )

    def __iter__(self) -> Iterator[OffsetPosition]:
        return decode_entries(self._copy(), self.base_offset, self.format)

    def lookup(self, target: int) -> OffsetPosition:
        """Return the entry with the largest offset <= `target`; (base offset, 0) if there is none."""
        entries, base_offset = self.entries, self.base_offset
        if not entries:
            return OffsetPosition(base_offset, 0)
        last = self._last or self.last_entry
        if target >= last.offset:
            return last
        data, entry_size = self._all(), self.entry_size
        slot = self._count(data, RELATIVE_OFFSET, target - base_offset) - 1
        if slot < 0:
            return OffsetPosition(base_offset, 0)
        relative, position = self._unpack(data, slot * entry_size)
        return OffsetPosition(base_offset + relative, position)

    def fetch_upper_bound(self, start: OffsetPosition, size: int) -> OffsetPosition | None:
        """Return the first entry at or behind `size` bytes after `start`: every offset within those bytes is smaller.

        None if the index ends before that.
        """
        data, stride = self._all(), self.entry_size
        entries, before = len(data) // stride, start.position + size - 1
        slot = count_up_to(data, self.format.position, RELATIVE_OFFSET.size, stride, entries, before)
        return self._decoded(data[slot * stride : (slot + 1) * stride]) if slot < entries else None

    def arrays(self) -> tuple[Array, Array]:
        """Return offsets and positions of all entries, both of int64."""
        import numpy as np  # start-up cost

        from stratalog.log.format import offset_table

        data = self._copy()
        table = offset_table(data, self.format, len(data) // self.entry_size)
        return table["offset"].astype(np.int64) + self.base_offset, table["position"].astype(np.int64)

    def lookup_many(self, targets: Array) -> tuple[Array, Array]:
        """`lookup` for an array of targets.

        Arrays of offsets and positions, both of int64, in the order of the targets.

        They are searched for together. Any thread, like `lookup`.
        """
        import numpy as np  # start-up cost

        relative = np.asarray(targets, dtype=np.int64) - self.base_offset
        found, positions = look_up_many(self._copy(), self.entry_size, RELATIVE_OFFSET.size, relative)
        return np.maximum(found, 0) + self.base_offset, np.maximum(positions, 0)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries with offsets >= `offset`."""
        before = offset - 1 - self.base_offset
        self._truncate_to_entries(count_up_to(self._all(), RELATIVE_OFFSET, 0, self.entry_size, self.entries, before))

    def _ascends(self, first: OffsetPosition, last: OffsetPosition) -> bool:
        return first.offset < last.offset and first.position < last.position

    def _first_fault(self) -> int | None:
        return first_fault(self._copy(), self.format, self.entries)

    def reset(self, entry_format: OffsetIndexFormat | None = None) -> None:
        """Drop all entries, to fill the file again at its maximum size, in another format if one is given."""
        self.truncate()
        if entry_format is not None:
            self._take_format(entry_format)
        super().reset()

    def _take_format(self, entry_format: OffsetIndexFormat) -> None:
        self.format = entry_format
        self.entry_size = entry_format.entry_size
        self._unpack = entry_format.entry.unpack_from
        self._pack = entry_format.entry.pack

    def _decoded(self, entry: Buffer) -> OffsetPosition:
        relative, position = self._unpack(entry)
        return OffsetPosition(self.base_offset + relative, position)

    @property
    def _none(self) -> OffsetPosition:
        return OffsetPosition(self.base_offset, 0)
