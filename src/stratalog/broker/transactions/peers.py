"""Requests between the brokers of a cluster about transactions: markers, and adding or verifying partitions.

Each broker gets one request of a kind at a time; what accumulates during it is sent with the next, as in Kafka's
`TransactionMarkerChannelManager` and `AddPartitionsToTxnManager`. There are no retries here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stratalog.broker.batched_requests import BatchedRequests
from stratalog.broker.confirmation import Unconfirmed, confirmed
from stratalog.broker.groups import TopicPartition
from stratalog.broker.transactions.markers import FINAL_ERRORS, Marker, MarkerWriter
from stratalog.broker.transactions.transaction import ProducerIdAndEpoch
from stratalog.errors import (
    NotLeaderOrFollowerError,
    StratalogError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from stratalog.wire import ApiKey

if TYPE_CHECKING:
    from stratalog.broker.cluster_membership import ClusterMembership
    from stratalog.broker.purgatory import Purgatory

_MARKER_VERSIONS: Final = (1, 2)
_ADD_VERSIONS: Final = (4, 5)
#: Codes after which a partition needs no marker. Not the one for an unknown partition, which a leader returns while its
#: directory has failed or its metadata are late, too: the metadata here say whether it exists.
_DONE: Final = (FINAL_ERRORS | {0}) - {UnknownTopicOrPartitionError.code}
#: Time limit for the replication of a marker.
MARKER_TIMEOUT_MS: Final = 30_000

#: The error code of each partition.
Codes = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class _SentMarker:
    marker: Marker
    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class _Addition:
    transactional_id: str
    producer: ProducerIdAndEpoch
    partitions: Sequence[TopicPartition]
    verify_only: bool


class TransactionPeers:
    """Client for transaction requests to other brokers. Belongs to the loop's thread."""

    def __init__(
        self,
        cluster: ClusterMembership,
        writer: MarkerWriter,
        loop: asyncio.AbstractEventLoop,
        purgatory: Purgatory,
    ) -> None:
        self.cluster = cluster
        self._writer = writer
        self._loop = loop
        self._purgatory = purgatory
        self._markers: BatchedRequests[int, _SentMarker, Codes] = BatchedRequests(
            self._send_markers, lambda each: each.marker.producer.id
        )
        self._additions: BatchedRequests[int, _Addition, Codes] = BatchedRequests(
            self._send_additions, lambda each: each.transactional_id
        )

    def close(self) -> None:
        self._markers.close()
        self._additions.close()

    async def write_all(self, marker: Marker, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Have the leader of each partition write the marker; return those that have to be retried.

        A partition that no longer exists needs none.
        """
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in sorted(partitions):
            leader = self.cluster.leader(*partition)
            if leader is not None:
                by_leader.setdefault(leader[0], []).append(partition)
        leaderless = by_leader.pop(-1, [])
        answers = await asyncio.gather(*(self._write(leader, marker, some) for leader, some in by_leader.items()))
        left = {partition for codes in answers for partition, code in codes.items() if code not in _DONE}
        return frozenset(left.union(leaderless))

    async def _write(self, leader: int, marker: Marker, partitions: Sequence[TopicPartition]) -> Codes:
        if leader == self.cluster.node_id:
            return await self.write_here(marker, partitions)
        try:
            return await self._markers.ask(leader, _SentMarker(marker, partitions))
        except (StratalogError, OSError):
            return dict.fromkeys(partitions, UnknownServerError.code)

    async def write_here(self, marker: Marker, partitions: Iterable[TopicPartition]) -> Codes:
        """Write the marker into partitions that this broker leads; return when they are replicated."""
        appended: list[Unconfirmed] = []
        codes = {partition: self._code(marker, partition, appended) for partition in partitions}
        failed = await confirmed(self._loop, self._purgatory, MARKER_TIMEOUT_MS, appended)
        return codes | {TopicPartition(*place): error.code for place, error in failed.items()}

    def _code(self, marker: Marker, partition: TopicPartition, appended: list[Unconfirmed]) -> int:
        code = self._writer.write(marker, partition, appended)
        if code == UnknownTopicOrPartitionError.code and self.cluster.leader(*partition) is not None:
            return NotLeaderOrFollowerError.code
        return code

    async def _send_markers(self, broker: int, batch: Sequence[_SentMarker]) -> list[Codes]:
        markers = [
            {
                "producer_id": each.marker.producer.id,
                "producer_epoch": each.marker.producer.epoch,
                "transaction_result": each.marker.committed,
                "coordinator_epoch": each.marker.coordinator_epoch,
                "transaction_version": each.marker.transaction_version,
                "topics": [
                    {"name": name, "partition_indexes": numbers} for name, numbers in _by_topic(each.partitions)
                ],
            }
            for each in batch
        ]
        answer = await self.cluster.ask(broker, ApiKey.WRITE_TXN_MARKERS, _MARKER_VERSIONS, markers=markers)
        found = {
            int(each.producer_id): {
                TopicPartition(topic.name, partition.partition_index): int(partition.error_code)
                for topic in each.topics
                for partition in topic.partitions
            }
            for each in answer.markers
        }
        return [_all_of(each.partitions, found.get(each.marker.producer.id, {})) for each in batch]

    async def add_partitions(
        self,
        broker: int,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
    ) -> Codes:
        """Have an id's coordinator add or verify partitions. Raises StratalogError or OSError."""
        return await self._additions.ask(broker, _Addition(transactional_id, producer, partitions, verify_only))

    async def _send_additions(self, broker: int, batch: Sequence[_Addition]) -> list[Codes]:
        asked = [
            {
                "transactional_id": each.transactional_id,
                "producer_id": each.producer.id,
                "producer_epoch": each.producer.epoch,
                "verify_only": each.verify_only,
                "topics": [{"name": name, "partitions": numbers} for name, numbers in _by_topic(each.partitions)],
            }
            for each in batch
        ]
        answer = await self.cluster.ask(broker, ApiKey.ADD_PARTITIONS_TO_TXN, _ADD_VERSIONS, transactions=asked)
        if int(answer.error_code):
            raise UnknownServerError(f"broker {broker} returned {answer.error_code.name}")
        found = {
            each.transactional_id: {
                TopicPartition(topic.name, partition.partition_index): int(partition.partition_error_code)
                for topic in each.topic_results
                for partition in topic.results_by_partition
            }
            for each in answer.results_by_transaction
        }
        return [_all_of(each.partitions, found.get(each.transactional_id, {})) for each in batch]


def _by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    return list(topics.items())


def _all_of(partitions: Iterable[TopicPartition], codes: Mapping[TopicPartition, int]) -> Codes:
    """Return the code of each partition; one that is missing in the response has failed."""
    return {partition: codes.get(partition, UnknownServerError.code) for partition in partitions}
