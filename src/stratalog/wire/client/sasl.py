"""Saying who one is: SASL PLAIN (RFC 4616), SCRAM-SHA-256/512 (RFC 5802, RFC 7677) and OAUTHBEARER (RFC 7628).

A dialogue is a generator of the client's messages that is sent the server's; it knows nothing of connections.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Generator
from typing import Final

from stratalog.errors import StratalogError
from stratalog.util import random_bytes
from stratalog.wire.client.options import Sasl
from stratalog.wire.client.token_login import TokenLogin

Dialogue = Generator[bytes, bytes, None]

#: Fewer rounds would hand an impostor of the broker a proof from which the password is quickly guessed (RFC 7677).
_ITERATIONS_MIN: Final = 4096
#: More rounds than this would only keep a client busy; Kafka's own brokers use 4096 to 16384.
_ITERATIONS_MAX: Final = 10_000_000


class SaslError(StratalogError):
    """The server's part of a dialogue is not what it must be, so that it does not prove to know the password."""


def dialogue(sasl: Sasl) -> Dialogue:
    """Return the client's messages. Raises SaslError at a bad answer, and what `bearer_token` raises."""
    if sasl.login is not None:
        return _bearer(sasl.login)
    if sasl.mechanism == "PLAIN":
        return _plain(sasl)
    return _scram(sasl, sasl.mechanism.removeprefix("SCRAM-").replace("-", "").lower(), b64encode(random_bytes(24)))


def _plain(sasl: Sasl) -> Dialogue:
    yield b"\0".join((b"", sasl.username.encode(), sasl.password.encode()))


def _bearer(login: TokenLogin) -> Dialogue:
    from stratalog.wire.client.bearer_tokens import bearer_token  # and HTTP, which other mechanisms do not load

    fields = "".join(f"{name}={value}\x01" for name, value in login.extensions)
    answer = yield f"n,,\x01auth=Bearer {bearer_token(login)}\x01{fields}\x01".encode()
    if answer:
        yield b"\x01"
        raise SaslError(f"it does not accept the token: {answer[:200].decode('ascii', 'replace')}")


def _scram(sasl: Sasl, digest: str, nonce: bytes) -> Dialogue:
    name = sasl.username.replace("=", "=3D").replace(",", "=2C").encode()
    client_first = b"n=" + name + b",r=" + nonce + (b",tokenauth=true" if sasl.by_token else b"")
    server_first = yield b"n,," + client_first
    said = _attributes(server_first)
    try:
        server_nonce, salt, iterations = said[b"r"], b64decode(said[b"s"], validate=True), int(said[b"i"])
    except (KeyError, ValueError):
        raise SaslError("the broker's first SCRAM message is none") from None
    if not server_nonce.startswith(nonce) or len(server_nonce) == len(nonce):
        raise SaslError("the broker's first SCRAM message does not continue the client's")
    if not _ITERATIONS_MIN <= iterations <= _ITERATIONS_MAX:
        raise SaslError(f"the broker asks for {iterations} rounds of SCRAM, expected {_ITERATIONS_MIN} or more")
    salted = hashlib.pbkdf2_hmac(digest, sasl.password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    without_proof = b"c=biws,r=" + server_nonce
    signed = b",".join((client_first, server_first, without_proof))
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_final = yield without_proof + b",p=" + b64encode(proof)
    server_key = hmac.digest(salted, b"Server Key", digest)
    expected = b64encode(hmac.digest(server_key, signed, digest))
    if not hmac.compare_digest(_attributes(server_final).get(b"v", b""), expected):
        raise SaslError("the broker does not prove that it knows the password")


def _attributes(message: bytes) -> dict[bytes, bytes]:
    return {part[:1]: part[2:] for part in message.split(b",") if part[1:2] == b"="}
