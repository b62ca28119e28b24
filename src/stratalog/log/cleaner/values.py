"""The input and the outcome of a cleaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from stratalog.errors import StratalogError


class CleaningAborted(StratalogError):
    """The cleaning was aborted or must start again. New segments that were not yet swapped in are removed."""


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """The share of one cleaner thread. Sizes are bytes."""

    #: Memory of the offset map; 24 bytes an entry.
    dedupe_buffer_bytes: int = 128 * 1024 * 1024
    #: The map is full when this share of its entries is in use.
    load_factor: float = 0.9
    #: Size of each of the two I/O buffers. They grow for a larger batch, until the end of its segment.
    io_buffer_bytes: int = 256 * 1024

    @classmethod
    def of_thread(
        cls, threads: int, *, dedupe_buffer_bytes: int, load_factor: float, io_buffer_bytes: int
    ) -> CleanerSettings:
        """Return the share of each of `threads` of the broker's `log.cleaner.*` settings, as Kafka divides them."""
        return cls(
            dedupe_buffer_bytes=min(dedupe_buffer_bytes // threads, 2**31 - 1),
            load_factor=load_factor,
            io_buffer_bytes=io_buffer_bytes // threads // 2,
        )


@dataclass(slots=True)
class CleanerStats:
    """Statistics of one cleaning. Sizes are bytes, times milliseconds of the wall clock."""

    start_ms: int
    map_complete_ms: int = -1
    end_ms: int = -1
    #: Read to fill the map.
    map_bytes_read: int = 0
    map_messages_read: int = 0
    #: Read and written while segments were rewritten.
    bytes_read: int = 0
    bytes_written: int = 0
    messages_read: int = 0
    messages_written: int = 0
    #: Records without a key, which are invalid in a compacted log and are dropped.
    invalid_messages_read: int = 0
    #: The share of the map's entries in use at the end.
    buffer_utilization: float = 0.0
    #: Segments before and after.
    segments_cleaned: int = 0
    segments_written: int = 0

    @property
    def elapsed_seconds(self) -> float:
        return (self.end_ms - self.start_ms) / 1000

    @property
    def map_seconds(self) -> float:
        return (self.map_complete_ms - self.start_ms) / 1000

    def line(self, name: str, first_dirty_offset: int, next_dirty_offset: int) -> str:
        megabyte = 1024 * 1024
        return (
            f"{name}: cleaned up to offset {next_dirty_offset} (dirty from {first_dirty_offset}) in"
            f" {self.elapsed_seconds:.1f} s: {self.bytes_read / megabyte:,.1f} MB ({self.messages_read:,} messages) "
            "became"
            f" {self.bytes_written / megabyte:,.1f} MB ({self.messages_written:,} messages);"
            f" {self.segments_cleaned} segments became {self.segments_written};"
            f" indexed {self.map_bytes_read / megabyte:,.1f} MB in {self.map_seconds:.1f} s,"
            f" buffer utilization {100 * self.buffer_utilization:.1f}%"
        )


class CleanResult(NamedTuple):
    """Everything below `next_dirty_offset` is clean now."""

    next_dirty_offset: int
    stats: CleanerStats


class LastRecord(NamedTuple):
    """What must be kept of an active producer: its last batch, or only its epoch after a marker alone (-1)."""

    last_data_offset: int
    producer_epoch: int
