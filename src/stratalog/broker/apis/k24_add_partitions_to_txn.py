"""AddPartitionsToTxn (24): add partitions to a transaction.

v0 to v5. v0 to v3 are for clients, with one transactional id; v2: PRODUCER_FENCED (before: INVALID_PRODUCER_EPOCH); v3:
flexible. v4 and later are for brokers, with several ids, and may only verify partitions (KIP-890). All partitions of an
id are added or none: if one does not exist, the others get OPERATION_NOT_ATTEMPTED.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from stratalog.broker.groups import TopicPartition
from stratalog.broker.internal_topics import INTERNAL_TOPICS
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.transactions import EPOCH_BUMP_FROM, ProducerIdAndEpoch, code_for
from stratalog.errors import (
    KafkaError,
    OperationNotAttemptedError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

_FENCED_FROM = 2
_BROKERS_FROM = 4


@handles(ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 5))
async def add_partitions_to_txn(ctx: RequestContext, request: Any) -> Any:
    if ctx.version >= _BROKERS_FROM:
        answers = [_added(ctx, asked) for asked in request.transactions]
        if ctx.broker.transactions.peers is None:
            return ctx.respond(results_by_transaction=[await answer for answer in answers])
        return ctx.respond(
            results_by_transaction=await asyncio.gather(*answers)
        )  # wait for their replicas concurrently
    return ctx.respond(
        results_by_topic_v3_and_below=await _add(
            ctx,
            request.v3_and_below_transactional_id,
            ProducerIdAndEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
            request.v3_and_below_topics,
            verify_only=False,
        )
    )


async def _added(ctx: RequestContext, asked: Any) -> Any:
    producer = ProducerIdAndEpoch(asked.producer_id, asked.producer_epoch)
    topics = await _add(ctx, asked.transactional_id, producer, asked.topics, verify_only=asked.verify_only)
    return ctx.make("AddPartitionsToTxnResult", transactional_id=asked.transactional_id, topic_results=topics)


async def _add(
    ctx: RequestContext,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    topics: Iterable[Any],
    *,
    verify_only: bool,
) -> list[Any]:
    wanted, codes = await ctx.beside(_checked, ctx, topics)
    if codes:
        return await ctx.beside(_results, ctx, _joined(codes), codes)
    if verify_only:
        codes = {partition: _verify(ctx, transactional_id, producer, partition) for partition in wanted}
        try:
            await ctx.broker.transactions.log.settled(transactional_id)
        except KafkaError as error:
            codes = dict.fromkeys(wanted, error.code)
        return await ctx.beside(_results, ctx, _joined(codes), codes)
    else:
        version = EPOCH_BUMP_FROM if ctx.version >= _BROKERS_FROM else 0
        code = 0
        try:
            # In one step: a record of the transaction has all its partitions.
            ctx.broker.transactions.add_partitions(transactional_id, producer, wanted, version)
            await ctx.broker.transactions.log.settled(transactional_id)
        except KafkaError as error:
            code = code_for(error, knows_fenced=ctx.version >= _FENCED_FROM)
        codes = dict.fromkeys(wanted, code)
    return await ctx.beside(_results, ctx, ((topic.name, topic.partitions) for topic in topics), codes)


def _checked(ctx: RequestContext, topics: Iterable[Any]) -> tuple[list[TopicPartition], dict[TopicPartition, int]]:
    """Return the partitions, each once, and the codes of all of them if one of them is invalid."""
    wanted = list(dict.fromkeys(TopicPartition(topic.name, number) for topic in topics for number in topic.partitions))
    return wanted, _impossible(ctx, wanted)


def _impossible(ctx: RequestContext, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the codes of all partitions if one of them is invalid; empty otherwise."""
    codes = {}
    for partition in wanted:
        if ctx.version < _BROKERS_FROM and partition.topic in INTERNAL_TOPICS:
            codes[partition] = TopicAuthorizationFailedError.code
        elif not ctx.broker.has_partition(partition.topic, partition.partition):
            codes[partition] = UnknownTopicOrPartitionError.code
    if codes:
        codes = {partition: codes.get(partition, OperationNotAttemptedError.code) for partition in wanted}
    return codes


def _verify(ctx: RequestContext, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition) -> int:
    try:
        ctx.broker.transactions.check_in_transaction(transactional_id, producer, partition)
    except KafkaError as error:
        return error.code
    return 0


def _results(
    ctx: RequestContext, topics: Iterable[tuple[str, Iterable[int]]], codes: Mapping[TopicPartition, int]
) -> list[Any]:
    return [
        ctx.make(
            "AddPartitionsToTxnTopicResult",
            name=name,
            results_by_partition=[
                ctx.make(
                    "AddPartitionsToTxnPartitionResult",
                    partition_index=number,
                    partition_error_code=codes[TopicPartition(name, number)],
                )
                for number in numbers
            ],
        )
        for name, numbers in topics
    ]


def _joined(codes: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    """Return each topic once, as Kafka does for partitions that it refuses."""
    topics: dict[str, list[int]] = {}
    for partition in codes:
        topics.setdefault(partition.topic, []).append(partition.partition)
    return list(topics.items())
