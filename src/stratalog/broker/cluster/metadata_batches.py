"""Decoded batches of the metadata log: records for the image, and control records of the quorum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from typing_extensions import Buffer

from stratalog.records import iter_batches, parse_control_key
from stratalog.wire.metadata_records import FramedRecord, decode_control, decode_metadata_record


@dataclass(frozen=True, slots=True)
class MetadataBatch:
    """One batch: either records, or control records as kio's messages."""

    base_offset: int
    last_offset: int
    epoch: int
    records: tuple[FramedRecord, ...]
    control: tuple[Any, ...]


def decode_batches(data: Buffer) -> Iterator[MetadataBatch]:
    """Decode the complete batches in `data`; a truncated one at the end is skipped.

    Raises CorruptRecordError for invalid batches, and for records that this release does not know.
    """
    for batch in iter_batches(data):
        batch.ensure_valid()
        records: tuple[FramedRecord, ...] = ()
        control: tuple[Any, ...] = ()
        if batch.is_control:
            control = tuple(decode_control(parse_control_key(each.key), each.value) for each in batch.records())
        else:
            records = tuple(decode_metadata_record(each.value or b"") for each in batch.records())
        yield MetadataBatch(batch.base_offset, batch.last_offset, batch.partition_leader_epoch, records, control)
