"""The consumer's embedded protocol in the classic one: subscriptions and assignments as bytes.

All integers are big-endian; STRING has an int16 length, BYTES and arrays an int32 count, -1 for null.

    subscription  version int16, [topic STRING], user data BYTES, from 1: owned [topic STRING, [partition int32]],
                  from 2: generation int32, from 3: rack nullable STRING
    assignment    version int16, [topic STRING, [partition int32]], user data BYTES

Source: ConsumerProtocolSubscription and ConsumerProtocolAssignment of Kafka 4.4.0.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from stratalog.wire import INT16, INT32 as _INT32, FieldReader, put_count, put_string

_VERSION_MAX = 3


@dataclass(frozen=True, slots=True)
class EmbeddedSubscription:
    """A consumer's subscription and owned partitions, by name."""

    topics: tuple[str, ...]
    owned: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class EmbeddedAssignment:
    """A consumer's assignment, by name; `has_user_data` if the leader's assignor stores user data in it."""

    partitions: Mapping[str, tuple[int, ...]]
    has_user_data: bool


def decode_subscription(data: bytes) -> EmbeddedSubscription:
    """Raise CorruptRecordError for bytes that are no subscription."""
    reader = FieldReader(data, "subscription of a consumer")
    version = _version(reader)
    topics = tuple([reader.string() for _ in range(reader.count())])
    _skip_user_data(reader)
    owned = _partitions(reader) if version >= 1 else {}
    if version >= 2:
        reader.int32()
    return EmbeddedSubscription(topics, owned, (reader.nullable_string() or None) if version >= 3 else None)


def decode_assignment(data: bytes) -> EmbeddedAssignment:
    """Raise CorruptRecordError for bytes that are no assignment."""
    reader = FieldReader(data, "assignment of a consumer")
    _version(reader)
    partitions = _partitions(reader)
    return EmbeddedAssignment(partitions, _skip_user_data(reader) > 0)


def encode_assignment(partitions: Mapping[str, Collection[int]], version: int) -> bytes:
    out = bytearray(INT16.pack(version))
    put_count(out, len(partitions))
    for topic, numbers in partitions.items():
        put_string(out, topic)
        put_count(out, len(numbers))
        for number in numbers:
            out += _INT32.pack(number)
    put_count(out, -1)
    return bytes(out)


def subscription_version(data: bytes) -> int:
    """Return the version of a consumer's subscription, at most the latest known one."""
    return _version(FieldReader(data, "subscription of a consumer"))


def _version(reader: FieldReader) -> int:
    version = reader.int16()
    if version < 0:
        raise reader.damaged(f"there is no version {version}")
    return min(version, _VERSION_MAX)


def _partitions(reader: FieldReader) -> dict[str, tuple[int, ...]]:
    return {reader.string(): tuple([reader.int32() for _ in range(reader.count())]) for _ in range(reader.count())}


def _skip_user_data(reader: FieldReader) -> int:
    return len(reader.nullable_blob() or b"")
