"""The interface of all SASL mechanisms: an exchange of messages that ends with a principal, or fails."""

from __future__ import annotations

from typing import Protocol

from stratalog.broker.security.peer import Principal
from stratalog.errors import StratalogError


class SaslFailureError(StratalogError):
    """Authentication failed. `client_message` is the reason sent to the client, None for the default one."""

    def __init__(self, why: str, *, client_message: str | None = None) -> None:
        super().__init__(why)
        self.client_message = client_message


class SaslExchange(Protocol):
    """One authentication attempt. Belongs to the loop's thread."""

    #: The client's principal, once authenticated.
    principal: Principal | None
    #: Expiry time in ms since the epoch; None when the mechanism has none.
    expires_ms: int | None
    #: Whether it authenticated by a delegation token.
    by_token: bool

    def evaluate(self, message: bytes) -> bytes:
        """Return the response to a client's message. SaslFailureError when authentication fails."""
        ...
