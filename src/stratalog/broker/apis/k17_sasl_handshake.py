"""SaslHandshake (17): which mechanism a client wants to authenticate by.

v0, v1 (tokens come in SaslAuthenticate then). Answered here is one that comes too late, or at a listener without SASL:
ILLEGAL_SASL_STATE. The others are answered by the connection itself.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import IllegalSaslStateError


@handles(ApiKey.SASL_HANDSHAKE, versions=(0, 1))
def sasl_handshake(ctx: RequestContext, _request: Any) -> Any:
    return ctx.respond(error_code=IllegalSaslStateError.code, mechanisms=())
