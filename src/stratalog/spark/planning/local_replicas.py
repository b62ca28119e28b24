"""The local side of a partition: one directory, or those of several brokers that hold replicas of it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from stratalog.inspect import Checkpoints, LeaderEnd, Replica, ReplicaChoice, check_same_topic, choose_replicas
from stratalog.spark.model import Segment, SegmentRange, within

logger = logging.getLogger("stratalog.spark")


@dataclass(frozen=True, slots=True)
class ReplicaDirectory:
    """A partition directory. `log_start` is that of its checkpoint, 0 without one."""

    directory: Path
    topic_id: UUID | None
    segments: Sequence[Segment]
    log_start: int
    checkpoints: Checkpoints

    def as_replica(self) -> Replica:
        start = self.segments[0].base_offset if self.segments else 0
        end = self.segments[-1].end_offset if self.segments else start
        return Replica(self.directory, start, end, self.checkpoints)


@dataclass(frozen=True, slots=True)
class LocalRanges:
    """The ranges that local directories serve of a partition, and its log start offset as far as known."""

    ranges: tuple[SegmentRange, ...] = ()
    log_start: int = 0
    topic_id: UUID | None = None


def local_ranges(replicas: Sequence[ReplicaDirectory], leader: LeaderEnd | None = None) -> LocalRanges:
    """Return the offsets that directories of one partition serve, each from one of them.

    Raises UsageError for directories that are not known to be replicas of each other.
    """
    if not replicas:
        return LocalRanges()
    check_same_topic([each.directory for each in replicas], [each.topic_id for each in replicas])
    choice = choose_replicas([each.as_replica() for each in replicas], leader)
    if len(replicas) > 1:
        logger.info("%s", _sentence(replicas[0].directory.name, choice))
    ranges = [
        each
        for replica in replicas
        for share in choice.of(replica.directory)
        for each in within(map(_whole, replica.segments), share.start, share.end)
    ]
    return LocalRanges(tuple(ranges), max(each.log_start for each in replicas), replicas[0].topic_id)


def _whole(segment: Segment) -> SegmentRange:
    return SegmentRange(segment, segment.base_offset, segment.end_offset)


def _sentence(name: str, choice: ReplicaChoice) -> str:
    """Return a log message that says where a partition is read from."""
    shares = ", ".join(
        f"offsets {each.start} to {each.end - 1} of {each.replica.directory}"
        for each in choice.shares
        if each.start < each.end
    )
    left_out = f"; {choice.left_out} offsets from {choice.end} on are not committed" if choice.left_out else ""
    return f"{name} is read from {shares or 'none of its replicas'}{left_out}"
