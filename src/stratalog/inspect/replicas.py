"""Which of several replicas of a partition serves which offsets, by the checkpoints beside them.

A broker's directory says three things about each of its replicas: the leader epochs of its records, the high watermark
up to which they were committed a few seconds ago, and what the log has. The replica with the newest leader epoch shows
the history that counts. A log that has records of a leader whom that history does not know, or more of an epoch than
the history has, differs from there on: this is the tail of an old leader. What lies past every known high watermark
may still change, and is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from stratalog.errors import CorruptCheckpointError, UsageError
from stratalog.inspect.local import read_local_segment
from stratalog.log import list_segments
from stratalog.log.format import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCH_CHECKPOINT,
    EpochEntry,
    OffsetCheckpoint,
    decode_epochs,
    noted_topic_id,
)
from stratalog.util import REAL_FILESYSTEM, FileSystem

_NO_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """What a broker noted about one replica. `high_watermark` is None where it noted none."""

    epochs: tuple[EpochEntry, ...] = ()
    high_watermark: int | None = None
    is_cleaned: bool = False

    @property
    def last_epoch(self) -> int:
        """The newest leader epoch, -1 without any."""
        return self.epochs[-1].epoch if self.epochs else _NO_EPOCH


@dataclass(frozen=True, slots=True)
class Replica:
    """A partition directory whose log has the offsets [start, end). Its checkpoints were read before the log."""

    directory: Path
    start: int
    end: int
    checkpoints: Checkpoints


@dataclass(frozen=True, slots=True)
class LeaderEnd:
    """What the leader said: readers may read up to `end`; the record before it is of `epoch`, -1 if unknown."""

    epoch: int
    end: int


@dataclass(frozen=True, slots=True)
class ReplicaShare:
    """The offsets [start, end) are read from `replica`."""

    replica: Replica
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ReplicaChoice:
    """Disjoint ascending shares below `end`. `left_out` counts the offsets past it that some replica has."""

    shares: tuple[ReplicaShare, ...]
    end: int
    left_out: int

    def of(self, directory: Path) -> tuple[ReplicaShare, ...]:
        return tuple(each for each in self.shares if each.replica.directory == directory)


class CheckpointReader:
    """Reads what data directories note of their replicas, each file of a data directory once. For one thread."""

    def __init__(self, fs: FileSystem = REAL_FILESYSTEM) -> None:
        self._fs = fs
        self._offsets: dict[Path, dict[tuple[str, int], int]] = {}

    def of(self, directory: Path, topic: str, partition: int) -> Checkpoints:
        """Return what is noted of a partition directory. A damaged file says nothing."""
        key = topic, partition
        return Checkpoints(
            self._epochs(directory / LEADER_EPOCH_CHECKPOINT),
            self._noted(directory.parent / HIGH_WATERMARKS).get(key),
            key in self._noted(directory.parent / CLEANER_OFFSETS),
        )

    def _epochs(self, path: Path) -> tuple[EpochEntry, ...]:
        try:
            return tuple(decode_epochs(self._fs.read_bytes(path), str(path)))
        except (CorruptCheckpointError, FileNotFoundError):
            return ()

    def _noted(self, path: Path) -> dict[tuple[str, int], int]:
        if path not in self._offsets:
            try:
                self._offsets[path] = OffsetCheckpoint(path, self._fs).read()
            except (CorruptCheckpointError, FileNotFoundError):
                self._offsets[path] = {}
        return self._offsets[path]


def choose_replicas(replicas: Sequence[Replica], leader: LeaderEnd | None = None) -> ReplicaChoice:
    """Choose for each offset one of the replicas, which are of one topic id.

    Without a leader that was asked, the highest high watermark is the end. Where no replica has one, the log of the
    newest leader epoch decides alone. One replica serves all that it has of this. Another one serves what lies before
    its beginning, unless a cleaner was at work: what compaction removed in one replica must not come back from another.

    Raises:
        UsageError: There are several, and neither leader epochs nor a high watermark to tell them apart.

    """
    if leader is None:
        ends, end = _without_leader(replicas)
    else:
        ends = [_with_leader(each, leader) for each in replicas]
        end = leader.end
    sound = [(each, min(sound_end, end)) for each, sound_end in zip(replicas, ends, strict=True)]
    shares: list[ReplicaShare] = []
    if sound:
        first = max(sound, key=lambda each: (each[1], each[0].checkpoints.last_epoch, -each[0].start))
        shares = _shares(first, [each for each in sound if each is not first])
    reached = max((each.end for each in replicas), default=end)
    return ReplicaChoice(tuple(shares), end, max(0, reached - end))


def _without_leader(replicas: Sequence[Replica]) -> tuple[list[int], int]:
    """Return up to where each replica agrees with the newest, and the end of what is known to be committed."""
    newest = max(replicas, key=_authority)
    if len(replicas) == 1:
        return [newest.end], newest.end
    if newest.checkpoints.high_watermark is None and not newest.checkpoints.epochs:
        names = " and ".join(sorted(str(each.directory) for each in replicas))
        raise UsageError(
            f"partition {newest.directory.name} is in two places: {names}; "
            "no leader epochs and no high watermark say which of them is right"
        )
    ends = [each.end if each is newest else _common_end(each, newest) for each in replicas]
    committed = [
        min(each.checkpoints.high_watermark, end)
        for each, end in zip(replicas, ends, strict=True)
        if each.checkpoints.high_watermark is not None
    ]
    return ends, max(committed, default=newest.end)


def _authority(replica: Replica) -> tuple[int, int, int]:
    known = replica.checkpoints
    return known.last_epoch, -1 if known.high_watermark is None else known.high_watermark, replica.end


def _with_leader(replica: Replica, leader: LeaderEnd) -> int:
    """Return up to where a replica agrees with the leader: past its high watermark only with the leader's epoch."""
    known = replica.checkpoints
    return replica.end if not known.epochs or known.last_epoch >= leader.epoch else _committed_end(replica)


