"""AddOffsetsToTxn (25): add the commits of a group to a transaction.

v0 to v4. v2: PRODUCER_FENCED (before: INVALID_PRODUCER_EPOCH). v3: flexible. v4: TRANSACTION_ABORTABLE. Adds the
group's partition of `__consumer_offsets`. Clients with transactions version 2 use TxnOffsetCommit alone.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.groups import TopicPartition
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.transactions import ProducerIdAndEpoch, code_for
from stratalog.errors import KafkaError

_FENCED_FROM = 2


@handles(ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 4))
async def add_offsets_to_txn(ctx: RequestContext, request: Any) -> Any:
    offsets = ctx.broker.groups.log
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    try:
        await offsets.ensure()
        partition = TopicPartition(offsets.topic, offsets.partition_number(request.group_id))
        ctx.broker.transactions.add_partitions(request.transactional_id, producer, [partition], 0)
        await ctx.broker.transactions.log.settled(request.transactional_id)
    except KafkaError as error:
        return ctx.respond(error_code=code_for(error, knows_fenced=ctx.version >= _FENCED_FROM))
    return ctx.respond()
