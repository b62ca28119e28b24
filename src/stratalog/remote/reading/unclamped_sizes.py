"""True sizes beyond 2^31 - 1 of segments whose metadata lack them.

Kafka's metadata have 32 bits for a size, and clamp larger ones to 2^31 - 1. This package stores the true one beside it
(`metadata.serde`), but events written by Kafka lack it. A storage plugin that describes what it has stored
(`plugin.DescribesStoredSegments`) is then queried, once for a segment.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Protocol, runtime_checkable

from stratalog.errors import RemoteStorageError
from stratalog.remote.api import (
    INT32_MAX,
    DescribesStoredSegments,
    RemoteLogMetadataManager,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    RemoteStorageManager,
    TopicIdPartition,
)
from stratalog.remote.tier import RemoteSizes, RemoteTotals

logger = logging.getLogger(__name__)


@runtime_checkable
class KeepsTotals(Protocol):
    """A metadata manager that keeps the totals of a partition's segments."""

    def totals(self, partition: TopicIdPartition) -> RemoteTotals:
        """Return the partition's totals in the remote tier. Raises the errors of a lookup."""
        ...


@runtime_checkable
class KeepsVersions(Protocol):
    """A metadata manager that detects changes of a partition without iterating over its segments."""

    def metadata_version(self, partition: TopicIdPartition) -> int:
        """Return a number that changes with each event of the partition. Raises the errors of a lookup."""
        ...


class UnclampedSizes:
    """`inner`, with true sizes in all results where they are available. Thread-safe.

    If the store does not answer, the clamped size is used, and the next lookup asks again.
    """

    def __init__(self, inner: RemoteLogMetadataManager, rsm: RemoteStorageManager) -> None:
        self._inner = inner
        self._totals: KeepsTotals | None = inner if isinstance(inner, KeepsTotals) else None
        self._versions: KeepsVersions | None = inner if isinstance(inner, KeepsVersions) else None
        self._described: DescribesStoredSegments | None = rsm if isinstance(rsm, DescribesStoredSegments) else None
        self._known: dict[RemoteLogSegmentId, int] = {}
        self._lock = threading.Lock()

    def _true(self, metadata: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
        if metadata.segment_size_bytes != INT32_MAX or not metadata.is_readable or self._described is None:
            return metadata
        with self._lock:
            size = self._known.get(metadata.segment_id)
        if size is None:
            try:
                size = self._described.stored_segment(metadata).size_bytes
            except RemoteStorageError as error:
                logger.warning(
                    "%s: only the first %d bytes of its size are known: %s", metadata.segment_id, INT32_MAX, error
                )
                return metadata
            with self._lock:
                self._known[metadata.segment_id] = size
        return replace(metadata, segment_size_bytes=max(size, INT32_MAX))

    def forget(self, segment_id: RemoteLogSegmentId) -> None:
        with self._lock:
            self._known.pop(segment_id, None)

    def remote_log_segment_metadata(
        self, partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        found = self._inner.remote_log_segment_metadata(partition, leader_epoch, offset)
        return None if found is None else self._true(found)

    def list_remote_log_segments(
        self, partition: TopicIdPartition, leader_epoch: int | None = None
    ) -> list[RemoteLogSegmentMetadata]:
        return [self._true(found) for found in self._inner.list_remote_log_segments(partition, leader_epoch)]

    def sizes(self, partition: TopicIdPartition) -> RemoteSizes:
        """Return the sizes of a partition, with true sizes.

        Iterates over its segments only if the manager keeps no totals.
        """
        if self._totals is not None:
            totals = self._totals.totals(partition)
            more = sum(self._true(each).segment_size_bytes - INT32_MAX for each in totals.clamped)
            return RemoteSizes(totals.segments, totals.readable_segments, totals.readable_bytes + more)
        segments = self.list_remote_log_segments(partition)
        readable = [segment.segment_size_bytes for segment in segments if segment.is_readable]
        return RemoteSizes(len(segments), len(readable), sum(readable))

    def metadata_version(self, partition: TopicIdPartition) -> int | None:
        """Return a number that changes with each event of the partition, or None if the manager has none."""
        return None if self._versions is None else self._versions.metadata_version(partition)

    def remote_log_size(self, partition: TopicIdPartition, leader_epoch: int) -> int:
        return sum(segment.segment_size_bytes for segment in self.list_remote_log_segments(partition, leader_epoch))

    def next_segment_with_txn_index(
        self, partition: TopicIdPartition, leader_epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        found = self._inner.next_segment_with_txn_index(partition, leader_epoch, offset)
        return None if found is None else self._true(found)

    def configure(self, configs: Mapping[str, str]) -> None:
        self._inner.configure(configs)

    def add_remote_log_segment_metadata(self, metadata: RemoteLogSegmentMetadata) -> Future[None]:
        return self._inner.add_remote_log_segment_metadata(metadata)

    def update_remote_log_segment_metadata(self, update: RemoteLogSegmentMetadataUpdate) -> Future[None]:
        return self._inner.update_remote_log_segment_metadata(update)

    def put_remote_partition_delete_metadata(self, metadata: RemotePartitionDeleteMetadata) -> Future[None]:
        return self._inner.put_remote_partition_delete_metadata(metadata)

    def highest_offset_for_epoch(self, partition: TopicIdPartition, leader_epoch: int) -> int | None:
        return self._inner.highest_offset_for_epoch(partition, leader_epoch)

    def on_partition_leadership_changes(
        self, leaders: Iterable[TopicIdPartition], followers: Iterable[TopicIdPartition]
    ) -> None:
        self._inner.on_partition_leadership_changes(leaders, followers)

    def on_stop_partitions(self, partitions: Iterable[TopicIdPartition]) -> None:
        self._inner.on_stop_partitions(partitions)

    def is_ready(self, partition: TopicIdPartition) -> bool:
        return self._inner.is_ready(partition)

    def close(self) -> None:
        self._inner.close()
