"""Write a RecordBatch: byte for byte what Kafka's `MemoryRecordsBuilder` writes for the same records, uncompressed.

Compressed batches hold the same records; their compressed bytes are the codec library's own.
"""

from __future__ import annotations

from collections.abc import Iterable

from stratalog.records import batch_format as fmt
from stratalog.records.compression import Codec, compress
from stratalog.records.record import RecordLike
from stratalog.records.record_format import encode_record
from stratalog.util import crc32c


def build_batch(
    records: Iterable[RecordLike],
    *,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    timestamp_type: int = fmt.CREATE_TIME,
    log_append_time_ms: int | None = None,
    producer_id: int = fmt.NO_PRODUCER_ID,
    producer_epoch: int = fmt.NO_PRODUCER_EPOCH,
    base_sequence: int = fmt.NO_SEQUENCE,
    partition_leader_epoch: int = fmt.NO_PARTITION_LEADER_EPOCH,
    is_transactional: bool = False,
    is_control: bool = False,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """Encode `records` as one batch.

    Deltas follow the records' own offsets, so gaps (compaction) are kept; `last_offset_delta` defaults to
    that of the last record and may only be larger. The base timestamp is that of the first record, or the
    delete horizon if one is given. The max timestamp is the largest of the records, or `log_append_time_ms`,
    which implies timestamp type 1. Without records `last_offset_delta` is required (a batch whose records
    compaction removed). Raises ValueError for what no batch can hold: offsets that do not ascend from
    `base_offset`, or too wide deltas.
    """
    if log_append_time_ms is not None:
        timestamp_type = fmt.LOG_APPEND_TIME
    payload = bytearray()
    base_timestamp = delete_horizon_ms
    max_timestamp = fmt.NO_TIMESTAMP
    last_delta = -1
    count = 0
    for record in records:
        delta = record.offset - base_offset
        if delta <= last_delta:
            raise ValueError(
                f"record {count} has offset {record.offset}, expected at least {base_offset + last_delta + 1}"
            )
        timestamp = record.timestamp_ms
        if base_timestamp is None:
            base_timestamp = timestamp
        encode_record(payload, delta, timestamp - base_timestamp, record.key, record.value, record.headers)
        max_timestamp = max(max_timestamp, timestamp)
        last_delta = delta
        count += 1
    if last_offset_delta is None:
        if not count:
            raise ValueError("a batch without records needs last_offset_delta")
        last_offset_delta = last_delta
    if not last_delta <= last_offset_delta <= fmt.SEQUENCE_MAX:
        raise ValueError(f"last offset delta {last_offset_delta} is not between {last_delta} and {fmt.SEQUENCE_MAX}")
    body = compress(codec, payload, level) if codec and count else payload
    attributes = (
        (codec if count else Codec.NONE)
        | (fmt.LOG_APPEND_TIME_BIT if timestamp_type == fmt.LOG_APPEND_TIME else 0)
        | (fmt.TRANSACTIONAL_BIT if is_transactional else 0)
        | (fmt.CONTROL_BIT if is_control else 0)
        | (fmt.DELETE_HORIZON_BIT if delete_horizon_ms is not None else 0)
    )
    length = fmt.LENGTH_MIN + len(body)
    if length + fmt.LOG_OVERHEAD > 0x7FFF_FFFF:
        raise ValueError(f"a batch of {length + fmt.LOG_OVERHEAD} bytes is larger than a batch can be")
    batch = bytearray(fmt.HEADER_SIZE)
    fmt.HEADER.pack_into(
        batch,
        0,
        base_offset,
        length,
        partition_leader_epoch,
        fmt.MAGIC,
        0,
        attributes,
        last_offset_delta,
        fmt.NO_TIMESTAMP if base_timestamp is None else base_timestamp,
        max_timestamp if log_append_time_ms is None else log_append_time_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    batch += body
    fmt.UINT32.pack_into(batch, fmt.CRC_AT, crc32c(memoryview(batch)[fmt.ATTRIBUTES_AT :]))
    return bytes(batch)
