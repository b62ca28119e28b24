"""Filter the records of a batch and build the batch of the retained ones: the plain twin of `filter_kernel`.

It also handles batches that the native loops leave out: those of message formats 0 and 1, and those with an unusual
encoding (numbers longer than necessary, header keys beyond ASCII), which are rewritten field by field. Source: Kafka's
`MemoryRecords.filterTo` and `Cleaner.shouldRetainRecord`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from typing_extensions import Buffer

from stratalog.log.cleaner.superseded import NewerRecords
from stratalog.log.cleaner.verdict import BatchVerdict
from stratalog.records import Record, RecordBatch, batch_format as fmt, build_batch
from stratalog.util import crc32c


@dataclass(frozen=True, slots=True)
class FilterRules:
    """The facts of one cleaning. `keep_legacy_deletes` is for tombstones of message formats 0 and 1."""

    newer: NewerRecords
    now_ms: int
    delete_retention_ms: int
    keep_legacy_deletes: bool = True


@dataclass(frozen=True, slots=True)
class FilteredBatch:
    """The result for a batch: its bytes, none if it is dropped; counts of records read, kept, and without a key."""

    data: Buffer | None
    read: int
    retained: int
    keyless: int


def filter_batch(batch: RecordBatch, verdict: BatchVerdict, rules: FilterRules) -> FilteredBatch:
    """Filter one batch.

    Raises CorruptRecordError or InvalidRecordError for malformed records, ValueError if offsets do not ascend.
    """
    if verdict.is_deletion:
        return FilteredBatch(None, 0, 0, 0)
    read = keyless = 0
    retained: list[Record] = []
    for record in batch.records():
        read += 1
        if verdict.discard:
            continue
        if batch.is_control or stays(batch, record, rules):
            retained.append(record)
        elif record.key is None:
            keyless += 1
    if not retained:
        return FilteredBatch(empty_batch(batch) if verdict.keep_empty else None, read, 0, keyless)
    has_horizon = batch.delete_horizon_ms is not None
    is_tombstone = any(record.value is None for record in retained)
    needs_horizon = not has_horizon and (is_tombstone or verdict.is_marker_of_nothing)
    if len(retained) == read and not needs_horizon and batch.magic == fmt.MAGIC:
        return FilteredBatch(batch.as_memoryview(), read, read, keyless)
    horizon_ms = rules.now_ms + rules.delete_retention_ms if needs_horizon else batch.delete_horizon_ms
    return FilteredBatch(rewritten_batch(batch, retained, horizon_ms), read, len(retained), keyless)


def stays(batch: RecordBatch, record: Record, rules: FilterRules) -> bool:
    """Return whether a record of a batch that is not discarded is retained.

    It is if it lies after the end of the map, or if no newer record has its key and it is not an expired tombstone.
    """
    if record.offset > rules.newer.latest_offset:
        return True
    if record.key is None or rules.newer.is_superseded(record.key, record.offset):
        return False
    return record.value is not None or _keeps_tombstones(batch, rules)


def _keeps_tombstones(batch: RecordBatch, rules: FilterRules) -> bool:
    if batch.magic < fmt.MAGIC:
        return rules.keep_legacy_deletes
    horizon_ms = batch.delete_horizon_ms
    return horizon_ms is None or rules.now_ms < horizon_ms


def rewritten_batch(batch: RecordBatch, retained: Iterable[Record], horizon_ms: int | None) -> bytes:
    """Return a batch of format 2 with only these records, and the same base offset, last offset, sequences and codec.

    A delete horizon replaces the base timestamp. A negative one counts as none.
    """
    records = list(retained)
    is_current = batch.magic == fmt.MAGIC
    base_offset = batch.base_offset if is_current else records[0].offset
    return build_batch(
        records,
        base_offset=base_offset,
        last_offset_delta=batch.last_offset - base_offset if is_current else None,
        codec=batch.codec,
        log_append_time_ms=batch.max_timestamp if batch.timestamp_type == fmt.LOG_APPEND_TIME else None,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        partition_leader_epoch=batch.partition_leader_epoch,
        is_transactional=batch.is_transactional,
        is_control=batch.is_control,
        delete_horizon_ms=horizon_ms if horizon_ms is not None and horizon_ms >= 0 else None,
    )


def empty_batch(batch: RecordBatch) -> bytes:
    """Return a batch of format 2 without records, and with the same offsets, producer and max timestamp."""
    kept_bits = fmt.LOG_APPEND_TIME_BIT | fmt.TRANSACTIONAL_BIT | fmt.CONTROL_BIT
    header = bytearray(
        fmt.HEADER.pack(
            batch.base_offset,
            fmt.LENGTH_MIN,
            batch.partition_leader_epoch,
            fmt.MAGIC,
            0,
            batch.attributes & kept_bits,
            batch.last_offset_delta,
            fmt.NO_TIMESTAMP,
            batch.max_timestamp,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            0,
        )
    )
    fmt.UINT32.pack_into(header, fmt.CRC_AT, crc32c(memoryview(header)[fmt.ATTRIBUTES_AT :]))
    return bytes(header)
