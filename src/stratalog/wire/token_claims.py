"""Claims of a token of OAUTHBEARER as Kafka requires them, beyond signature, audience, issuer and expiry. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_TIMES: Final = ("exp", "iat", "nbf")
#: What Java's `trim` removes at both ends.
_BLANKS: Final = "".join(map(chr, range(0x21)))


def check_token_times(claims: Mapping[str, object]) -> None:
    """Raise ValueError for a time that is no number, and for a token that ends before it begins.

    A time of issue that lies ahead is accepted, as in Kafka.
    """
    times: dict[str, float] = {}
    for claim in _TIMES:
        value = claims.get(claim)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"claim {claim} is not a number")
        times[claim] = int(value)
    if times.get("iat", 0) < 0:
        raise ValueError("claim iat is negative")
    for claim in ("iat", "nbf"):
        if times.get(claim, 0) > times["exp"]:
            raise ValueError(f"claim exp is before claim {claim}")


def check_token_scopes(scopes: object, claim: str) -> None:
    """Raise ValueError for a blank scope, or one that is listed twice. No scope is necessary."""
    listed = [scopes] if isinstance(scopes, str) else scopes if isinstance(scopes, list) else []
    found = [token_text(scope, claim) for scope in listed]
    if len(set(found)) < len(found):
        raise ValueError(f"claim {claim} names a scope twice")


def token_text(value: object, claim: str) -> str:
    """Return a claim's text without blanks around it. Raise ValueError where there is none."""
    text = value.strip(_BLANKS) if isinstance(value, str) else ""
    if not text:
        raise ValueError(f"claim {claim} is not a name")
    return text
