"""The calls of a connection whose client must authenticate first (KIP-43, KIP-152), and again in time (KIP-368).

Until then only ApiVersions, SaslHandshake and SaslAuthenticate are answered; any other request closes the connection,
as in Kafka. A failure is answered and the connection closed after a delay, so that guessing passwords takes time.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from stratalog.broker.security import Accounts, Principal, SaslExchange, SaslFailureError, SaslMechanism, SaslSettings
from stratalog.broker.server.calls import CallHost, Calls, Line
from stratalog.broker.server.dispatch import RequestContext
from stratalog.broker.server.message_calls import send_response
from stratalog.errors import IllegalSaslStateError, SaslAuthenticationFailedError, UnsupportedSaslMechanismError
from stratalog.wire import (
    INT32,
    REQUEST_HEAD,
    ApiKey,
    is_flexible,
    read_client_id,
    read_request,
    skip_tagged_fields,
    write_response,
)

logger = logging.getLogger(__name__)

#: Minimum time between two re-authentications.
_REAUTH_EVERY_S: Final = 1.0
_HANDSHAKE_VERSION_MAX: Final = 1
_AUTHENTICATE_VERSION_MAX: Final = 2
#: Versions of ApiVersions that are answered with success: a handshake must follow. After others, it may be sent again.
_API_VERSIONS: Final = range(6)
_REQUEST_BYTES_MIN: Final = REQUEST_HEAD.size + 2


class _State(enum.Enum):
    BEGIN = enum.auto()
    HANDSHAKE = enum.auto()
    AUTHENTICATE = enum.auto()
    DONE = enum.auto()
    FAILED = enum.auto()


@dataclass(frozen=True, slots=True)
class SaslServer:
    """The SASL of one listener. `wall_ms` returns the time since the epoch."""

    settings: SaslSettings
    accounts: Accounts
    wall_ms: Callable[[], int]


class SaslCalls(Calls):
    """Calls that authenticate first. Belongs to the loop's thread."""

    __slots__ = (
        "_begun_again_at",
        "_exchange",
        "_expires_at",
        "_has_headers",
        "_mechanism",
        "_sasl",
        "_state",
        "_wrong_mechanism",
    )

    def __init__(self, host: CallHost, line: Line, sasl: SaslServer) -> None:
        super().__init__(host, line)
        self._sasl = sasl
        self._state = _State.BEGIN
        self._mechanism: SaslMechanism | None = None
        self._exchange: SaslExchange | None = None
        #: Whether tokens come in SaslAuthenticate requests, or bare (SaslHandshake v0).
        self._has_headers = False
        #: Loop time at which the client last started to re-authenticate.
        self._begun_again_at: float | None = None
        self._wrong_mechanism = False
        #: Loop time at which the session ends; None for never.
        self._expires_at: float | None = None

    def answer(self, frames: Iterable[memoryview]) -> None:
        if self._is_expired():
            self._template = None  # so that every request is checked
        super().answer(frames)

    def _is_expired(self) -> bool:
        return self._expires_at is not None and self.host.loop.time() >= self._expires_at

    def _handle(self, frame: memoryview) -> None:
        if self._state is _State.FAILED:
            return
        if self._state is not _State.DONE:
            self._authenticate(frame)
        elif len(frame) < _REQUEST_BYTES_MIN:
            self.reject(f"{len(frame)} bytes cannot be a request")
        elif REQUEST_HEAD.unpack_from(frame)[0] == ApiKey.SASL_HANDSHAKE and self._begins_again():
            self._state = _State.HANDSHAKE
            self._authenticate(frame)
        elif self._is_expired():
            self.reject("its session has expired and it has not re-authenticated")
        else:
            super()._handle(frame)

    def _begins_again(self) -> bool:
        now = self.host.loop.time()
        last = self._begun_again_at
        # As in Kafka, a session that never expires is not renewed.
        if self._expires_at is None or (last is not None and now < last + _REAUTH_EVERY_S):
            return False
        self._begun_again_at = now
        return True

    # --- authentication -----------------------------------------------------------------------------------------------

    def _authenticate(self, frame: memoryview) -> None:
        if self._state is _State.AUTHENTICATE and not self._has_headers:
            self._take_bare_token(bytes(frame))
            return
        if len(frame) < _REQUEST_BYTES_MIN:
            self.reject("its first message is no request; GSSAPI is not supported")
            return
        key, version, correlation_id = REQUEST_HEAD.unpack_from(frame)
        try:
            if self._state is _State.AUTHENTICATE:
                self._take_token(key, version, correlation_id, frame)
            elif key == ApiKey.SASL_HANDSHAKE and 0 <= version <= _HANDSHAKE_VERSION_MAX:
                self._take_handshake(version, correlation_id, frame)
            elif key == ApiKey.API_VERSIONS and self._state is _State.BEGIN:
                super()._handle(frame)
                if version in _API_VERSIONS:
                    self._state = _State.HANDSHAKE
            else:
                self.reject(f"API key {key} v{version} before authentication")
        except Exception as error:  # noqa: BLE001
            # An unauthenticated client gets no traceback into the log.
            self.reject(f"its SASL request cannot be read: {type(error).__name__}")

    def _take_handshake(self, version: int, correlation_id: int, frame: memoryview) -> None:
        ctx, request = self._read(ApiKey.SASL_HANDSHAKE, version, correlation_id, frame)
        enabled = self._sasl.settings.mechanisms
        found = enabled.get(request.mechanism)
        if found is None and self._begun_again_at is not None:
            self.reject(f"mechanism {request.mechanism!r} is not enabled, in re-authentication")  # as Kafka does
            return
        if found is None:
            response = ctx.respond(error_code=UnsupportedSaslMechanismError.code, mechanisms=tuple(enabled))
            self._fail(f"mechanism {request.mechanism!r} is not enabled", ctx, response)
            return
        before = self._mechanism
        self._wrong_mechanism = before is not None and before.name != found.name and self._begun_again_at is not None
        if not self._wrong_mechanism:
            self._mechanism = found
        self._exchange = found.make(self._sasl.accounts)
        self._has_headers = version > 0
        self._state = _State.AUTHENTICATE
        send_response(self, ctx, ctx.respond(error_code=0, mechanisms=tuple(enabled)))

    def _take_token(self, key: int, version: int, correlation_id: int, frame: memoryview) -> None:
        if key != ApiKey.SASL_AUTHENTICATE:
            self._refuse_other(key, version, correlation_id)
            return
        if self._wrong_mechanism:
            self.reject("another mechanism than before, in re-authentication")
            return
        if not 0 <= version <= _AUTHENTICATE_VERSION_MAX:
            self.reject(f"SaslAuthenticate v{version} is not supported")
            return
        ctx, request = self._read(ApiKey.SASL_AUTHENTICATE, version, correlation_id, frame)
        try:
            answer = self._evaluate(bytes(request.auth_bytes))
        except SaslFailureError as error:
            assert self._mechanism is not None
            reply = error.client_message or (
                "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                f"{self._mechanism.name}"
            )
            response = ctx.respond(error_code=SaslAuthenticationFailedError.code, error_message=reply, auth_bytes=b"")
            self._fail(error.reason, ctx, response)
            return
        lifetime_ms = self._finish_session()
        send_response(
            self, ctx, ctx.respond(error_code=0, error_message="", auth_bytes=answer, session_lifetime=lifetime_ms)
        )

    def _refuse_other(self, key: int, version: int, correlation_id: int) -> None:
        """Refuse another request during authentication, with ILLEGAL_SASL_STATE if its response has an error code."""
        why = f"API key {key} during SASL authentication"
        api = self.host.apis.get(key)
        if api is None or not api.min_version <= version <= api.max_version:
            self.reject(why)
            return
        ctx = RequestContext(self.broker, api.key, version, correlation_id=correlation_id, peer=self.peer)
        response = ctx.error_response(IllegalSaslStateError(f"Unexpected Kafka request of type {api.key.name}"))
        if response is None:
            self.reject(why)
        else:
            self._fail(why, ctx, response)

    def _take_bare_token(self, token: bytes) -> None:
        try:
            answer = self._evaluate(token)
        except SaslFailureError as error:
            self._fail(error.reason, None, None)
            return
        self._finish_session()
        self.out.append(INT32.pack(len(answer)) + answer)

    def _evaluate(self, token: bytes) -> bytes:
        exchange = self._exchange
        assert exchange is not None
        answer = exchange.evaluate(token)
        principal = exchange.principal
        if principal is not None:
            if self._begun_again_at is not None and principal != self.peer.principal:
                raise SaslFailureError(
                    f"{principal} in re-authentication, {self.peer.principal} before",
                    client_message="Cannot change principals during re-authentication from "
                    f"{_dotted(self.peer.principal)}: {_dotted(principal)}",
                )
            self.peer.principal, self.peer.by_token = principal, exchange.by_token
        return answer

    def _finish_session(self) -> int:
        """Admit the client once it has authenticated; return the session lifetime in ms, 0 for unlimited."""
        exchange, mechanism = self._exchange, self._mechanism
        assert exchange is not None
        assert mechanism is not None
        if exchange.principal is None:
            return 0
        lifetimes = [mechanism.reauth_ms] if mechanism.reauth_ms > 0 else []
        if exchange.expires_ms is not None:
            lifetimes.append(max(0, exchange.expires_ms - self._sasl.wall_ms()))
        self._exchange = None
        self._state = _State.DONE
        self.line.let_in()
        self._expires_at = self.host.loop.time() + min(lifetimes) / 1000 if lifetimes else None
        return min(lifetimes, default=0)

    def _fail(self, why: str, ctx: RequestContext | None, response: Any) -> None:
        """Refuse the client after a delay, and close."""
        self._state = _State.FAILED
        self.is_waiting = True
        self._exchange = None
        logger.warning("Closing the connection from %s: authentication failed: %s", self.peer.client_host, why)
        chunk = b"" if ctx is None else write_response(ctx.key, ctx.correlation_id, response)
        self.host.loop.call_later(self._sasl.settings.failure_delay_s, self._close_with, chunk)

    def _close_with(self, chunk: bytes) -> None:
        if not self.line.closed:
            if chunk:
                self.out.append(chunk)
                self.line.flush()
            self.line.close()

    def _read(self, key: ApiKey, version: int, correlation_id: int, frame: memoryview) -> tuple[RequestContext, Any]:
        client_id, position = read_client_id(frame)
        if is_flexible(key, version):
            position = skip_tagged_fields(frame, position)
        ctx = RequestContext(
            self.broker, key, version, correlation_id=correlation_id, client_id=client_id, peer=self.peer
        )
        return ctx, read_request(key, version, frame, position)


def _dotted(principal: Principal) -> str:
    return f"{principal.kind}.{principal.name}"
