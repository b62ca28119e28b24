"""What is known of the remote segments of one partition: the events applied so far, arranged for lookups.

    state                     segment_for(epoch, offset)   segments(...)   highest offset
    COPY_SEGMENT_STARTED                 no                     yes             no
    COPY_SEGMENT_FINISHED                yes                    yes             yes
    DELETE_SEGMENT_STARTED               no                     yes             yes
    DELETE_SEGMENT_FINISHED              no                     no              yes

As Kafka's `RemoteLogMetadataCache`, except that a segment within a larger one never hides the larger one. An event that
the states do not allow (lost, doubled or reordered ones are possible in a damaged log) is dropped with a line in the log;
the cache stays as it was. Thread-safe.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from typing import NamedTuple

from stratalog.remote.api import RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentMetadataUpdate
from stratalog.remote.segment_state import RemoteLogSegmentState, is_valid_transition

logger = logging.getLogger(__name__)


def epoch_end_offset(segment: RemoteLogSegmentMetadata, epoch: int) -> int:
    """The last offset that a segment holds of one of its epochs."""
    later = [start for other, start in segment.segment_leader_epochs.items() if other > epoch]
    return min(later) - 1 if later else segment.end_offset


class _Extent(NamedTuple):
    """The offsets of one epoch in one readable segment, both ends inclusive."""

    start: int
    end: int
    segment_id: RemoteLogSegmentId


class _EpochSegments:
    """The segments that have records of one leader epoch.

    `extents` are those that lookups use: ascending both by start and by end, so that of all segments that begin at or
    before an offset the last one reaches farthest. A readable segment that another one covers is in `covered` (after an
    election the new leader may copy again, in other segments, what its predecessor had copied); it comes back when what
    covers it is deleted. All other segments are `unreadable`.
    """

    def __init__(self) -> None:
        self.extents: list[_Extent] = []
        self.covered: set[_Extent] = set()
        self.unreadable: set[RemoteLogSegmentId] = set()
        self.highest_offset: int | None = None

    def started(self, segment_id: RemoteLogSegmentId) -> None:
        self.unreadable.add(segment_id)

    def finished(self, extent: _Extent) -> None:
        self.unreadable.discard(extent.segment_id)
        if self.highest_offset is None or extent.end > self.highest_offset:
            self.highest_offset = extent.end
        if extent not in self.extents and extent not in self.covered:
            self._place(extent)

    def _place(self, extent: _Extent) -> None:
        at = bisect_right(self.extents, extent.start, key=_start)
        if at and self.extents[at - 1].end > extent.end:
            self.covered.add(extent)
            return
        first = at - 1 if at and self.extents[at - 1].start == extent.start else at
        last = bisect_right(self.extents, extent.end, lo=first, key=_end)
        self.covered.update(self.extents[first:last])
        self.extents[first:last] = [extent]

    def deleting(self, segment_id: RemoteLogSegmentId) -> None:
        self.unreadable.add(segment_id)
        self.covered = {extent for extent in self.covered if extent.segment_id != segment_id}
        kept = [extent for extent in self.extents if extent.segment_id != segment_id]
        if len(kept) < len(self.extents):
            self.extents = kept
            hidden, self.covered = self.covered, set()
            for extent in sorted(hidden, key=_start):
                self._place(extent)

    def deleted(self, segment_id: RemoteLogSegmentId) -> None:
        self.unreadable.discard(segment_id)

    def last_starting_at_or_before(self, offset: int) -> int:
        """Index of that extent, -1 when all start after `offset`."""
        return bisect_right(self.extents, offset, key=_start) - 1

    def all(self) -> list[RemoteLogSegmentId]:
        return [*(extent.segment_id for extent in (*self.extents, *self.covered)), *self.unreadable]


def _start(extent: _Extent) -> int:
    return extent.start


def _end(extent: _Extent) -> int:
    return extent.end


class RemoteLogMetadataCache:
    """The cache of one partition; an invalid event returns False and changes nothing."""

    def __init__(self) -> None:
        self._segments: dict[RemoteLogSegmentId, RemoteLogSegmentMetadata] = {}
        self._epochs: dict[int, _EpochSegments] = {}
        self._lock = threading.RLock()

    # --- events -----------------------------------------------------------------------------------------------------

    def add(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Apply a RemoteLogSegmentMetadata event: a segment is being copied."""
        with self._lock:
            known = self._segments.get(metadata.segment_id)
            if metadata.state is not RemoteLogSegmentState.COPY_SEGMENT_STARTED or not self._allowed(
                known, metadata.segment_id, metadata.state
            ):
                return False
            self._segments[metadata.segment_id] = metadata
            for epoch in metadata.segment_leader_epochs:
                self._epoch(epoch).started(metadata.segment_id)
            return True

    def update(self, update: RemoteLogSegmentMetadataUpdate) -> bool:
        """Apply a change of state."""
        with self._lock:
            known = self._segments.get(update.segment_id)
            if known is None or not self._allowed(known, update.segment_id, update.state):
                if known is None and update.state is not RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
                    logger.warning(
                        "%s is not known; its change to %s is dropped", update.segment_id, update.state.name
                    )
                return False
            self._apply(known.with_update(update))
            return True

    def _apply(self, metadata: RemoteLogSegmentMetadata) -> None:
        segment_id, state = metadata.segment_id, metadata.state
        self._segments[segment_id] = metadata
        for epoch, start in metadata.segment_leader_epochs.items():
            segments = self._epoch(epoch)
            if state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
                segments.finished(_Extent(start, epoch_end_offset(metadata, epoch), segment_id))
            elif state is RemoteLogSegmentState.DELETE_SEGMENT_STARTED:
                segments.deleting(segment_id)
            elif state is RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
                segments.deleted(segment_id)
        if state is RemoteLogSegmentState.DELETE_SEGMENT_FINISHED:
            del self._segments[segment_id]

    def _allowed(
        self,
        known: RemoteLogSegmentMetadata | None,
        segment_id: RemoteLogSegmentId,
        target: RemoteLogSegmentState,
    ) -> bool:
        source = None if known is None else known.state
        if is_valid_transition(source, target):
            return True
        logger.warning(
            "%s cannot go from %s to %s; the event is dropped",
            segment_id, "unknown" if source is None else source.name, target.name,
        )  # fmt: skip
        return False

    def _epoch(self, epoch: int) -> _EpochSegments:
        return self._epochs.setdefault(epoch, _EpochSegments())

    # --- lookups ----------------------------------------------------------------------------------------------------

    def get(self, segment_id: RemoteLogSegmentId) -> RemoteLogSegmentMetadata | None:
        """A segment in any state before DELETE_SEGMENT_FINISHED."""
        return self._segments.get(segment_id)

    def segment_for(self, leader_epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """The readable segment that holds `offset` within `leader_epoch`."""
        with self._lock:
            segments = self._epochs.get(leader_epoch)
            at = -1 if segments is None else segments.last_starting_at_or_before(offset)
            if segments is None or at < 0 or offset > segments.extents[at].end:
                return None
            return self._segments[segments.extents[at].segment_id]

    def segments(self, leader_epoch: int | None = None) -> list[RemoteLogSegmentMetadata]:
        """All segments, or those with records of an epoch; ascending by start offset."""
        with self._lock:
            if leader_epoch is None:
                found = list(self._segments.values())
            else:
                segments = self._epochs.get(leader_epoch)
                found = [] if segments is None else [self._segments[known] for known in segments.all()]
        return sorted(found, key=lambda m: (m.start_offset, m.end_offset, m.event_timestamp_ms))

    def highest_offset_for_epoch(self, leader_epoch: int) -> int | None:
        """The last offset of an epoch in any segment whose copy has finished, deleted or not."""
        segments = self._epochs.get(leader_epoch)
        return None if segments is None else segments.highest_offset

    def next_segment_with_txn_index(self, leader_epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        """The readable segment at `offset` within the epoch, or the first one after it, that has a transaction index."""
        with self._lock:
            segments = self._epochs.get(leader_epoch)
            if segments is None:
                return None
            for extent in segments.extents[max(segments.last_starting_at_or_before(offset), 0) :]:
                metadata = self._segments[extent.segment_id]
                if extent.end >= offset and not metadata.txn_index_empty:
                    return metadata
            return None
