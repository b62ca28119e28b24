"""The partitions of a stream at one moment, and how far each may be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from stratalog.inspect import ByteSources, Place
from stratalog.log.index import AbortedTransaction
from stratalog.spark.options import OnDataLoss, ReadOptions, TopicPartition
from stratalog.spark.planning import (
    PartitionSnapshot,
    SnapshotMemory,
    SnapshotReader,
    again_while_changing,
    last_stable_offset,
    transaction_state,
)
from stratalog.spark.stream.offsets import Offsets


@dataclass(frozen=True, slots=True)
class View:
    """The subscribed partitions. Each is read up to its `end`, with `read_committed` up to the last stable offset."""

    partitions: Mapping[TopicPartition, PartitionSnapshot] = field(default_factory=dict)

    @property
    def ends(self) -> dict[TopicPartition, int]:
        return {key: each.end for key, each in self.partitions.items()}

    def reaches(self, offsets: Offsets) -> bool:
        """Return whether the ends are at or after all of these offsets."""
        ends = self.ends
        return all(key in ends and offset <= ends[key] for key, offset in offsets.items())


class Viewer:
    """Takes views of the partitions of a stream. Not thread-safe."""

    def __init__(
        self, options: ReadOptions, byte_sources: ByteSources, memory: SnapshotMemory, lost: OnDataLoss
    ) -> None:
        self._options = options
        self._byte_sources = byte_sources
        self._memory = memory
        self._lost = lost
        self._stable: dict[TopicPartition, tuple[tuple[Place, int], int]] = {}

    def look(self, *, must_exist: bool = False) -> View:
        """Take a view. Raises UsageError for an invalid path, and with `must_exist` for a missing named topic."""
        return again_while_changing(lambda: self._look(must_exist=must_exist))

    def _look(self, *, must_exist: bool) -> View:
        reader = SnapshotReader(self._options, self._byte_sources, self._memory, self._lost)
        reader.discover(_all_of_them, must_exist=must_exist)
        found = reader.partitions()
        if self._options.read_committed and self._options.broker is None:  # a broker has reported it
            found = [replace(each, end=self._stable_end(each)) for each in found]
        return View({(each.topic, each.partition): each for each in found})

    def aborted(self, snapshot: PartitionSnapshot, start: int) -> tuple[AbortedTransaction, ...]:
        """Return aborted transactions that may have records from `start` on; none unless `read_committed`."""
        if not self._options.read_committed:
            return ()
        return transaction_state(snapshot, self._byte_sources, start).aborted

    def _stable_end(self, snapshot: PartitionSnapshot) -> int:
        """Return the last stable offset, computed again only if the last segment has grown or was replaced."""
        if not snapshot.ranges:
            return snapshot.end
        key, last = (snapshot.topic, snapshot.partition), snapshot.ranges[-1]
        state_of = (last.segment.log, last.segment.size)
        known = self._stable.get(key)
        if known is None or known[0] != state_of:
            stable = last_stable_offset(snapshot, self._byte_sources)
            known = self._stable[key] = (state_of, stable)
        return known[1]


def _all_of_them(_topic: str, _partition: int) -> bool:
    return True
