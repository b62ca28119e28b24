"""What every SASL mechanism of a server is: an exchange of messages that ends with who the client is, or fails."""

from __future__ import annotations

from typing import Protocol

from stratalog.broker.security.peer import Principal
from stratalog.errors import StratalogError


class SaslFailureError(StratalogError):
    """A client did not prove who it is. `client_message` is the reason sent to it, None for the default one."""

    def __init__(self, why: str, *, client_message: str | None = None) -> None:
        super().__init__(why)
        self.client_message = client_message


class SaslExchange(Protocol):
    """One client's attempt. Belongs to the loop's thread."""

    #: Who the client is, once it has proved it.
    principal: Principal | None
    #: When that stops being true, in ms since the epoch; None when the mechanism knows no end.
    expires_ms: int | None
    #: Whether it proved that by a delegation token.
    by_token: bool

    def evaluate(self, message: bytes) -> bytes:
        """Return the answer to a message of the client. SaslFailureError for one that proves nothing."""
        ...
