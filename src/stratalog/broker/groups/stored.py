"""Decode the records of a partition of `__consumer_offsets`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from stratalog.broker.coordinator_log import Contents
from stratalog.broker.groups import consumer, share, streams
from stratalog.broker.groups.offsets import CommittedOffset
from stratalog.broker.groups.records import (
    GroupKey,
    OffsetKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from stratalog.broker.groups.values import GroupMetadata
from stratalog.errors import CorruptRecordError

if TYPE_CHECKING:
    from stratalog.broker.groups.consumer import GroupChange
    from stratalog.broker.groups.share import ShareGroupChange
    from stratalog.broker.groups.streams import StreamsGroupChange

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredCommit:
    """A commit; with a producer id it belongs to that producer's open transaction."""

    key: OffsetKey
    commit: CommittedOffset
    producer_id: int | None


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """The metadata of a classic group."""

    key: GroupKey
    metadata: GroupMetadata


@dataclass(frozen=True, slots=True)
class StoredChange:
    """A part of a group of a newer protocol."""

    key: GroupKey
    change: GroupChange | StreamsGroupChange | ShareGroupChange


Stored: TypeAlias = StoredCommit | StoredGroup | StoredChange


def decode_stored(contents: Contents) -> Iterator[Stored]:
    """Yield the contents of a partition of `__consumer_offsets`; unreadable records are skipped."""
    commits: list[StoredCommit] = []
    for key, offset, value in contents.live():
        for found in _decode_record(key, offset, value, None):
            if isinstance(found, StoredCommit):
                commits.append(found)
            else:
                yield found
    yield from commits  # a group with no other records is a classic one
    for producer_id, written in contents.in_transaction.items():
        for key, entry in written.items():
            if entry.value is not None:
                yield from _decode_record(key, entry.offset, entry.value, producer_id)


def _decode_record(key_bytes: bytes, offset: int, value: bytes, producer_id: int | None) -> Iterator[Stored]:
    try:
        key = decode_key(key_bytes)
        if isinstance(key, OffsetKey):
            yield StoredCommit(key, decode_offset_value(value).stored_at(offset), producer_id)
        elif isinstance(key, GroupKey):
            yield StoredGroup(key, decode_group_value(value))
        else:
            # Loaded by the first record of a newer type of groups.
            for decode in (consumer.decode_change, streams.decode_streams_change, share.decode_share_change):
                found = decode(key_bytes, value)
                if found is not None:
                    yield StoredChange(GroupKey(found[0]), found[1])
    except CorruptRecordError as error:
        logger.error("A record of __consumer_offsets is skipped: %s", error)
