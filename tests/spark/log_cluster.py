"""A cluster of one partition in memory, in place of brokers: what a leader with all of the log would answer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

import pytest

from stratalog.errors import OffsetOutOfRangeError, UnknownTopicIdError
from stratalog.wire.client import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    AbortedRange,
    ConnectionOptions,
    FetchedRecords,
    ListedOffset,
    PartitionInfo,
    TopicInfo,
)
from tests.spark.partitions import Partition


class LogCluster:
    """Answers as `stratalog.wire.client.Cluster` does. `fetched` counts the bytes of records that were given."""

    def __init__(self, partition: Partition, log_start: int = 0) -> None:
        self.partition = partition
        self.log_start = log_start
        self.topic_id: UUID = partition.topic_id
        self.leader_epoch = 0
        self.fetched = 0
        self.options = ConnectionOptions((("127.0.0.1", 9092),), request_timeout_s=0.0)

    @property
    def any(self) -> Any:
        return self

    address = "127.0.0.1:9092"

    def close(self) -> None:
        """Nothing is open."""

    def topics(self, names: list[str] | None) -> dict[str, TopicInfo]:
        topic, number = self.partition.topic, self.partition.number
        found = TopicInfo(topic, self.topic_id, False, {number: PartitionInfo(number, 1, 0)})
        return {topic: found} if names is None or topic in names else {}

    def list_offsets(
        self, timestamps: Mapping[tuple[str, int], int], *, read_committed: bool = False
    ) -> dict[tuple[str, int], ListedOffset]:
        return {
            key: ListedOffset(self._find(each, read_committed), -1, self.leader_epoch)
            for key, each in timestamps.items()
        }

    def _find(self, timestamp: int, read_committed: bool) -> int:
        if timestamp == EARLIEST_OFFSET:
            return self.log_start
        if timestamp == LATEST_OFFSET:
            return self._end(read_committed)
        newer = (
            each.offset
            for each in self.partition.records
            if each.offset >= self.log_start and self.partition.timestamp_of(each) >= timestamp
        )
        return next(newer, -1)

    def _end(self, read_committed: bool) -> int:
        return self.partition.last_stable_offset if read_committed else self.partition.next_offset

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int,
        *,
        read_committed: bool = False,
        topic_id: UUID | None = None,
        **_: int,
    ) -> FetchedRecords:
        if topic_id not in (None, self.topic_id):
            raise UnknownTopicIdError(f"{topic}-{partition}: UNKNOWN_TOPIC_ID")
        if not self.log_start <= offset <= self.partition.next_offset:
            raise OffsetOutOfRangeError(f"{topic}-{partition} at offset {offset}: OFFSET_OUT_OF_RANGE")
        end = self._end(read_committed)
        records = bytearray()
        reached = offset
        for base, last, data in self.partition.batches:
            if last < offset or base >= end:
                continue
            if records and len(records) + len(data) > max_bytes:
                records += data[: max(max_bytes - len(records), 0)]  # as brokers do: cut off anywhere
                break
            records += data
            reached = last + 1
        self.fetched += len(records)
        aborted = tuple(
            AbortedRange(each.producer_id, each.first_offset)
            for each in self.partition.aborted
            if read_committed and each.last_offset >= offset and each.first_offset < reached
        )
        stable = self.partition.last_stable_offset
        return FetchedRecords(memoryview(bytes(records)), self.partition.next_offset, stable, self.log_start, aborted)


@contextlib.contextmanager
def brokers(cluster: LogCluster) -> Iterator[dict[str, str]]:
    """Every connection within the block is to this cluster; gives the option that asks for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stratalog.inspect.byte_sources.Cluster", lambda *_, **__: cluster)
        yield {"kafka.bootstrap.servers": cluster.address}
