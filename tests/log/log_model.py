"""A partition as a plain list of records, and what a PartitionLog must say of it."""

from __future__ import annotations

from collections.abc import Sequence

from stratalog.log.format.values import Isolation
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record


def batch_of(values: Sequence[bytes], timestamps: Sequence[int], **fields: int) -> bytes:
    records = [Record(i, ts, b"k", value) for i, (value, ts) in enumerate(zip(values, timestamps, strict=True))]
    return build_batch(records, **fields)  # type: ignore[arg-type]


def read_records(log: PartitionLog, start: int, max_bytes: int = 700) -> list[Record]:
    """Every record from `start` on, by reads of `max_bytes`; CRCs are checked."""
    found: list[Record] = []
    offset = start
    while offset < log.log_end_offset:
        data = log.read(offset, max_bytes, isolation=Isolation.LOG_END)
        if data.slice is None:
            break
        whole = 0
        for batch in iter_batches(data.slice.read()):
            batch.ensure_valid()
            found += [record for record in batch.records() if record.offset >= offset]
            offset = batch.next_offset
            whole += 1
        assert whole, f"nothing whole at offset {offset}"
    return found


def assert_lookups(log: PartitionLog, records: Sequence[Record]) -> None:
    """Every offset and every timestamp of `records` is found where it is."""
    for record in records:
        data = log.read(record.offset, 1, isolation=Isolation.LOG_END)
        assert data.slice is not None
        (batch,) = iter_batches(data.slice.read())
        assert batch.base_offset <= record.offset <= batch.last_offset
        first = next(r for r in records if r.timestamp_ms >= record.timestamp_ms)
        found = log.offset_for_timestamp(record.timestamp_ms)
        assert found == (first.timestamp_ms, first.offset)
    newest = max((record.timestamp_ms for record in records), default=-1)
    latest = log.max_timestamp()
    if records:
        assert latest is not None
        assert latest[:2] == (newest, next(r.offset for r in records if r.timestamp_ms == newest))
