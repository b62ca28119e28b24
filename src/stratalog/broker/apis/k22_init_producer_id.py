"""InitProducerId (22): a producer id for an idempotent producer, or the initialization of a transactional one.

v0 to v5. v2: flexible. v3: the producer's previous id and epoch, to continue after an error; without a transactional id
they are ignored and a new id is returned, as in Kafka. v4: PRODUCER_FENCED (before: INVALID_PRODUCER_EPOCH). v6
(two-phase commit, KIP-939) is not stable in Kafka 4.4, whose brokers do not support it either.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.groups import to_ms
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.transactions import ProducerIdAndEpoch, code_for
from stratalog.errors import InvalidRequestError, KafkaError
from stratalog.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_FENCED_FROM = 4


@handles(ApiKey.INIT_PRODUCER_ID, versions=(0, 5))
async def init_producer_id(ctx: RequestContext, request: Any) -> Any:
    try:
        producer = await _begin(ctx, request)
    except KafkaError as error:
        code = code_for(error, knows_fenced=ctx.version >= _FENCED_FROM)
        return ctx.respond(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
    return ctx.respond(producer_id=producer.id, producer_epoch=producer.epoch)


async def _begin(ctx: RequestContext, request: Any) -> ProducerIdAndEpoch:
    old = ProducerIdAndEpoch(
        getattr(request, "producer_id", NO_PRODUCER_ID), getattr(request, "producer_epoch", NO_PRODUCER_EPOCH)
    )
    if (old.id == NO_PRODUCER_ID) != (old.epoch == NO_PRODUCER_EPOCH):
        raise InvalidRequestError(f"producer id {old.id} with epoch {old.epoch}, expected both or neither")
    await ctx.broker.producer_ids.ready(ctx.broker.workers)
    if request.transactional_id is None:
        return ProducerIdAndEpoch(ctx.broker.producer_ids.next(), 0)
    transactions = ctx.broker.transactions
    producer = transactions.init_producer_id(
        request.transactional_id,
        to_ms(request.transaction_timeout),
        None if old.id == NO_PRODUCER_ID else old,
    )
    await transactions.log.settled(request.transactional_id)
    return producer
