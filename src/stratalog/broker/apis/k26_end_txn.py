"""EndTxn (26): commit or abort.

v0 to v5. v2: PRODUCER_FENCED (before: INVALID_PRODUCER_EPOCH). v3: flexible. v4: TRANSACTION_ABORTABLE. v5: the
producer's epoch is incremented, and the response has its next producer id and epoch (KIP-890). The request may come
over any connection, and may be repeated until the next transaction: the outcome is stored before the response.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.transactions import EPOCH_BUMP_FROM, ProducerIdAndEpoch, code_for
from stratalog.errors import KafkaError
from stratalog.records import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_FENCED_FROM = 2
_RAISES_EPOCH_FROM = 5


@handles(ApiKey.END_TXN, versions=(0, 5))
async def end_txn(ctx: RequestContext, request: Any) -> Any:
    client_version = EPOCH_BUMP_FROM if ctx.version >= _RAISES_EPOCH_FROM else 0
    try:
        producer = ctx.broker.transactions.end(
            request.transactional_id,
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch),
            client_version,
            committed=request.committed,
        )
        await ctx.broker.transactions.log.settled(request.transactional_id)
    except KafkaError as error:
        code = code_for(error, knows_fenced=ctx.version >= _FENCED_FROM)
        return ctx.respond(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
    return ctx.respond(producer_id=producer.id, producer_epoch=producer.epoch)
