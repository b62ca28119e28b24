"""The interface of the topic-based metadata manager to the partitions of `__remote_log_metadata`."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable


class EventsRead(NamedTuple):
    """Events as (offset, value), and the offset to read next, after the last event and any gap."""

    events: list[tuple[int, bytes]]
    next_offset: int


class MetadataLog(Protocol):
    """The partitions of the metadata topic as plain logs, each with one snapshot. Thread-safe.

    Methods raise StratalogError, or OSError for disk errors.
    """

    @property
    def partition_count(self) -> int: ...

    def append(self, partition: int, value: bytes, timestamp_ms: int) -> int:
        """Store an event durably; return its offset."""
        ...

    def read(self, partition: int, offset: int, max_bytes: int) -> EventsRead:
        """Return events from `offset` on. `next_offset` is larger than `offset` except at the end."""
        ...

    def start_offset(self, partition: int) -> int:
        """Return the offset of the first retained event."""
        ...

    def end_offset(self, partition: int) -> int:
        """Return the offset of the next event."""
        ...

    def read_snapshot(self, partition: int) -> bytes | None: ...

    def write_snapshot(self, partition: int, data: bytes) -> None:
        """Store a snapshot atomically, after all readable events are durable."""
        ...


@runtime_checkable
class FollowsLeaders(Protocol):
    """A metadata log on other brokers that is read in the background: `end_offset` lags behind theirs."""

    def first_end(self, partition: int) -> int:
        """Return the end of the events at the first request. Until that is read, the state is incomplete.

        Raises RetriableRemoteStorageError while it is unknown.
        """
        ...

    def newest_end(self, partition: int) -> int:
        """Return the current end of the events. Blocks. Raises RetriableRemoteStorageError if no broker answers."""
        ...

    def close(self) -> None:
        """Stop reading."""
        ...
