"""A partition's worth of everything, written by us, and what a consumer must see of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from stratalog.config.topic import LogConfig
from stratalog.log.format.values import Isolation
from stratalog.log.partition_log import PartitionLog
from stratalog.records import Codec, ControlType, Record, build_batch, end_transaction_marker
from stratalog.records.batch import iter_batches
from stratalog.records.record import Header

T0 = 1_700_000_000_000
#: Several segments and many index entries out of half a megabyte.
SMALL_SEGMENTS = LogConfig(segment_bytes=100_000, index_interval_bytes=1_000, retention_ms=-1)
IDEMPOTENT, COMMITTED, ABORTED = 4000, 4001, 4002


@dataclass(frozen=True, slots=True)
class Seen:
    """A record as a consumer sees it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


@dataclass(slots=True)
class Written:
    """All data records in order; `committed` leaves out those of aborted transactions."""

    all: list[Seen] = field(default_factory=list)
    committed: list[Seen] = field(default_factory=list)

    def add(self, records: Iterable[Record], first_offset: int, *, committed: bool = True) -> None:
        for record in records:
            seen = Seen(first_offset + record.offset, record.timestamp_ms, record.key, record.value, record.headers)
            self.all.append(seen)
            if committed:
                self.committed.append(seen)


def some_records(count: int, salt: int) -> list[Record]:
    """Null and empty keys and values, headers with every kind of value, timestamps that go back now and then."""
    return [
        Record(
            i,
            T0 + salt * 60_000 + i * 10 - (500 if i % 11 == 3 else 0),
            None if i % 3 == 0 else b"" if i % 13 == 1 else b"key-%d" % i,
            None if i % 7 == 5 else b"value %d of %d " % (i, salt) * (i % 17),
            (("trace", b"\x00\xff"), ("größe", None), ("trace", b"")) if i % 4 == 2 else (),
        )
        for i in range(count)
    ]


def write_everything(log: PartitionLog, *, leader_epochs: Iterable[int] = (0,), rounds: int = 4) -> Written:
    """Every codec, an idempotent producer, a committed and an aborted transaction, `rounds` times over."""
    written = Written()
    sequence = 0
    for epoch in leader_epochs:
        for salt in range(rounds):
            for codec in Codec:
                records = some_records(60, salt)
                info = log.append_as_leader(build_batch(records, codec=codec), leader_epoch=epoch)
                written.add(records, info.first_offset)
            for _ in range(3):
                records = some_records(25, salt)
                batch = build_batch(
                    records, codec=Codec.LZ4, producer_id=IDEMPOTENT, producer_epoch=0, base_sequence=sequence
                )
                written.add(records, log.append_as_leader(batch, leader_epoch=epoch).first_offset)
                sequence += len(records)
            for producer_id, end in ((COMMITTED, ControlType.COMMIT), (ABORTED, ControlType.ABORT)):
                _write_transaction(log, written, producer_id, end, epoch, salt)
    log.update_high_watermark(log.log_end_offset)
    return written


def _write_transaction(
    log: PartitionLog, written: Written, producer_id: int, end: ControlType, epoch: int, salt: int
) -> None:
    """One transaction of two batches. Each begins a new producer epoch, so sequences start again too."""
    producer_epoch = epoch * 100 + salt
    for part in range(2):
        records = some_records(20, salt)
        batch = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=part * 20,
            is_transactional=True,
        )
        info = log.append_as_leader(batch, leader_epoch=epoch)
        written.add(records, info.first_offset, committed=end is ControlType.COMMIT)
    marker = end_transaction_marker(
        end,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=0,
        timestamp_ms=T0 + salt * 60_000,
    )
    log.append_as_leader(marker, leader_epoch=epoch, origin="coordinator")


def write_partition(directory: Path, **options: object) -> Written:
    """Make a partition directory of small segments with everything in it, and close it."""
    log = PartitionLog.open(directory, SMALL_SEGMENTS)
    try:
        return write_everything(log, **options)  # type: ignore[arg-type]
    finally:
        log.close()


def read_log(log: PartitionLog, *, committed_only: bool = False) -> list[Seen]:
    """Every data record of an open log, through `read`; with `committed_only` as a consumer of these does it."""
    log.update_high_watermark(log.log_end_offset)
    isolation = Isolation.TXN_COMMITTED if committed_only else Isolation.HIGH_WATERMARK
    end_offset = log.last_stable_offset if committed_only else log.log_end_offset
    seen: list[Seen] = []
    offset = log.log_start_offset
    aborted_spans: set[tuple[int, int, int]] = set()
    while offset < end_offset:
        data = log.read(offset, 1 << 16, isolation=isolation)
        assert data.slice is not None
        aborted_spans |= {(a.producer_id, a.first_offset, a.last_offset) for a in data.aborted or ()}
        for batch in iter_batches(data.slice.read()):
            batch.ensure_valid()
            is_aborted = batch.is_transactional and any(
                batch.producer_id == producer_id and first <= batch.base_offset <= last
                for producer_id, first, last in aborted_spans
            )
            if not batch.is_control and not is_aborted:
                seen.extend(Seen(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in batch.records())
            offset = batch.last_offset + 1
    return seen


def consume(
    bootstrap_servers: str,
    topic: str,
    *,
    committed_only: bool = False,
    offset: int = 0,
    timeout_s: float = 60,
) -> list[Seen]:
    """What librdkafka's consumer gets of partition 0, from `offset` to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "interop",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "isolation.level": "read_committed" if committed_only else "read_uncommitted",
        }
    )
    seen: list[Seen] = []
    try:
        consumer.assign([TopicPartition(topic, 0, offset)])
        while (message := consumer.poll(timeout_s)) is not None:
            error = message.error()
            if error is None:
                seen.append(_seen(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                return seen
            elif not error.retriable():
                raise AssertionError(f"the consumer of {topic} got {error}")
    finally:
        consumer.close()
    raise AssertionError(f"{topic} did not end within {timeout_s} s; {len(seen)} records came")


def _seen(message: Message) -> Seen:
    headers: Any = message.headers() or ()
    offset = message.offset()
    assert offset is not None
    return Seen(offset, message.timestamp()[1], message.key(), message.value(), tuple(headers))
