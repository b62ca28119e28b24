"""DescribeTransactions (65): the state of transactional ids, with partitions of open transactions. v0 (KIP-664)."""

from __future__ import annotations

import datetime
from typing import Any

from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.transactions import Transaction
from stratalog.errors import KafkaError

_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)


@handles(ApiKey.DESCRIBE_TRANSACTIONS, versions=(0, 0))
async def describe_transactions(ctx: RequestContext, request: Any) -> Any:
    return ctx.respond(transaction_states=[_state(ctx, name) async for name in ctx.in_turns(request.transactional_ids)])


def _state(ctx: RequestContext, transactional_id: str) -> Any:
    try:
        known = ctx.broker.transactions.describe(transactional_id)
    except KafkaError as error:
        return ctx.make("TransactionState", transactional_id=transactional_id, error_code=error.code)
    return ctx.make(
        "TransactionState",
        transactional_id=transactional_id,
        transaction_state=known.state.title,
        transaction_timeout=known.timeout_ms,
        transaction_start_time=_EPOCH + datetime.timedelta(milliseconds=known.start_ms),  # -1 too
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        topics=_topics(ctx, known),
    )


def _topics(ctx: RequestContext, known: Transaction) -> list[Any]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(known.partitions):
        by_topic.setdefault(topic, []).append(partition)
    return [ctx.make("TopicData", topic=topic, partitions=numbers) for topic, numbers in by_topic.items()]
