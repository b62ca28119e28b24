"""SASL SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), server side, and the stored credentials.

    client:  n,[a=NAME],n=NAME,r=NONCE[,tokenauth=true]     server:  r=NONCE+MORE,s=SALT,i=ITERATIONS
    client:  c=HEADER,r=NONCE+MORE,p=PROOF                  server:  v=SIGNATURE

No password is stored: the stored key verifies a client, the server key authenticates the server.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from stratalog.broker.security.peer import Principal
from stratalog.broker.security.sasl_exchange import SaslFailureError
from stratalog.util import random_bytes

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384

#: Hash by mechanism, in the order of Kafka's numbers, from 1 on.
SCRAM_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

_CLIENT_FIRST: Final = re.compile(
    rb"(n,(?:a=(?P<authorization>[^,]*))?,)"
    rb"(?P<bare>(?:m=[^,]+,)?n=(?P<name>[^,]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<extensions>(?:,[A-Za-z]+=[^,]+)*))"
)
_CLIENT_FINAL: Final = re.compile(
    rb"(?P<without>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+=[^,]+)*),"
    rb"p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_TOKEN_AUTH: Final = b"tokenauth=true"


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What the server stores instead of a password."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


@dataclass(frozen=True, slots=True)
class Account:
    """The principal of a user name, and its credential."""

    credential: ScramCredential
    principal: Principal
    expires_ms: int | None = None
    #: Whether the name is the id of a delegation token, and the principal its owner.
    by_token: bool = False


#: (mechanism, name, whether it is the id of a delegation token) -> account
Accounts = Callable[[str, str, bool], Account | None]


def scram_credential(mechanism: str, salted_password: bytes, salt: bytes, iterations: int) -> ScramCredential:
    digest = SCRAM_HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", digest)
    return ScramCredential(
        salt,
        hashlib.new(digest, client_key).digest(),
        hmac.digest(salted_password, b"Server Key", digest),
        iterations,
    )


def credential_of_password(
    mechanism: str, password: str, iterations: int, salt: bytes | None = None
) -> ScramCredential:
    """Return the credential of a password; without `salt`, with a random one."""
    salt = random_bytes(24) if salt is None else salt
    salted = hashlib.pbkdf2_hmac(SCRAM_HASHES[mechanism], password.encode(), salt, iterations)
    return scram_credential(mechanism, salted, salt, iterations)


class ScramExchange:
    """Two client messages."""

    def __init__(self, mechanism: str, accounts: Accounts) -> None:
        self._mechanism = mechanism
        self._digest = SCRAM_HASHES[mechanism]
        self._accounts = accounts
        self._account: Account | None = None
        self._header = b""
        self._nonce = b""
        self._first_messages = b""
        self.principal: Principal | None = None
        self.expires_ms: int | None = None
        self.by_token = False

    def evaluate(self, message: bytes) -> bytes:
        return self._begin(message) if self._account is None else self._end(message, self._account)

    def _begin(self, message: bytes) -> bytes:
        found = _CLIENT_FIRST.fullmatch(message)
        if found is None:
            raise SaslFailureError("an invalid first SCRAM message")
        try:
            name = found["name"].replace(b"=2C", b",").replace(b"=3D", b"=").decode("utf-8")
            authorization = (found["authorization"] or b"").replace(b"=2C", b",").replace(b"=3D", b"=").decode("utf-8")
        except UnicodeDecodeError:
            raise SaslFailureError("a first SCRAM message that is not UTF-8") from None
        account = self._accounts(self._mechanism, name, _TOKEN_AUTH in found["extensions"].lower().split(b","))
        if account is None:
            raise SaslFailureError(f"no {self._mechanism} credentials for {name!r}")
        if authorization and authorization != name:
            raise SaslFailureError(
                "an authorization id other than the name",
                client_message="Authentication failed: Client requested an authorization id that is different "
                "from username",
            )
        self._account = account
        self._header = found[1]
        self._nonce = found["nonce"] + b64encode(random_bytes(24))
        credential = account.credential
        answer = b"r=%b,s=%b,i=%d" % (self._nonce, b64encode(credential.salt), credential.iterations)
        self._first_messages = found["bare"] + b"," + answer
        return answer

    def _end(self, message: bytes, account: Account) -> bytes:
        found = _CLIENT_FINAL.fullmatch(message)
        if found is None or found["nonce"] != self._nonce:
            raise SaslFailureError("a last SCRAM message that does not continue the first")
        try:
            proof, binding = b64decode(found["proof"], validate=True), b64decode(found["binding"], validate=True)
        except binascii.Error:
            raise SaslFailureError("a last SCRAM message that is not base64") from None
        credential = account.credential
        if binding != self._header or len(proof) != len(credential.stored_key):
            raise SaslFailureError("a last SCRAM message that does not continue the first")
        signed = self._first_messages + b"," + found["without"]
        signature = hmac.digest(credential.stored_key, signed, self._digest)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._digest, client_key).digest(), credential.stored_key):
            raise SaslFailureError(f"a wrong password for {account.principal}")
        self.principal, self.expires_ms, self.by_token = account.principal, account.expires_ms, account.by_token
        return b"v=" + b64encode(hmac.digest(credential.server_key, signed, self._digest))
