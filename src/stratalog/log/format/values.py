"""Small values that the log hands out. All offsets are absolute, positions and sizes plain ints of any size."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from stratalog.util import File

if TYPE_CHECKING:
    from stratalog.log.index import AbortedTransaction


class OffsetPosition(NamedTuple):
    """An offset and the byte position in the `.log` from which it can be found by reading on."""

    offset: int
    position: int


class TimestampOffset(NamedTuple):
    timestamp_ms: int
    offset: int


class FoundOffset(NamedTuple):
    """Result of a search by time, with the leader epoch in which the record was written (-1 if unknown)."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class EpochEntry(NamedTuple):
    """A leader epoch and the offset of its first record."""

    epoch: int
    start_offset: int


class AppendInfo(NamedTuple):
    """The result of an append. For a duplicate: the place of the earlier batch; nothing was written."""

    first_offset: int
    last_offset: int
    max_timestamp: int
    #: Broker time put into the batch, or -1 when the producer's timestamps were kept.
    log_append_time: int
    log_start_offset: int
    duplicate: bool
    #: Bytes written.
    size: int
    leader_epoch: int


class LogOffset(NamedTuple):
    """An offset with its place: the segment that holds it, and the position of its batch in there."""

    offset: int
    segment_base_offset: int
    position: int


class BatchPosition(NamedTuple):
    base_offset: int
    position: int
    size: int


@dataclass(frozen=True, slots=True)
class FileSlice:
    """Part of a `.log`. The file stays open and readable while the slice lives, even if it is deleted."""

    file: File
    position: int
    size: int

    def read(self) -> bytes:
        return self.file.pread(self.size, self.position)


@dataclass(frozen=True, slots=True)
class FetchData:
    """The answer to a read. The slice begins with the batch that holds the asked offset and may end within a batch."""

    #: Where the slice begins; without a slice, where the next record will be.
    start: LogOffset
    slice: FileSlice | None
    #: Aborted transactions that overlap the slice; None unless the isolation was TXN_COMMITTED, and where the first
    #: batch is larger than what was asked for.
    aborted: list[AbortedTransaction] | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class Isolation(enum.Enum):
    """The isolation level of a read."""

    LOG_END = 0
    HIGH_WATERMARK = 1
    TXN_COMMITTED = 2
