"""SaslAuthenticate (36): a message of a SASL mechanism.

v0 to v2. v1: the session lifetime (KIP-368). v2: flexible. This handler answers late requests, and those to a listener
without SASL: ILLEGAL_SASL_STATE. The connection itself answers the others.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import IllegalSaslStateError


@handles(ApiKey.SASL_AUTHENTICATE, versions=(0, 2))
def sasl_authenticate(ctx: RequestContext, _request: Any) -> Any:
    return ctx.respond(
        error_code=IllegalSaslStateError.code,
        error_message="SaslAuthenticate request received after successful authentication",
    )
