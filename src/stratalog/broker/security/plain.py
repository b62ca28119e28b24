"""SASL PLAIN (RFC 4616): a name and a password, checked against the JAAS line (`user_alice="..."`)."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from stratalog.broker.security.peer import Principal
from stratalog.broker.security.sasl_exchange import SaslFailureError

_USER: Final = "user_"
_TOKENS: Final = 3
_WRONG: Final = "Authentication failed: Invalid username or password"


def plain_passwords(options: Mapping[str, str]) -> Mapping[str, str]:
    """Return passwords by user name."""
    return {name.removeprefix(_USER): value for name, value in options.items() if name.startswith(_USER)}


class PlainExchange:
    """One message: authorization id, name and password, separated by NULs."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.principal: Principal | None = None
        self.expires_ms: int | None = None
        self.by_token = False

    def evaluate(self, message: bytes) -> bytes:
        tokens = message.decode("utf-8", "replace").split("\0")
        if len(tokens) != _TOKENS:
            why = f"Invalid SASL/PLAIN response: expected {_TOKENS} tokens, got {len(tokens)}"
            raise SaslFailureError(why, client_message=why)
        authorization_id, name, password = tokens
        for token, what in ((name, "username"), (password, "password")):
            if not token:
                why = f"Authentication failed: {what} not specified"
                raise SaslFailureError(why, client_message=why)
        known = self._passwords.get(name)
        # The same work for an unknown name, against timing attacks.
        fits = hmac.compare_digest((known or "").encode(), password.encode())
        if known is None or not fits:
            raise SaslFailureError(f"wrong name or password for {name!r}", client_message=_WRONG)
        if authorization_id and authorization_id != name:
            raise SaslFailureError(
                "an authorization id other than the name",
                client_message="Authentication failed: Client requested an authorization id that is different "
                "from username",
            )
        self.principal = Principal("User", name)
        return b""
