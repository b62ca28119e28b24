"""Move partitions to another log directory (AlterReplicaLogDirs) while they are served.

A copy grows in `<topic>-<partition>.<id>-future` in the target directory. When it has nearly caught up, appends wait;
the rest is copied and flushed, the copy gets the partition's name, and the old directory is renamed to `-delete`. A
crash leaves one of these:

    only a -future directory beside the partition   the copy is discarded and started again; after a clean stop the
                                                    move goes on with it, unless the log is compacted
    both with the partition's name                  the copy has the mark `MARK` and is discarded, as above
    only the copy                                   it is the partition; its mark is removed

Until the old directory is renamed nothing else is appended to the copy. As in Kafka, the cleaner leaves a compacted log
alone while it moves, and its cleaner checkpoint moves with it.

In a cluster the controller has to accept the new directory first (`DirectoryClaim`), and a follower may be truncated
while it moves: the copy is truncated where its leader epochs diverge, as a follower from its leader.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stratalog.engine.dirs import Checkpointed, marked_path
from stratalog.engine.replication import DirectoryClaim, cut_at_divergence
from stratalog.errors import (
    InvalidTopicError,
    KafkaStorageError,
    LogDirNotFoundError,
    OffsetOutOfRangeError,
    StratalogError,
)
from stratalog.log import PartitionLog
from stratalog.log.format import FUTURE_DIR_SUFFIX, Isolation, TopicPartition
from stratalog.util import write_atomic

if TYPE_CHECKING:
    from stratalog.engine.log_manager import LogManager
    from stratalog.engine.partition import Partition
    from stratalog.util import FileSystem

logger = logging.getLogger(__name__)

#: Marks a copy with the partition's name until the old directory is renamed.
MARK: Final = "move-in-progress"
#: The broker's key: bytes per second of all copies together.
THROTTLE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"

_NAME_SIZE_MAX = 255
_PIECE_BYTES = 1024 * 1024
#: At most this many bytes are copied while appends wait.
_LAST_BYTES = 256 * 1024
#: Seconds between two looks at moves that only wait for the controller.
_PAUSE_S = 0.05


@dataclass(slots=True, eq=False)
class MovingReplica:
    """A partition that is moving. `future` is None until the copy has begun."""

    partition: Partition
    destination: Path
    directory: Path
    #: The claim on the destination in a cluster; None for a single broker.
    claim: DirectoryClaim | None = None
    future: PartitionLog | None = None
    #: Whether the copy was begun before a clean stop.
    is_left: bool = False
    is_cancelled: bool = False
    #: Whether the cleaner is paused, as from the start of the copy of a compacted log.
    is_paused: bool = False
    #: Whether the copy has become the partition, so that none of it may be dropped.
    is_over: bool = False
    #: Held while working on it.
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def key(self) -> TopicPartition:
        return self.partition.topic, self.partition.partition

    @property
    def size_bytes(self) -> int:
        return 0 if self.future is None else self.future.size_bytes

    @property
    def offset_lag(self) -> int:
        """Number of offsets that the copy is behind."""
        end = 0 if self.future is None else self.future.log_end_offset
        return max(self.partition.log.log_end_offset - end, 0)


class DirectoryMoves:
    """All moves of a broker, on one thread that does a piece of each in turn. Thread-safe."""

    def __init__(self, logs: LogManager, fs: FileSystem) -> None:
        self._logs = logs
        self._fs = fs
        self._lock = threading.Lock()
        self._moves: dict[TopicPartition, MovingReplica] = {}
        self._turns: deque[MovingReplica] = deque()
        self._beginning = threading.Lock()
        self._woken = threading.Condition(self._lock)
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    def all(self) -> list[MovingReplica]:
        with self._lock:
            return list(self._moves.values())

    def begin(self, partition: Partition, destination: Path, left: Path | None = None) -> bool:
        """Move a partition to another log directory. Its current directory cancels a move.

        `left` is an unfinished copy from before a clean stop. Return whether the move goes on with it. Raises
        LogDirNotFoundError, KafkaStorageError and InvalidTopicError as Kafka.
        """
        self.check(partition.topic, partition.partition, destination)
        with self._beginning:
            self._begin(partition, destination, left)
            move = self._of(partition)
        self._start()
        return move is not None and move.directory == left

    def _begin(self, partition: Partition, destination: Path, left: Path | None) -> None:
        if partition.failure is not None:
            raise partition.failure
        move = self._of(partition)
        if move is not None and move.destination == destination:
            return
        self.cancel(partition)
        if partition.log.directory.parent == destination:
            return
        if self._logs.dirs.offline:
            raise KafkaStorageError(f"{partition.topic}-{partition.partition} cannot move while a directory is offline")
        directory = left or destination / marked_path(partition.log.directory, FUTURE_DIR_SUFFIX).name
        move = MovingReplica(partition, destination, directory, is_left=left is not None)
        if self._logs.replication is not None:
            move.claim = self._logs.replication.claim(partition, destination)
        try:
            self._fs.make_dirs(move.directory)
            self._fs.sync_dir(destination)
        except OSError as error:
            raise KafkaStorageError(f"{move.directory} cannot be made: {error.strerror or error}") from error
        with self._lock:
            self._moves[move.key] = move
            self._turns.append(move)
            self._woken.notify()
        logger.info("%s moves from %s to %s", partition.log.directory.name, partition.log.directory.parent, destination)

    def check(self, topic: str, number: int, destination: Path) -> None:
        """Raise an error that prevents the move of a partition of this name to this directory."""
        dirs = self._logs.dirs
        if len(f"{topic}-{number}.{'0' * 32}{FUTURE_DIR_SUFFIX}") > _NAME_SIZE_MAX:
            raise InvalidTopicError("The topic name is too long.")
        if destination not in dirs.paths:
            raise LogDirNotFoundError(f"Log dir {destination} is not found in the config.")
        if dirs.is_offline(destination):
            raise KafkaStorageError(f"Log directory {destination} is offline")

    def is_claiming(self, partition: Partition) -> bool:
        """Return whether the controller may have the new directory of a partition before the partition is there."""
        move = self._of(partition)
        return move is not None and move.claim is not None and move.claim.is_reported

    def cancel(self, partition: Partition) -> None:
        """Cancel the move of a partition, if any, and discard the copy."""
        with self._lock:
            move = self._moves.get((partition.topic, partition.partition))
            if move is not None:
                move.is_cancelled = True
        if move is not None:
            with move.lock:
                self._drop(move)

    def close(self, *, clean: bool) -> None:
        """Stop the thread. Moves continue at the next start, after a clean stop with their copies. Idempotent."""
        self._closed.set()
        with self._lock:
            self._woken.notify_all()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            moves, self._moves = self._moves, {}
            self._turns.clear()
        for move in moves.values():
            if move.future is not None:
                try:
                    move.future.close(flush=clean)
                except KafkaStorageError as error:  # its directory is offline now, and not marked as cleanly stopped
                    logger.error("%s was not closed cleanly: %s", move.directory, error)

    def _of(self, partition: Partition) -> MovingReplica | None:
        with self._lock:
            return self._moves.get((partition.topic, partition.partition))

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._closed.is_set():
                self._thread = threading.Thread(target=self._run, name="stratalog-alter-log-dirs", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._closed.is_set():
            with self._lock:
                while not self._turns and not self._closed.is_set():
                    self._woken.wait()
            self.work_off()

    def work_off(self) -> None:
        """Finish all moves on the caller's thread."""
        idle = 0
        while not self._closed.is_set():
            with self._lock:
                if not self._turns:
                    return
                move = self._turns.popleft()
            copied = self._turn(move)
            idle = 0 if copied else idle + 1
            if copied is not None:
                self._wait_for_quota(copied)
                with self._lock:
                    self._turns.append(move)
                    if idle >= len(self._turns):
                        self._woken.wait(_PAUSE_S)

    def _turn(self, move: MovingReplica) -> int | None:
        """Do a piece of a move. Return the bytes copied, or None when it is finished."""
        name = f"{move.partition.topic}-{move.partition.partition}"
        with move.lock:
            try:
                if move.is_cancelled:
                    return None
                self._check_directories(move)
                copied = self._copy(move)
                if not self._may_finish(move):
                    return copied
                self._finish(move)
            except (OSError, StratalogError) as error:
                logger.error("%s cannot be moved to %s, and %s: %s", name, move.destination, _outcome(move), error)
            except Exception:
                logger.exception("%s cannot be moved to %s, and %s", name, move.destination, _outcome(move))
            self._drop(move)
            return None

    def _check_directories(self, move: MovingReplica) -> None:
        if move.partition.failure is not None:
            raise move.partition.failure
        if self._logs.dirs.is_offline(move.destination):
            raise self._logs.dirs.storage_error(move.destination)

    def _may_finish(self, move: MovingReplica) -> bool:
        source, future = move.partition.log, move.future
        if future is None or self._left(source, future) > _LAST_BYTES:
            return False
        if move.claim is None:
            return True
        if move.claim.is_new:
            future.flush()  # the copy is the replica if the other directory is lost after this
        return move.claim.is_granted()

    def _left(self, source: PartitionLog, future: PartitionLog) -> int:
        return source.size_bytes - future.size_bytes if source.log_end_offset > future.log_end_offset else 0

    def _wait_for_quota(self, copied: int) -> None:
        limit = self._logs.config[THROTTLE]
        if copied:
            self._closed.wait(min(copied / max(limit, 1), 60))

    def _copy(self, move: MovingReplica) -> int:
        """Copy a piece and return its bytes."""
        source = move.partition.log
        is_new = move.future is None and not move.is_left
        future = self._logs.open_future(move.directory, source) if move.future is None else move.future
        move.future = future
        if source.config.compacted and not move.is_paused:
            # A copy made partly before and partly after a cleaning could have a record without its tombstone.
            self._logs.cleaning.abort_and_pause(move.key)
            move.is_paused = is_new = True
        if is_new:
            future.truncate_fully_and_start_at(source.local_log_start_offset, source.log_start_offset)
        with move.partition.held():  # a truncation would change the file below the slice
            _cut_at_divergence(future, source)
            try:
                found = source.read(future.log_end_offset, _PIECE_BYTES, isolation=Isolation.LOG_END)
            except OffsetOutOfRangeError:  # retention was faster
                future.truncate_fully_and_start_at(source.local_log_start_offset, source.log_start_offset)
                return 0
            if found.slice is None:
                return 0
            records = found.slice.read()
        future.append_as_follower(records)
        future.update_high_watermark(future.log_end_offset)
        return len(records)

    def _finish(self, move: MovingReplica) -> None:
        """Copy the rest while appends wait, and replace the partition's log by the copy."""
        partition, source, future = move.partition, move.partition.log, move.future
        assert future is not None
        future.flush()
        with partition.held(), self._logs.cleaning.paused(move.key), partition.moving:
            if partition.failure is not None:
                raise partition.failure
            source.fence()
            try:
                final = self._rename_copy(move, source, future)
            except BaseException:
                source.unfence()
                raise
            move.is_over = True
            log = self._logs.take_moved(partition, source, final, future.log_end_offset)
        logger.info("%s is in %s now; it ends at %d", final.name, final.parent, log.log_end_offset)
        self._logs.moved(partition)

    def _rename_copy(self, move: MovingReplica, source: PartitionLog, future: PartitionLog) -> Path:
        """Rename the copy to the partition's name, and the old directory for deletion. A failure keeps the old one."""
        while self._copy(move):
            pass
        if future.log_end_offset != source.log_end_offset:
            raise KafkaStorageError(f"the copy ends at {future.log_end_offset}, the log at {source.log_end_offset}")
        future.leader_epochs.assign_all(source.leader_epochs.entries)
        future.increment_log_start_offset(source.log_start_offset, "so does the log that it is a copy of")
        bounds = Checkpointed(future.log_end_offset, source.log_start_offset, source.high_watermark)
        future.close()
        write_atomic(move.directory / MARK, b"", self._fs)
        final = move.destination / source.directory.name
        try:
            self._logs.expect(move.destination, move.key, bounds)
            self._fs.rename(move.directory, final)
            try:
                self._fs.sync_dir(move.destination)
                self._logs.condemn(source)
            except BaseException:
                self._fs.rename(final, move.directory)
                raise
        except BaseException:
            self._logs.forget(move.destination, move.key)
            raise
        # From here on the copy is the partition, whatever fails: nothing else has its name.
        try:
            self._fs.remove(final / MARK)
        except OSError as error:
            logger.error("%s cannot be removed; the next start does it: %s", final / MARK, error)
        return final

    def _drop(self, move: MovingReplica) -> None:
        with self._lock:
            if self._moves.get(move.key) is not move:
                return
            del self._moves[move.key]
        if move.is_paused:
            self._logs.cleaning.resume([move.key])
        if move.is_over:
            return
        if move.claim is not None:
            move.claim.withdraw()
        try:
            if move.future is not None:
                move.future.close(flush=False)
            if not self._logs.dirs.is_offline(move.destination):
                self._fs.remove_tree(move.directory)
        except (OSError, StratalogError) as error:
            logger.error("%s cannot be removed: %s", move.directory, error)


def _cut_at_divergence(future: PartitionLog, source: PartitionLog) -> None:
    """Truncate the copy to what it has in common with its source, which was truncated since the last piece."""
    while entries := future.leader_epochs.entries:
        latest = entries[-1]
        epoch, end = source.leader_epochs.end_offset_for(latest.epoch, source.log_end_offset)
        if epoch == latest.epoch and end >= future.log_end_offset:
            return
        offset = cut_at_divergence(
            epoch,
            end,
            log_end=future.log_end_offset,
            high_watermark=latest.start_offset,  # the source has nothing of this epoch
            end_of_epoch=future.leader_epochs.end_offset_for,
        )
        logger.info("%s: the copy is truncated from %d to %d", source.directory.name, future.log_end_offset, offset)
        if not future.truncate_to(offset):
            return


def _outcome(move: MovingReplica) -> str:
    """Return what happens to a partition whose move has failed."""
    return "is there, offline until the next start" if move.is_over else "stays in place"
