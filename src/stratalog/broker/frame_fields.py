"""Common code of the hand-written encoding of Produce and Fetch: lengths, and the beginning of a topic.

A topic begins with its key, which is the name in UTF-8 or, `by_id`, the 16 bytes of its id. Then comes the number of
its partitions. Flexible versions encode lengths and counts as varints of value + 1.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from stratalog.errors import InvalidRequestError
from stratalog.wire import INT16, INT32

#: Of a leader.
_ID_AND_EPOCH = struct.Struct(">ii")


def compact_length(frame: memoryview, position: int) -> tuple[int, int]:
    """Return a compact length (-1 for null) and the position after it."""
    byte = frame[position]
    if byte < 0x80:
        return byte - 1, position + 1
    value = byte & 0x7F
    shift = 7
    while True:
        position += 1
        byte = frame[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value - 1, position + 1
        shift += 7
        if shift > 28:
            raise InvalidRequestError("a varint of more than five bytes")


def varint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


def legacy_topic(frame: memoryview, position: int) -> tuple[bytes, int, int]:
    """Return a topic's name, its number of partitions, and the position after them."""
    (length,) = INT16.unpack_from(frame, position)
    position += 2
    name = bytes(frame[position : position + length])
    if length < 0 or len(name) != length:
        raise InvalidRequestError("a topic name runs beyond the end of the request")
    position += length
    (partition_count,) = INT32.unpack_from(frame, position)
    return name, partition_count, position + 4


def flexible_topic(frame: memoryview, position: int, by_id: bool) -> tuple[bytes, int, int]:
    """Return a topic's key, its number of partitions, and the position after them."""
    if by_id:
        length = 16
    else:
        length, position = compact_length(frame, position)
    key = bytes(frame[position : position + length])
    if length < 0 or len(key) != length:
        raise InvalidRequestError("a topic runs beyond the end of the request")
    partition_count, position = compact_length(frame, position + length)
    return key, partition_count, position


def encode_topic(out: bytearray, key: bytes, partition_count: int, *, flexible: bool, by_id: bool) -> None:
    """Append the beginning of a topic."""
    if not by_id:
        out += varint(len(key) + 1) if flexible else INT16.pack(len(key))
    out += key
    out += varint(partition_count + 1) if flexible else INT32.pack(partition_count)


def leader_hint(leader: tuple[int, int]) -> bytes:
    """Return a leader's id and epoch as the value of a tagged field, with its length."""
    return b"\x09" + _ID_AND_EPOCH.pack(*leader) + b"\x00"


def node_endpoints(nodes: Sequence[tuple[int, str, int, str | None]]) -> bytes:
    """Return tagged fields whose field 0 contains brokers: id, host, port and rack of each."""
    if not nodes:
        return b"\x00"
    value = bytearray(varint(len(nodes) + 1))
    for node_id, host, port, rack in nodes:
        value += INT32.pack(node_id) + compact_text(host) + INT32.pack(port) + compact_text(rack) + b"\x00"
    return b"\x01\x00" + varint(len(value)) + bytes(value)


def compact_text(text: str | None) -> bytes:
    if text is None:
        return b"\x00"
    data = text.encode()
    return varint(len(data) + 1) + data
