"""Responses whose records are sent from files: the message with a mark in the place of each, and what belongs there.

The message is written as any other. A mark is 16 bytes, most of them random and never sent, so that no record of a
client contains it. In flexible versions the length before it is one byte, which gives way to that of the records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from stratalog.log.format import FileSlice
from stratalog.util import encode_unsigned, random_bytes
from stratalog.wire import INT32, ApiKey, write_message, write_response

if TYPE_CHECKING:
    from stratalog.broker.server.dispatch import Chunk

_SALT: Final = random_bytes(12)
_MARK_BYTES: Final = len(_SALT) + INT32.size


@dataclass(frozen=True, slots=True)
class SlicedResponse:
    """A message of a flexible version, and the records for its marks, by their numbers."""

    message: Any
    slices: tuple[FileSlice, ...] = ()

    @property
    def body_size(self) -> int:
        """Return the bytes of the message with its records."""
        lengths = sum(len(encode_unsigned(each.size + 1)) - 1 + each.size - _MARK_BYTES for each in self.slices)
        return len(write_message(self.message)) + lengths


class RecordSlices:
    """Collects the records of a response that are sent from files."""

    def __init__(self) -> None:
        self._slices: list[FileSlice] = []

    def mark(self, records: bytes | FileSlice) -> bytes:
        """Return what stands for records in the message: themselves, or a mark."""
        if not isinstance(records, FileSlice):
            return records
        self._slices.append(records)
        return _mark(len(self._slices) - 1)

    def response(self, message: Any) -> SlicedResponse:
        """Return a response with these records, whose marks are in `message`."""
        return SlicedResponse(message, tuple(self._slices))


def write_sliced(key: ApiKey, correlation_id: int, response: SlicedResponse) -> tuple[bytes, list[Chunk]]:
    """Return a whole response frame, size included: its beginning, then bytes and parts of files in turn."""
    frame = write_response(key, correlation_id, response.message)
    places = sorted((frame.index(_mark(number)), number) for number in range(len(response.slices)))
    parts: list[bytes] = []
    at = INT32.size
    for place, number in places:
        parts.append(frame[at : place - 1] + encode_unsigned(response.slices[number].size + 1))
        at = place + _MARK_BYTES
    parts.append(frame[at:])
    size = sum(map(len, parts)) + sum(part.size for part in response.slices)
    chunks: list[Chunk] = []
    for (_, number), part in zip(places, parts[1:], strict=True):
        chunks += (response.slices[number], part)
    return INT32.pack(size) + parts[0], chunks


def _mark(number: int) -> bytes:
    return _SALT + INT32.pack(number)
