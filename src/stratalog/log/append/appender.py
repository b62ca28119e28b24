"""Putting batches at the end of a log, all of them or none.

    prepare (`preparation`: checks, offsets) -> roll if need be -> ask the producer state -> write -> move the end

Whatever raises does so before anything is written, or the write is undone: after an error nothing of the append is
in the log. Not thread-safe: the partition's lock is held. Source: Kafka's `UnifiedLog.append`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from typing_extensions import Buffer

from stratalog.errors import KafkaError, RecordListTooLargeError
from stratalog.log.append.preparation import (
    AppendRules,
    BatchFacts,
    CheckedRecords,
    PreparedAppend,
    prepare_follower_append,
    prepare_leader_append,
    prepare_leader_group,
)
from stratalog.log.append.roll import RollReason, roll_reason, time_waited
from stratalog.log.flusher import Flusher
from stratalog.log.format import AppendInfo, LogOffset
from stratalog.log.leader_epochs import LeaderEpochCache
from stratalog.log.local_log import LocalLog
from stratalog.log.producers import AppendOrigin, ProducerUpdates, VerificationGuard
from stratalog.records import RecordBatch

logger = logging.getLogger(__name__)


class Appender:
    """See the module, and for the public methods those of the same names in `PartitionLog`."""

    def __init__(self, local: LocalLog, leader_epochs: LeaderEpochCache, flusher: Flusher) -> None:
        self.rules = AppendRules.of(local.config)
        self._local = local
        self._leader_epochs = leader_epochs
        self._flusher = flusher

    def append_as_leader(
        self,
        records: Buffer | CheckedRecords,
        leader_epoch: int,
        origin: AppendOrigin,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> AppendInfo:
        local = self._local
        now_ms = local.clock.now_ms()
        prepared = prepare_leader_append(
            records,
            self.rules,
            origin=origin,
            next_offset=local.end.offset,
            leader_epoch=leader_epoch,
            now_ms=now_ms,
        )
        return self._append(prepared, origin, now_ms, guard, transaction_version)

    def check(self, records: Buffer) -> CheckedRecords:
        return CheckedRecords.of(records, self.rules, self._local.clock.now_ms())

    def append_as_follower(self, records: Buffer, leader_epoch: int | None) -> AppendInfo:
        local = self._local
        end_offset = local.end.offset
        prepared = prepare_follower_append(records, log_end_offset=end_offset, leader_epoch=leader_epoch)
        if not prepared.batches:
            return AppendInfo(end_offset, end_offset - 1, -1, -1, local.log_start_offset, False, 0, -1)
        return self._append(prepared, "replication", local.clock.now_ms())

    def append_group_as_leader(self, group: Sequence[memoryview], leader_epoch: int) -> list[AppendInfo] | None:
        local = self._local
        if local.closed or not local.active.size_bytes:
            return None
        now_ms = local.clock.now_ms()
        prepared = prepare_leader_group(
            group, self.rules, next_offset=local.end.offset, leader_epoch=leader_epoch, now_ms=now_ms
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
        log_start_offset = local.log_start_offset
        return [
            AppendInfo(base, last, timestamp, -1, log_start_offset, False, size, epoch)
            for base, last, timestamp, size, epoch in prepared.batches
        ]

    def _must_roll_for(self, prepared: PreparedAppend, count: int, last_offset: int, now_ms: int) -> bool:
        """Return whether one of `count` appends could need a new segment; True also where it cannot be ruled out."""
        active = self._local.active
        room = min(
            active.offset_index.max_entries - active.offset_index.entries,
            active.time_index.max_entries - active.time_index.entries,
        )
        return (
            room <= 2 * count
            or self._roll_reason(prepared.size, prepared.max_timestamp, last_offset, now_ms) is not None
        )

    def _append(  # noqa: C901
        self,
        prepared: PreparedAppend,
        origin: AppendOrigin,
        now_ms: int,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> AppendInfo:
        local = self._local
        if local.closed or local.sync_failed:
            raise local.unusable()
        batches, size = prepared.batches, prepared.size
        first, last_offset = batches[0], batches[-1].last_offset
        if size > local.config.segment_bytes:
            raise RecordListTooLargeError(
                f"{local.name}: {size} bytes in one append, but segment.bytes is {local.config.segment_bytes}"
            )
        epochs = self._leader_epochs
        try:
            with_epochs = batches
            if prepared.old_formats_until:
                self._forget_epochs(batches[prepared.old_formats_until - 1])
                with_epochs = batches[prepared.old_formats_until :]
            latest_epoch = epochs.latest_epoch
            for batch in with_epochs:
                if batch.leader_epoch != latest_epoch and batch.leader_epoch >= 0:
                    epochs.assign(batch.leader_epoch, batch.base_offset)
                    latest_epoch = batch.leader_epoch
            reason = self._roll_reason(size, prepared.max_timestamp, last_offset, now_ms)
            if reason is not None:
                logger.debug("%s: rolling at offset %d: %s", local.name, first.base_offset, reason.value)
                local.roll_at(local.end.offset if prepared.begins_with_old_format else first.base_offset)
            segment, producers = local.active, local.producers
            updates: ProducerUpdates | None = None
            if prepared.producer_batches:
                updates = producers.prepare(origin, guard=guard)
                for stamped in prepared.producer_batches:
                    duplicate = updates.add(stamped, transaction_version=transaction_version)
                    if duplicate is not None:
                        return AppendInfo(
                            duplicate.first_offset,
                            duplicate.last_offset,
                            prepared.max_timestamp,
                            duplicate.timestamp_ms,
                            local.log_start_offset,
                            True,
                            0,
                            first.leader_epoch,
                        )
            aborted = producers.aborted_by(updates) if updates is not None else ()
            segment.append(prepared.parts, size, batches, aborted)
            local.end = LogOffset(last_offset + 1, segment.base_offset, segment.size_bytes)
            if updates is not None:
                producers.commit(updates)
                local.first_unstable_offset = producers.first_unstable_offset
            producers.map_end_offset = last_offset + 1
            if last_offset + 1 - local.recovery_point >= local.config.flush_messages:
                self._flusher.flush()
        except OSError as error:
            if not local.active.is_tail_certain:
                with local.whole_or_unusable("append"):
                    raise
            raise local.storage_error("append", error) from error
        return AppendInfo(
            first.base_offset,
            last_offset,
            prepared.max_timestamp,
            prepared.log_append_time,
            local.log_start_offset,
            False,
            size,
            first.leader_epoch,
        )

    def _forget_epochs(self, batch: BatchFacts) -> None:
        """Forget the epochs behind a leader that writes an old format again: it knows none."""
        if self._leader_epochs.latest_epoch is not None:
            logger.warning(
                "%s: message format 0 or 1 at offset %d: forgetting the leader epochs before it",
                self._local.name,
                batch.last_offset,
            )
            self._leader_epochs.clear()

    def _roll_reason(self, size: int, max_timestamp: int, last_offset: int, now_ms: int) -> RollReason | None:
        segment, config = self._local.active, self._local.config
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
            segment_ms_max=self.rules.segment_ms_max - segment.roll_jitter_ms,
            indexes_full=segment.indexes_full,
            base_offset=segment.base_offset,
            incoming_last_offset=last_offset,
        )


def _are_in_sequence(batches: Sequence[RecordBatch]) -> bool:
    """Return whether each producer's batches follow one upon the other; the first of each is not looked at."""
    expected: dict[int, tuple[int, int]] = {}
    for batch in batches:
        found = (batch.producer_epoch, batch.base_sequence)
        if expected.get(batch.producer_id, found) != found:
            return False
        expected[batch.producer_id] = (batch.producer_epoch, (batch.last_sequence + 1) & 0x7FFF_FFFF)
    return True
