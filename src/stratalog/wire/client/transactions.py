"""Producer ids, transactions and commits of groups: questions to coordinators, asked again while they move or are busy.

In the versions before KIP-890's second part (Produce up to 11, EndTxn up to 4), in which the end of a transaction is
the same request however often it is sent, and by whom.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar

from stratalog.wire.api_keys import ApiKey
from stratalog.wire.client.cluster import Cluster
from stratalog.wire.client.connection import Client
from stratalog.wire.client.errors import wire_error
from stratalog.wire.client.offsets import TopicPartition

T = TypeVar("T")

_GROUP: Final = 0
_TRANSACTION: Final = 1


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """A producer's identity; batches carry both numbers. `transactional_id` is None for one that is only idempotent."""

    transactional_id: str | None
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class GroupOffset:
    offset: int
    metadata: str


class Coordinators:
    """Asks the coordinators of a cluster. Thread-safe. Raises errors of Kafka, UnreachableError, UsageError."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def init_producer(self, transactional_id: str | None, transaction_timeout_ms: int) -> ProducerIdentity:
        """Return a producer id, or the transactional id's with a new epoch.

        Who had it is fenced, its transaction aborted.
        """

        def ask() -> ProducerIdentity:
            client = self._cluster.any
            if transactional_id is not None:
                client = self.of_transaction(transactional_id)
            answer = client.call(
                ApiKey.INIT_PRODUCER_ID,
                (0, 4),
                transactional_id=transactional_id,
                transaction_timeout=timedelta(milliseconds=transaction_timeout_ms),
                producer_id=-1,
                producer_epoch=-1,
            )
            _check(answer.error_code, f"a producer id for {transactional_id}")
            return ProducerIdentity(transactional_id, int(answer.producer_id), int(answer.producer_epoch))

        return self._cluster.retry(ask, "producer id")

    def add_partitions(self, producer: ProducerIdentity, partitions: Iterable[TopicPartition]) -> None:
        """Make partitions part of the producer's transaction; the first of them begins it."""
        by_topic: dict[str, list[int]] = {}
        for topic, partition in partitions:
            by_topic.setdefault(topic, []).append(partition)
        topics = [{"name": name, "partitions": tuple(numbers)} for name, numbers in by_topic.items()]

        def ask() -> None:
            answer = self.of_transaction(str(producer.transactional_id)).call(
                ApiKey.ADD_PARTITIONS_TO_TXN,
                (0, 3),
                v3_and_below_transactional_id=producer.transactional_id,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.epoch,
                v3_and_below_topics=topics,
            )
            for topic in answer.results_by_topic_v3_and_below:
                for each in topic.results_by_partition:
                    _check(each.partition_error_code, f"{topic.name}-{each.partition_index} in a transaction")

        self._cluster.retry(ask, "partitions of a transaction", by_topic)

    def end(self, producer: ProducerIdentity, *, commit: bool) -> None:
        """Commit or abort. Once more is no error, unless a new transaction has begun under the id."""

        def ask() -> None:
            answer = self.of_transaction(str(producer.transactional_id)).call(
                ApiKey.END_TXN,
                (0, 4),
                transactional_id=producer.transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                committed=commit,
            )
            _check(answer.error_code, f"the end of transaction {producer.transactional_id}")

        self._cluster.retry(ask, "end of a transaction")

    def ongoing(self, prefix: str) -> list[str]:
        """Transactional ids that begin so and have a transaction open."""

        def ask() -> list[str]:
            found = []
            for node in self._cluster.nodes():
                answer = self._cluster.node(node).call(
                    ApiKey.LIST_TRANSACTIONS, (0, 1), state_filters=("Ongoing",), producer_id_filters=()
                )
                _check(answer.error_code, "the list of transactions")
                found += [str(each.transactional_id) for each in answer.transaction_states]
            return sorted(name for name in found if name.startswith(prefix))

        return self._cluster.retry(ask, "transactions")

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, GroupOffset]) -> None:
        """Commit for a group without members; all of them are kept, or none."""
        by_topic: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), each in offsets.items():
            by_topic.setdefault(topic, []).append(
                {
                    "partition_index": partition,
                    "committed_offset": each.offset,
                    "committed_leader_epoch": -1,
                    "committed_metadata": each.metadata,
                }
            )
        topics = [{"name": name, "partitions": partitions} for name, partitions in by_topic.items()]

        def ask() -> None:
            answer = self.of_group(group).call(
                ApiKey.OFFSET_COMMIT,
                (2, 8),
                group_id=group,
                generation_id_or_member_epoch=-1,
                member_id="",
                topics=topics,
            )
            for topic in answer.topics:
                for each in topic.partitions:
                    _check(each.error_code, f"commit of group {group} for {topic.name}")

        self._cluster.retry(ask, f"commit of group {group}", by_topic)

    def committed(self, group: str) -> dict[TopicPartition, GroupOffset]:
        def ask() -> dict[TopicPartition, GroupOffset]:
            answer = self.of_group(group).call(
                ApiKey.OFFSET_FETCH, (2, 7), group_id=group, topics=None, require_stable=False
            )
            _check(answer.error_code, f"commits of group {group}")
            found = {}
            for topic in answer.topics:
                for each in topic.partitions:
                    _check(each.error_code, f"commits of group {group} for {topic.name}")
                    key = str(topic.name), int(each.partition_index)
                    found[key] = GroupOffset(int(each.committed_offset), each.metadata or "")
            return found

        return self._cluster.retry(ask, f"commits of group {group}")

    def of_group(self, group: str) -> Client:
        """Return a connection to the coordinator of a group."""
        return self._coordinator(_GROUP, group)

    def of_transaction(self, transactional_id: str) -> Client:
        """Return a connection to the coordinator of a transactional id."""
        return self._coordinator(_TRANSACTION, transactional_id)

    def _coordinator(self, kind: int, key: str) -> Client:
        answer = self._cluster.any.call(ApiKey.FIND_COORDINATOR, (1, 3), key=key, key_type=kind)
        _check(answer.error_code, f"the coordinator of {key}")
        return self._cluster.node(int(answer.node_id))


def _check(code: Any, what: str) -> None:
    if int(code):
        raise wire_error(int(code), what)
