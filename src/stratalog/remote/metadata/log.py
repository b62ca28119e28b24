"""What the topic-based metadata manager asks of the partitions of `__remote_log_metadata`."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable


class EventsRead(NamedTuple):
    """Events as (offset, value), and the offset to read on from: behind the last event, and behind gaps after it."""

    events: list[tuple[int, bytes]]
    next_offset: int


class MetadataLog(Protocol):
    """The partitions of the metadata topic as plain logs, with a place for one snapshot beside each. Thread-safe.

    Methods raise StratalogError or OSError when the disk does not do as told.
    """

    @property
    def partition_count(self) -> int: ...

    def append(self, partition: int, value: bytes, timestamp_ms: int) -> int:
        """Store an event durably; return its offset."""
        ...

    def read(self, partition: int, offset: int, max_bytes: int) -> EventsRead:
        """Events from `offset` on; `next_offset` is larger than `offset` unless that is the end."""
        ...

    def start_offset(self, partition: int) -> int:
        """Return the offset of the first event that is kept."""
        ...

    def end_offset(self, partition: int) -> int:
        """Return the offset that the next event will get."""
        ...

    def read_snapshot(self, partition: int) -> bytes | None:
        """Return what `write_snapshot` stored last, or None when there is nothing."""
        ...

    def write_snapshot(self, partition: int, data: bytes) -> None:
        """Store `data` whole or not at all, once every event that can be read is durable."""
        ...


@runtime_checkable
class FollowsLeaders(Protocol):
    """A metadata log that lies with other brokers, and is read on in the background: `end_offset` is behind theirs."""

    def first_end(self, partition: int) -> int:
        """Return where the events ended when they were asked for first: before that is read, nothing is known.

        Raises RetriableRemoteStorageError while it is not known.
        """
        ...

    def newest_end(self, partition: int) -> int:
        """Return where the events end now. Blocks. Raises RetriableRemoteStorageError when no broker says so."""
        ...

    def close(self) -> None:
        """Read nothing more."""
        ...
