"""Delegation tokens (KIP-48): short-lived credentials in an owner's name, for programs without a password.

A token is a random UUID with its HMAC-SHA-512 under `delegation.token.secret.key`. Clients authenticate by SCRAM with
the id as user name and the HMAC, in base64, as password. Neither the HMAC nor anything derived from it is stored:
reading the store reveals no token, and a new secret key invalidates all tokens.
"""

from __future__ import annotations

import hmac
import json
import logging
import threading
from asyncio import Future, TimerHandle
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from stratalog.broker.security.peer import ANONYMOUS, Peer, Principal
from stratalog.broker.security.scram import (
    ITERATIONS_MIN,
    SCRAM_HASHES,
    Account,
    ScramCredential,
    credential_of_password,
)
from stratalog.config import PLAINTEXT, SSL, BrokerConfig
from stratalog.errors import (
    DelegationTokenDisabledError,
    DelegationTokenExpiredError,
    DelegationTokenNotFoundError,
    DelegationTokenOwnerMismatchError,
    UnsupportedVersionError,
)
from stratalog.util import random_uuid, uuid_to_base64

if TYPE_CHECKING:
    from stratalog.broker.metadata import ClusterMetadata
    from stratalog.broker.workers import Workers

logger = logging.getLogger(__name__)

_KIND: Final = "delegation-token"
_LONG_MAX: Final = 2**63 - 1
#: The `metadata.version` from which Kafka's metadata log may contain tokens, 3.6-IV2.
_LEVEL_MIN: Final = 14


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """One token. Valid until `expires_ms`, and renewable up to `max_ms`; times since the epoch."""

    id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    def is_expired(self, now_ms: int) -> bool:
        return min(self.max_ms, self.expires_ms) < now_ms

    def may_be_changed_by(self, principal: Principal) -> bool:
        """Return whether the principal may renew or expire it."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: Principal) -> bool:
        """Return whether the principal may see it."""
        return principal == self.requester or self.may_be_changed_by(principal)


def may_ask_for_tokens(peer: Peer) -> bool:
    """Return whether a client may create and list tokens: not if it is anonymous or authenticated by a token."""
    protocol = peer.listener.protocol
    return not (peer.by_token or protocol == PLAINTEXT or (protocol == SSL and peer.principal == ANONYMOUS))


class IssuedTokens:
    """All tokens. Reads do not block; a change is durable when it returns. Thread-safe except `start` and `close`."""

    def __init__(self, store: ClusterMetadata, config: BrokerConfig, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._now_ms = now_ms
        self._secret: str = config["delegation.token.secret.key"] or ""
        self._max_lifetime_ms: int = config["delegation.token.max.lifetime.ms"]
        self._expiry_ms: int = config["delegation.token.expiry.time.ms"]
        self._check_every_s: float = config["delegation.token.expiry.check.interval.ms"] / 1000
        self._lock = threading.Lock()
        self._found: Mapping[str, DelegationToken] = {}
        self._by_hmac: dict[bytes, str] = {}
        self._credentials: dict[tuple[str, str], ScramCredential] = {}
        self._timer: TimerHandle | None = None
        self.read()

    @property
    def enabled(self) -> bool:
        """Whether a secret key is set; without one, tokens are disabled."""
        return bool(self._secret)

    def read(self) -> None:
        """Load the tokens of the store."""
        if not self.enabled:
            return
        with self._lock:
            found = {id_: _parse(id_, text) for id_, text in self._store.credentials(_KIND).items()}
            self._by_hmac = {self.hmac(id_): id_ for id_ in found}
            self._credentials = {key: each for key, each in self._credentials.items() if key[1] in found}
            self._found = found

    def get(self, token_id: str) -> DelegationToken | None:
        return self._found.get(token_id)

    def all(self) -> list[DelegationToken]:
        return list(self._found.values())

    def hmac(self, token_id: str) -> bytes:
        return hmac.digest(self._secret.encode(), token_id.encode(), "sha512")

    def account(self, mechanism: str, token_id: str) -> Account | None:
        """Return the owner's account for authentication by SCRAM with this token."""
        token = self._found.get(token_id)
        if token is None:
            return None
        return Account(self._credential(mechanism, token_id), token.owner, token.expires_ms, by_token=True)

    def _credential(self, mechanism: str, token_id: str) -> ScramCredential:
        known = self._credentials.get((mechanism, token_id))
        if known is None:
            password = b64encode(self.hmac(token_id)).decode()
            known = credential_of_password(mechanism, password, ITERATIONS_MIN)
            self._credentials[mechanism, token_id] = known
        return known

    # --- changes ------------------------------------------------------------------------------------------------------

    def create(
        self, owner: Principal, requester: Principal, renewers: Sequence[Principal], max_lifetime_ms: int
    ) -> DelegationToken:
        """Create a token; a lifetime of 0 or less means the longest allowed."""
        self._check_enabled()
        now = self._now_ms()
        lifetime = min(self._max_lifetime_ms, max_lifetime_ms) if max_lifetime_ms > 0 else self._max_lifetime_ms
        max_ms = _sum(now, lifetime)
        token = DelegationToken(
            uuid_to_base64(random_uuid()),
            owner,
            requester,
            tuple(renewers),
            issued_ms=now,
            expires_ms=min(max_ms, _sum(now, self._expiry_ms)),
            max_ms=max_ms,
        )
        for mechanism in SCRAM_HASHES:  # takes milliseconds: do not make the first client wait for it
            self._credential(mechanism, token.id)
        with self._lock:
            self._put(token)
        return token

    def renew(self, secret: bytes, asker: Principal, period_ms: int) -> int:
        """Renew a token for a period from now (0 or less: as long as allowed); return its new expiry time."""
        with self._lock:
            token = self._of_secret(secret)
            now = self._now_ms()
            if token.is_expired(now):
                raise DelegationTokenExpiredError("The delegation token has expired.")
            _check_asker(token, asker)
            period = min(self._expiry_ms, period_ms) if period_ms > 0 else self._expiry_ms
            return self._put(replace(token, expires_ms=min(token.max_ms, _sum(now, period)))).expires_ms

    def expire(self, secret: bytes, asker: Principal, period_ms: int) -> int:
        """Expire a token after a period, or (below 0) at once; return its new expiry time."""
        with self._lock:
            token = self._of_secret(secret)
            now = self._now_ms()
            _check_asker(token, asker)
            if period_ms < 0:
                self._remove([token.id])
                return now
            if token.is_expired(now):
                raise DelegationTokenExpiredError("The delegation token has expired.")
            return self._put(replace(token, expires_ms=min(token.max_ms, _sum(now, period_ms)))).expires_ms

    def remove_expired(self) -> int:
        """Delete expired tokens; return their number."""
        with self._lock:
            now = self._now_ms()
            gone = [token.id for token in self._found.values() if token.is_expired(now)]
            if gone:
                self._remove(gone)
            return len(gone)

    def _check_enabled(self) -> None:
        if not self.enabled:
            raise DelegationTokenDisabledError("Delegation Token feature is not enabled.")
        if self._store.metadata_version < _LEVEL_MIN:
            raise UnsupportedVersionError(f"delegation tokens need metadata.version {_LEVEL_MIN} (3.6-IV2)")

    def _of_secret(self, secret: bytes) -> DelegationToken:
        self._check_enabled()
        # Not compared in constant time: as in Kafka's cache, a hash lookup of 64 bytes that cannot be guessed.
        token_id = self._by_hmac.get(secret)
        if token_id is None:
            raise DelegationTokenNotFoundError("Delegation Token is not found on server.")
        return self._found[token_id]

    def _put(self, token: DelegationToken) -> DelegationToken:
        self._store.change_credentials(_KIND, {token.id: _text(token)})
        self._by_hmac[self.hmac(token.id)] = token.id
        self._found = {**self._found, token.id: token}
        return token

    def _remove(self, ids: Sequence[str]) -> None:
        self._store.change_credentials(_KIND, dict.fromkeys(ids))
        gone = set(ids)
        self._found = {id_: token for id_, token in self._found.items() if id_ not in gone}
        for id_ in ids:
            self._by_hmac.pop(self.hmac(id_), None)
            for mechanism in SCRAM_HASHES:
                self._credentials.pop((mechanism, id_), None)

    # --- expiration ---------------------------------------------------------------------------------------------------

    def start(self, workers: Workers) -> None:
        """Remove expired tokens periodically. Call on the loop's thread, as `close`."""
        if self.enabled:
            self._timer = workers.loop.call_later(self._check_every_s, self._remove_and_go_on, workers)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _remove_and_go_on(self, workers: Workers) -> None:
        workers.submit(self.remove_expired).add_done_callback(_log_failure)
        self.start(workers)