def _committed_end(replica: Replica) -> int:
    """Return up to where a replica alone shows that its records were committed."""
    known = replica.checkpoints.high_watermark
    return replica.start if known is None else min(replica.end, max(replica.start, known))


def _common_end(replica: Replica, newest: Replica) -> int:
    """Return the offset up to which a log has the same records as the newest one, as truncation finds it.

    One epoch has one leader, so two logs agree on an epoch as far as both have it.
    """
    history = newest.checkpoints.epochs
    if not history or not replica.checkpoints.epochs:
        return _committed_end(replica)
    ends = _ends_of_epochs(history, newest.end)
    for epoch, end in reversed(_ends_of_epochs(replica.checkpoints.epochs, replica.end).items()):
        if epoch in ends:
            return min(end, ends[epoch])
        if epoch < history[0].epoch:  # the newest log begins later, and does not show where this epoch ended
            return min(end, history[0].start_offset, _committed_end(replica))
    return replica.start


def _ends_of_epochs(entries: Sequence[EpochEntry], log_end: int) -> dict[int, int]:
    following = [*(each.start_offset for each in entries[1:]), log_end]
    return {entry.epoch: end for entry, end in zip(entries, following, strict=True)}


def _shares(first: tuple[Replica, int], others: Sequence[tuple[Replica, int]]) -> list[ReplicaShare]:
    replica, end = first
    found = [ReplicaShare(replica, replica.start, max(replica.start, end))]
    if any(each.checkpoints.is_cleaned for each in (replica, *(other for other, _ in others))):
        return found
    while True:
        floor = found[0].start
        below = [(min(sound_end, floor), -other.start, other) for other, sound_end in others if other.start < floor]
        reached = max((each for each in below if each[0] > -each[1]), key=lambda each: each[:2], default=None)
        if reached is None:
            return found
        found.insert(0, ReplicaShare(reached[2], reached[2].start, reached[0]))


def one_replica(topic: str, partition: int, directories: Sequence[Path], fs: FileSystem = REAL_FILESYSTEM) -> Path:
    """Return the directory that stands for a partition which several brokers' directories have.

    Raises:
        UsageError: The directories are of several topics, or nothing says which is right.

    """
    distinct = list(dict.fromkeys(directories))
    if len(distinct) == 1:
        return distinct[0]
    check_same_topic(distinct, [noted_topic_id(each, fs) for each in distinct])
    reader = CheckpointReader(fs)
    replicas = [_replica(each, reader.of(each, topic, partition), fs) for each in distinct]
    return choose_replicas(replicas).shares[-1].replica.directory


def check_same_topic(directories: Sequence[Path], topic_ids: Sequence[UUID | None]) -> None:
    """Raise UsageError unless directories of one partition note the same topic id."""
    if len(directories) > 1 and (None in topic_ids or len(set(topic_ids)) > 1):
        names = " and ".join(sorted(map(str, directories)))
        raise UsageError(
            f"partition {directories[0].name} is in two places: {names}; they do not note the same topic id, so they "
            "are not known to be replicas"
        )


def _replica(directory: Path, known: Checkpoints, fs: FileSystem) -> Replica:
    segments = list_segments(directory, fs)
    if not segments:
        return Replica(directory, 0, 0, known)
    return Replica(directory, segments[0].base_offset, read_local_segment(segments[-1], fs).end_offset, known)
