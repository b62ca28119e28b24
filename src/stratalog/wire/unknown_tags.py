"""Requests with tagged fields that this broker does not know, without those fields.

A client may send tagged fields that came after the broker's schemas, and the broker must skip them (KIP-482). kio's
reader refuses them instead; so a message that it refuses is walked here by the same schema, and read again without
them. Only flexible versions have tagged fields, so only their compact encodings are walked.
"""

from __future__ import annotations

from typing import Any

from stratalog.errors import CorruptRecordError, InvalidRequestError
from stratalog.util import VARINT_BYTES_MAX, decode_unsigned, encode_unsigned
from stratalog.wire.message_fields import MessageField, message_fields_of


def without_unknown_tags(cls: Any, data: bytes) -> bytes:
    """Decode the message of flexible class `cls` at the start of `data`.

    Tagged fields that `cls` does not have are left out.

    InvalidRequestError for bytes that do not hold one.
    """
    try:
        walk = _Walk(data)
        walk.entity(cls)
    except (IndexError, CorruptRecordError) as error:
        raise InvalidRequestError("a message that ends within a field") from error
    return b"".join(walk.kept)


class _Walk:
    """Walks through a message; `kept` collects the bytes that stay."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0
        self.kept: list[bytes] = []

    def entity(self, cls: Any) -> None:
        fields = message_fields_of(cls)
        for field in fields:
            if field.tag is None:
                self._field(field)
        self._tagged({field.tag for field in fields})

    def _tagged(self, known: set[int | None]) -> None:
        """Tagged fields are kept as they are if they are known: what lies within them has its own size."""
        kept: list[bytes] = []
        for _ in range(self._varint()):
            begin = self.position
            tag = self._varint()
            self._skip(self._varint())
            if tag in known:
                kept.append(self.data[begin : self.position])
        self.kept += [encode_unsigned(len(kept)), *kept]

    def _field(self, field: MessageField) -> None:
        if field.is_array:
            begin = self.position
            count = self._varint() - 1
            self._keep(begin)
            for _ in range(count):
                self._element(field)
        elif field.entity is not None and field.is_nullable:
            self._skip(1)
            self._keep(self.position - 1)
            if self.data[self.position - 1] == 1:
                self.entity(field.entity)
        else:
            self._element(field)

    def _element(self, field: MessageField) -> None:
        if field.entity is not None:
            self.entity(field.entity)
            return
        begin = self.position
        self._skip(field.size or max(self._varint() - 1, 0))
        self._keep(begin)

    def _keep(self, begin: int) -> None:
        self.kept.append(self.data[begin : self.position])

    def _skip(self, size: int) -> None:
        self.position += size
        if self.position > len(self.data):
            raise IndexError(self.position)

    def _varint(self) -> int:
        value, self.position = decode_unsigned(self.data, self.position, VARINT_BYTES_MAX)
        return value
