"""The value of a record of the metadata log: a frame around the message.

    frame version  unsigned varint   1
    api key        unsigned varint
    version        unsigned varint
    message        flexible, to the end

Source: Kafka's `AbstractApiMessageSerde`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple

from stratalog.errors import CorruptRecordError, InvalidRequestError
from stratalog.util import VARINT_BYTES_MAX, decode_unsigned, encode_unsigned
from stratalog.wire.metadata_records.definitions import RECORDS
from stratalog.wire.metadata_records.schema import MetadataRecord, version_class
from stratalog.wire.protocol import read_message, write_message

_FRAME_VERSION: Final = 1
_NEWER: Final = "the controllers are of a newer release (update this broker), or the log is damaged"
_API_KEYS: Final = {cls: key for key, (cls, _) in RECORDS.items()}


class FramedRecord(NamedTuple):
    """A record and the version that it was written in."""

    record: MetadataRecord
    version: int


def decode_metadata_record(value: bytes) -> FramedRecord:
    """Read a record's value. Raises CorruptRecordError, which names type and version when they are unknown."""
    try:
        frame, at = decode_unsigned(value, 0, VARINT_BYTES_MAX)
        if frame != _FRAME_VERSION:
            raise CorruptRecordError(f"a metadata record of frame version {frame}, expected {_FRAME_VERSION}")
        key, at = decode_unsigned(value, at, VARINT_BYTES_MAX)
        version, at = decode_unsigned(value, at, VARINT_BYTES_MAX)
        record, size = read_message(_layout(key, version), value, at)
    except CorruptRecordError:
        raise
    except InvalidRequestError as error:
        raise CorruptRecordError(f"a metadata record that cannot be read: {error}") from error
    except Exception as error:  # kio's own errors, ValueError, UnicodeDecodeError: all mean bad bytes
        raise CorruptRecordError(f"a metadata record that cannot be read: {error}") from error
    if at + size != len(value):
        raise CorruptRecordError(f"{type(record).__name__} v{version} of {at + size} bytes in a value of {len(value)}")
    return FramedRecord(record, version)


def encode_metadata_record(record: MetadataRecord, version: int) -> bytes:
    """Return the value of a record in `version`; fields that it lacks are left out."""
    cls: Any = type(record)
    key = _API_KEYS.get(cls)
    if key is None:
        key = _API_KEYS[cls.__base__]
    head = encode_unsigned(_FRAME_VERSION) + encode_unsigned(key) + encode_unsigned(version)
    return head + write_message(record, _layout(key, version))


@cache
def _layout(key: int, version: int) -> Any:
    known = RECORDS.get(key)
    if known is None:
        raise CorruptRecordError(f"a metadata record of type {key}, which this release does not know: {_NEWER}")
    cls, newest = known
    if version > newest:
        raise CorruptRecordError(f"{cls.__name__} v{version}; this release knows versions up to {newest}: {_NEWER}")
    return version_class(cls, version)
