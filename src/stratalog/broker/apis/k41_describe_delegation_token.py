"""DescribeDelegationToken (41): the tokens of some owners, or of all, with their HMACs. v1 to v3.

v2: flexible. v3: the requester. Without an authorizer, each client that may list tokens sees all, as in Kafka.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.security import DelegationToken, Principal, may_ask_for_tokens
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import DelegationTokenDisabledError, DelegationTokenNotAllowedError


@handles(ApiKey.DESCRIBE_DELEGATION_TOKEN, versions=(1, 3))
def describe_delegation_token(ctx: RequestContext, request: Any) -> Any:
    tokens = ctx.broker.tokens
    if not may_ask_for_tokens(ctx.peer):
        return ctx.respond(error_code=DelegationTokenNotAllowedError.code)
    if not tokens.enabled:
        return ctx.respond(error_code=DelegationTokenDisabledError.code)
    owners = None if request.owners is None else {Principal(o.principal_type, o.principal_name) for o in request.owners}
    found = [token for token in tokens.all() if owners is None or any(token.concerns(owner) for owner in owners)]
    return ctx.respond(error_code=0, tokens=[_described(ctx, token) for token in found])


def _described(ctx: RequestContext, token: DelegationToken) -> Any:
    renewers = [
        ctx.make("DescribedDelegationTokenRenewer", principal_type=each.kind, principal_name=each.name)
        for each in token.renewers
    ]
    return ctx.make(
        "DescribedDelegationToken",
        principal_type=token.owner.kind,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.kind,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.id,
        hmac=ctx.broker.tokens.hmac(token.id),
        renewers=renewers,
    )
