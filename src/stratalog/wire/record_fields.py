"""Fields of records in Kafka's own topics: the message encoding, old and flexible, for records that kio does not have.

All integers are big-endian. In old versions a STRING is an int16 length and UTF-8 bytes, an array or BYTES has an int32
count; in flexible ones (KIP-482) both have an unsigned varint of the count plus one, and every struct ends with tagged
fields. A count of -1 (0 as a varint) is null.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import TypeVar
from uuid import UUID

from stratalog.errors import CorruptRecordError
from stratalog.util import encode_unsigned

INT8, INT16 = struct.Struct(">b"), struct.Struct(">h")
INT32, INT64 = struct.Struct(">i"), struct.Struct(">q")

T = TypeVar("T")


def put_string(out: bytearray, text: str | None, *, flexible: bool = False) -> None:
    encoded = None if text is None else text.encode()
    length = -1 if encoded is None else len(encoded)
    out += encode_unsigned(length + 1) if flexible else INT16.pack(length)
    out += encoded or b""


def put_count(out: bytearray, count: int, *, flexible: bool = False) -> None:
    """Write the count of an array or of BYTES; -1 is null."""
    out += encode_unsigned(count + 1) if flexible else INT32.pack(count)


def put_tags(out: bytearray, fields: Mapping[int, bytes]) -> None:
    """Write the tagged fields at the end of a flexible struct."""
    if not fields:
        out.append(0)
        return
    out += encode_unsigned(len(fields))
    for tag, data in sorted(fields.items()):
        out += encode_unsigned(tag) + encode_unsigned(len(data)) + data


class FieldReader:
    """Reads fields in order; invalid data raises a CorruptRecordError that begins with `what`."""

    def __init__(self, data: bytes, what: str, *, flexible: bool = False) -> None:
        self._data = data
        self._what = what
        self._at = 0
        self._flexible = flexible

    def version(self, highest: int, flexible_from: int) -> int:
        """Return the int16 that a value begins with; the rest is read in this version."""
        version = self.int16()
        if not 0 <= version <= highest:
            raise CorruptRecordError(f"{self._what}: version {version}, known are 0 to {highest}")
        self._flexible = version >= flexible_from
        return version

    def int8(self) -> int:
        return int(INT8.unpack(self._take(1))[0])

    def int16(self) -> int:
        return int(INT16.unpack(self._take(2))[0])

    def int32(self) -> int:
        return int(INT32.unpack(self._take(4))[0])

    def int64(self) -> int:
        return int(INT64.unpack(self._take(8))[0])

    def uuid(self) -> UUID:
        return UUID(bytes=self._take(16))

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise self.damaged("a string is null")
        return text

    def nullable_string(self) -> str | None:
        length = self.unsigned() - 1 if self._flexible else self.int16()
        if length == -1:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise self.damaged("a string is not UTF-8") from error

    def blob(self) -> bytes:
        return self._take(self.count())

    def nullable_blob(self) -> bytes | None:
        length = self.count()
        return None if length == -1 else self._take(length)

    def count(self) -> int:
        """Read the count of an array or of BYTES; -1 is null."""
        return self.unsigned() - 1 if self._flexible else self.int32()

    def tags(self) -> dict[int, bytes]:
        """Return the tagged fields at the end of a struct; empty in a version that is not flexible."""
        if not self._flexible:
            return {}
        return {self.unsigned(): self._take(self.unsigned()) for _ in range(self.unsigned())}

    def inside(self, tagged: bytes) -> FieldReader:
        """Return a reader of what a tagged field holds."""
        return FieldReader(tagged, self._what, flexible=True)

    def whole(self, read: Callable[[FieldReader], T]) -> T:
        """Return what is read when that is all that there is."""
        value = read(self)
        if self._at < len(self._data):
            raise self.damaged(f"{len(self._data) - self._at} bytes too many")
        return value

    def damaged(self, why: str) -> CorruptRecordError:
        """Return the error for an invalid value."""
        return CorruptRecordError(f"{self._what} is damaged at byte {self._at}: {why}")

    def unsigned(self) -> int:
        """Return an unsigned varint."""
        at = self._at
        if at < len(self._data) and self._data[at] < 0x80:  # nearly all of them
            self._at = at + 1
            return self._data[at]
        value = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise self.damaged("a varint has more than 5 bytes")

    def _take(self, count: int) -> bytes:
        end = self._at + count
        if count < 0 or end > len(self._data):
            raise self.damaged(f"a field of {count} bytes does not fit into its {len(self._data)} bytes")
        taken = self._data[self._at : end]
        self._at = end
        return bytes(taken)
