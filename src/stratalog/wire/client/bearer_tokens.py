"""Tokens of OAUTHBEARER for a client: fetched from an endpoint by client credentials, read from a file, or unsigned.

A token from an endpoint is kept until it ends, for all connections of the process. It is renewed beforehand by a thread
of its own, so that a slow endpoint delays a login by 2 s at most while a token is still good.
"""

from __future__ import annotations

import base64
import functools
import http.client
import json
import logging
import re
import threading
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote_plus, urlsplit

from stratalog.errors import UsageError
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, Clock, random_below
from stratalog.wire.client.errors import AuthenticationError, UnreachableError
from stratalog.wire.client.token_login import TokenLogin
from stratalog.wire.client.transport import tls_context
from stratalog.wire.token_claims import check_token_scopes, check_token_times, token_text

logger = logging.getLogger(__name__)

_TOKEN: Final = re.compile(r"[-A-Za-z0-9_]+\.[-A-Za-z0-9_]+\.[-A-Za-z0-9_]*")
_ANSWER_BYTES_MAX: Final = 1024 * 1024
_ERROR_CHARACTERS: Final = 200
_OK: Final = (200, 201)
#: Kafka tries no longer after these: the endpoint understood the request.
_FINAL_STATUSES: Final = frozenset({*range(400, 408), *range(409, 416), 501, 505})
#: How long a login waits for a new token while the current one is still good.
_RENEWAL_PATIENCE_S: Final = 2.0
_RENEWAL_PAUSE_MS: Final = 10_000
_JITTER_STEPS: Final = 1000


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A token and its times in milliseconds since the epoch. Its repr does not show it."""

    text: str
    starts_ms: int | None
    expires_ms: int

    def __repr__(self) -> str:
        return f"BearerToken(expires_ms={self.expires_ms})"


def bearer_token(login: TokenLogin) -> str:
    """Return a token to log in with. Raises AuthenticationError, UnreachableError or UsageError, without secrets."""
    if login.url is None:
        return _unsecured(login, SYSTEM_CLOCK)
    if login.file is not None:
        return _from_file(login)
    return _source(login).token()


class TokenSource:
    """Keeps the token of one login at an endpoint. Thread-safe."""

    def __init__(self, login: TokenLogin, clock: Clock = SYSTEM_CLOCK) -> None:
        self._login = login
        self._clock = clock
        self._fetching = threading.Lock()
        self._held: BearerToken | None = None
        self._renew_at_ms = 0
        self._renewal: threading.Thread | None = None
        self._starting = threading.Lock()
        self._failure: tuple[float, UsageError] | None = None

    def token(self) -> str:
        """Return the current token, or a new one when it has expired."""
        held, now_ms = self._held, self._clock.now_ms()
        if held is None or now_ms >= held.expires_ms:
            return self._first_or_next(self._clock.monotonic())
        if now_ms >= self._renew_at_ms:
            self._renewing().join(_RENEWAL_PATIENCE_S)
        return (self._held or held).text

    def _first_or_next(self, asked_s: float) -> str:
        with self._fetching:
            held = self._held
            if held is None or self._clock.now_ms() >= held.expires_ms:
                if self._failure is not None and self._failure[0] >= asked_s:
                    raise type(self._failure[1])(str(self._failure[1]))  # another thread tried while this one waited
                try:
                    held = fetch_token(self._login, self._clock)
                except UsageError as error:
                    self._failure = (self._clock.monotonic(), error)
                    raise
                self._keep(held)
            return held.text

    def _keep(self, token: BearerToken) -> None:
        self._renew_at_ms = renewal_ms(token, self._login, self._clock.now_ms(), random_below(_JITTER_STEPS))
        self._held = token

    def _renewing(self) -> threading.Thread:
        with self._starting:
            if self._renewal is None or not self._renewal.is_alive():
                self._renew_at_ms = self._clock.now_ms() + _RENEWAL_PAUSE_MS
                self._renewal = threading.Thread(target=self._renew, name="stratalog-token", daemon=True)
                self._renewal.start()
            return self._renewal

    def _renew(self) -> None:
        try:
            self._keep(fetch_token(self._login, self._clock))
        except UsageError as error:
            logger.warning("No new token, the current one stays in use until it ends: %s", error)


def renewal_ms(token: BearerToken, login: TokenLogin, now_ms: int, jitter: int) -> int:
    """Return when a token is due for renewal, as Kafka reckons: `jitter` is a number below 1000.

    A factor of the lifetime, but early enough before its end, and not too soon. A token too short for both buffers is
    renewed after that factor of what is left of it.
    """
    refresh = login.refresh
    factor = refresh.window_factor + refresh.window_jitter * jitter / _JITTER_STEPS
    starts_ms = token.starts_ms if token.starts_ms is not None else now_ms
    buffer_ms, period_ms = refresh.buffer_s * 1000, refresh.min_period_s * 1000
    if now_ms + period_ms + buffer_ms > token.expires_ms:
        return int(now_ms + (token.expires_ms - now_ms) * factor)
    due_ms = min(starts_ms + (token.expires_ms - starts_ms) * factor, token.expires_ms - buffer_ms)
    return int(max(due_ms, now_ms + period_ms))


def fetch_token(login: TokenLogin, clock: Clock = SYSTEM_CLOCK) -> BearerToken:
    """Ask the endpoint, again until `retry_max_s` is over. Raises AuthenticationError, UnreachableError, UsageError."""
    deadline = clock.monotonic() + login.retry_max_s
    pause_s = login.retry_backoff_s
    while True:
        try:
            return _checked(_asked(login), login)
        except (OSError, ValueError, http.client.HTTPException) as error:  # ValueError: a host name that is none
            left_s = deadline - clock.monotonic()
            if left_s <= 0:
                why = getattr(error, "strerror", None) or str(error) or type(error).__name__
                raise UnreachableError(f"{login.where}: no token: {why}") from None
        clock.sleep(max(min(pause_s, left_s), 0.01))
        pause_s *= 2


@functools.lru_cache(maxsize=64)
def _source(login: TokenLogin) -> TokenSource:
    return TokenSource(login)


def _asked(login: TokenLogin) -> str:
    """Return the token of one answer. OSError, ValueError and HTTPException may pass; AuthenticationError does not."""
    parts = urlsplit(login.url or "")
    host, port = parts.hostname or "", parts.port
    if parts.scheme == "https":
        context = tls_context(login.tls)
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, port, timeout=login.connect_timeout_s, context=context
        )
    else:
        connection = http.client.HTTPConnection(host, port, timeout=login.connect_timeout_s)
    with_query = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
    scope = f"&scope={quote_plus(login.scope)}" if login.scope else ""
    try:
        connection.connect()
        connection.sock.settimeout(login.read_timeout_s)
        connection.request("POST", with_query, f"grant_type=client_credentials{scope}", _headers(login))
        with connection.getresponse() as answer:
            body = answer.read(_ANSWER_BYTES_MAX)
    finally:
        connection.close()
    if answer.status not in _OK:
        why = f"the endpoint answers {answer.status}{_reason(body, login.client_secret)}"
        if answer.status in _FINAL_STATUSES:
            raise AuthenticationError(f"{login.where}: no token: {why}")
        raise ConnectionError(why)
    return _token_of(body, login)


def _headers(login: TokenLogin) -> dict[str, str]:
    pair = [login.client_id, login.client_secret]
    credentials = ":".join(map(quote_plus, pair) if login.encodes_credentials else pair)
    return {
        "Accept": "application/json",
        "Authorization": f"Basic {base64.b64encode(credentials.encode()).decode()}",
        "Cache-Control": "no-cache",
        "Content-Type": "application/x-www-form-urlencoded",
    }


def _token_of(body: bytes, login: TokenLogin) -> str:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    for name in ("access_token", "id_token"):
        token = found.get(name) if isinstance(found, dict) else None
        if isinstance(token, str) and token.strip():
            return token.strip()
    raise AuthenticationError(f"{login.where}: no token: the answer is not JSON with an access_token")


def _reason(body: bytes, secret: str) -> str:
    """Return the endpoint's own words, by the fields that endpoints use; a secret that it repeats is left out."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(found, dict):
        return ""
    names = ("error", "error_description", "errorCode", "errorSummary")
    words = ": ".join(str(found[name]) for name in names if found.get(name))
    shown = "".join(each for each in words.replace(secret, "***") if each.isprintable())[:_ERROR_CHARACTERS]
    return f" ({shown})" if shown else ""


