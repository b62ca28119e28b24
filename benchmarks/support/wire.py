"""Produce v9 and Fetch v12 requests as ready-made bytes, and where the answers lie in the responses.

Versions of before topic ids, so that a request can be made without asking for metadata; both brokers take them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

PRODUCE, FETCH, API_VERSIONS = 0, 1, 18
CLIENT_ID = b"benchmark"
NO_TAGS = b"\x00"
ACKS_ALL = -1


def produce_request(topic: str, records: bytes, *, partition: int = 0, acks: int = ACKS_ALL) -> bytes:
    """One framed Produce request with one batch (or several) for one partition."""
    return _framed(
        PRODUCE,
        9,
        b"\x00"  # no transactional id
        + struct.pack(">hi", acks, 30_000)
        + _array_of_one(_string(topic) + _array_of_one(struct.pack(">i", partition) + _bytes(records))),
    )


def fetch_request(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    partition_bytes_max: int,
    bytes_max: int,
    wait_ms_max: int = 500,
) -> bytes:
    """One framed, sessionless Fetch request for one partition."""
    wanted = struct.pack(">iiqiqi", partition, -1, offset, -1, -1, partition_bytes_max)
    return _framed(
        FETCH,
        12,
        struct.pack(">iiiibii", -1, wait_ms_max, 1, bytes_max, 0, 0, -1)
        + _array_of_one(_string(topic) + _array_of_one(wanted))
        + b"\x01"  # no forgotten topics
        + b"\x01",  # no rack
    )


def api_versions_request() -> bytes:
    """ApiVersions v0."""
    return struct.pack(">ihhih", 10, API_VERSIONS, 0, 0, -1)


@dataclass(frozen=True, slots=True)
class ProduceResponseLayout:
    """Positions in the framed response to `produce_request(topic, ...)`; every one has the same size."""

    size: int
    error_code_at: int
    base_offset_at: int

    @classmethod
    def of(cls, topic: str) -> ProduceResponseLayout:
        # frame size, correlation id, tags, array of topics, name, array of partitions, index
        error_code_at = 4 + 4 + 1 + 1 + len(_string(topic)) + 1 + 4
        base_offset_at = error_code_at + 2
        # base offset, append time, log start offset, record errors, error message; tags of partition, topic; throttle
        # time; tags
        size = base_offset_at + 8 + 8 + 8 + 1 + 1 + 1 + 1 + 4 + 1
        return cls(size, error_code_at, base_offset_at)


@dataclass(frozen=True, slots=True)
class FetchResponseHead:
    """What stands before the records in the framed response to `fetch_request`."""

    error_code: int
    high_watermark: int
    records_at: int
    records_size: int


#: Bytes that hold a whole `FetchResponseHead` for topic names of up to 60 bytes (and of responses without records).
FETCH_HEAD_BYTES_MAX = 150


def parse_fetch_head(topic: str, head: bytes | bytearray | memoryview) -> FetchResponseHead:
    """`head` begins with the frame size."""
    (top_error,) = struct.unpack_from(">h", head, 4 + 4 + 1 + 4)
    if top_error:
        return FetchResponseHead(top_error, -1, 0, 0)
    at = 4 + 4 + 1 + 4 + 2 + 4 + 1 + len(_string(topic)) + 1 + 4
    error_code, high_watermark = struct.unpack_from(">hq", head, at)
    at += 2 + 8 + 8 + 8
    aborted, at = _unsigned_varint(head, at)
    if aborted > 1:
        raise ValueError("a fetch of uncommitted records lists aborted transactions")
    at += 4  # preferred read replica
    size, at = _unsigned_varint(head, at)
    return FetchResponseHead(error_code, high_watermark, at, max(size - 1, 0))


def _framed(api_key: int, version: int, body: bytes) -> bytes:
    header = struct.pack(">hhih", api_key, version, 0, len(CLIENT_ID)) + CLIENT_ID + NO_TAGS
    return struct.pack(">i", len(header) + len(body) + len(NO_TAGS)) + header + body + NO_TAGS


def _array_of_one(entry: bytes) -> bytes:
    return b"\x02" + entry + NO_TAGS


def _string(text: str) -> bytes:
    return _bytes(text.encode())


def _bytes(data: bytes) -> bytes:
    return _varint(len(data) + 1) + data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _unsigned_varint(data: bytes | bytearray | memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
