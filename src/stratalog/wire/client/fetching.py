"""Fetch for one partition: the bytes of its batches as the log holds them, and where the log begins and ends.

Responses are parsed by hand, so that records are views of what came from the socket; kio is the oracle in the tests.

    throttle int32, v7+: error int16, session id int32,
    topics[ name (v13+: id), partitions[ index int32, error int16, high watermark int64, last stable offset int64,
            v5+: log start offset int64, aborted transactions[ producer id int64, first offset int64 ],
            v11+: preferred read replica int32, records, v12+: tagged fields ], tagged fields ], tagged fields

Versions from 12 on are flexible. Source: FetchResponse.json of Kafka 4.4.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple
from uuid import UUID

from stratalog.wire.protocol import skip_tagged_fields

VERSIONS_BY_NAME: Final = (4, 12)
VERSIONS_BY_ID: Final = (13, 17)

_FLEXIBLE_FROM: Final = 12
_IDS_FROM: Final = 13
_HEAD: Final = struct.Struct(">ihqq")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_ABORTED: Final = struct.Struct(">qq")
_UUID_BYTES: Final = 16


class AbortedRange(NamedTuple):
    """Records of this producer from `first_offset` on are aborted, up to its next abort marker."""

    producer_id: int
    first_offset: int


class FetchedRecords(NamedTuple):
    """`records` are whole batches from the one that holds the offset asked for, the last of them perhaps cut off.

    `aborted` concerns these records, and is empty unless read_committed was asked for. Offsets are -1 where the broker
    did not report them.
    """

    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[AbortedRange, ...]


def request_fields(
    topic: str,
    partition: int,
    offset: int,
    *,
    topic_id: UUID | None,
    leader_epoch: int,
    max_bytes: int,
    min_bytes: int,
    max_wait_ms: int,
    read_committed: bool,
) -> dict[str, Any]:
    wanted = {
        "partition": partition,
        "current_leader_epoch": leader_epoch,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": max_bytes,
    }
    return {
        "replica_id": -1,
        "max_wait": max_wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": int(read_committed),
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "topic_id": topic_id, "partitions": [wanted]}],
        "forgotten_topics_data": [],
    }


def parse(body: memoryview, version: int) -> tuple[int, FetchedRecords]:
    """Return the error code and the records of a response's one partition.

    ValueError, IndexError, struct.error for bad bytes.
    """
    is_flexible = version >= _FLEXIBLE_FROM
    at = 4
    if version >= 7:
        (error,) = _INT16.unpack_from(body, at)
        at += 6
        if error:
            return error, _NOTHING
    topics, at = _length(body, at, is_flexible)
    if topics < 1:
        raise ValueError("no topic in the answer")
    if version >= _IDS_FROM:
        at += _UUID_BYTES
    elif is_flexible:
        size, at = _length(body, at, is_flexible)
        at += size
    else:
        at += 2 + _INT16.unpack_from(body, at)[0]
    partitions, at = _length(body, at, is_flexible)
    if partitions < 1:
        raise ValueError("no partition in the answer")
    return _partition(body, at, version)


def _partition(body: memoryview, at: int, version: int) -> tuple[int, FetchedRecords]:
    is_flexible = version >= _FLEXIBLE_FROM
    _, error, high_watermark, last_stable = _HEAD.unpack_from(body, at)
    at += _HEAD.size
    log_start = -1
    if version >= 5:
        (log_start,) = _INT64.unpack_from(body, at)
        at += 8
    count, at = _length(body, at, is_flexible)
    aborted = []
    for _ in range(max(count, 0)):
        aborted.append(AbortedRange(*_ABORTED.unpack_from(body, at)))
        at += _ABORTED.size
        if is_flexible:
            at = skip_tagged_fields(body, at)
    if version >= 11:
        at += 4
    size, at = _length(body, at, is_flexible)
    size = max(size, 0)
    if at + size > len(body):
        raise ValueError(f"{size} bytes of records in an answer of {len(body)}")
    return error, FetchedRecords(body[at : at + size], high_watermark, last_stable, log_start, tuple(aborted))


_NOTHING: Final = FetchedRecords(memoryview(b""), -1, -1, -1, ())


def _length(body: memoryview, at: int, is_flexible: bool) -> tuple[int, int]:
    """Return a length, -1 for null, and the position behind it."""
    if not is_flexible:
        return int(_INT32.unpack_from(body, at)[0]), at + 4
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value - 1, at
        shift += 7
        if shift > 28:
            raise ValueError("a length of more than five bytes")
