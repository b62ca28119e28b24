"""Format control records as kafka-dump-log does: transaction markers, and the records of KRaft."""

from __future__ import annotations

from typing import Final

from stratalog.cli.dump.message_schema import MalformedMessageError, decode_message, schemas, to_json
from stratalog.errors import InvalidRecordError
from stratalog.records import ControlType, Record, parse_control_key, parse_control_value

#: By control type: the prefix of the JSON, and the schema of the value. Values are read as version 0.
_KRAFT: Final = {
    ControlType.LEADER_CHANGE: ("LeaderChange:", "LeaderChangeMessage"),
    ControlType.SNAPSHOT_HEADER: ("SnapshotHeader", "SnapshotHeaderRecord"),
    ControlType.SNAPSHOT_FOOTER: ("SnapshotFooter", "SnapshotFooterRecord"),
    ControlType.KRAFT_VERSION: ("KRaftVersion", "KRaftVersionRecord"),
    ControlType.KRAFT_VOTERS: ("KRaftVoters", "VotersRecord"),
}
_KRAFT_VERSION_READ: Final = 0


def control_text(record: Record) -> str:
    """Return the text with a leading space. Raises InvalidRecordError."""
    control_type = parse_control_key(record.key)
    if control_type in (ControlType.ABORT, ControlType.COMMIT):
        marker = parse_control_value(record.value)
        return f" endTxnMarker: {control_type.name} coordinatorEpoch: {marker.coordinator_epoch}"
    if control_type in _KRAFT:
        head, schema = _KRAFT[control_type]
        try:
            message = decode_message(
                schemas()["control"][schema], _KRAFT_VERSION_READ, record.value or b"", is_whole=False
            )
        except MalformedMessageError as error:
            raise InvalidRecordError(f"control record at offset {record.offset}: {error}") from None
        return f" {head} {to_json(message)}"
    number = int.from_bytes((record.key or b"")[2:4], "big", signed=True)
    return f" controlType: {control_type.name}({number})"
