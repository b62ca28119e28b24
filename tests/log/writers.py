"""Who writes into a log in tests: plain, idempotent and transactional producers, and the transaction coordinator."""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.log.format.values import AppendInfo
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch_builder import build_batch
from stratalog.records.control import ControlType, end_transaction_marker
from stratalog.records.record import Record

#: When nothing else is said; what `ManualClock` begins with.
NOW_MS = 1_700_000_000_000


def batch(
    count: int = 1, *, timestamp_ms: int = NOW_MS, value: bytes | None = b"test", key: bytes | None = None
) -> bytes:
    return build_batch([Record(i, timestamp_ms, key, value) for i in range(count)])


def append(log: PartitionLog, count: int = 1, *, times: int = 1, epoch: int = 0, timestamp_ms: int = NOW_MS) -> None:
    """`times` batches of `count` records of a plain producer; the high watermark stays where it is."""
    for _ in range(times):
        log.append_as_leader(batch(count, timestamp_ms=timestamp_ms), leader_epoch=epoch)


def follow(log: PartitionLog, offset: int, count: int = 1, *, epoch: int = 0, timestamp_ms: int = NOW_MS) -> None:
    """One batch as a leader of `epoch` made it."""
    records = [Record(offset + i, timestamp_ms, None, b"test") for i in range(count)]
    log.append_as_follower(build_batch(records, base_offset=offset, partition_leader_epoch=epoch))


def replicate(log: PartitionLog) -> None:
    """Every follower has everything."""
    log.update_high_watermark(log.log_end_offset)


@dataclass(slots=True)
class Producer:
    """A producer with an id; `sequence` is that of its next record."""

    log: PartitionLog
    producer_id: int
    epoch: int = 0
    transactional: bool = False
    sequence: int = 0

    def batch(self, count: int = 1, *, base_offset: int = 0, timestamp_ms: int = NOW_MS) -> bytes:
        """The next batch; `sequence` stays."""
        return build_batch(
            [Record(base_offset + i, timestamp_ms, b"k", b"test") for i in range(count)],
            base_offset=base_offset,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            is_transactional=self.transactional,
            partition_leader_epoch=0,
        )

    def append(self, count: int = 1, *, timestamp_ms: int = NOW_MS) -> AppendInfo:
        info = self.log.append_as_leader(self.batch(count, timestamp_ms=timestamp_ms), leader_epoch=0)
        self.sequence += count
        return info

    def end(self, kind: ControlType, *, coordinator_epoch: int = 0) -> AppendInfo:
        """The coordinator ends this producer's transaction."""
        marker = end_transaction_marker(
            kind,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=NOW_MS,
        )
        return self.log.append_as_leader(marker, leader_epoch=0, origin="coordinator")

    def commit(self, *, coordinator_epoch: int = 0) -> AppendInfo:
        return self.end(ControlType.COMMIT, coordinator_epoch=coordinator_epoch)

    def abort(self, *, coordinator_epoch: int = 0) -> AppendInfo:
        return self.end(ControlType.ABORT, coordinator_epoch=coordinator_epoch)