def _log_failure(removal: Future[int]) -> None:
    if not removal.cancelled() and (error := removal.exception()) is not None:
        logger.error("Expired tokens could not be removed; the next run will retry", exc_info=error)


def _check_asker(token: DelegationToken, asker: Principal) -> None:
    if not token.may_be_changed_by(asker):
        raise DelegationTokenOwnerMismatchError("Specified Principal is not valid Owner/Renewer.")


def _sum(now_ms: int, period_ms: int) -> int:
    return min(_LONG_MAX, now_ms + period_ms)


def _text(token: DelegationToken) -> str:
    return json.dumps(
        {
            "owner": _pair(token.owner),
            "requester": _pair(token.requester),
            "renewers": [_pair(each) for each in token.renewers],
            "issued_ms": token.issued_ms,
            "expires_ms": token.expires_ms,
            "max_ms": token.max_ms,
        }
    )


def _pair(principal: Principal) -> list[str]:
    return [principal.kind, principal.name]


def _parse(id_: str, text: str) -> DelegationToken:
    found = json.loads(text)
    return DelegationToken(
        id_,
        Principal(*found["owner"]),
        Principal(*found["requester"]),
        tuple(Principal(*each) for each in found["renewers"]),
        issued_ms=found["issued_ms"],
        expires_ms=found["expires_ms"],
        max_ms=found["max_ms"],
    )
