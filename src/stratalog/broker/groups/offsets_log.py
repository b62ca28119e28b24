"""`__consumer_offsets`: made when the first group needs it, appended to, and read back at a start."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stratalog.broker.groups.records import partition_for
from stratalog.errors import CoordinatorNotAvailableError, CorruptRecordError
from stratalog.log.values import Isolation
from stratalog.records.batch import RecordBatch, iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.compression import Codec
from stratalog.records.control import ControlType, parse_control_key
from stratalog.records.record import Record

if TYPE_CHECKING:
    from stratalog.broker.state import BrokerState
    from stratalog.broker.topics import Topics
    from stratalog.config.broker import BrokerConfig
    from stratalog.engine.partition import Partition

logger = logging.getLogger(__name__)

CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"

_READ_BYTES = 1024 * 1024
#: Keys and values of one batch: well below the default of max.message.bytes.
_BATCH_BYTES = 512 * 1024

#: Key and value; a value of None is a tombstone.
KeyValue = tuple[bytes, bytes | None]


class OffsetsLog:
    """The topic's partitions as a map that is written by appending. Belongs to the loop's thread."""

    def __init__(self, broker: BrokerState) -> None:
        self._broker = broker
        self._creating: asyncio.Future[object] | None = None

    @property
    def exists(self) -> bool:
        return self._broker.metadata.topic(CONSUMER_OFFSETS_TOPIC) is not None

    async def ensure(self) -> None:
        """Create the topic unless it is there; however many ask at once, it is made once."""
        if self.exists:
            return
        if self._creating is None or self._creating.done():
            self._creating = self._broker.submit(
                create_consumer_offsets, self._broker.topics, self._broker.config
            )
        await asyncio.shield(self._creating)

    def append(self, group_id: str, entries: Iterable[KeyValue]) -> None:
        """Append records of one group. CoordinatorNotAvailableError without the topic; otherwise the log's errors."""
        partition = self._partition_of(group_id)
        now_ms = self._broker.clock.now_ms()
        codec = Codec(self._broker.config["offsets.topic.compression.codec"])
        for chunk in _chunks(entries):
            records = [Record(at, now_ms, key, value) for at, (key, value) in enumerate(chunk)]
            partition.append(build_batch(records, codec=codec), origin="coordinator")

    def _partition_of(self, group_id: str) -> Partition:
        topic = self._broker.metadata.topic(CONSUMER_OFFSETS_TOPIC)
        number = 0 if topic is None else partition_for(group_id, topic.partition_count)
        partition = self._broker.logs.get(CONSUMER_OFFSETS_TOPIC, number)
        if partition is None:
            raise CoordinatorNotAvailableError(f"{CONSUMER_OFFSETS_TOPIC}-{number} is not there")
        return partition

    def read_back(self) -> Iterator[tuple[bytes, bytes]]:
        """The latest value of every key that has one, over all partitions."""
        for partition in self._broker.logs.partitions(CONSUMER_OFFSETS_TOPIC):
            yield from latest_values(partition).items()


def create_consumer_offsets(topics: Topics, config: BrokerConfig) -> object:
    """Create the topic, configured as Kafka does. May block."""
    return topics.ensure(
        CONSUMER_OFFSETS_TOPIC,
        config["offsets.topic.num.partitions"],
        {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config["offsets.topic.segment.bytes"]),
        },
    )


def _chunks(entries: Iterable[KeyValue]) -> Iterator[list[KeyValue]]:
    chunk: list[KeyValue] = []
    size = 0
    for key, value in entries:
        length = len(key) + len(value or b"")
        if chunk and size + length > _BATCH_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append((key, value))
        size += length
    if chunk:
        yield chunk


# --- reading back -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Entry:
    offset: int
    value: bytes | None


def latest_values(partition: Partition) -> dict[bytes, bytes]:
    """The latest value by key in one partition, without deleted keys and without what a transaction has not committed.

    A committed entry of a transaction counts at the offset of its record: a later plain one wins.
    """
    latest: dict[bytes, _Entry] = {}
    in_transaction: dict[int, dict[bytes, _Entry]] = {}
    for batch in _batches(partition):
        if batch.is_control:
            marked = in_transaction.pop(batch.producer_id, {})
            if _commits(batch):
                for key, entry in marked.items():
                    if key not in latest or latest[key].offset < entry.offset:
                        latest[key] = entry
            continue
        target = in_transaction.setdefault(batch.producer_id, {}) if batch.is_transactional else latest
        for record in batch.records():
            if record.key is not None:
                target[bytes(record.key)] = _Entry(
                    record.offset, None if record.value is None else bytes(record.value)
                )
    return {key: entry.value for key, entry in latest.items() if entry.value is not None}


def _batches(partition: Partition) -> Iterator[RecordBatch]:
    log = partition.log
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        fetched = log.read(offset, _READ_BYTES, isolation=Isolation.LOG_END, min_one_message=True)
        if fetched.slice is None:
            return
        before = offset
        for batch in iter_batches(fetched.slice.read()):
            try:
                batch.ensure_valid()
            except CorruptRecordError as error:
                logger.error("%s-%d: a batch is skipped: %s", partition.topic, partition.partition, error)
            else:
                yield batch
            offset = batch.last_offset + 1
        if offset == before:
            return


def _commits(batch: RecordBatch) -> bool:
    """Whether a control batch ends its transaction well."""
    return any(parse_control_key(record.key) is ControlType.COMMIT for record in batch.records())
