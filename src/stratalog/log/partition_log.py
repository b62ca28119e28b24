"""One partition: segments in a directory, appended to at the end and deleted from the start.

    log start offset <= local log start offset <= last stable offset <= high watermark <= log end offset

Thread safety: every change takes the log's one lock. Reads take none: they use an immutable segment table and an end
position that moves only after the bytes below it are written. A slice stays readable whatever happens to the log.

This is the facade of

    opening     from a directory to an open log; `recovery` for its segments
    local_log   the segments and the current offsets; `delayed_deletes`: files that wait for removal
    appender    an append: `append` (checks and offsets), `roll` (when), `producer_state`, `segment` (the write)
    reading     reads and searches
    trimmer     deletion (`retention` decides of what) and truncation
    flusher     durability

Source: Kafka's `UnifiedLog`; `docs/formats/partition_directory.md` shows the directory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import UUID

from typing_extensions import Buffer

from stratalog.config import LogConfig
from stratalog.errors import KafkaStorageError, NotLeaderOrFollowerError
from stratalog.log.append import Appender, AppendRules, CheckedRecords
from stratalog.log.flusher import Flusher, FlushTimes
from stratalog.log.format import (
    PARTITION_METADATA,
    AppendInfo,
    FetchData,
    FoundOffset,
    Isolation,
    LogOffset,
    PartitionMetadataFile,
    ProducerSnapshotEntry,
    TimestampOffset,
)
from stratalog.log.local_log import UNKNOWN_POSITION
from stratalog.log.producers import EXPIRATION_MS_DEFAULT, AppendOrigin, VerificationGuard
from stratalog.log.reading import Reader
from stratalog.log.recovery import OpenedLog, OpenSettings, open_directory, replace_segments
from stratalog.log.retention import DeletedSegment, is_tiered
from stratalog.log.segment import LogSegment
from stratalog.log.trimmer import RemoteHistory, Trimmer
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, Clock, FileSystem, StrPath

#: Producers copied under one hold of the lock.
_PRODUCERS_AT_ONCE: Final = 1_000
#: Greater than any epoch.
_NO_EPOCH: Final = 2**31


class PartitionLog:
    """The log of one partition; use `open`. `config` may be set at any time and takes effect at once."""

    def __init__(self, opened: OpenedLog) -> None:
        local, leader_epochs = opened.local, opened.leader_epochs
        self.directory = local.directory
        self.topic = opened.topic
        self.partition = opened.partition
        self.topic_id = opened.topic_id
        self.leader_epochs = leader_epochs
        self.producers = local.producers
        self._local = local
        self._lock = threading.RLock()
        self._flusher = Flusher(
            local, self._lock, sync_small_files=self._sync_small_files, has_durable_names=opened.was_clean
        )
        self._appender = Appender(local, leader_epochs, self._flusher)
        self._trimmer = Trimmer(local, leader_epochs)
        self._reader = Reader(local, self._lock)
        self._oldest_epoch = 0
        self._epoch_before_fence = 0
        self._waits_for_replicas = False

    @classmethod
    def open(
        cls,
        directory: StrPath,
        config: LogConfig,
        *,
        topic_id: UUID | None = None,
        clock: Clock = SYSTEM_CLOCK,
        fs: FileSystem = REAL_FILESYSTEM,
        clean_shutdown: bool = False,
        recovery_point: int | None = 0,
        log_start_offset: int = 0,
        producer_expiration_ms: int = EXPIRATION_MS_DEFAULT,
    ) -> PartitionLog:
        """Open a partition directory (`<topic>-<partition>`), creating it if it is missing, and recover it.

        `clean_shutdown`: its last user closed it. If False, everything from `recovery_point` on is read again and cut
        before the first unsound batch. None: unknown; everything is read again, and only a torn write at the end is
        cut. Producers idle for `producer_expiration_ms` are forgotten for good: pass NEVER if the broker's
        configuration is unknown. The high watermark begins at the local log start offset. Raises ValueError for the
        name of no partition directory, InconsistentTopicIdError if the directory belongs to another topic id, OSError.
        """
        settings = OpenSettings(
            config=config,
            clock=clock,
            fs=fs,
            clean_shutdown=clean_shutdown,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
        )
        path = Path(directory)
        return cls(open_directory(path, settings, topic_id=topic_id, producer_expiration_ms=producer_expiration_ms))

    def _sync_small_files(self) -> None:
        PartitionMetadataFile(self._local.directory / PARTITION_METADATA, self._local.fs).sync()
        self.leader_epochs.sync()

    def __repr__(self) -> str:
        local = self._local
        return (
            f"PartitionLog({local.name}, offsets {local.log_start_offset} to {local.end.offset},"
            f" {len(local.segments)} segments)"
        )

    # --- state ------------------------------------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        return self._local.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        with self._lock:
            self._local.config = config
            self._appender.rules = AppendRules.of(config)

    @property
    def log_start_offset(self) -> int:
        """The first readable offset in any tier."""
        return self._local.log_start_offset

    @property
    def local_log_start_offset(self) -> int:
        return self._local.local_log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._local.end.offset

    @property
    def high_watermark(self) -> int:
        return self._local.high_watermark.offset

    @property
    def last_stable_offset(self) -> int:
        """The first offset that is not below the high watermark or is of an open transaction."""
        return self._local.last_stable_offset

    def readable_end(self, isolation: Isolation) -> LogOffset | None:
        """Return where a reader of this isolation level stops.

        None if its position in a file is not known without a search.
        """
        local = self._local
        if isolation is Isolation.LOG_END:
            return local.end
        end = local.high_watermark
        is_stable = isolation is not Isolation.TXN_COMMITTED or local.last_stable_offset >= end.offset
        return end if is_stable and end.position != UNKNOWN_POSITION else None

    @property
    def truncations(self) -> int:
        """A number that changes with every truncation. It makes earlier positions invalid."""
        return self._local.truncations

    @property
    def recovery_point(self) -> int:
        """Everything below is on disk, durably."""
        return self._local.recovery_point

    @property
    def size_bytes(self) -> int:
        return self._local.segments.size_bytes

    @property
    def segments(self) -> list[LogSegment]:
        """The current segments in order, the active one last."""
        return list(self._local.segments.all)

    @property
    def active_segment(self) -> LogSegment:
        return self._local.active

    @property
    def is_tiered(self) -> bool:
        """Whether sealed segments are copied to the remote tier, and deleted locally only after that."""
        return is_tiered(self._local.config)

    @property
    def highest_offset_in_remote_storage(self) -> int:
        """The last offset copied to the remote tier, or -1."""
        return self._local.highest_offset_in_remote_storage

    def update_highest_offset_in_remote_storage(self, offset: int) -> None:
        """Allow local deletion of segments up to this offset. Never moves back."""
        with self._lock:
            local = self._local
            local.highest_offset_in_remote_storage = max(local.highest_offset_in_remote_storage, offset)

    def forget_remote_storage(self) -> None:
        """Record that nothing of this log is in the remote tier: local segments must not be deleted for being there."""
        with self._lock:
            self._local.highest_offset_in_remote_storage = -1

    # --- appending --------------------------------------------------------------------------------------------------

    def check_records(self, records: Buffer) -> CheckedRecords:
        """Check a client's batch ahead of `append_as_leader`, which is then quick and raises the error found.

        For batches for which `append_as_leader` on a shared thread raised LargeBatchError. Holds no lock.
        """
        return self._appender.check(records)

    def append_as_leader(
        self,
        records: Buffer | CheckedRecords,
        *,
        leader_epoch: int,
        origin: AppendOrigin = "client",
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Check batches, assign offsets and leader epoch, and append all of them or none.

        `records` is not changed. Raises the errors of `prepare_leader_append` and, for batches with a producer id, of
        `ProducerUpdates.add`; RecordListTooLargeError for more than a segment holds; KafkaStorageError for a disk
        failure. After an error nothing of `records` is in the log. `guard` admits the first batch of a transaction
        (`start_verification`); `transaction_version` is that of the transaction which a marker ends.
        """
        with self._lock:
            if leader_epoch < self._oldest_epoch:
                raise self._superseded(leader_epoch)
            return self._appender.append_as_leader(records, leader_epoch, origin, guard, transaction_version)

    def refuse_epochs_before(self, epoch: int) -> None:
        """Refuse appends as leader of earlier epochs from now on. Wait for those in progress."""
        with self._lock:
            self._oldest_epoch = max(self._oldest_epoch, epoch)

    def fence(self) -> None:
        """Refuse every append (NotLeaderOrFollowerError) from now on. Wait for those in progress.

        For a log that another one replaces: see `is_fenced` and `unfence`.
        """
        with self._lock:
            self._epoch_before_fence, self._oldest_epoch = self._oldest_epoch, _NO_EPOCH

    def unfence(self) -> None:
        """Undo `fence`."""
        with self._lock:
            self._oldest_epoch = self._epoch_before_fence

    @property
    def is_fenced(self) -> bool:
        return self._oldest_epoch == _NO_EPOCH

    def succeed(self, earlier: PartitionLog) -> None:
        """Take over in-memory state from a fenced log of the same records: verifications, epochs, high watermark.

        Positions in the files of the earlier log are invalid here.
        """
        with self._lock:
            self.producers.verifications = earlier.producers.verifications
            self._local.truncations = earlier.truncations + 2
            self._oldest_epoch = earlier._epoch_before_fence
            self._waits_for_replicas = earlier._waits_for_replicas
            # Alone, it is the end: an append may have moved the end of the earlier log, and not yet its high watermark.
            self.update_high_watermark(earlier.high_watermark if self._waits_for_replicas else self._local.end.offset)

    def _superseded(self, leader_epoch: int) -> NotLeaderOrFollowerError:
        return NotLeaderOrFollowerError(
            f"{self._local.name}: epoch {leader_epoch} is over, the oldest that may append is {self._oldest_epoch}"
        )

    def start_verification(
        self, producer_id: int, sequence: int, epoch: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """Return a guard for the verification of a transaction with its coordinator, or None if it is verified.

        Pass the guard to the append of the first batch. InvalidProducerEpochError for an old epoch.
        """
        with self._lock:
            return self.producers.start_verification(
                producer_id, sequence, epoch, supports_epoch_bump=supports_epoch_bump
            )

    def set_transaction_rules(self, *, verification_required: bool, timeout_max_ms: int) -> None:
        """Set whether a transaction needs a verification guard to begin, and how long one may be open."""
        with self._lock:
            self.producers.verification_required = verification_required
            self.producers.max_transaction_timeout_ms = timeout_max_ms

    def active_producers(self) -> list[ProducerSnapshotEntry]:
        """Return the current state of each producer. With very many, appends run in between."""
        numbers = list(self.producers.producers)
        found = []
        for first in range(0, len(numbers), _PRODUCERS_AT_ONCE):
            with self._lock:
                known = map(self.producers.producers.get, numbers[first : first + _PRODUCERS_AT_ONCE])
                found += [producer.to_snapshot() for producer in known if producer is not None]
        return found

    def append_group_as_leader(self, group: Sequence[memoryview], *, leader_epoch: int) -> list[AppendInfo] | None:
        """Append one batch each of several client requests with one write, if all are ordinary.

        The log is then as after as many calls of `append_as_leader`. None: nothing was done, and the caller appends one
        by one, which rolls if needed and reports an error for each.
        """
        with self._lock:
            if leader_epoch < self._oldest_epoch:
                raise self._superseded(leader_epoch)
            return self._appender.append_group_as_leader(group, leader_epoch)

    def append_as_follower(self, records: Buffer, *, leader_epoch: int | None = None) -> AppendInfo:
        """Append batches from the leader, keeping offsets and epochs. Errors of `prepare_follower_append`.

        Leaves out an incomplete batch at the end, and everything from the first batch with an epoch above
        `leader_epoch`, that of the leader it was fetched from.
        """
        with self._lock:
            return self._appender.append_as_follower(records, leader_epoch)

    def roll(self) -> LogSegment:
        """Seal the active segment and return a new one at the log end offset. An empty one is replaced."""
        with self._lock:
            return self._local.roll()

    # --- reading ----------------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        min_one_message: bool = True,
    ) -> FetchData:
        """Return batches from the one with `offset` on, up to `max_bytes`, as a slice of one segment's file.

        With `min_one_message` the first batch is returned whole even if it is larger, otherwise not at all. Raises
        OffsetOutOfRangeError for an offset below the local log start or above the end; CorruptRecordError, with file
        and position, for damage.
        """
        return self._reader.read(offset, max_bytes, isolation, min_one_message)

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """Return the first local record with a timestamp of at least `timestamp_ms`, or None."""
        return self._reader.offset_for_timestamp(timestamp_ms)

    def max_timestamp(self) -> FoundOffset | None:
        """Return the first local record with the largest timestamp, or None if no record has one."""
        return self._reader.max_timestamp()

    # --- offsets ----------------------------------------------------------------------------------------------------

    def update_high_watermark(self, offset: int) -> None:
        """Move the high watermark within the log's bounds. It moves back only after a truncation."""
        with self._lock:
            local, producers = self._local, self.producers
            end = local.end
            if offset >= end.offset:
                local.high_watermark = end
            elif offset != local.high_watermark.offset:
                local.high_watermark = LogOffset(
                    max(offset, local.log_start_offset), UNKNOWN_POSITION, UNKNOWN_POSITION
                )
            producers.on_high_watermark(local.high_watermark.offset)
            local.first_unstable_offset = producers.first_unstable_offset

    def advance_high_watermark(self) -> None:
        """Move the high watermark to the end, unless other brokers hold replicas.

        Unlike `update_high_watermark(log_end_offset)` it never moves back, even with concurrent appends.
        """
        with self._lock:
            if not self._waits_for_replicas:
                self.update_high_watermark(self._local.end.offset)

    def wait_for_replicas(self, *, waits: bool) -> None:
        """Set whether the high watermark depends on other replicas. `advance_high_watermark` then does nothing."""
        with self._lock:
            self._waits_for_replicas = waits

    def increment_log_start_offset(self, offset: int, reason: str) -> bool:
        """Move the log start up to `offset`. Return whether it moved.

        Segments below are deleted by the next retention run. Raises OffsetOutOfRangeError above the high watermark.
        """
        with self._lock, self._disk("log start offset"):
            return self._trimmer.increment_log_start_offset(offset, reason)

    def truncate_to(self, offset: int) -> bool:
        """Drop everything from `offset` on.

        Return whether there was anything. A batch that contains it is dropped whole. On KafkaStorageError the log is
        closed and has to be opened again.
        """
        if offset < 0:
            raise ValueError(f"cannot truncate to offset {offset}")
        with self._lock, self._disk("truncation"):
            return self._trimmer.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything; the next record gets `offset`.

        The log begins there too, unless `log_start_offset` is given (remote data). Errors as
        `truncate_to`.
        """
        with self._lock, self._disk("truncation"):
            self._trimmer.truncate_fully_and_start_at(offset, log_start_offset)

    def begin_behind_remote(self, history: RemoteHistory) -> None:
        """Drop everything and continue at the end of the remote tier. Errors as `truncate_to`."""
        with self._lock, self._disk("the restart after the remote tier"):
            self._trimmer.begin_behind_remote(history)

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers idle for `expiration_ms` without an open transaction. Return how many."""
        with self._lock:
            self.producers.expiration_ms = expiration_ms
            return self.producers.remove_expired(now_ms)

    # --- deletion ---------------------------------------------------------------------------------------------------

    def delete_old_segments(self) -> list[DeletedSegment]:
        """Delete the segments that `retention` allows. Files follow after file.delete.delay.ms (`purge_deleted`).

        Raises KafkaStorageError.
        """
        with self._lock, self._disk("deletion of segments"):
            return self._trimmer.delete_old_segments()

    def replace_segments(self, new: Sequence[LogSegment], old: Sequence[LogSegment]) -> None:
        """Replace `old` by `new`, so that a crash leaves one or the other; see `replacement`.

        `new` are sealed, flushed, and named `.cleaned`. Their offsets are within those of `old`, which must not contain
        the active segment. Segments of `old` that are no longer in the log are ignored; if none is left, `new` are
        removed again. Slices of `old` stay readable. Stop the caller before a concurrent truncation. Raises
        KafkaStorageError, which may leave the log closed; the next opening finishes or undoes the replacement.
        """
        with self._lock:
            replace_segments(self._local, new, old)

    def purge_deleted(self, now_ms: int) -> int:
        """Remove the files whose delay is over. Return how many."""
        local = self._local
        if not local.condemned:
            return 0
        with self._lock:
            due = local.condemned.take_due(now_ms)
        try:
            for path in due:
                local.fs.remove(path)
        except OSError as error:
            raise local.storage_error("removal of deleted files", error) from error
        return len(due)

    # --- durability and end -----------------------------------------------------------------------------------------

    def flush(self, up_to: int | None = None) -> None:
        """Make every record below `up_to` (default: all) durable, and move the recovery point there.

        After a failed sync the content of the disk is unknown: the log refuses every append and flush
        (KafkaStorageError) until it is opened again.
        """
        self._flusher.flush(up_to)

    def flush_if_due(self, now_ms: int) -> bool:
        """Flush as flush.ms requires, or the segments sealed since. Return whether there was anything to do.

        Call it periodically: a roll does not wait for the disk.
        """
        return self._flusher.flush_if_due(now_ms)

    def close(self, *, flush: bool = True) -> None:
        """Seal the active segment, flush and take a producer snapshot. A second call does nothing.

        Slices stay readable; all other calls raise KafkaStorageError. Without `flush` the files are left unchanged, for
        a directory that will be deleted. On a disk error KafkaStorageError is raised, and the next opening recovers the
        log.
        """
        with self._lock:
            local = self._local
            if local.closed:
                return
            try:
                with self._disk("close"):
                    if flush:
                        local.active.become_inactive(is_flushed=local.recovery_point >= local.end.offset)
                        self._flusher.flush_for_stop()
                    local.condemned.remove_all()
            finally:
                local.close()

    def keep_open(self) -> None:
        """Keep every `.log` open from now on, because the directory is about to be renamed. Raises OSError."""
        with self._lock:
            for segment in self._local.segments:
                segment.keep_open()

    def abandon(self, error: KafkaStorageError) -> None:
        """Close all files unchanged. All calls raise `error` from now on. For a directory that has failed."""
        with self._lock:
            local = self._local
            local.failure = error
            if not local.closed:
                local.close()

    @property
    def failure(self) -> KafkaStorageError | None:
        """The error that every call raises after an interrupted change or a failed directory, or None."""
        return self._local.failure

    @property
    def flush_times(self) -> FlushTimes:
        """Statistics of the flushes since the log was opened."""
        return self._flusher.times

    @property
    def on_storage_error(self) -> Callable[[KafkaStorageError], object] | None:
        """Called with each disk error, possibly with the log's lock held."""
        return self._local.on_storage_error

    @on_storage_error.setter
    def on_storage_error(self, listener: Callable[[KafkaStorageError], object] | None) -> None:
        self._local.on_storage_error = listener

    def write_bounds_by(self, write: Callable[[], object]) -> None:
        """Let `write` store `recovery_point` and `log_start_offset` durably.

        Called before a truncation and whenever the log start has moved, with the log's lock held. Its OSErrors count as
        disk errors.
        """
        self._local.write_bounds = write

    def lower_recovery_point(self, offset: int) -> None:
        """Mark nothing from `offset` on as flushed, because it will be truncated.

        For owners of checkpoints.
        """
        with self._lock:
            self._local.end_will_be(offset)

    @contextmanager
    def _disk(self, what: str) -> Iterator[None]:
        """Raise KafkaStorageError for an OSError in this block."""
        try:
            yield
        except OSError as error:
            raise self._local.storage_error(what, error) from error

    def delete(self) -> None:
        """Close and remove the directory at once."""
        with self._lock:
            if not self._local.closed:
                self._local.close()
            self._local.fs.remove_tree(self.directory)
