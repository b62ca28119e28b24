"""One partition: an ordered row of segments in a directory, appended at the end and deleted from the start.

    log start offset <= local log start offset <= last stable offset <= high watermark <= log end offset

Thread safety: everything that changes the log takes its one lock. Reads take none: they work on an immutable row of
segments and on an end position that is moved only after the bytes below it are written. A slice that was handed out stays
readable whatever happens to the log.

Which of the rules lie where: `append` (checks and offsets), `roll`, `retention`, `recovery` (opening), `segment` (files).
Source: Kafka's `UnifiedLog` and `LocalLog`; `docs/formats/partition_directory.md` shows the directory.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from typing_extensions import Buffer

from stratalog.config.topic import LogConfig
from stratalog.errors import (
    CorruptCheckpointError,
    InconsistentTopicIdError,
    KafkaError,
    KafkaStorageError,
    OffsetOutOfRangeError,
    RecordListTooLargeError,
)
from stratalog.log.append import (
    AppendRules,
    PreparedAppend,
    prepare_follower_append,
    prepare_leader_append,
    prepare_leader_group,
)
from stratalog.log.checkpoints import PartitionMetadataFile
from stratalog.log.file_names import (
    DELETED_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    parse_partition_dir,
)
from stratalog.log.leader_epochs import LeaderEpochCache
from stratalog.log.producer_state import AppendOrigin, ProducerStateManager, ProducerUpdates
from stratalog.log.recovery import LoadedLog, LogLoader, rebuild_producer_state
from stratalog.log.retention import DeletionReason, RetentionLimits, plan_retention
from stratalog.log.roll import RollReason, roll_reason, time_waited
from stratalog.log.segment import LogSegment
from stratalog.log.segments import Segments
from stratalog.log.txn_index import AbortedTransaction
from stratalog.log.values import (
    AppendInfo,
    FetchData,
    FileSlice,
    Isolation,
    LogOffset,
    OffsetPosition,
    TimestampOffset,
)
from stratalog.records.batch import RecordBatch
from stratalog.util.clock import SYSTEM_CLOCK, Clock
from stratalog.util.filesystem import REAL_FILESYSTEM, FileSystem, StrPath

__all__ = [
    "AppendInfo",
    "DeletedSegment",
    "FetchData",
    "FileSlice",
    "Isolation",
    "PartitionLog",
    "TimestampOffset",
]

logger = logging.getLogger(__name__)

#: A position that is looked up when it is needed.
_UNKNOWN_POSITION = -1


class DeletedSegment(NamedTuple):
    """A segment that retention took."""

    base_offset: int
    size_bytes: int
    reason: DeletionReason


class _Condemned(NamedTuple):
    """Files to remove once the delay after their deletion is over."""

    due_ms: int
    paths: tuple[Path, ...]


class PartitionLog:
    """See the module. Open it with `open`; `config` may be set at any time and takes effect at once."""

    def __init__(
        self,
        directory: Path,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        topic_id: UUID | None,
        clock: Clock,
        fs: FileSystem,
        leader_epochs: LeaderEpochCache,
        producers: ProducerStateManager,
        loaded: LoadedLog,
    ) -> None:
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.leader_epochs = leader_epochs
        self.producers = producers
        self._clock = clock
        self._fs = fs
        self._lock = threading.RLock()
        self._closed = False
        self._sync_failed = False
        self._config = config
        self._rules = AppendRules.of(config)
        self._segments = loaded.segments
        self._active = loaded.segments.all[-1]
        self._log_start_offset = loaded.log_start_offset
        self._local_log_start_offset = max(loaded.log_start_offset, loaded.segments.all[0].base_offset)
        self._recovery_point = max(loaded.recovery_point, self._local_log_start_offset)
        self._last_flush_ms = clock.now_ms()
        self._sealed_end_offset = 0
        self._end = LogOffset(loaded.log_end_offset, self._active.base_offset, self._active.size_bytes)
        self._high_watermark = LogOffset(self._local_log_start_offset, _UNKNOWN_POSITION, _UNKNOWN_POSITION)
        self._first_unstable_offset = producers.first_unstable_offset
        self._highest_offset_in_remote_storage = -1
        self._condemned: list[_Condemned] = []
        self._condemn(loaded.condemned)

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
        recovery_point: int = 0,
        log_start_offset: int = 0,
    ) -> PartitionLog:
        """Open a partition directory (`<topic>-<partition>`), making it if it is missing, and recover it.

        `clean_shutdown`: whoever had it open last closed it. If not, everything from `recovery_point` on is read again.
        The high watermark begins at the local log start offset. Raises ValueError for the name of no partition directory,
        InconsistentTopicIdError if the directory belongs to another topic id, OSError.
        """
        path = Path(directory)
        named = parse_partition_dir(path.name)
        if named is None:
            raise ValueError(f"{path}: not the name of a partition directory, <topic>-<partition>")
        topic, partition = named
        fs.make_dirs(path)
        topic_id = _identify(path, topic_id, fs)
        epochs, epochs_lost = _open_epochs(path / LEADER_EPOCH_CHECKPOINT, fs)
        producers = ProducerStateManager(f"{topic}-{partition}", path, clock=clock, fs=fs)
        loaded = LogLoader(
            path,
            f"{topic}-{partition}",
            config,
            clock=clock,
            fs=fs,
            clean_shutdown=clean_shutdown,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            leader_epochs=epochs,
            producers=producers,
        ).load()
        if epochs_lost:
            _restore_epochs(epochs, loaded.segments)
        return cls(
            path,
            topic,
            partition,
            config,
            topic_id=topic_id,
            clock=clock,
            fs=fs,
            leader_epochs=epochs,
            producers=producers,
            loaded=loaded,
        )

    def __repr__(self) -> str:
        return (
            f"PartitionLog({self.topic}-{self.partition}, offsets {self._log_start_offset} to {self._end.offset},"
            f" {len(self._segments)} segments)"
        )

    # --- what there is ----------------------------------------------------------------------------------------------

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        with self._lock:
            self._config = config
            self._rules = AppendRules.of(config)

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read, from whichever tier."""
        return self._log_start_offset

    @property
    def local_log_start_offset(self) -> int:
        """The first offset that is here."""
        return self._local_log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self._end.offset

    @property
    def high_watermark(self) -> int:
        return self._high_watermark.offset

    @property
    def last_stable_offset(self) -> int:
        """Everything below is below the high watermark and of no open transaction."""
        unstable, high_watermark = self._first_unstable_offset, self._high_watermark.offset
        if unstable is None or unstable > high_watermark:
            return high_watermark
        return max(unstable, self._log_start_offset)

    @property
    def recovery_point(self) -> int:
        """Everything below is on disk, durably."""
        return self._recovery_point

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def segments(self) -> list[LogSegment]:
        """In order, as they are now; the last one is the active one."""
        return list(self._segments.all)

    @property
    def active_segment(self) -> LogSegment:
        return self._active

    @property
    def is_tiered(self) -> bool:
        """Whether sealed segments go to the remote tier, and local ones only after that."""
        return self._config.remote_storage_enable and not self._config.remote_log_copy_disable

    @property
    def highest_offset_in_remote_storage(self) -> int:
        """The last offset that is finished in the remote tier; -1 for none."""
        return self._highest_offset_in_remote_storage

    def update_highest_offset_in_remote_storage(self, offset: int) -> None:
        """Segments up to this offset may go from here. Never moves back."""
        with self._lock:
            self._highest_offset_in_remote_storage = max(self._highest_offset_in_remote_storage, offset)

    # --- appending --------------------------------------------------------------------------------------------------

    def append_as_leader(
        self, records: Buffer, *, leader_epoch: int, origin: AppendOrigin = "client"
    ) -> AppendInfo:
        """Check batches, give them offsets and leader epoch, and append them, all or none.

        `records` is not changed. Errors are those of `prepare_leader_append` and, for batches of producers with an id,
        of `ProducerUpdates.add`; RecordListTooLargeError for more than a segment holds; KafkaStorageError when the disk
        refuses. After an error nothing of `records` is in the log.
        """
        with self._lock:
            now_ms = self._clock.now_ms()
            prepared = prepare_leader_append(
                records,
                self._rules,
                origin=origin,
                next_offset=self._end.offset,
                leader_epoch=leader_epoch,
                now_ms=now_ms,
            )
            return self._append(prepared, origin, now_ms)

    def append_group_as_leader(
        self, group: Sequence[memoryview], *, leader_epoch: int
    ) -> list[AppendInfo] | None:
        """Append what several requests of clients bring, one batch each, with one write, if nothing about any of them is
        out of the ordinary.

        The log is then as after as many calls of `append_as_leader`. None: nothing has been done; the caller appends one
        by one, which rolls where it must and tells what is wrong with which.
        """
        with self._lock:
            if self._closed or not self._active.size_bytes:
                return None
            now_ms = self._clock.now_ms()
            prepared = prepare_leader_group(
                group, self._rules, next_offset=self._end.offset, leader_epoch=leader_epoch, now_ms=now_ms
            )
            if prepared is None or not _are_in_sequence(prepared.producer_batches):
                return None
            last_offset = prepared.batches[-1].last_offset
            if self._must_roll_for(prepared, len(group), last_offset, now_ms):
                return None
            try:
                if self._append(prepared, "client", now_ms).duplicate:
                    return None
            except KafkaError:
                return None
            log_start_offset = self._log_start_offset
            return [
                AppendInfo(base, last, timestamp, -1, log_start_offset, False, size, epoch)
                for base, last, timestamp, size, epoch in prepared.batches
            ]

    def _must_roll_for(self, prepared: PreparedAppend, count: int, last_offset: int, now_ms: int) -> bool:
        """Whether one of `count` appends could need a new segment; True also where that is only not ruled out."""
        active = self._active
        room = min(active.offset_index.max_entries - active.offset_index.entries,
                   active.time_index.max_entries - active.time_index.entries)  # fmt: skip
        return (
            room <= 2 * count
            or self._roll_reason(prepared.size, prepared.max_timestamp, last_offset, now_ms) is not None
        )

    def append_as_follower(self, records: Buffer) -> AppendInfo:
        """Append batches as the leader made them: offsets and epochs stay. Errors of `prepare_follower_append`.

        An incomplete batch at the end is left out.
        """
        with self._lock:
            prepared = prepare_follower_append(records, log_end_offset=self._end.offset)
            if not prepared.batches:
                return AppendInfo(
                    self._end.offset, self._end.offset - 1, -1, -1, self._log_start_offset, False, 0, -1
                )
            return self._append(prepared, "replication", self._clock.now_ms())

    def _append(self, prepared: PreparedAppend, origin: AppendOrigin, now_ms: int) -> AppendInfo:
        """Under the lock: roll if need be, ask the producer state, write, and move the end."""
        if self._closed or self._sync_failed:
            raise self._is_closed()
        batches, size = prepared.batches, prepared.size
        first, last_offset = batches[0], batches[-1].last_offset
        if size > self._config.segment_bytes:
            raise RecordListTooLargeError(
                f"{self.topic}-{self.partition}: {size} bytes in one append, but segment.bytes is"
                f" {self._config.segment_bytes}"
            )
        epochs = self.leader_epochs
        latest_epoch = epochs.latest_epoch
        for batch in batches:
            if batch.leader_epoch != latest_epoch and batch.leader_epoch >= 0:
                epochs.assign(batch.leader_epoch, batch.base_offset)
                latest_epoch = batch.leader_epoch
        try:
            segment = self._segment_for(size, prepared.max_timestamp, first.base_offset, last_offset, now_ms)
            updates: ProducerUpdates | None = None
            if prepared.producer_batches:
                updates = self.producers.prepare(origin)
                for stamped in prepared.producer_batches:
                    duplicate = updates.add(stamped)
                    if duplicate is not None:
                        return AppendInfo(
                            duplicate.first_offset,
                            duplicate.last_offset,
                            prepared.max_timestamp,
                            duplicate.timestamp_ms,
                            self._log_start_offset,
                            True,
                            0,
                            first.leader_epoch,
                        )
            segment.append(prepared.parts, size, batches)
            self._end = LogOffset(last_offset + 1, segment.base_offset, segment.size_bytes)
            if updates is not None:
                for aborted in self.producers.commit(updates):
                    segment.txn_index.append(aborted)
                self._first_unstable_offset = self.producers.first_unstable_offset
            self.producers.map_end_offset = last_offset + 1
            if last_offset + 1 - self._recovery_point >= self._config.flush_messages:
                self.flush()
        except OSError as error:
            raise self._storage_error("append", error) from error
        return AppendInfo(
            first.base_offset,
            last_offset,
            prepared.max_timestamp,
            prepared.log_append_time,
            self._log_start_offset,
            False,
            size,
            first.leader_epoch,
        )

    def _segment_for(
        self, size: int, max_timestamp: int, first_offset: int, last_offset: int, now_ms: int
    ) -> LogSegment:
        """The active segment, rolled first if it must not take `size` more bytes."""
        reason = self._roll_reason(size, max_timestamp, last_offset, now_ms)
        if reason is None:
            return self._active
        logger.debug(
            "%s-%d: rolling at offset %d: %s", self.topic, self.partition, first_offset, reason.value
        )
        return self._roll(first_offset)

    def _roll_reason(self, size: int, max_timestamp: int, last_offset: int, now_ms: int) -> RollReason | None:
        segment, config = self._active, self._config
        return roll_reason(
            size=segment.size_bytes,
            incoming_size=size,
            segment_bytes_max=min(config.segment_bytes, segment.size_max),
            waited_ms=time_waited(
                now_ms=now_ms,
                first_batch_timestamp=segment.first_batch_timestamp,
                created_ms=segment.created_ms,
                incoming_max_timestamp=max_timestamp,
            ),
            segment_ms_max=_segment_ms_max(config) - segment.roll_jitter_ms,
            indexes_full=segment.indexes_full,
            base_offset=segment.base_offset,
            incoming_last_offset=last_offset,
        )

    # --- rolling ----------------------------------------------------------------------------------------------------

    def roll(self) -> LogSegment:
        """Seal the active segment and begin one at the log end offset; return it. An empty one is begun anew."""
        with self._lock:
            if self._closed:
                raise self._is_closed()
            try:
                return self._roll(self._end.offset)
            except OSError as error:
                raise self._storage_error("roll", error) from error

    def _roll(self, expected_offset: int) -> LogSegment:
        base_offset = max(expected_offset, self._end.offset)
        active = self._active
        if active.base_offset == base_offset:  # nothing was written: only its indexes can have been at fault
            self._replace_active(base_offset)
        else:
            active.become_inactive()
            segment = self._new_segment(base_offset)
            self._install(self._segments.added(segment), self._end.offset)
        self._sealed_end_offset = base_offset
        self.producers.update_map_end_offset(base_offset)
        self.producers.take_snapshot(sync=False)
        return self._active

    def _new_segment(self, base_offset: int) -> LogSegment:
        """An empty segment; files that a crash left under its name go first."""
        return LogSegment.create(self.directory, base_offset, self._config, clock=self._clock, fs=self._fs)

    def _replace_active(self, base_offset: int) -> None:
        """Put an empty segment in the place of the active one."""
        self._condemn_files(self._active)
        segment = self._new_segment(base_offset)
        self._install(Segments((*self._segments.all[:-1], segment)), base_offset)

    def _install(self, segments: Segments, end_offset: int) -> None:
        """Publish a new row of segments, whose end is at `end_offset`."""
        at_end = self._high_watermark.offset >= self._end.offset
        self._segments = segments
        self._active = active = segments.all[-1]
        self._end = LogOffset(end_offset, active.base_offset, active.size_bytes)
        if at_end or self._high_watermark.offset >= end_offset:
            self._high_watermark = self._end
        self._recovery_point = min(self._recovery_point, end_offset)
        self._sealed_end_offset = min(self._sealed_end_offset, end_offset)

    # --- reading ----------------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        min_one_message: bool = True,
    ) -> FetchData:
        """Batches from the one that holds `offset` on, up to `max_bytes`, as a slice of one segment's file.

        With `min_one_message` the first batch is given whole even if it is larger; without it, not at all then. Raises
        OffsetOutOfRangeError for an offset that is not here: below the local log start, or behind the end.
        """
        try:
            return self._read(offset, max_bytes, isolation, min_one_message)
        except (ValueError, OSError):  # what a map or file says that was closed meanwhile
            if self._closed:
                raise self._is_closed() from None
            raise

    def _read(self, offset: int, max_bytes: int, isolation: Isolation, min_one_message: bool) -> FetchData:
        limit = self._limit(isolation)
        segments = self._segments
        at = segments.floor(offset)
        if not self._log_start_offset <= offset <= self._end.offset or at < 0:
            if self._closed:
                raise self._is_closed()
            raise OffsetOutOfRangeError(
                f"{self.topic}-{self.partition}: offset {offset} is not here: the log has offsets"
                f" {self._log_start_offset} to {self._end.offset}, from {self._local_log_start_offset} on locally"
            )
        if offset < limit.offset:
            for segment in segments.all[at:]:
                if segment.base_offset > limit.segment_base_offset:
                    break
                is_last = segment.base_offset == limit.segment_base_offset
                end = limit.position if is_last else segment.size_bytes
                found = segment.translate_offset(offset)
                if found is None or found.position >= end:
                    continue
                start = LogOffset(found.base_offset, segment.base_offset, found.position)
                if found.size > max_bytes and not min_one_message:
                    return self._fetched(start, None, isolation, [])
                size = min(end - found.position, max(max_bytes, found.size))
                aborted: list[AbortedTransaction] = []
                if isolation is Isolation.TXN_COMMITTED:
                    aborted = _aborted_within(
                        segments, segment, offset, found.position, size, self._end.offset
                    )
                return self._fetched(start, segment.slice(found.position, size), isolation, aborted)
        return self._fetched(
            LogOffset(offset, limit.segment_base_offset, limit.position), None, isolation, []
        )

    def _fetched(
        self,
        start: LogOffset,
        part: FileSlice | None,
        isolation: Isolation,
        aborted: list[AbortedTransaction],
    ) -> FetchData:
        return FetchData(
            start,
            part,
            aborted if isolation is Isolation.TXN_COMMITTED else None,
            self._high_watermark.offset,
            self.last_stable_offset,
            self._log_start_offset,
        )

    def _limit(self, isolation: Isolation) -> LogOffset:
        """How far a read may see, with the position of that."""
        if isolation is Isolation.LOG_END:
            return self._end
        high_watermark = self._high_watermark
        if isolation is Isolation.TXN_COMMITTED:
            stable = self.last_stable_offset
            if stable < high_watermark.offset:
                return self._locate(stable)
        if high_watermark.position == _UNKNOWN_POSITION:
            return self._locate(high_watermark.offset)
        return high_watermark

    def _locate(self, offset: int) -> LogOffset:
        """Where the batch that holds `offset` lies, or would lie."""
        end, segments = self._end, self._segments
        if offset >= end.offset:
            return end
        for segment in segments.from_offset(offset):
            found = segment.translate_offset(offset)
            if found is not None:
                return LogOffset(offset, segment.base_offset, found.position)
        return end

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """The first record here that is not older than `timestamp_ms`, with its own timestamp; None if all are older."""
        start = self._local_log_start_offset
        for segment in self._segments:
            if segment.largest_timestamp() >= timestamp_ms:
                found = segment.find_timestamp(timestamp_ms, start)
                if found is not None:
                    return found
        return None

    def max_timestamp(self) -> TimestampOffset | None:
        """The first record here with the largest timestamp; None if no record has one."""
        largest: LogSegment | None = None
        for segment in self._segments:
            if largest is None or segment.max_timestamp.timestamp_ms > largest.max_timestamp.timestamp_ms:
                largest = segment
        return None if largest is None else largest.find_max_timestamp_record()

    # --- offsets ----------------------------------------------------------------------------------------------------

    def update_high_watermark(self, offset: int) -> None:
        """Move the high watermark, within the log's bounds. Back only after a truncation."""
        with self._lock:
            end = self._end
            if offset >= end.offset:
                self._high_watermark = end
            elif offset != self._high_watermark.offset:
                self._high_watermark = LogOffset(
                    max(offset, self._log_start_offset), _UNKNOWN_POSITION, _UNKNOWN_POSITION
                )
            self.producers.on_high_watermark(self._high_watermark.offset)
            self._first_unstable_offset = self.producers.first_unstable_offset

    def increment_log_start_offset(self, offset: int, reason: str) -> bool:
        """Let the log begin at `offset`, if that is later than now; whether it was.

        Segments below go at the next retention run. Raises OffsetOutOfRangeError for an offset above the high watermark.
        """
        with self._lock:
            if offset > self._high_watermark.offset:
                raise OffsetOutOfRangeError(
                    f"{self.topic}-{self.partition}: the log cannot begin at offset {offset}, which is above the high"
                    f" watermark {self._high_watermark.offset}"
                )
            self._local_log_start_offset = max(self._local_log_start_offset, offset)
            if offset <= self._log_start_offset:
                return False
            self._log_start_offset = offset
            self._recovery_point = max(self._recovery_point, offset)
            self.leader_epochs.truncate_from_start(offset)
            self.producers.on_log_start_offset(offset)
            self._first_unstable_offset = self.producers.first_unstable_offset
            logger.info("%s-%d: log start offset is now %d: %s", self.topic, self.partition, offset, reason)
            return True

    def truncate_to(self, offset: int) -> bool:
        """Drop everything from `offset` on; whether there was anything. A batch that holds it among others goes whole."""
        if offset < 0:
            raise ValueError(f"cannot truncate to offset {offset}")
        with self._lock:
            if offset >= self._end.offset:
                self.leader_epochs.truncate_from_end(self._end.offset)
                return False
            if self._segments.all[0].base_offset > offset:
                self.truncate_fully_and_start_at(offset)
                return True
            kept = self._segments.all[: self._segments.floor(offset) + 1]
            for segment in self._segments.all[len(kept) :]:
                self._condemn_segment(segment)
            kept[-1].truncate_to(offset)
            self.leader_epochs.truncate_from_end(offset)
            self._log_start_offset = min(offset, self._log_start_offset)
            self._local_log_start_offset = min(offset, self._local_log_start_offset)
            self._install(Segments(kept), offset)
            self._reload_producers(offset)
            return True

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything; the next record gets `offset`. The log begins there too, unless told (remote data)."""
        with self._lock:
            for segment in self._segments.all[:-1]:
                self._condemn_files(segment)
            self._segments = Segments((self._active,))
            self._replace_active(offset)
            self.leader_epochs.clear()
            self.producers.truncate_fully_and_start_at(offset)
            self._log_start_offset = offset if log_start_offset is None else log_start_offset
            self._local_log_start_offset = offset
            self._high_watermark = self._end
            self._reload_producers(offset)

    def _reload_producers(self, end_offset: int) -> None:
        rebuild_producer_state(
            self.producers,
            self._segments,
            log_start_offset=self._log_start_offset,
            last_offset=end_offset,
            now_ms=self._clock.now_ms(),
            after_clean_shutdown=False,
        )
        # Below the high watermark nothing changed, and neither did what is unstable there.
        if self._high_watermark.offset >= end_offset:
            self.producers.on_high_watermark(end_offset)
            self._first_unstable_offset = self.producers.first_unstable_offset

    # --- deletion ---------------------------------------------------------------------------------------------------

    def delete_old_segments(self) -> list[DeletedSegment]:
        """Delete what `retention` allows by now; the files follow after file.delete.delay.ms (`purge_deleted`)."""
        with self._lock:
            if self._closed:
                return []
            segments = self._segments
            plan = plan_retention(segments.all, self._retention_limits(), self._clock.now_ms())
            if plan.roll_active:
                self.roll()
            count = len(plan.deletions)
            if count == 0:
                return []
            if count == len(segments):
                self.roll()
            self._delete_first(count)
            deleted = [
                DeletedSegment(segment.base_offset, segment.size_bytes, reason)
                for segment, reason in zip(segments.all, plan.deletions, strict=False)
            ]
            for segment in deleted:
                logger.info("%s-%d: deleted segment %d (%d bytes): %s", self.topic, self.partition,
                            segment.base_offset, segment.size_bytes, segment.reason.value)  # fmt: skip
            return deleted

    def _retention_limits(self) -> RetentionLimits:
        config, tiered = self._config, self.is_tiered
        by_policy = "delete" in config.cleanup_policy or (tiered and not config.compacted)
        retention_ms = config.effective_local_retention_ms if tiered else config.retention_ms
        retention_bytes = config.effective_local_retention_bytes if tiered else config.retention_bytes
        return RetentionLimits(
            retention_ms=retention_ms if by_policy else -1,
            retention_bytes=retention_bytes if by_policy else -1,
            start_offset=self._local_log_start_offset
            if config.remote_storage_enable
            else self._log_start_offset,
            high_watermark=self._high_watermark.offset,
            log_end_offset=self._end.offset,
            remote_through=self._highest_offset_in_remote_storage if tiered else None,
            log_start_offset=self._log_start_offset,
            roll_active=config.remote_storage_enable,
        )

    def _delete_first(self, count: int) -> None:
        segments = self._segments
        new_start = segments.all[count].base_offset
        if self.is_tiered:
            self._local_log_start_offset = max(self._local_log_start_offset, new_start)
        else:
            self.increment_log_start_offset(new_start, "segments were deleted")
        self._segments = segments.without_first(count)
        for segment in segments.all[:count]:
            self._condemn_segment(segment)

    def _condemn_segment(self, segment: LogSegment) -> None:
        """Rename a segment's files and its snapshot to `.deleted`; they are removed later."""
        self._condemn_files(segment)
        snapshot = self.producers.mark_snapshot_deleted(segment.base_offset)
        if snapshot is not None:
            self._condemn([snapshot])

    def _condemn_files(self, segment: LogSegment) -> None:
        segment.change_suffix("", DELETED_SUFFIX)
        self._condemn([*segment.index_paths, segment.log_path])

    def _condemn(self, paths: Sequence[Path]) -> None:
        if paths:
            due_ms = self._clock.now_ms() + self._config.file_delete_delay_ms
            self._condemned.append(_Condemned(due_ms, tuple(paths)))

    def purge_deleted(self, now_ms: int) -> int:
        """Remove the files whose delay is over; return how many."""
        if not self._condemned:
            return 0
        with self._lock:
            due = [condemned for condemned in self._condemned if condemned.due_ms <= now_ms]
            self._condemned = [condemned for condemned in self._condemned if condemned.due_ms > now_ms]
        paths = [path for condemned in due for path in condemned.paths]
        for path in paths:
            self._fs.remove(path)
        return len(paths)

    # --- durability and end -----------------------------------------------------------------------------------------

    def flush(self, up_to: int | None = None) -> None:
        """Make every record below `up_to` (default: all) durable, and move the recovery point there.

        After a sync that failed nobody knows what is on the disk: the log refuses every append and flush from then on
        (KafkaStorageError), until it is opened anew.
        """
        if self._sync_failed:
            raise self._is_closed()
        end = self._end.offset if up_to is None else min(up_to, self._end.offset)
        start = self._recovery_point
        if end <= start:
            return
        segments = [segment for segment in self._segments.from_offset(start) if segment.base_offset < end]
        try:
            for segment in segments:
                segment.flush()
            if any(segment.base_offset >= start for segment in segments):
                self._fs.sync_dir(self.directory)
        except OSError as error:
            self._sync_failed = True
            raise self._storage_error("flush", error) from error
        with self._lock:
            self._recovery_point = max(self._recovery_point, min(end, self._end.offset))
            self._last_flush_ms = self._clock.now_ms()

    def flush_if_due(self, now_ms: int) -> bool:
        """Flush what flush.ms says, or the segments that were sealed since; whether there was anything to do.

        To be called now and then: a roll does not wait for the disk, and leaves the flush to this.
        """
        if now_ms - self._last_flush_ms >= self._config.flush_ms and self._end.offset > self._recovery_point:
            self.flush()
            return True
        if self._sealed_end_offset > self._recovery_point:
            self.flush(self._sealed_end_offset)
            return True
        return False

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that were silent for `expiration_ms` and have no open transaction; how many."""
        with self._lock:
            self.producers.expiration_ms = expiration_ms
            return self.producers.remove_expired(now_ms)

    def close(self, *, flush: bool = True) -> None:
        """Seal the active segment, flush and take a producer snapshot. Harmless when called again.

        Slices stay readable; everything else raises KafkaStorageError from here on. Without `flush` the files are left
        as they are: for a directory that is to be deleted.
        """
        with self._lock:
            if self._closed:
                return
            if flush:
                self._active.become_inactive()
                self.flush()
                self.producers.take_snapshot()
            self._closed = True
            for segment in self._segments:
                segment.close()
            for condemned in self._condemned:
                for path in condemned.paths:
                    self._fs.remove(path)
            self._condemned = []
            self._segments = Segments(())

    def delete(self) -> None:
        """Close and remove the directory, at once."""
        with self._lock:
            if not self._closed:
                self._closed = True
                for segment in self._segments:
                    segment.close()
                self._segments = Segments(())
            self._fs.remove_tree(self.directory)

    def _is_closed(self) -> KafkaStorageError:
        if self._sync_failed:
            return KafkaStorageError(
                f"{self.directory}: an earlier sync failed; check the disk and open the log anew"
            )
        return KafkaStorageError(f"{self.topic}-{self.partition}: the log is closed")

    def _storage_error(self, what: str, error: OSError) -> KafkaStorageError:
        return KafkaStorageError(f"{self.directory}: {what} failed: {error.strerror or error}")


def _are_in_sequence(batches: Sequence[RecordBatch]) -> bool:
    """Whether each producer's batches follow one upon the other; the first of each is not looked at."""
    expected: dict[int, tuple[int, int]] = {}
    for batch in batches:
        found = (batch.producer_epoch, batch.base_sequence)
        if expected.get(batch.producer_id, found) != found:
            return False
        expected[batch.producer_id] = (batch.producer_epoch, (batch.last_sequence + 1) & 0x7FFF_FFFF)
    return True


