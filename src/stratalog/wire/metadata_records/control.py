"""Control records of the metadata log and its snapshots: what the quorum says about itself.

The messages are kio's. The key of a record says which one it holds (`records.ControlType`); the value begins with its
version.
"""

from __future__ import annotations

import importlib
import struct
from functools import cache
from typing import Any, Final

from stratalog.errors import CorruptRecordError
from stratalog.wire.protocol import read_message

#: By control type: the package of the message, the message, and its newest version.
_MESSAGES: Final = {
    2: ("leader_change_message", "LeaderChangeMessage", 1),
    3: ("snapshot_header_record", "SnapshotHeaderRecord", 0),
    4: ("snapshot_footer_record", "SnapshotFooterRecord", 0),
    5: ("k_raft_version_record", "KRaftVersionRecord", 0),
    6: ("voters_record", "VotersRecord", 0),
}


@cache
def control_class(control_type: int, version: int = 0) -> Any:
    """Return kio's class of a control record; KeyError for another type, ImportError for another version."""
    package, name, _ = _MESSAGES[control_type]
    return getattr(importlib.import_module(f"kio.schema.{package}.v{version}.data"), name)


def decode_control(control_type: int, value: bytes | None) -> Any:
    """Return the message in a control record's value. Raises CorruptRecordError for bytes that hold none."""
    if control_type not in _MESSAGES:
        raise CorruptRecordError(f"a control record of type {control_type} in the metadata log")
    _, name, newest = _MESSAGES[control_type]
    try:
        version = min(struct.unpack_from(">h", value or b"")[0], newest)
        message, _ = read_message(control_class(control_type, version), value or b"")
    except Exception as error:  # kio's own errors, ValueError, UnicodeDecodeError: all mean bad bytes
        raise CorruptRecordError(f"{name} that cannot be read: {error}") from error
    return message
