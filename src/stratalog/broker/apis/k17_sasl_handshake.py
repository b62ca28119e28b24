"""SaslHandshake (17): the mechanism with which a client wants to authenticate.

v0, v1 (tokens are in SaslAuthenticate requests). This handler answers late requests, and those to a listener without
SASL: ILLEGAL_SASL_STATE. The connection itself answers the others.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import IllegalSaslStateError


@handles(ApiKey.SASL_HANDSHAKE, versions=(0, 1))
def sasl_handshake(ctx: RequestContext, _request: Any) -> Any:
    return ctx.respond(error_code=IllegalSaslStateError.code, mechanisms=())
