"""Control records: markers that brokers and controllers write among the records; consumers never see them.

    key    version  int16   0
           type     int16   `ControlType`
    value  of a transaction marker:
           version  int16   0
           coordinator epoch  int32

Source: Kafka's `ControlRecordType`, `EndTransactionMarker`, `MemoryRecords.withEndTransactionMarker`. As there, a newer
version is read as far as it is known.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from stratalog.errors import InvalidRecordError
from stratalog.records import batch_format as fmt
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record

_KEY: Final = struct.Struct(">hh")
_END_TRANSACTION_VALUE: Final = struct.Struct(">hi")
_VERSION: Final = 0


class ControlType(IntEnum):
    """Types of control records. Those that this version does not know are UNKNOWN."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """The value of an ABORT or COMMIT record."""

    coordinator_epoch: int


def control_key(control_type: ControlType) -> bytes:
    """Return the key of a control record."""
    if control_type is ControlType.UNKNOWN:
        raise ValueError("an unknown control type cannot be written")
    return _KEY.pack(_VERSION, control_type)


def parse_control_key(key: bytes | None) -> ControlType:
    """Return the type of a control record, UNKNOWN for a future one. Raises InvalidRecordError for a wrong key."""
    if key is None or len(key) < _KEY.size:
        raise InvalidRecordError(
            f"control record key of {0 if key is None else len(key)} bytes, expected at least {_KEY.size}"
        )
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecordError(f"control record key has version {version}, expected 0 or more")
    return _BY_NUMBER.get(number, ControlType.UNKNOWN)


_BY_NUMBER: Final = {member.value: member for member in ControlType}


def parse_control_value(value: bytes | None) -> EndTransactionMarker:
    """Return the value of an ABORT or COMMIT record. Raises InvalidRecordError when it is none."""
    if value is None or len(value) < _END_TRANSACTION_VALUE.size:
        raise InvalidRecordError(
            f"transaction marker value of {0 if value is None else len(value)} bytes,"
            f" expected at least {_END_TRANSACTION_VALUE.size}"
        )
    version, coordinator_epoch = _END_TRANSACTION_VALUE.unpack_from(value)
    if version < 0:
        raise InvalidRecordError(f"transaction marker value has version {version}, expected 0 or more")
    return EndTransactionMarker(coordinator_epoch)


def end_transaction_marker(
    control_type: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    partition_leader_epoch: int = fmt.NO_PARTITION_LEADER_EPOCH,
) -> bytes:
    """Return the batch that ends a transaction: one ABORT or COMMIT record, uncompressed, without sequence."""
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        raise ValueError(f"a transaction ends with ABORT or COMMIT, not {control_type.name}")
    value = _END_TRANSACTION_VALUE.pack(_VERSION, coordinator_epoch)
    return build_batch(
        [Record(base_offset, timestamp_ms, control_key(control_type), value)],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partition_leader_epoch=partition_leader_epoch,
        is_transactional=True,
        is_control=True,
    )
