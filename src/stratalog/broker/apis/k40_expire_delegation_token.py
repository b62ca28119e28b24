"""ExpireDelegationToken (40): expire a token, at once or after a period. v1 and v2.

v2: flexible. A period below 0 removes the token. Only the owner and renewers may do this.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.groups import to_ms
from stratalog.broker.security import may_ask_for_tokens
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import DelegationTokenNotAllowedError, KafkaError


@handles(ApiKey.EXPIRE_DELEGATION_TOKEN, versions=(1, 2))
async def expire_delegation_token(ctx: RequestContext, request: Any) -> Any:
    if not may_ask_for_tokens(ctx.peer):
        return ctx.respond(error_code=DelegationTokenNotAllowedError.code, expiry_timestamp=-1)
    try:
        expires_ms = await ctx.broker.workers.run(
            ctx.broker.tokens.expire, bytes(request.hmac), ctx.principal, to_ms(request.expiry_time_period)
        )
    except KafkaError as error:
        return ctx.respond(error_code=error.code, expiry_timestamp=0)
    return ctx.respond(error_code=0, expiry_timestamp=expires_ms)
