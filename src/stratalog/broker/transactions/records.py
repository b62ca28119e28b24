"""Keys and values of the records in `__transaction_state`, byte for byte as Apache Kafka writes them.

    key 0    TransactionLogKey    transactional id STRING
    value 0  TransactionLogValue  producer id int64, producer epoch int16, timeout ms int32, state int8, partitions
                                  ARRAY (null in state EMPTY) of: topic STRING, partitions ARRAY of int32; last update
                                  ms int64, start ms int64
    value 1                       the same in the flexible encoding, with tagged fields: 0 previous producer id int64, 1
                                  next producer id int64 (each left out when -1), 2 transactions version of the client
                                  int16 (left out when 0), 3 next producer epoch int16 (never written)

`record_fields` has the encodings. Both begin with the int16 version of their schema; a null value is a tombstone. Value
1 is written from `transaction.version` 1 on. Topics and partitions are written in ascending order. Kafka uses the order
of Java hash tables, which has no meaning: with several partitions the records are equal except for the order.

Source: Kafka's TransactionLogKey and TransactionLogValue schemas, `TransactionLog`.
"""

from __future__ import annotations

from collections.abc import Iterable

from stratalog.broker.groups import TopicPartition
from stratalog.broker.transactions.states import TransactionState
from stratalog.broker.transactions.transaction import Transaction
from stratalog.records import NO_PRODUCER_ID
from stratalog.wire import (
    INT8,
    INT16,
    INT32,
    INT64,
    FieldReader,
    put_count,
    put_string,
    put_tags,
)

KEY_VERSION = 0
VALUE_VERSION_MAX = 1
_FLEXIBLE = 1
_PREVIOUS_PRODUCER_ID_TAG, _NEXT_PRODUCER_ID_TAG, _CLIENT_VERSION_TAG = 0, 1, 2


def value_version(transaction_version: int) -> int:
    return 0 if transaction_version < 1 else 1


def encode_key(transactional_id: str) -> bytes:
    out = bytearray(INT16.pack(KEY_VERSION))
    put_string(out, transactional_id)
    return bytes(out)


def encode_value(transaction: Transaction, version: int) -> bytes:
    flexible = version >= _FLEXIBLE
    out = bytearray(INT16.pack(version))
    out += INT64.pack(transaction.producer_id) + INT16.pack(transaction.producer_epoch)
    out += INT32.pack(transaction.timeout_ms) + INT8.pack(transaction.state.value)
    if transaction.state is TransactionState.EMPTY:
        put_count(out, -1, flexible=flexible)
    else:
        _put_partitions(out, transaction.partitions, flexible=flexible)
    out += INT64.pack(transaction.last_update_ms) + INT64.pack(transaction.start_ms)
    if flexible:
        put_tags(out, _tags(transaction))
    return bytes(out)


def _put_partitions(out: bytearray, partitions: Iterable[TopicPartition], *, flexible: bool) -> None:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    put_count(out, len(by_topic), flexible=flexible)
    for topic, numbers in by_topic.items():
        put_string(out, topic, flexible=flexible)
        put_count(out, len(numbers), flexible=flexible)
        for number in numbers:
            out += INT32.pack(number)
        if flexible:
            put_tags(out, {})


def _tags(transaction: Transaction) -> dict[int, bytes]:
    tags = {}
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        tags[_PREVIOUS_PRODUCER_ID_TAG] = INT64.pack(transaction.previous_producer_id)
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tags[_NEXT_PRODUCER_ID_TAG] = INT64.pack(transaction.next_producer_id)
    if transaction.client_version:
        tags[_CLIENT_VERSION_TAG] = INT16.pack(transaction.client_version)
    return tags


def decode_key(data: bytes) -> str | None:
    """Return the transactional id, or None for an unknown kind of key. CorruptRecordError for invalid data."""
    reader = FieldReader(data, "key of a __transaction_state record")
    return reader.string() if reader.int16() == KEY_VERSION else None


def decode_value(transactional_id: str, data: bytes) -> Transaction:
    """Return a value of either version; CorruptRecordError for invalid data or an unknown version."""
    reader = FieldReader(data, f"value of transactional id '{transactional_id}' in __transaction_state")
    reader.version(VALUE_VERSION_MAX, _FLEXIBLE)
    producer_id, epoch, timeout_ms = reader.int64(), reader.int16(), reader.int32()
    state = _state(reader)
    partitions = _partitions(reader)
    last_update_ms, start_ms = reader.int64(), reader.int64()
    tags = reader.tags()

    def tag(number: int, absent: int) -> int:
        return int.from_bytes(tags[number], "big", signed=True) if number in tags else absent

    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        state=state,
        partitions=frozenset() if state is TransactionState.EMPTY else partitions,
        start_ms=start_ms,
        last_update_ms=last_update_ms,
        previous_producer_id=tag(_PREVIOUS_PRODUCER_ID_TAG, NO_PRODUCER_ID),
        next_producer_id=tag(_NEXT_PRODUCER_ID_TAG, NO_PRODUCER_ID),
        client_version=tag(_CLIENT_VERSION_TAG, 0),
    )


def _state(reader: FieldReader) -> TransactionState:
    number = reader.int8()
    try:
        return TransactionState(number)
    except ValueError:
        raise reader.damaged(f"state {number}, known are 0 to 7") from None


def _partitions(reader: FieldReader) -> frozenset[TopicPartition]:
    found: set[TopicPartition] = set()
    for _ in range(reader.count()):
        topic = reader.string()
        found.update(TopicPartition(topic, reader.int32()) for _ in range(reader.count()))
        reader.tags()
    return frozenset(found)
