"""Append the records of a Produce request to one partition.

Source: `ReplicaManager.appendRecordsToLeader` of Kafka 4.4. For records that are refused one by one, the response lists
them: a client fails those and retries the others of the batch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeAlias

from stratalog.broker.confirmation import Confirmation, Unconfirmed
from stratalog.broker.produce.produce_frames import PartitionResult, ProducedPartition
from stratalog.broker.server import Deferred
from stratalog.engine import Partition
from stratalog.engine.metrics import TopicTraffic
from stratalog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    KafkaError,
    KafkaStorageError,
    LargeBatchError,
    MessageTooLargeError,
    NotLeaderOrFollowerError,
    RecordListTooLargeError,
    StillLoadingError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
    wire_code,
)
from stratalog.log.append import CheckedRecords
from stratalog.log.format import AppendInfo
from stratalog.log.producers import VerificationGuard
from stratalog.records import Codec, batch_format as fmt, checked_batch_size, iter_batches, load_beside
from stratalog.wire import INT32

logger = logging.getLogger(__name__)

#: Longest wait for code that is loading, whatever the request's timeout.
_LOADING_MS_MAX = 30_000
#: First version that may contain zstd.
_ZSTD_FROM = 7
_ATTRIBUTES_LOW_BYTE_AT = fmt.ATTRIBUTES_AT + 1
_CODECS = frozenset(Codec)
#: Errors whose responses have no log start offset.
_WITHOUT_LOG_START = (
    CorruptRecordError,
    KafkaStorageError,
    MessageTooLargeError,
    NotLeaderOrFollowerError,
    RecordListTooLargeError,
)


#: Returns the guard of a transactional batch, or None if none is needed; raises the error for its client.
Admission: TypeAlias = Callable[[Partition, memoryview], VerificationGuard | None]


def append_records(
    partition: Partition | None,
    topic: str,
    entry: ProducedPartition,
    *,
    version: int,
    admit: Admission | None = None,
    may_wait: bool = False,
    refusal: KafkaError | None = None,
    missing: KafkaError | None = None,
    checked: CheckedRecords | KafkaError | None = None,
    unconfirmed: list[Unconfirmed] | None = None,
) -> PartitionResult:
    """Append a request's records to one partition; every error becomes a result.

    `admit` verifies transactional batches. After LargeBatchError (and StillLoadingError with `may_wait`) nothing was
    done: the caller retries, with `checked` as the result of the check. `refusal` is the error for valid records,
    `missing` the one for a partition that is not on this broker. With `unconfirmed`, all replicas have to confirm:
    pending appends are added to it.
    """
    index = entry.partition
    try:
        accepted = _accepted(partition, topic, entry, version, missing)
        if refusal is not None:
            checked_batch_size(accepted, 0)
            raise refusal
        assert partition is not None
        log = partition.log
        if unconfirmed is not None:
            partition.check_min_isr()
        leader_epoch = partition.leader_epoch
        guard = admit(partition, accepted) if admit is not None and is_transactional(accepted) else None
    except KafkaError as error:
        if partition is not None:
            _count_refusal(partition.traffic, entry, error)
        return PartitionResult(index, error.code, error_message=str(error))
    try:
        if isinstance(checked, KafkaError):
            raise checked
        info = partition.append(accepted if checked is None else checked, guard=guard)
    except KafkaError as error:
        if isinstance(error, LargeBatchError) or (may_wait and isinstance(error, StillLoadingError)):
            partition.traffic.produce_requests -= 1  # the retry counts it again
            raise
        _count_refusal(partition.traffic, entry, error)
        log_start = -1 if isinstance(error, _WITHOUT_LOG_START) else log.log_start_offset
        return PartitionResult(
            index,
            error.code,
            log_start_offset=log_start,
            error_message=str(error),
            record_errors=error.record_errors,
        )
    except OSError as error:
        partition.traffic.failed_produce_requests += 1
        logger.error("%s-%d cannot be written: %s", topic, index, error)
        return PartitionResult(index, KafkaStorageError.code, error_message="the log directory failed")
    except Exception as error:
        partition.traffic.failed_produce_requests += 1
        logger.exception("The append to %s-%d failed", topic, index)
        return PartitionResult(index, wire_code(error), log_start_offset=log.log_start_offset)
    if unconfirmed is not None:
        unconfirmed.append(Unconfirmed(partition, topic, info.last_offset, leader_epoch))
    return appended_result(index, info)


def appended_result(index: int, info: AppendInfo) -> PartitionResult:
    """Return the result for a partition whose records are in the log."""
    return PartitionResult(index, 0, info.first_offset, info.log_append_time, info.log_start_offset)


def is_transactional(records: memoryview | None) -> bool:
    """Return whether the first batch is transactional."""
    return (
        records is not None
        and len(records) >= fmt.HEADER_SIZE
        and records[fmt.MAGIC_AT] == fmt.MAGIC
        and bool(records[_ATTRIBUTES_LOW_BYTE_AT] & fmt.TRANSACTIONAL_BIT)
    )


def begins_transactional(records: memoryview | None) -> bool:
    """Return whether the first batch for a partition is transactional.

    Raises CorruptRecordError where Kafka, which checks all partitions first, fails the whole request: for a length
    below that of any batch, or an unknown format. A truncated batch is left to the append.
    """
    if records is None or len(records) < fmt.LOG_OVERHEAD:
        return False
    (length,) = fmt.INT32.unpack_from(records, fmt.LENGTH_AT)
    if length < fmt.LEGACY_LENGTH_MIN:
        raise CorruptRecordError(
            f"Record size {length} is less than the minimum record overhead ({fmt.LEGACY_LENGTH_MIN})"
        )
    if len(records) < fmt.HEADER_SIZE_UP_TO_MAGIC:
        return False
    magic = records[fmt.MAGIC_AT]
    if magic > fmt.MAGIC:
        raise CorruptRecordError(f"Invalid magic found in record: {magic if magic < 128 else magic - 256}")
    return (
        len(records) >= fmt.LOG_OVERHEAD + length
        and magic == fmt.MAGIC
        and bool(records[_ATTRIBUTES_LOW_BYTE_AT] & fmt.TRANSACTIONAL_BIT)
    )


def _count_refusal(traffic: TopicTraffic, entry: ProducedPartition, error: KafkaError) -> None:
    """Count a refusal in the same metric as Kafka."""
    records = entry.records or b""
    if isinstance(error, CorruptRecordError):
        traffic.invalid_crc += 1
    elif isinstance(error, MessageTooLargeError):
        traffic.bytes_rejected += len(records)
    elif isinstance(error, InvalidRecordError):
        traffic.failed_produce_requests += 1
        if error.record_errors:
            traffic.no_key_compacted += len(error.record_errors)
        elif len(records) > fmt.MAGIC_AT and records[fmt.MAGIC_AT] != fmt.MAGIC:
            traffic.invalid_magic += 1
        else:
            traffic.invalid_offset_or_sequence += 1


def refusal_of(topic: str, entry: ProducedPartition, version: int) -> KafkaError | None:
    """Return the error for records that are invalid in a request of this version, for any partition; or None."""
    try:
        _checked(topic, entry, version)
    except KafkaError as error:
        return error
    return None


def _accepted(
    partition: Partition | None, topic: str, entry: ProducedPartition, version: int, missing: KafkaError | None = None
) -> memoryview:
    """Return the records if they are valid for this request."""
    if partition is None:
        raise missing or UnknownTopicOrPartitionError("This server does not host this topic-partition.")
    return _checked(topic, entry, version)


def _checked(topic: str, entry: ProducedPartition, version: int) -> memoryview:
    index, records, _ = entry
    if not records:
        raise InvalidRecordError(f"no record batch for {topic}-{index}, expected exactly one")
    if len(records) < fmt.HEADER_SIZE_UP_TO_MAGIC:
        raise InvalidRecordError(f"{len(records)} bytes for {topic}-{index} hold no record batch, expected one")
    if records[fmt.MAGIC_AT] < fmt.MAGIC:
        checked_batch_size(records, 0)  # zeros are not an old format
        raise InvalidRecordError(
            f"message format {records[fmt.MAGIC_AT]} for {topic}-{index}, Produce takes only format {fmt.MAGIC}"
        )
    (length,) = INT32.unpack_from(records, fmt.LENGTH_AT)
    if length + fmt.LOG_OVERHEAD > len(records):
        size = checked_batch_size(records, 0)
        raise InvalidRecordError(
            f"{len(records)} bytes for {topic}-{index} hold no whole record batch, its length says {size}"
        )
    if len(records) < fmt.HEADER_SIZE:
        return records  # a length that no batch has: the log reports it
    codec = records[_ATTRIBUTES_LOW_BYTE_AT] & fmt.CODEC_MASK
    if version < _ZSTD_FROM and codec == Codec.ZSTD:
        raise UnsupportedCompressionTypeError(f"zstd needs Produce v{_ZSTD_FROM} or later")
    if version < _ZSTD_FROM and codec not in _CODECS:
        raise UnsupportedCompressionTypeError(f"compression type {codec}, expected {min(_CODECS)} to {max(_CODECS)}")
    if length + fmt.LOG_OVERHEAD < len(records) and sum(1 for _ in iter_batches(records)) > 1:
        raise InvalidRecordError(f"more than one record batch for {topic}-{index}, expected exactly one")
    return records


class PendingAcks(Confirmation, Deferred):
    """A request that waits until all replicas have confirmed its appends, or for its timeout."""


class PendingAppends(Deferred):
    """A request that waits until large batches can be checked, or for its timeout. Belongs to the loop's thread."""

    __slots__ = ("_go_on", "_loop", "_over", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_ms: int, go_on: Callable[[], object]) -> None:
        """`go_on` is called once, in a later turn of the loop, unless this is cancelled first."""
        self._loop = loop
        self._go_on = go_on
        self._over = False
        self._timer = loop.call_later(min(max(timeout_ms, 0), _LOADING_MS_MAX) / 1000, self._end)
        load_beside(self._loaded)

    def cancel(self) -> None:
        self._over = True
        self._timer.cancel()

    def _loaded(self) -> None:
        """Handle the end of loading, on another thread."""
        try:
            self._loop.call_soon_threadsafe(self._end)
        except RuntimeError:  # the loop is closed
            return

    def _end(self) -> None:
        if not self._over:
            self.cancel()
            self._go_on()
