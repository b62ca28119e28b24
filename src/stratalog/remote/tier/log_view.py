"""The part of `log.partition_log.PartitionLog` that the remote tier uses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol
from uuid import UUID

from stratalog.config import LogConfig
from stratalog.errors import RemoteStorageError
from stratalog.log import LeaderEpochCache
from stratalog.log.segment import LogSegment
from stratalog.remote.api import TopicIdPartition


class LogView(Protocol):
    """A partition log. Thread-safe; every property is the current value.

    log_start_offset <= local_log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset. `segments` are
    in order, the active one last; all others are sealed and never change.
    """

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def topic_id(self) -> UUID | None: ...

    @property
    def directory(self) -> Path: ...

    @property
    def config(self) -> LogConfig: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def local_log_start_offset(self) -> int: ...

    @property
    def last_stable_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def segments(self) -> Sequence[LogSegment]: ...

    @property
    def leader_epochs(self) -> LeaderEpochCache: ...

    @property
    def highest_offset_in_remote_storage(self) -> int:
        """Local segments up to this offset may be deleted; -1 when nothing is remote."""
        ...

    def update_highest_offset_in_remote_storage(self, offset: int) -> None: ...

    def increment_log_start_offset(self, offset: int, reason: str) -> object:
        """Move the log start offset up, if it is lower."""
        ...


def topic_id_partition(log: LogView) -> TopicIdPartition:
    """Return the identity of a log.

    Raises RemoteStorageError when its topic has no id, which tiered topics need.
    """
    if log.topic_id is None:
        raise RemoteStorageError(f"{log.topic}-{log.partition} has no topic id; a tiered topic needs one")
    return TopicIdPartition(log.topic_id, log.topic, log.partition)


def segments_not_remote(log: LogView) -> list[LogSegment]:
    """Return the local segments after the last copied offset, with the active one."""
    highest = log.highest_offset_in_remote_storage
    return [segment for segment in log.segments if segment.base_offset > highest]
