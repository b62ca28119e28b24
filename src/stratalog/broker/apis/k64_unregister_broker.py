"""UnregisterBroker (64): only this broker is registered, and it cannot be unregistered. v0 (KIP-631).

Kafka allows that; every partition is then without a leader, and the broker does not stop.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import InvalidRequestError

_BROKER_ID_NOT_REGISTERED = 102


@handles(ApiKey.UNREGISTER_BROKER, versions=(0, 0))
def unregister_broker(ctx: RequestContext, request: Any) -> Any:
    if request.broker_id == ctx.broker.node_id:
        raise InvalidRequestError(f"broker {request.broker_id} is the only one; to take it out of service, stop it")
    return ctx.respond(
        error_code=_BROKER_ID_NOT_REGISTERED,
        error_message=f"Broker ID {request.broker_id} is not currently registered",
    )
