"""SASL OAUTHBEARER (RFC 7628, KIP-255, KIP-768): a signed token (JWT) names the client and its expiry time.

client:  n,[a=NAME],^Aauth=Bearer TOKEN[^Akey=value...]^A^A     server:  empty, or {"status":"invalid_token"}
client, after that:  ^A                                        server:  refuses
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from stratalog.broker.security.peer import Principal
from stratalog.broker.security.sasl_exchange import SaslFailureError
from stratalog.wire import check_token_scopes, check_token_times, token_text

if TYPE_CHECKING:
    from stratalog.broker.security.jwks import SigningKeys

logger = logging.getLogger(__name__)

_FIRST: Final = re.compile(
    rb"n,(?:a=(?P<authorization>[^,\x01]+))?,\x01auth=[Bb]earer (?P<token>[-A-Za-z0-9._~+/]+=*)\x01"
    rb"(?:[A-Za-z]+=[^\x01]*\x01)*\x01"
)
_REFUSED: Final = b'{"status":"invalid_token"}'
_ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The checks of a token. Empty audiences and no issuer mean no check."""

    keys: SigningKeys
    audiences: tuple[str, ...]
    issuer: str | None
    name_claim: str
    scope_claim: str
    clock_skew_s: int


class OAuthBearerExchange:
    """One client message, and a second one after a rejected token."""

    def __init__(self, rules: TokenRules) -> None:
        self._rules = rules
        self._refused: str | None = None
        self.principal: Principal | None = None
        self.expires_ms: int | None = None
        self.by_token = False

    def evaluate(self, message: bytes) -> bytes:
        if self._refused is not None:
            raise SaslFailureError(self._refused, client_message=_REFUSED.decode())
        found = _FIRST.fullmatch(message)
        if found is None:
            raise SaslFailureError("an invalid OAUTHBEARER message")
        name, expires_ms = self._check(found["token"].decode())
        if name is None:
            return _REFUSED
        wanted = (found["authorization"] or b"").replace(b"=2C", b",").replace(b"=3D", b"=").decode("utf-8", "replace")
        if wanted and wanted != name:
            raise SaslFailureError(
                "an authorization id other than the token's",
                client_message=f"Authentication failed: Client requested an authorization id ({wanted}) that is "
                f"different from the token's principal name ({name})",
            )
        self.principal, self.expires_ms = Principal("User", name), expires_ms
        return b""

    def _check(self, token: str) -> tuple[str | None, int]:
        """Return the principal name of a token and its expiry time; None for a rejected one."""
        import jwt  # an optional dependency

        rules = self._rules
        try:
            header = jwt.get_unverified_header(token)
            key = rules.keys.get(header.get("kid"))
            if key is None:
                raise jwt.InvalidTokenError(f"unknown key {header.get('kid')!r}")
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(_ALGORITHMS),
                audience=list(rules.audiences) or None,
                issuer=rules.issuer,
                leeway=rules.clock_skew_s,
                options={
                    "require": ["exp", "iat", rules.name_claim],
                    "verify_aud": bool(rules.audiences),
                    "verify_sub": False,
                    "verify_iat": False,
                },
            )
            check_token_times(claims)
            check_token_scopes(claims.get(rules.scope_claim), rules.scope_claim)
            return token_text(claims[rules.name_claim], rules.name_claim), int(claims["exp"]) * 1000
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            self._refused = f"a rejected token: {error}"
            return None, 0
