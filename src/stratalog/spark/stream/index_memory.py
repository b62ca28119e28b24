"""Offset indexes for a stream's plans: those of sealed segments are kept, and the active one is seldom read.

The index of an active segment grows and is preallocated (10 MiB by default), and a stream that keeps up begins each
batch where an earlier view ended. So each view leaves an anchor: the offset and the position at which the segment
ended. As with any index entry of a local segment, the batch header there proves an anchor.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

import numpy as np

from stratalog.inspect import ByteSources, Place
from stratalog.spark.model import Segment
from stratalog.spark.planning import IndexAccess, OffsetEntries, PartitionSnapshot
from stratalog.spark.stream.offsets import Offsets
from stratalog.spark.stream.view import View

#: Most bytes of a segment that are read after an anchor without an index to cut them.
ANCHORED_BYTES_MAX: Final = 8 * 1024 * 1024

_ANCHORS_KEPT: Final = 8
_ENTRIES_KEPT: Final = 4_000_000  # of sealed segments, 16 bytes each


class StreamIndexMemory:
    """The offset indexes that a stream keeps. Not thread-safe, unlike the access that it returns."""

    def __init__(self, byte_sources: ByteSources) -> None:
        self._byte_sources = byte_sources
        self._sealed: OrderedDict[tuple[Place, int], OffsetEntries] = OrderedDict()
        self._sealed_entries = 0
        self._anchors: dict[Place, list[tuple[int, int]]] = {}
        self._lock = threading.Lock()

    def learn(self, view: View) -> None:
        """Keep the current ends of active segments as anchors."""
        anchors: dict[Place, list[tuple[int, int]]] = {}
        for last in filter(None, map(_active, view.partitions.values())):
            known, now = self._anchors.get(last.log, []), (last.end_offset, last.size)
            anchors[last.log] = known if known[-1:] == [now] else [*known[1 - _ANCHORS_KEPT :], now]
        self._anchors = anchors

    def forget(self) -> None:
        """Forget everything, because files may have been replaced."""
        with self._lock:
            self._sealed.clear()
            self._sealed_entries = 0
        self._anchors.clear()

    def access(self, view: View, begin: Offsets | None = None) -> IndexAccess:
        """Return the indexes of one view. With `begin`, an anchor is enough for a batch that begins there."""
        anchored: dict[Place, OffsetEntries] = {}
        for key, snapshot in view.partitions.items():
            last = _active(snapshot)
            if last is not None and begin is not None and key in begin:
                entries = self._anchor(last, begin[key])
                if entries is not None:
                    anchored[last.log] = entries
        return _RememberedAccess(self._byte_sources, self, anchored)

    def sealed(self, segment: Segment) -> OffsetEntries | None:
        """Return the index of a sealed segment, if it is kept and compaction has not replaced the log."""
        key = segment.log, segment.size
        with self._lock:
            found = self._sealed.get(key)
            if found is not None:
                self._sealed.move_to_end(key)
            return found

    def keep(self, segment: Segment, entries: OffsetEntries) -> None:
        """Keep an index, and drop the least recently used ones if there are too many entries."""
        key = segment.log, segment.size
        with self._lock:
            if key in self._sealed:
                return
            self._sealed[key] = entries
            self._sealed_entries += len(entries)
            while self._sealed_entries > _ENTRIES_KEPT:
                self._sealed_entries -= len(self._sealed.popitem(last=False)[1])

    def _anchor(self, segment: Segment, begin: int) -> OffsetEntries | None:
        """Return an index of one entry, if an earlier view ended at `begin` and little was added since."""
        for offset, position in self._anchors.get(segment.log, ()):
            if offset == begin and 0 < segment.size - position <= ANCHORED_BYTES_MAX:
                return OffsetEntries(np.array([offset], np.int64), np.array([position], np.int64))
        return None


class _RememberedAccess(IndexAccess):
    """Reads the indexes that the memory does not have."""

    def __init__(
        self, byte_sources: ByteSources, memory: StreamIndexMemory, anchored: dict[Place, OffsetEntries]
    ) -> None:
        super().__init__(byte_sources)
        self._memory = memory
        self._anchored = anchored

    def offset_entries(self, segment: Segment) -> OffsetEntries:
        if segment.is_active:
            found = self._anchored.get(segment.log)
            return super().offset_entries(segment) if found is None else found
        found = self._memory.sealed(segment)
        if found is None:
            found = super().offset_entries(segment)
            self._memory.keep(segment, found)
        return found


def _active(snapshot: PartitionSnapshot) -> Segment | None:
    last = snapshot.ranges[-1].segment if snapshot.ranges else None
    return last if last is not None and last.is_active else None
