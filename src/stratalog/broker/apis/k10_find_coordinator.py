"""FindCoordinator: who looks after a group. This broker does.

Asking for the coordinator of a group creates `__consumer_offsets` if it is not there yet. Version 1 adds the type of the
key, 4 asks for several at once. Transactions (type 1) and share groups (type 2) have no coordinator here. For the former
the answer is TRANSACTIONAL_ID_AUTHORIZATION_FAILED: clients retry for long after any other error, and give up with the
message after this one. For the latter it is INVALID_REQUEST.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.dispatch import ApiKey, RequestContext, handles
from stratalog.errors import InvalidRequestError, TransactionalIdAuthorizationFailedError

_GROUP = 0
_KINDS = {1: "transactions", 2: "share groups"}
_REFUSALS = {1: TransactionalIdAuthorizationFailedError}
_BATCHED_FROM = 4


@handles(ApiKey.FIND_COORDINATOR, versions=(0, 6))
async def find_coordinator(ctx: RequestContext, request: Any) -> Any:
    key_type = getattr(request, "key_type", _GROUP)
    keys = request.coordinator_keys if ctx.version >= _BATCHED_FROM else (request.key,)
    answer: dict[str, Any]
    if key_type == _GROUP:
        await ctx.broker.groups.log.ensure()
        answer = {
            "node_id": ctx.broker.node_id,
            "host": ctx.broker.listener.host or ctx.local_host,
            "port": ctx.broker.listener.port,
            "error_code": 0,
            "error_message": "NONE" if ctx.version < _BATCHED_FROM else "",
        }
    else:
        kind = _KINDS.get(key_type, f"keys of type {key_type}")
        answer = {
            "node_id": -1,
            "host": "",
            "port": -1,
            "error_code": _REFUSALS.get(key_type, InvalidRequestError).code,
            "error_message": f"This broker has no coordinator for {kind}.",
        }
    if ctx.version < _BATCHED_FROM:
        return ctx.respond(**answer)
    return ctx.respond(coordinators=[ctx.make("Coordinator", key=key, **answer) for key in keys])
