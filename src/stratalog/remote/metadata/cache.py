"""The remote segments of one partition as the events so far define them, arranged for lookups.

    state                     segment_for(epoch, offset)   segments(...)   highest offset
    COPY_SEGMENT_STARTED                 no                     yes             no
    COPY_SEGMENT_FINISHED                yes                    yes             yes
    DELETE_SEGMENT_STARTED               no                     yes             yes
    DELETE_SEGMENT_FINISHED              no                     no              yes

As Kafka's `RemoteLogMetadataCache`, except that a segment within a larger one never hides the larger one. Invalid
events (a damaged log may lose, repeat or reorder them) are dropped with a log message and change nothing. Thread-safe.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stratalog.remote.api import (
    INT32_MAX,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    is_valid_transition,
)
from stratalog.remote.metadata.epoch_segments import EpochSegments, Extent
from stratalog.remote.tier import RemoteTotals

logger = logging.getLogger(__name__)

_STARTED, _FINISHED, _DELETING, _DELETED = RemoteLogSegmentState

_VERSIONS = itertools.count(1)


@dataclass(frozen=True, slots=True)
class CacheContent:
    """The whole content of a cache, as a snapshot keeps it, sufficient to apply further events.

    `highest_offsets` has, for each leader epoch, the last offset in any segment whose copy finished, deleted or not.
    """

    segments: tuple[RemoteLogSegmentMetadata, ...]
    highest_offsets: Mapping[int, int]


def epoch_end_offset(segment: RemoteLogSegmentMetadata, epoch: int) -> int:
    later = [start for other, start in segment.segment_leader_epochs.items() if other > epoch]
    return min(later) - 1 if later else segment.end_offset


def _extents(segment: RemoteLogSegmentMetadata) -> list[tuple[int, Extent]]:
    number, end, epochs = segment.segment_id.id.int, segment.end_offset, segment.segment_leader_epochs
    found = []
    for epoch, start in reversed(list(epochs.items())):  # ascending: each one ends where the next begins
        found.append((epoch, Extent(start, end, number)))
        end = start - 1
    return found


class RemoteLogMetadataCache:
    """The cache of one partition. An invalid event returns False and changes nothing."""

    def __init__(self) -> None:
        self._segments: dict[int, RemoteLogSegmentMetadata] = {}
        self._epochs: dict[int, EpochSegments] = {}
        self._readable = 0
        self._readable_bytes = 0
        #: Ids of readable segments with the largest size of Kafka's field: they may be larger.
        self._clamped: set[int] = set()
        self._lock = threading.RLock()
        #: Changes with each applied event, and is unique among all caches.
        self.version = next(_VERSIONS)

    def add(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Apply a RemoteLogSegmentMetadata event: a copy has started."""
        number = metadata.segment_id.id.int
        with self._lock:
            known = self._segments.get(number)
            if metadata.state is not _STARTED or (
                known is not None and not _is_allowed(known.state, metadata.segment_id, _STARTED)
            ):
                return False
            if known is not None:  # a repeated event; in a damaged log it may differ
                for epoch in known.segment_leader_epochs:
                    self._epoch(epoch).deleted(number)
            self._segments[number] = metadata
            for epoch in metadata.segment_leader_epochs:
                self._epoch(epoch).started(number)
            self.version = next(_VERSIONS)
            return True

    def update(self, update: RemoteLogSegmentMetadataUpdate) -> bool:
        state = update.state
        with self._lock:
            known = self._segments.get(update.segment_id.id.int)
            if known is None:
                if state is not _DELETED:
                    logger.warning("%s is unknown; its change to %s is dropped", update.segment_id, state.name)
                return False
            if not _is_allowed(known.state, update.segment_id, state):
                return False
            self._segments[update.segment_id.id.int] = known.with_update(update)
            if state is not known.state:
                self._enter(known, state)
            self.version = next(_VERSIONS)
            return True

    def _enter(self, segment: RemoteLogSegmentMetadata, state: RemoteLogSegmentState) -> None:
        """Index a segment by its new state; `segment` may still have the old one."""
        for epoch, extent in _extents(segment):
            segments = self._epoch(epoch)
            if state is _STARTED:
                segments.started(extent.segment)
            elif state is _FINISHED:
                segments.finished(extent)
            elif state is _DELETING:
                segments.deleting(extent)
            else:
                segments.deleted(extent.segment)
        if state is _FINISHED:
            self._count(segment, 1)
        elif segment.state is _FINISHED:
            self._count(segment, -1)
        if state is _DELETED:
            del self._segments[segment.segment_id.id.int]

    def _count(self, segment: RemoteLogSegmentMetadata, by: int) -> None:
        """Count a segment that becomes readable (1) or ceases to be (-1)."""
        self._readable += by
        self._readable_bytes += by * segment.segment_size_bytes
        if segment.segment_size_bytes == INT32_MAX:
            (self._clamped.add if by > 0 else self._clamped.discard)(segment.segment_id.id.int)

    def _epoch(self, epoch: int) -> EpochSegments:
        found = self._epochs.get(epoch)
        if found is None:
            found = self._epochs[epoch] = EpochSegments()
        return found

    def content(self) -> CacheContent:
        """Return the result of the events applied so far."""
        with self._lock:
            highest = {
                epoch: segments.highest_offset
                for epoch, segments in self._epochs.items()
                if segments.highest_offset is not None
            }
            return CacheContent(tuple(self._segments.values()), highest)

    @classmethod
    def of(
        cls, segments: Iterable[RemoteLogSegmentMetadata], highest_offsets: Mapping[int, int]
    ) -> RemoteLogMetadataCache:
        """Return a cache with a content from `content`.

        ValueError for two segments of one id, or a deleted one.
        """
        cache = cls()
        for segment in segments:
            number = segment.segment_id.id.int
            if segment.state is _DELETED or number in cache._segments:
                raise ValueError(f"{segment.segment_id} in state {segment.state.name} cannot be in a cache")
            cache._segments[number] = segment
            cache._enter(segment, segment.state)
        for epoch, offset in highest_offsets.items():
            cache._epoch(epoch).highest_offset = offset
        return cache

    def __len__(self) -> int:
        """Return the number of segments in all states."""
        return len(self._segments)

    def totals(self) -> RemoteTotals:
        """Return the totals of the segments without iterating over them."""
        with self._lock:
            clamped = tuple(self._segments[number] for number in self._clamped)
            return RemoteTotals(len(self._segments), self._readable, self._readable_bytes, clamped)

    def get(self, segment_id: RemoteLogSegmentId) -> RemoteLogSegmentMetadata | None:
        """Return a segment in any state before DELETE_SEGMENT_FINISHED."""
        return self._segments.get(segment_id.id.int)

    def segment_for(self, leader_epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """Return the readable segment that holds `offset` within `leader_epoch`."""
        with self._lock:
            segments = self._epochs.get(leader_epoch)
            at = -1 if segments is None else segments.last_starting_at_or_before(offset)
            if segments is None or at < 0 or offset > segments.extents[at].end:
                return None
            return self._segments[segments.extents[at].segment]

    def segments(self, leader_epoch: int | None = None) -> list[RemoteLogSegmentMetadata]:
        """Return all segments, or those with records of an epoch; ascending by start offset."""
        with self._lock:
            if leader_epoch is None:
                found = list(self._segments.values())
            else:
                segments = self._epochs.get(leader_epoch)
                found = [] if segments is None else [self._segments[known] for known in segments.all()]
        return sorted(found, key=lambda m: (m.start_offset, m.end_offset, m.event_timestamp_ms))

    def highest_offset_for_epoch(self, leader_epoch: int) -> int | None:
        """Return the last offset of an epoch in any segment whose copy has finished, deleted or not."""
        segments = self._epochs.get(leader_epoch)
        return None if segments is None else segments.highest_offset

    def next_segment_with_txn_index(self, leader_epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """Return the readable segment with a transaction index at `offset`, or the first after it in the epoch."""
        with self._lock:
            segments = self._epochs.get(leader_epoch)
            if segments is None:
                return None
            for extent in segments.extents[max(segments.last_starting_at_or_before(offset), 0) :]:
                metadata = self._segments[extent.segment]
                if extent.end >= offset and not metadata.txn_index_empty:
                    return metadata
            return None


def _is_allowed(source: RemoteLogSegmentState, segment_id: RemoteLogSegmentId, target: RemoteLogSegmentState) -> bool:
    if is_valid_transition(source, target):
        return True
    logger.warning("%s cannot go from %s to %s; the event is dropped", segment_id, source.name, target.name)
    return False
