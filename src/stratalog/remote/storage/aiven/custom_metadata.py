"""The plugin's custom metadata of a segment (`custom.metadata.fields.include`).

Tagged fields as Kafka's protocol writes them: an unsigned varint with their number, then for each its tag and its size
(unsigned varints) and its value. Empty when no field is included.

    0   REMOTE_SIZE     bytes of the three objects (zigzag varint)
    1   OBJECT_PREFIX   the prefix of the key (unsigned varint length + 1, UTF-8)
    2   OBJECT_KEY      the key without prefix and suffix (the same)

Stored prefix and key locate the objects of a segment, even if the configuration changes later.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from stratalog.errors import CorruptRecordError, RemoteStorageError
from stratalog.util import VARINT_BYTES_MAX, VARLONG_BYTES_MAX, decode_unsigned, encode_unsigned, encode_varint


class CustomField(IntEnum):
    REMOTE_SIZE = 0
    OBJECT_PREFIX = 1
    OBJECT_KEY = 2


@dataclass(frozen=True, slots=True)
class NotedFields:
    """The fields of a segment, None if missing."""

    remote_size: int | None = None
    object_prefix: str | None = None
    object_key: str | None = None

    def including(self, fields: frozenset[CustomField]) -> NotedFields:
        """Return only these fields."""
        return NotedFields(
            self.remote_size if CustomField.REMOTE_SIZE in fields else None,
            self.object_prefix if CustomField.OBJECT_PREFIX in fields else None,
            self.object_key if CustomField.OBJECT_KEY in fields else None,
        )


def encode(fields: NotedFields) -> bytes:
    """Return the bytes, empty without a field."""
    values: dict[CustomField, bytes] = {}
    if fields.remote_size is not None:
        values[CustomField.REMOTE_SIZE] = encode_varint(fields.remote_size)
    if fields.object_prefix is not None:
        values[CustomField.OBJECT_PREFIX] = _encode_text(fields.object_prefix)
    if fields.object_key is not None:
        values[CustomField.OBJECT_KEY] = _encode_text(fields.object_key)
    if not values:
        return b""
    tagged = (encode_unsigned(tag) + encode_unsigned(len(value)) + value for tag, value in values.items())
    return encode_unsigned(len(values)) + b"".join(tagged)


def decode(data: bytes, source: str) -> NotedFields:
    """Parse, ignoring unknown tags. RemoteStorageError names `source` and what is wrong."""
    if not data:
        return NotedFields()
    try:
        values = _tagged(data)
        size = values.get(CustomField.REMOTE_SIZE)
        return NotedFields(
            None if size is None else _decode_varlong(size),
            _decode_text(values.get(CustomField.OBJECT_PREFIX)),
            _decode_text(values.get(CustomField.OBJECT_KEY)),
        )
    except (CorruptRecordError, ValueError) as error:
        raise RemoteStorageError(f"{source}: its custom metadata is not that of Aiven's plugin: {error}") from error


def _tagged(data: bytes) -> dict[int, bytes]:
    count, at = decode_unsigned(data, 0, VARINT_BYTES_MAX)
    values = {}
    for _ in range(count):
        tag, at = decode_unsigned(data, at, VARINT_BYTES_MAX)
        size, at = decode_unsigned(data, at, VARINT_BYTES_MAX)
        if at + size > len(data):
            raise ValueError(f"field {tag} of {size} bytes runs past the end of the data at {len(data)}")
        values[tag] = data[at : at + size]
        at += size
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes follow its fields")
    return values


def _encode_text(text: str) -> bytes:
    data = text.encode()
    return encode_unsigned(len(data) + 1) + data


def _decode_text(value: bytes | None) -> str | None:
    if value is None:
        return None
    size, at = decode_unsigned(value, 0, VARINT_BYTES_MAX)
    if size != len(value) - at + 1:
        raise ValueError(f"a text of {size - 1} bytes in {len(value) - at}")
    return value[at:].decode()


def _decode_varlong(value: bytes) -> int:
    raw, at = decode_unsigned(value, 0, VARLONG_BYTES_MAX)
    if at != len(value):
        raise ValueError(f"{len(value) - at} bytes follow a number")
    return (raw >> 1) ^ -(raw & 1)
