"""Services shared by the tasks of all tiered partitions of a broker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from stratalog.remote.api import (
    RemoteLogMetadataManager,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteStorageManager,
)
from stratalog.remote.tier.counters import RemoteTopicCounts
from stratalog.remote.tier.health import RemoteHealth
from stratalog.remote.tier.quota import RateQuota
from stratalog.remote.tier.watchdog import Watchdog
from stratalog.util import Clock, FileSystem, TopicCounts

#: The number of partitions of a topic id, None if unknown.
PartitionCount = Callable[[UUID], int | None]


def not_known(_: UUID) -> None:
    return None


class CopiesInFlight:
    """Ids of the segments that this process is copying. Thread-safe.

    An id is added before its metadata, and removed after its copy has finished or failed for good.
    """

    def __init__(self) -> None:
        self._ids: set[RemoteLogSegmentId] = set()
        self._lock = threading.Lock()

    def begin(self, segment_id: RemoteLogSegmentId) -> None:
        with self._lock:
            self._ids.add(segment_id)

    def end(self, segment_id: RemoteLogSegmentId) -> None:
        with self._lock:
            self._ids.discard(segment_id)

    def __contains__(self, segment_id: RemoteLogSegmentId) -> bool:
        with self._lock:
            return segment_id in self._ids


@dataclass(frozen=True, slots=True, kw_only=True)
class TierServices:
    """Built once by the manager. All parts are thread-safe."""

    rlmm: RemoteLogMetadataManager
    rsm: RemoteStorageManager
    clock: Clock
    fs: FileSystem
    broker_id: int
    custom_metadata_bytes_max: int
    copy_quota: RateQuota
    counts: TopicCounts[RemoteTopicCounts]
    health: RemoteHealth
    watchdog: Watchdog
    partition_count: PartitionCount
    #: Called for every segment whose objects were deleted, so that caches drop it.
    on_segment_deleted: Callable[[RemoteLogSegmentMetadata], object]
    #: Whether other brokers of a cluster may lead the same partitions.
    is_shared: bool = False
    in_flight: CopiesInFlight = field(default_factory=CopiesInFlight)
