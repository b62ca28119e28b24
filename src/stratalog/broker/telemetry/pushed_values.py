"""The last values pushed by clients, parsed from OpenTelemetry's MetricsData (KIP-714), within a memory limit."""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from stratalog.errors import CorruptRecordError, InvalidRecordError
from stratalog.records import Codec, decompress

#: Limits of kept values, of all clients and of one.
_VALUES_MAX, _VALUES_OF_ONE_MAX = 20_000, 2_000
#: Longer names and attributes are dropped, which bounds memory to some 20 MiB.
_TEXT_SIZE_MAX = 1024
#: Limit of Protocol Buffers fields in a push: several times what the allowed values have.
_FIELDS_MAX = 200_000
#: Limit of the compression ratio of a push.
_EXPANSION_MAX = 16

# Wire types of Protocol Buffers.
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class PushedValue:
    """One number of a client: the metric's name and its attributes as `key=value`."""

    name: str
    attributes: str
    value: float


class LastPushes:
    """The last values by client. The least recent pushes are dropped first."""

    def __init__(self) -> None:
        self._of: OrderedDict[UUID, tuple[str, dict[tuple[str, str], PushedValue]]] = OrderedDict()
        self._count = 0

    def put(self, instance_id: UUID, client_id: str, values: list[PushedValue]) -> None:
        """Store the values of a client; earlier ones stay unless there are newer ones."""
        known = self._of.get(instance_id, (client_id, {}))[1]
        kept = {**known, **{(value.name, value.attributes): value for value in values}}
        self.forget(instance_id)
        kept = dict(list(kept.items())[-_VALUES_OF_ONE_MAX:])
        self._of[instance_id] = (client_id, kept)
        self._count += len(kept)
        while self._count > _VALUES_MAX:
            self.forget(next(iter(self._of)))

    def forget(self, instance_id: UUID) -> None:
        """Drop the values of a client, if any."""
        _, values = self._of.pop(instance_id, ("", {}))
        self._count -= len(values)

    def __iter__(self) -> Iterator[tuple[UUID, str, PushedValue]]:
        for instance_id, (client_id, values) in self._of.items():
            for value in values.values():
                yield instance_id, client_id, value


def read_pushed(codec: int, data: bytes, size_max: int) -> list[PushedValue]:
    """Return the first numbers of a push; histograms are skipped. InvalidRecordError for invalid data."""
    try:
        plain = decompress(Codec(codec), data, size_max=_EXPANSION_MAX * size_max)
        return list(_Push().values(memoryview(plain)))
    except (CorruptRecordError, ValueError, IndexError, struct.error) as error:
        raise InvalidRecordError(str(error)) from error


class _Push:
    """Reads one push; ValueError when it exceeds the limit of fields."""

    def __init__(self) -> None:
        self._fields_left = _FIELDS_MAX

    def values(self, data: memoryview) -> Iterator[PushedValue]:
        found = 0
        for metric in self._at(data, 1, 2, 2):  # resource metrics, scope metrics, metrics
            name = next((bytes(each).decode() for each in self._at(metric, 1)), "")
            for kind in (5, 7):  # gauges and sums
                for point in self._at(metric, kind, 1):
                    value = self._number(point)
                    attributes = "" if value is None else self._attributes(point)
                    if value is not None and len(name) + len(attributes) <= _TEXT_SIZE_MAX:
                        yield PushedValue(name, attributes, value)
                        found += 1
                    if found == _VALUES_OF_ONE_MAX:
                        return

    def _number(self, point: memoryview) -> float | None:
        for field, wire, value in self._fields(point):
            if wire == _FIXED64 and field == 4:
                return float(struct.unpack("<d", value)[0])
            if wire == _FIXED64 and field == 6:
                return float(struct.unpack("<q", value)[0])
        return None

    def _attributes(self, point: memoryview) -> str:
        pairs = []
        for attribute in self._at(point, 7):
            key = next((bytes(each).decode() for each in self._at(attribute, 1)), "")
            value = next((self._text(each) for each in self._at(attribute, 2)), "")
            pairs.append(f"{key}={value}")
        return ",".join(sorted(pairs))

    def _text(self, value: memoryview) -> str:
        """Return a string, integer or boolean value as text; "" for other types."""
        for field, wire, content in self._fields(value):
            if field == 1 and wire == _BYTES:
                return bytes(content).decode()
            if field in (2, 3) and wire == _VARINT:
                return str(_varint(content, 0)[0])
        return ""

    def _at(self, data: memoryview, number: int, *deeper: int) -> Iterator[memoryview]:
        """Yield the bytes of every field with this number, or of the fields nested in them."""
        for field, wire, value in self._fields(data):
            if field == number and wire == _BYTES:
                if deeper:
                    yield from self._at(value, *deeper)
                else:
                    yield value

    def _fields(self, data: memoryview) -> Iterator[tuple[int, int, memoryview]]:
        """Yield number, wire type and bytes of each field. IndexError or ValueError for invalid data."""
        at = 0
        while at < len(data):
            self._fields_left -= 1
            if self._fields_left < 0:
                raise ValueError(f"more than {_FIELDS_MAX} fields")
            tag, at = _varint(data, at)
            wire = tag & 7
            start = at
            if wire == _VARINT:
                _, at = _varint(data, at)
            elif wire == _BYTES:
                size, start = _varint(data, at)
                at = start + size
            elif wire in (_FIXED64, _FIXED32):
                at += 8 if wire == _FIXED64 else 4
            else:
                raise ValueError(f"no wire type of Protocol Buffers: {wire}")
            if at > len(data):
                raise ValueError("a field of Protocol Buffers ends beyond the data")
            yield tag >> 3, wire, data[start:at]


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of Protocol Buffers does not end")
