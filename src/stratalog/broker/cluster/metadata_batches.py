"""Batches of the metadata log, decoded: records for the image, and what the quorum says about itself."""

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
    """Decode the whole batches in `data`; one that is cut off at the end is left out.

    Raises CorruptRecordError for bytes that are no batches, and for records that this release does not know.
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
