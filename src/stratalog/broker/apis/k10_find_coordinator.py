"""FindCoordinator: the coordinator of a group or transactional id. It is this broker.

A request creates `__consumer_offsets`, `__transaction_state` or `__share_group_state` if missing. Version 1 adds the
type of the key, 4 several keys, 6 states of share groups (type 2) by group, topic id and partition.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.share import is_share_key
from stratalog.errors import INVALID_REQUEST_MESSAGE, InvalidRequestError

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_BATCHED_FROM = 4
_SHARE_FROM = 6


@handles(ApiKey.FIND_COORDINATOR, versions=(0, 6))
async def find_coordinator(ctx: RequestContext, request: Any) -> Any:
    key_type = getattr(request, "key_type", _GROUP)
    keys = request.coordinator_keys if ctx.version >= _BATCHED_FROM else (request.key,)
    logs = {_GROUP: ctx.broker.groups.log, _TRANSACTION: ctx.broker.transactions.log}
    if key_type == _SHARE and ctx.version >= _SHARE_FROM:
        logs[_SHARE] = ctx.broker.share_states.log
    if key_type in logs and any(key_type != _SHARE or is_share_key(key) for key in keys):
        await logs[key_type].ensure()
    here = {
        "node_id": ctx.broker.node_id,
        "host": ctx.peer.reached_host,
        "port": ctx.peer.listener.port,
        "error_code": 0,
        "error_message": "NONE" if ctx.version < _BATCHED_FROM else "",
    }
    nowhere = {
        "node_id": -1,
        "host": "",
        "port": -1,
        "error_code": InvalidRequestError.code,
        "error_message": "" if key_type == _SHARE and ctx.version >= _BATCHED_FROM else INVALID_REQUEST_MESSAGE,
    }

    def answer(key: str) -> dict[str, Any]:
        return here if key_type in logs and (key_type != _SHARE or is_share_key(key)) else nowhere

    if ctx.version < _BATCHED_FROM:
        return ctx.respond(**answer(request.key))
    return ctx.respond(coordinators=[ctx.make("Coordinator", key=key, **answer(key)) for key in keys])
