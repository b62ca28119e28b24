"""Transactions as their coordinators report them, and producers as partition leaders report them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from stratalog.cli.missing import require_named
from stratalog.wire import ApiKey
from stratalog.wire.client import Cluster, Coordinators, RefusedError, check

TopicPartition = tuple[str, int]

_NONE: Final = -1
#: States in which a transaction has begun and not ended; in others the time of the last one may still be there.
_OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


@dataclass(frozen=True, slots=True)
class TransactionSummary:
    """A transactional id as ListTransactions has it. `coordinator` is the broker that listed it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionDetails:
    """A transactional id, and its transaction if one is open. `started_ms` is None where none is."""

    summary: TransactionSummary
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer as the leader of a partition sees it. `start_offset` is None where it has no transaction open."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_timestamp_ms: int
    start_offset: int | None


def list_transactions(
    cluster: Cluster, states: Collection[str] = (), producer_ids: Collection[int] = (), longer_than_ms: int = _NONE
) -> dict[str, TransactionSummary]:
    """Return the transactional ids of all brokers, those that match where something is asked for."""
    found = {}
    for broker in sorted(cluster.nodes()):
        answer = cluster.node(broker).call(
            ApiKey.LIST_TRANSACTIONS,
            (0 if longer_than_ms < 0 else 1, 1),
            state_filters=tuple(states),
            producer_id_filters=tuple(producer_ids),
            duration_filter=longer_than_ms,
        )
        check(answer.error_code)
        for each in answer.transaction_states:
            name = str(each.transactional_id)
            found[name] = TransactionSummary(name, int(each.producer_id), str(each.transaction_state), broker)
    return dict(sorted(found.items()))


def describe_transactions(cluster: Cluster, names: Collection[str]) -> list[TransactionDetails]:
    """Return what is known of transactional ids. Raises NothingFoundError, which names the nearest."""
    known = list_transactions(cluster)
    require_named("transactional id", names, lambda: known, cluster.any.address)
    return [_details(cluster, known[name]) for name in dict.fromkeys(names)]


def _details(cluster: Cluster, summary: TransactionSummary) -> TransactionDetails:
    client = Coordinators(cluster).of_transaction(summary.transactional_id)
    (answer,) = client.call(
        ApiKey.DESCRIBE_TRANSACTIONS, (0, 0), transactional_ids=(summary.transactional_id,)
    ).transaction_states
    check(answer.error_code, what=f"transactional id {summary.transactional_id}")
    state = str(answer.transaction_state)
    started = milliseconds(answer.transaction_start_time) if state in _OPEN else _NONE
    return TransactionDetails(
        TransactionSummary(summary.transactional_id, int(answer.producer_id), state, summary.coordinator),
        int(answer.producer_epoch),
        milliseconds(answer.transaction_timeout),
        None if started < 0 else started,
        tuple((str(topic.topic), int(number)) for topic in answer.topics for number in sorted(topic.partitions)),
    )


def active_producers(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    on_refused: Callable[[str, RefusedError], object] | None = None,
) -> list[ActiveProducer]:
    """Return the producers that the leaders of these partitions know. RefusedError and errors of Kafka.

    With `on_refused`, a partition that its leader refuses is reported to it instead of raised.
    """
    by_leader: dict[int, dict[str, list[int]]] = {}
    for topic, number in partitions:
        by_leader.setdefault(cluster.leader_of(topic, number), {}).setdefault(topic, []).append(number)
    found = []
    for leader, topics in by_leader.items():
        state = cluster.node(leader).call(
            ApiKey.DESCRIBE_PRODUCERS,
            (0, 0),
            topics=[{"name": name, "partition_indexes": tuple(numbers)} for name, numbers in topics.items()],
        )
        for topic in state.topics:
            for part in topic.partitions:
                name = f"{topic.name}-{part.partition_index}"
                try:
                    check(part.error_code, part.error_message, name)
                except RefusedError as error:
                    if on_refused is None:
                        raise
                    on_refused(name, error)
                    continue
                found += [_producer(topic.name, part.partition_index, each) for each in part.active_producers]
    return sorted(found, key=lambda each: (each.topic, each.partition, each.producer_id))


def _producer(topic: str, partition: int, state: Any) -> ActiveProducer:
    start = int(state.current_txn_start_offset)
    return ActiveProducer(
        topic=str(topic),
        partition=int(partition),
        producer_id=int(state.producer_id),
        producer_epoch=int(state.producer_epoch),
        coordinator_epoch=int(state.coordinator_epoch),
        last_timestamp_ms=milliseconds(state.last_timestamp),
        start_offset=None if start < 0 else start,
    )


def hanging(cluster: Cluster, candidates: Collection[ActiveProducer]) -> list[ActiveProducer]:
    """Return producers with an open transaction that no coordinator knows."""
    summaries = list_transactions(cluster, producer_ids=sorted({each.producer_id for each in candidates}))
    found = [_details(cluster, summary) for summary in summaries.values()] if candidates else []
    known: Mapping[int, set[TopicPartition]] = {each.summary.producer_id: set(each.partitions) for each in found}
    return [each for each in candidates if (each.topic, each.partition) not in known.get(each.producer_id, set())]


def milliseconds(value: Any) -> int:
    """Return a time or a span of a message in ms; -1 for none."""
    if value is None:
        return _NONE
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else int(value)
