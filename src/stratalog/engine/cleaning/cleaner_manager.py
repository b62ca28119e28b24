"""Exclusive access to partitions that are, were or will be compacted, and how far each is clean.

Cleaner threads take partitions and return them. Code that truncates or deletes a log first pauses it and waits until
its cleaning has ended. The cleaner also applies retention to compacted logs, so that the two never overlap. The states
are those of `log.cleaner.states`. Source: Kafka's `LogCleanerManager`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stratalog.engine.cleaning.cleaner_checkpoints import CleanerCheckpoints
from stratalog.errors import StratalogError
from stratalog.log import PartitionLog
from stratalog.log.cleaner import IDLE, Candidate, CleanableLog, CleaningAborted, CleaningState, Event, Phase, filthiest
from stratalog.log.format import TopicPartition
from stratalog.util import FileSystem

logger = logging.getLogger(__name__)

Logs = Mapping[TopicPartition, PartitionLog]


class UnselectableLogError(StratalogError):
    """A log could not be examined. `partition` says which; the cause is the error."""

    def __init__(self, partition: TopicPartition, log: PartitionLog) -> None:
        super().__init__(f"{partition[0]}-{partition[1]}")
        self.partition = partition
        self.log = log


@dataclass(frozen=True, slots=True)
class CleanerLook:
    """The result of a cleaner's last search for work.

    0 and 0.0 for nothing, and time 0 for never.
    """

    at_ms: int = 0
    #: The dirty ratio of the dirtiest log.
    dirty_ratio: float = 0.0
    #: By how much max.compaction.lag.ms is exceeded in the log that has waited longest.
    delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class LogToClean:
    """A log taken for cleaning. Return it with `CleanerManager.done_cleaning`."""

    partition: TopicPartition
    log: PartitionLog
    first_dirty_offset: int
    first_uncleanable_offset: int


class CleanerManager:
    """Coordinates all work on compacted logs. Thread-safe. `logs` returns the current partitions.

    `on_disk_error` is called with the data directory and the reason of a disk error, with the lock held.
    """

    def __init__(
        self,
        data_dirs: Sequence[Path],
        logs: Callable[[], Logs],
        fs: FileSystem,
        *,
        on_disk_error: Callable[[Path, str], object],
    ) -> None:
        self._logs = logs
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._states: dict[TopicPartition, CleaningState] = {}
        self._checkpoints = CleanerCheckpoints(data_dirs, fs, on_disk_error)
        self._uncleanable: dict[Path, dict[TopicPartition, str]] = {}
        self.last_look = CleanerLook()

    # --- selection --------------------------------------------------------------------------------------------------

    def take_filthiest(self, now_ms: int) -> LogToClean | None:
        """Take the log that needs cleaning most, or None.

        Rewrites implausible checkpoints. UnselectableLogError for a log that cannot be read.
        """
        with self._lock:
            logs = self._logs()
            free = {key: log for key, log in logs.items() if log.config.compacted and self._is_free(key, log)}
            candidates = [self._candidate(key, log, now_ms, logs) for key, log in free.items()]
            self.last_look = _look(candidates, now_ms)
            chosen = filthiest(candidates)
            if chosen is None:
                return None
            self._move(chosen.partition, Event.START)
            return LogToClean(
                chosen.partition,
                free[chosen.partition],
                chosen.first_dirty.offset,
                chosen.dirtiness.first_uncleanable_offset,
            )

    def take_for_retention(self) -> dict[TopicPartition, PartitionLog]:
        """Take the compacted logs that are not in use.

        Return them with `done_deleting`. Includes those without the policy delete, which may have segments before their
        log start offset.
        """
        with self._lock:
            taken = {key: log for key, log in self._logs().items() if log.config.compacted and self._is_free(key, log)}
            for key in taken:
                self._move(key, Event.START)
            return taken

    def pause_not_compacted(self) -> dict[TopicPartition, PartitionLog]:
        """Pause and return the logs that are not compacted and not in use, for retention.

        Call `resume` for them. Until then no cleaner takes them, even if their policy changes.
        """
        with self._lock:
            paused = {
                key: log for key, log in self._logs().items() if not log.config.compacted and self.state(key) == IDLE
            }
            for key in paused:
                self._move(key, Event.PAUSE)
            return paused

    def _is_free(self, partition: TopicPartition, log: PartitionLog) -> bool:
        return self.state(partition) == IDLE and partition not in self._uncleanable.get(_dir_of(log), {})

    def _candidate(self, partition: TopicPartition, log: PartitionLog, now_ms: int, logs: Logs) -> Candidate:
        data_dir = _dir_of(log)
        try:
            found = Candidate.of(
                partition,
                CleanableLog.of(log),
                checkpointed=self._checkpoints.get(data_dir, partition),
                min_cleanable_ratio=log.config.min_cleanable_dirty_ratio,
                now_ms=now_ms,
            )
        except Exception as error:
            raise UnselectableLogError(partition, log) from error
        first_dirty = found.first_dirty
        if first_dirty.why_reset is not None:
            level = logging.WARNING if first_dirty.is_unexpected else logging.DEBUG
            logger.log(
                level,
                "%s-%d counts as dirty from offset %d on: its checkpointed %s",
                *partition,
                first_dirty.offset,
                first_dirty.why_reset,
            )
            self._checkpoints.put(data_dir, partition, first_dirty.offset, logs)
        return found

    # --- states -----------------------------------------------------------------------------------------------------

    def state(self, partition: TopicPartition) -> CleaningState:
        with self._lock:
            return self._states.get(partition, IDLE)

    def _move(self, partition: TopicPartition, event: Event) -> CleaningState:
        state = self._states.get(partition, IDLE).after(event)
        if state == IDLE:
            self._states.pop(partition, None)
        else:
            self._states[partition] = state
        self._changed.notify_all()
        return state

    def check_aborted(self, partition: TopicPartition) -> None:
        """Raise CleaningAborted if another user needs the partition."""
        if self.state(partition).phase is Phase.ABORTED:
            raise CleaningAborted(f"{partition[0]}-{partition[1]} is needed otherwise")

    def abort_and_pause(self, partition: TopicPartition) -> None:
        """Keep all work off the partition until `resume`. Return when none is in progress. Pauses are counted."""
        with self._lock:
            self._changed.wait_for(lambda: self.state(partition).phase is not Phase.ABORTED)
            self._move(partition, Event.PAUSE)
            self._changed.wait_for(lambda: self.state(partition).phase is Phase.PAUSED)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo one pause of each. ValueError for one that is not paused."""
        with self._lock:
            for partition in partitions:
                self._move(partition, Event.RESUME)

    def abort(self, partition: TopicPartition) -> None:
        """Abort the cleaning of the partition, if any. Return when it has ended."""
        with self.paused(partition):
            return

    @contextmanager
    def paused(self, partition: TopicPartition) -> Iterator[None]:
        """Keep all work off the partition within the block."""
        self.abort_and_pause(partition)
        try:
            yield
        finally:
            self.resume([partition])

    def done_cleaning(self, to_clean: LogToClean, next_dirty_offset: int) -> None:
        """Return a log. Records how far it is clean, unless the cleaning was aborted."""
        with self._lock:
            if self._move(to_clean.partition, Event.DONE) == IDLE:
                data_dir = _dir_of(to_clean.log)
                self._checkpoints.put(data_dir, to_clean.partition, next_dirty_offset, self._logs())

    def done_deleting(self, partitions: Iterable[TopicPartition]) -> None:
        """Return logs from `take_for_retention`."""
        with self._lock:
            for partition in partitions:
                self._move(partition, Event.DONE)

    # --- checkpoints ------------------------------------------------------------------------------------------------

    def checkpointed(self, log: PartitionLog) -> int | None:
        """Return the offset below which the log is clean, or None if unknown."""
        with self._lock:
            return self._checkpoints.get(_dir_of(log), (log.topic, log.partition))

    def remove_checkpoints(self, data_dir: Path, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions that are no longer in the directory."""
        with self._lock:
            self._checkpoints.remove(data_dir, partitions)

    def truncate_checkpoint(self, log: PartitionLog, offset: int) -> None:
        """Lower the checkpoint after a truncation to `offset`. Nothing is written for a log that is not compacted."""
        with self._lock:
            if log.config.compacted:
                self._checkpoints.truncate(_dir_of(log), (log.topic, log.partition), offset)

    def move_checkpoint(self, partition: TopicPartition, source: Path, target: Path) -> None:
        """Move the checkpoint from one data directory to another; an uncleanable partition stays so."""
        with self._lock:
            self._checkpoints.move(partition, source, target)
            reason = self._uncleanable.get(source, {}).pop(partition, None)
            if reason is not None:
                self._uncleanable.setdefault(target, {})[partition] = reason

    def forget_dir(self, data_dir: Path) -> None:
        """Stop using the checkpoint of a data directory that failed."""
        with self._lock:
            self._checkpoints.forget(data_dir)

    # --- uncleanable partitions -------------------------------------------------------------------------------------

    def mark_uncleanable(self, partition: TopicPartition, log: PartitionLog, reason: str) -> None:
        """Exclude a partition until the next start, because cleaning would fail again in the same way."""
        with self._lock:
            self._uncleanable.setdefault(_dir_of(log), {})[partition] = reason

    def uncleanable(self, data_dir: Path) -> dict[TopicPartition, str]:
        """Return the excluded partitions of a directory, and why."""
        with self._lock:
            return dict(self._uncleanable.get(data_dir, {}))

    def uncleanable_bytes(self, data_dir: Path, now_ms: int) -> int:
        """Return the dirty bytes of the excluded partitions of a directory."""
        with self._lock:
            logs = self._logs()
            marked = [(key, logs[key]) for key in self._uncleanable.get(data_dir, {}) if key in logs]
            return sum(self._candidate(key, log, now_ms, logs).dirtiness.cleanable_bytes for key, log in marked)

    def drop_gone(self) -> None:
        """Drop excluded partitions that no longer exist."""
        with self._lock:
            if self._uncleanable:
                logs = self._logs()
                kept = {
                    path: {key: reason for key, reason in marked.items() if key in logs}
                    for path, marked in self._uncleanable.items()
                }
                self._uncleanable = {path: marked for path, marked in kept.items() if marked}


def _look(candidates: Sequence[Candidate], now_ms: int) -> CleanerLook:
    ratios = (found.dirtiness.ratio for found in candidates if found.dirtiness.total_bytes)
    return CleanerLook(now_ms, max(ratios, default=0.0), max((found.delay_ms for found in candidates), default=0))


def _dir_of(log: PartitionLog) -> Path:
    return log.directory.parent
