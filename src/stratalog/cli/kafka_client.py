"""aiokafka with the connection options of the command line, and with our errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiokafka.conn
import aiokafka.errors
from aiokafka.abc import AbstractTokenProvider

from stratalog.errors import StratalogError
from stratalog.util import join_host_port
from stratalog.wire.client import ConnectionOptions, RefusedError, Sasl, UnreachableError, dialogue, tls_context


def client_settings(options: ConnectionOptions) -> dict[str, Any]:
    """Return the common keyword arguments of aiokafka's producer and consumer."""
    settings: dict[str, Any] = {
        "bootstrap_servers": [join_host_port(host, port) for host, port in options.servers],
        "client_id": options.client_id,
        "request_timeout_ms": round(options.request_timeout_s * 1000),
        "retry_backoff_ms": round(options.retry_backoff_s * 1000),
        "security_protocol": options.protocol.value,
    }
    if options.protocol.is_encrypted:
        settings["ssl_context"] = tls_context(options.tls)
    if options.sasl is not None:
        if options.sasl.mechanism.startswith("SCRAM-"):
            aiokafka.conn.ScramAuthenticator = _Scram
        settings["sasl_mechanism"] = options.sasl.mechanism
    if options.sasl is not None and options.sasl.login is not None:
        aiokafka.conn.OAuthAuthenticator = _Bearer
        settings["sasl_oauth_token_provider"] = _Provider(options.sasl)
    elif options.sasl is not None:
        name = options.sasl.username
        settings["sasl_plain_username"] = _TokenId(name) if options.sasl.by_token else name
        settings["sasl_plain_password"] = options.sasl.password
    return settings


class _TokenId(str):
    """The name of a client that is the id of a delegation token; aiokafka knows only names."""

    __slots__ = ()


class _Provider(AbstractTokenProvider):  # type: ignore[misc]
    """Carries a login to `_Bearer`; aiokafka insists on a provider of tokens."""

    def __init__(self, sasl: Sasl) -> None:
        self.sasl = sasl

    async def token(self) -> str:
        raise NotImplementedError  # the dialogue fetches it


class _Talk:
    """Our client's part of SASL in place of aiokafka's."""

    def __init__(self, sasl: Sasl) -> None:
        self._talk = dialogue(sasl)

    async def step(self, answer: bytes | None) -> tuple[bytes, bool] | None:
        """Return the next message to send; None at the end."""
        return await asyncio.to_thread(self._next, answer)

    def _next(self, answer: bytes | None) -> tuple[bytes, bool] | None:
        try:
            return (next(self._talk) if answer is None else self._talk.send(answer)), True
        except StopIteration:
            return None


class _Scram(_Talk):
    """SCRAM that enforces a minimum of iterations and supports delegation tokens."""

    def __init__(self, *, sasl_mechanism: str, sasl_plain_username: str, sasl_plain_password: str, **_: object) -> None:
        by_token = isinstance(sasl_plain_username, _TokenId)
        super().__init__(Sasl(sasl_mechanism, sasl_plain_username, sasl_plain_password, by_token))


class _Bearer(_Talk):
    """OAUTHBEARER that fetches its token as Kafka's client does, and sees when a broker refuses it."""

    def __init__(self, *, sasl_oauth_token_provider: _Provider) -> None:
        super().__init__(sasl_oauth_token_provider.sasl)


@contextmanager
def client_errors() -> Iterator[None]:
    """Translate aiokafka's exceptions to our errors, and silence its log, which would mix with the records."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL + 1)
    try:
        yield
    except aiokafka.errors.KafkaError as error:
        raise refusal(error) from error


def refusal(error: BaseException, what: str = "") -> StratalogError:
    """Return our error for one of aiokafka's: the subject, Kafka's name of the error, the message."""
    name = getattr(error, "message", type(error).__name__)
    message = ": ".join(part for part in (what, name, *map(str, error.args)) if part)
    if isinstance(error, aiokafka.errors.KafkaConnectionError):
        return UnreachableError(message)
    return RefusedError(message)