def _segment_ms_max(config: LogConfig) -> int:
    """The age at which a segment rolls: a compacted topic also heeds how long a record may stay uncompacted."""
    if config.compacted and config.max_compaction_lag_ms > 0:
        return min(config.max_compaction_lag_ms, config.segment_ms)
    return config.segment_ms


def _identify(directory: Path, topic_id: UUID | None, fs: FileSystem) -> UUID | None:
    """The directory's topic id, written if it has none yet."""
    metadata = PartitionMetadataFile(directory / PARTITION_METADATA, fs)
    try:
        stored = metadata.read()
    except CorruptCheckpointError as error:
        if topic_id is None:
            raise
        logger.warning("writing %s anew: %s", metadata.path, error)
        stored = None
    if stored is None:
        if topic_id is not None:
            metadata.write(topic_id)
        return topic_id
    if topic_id is not None and stored != topic_id:
        raise InconsistentTopicIdError(f"{metadata.path}: topic id {stored}, expected {topic_id}")
    return stored


def _open_epochs(path: Path, fs: FileSystem) -> tuple[LeaderEpochCache, bool]:
    """The leader epochs, and whether the file was damaged and they must be found in the batches."""
    try:
        return LeaderEpochCache(path, fs), False
    except CorruptCheckpointError as error:
        logger.warning("reading leader epochs from the log: %s", error)
        fs.remove(path)
        return LeaderEpochCache(path, fs), True


def _restore_epochs(epochs: LeaderEpochCache, segments: Segments) -> None:
    for segment in segments:
        for _, header in segment.headers():
            latest = epochs.latest_epoch
            if header[2] > (-1 if latest is None else latest):
                epochs.assign(header[2], header[0])


def _aborted_within(
    segments: Segments, first: LogSegment, offset: int, position: int, size: int, end_offset: int
) -> list[AbortedTransaction]:
    """The aborted transactions that overlap `size` bytes from `offset` on."""
    index = segments.all.index(first)
    bound = first.offset_index.fetch_upper_bound(OffsetPosition(offset, position), size)
    if bound is not None:
        upper = bound.offset
    else:
        upper = segments.all[index + 1].base_offset if index + 1 < len(segments) else end_offset
    found: list[AbortedTransaction] = []
    for segment in segments.all[index:]:
        within = segment.txn_index.collect(offset, upper)
        found += within.transactions
        if within.is_complete:
            break
    return found
