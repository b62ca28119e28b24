"""CreateDelegationToken (38): a credential in the name of its owner, for a limited time. v1 to v3.

v2: flexible. v3: an owner other than the client; the requester in the response.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.groups import to_ms
from stratalog.broker.security import Principal, may_ask_for_tokens
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import DelegationTokenNotAllowedError, InvalidPrincipalTypeError, KafkaError, UnknownServerError

_USER = "User"


@handles(ApiKey.CREATE_DELEGATION_TOKEN, versions=(1, 3))
async def create_delegation_token(ctx: RequestContext, request: Any) -> Any:
    owner = token_owner(ctx, request)
    if not may_ask_for_tokens(ctx.peer):
        return refused_creation(ctx, owner, DelegationTokenNotAllowedError.code)
    renewers = [Principal(each.principal_type, each.principal_name) for each in request.renewers]
    if any(each.kind != _USER for each in renewers):
        return refused_creation(ctx, owner, InvalidPrincipalTypeError.code)
    tokens = ctx.broker.tokens
    try:
        token = await ctx.broker.workers.run(tokens.create, owner, ctx.principal, renewers, to_ms(request.max_lifetime))
    except KafkaError as error:
        return refused_creation(ctx, owner, error.code, time_ms=0)
    return _respond(
        ctx,
        owner,
        error_code=0,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.id,
        hmac=tokens.hmac(token.id),
    )


def token_owner(ctx: RequestContext, request: Any) -> Principal:
    """Return the owner of a requested token."""
    name = getattr(request, "owner_principal_name", None)
    if not name:
        return ctx.principal
    if request.owner_principal_type is None:
        raise UnknownServerError("The owner of the token has no type.")
    return Principal(request.owner_principal_type, name)


def refused_creation(ctx: RequestContext, owner: Principal, error_code: int, *, time_ms: int = -1) -> Any:
    """Return a response with an error code only; Kafka's controllers leave the times at 0."""
    times = dict.fromkeys(("issue_timestamp", "expiry_timestamp", "max_timestamp"), time_ms)
    return _respond(ctx, owner, error_code=error_code, **times)


def _respond(ctx: RequestContext, owner: Principal, **fields: Any) -> Any:
    requester = ctx.principal
    return ctx.respond(
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        **fields,
    )
