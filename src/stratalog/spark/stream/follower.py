"""The driver's side of a stream: where it begins, and the content and plan of each micro-batch. Independent of Spark.

Each trigger takes one `view`, which decides where the batch ends and from which the batch is planned. Losses are
reported before the offsets go to the checkpoint, and again when a batch is planned, possibly in a later process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stratalog.inspect import ByteSources, PlaceMissingError
from stratalog.spark.model import SplitPlan
from stratalog.spark.options import TopicPartition
from stratalog.spark.planning import (
    BrokerRanges,
    Constraints,
    LimitResolver,
    PartitionRead,
    PartitionSnapshot,
    Planner,
    SnapshotMemory,
    again_while_changing,
)
from stratalog.spark.stream.admission import limited_by_offsets, must_wait, shares, total_lag
from stratalog.spark.stream.byte_lag import ByteLag
from stratalog.spark.stream.index_memory import StreamIndexMemory
from stratalog.spark.stream.losses import Losses
from stratalog.spark.stream.offsets import Offsets, name
from stratalog.spark.stream.options import StreamOptions
from stratalog.spark.stream.start import Initial, initial_offsets
from stratalog.spark.stream.view import View, Viewer
from stratalog.util import Clock, SystemClock

_EVERYTHING: Final = Constraints()


class Follower:
    """Follows partitions for one run of a query. Not thread-safe."""

    def __init__(
        self, options: StreamOptions, byte_sources: ByteSources | None = None, clock: Clock | None = None
    ) -> None:
        self._options = options
        self._read = options.read
        self._byte_sources = byte_sources or ByteSources.of(self._read)
        self._clock = clock or SystemClock()
        self.losses = Losses(self._read.fail_on_data_loss)
        memory = SnapshotMemory(options.remote_poll_interval_ms, self._clock.now_ms)
        self._viewer = Viewer(self._read, self._byte_sources, memory, self.losses)
        self._memory = memory
        self._indexes = StreamIndexMemory(self._byte_sources)
        self._view = View()
        self._initial: Initial | None = None
        #: until the first batch, which brings the initial offsets to the checkpoint
        self._holds_initial = False
        #: where the run ends, with Trigger.AvailableNow
        self._fixed: View | None = None
        self._last_batch_ms: int | None = None

    # --- offsets ----------------------------------------------------------------------------------------------------

    def initial(self) -> Offsets:
        """Return where a query without a checkpoint begins, the same at each call. Raises UsageError."""
        if self._initial is None:
            self._initial = again_while_changing(self._find_initial)
            self._holds_initial = True
        return self._initial.offsets

    def _find_initial(self) -> Initial:
        now = self._look(must_exist=True)
        view = self._fixed or now
        resolver = LimitResolver(self._byte_sources, self._indexes.access(view), self.losses)
        return initial_offsets(self._read, view.partitions, resolver)

    def fix_end(self) -> None:
        """Fix the current end of each partition as the end of the run."""
        self._memory.forget_remote()
        self._fixed = self._look()

    @property
    def latest(self) -> Offsets:
        """Return the ends of the last view."""
        return (self._fixed or self._view).ends

    def end_of_batch(self, start: Offsets, *, unlimited: bool) -> Offsets:
        """Return the end of the next batch, or `start` itself if too few records wait. Raises DataLossError."""
        view = self._fixed or self._look()
        self._check(start, view)
        begin = self._begin(start, view)
        ends = view.ends
        if self._holds_initial and self._initial is not None and start == self._initial.offsets:
            ends |= {key: start[key] for key in self._initial.at_end if key in ends}
        self._holds_initial = False
        limits = self._options.limits
        if unlimited or not limits.any:
            return ends
        now_ms = self._clock.now_ms()
        since_ms = limits.delay_max_ms if self._last_batch_ms is None else now_ms - self._last_batch_ms
        # AvailableNow does not wait for further records.
        if self._fixed is None and must_wait(limits, total_lag(begin, ends), since_ms):
            return start
        self._last_batch_ms = now_ms
        return self._limited(view, begin, ends)

    def _limited(self, view: View, begin: Offsets, ends: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the ends of a batch within all limits."""
        limits = self._options.limits
        limited = ends
        if limits.offsets_max is not None:
            limited = limited_by_offsets(limits.offsets_max, begin, ends)
        if limits.bytes_max is not None:
            by_bytes = self._limited_by_bytes(limits.bytes_max, view, begin, ends)
            limited = {key: min(limited[key], by_bytes[key]) for key in ends}
        return limited

    def _limited_by_bytes(
        self, limit: int, view: View, begin: Offsets, ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        brokers = None if self._byte_sources.broker is None else BrokerRanges(self._byte_sources.cluster)
        lag = ByteLag(self._indexes.access(view), brokers)
        waiting = {
            key: lag.between(view.partitions[key], begin[key], end) for key, end in ends.items() if end > begin[key]
        }
        if sum(waiting.values()) <= limit:
            return dict(ends)
        budgets = shares(limit, {key: size for key, size in waiting.items() if size})
        return {
            key: lag.end_within(view.partitions[key], begin[key], end, budgets[key]) if key in budgets else end
            for key, end in ends.items()
        }

    def close(self) -> None:
        """Close connections."""
        self._byte_sources.close()

    # --- plans ------------------------------------------------------------------------------------------------------

    def plan(self, start: Offsets, end: Offsets) -> list[SplitPlan]:
        """Return splits that give the offsets from `start` to `end` once. Raises DataLossError or StratalogError."""

        def plan() -> list[SplitPlan]:
            try:
                return self._plan(start, end)
            except PlaceMissingError:
                self._look()
                raise

        return again_while_changing(plan)

    def _plan(self, start: Offsets, end: Offsets) -> list[SplitPlan]:
        if self._fixed is not None or not self._view.reaches(end):
            self._look()  # the last view is old, or was taken by another process
        view = self._view
        self._check_planned(start, end, view)
        indexes = self._indexes.access(view, self._begin(start, view))
        planner = Planner(self._read, _EVERYTHING, self._byte_sources, indexes, self.losses)
        wanted = [
            self._wanted(planner, view.partitions[key], start, until)
            for key, until in sorted(end.items())
            if key in view.partitions
        ]
        return planner.split([each for each in wanted if each.ranges])

    def _wanted(self, planner: Planner, snapshot: PartitionSnapshot, start: Offsets, until: int) -> PartitionRead:
        first = max(start.get((snapshot.topic, snapshot.partition), 0), snapshot.log_start)
        until = min(until, snapshot.end)
        if first >= until:
            return PartitionRead(snapshot, (), ())
        return planner.between(snapshot, first, until, self._viewer.aborted(snapshot, first))

    # --- what is there, and what is not -----------------------------------------------------------------------------

    def _look(self, *, must_exist: bool = False) -> View:
        before = self._view
        self._view = self._viewer.look(must_exist=must_exist)
        for key, snapshot in self._view.partitions.items():
            known = before.partitions.get(key)
            if known is not None and known.topic_id is not None and snapshot.topic_id != known.topic_id:
                self._memory.forget_sealed()
                self._indexes.forget()
                self.losses(f"{name(key)}: the topic was deleted and created again while the stream followed it")
        self._indexes.learn(self._view)
        return self._view

    @staticmethod
    def _begin(start: Offsets, view: View) -> dict[TopicPartition, int]:
        """Return where to read each partition of a view from: a new one from its earliest offset, none before that."""
        return {key: max(start.get(key, 0), each.log_start) for key, each in view.partitions.items()}

    def _check(self, start: Offsets, view: View) -> None:
        """Report next offsets that are missing."""
        for key in sorted(start.keys() | view.partitions.keys()):
            snapshot, offset = view.partitions.get(key), start.get(key)
            if snapshot is None:
                self.losses(f"partition {name(key)}, which was read up to offset {offset}, no longer exists")
            elif offset is None:
                self._check_new(key, snapshot)
            elif offset > snapshot.end:
                self.losses(
                    f"{name(key)}: the log ends at {snapshot.end}, and was read up to offset {offset}; "
                    "was the topic deleted and created again?"
                )
            else:
                self._check_begin(key, snapshot, offset)

    def _check_planned(self, start: Offsets, end: Offsets, view: View) -> None:
        """Report offsets of this batch in the checkpoint that are missing in the view."""
        for key in sorted(start.keys() | end.keys()):
            snapshot, offset, until = view.partitions.get(key), start.get(key), end.get(key)
            if until is None and self._is_first(start):
                continue  # new since this first batch was planned, by an earlier process
            if until is None or (snapshot is None and offset != until):
                self.losses(f"partition {name(key)}, which was read up to offset {offset or 0}, no longer exists")
            elif snapshot is None or offset == until:
                continue
            elif offset is None:
                self._check_new(key, snapshot)
            elif offset > until:
                self._check_backwards(key, start, until)
            else:
                self._check_begin(key, snapshot, offset)
            if snapshot is not None and until is not None and until > max(snapshot.end, offset or 0):
                self.losses.offsets_gone(
                    key,
                    max(snapshot.end, offset or 0),
                    until,
                    f"{name(key)}: the offsets from {max(snapshot.end, offset or 0)} to {until - 1} no longer exist; "
                    f"the log ends at {snapshot.end}",
                )

    def _check_begin(self, key: TopicPartition, snapshot: PartitionSnapshot, offset: int) -> None:
        if offset < snapshot.log_start:
            self.losses.offsets_gone(
                key,
                offset,
                snapshot.log_start,
                f"{name(key)}: the offsets from {offset} to {snapshot.log_start - 1} are gone; "
                f"the log begins at {snapshot.log_start}",
            )

    def _check_new(self, key: TopicPartition, snapshot: PartitionSnapshot) -> None:
        if snapshot.log_start > 0:
            self.losses.offsets_gone(
                key,
                0,
                snapshot.log_start,
                f"the new partition {name(key)} begins at offset {snapshot.log_start}; "
                f"the offsets from 0 to {snapshot.log_start - 1} are gone",
            )

    def _check_backwards(self, key: TopicPartition, start: Offsets, until: int) -> None:
        """Report an end before its start, unless the first batch began at the end of the log and is planned again."""
        if not (self._is_first(start) and self._initial and key in self._initial.at_end):
            self.losses(f"{name(key)}: the offset went back from {start[key]} to {until}")

    def _is_first(self, start: Offsets) -> bool:
        return self._initial is not None and start == self._initial.offsets
