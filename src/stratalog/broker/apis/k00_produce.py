"""Produce (0): append batches to partitions.

v3 to v13. v7: zstd. v8: error messages. v9: flexible. v13: topics by id. acks=0 gets no response, and a failure closes the
connection so that the client notices (as Kafka does); acks=1 and acks=all are the same with one replica. Batches with a
transactional id are refused until there is a transaction coordinator: nothing would ever end the transaction.
ApiVersions advertises v0 for librdkafka's sake, as Kafka does (KAFKA-18659); v0 to v2 themselves are refused.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from stratalog.broker.connection import Chunk, Connection
from stratalog.broker.dispatch import ApiKey, handles_frames
from stratalog.broker.produce_frames import (
    FLEXIBLE_FROM,
    TOPIC_IDS_FROM,
    PartitionRecords,
    PartitionResult,
    ProduceRequest,
    encode_produce,
    parse_produce,
)
from stratalog.broker.produce_template import ProduceTemplate
from stratalog.broker.protocol import INT32, read_client_id
from stratalog.broker.state import BrokerState
from stratalog.broker.topics import INTERNAL_TOPICS
from stratalog.engine.partition import Partition
from stratalog.errors import (
    InvalidRecordError,
    InvalidRequiredAcksError,
    InvalidTopicError,
    KafkaError,
    KafkaStorageError,
    NotEnoughReplicasError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
    wire_code,
)
from stratalog.records import batch_format as fmt
from stratalog.records.batch import iter_batches
from stratalog.records.compression import Codec

logger = logging.getLogger(__name__)

_ZSTD_FROM = 7
#: The client that Kafka's own tools use to write to internal topics.
_ADMIN_CLIENT = "__admin_client"
_ATTRIBUTES_LOW_BYTE_AT = fmt.ATTRIBUTES_AT + 1


@handles_frames(ApiKey.PRODUCE, versions=(3, 13), flexible_from=FLEXIBLE_FROM, advertised_min=0)
def produce(
    connection: Connection, version: int, correlation_id: int, frame: memoryview, position: int
) -> Sequence[Chunk] | None:
    request = parse_produce(frame, position, version)
    state = connection.state
    refusal = _refusal(request)
    results = []
    failed = False
    partition: Partition | None = None
    for key, partitions in request.topics:
        done = []
        name, unknown = _topic_name(state, key, version)
        if name in INTERNAL_TOPICS and read_client_id(frame)[0] != _ADMIN_CLIENT:
            unknown = InvalidTopicError(f"clients may not write to the internal topic {name}")
        error = refusal or unknown
        for entry in partitions:
            if error is None:
                partition = state.logs.get(name, entry.partition)
                result = _append(partition, name, entry, request.acks, version)
            else:
                result = PartitionResult(entry.partition, error.code, error_message=str(error))
            failed = failed or result.error_code != 0
            done.append(result)
        results.append((key, done))
    if request.acks == 0:
        if failed:
            connection.reject(f"produce with acks=0 failed: {_first_message(results)}")
        return None
    if not failed and partition is not None:
        connection.template = ProduceTemplate.of(frame, version, request, partition)
    return (encode_produce(version, correlation_id, results),)


def _refusal(request: ProduceRequest) -> KafkaError | None:
    """Why nothing of the request is done."""
    if request.acks not in (-1, 0, 1):
        return InvalidRequiredAcksError(f"acks is {request.acks}, expected -1, 0 or 1")
    if request.transactional_id is not None:
        return TransactionalIdAuthorizationFailedError("transactions are not available on this broker")
    return None


def _topic_name(state: BrokerState, key: bytes, version: int) -> tuple[str, KafkaError | None]:
    if version < TOPIC_IDS_FROM:
        return str(key, "utf-8"), None
    name = state.topic_name(key)
    if name is None:
        return "", UnknownTopicIdError("This server does not host this topic ID.")
    return name, None


def _append(
    partition: Partition | None, topic: str, entry: PartitionRecords, acks: int, version: int
) -> PartitionResult:
    index, records = entry
    try:
        if partition is None:
            raise UnknownTopicOrPartitionError("This server does not host this topic-partition.")
        if records is None:
            raise InvalidRecordError(f"no records for {topic}-{index}")
        if acks < 0 and partition.log.config.min_insync_replicas > 1:
            raise NotEnoughReplicasError(
                f"{topic}-{index} has 1 replica in sync, but min.insync.replicas asks for "
                f"{partition.log.config.min_insync_replicas}"
            )
        if version < _ZSTD_FROM and _codec(records) == Codec.ZSTD:
            raise UnsupportedCompressionTypeError(f"zstd needs Produce v{_ZSTD_FROM} or later")
        _check_single(records, topic, index)
        info = partition.append(records)
    except KafkaError as error:
        return PartitionResult(index, error.code, error_message=str(error))
    except OSError as error:
        logger.error("%s-%d cannot be written: %s", topic, index, error)
        return PartitionResult(index, KafkaStorageError.code, error_message="the log directory failed")
    except Exception as error:
        logger.exception("The append to %s-%d failed", topic, index)
        return PartitionResult(index, wire_code(error))
    return PartitionResult(index, 0, info.first_offset, info.log_append_time, info.log_start_offset)


def _check_single(records: memoryview, topic: str, index: int) -> None:
    """Exactly one batch for each partition; what is no batch at all is for the log to say."""
    if len(records) < fmt.HEADER_SIZE:
        return
    (length,) = INT32.unpack_from(records, fmt.LENGTH_AT)
    if length + fmt.LOG_OVERHEAD < len(records) and sum(1 for _ in iter_batches(records)) > 1:
        raise InvalidRecordError(f"more than one record batch for {topic}-{index}, expected exactly one")


def _codec(records: memoryview) -> int:
    if len(records) <= _ATTRIBUTES_LOW_BYTE_AT:
        return 0
    return records[_ATTRIBUTES_LOW_BYTE_AT] & fmt.CODEC_MASK


def _first_message(results: list[tuple[bytes, list[PartitionResult]]]) -> str:
    failures = (
        f"{str(key, 'utf-8', 'replace')}-{result.partition}: {result.error_message or result.error_code}"
        for key, done in results
        for result in done
        if result.error_code
    )
    return next(failures, "")
