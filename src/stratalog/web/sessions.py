"""Users of the console: logins with the broker's users, sessions, and form tokens.

A session exists in this process only. Its cookie is HttpOnly and SameSite, so scripts cannot read it and other sites
cannot send it. Changes also need its form token.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, NamedTuple

from stratalog.broker import BrokerServices
from stratalog.broker.security import (
    SCRAM_HASHES,
    Principal,
    SaslFailureError,
    ScramCredential,
    credential_of_password,
    plain_exchange,
)
from stratalog.config import client_listeners, listener_settings
from stratalog.errors import InvalidConfigError
from stratalog.util import Clock, random_bytes

COOKIE: Final = "stratalog_session"
_SESSIONS_MAX: Final = 2000
_IDLE_S: Final = 3600.0
_LONGEST_S: Final = 12 * 3600.0
_ITERATIONS: Final = 4096


class ConsoleLogin(NamedTuple):
    """A login, with its SCRAM credential; None for PLAIN, whose users are in the configuration."""

    principal: Principal
    credential: ScramCredential | None = None

    def holds(self, broker: BrokerServices) -> bool:
        """Return whether the login is still valid: the user exists, with the same password."""
        return self.credential is None or self.credential in broker.scram.of_user(self.principal.name).values()


@dataclass(slots=True)
class ConsoleSession:
    """One browser. `login` is None before a login, or if none is needed."""

    token: str
    form_token: str
    begun_s: float
    used_s: float
    login: ConsoleLogin | None = None
    #: A message for the next page.
    message: str | None = None


class Sessions:
    """The sessions of this process, with eviction of the least recently used. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._by_token: OrderedDict[str, ConsoleSession] = OrderedDict()

    def begin(self, login: ConsoleLogin | None = None) -> ConsoleSession:
        now = self._clock.monotonic()
        made = ConsoleSession(random_bytes(32).hex(), random_bytes(32).hex(), now, now, login)
        with self._lock:
            self._by_token[made.token] = made
            while len(self._by_token) > _SESSIONS_MAX:
                self._by_token.popitem(last=False)
        return made

    def find(self, token: str | None) -> ConsoleSession | None:
        """Return the session of a cookie while it is valid."""
        if not token:
            return None
        now = self._clock.monotonic()
        with self._lock:
            found = self._by_token.get(token)
            if found is None:
                return None
            if now - found.used_s > _IDLE_S or now - found.begun_s > _LONGEST_S:
                del self._by_token[token]
                return None
            found.used_s = now
            self._by_token.move_to_end(token)
            return found

    def end(self, token: str | None) -> None:
        with self._lock:
            self._by_token.pop(token or "", None)


def login_of(broker: BrokerServices, user: str, password: str) -> ConsoleLogin | None:
    """Return the login of a name and a password: a SCRAM user, or a PLAIN user of a listener."""
    if not user or "\0" in user or "\0" in password:
        return None
    known = broker.scram.of_user(user)
    for mechanism, credential in known.items():
        given = credential_of_password(mechanism, password, credential.iterations, credential.salt)
        if hmac.compare_digest(given.stored_key, credential.stored_key):
            return ConsoleLogin(Principal("User", user), credential)
    if not known:  # the same work for an unknown name
        credential_of_password(next(iter(SCRAM_HASHES)), password, _ITERATIONS)
    plain = _plain_principal(broker, user, password)
    return None if plain is None else ConsoleLogin(plain)


def _plain_principal(broker: BrokerServices, user: str, password: str) -> Principal | None:
    config = broker.config
    for listener in client_listeners(config):
        if not listener.protocol.startswith("SASL_"):
            continue
        try:
            exchange = plain_exchange(listener_settings(config, listener.name), listener.name)
            if exchange is None:
                continue
            exchange.evaluate(f"\0{user}\0{password}".encode())
        except (SaslFailureError, InvalidConfigError):
            continue
        if exchange.principal is not None:
            return exchange.principal
    return None


def basic_credentials(header: str) -> tuple[str, str] | None:
    """Return user and password of a Basic Authorization header; None for another one."""
    kind, _, rest = header.partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        user, separator, password = base64.b64decode(rest.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (user, password) if separator else None


def is_bearer(header: str, token: str | None) -> bool:
    kind, _, rest = header.partition(" ")
    return bool(token) and kind.lower() == "bearer" and hmac.compare_digest(rest.strip().encode(), str(token).encode())
