"""FindCoordinator: the coordinator of a group or transactional id. It is this broker.

A request creates `__consumer_offsets`, `__transaction_state` or `__share_group_state` if missing. Version 1 adds the
type of the key, 4 several keys, 6 states of share groups (type 2) by group, topic id and partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.share import is_share_key
from stratalog.errors import (
    INVALID_REQUEST_MESSAGE,
    CoordinatorNotAvailableError,
    InvalidRequestError,
    KafkaError,
)

if TYPE_CHECKING:
    from stratalog.broker.coordinator_log import CoordinatorLog

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
    is_missing = False
    if key_type in logs and any(key_type != _SHARE or is_share_key(key) for key in keys):
        is_missing = not await _is_made(logs[key_type])
    by_key = ctx.version >= _BATCHED_FROM
    if is_missing:
        here = _nowhere(CoordinatorNotAvailableError, "" if by_key else "The coordinator is not available.")
    else:
        here = {
            "node_id": ctx.broker.node_id,
            "host": ctx.peer.reached_host,
            "port": ctx.peer.listener.port,
            "error_code": 0,
            "error_message": "" if by_key else "NONE",
        }
    nowhere = _nowhere(InvalidRequestError, "" if key_type == _SHARE and by_key else INVALID_REQUEST_MESSAGE)

    def answer(key: str) -> dict[str, Any]:
        return here if key_type in logs and (key_type != _SHARE or is_share_key(key)) else nowhere

    if not by_key:
        return ctx.respond(**answer(request.key))
    return ctx.respond(
        coordinators=[ctx.make("Coordinator", key=key, **answer(key)) async for key in ctx.in_turns(keys)]
    )


def _nowhere(error: type[KafkaError], message: str) -> dict[str, Any]:
    return {"node_id": -1, "host": "", "port": -1, "error_code": error.code, "error_message": message}


async def _is_made(log: CoordinatorLog) -> bool:
    """Return whether the topic exists, created if it was missing."""
    try:
        await log.ensure()
    except CoordinatorNotAvailableError:  # it is logged, and clients ask again
        return False
    return True