def _from_file(login: TokenLogin) -> str:
    """Return the token in a file, which is read again for each login."""
    assert login.file is not None
    try:
        text = REAL_FILESYSTEM.read_bytes(login.file).decode("ascii", "replace").strip()
    except OSError as error:
        raise UnreachableError(f"{login.where}: no token: {error.strerror or error}") from None
    return _checked(text, login).text


def _checked(text: str, login: TokenLogin) -> BearerToken:
    """Return a token whose claims can be good; the broker checks its signature. Raises AuthenticationError."""
    try:
        claims = _claims(text)
        check_token_times(claims)
        check_token_scopes(claims.get(login.scope_claim), login.scope_claim)
        token_text(claims.get(login.name_claim), login.name_claim)
        issued: Any = claims.get("iat")
        expires: Any = claims["exp"]
        return BearerToken(text, None if issued is None else int(issued) * 1000, int(expires) * 1000)
    except KeyError as error:
        raise AuthenticationError(f"{login.where}: an invalid token: it has no claim {error.args[0]}") from None
    except (ValueError, RecursionError) as error:
        raise AuthenticationError(f"{login.where}: an invalid token: {error}") from None


def _claims(text: str) -> dict[str, object]:
    if not _TOKEN.fullmatch(text):
        raise ValueError("expected a JSON Web Token, three parts with dots between them")
    part = text.split(".")[1]
    try:
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError("its claims are not JSON")
    return found


def _unsecured(login: TokenLogin, clock: Clock) -> str:
    """Return an unsigned token with the claims that the options of JAAS set."""
    claims: dict[str, object] = {}
    lifetime_s = 3600
    for name, value in login.unsecured:
        kind, _, claim = name.partition("Claim_")
        if name == "LifetimeSeconds":
            lifetime_s = int(value)
        elif kind == "String":
            claims[claim] = value
        elif kind == "Number":
            claims[claim] = float(value) if "." in value else int(value)
        elif kind == "List":  # its first character separates the others
            claims[claim] = value[1:].split(value[0]) if value else []
    now_s = clock.now_ms() / 1000
    claims |= {"iat": now_s, "exp": now_s + lifetime_s}
    parts = (base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in ({"alg": "none"}, claims))
    return b".".join((*parts, b"")).decode()
