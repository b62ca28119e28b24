"""InitProducerId (22): a producer id for an idempotent producer.

v0 to v5. v2: flexible. v3: the producer's old id and epoch, which without a transactional id do not matter: a fresh id is
always given, as Kafka does. With a transactional id the answer is TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which every client
takes as final: there is no transaction coordinator.
"""

from __future__ import annotations

import logging
from typing import Any

from stratalog.broker.dispatch import ApiKey, RequestContext, handles
from stratalog.errors import InvalidRequestError, TransactionalIdAuthorizationFailedError

logger = logging.getLogger(__name__)


@handles(ApiKey.INIT_PRODUCER_ID, versions=(0, 5))
def init_producer_id(ctx: RequestContext, request: Any) -> Any:
    if request.transactional_id is None:
        return ctx.respond(producer_id=ctx.broker.producer_ids.next(), producer_epoch=0)
    if request.transactional_id == "":
        return ctx.respond(error_code=InvalidRequestError.code, producer_id=-1, producer_epoch=-1)
    logger.warning(
        "%s asked for transactions (transactional id %s), which this broker does not have",
        ctx.client_host,
        request.transactional_id,
    )
    return ctx.respond(
        error_code=TransactionalIdAuthorizationFailedError.code, producer_id=-1, producer_epoch=-1
    )
