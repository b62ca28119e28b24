"""One connection to one broker: any request by its name, in the newest version that both sides know."""

from __future__ import annotations

import socket
import struct
import threading
from typing import Any, Final

from stratalog.errors import UsageError
from stratalog.util import SYSTEM_CLOCK, join_host_port
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.client.errors import AuthenticationError, UnreachableError
from stratalog.wire.client.options import ConnectionOptions, Sasl
from stratalog.wire.client.sasl import SaslError, dialogue
from stratalog.wire.client.transport import connect
from stratalog.wire.nested_messages import build_message
from stratalog.wire.protocol import (
    read_message,
    request_class,
    response_class,
    write_message,
)

_API_VERSIONS: Final = (0, 4)
_UNSUPPORTED_VERSION: Final = 35
_UNSUPPORTED_SASL_MECHANISM: Final = 33

#: The share of a session after which a client proves itself again, as Kafka's does; brokers refuse it within a second.
_SESSION_SHARE: Final = 0.85
_SESSION_MIN_S: Final = 1.05

#: A size beyond this is no size: another protocol answers (the first bytes of a TLS alert make 352 MB).
_RESPONSE_BYTES_MAX: Final = 1 << 30


class Client:
    """One connection; requests are answered in order, one at a time. Thread-safe. UnreachableError at any time.

    After UnreachableError, and whatever else ended an exchange half-way, the connection `is_broken`, for good.
    """

    def __init__(self, host: str, port: int, options: ConnectionOptions) -> None:
        self._address = join_host_port(host, port)
        self._client_id = options.client_id.encode()
        self._correlation_id = 0
        self._lock = threading.RLock()
        self._sasl = options.sasl
        #: When the session needs a new proof; None without a limit, and while one is given.
        self._reauthenticate_at: float | None = None
        self.is_broken = False
        try:
            self._socket: socket.socket = connect(host, port, options)
        except OSError as error:
            raise self._unreachable(error) from error
        try:
            #: The answer to ApiVersions: what the broker speaks, and its features.
            self.api_versions = self._negotiate()
            self._versions = {
                int(api.api_key): (api.min_version, api.max_version) for api in self.api_versions.api_keys
            }
            if self._sasl is not None:
                self._authenticate(self._sasl)
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        return self._address

    def close(self) -> None:
        self._socket.close()

    def call(self, key: ApiKey, versions: tuple[int, int], /, **fields: Any) -> Any:
        """Return the response to a request in the newest of `versions` that the broker speaks.

        Its errors are the caller's.
        """
        version = self.version(key, versions)
        return self._call(key, version, fields)

    def version(self, key: ApiKey, versions: tuple[int, int]) -> int:
        """Return the newest common version. Raises UsageError when there is none."""
        low, high = self._versions.get(int(key), (0, -1))
        if max(low, versions[0]) > min(high, versions[1]):
            raise UsageError(
                f"the broker at {self._address} does not speak {key.message} in versions {versions[0]} to {versions[1]}"
            )
        return int(min(high, versions[1]))

    def exchange(self, key: ApiKey, version: int, fields: dict[str, Any]) -> bytes:
        """Return the body of a response, behind its header."""
        return bytes(self.exchange_view(key, version, fields))

    def exchange_view(self, key: ApiKey, version: int, fields: dict[str, Any]) -> memoryview:
        """Return the same without a copy: a view of bytes that no other code has."""
        cls = request_class(key, version)
        message = (b"\0" if cls.__flexible__ else b"") + write_message(build_message(cls, fields))
        with self._lock:
            self._prolong_session()
            self._correlation_id += 1
            head = struct.pack(">hhih", key, version, self._correlation_id, len(self._client_id))
            body = head + self._client_id + message
            try:
                self._socket.sendall(struct.pack(">i", len(body)) + body)
                response = self._receive(self._correlation_id)
            except OSError as error:
                raise self._unreachable(error) from error
            except BaseException:
                # Somebody interrupted it, say: an answer may be on its way that the next request would take for its
                # own.
                self.is_broken = True
                raise
        flexible_header = cls.__flexible__ and key is not ApiKey.API_VERSIONS
        return response[5 if flexible_header else 4 :]

    def _call(self, key: ApiKey, version: int, fields: dict[str, Any]) -> Any:
        return self._read(key, version, self.exchange(key, version, fields))

    def _read(self, key: ApiKey, version: int, body: bytes) -> Any:
        try:
            return read_message(response_class(key, version), body)[0]
        except Exception as error:  # whatever the reader says of bytes that are none
            self.is_broken = True
            raise UnreachableError(f"{self._address} does not answer as a Kafka broker does: {error}") from error

    def _negotiate(self) -> Any:
        """ApiVersions in our newest version, or in the broker's when that is older.

        It answers that in version 0 (KIP-511).
        """
        key, version = ApiKey.API_VERSIONS, _API_VERSIONS[1]
        body = self.exchange(key, version, _SOFTWARE)
        if body[:2] == struct.pack(">h", _UNSUPPORTED_VERSION):
            answer = self._read(key, 0, body)
            theirs = max((api.max_version for api in answer.api_keys if api.api_key == key), default=0)
            return self._call(key, min(version, theirs), _SOFTWARE)
        return self._read(key, version, body)

    def _prolong_session(self) -> None:
        """Authenticate again (KIP-368) before the session ends; without that, the broker closes the connection."""
        due = self._reauthenticate_at
        if self._sasl is None or due is None or SYSTEM_CLOCK.monotonic() < due:
            return
        self._reauthenticate_at = None
        try:
            self._authenticate(self._sasl)
        except UsageError as error:
            self.is_broken = True
            raise UnreachableError(str(error)) from error
        except BaseException:  # the broker may be waiting for the rest of the dialogue
            self.is_broken = True
            raise

    def _authenticate(self, sasl: Sasl) -> None:
        """SaslHandshake, then the mechanism's messages. AuthenticationError, whose text has no secret."""
        talk = dialogue(sasl)
        message = next(talk)  # a token is fetched before the broker waits for it
        response = self.call(ApiKey.SASL_HANDSHAKE, (1, 1), mechanism=sasl.mechanism)
        if int(response.error_code) == _UNSUPPORTED_SASL_MECHANISM:
            enabled = ", ".join(response.mechanisms) or "none"
            raise self._not_let_in(f"it does not accept {sasl.mechanism}; it accepts {enabled}")
        if int(response.error_code):
            raise self._not_let_in(response.error_code.name.upper())
        lifetime_s = 0.0
        try:
            while True:
                answer = self.call(ApiKey.SASL_AUTHENTICATE, (0, 2), auth_bytes=message)
                if int(answer.error_code):
                    raise self._not_let_in(answer.error_message or answer.error_code.name.upper())
                lifetime_s = _session_s(answer)
                message = talk.send(bytes(answer.auth_bytes))
        except StopIteration:
            if lifetime_s:
                wait_s = max(lifetime_s * _SESSION_SHARE, _SESSION_MIN_S)
                self._reauthenticate_at = SYSTEM_CLOCK.monotonic() + wait_s
        except SaslError as error:
            raise self._not_let_in(str(error)) from None

    def _receive(self, correlation_id: int) -> memoryview:
        (size,) = struct.unpack(">i", self._exactly(4))
        if not 4 <= size <= _RESPONSE_BYTES_MAX:
            raise UnreachableError(
                f"{self._address} does not answer as a Kafka broker does; is its listener one of TLS?"
            )
        response = self._exactly(size)
        if struct.unpack_from(">i", response)[0] != correlation_id:
            raise UnreachableError(f"{self._address} answers another request than the one it was asked")
        return response

    def _exactly(self, count: int) -> memoryview:
        view = memoryview(bytearray(count))
        done = 0
        while done < count:
            got = self._socket.recv_into(view[done:])
            if not got:
                raise ConnectionError("the broker closed the connection")
            done += got
        return view.toreadonly()

    def _unreachable(self, error: OSError) -> UnreachableError:
        self.is_broken = True
        why = "it did not answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
        return UnreachableError(f"cannot reach a broker at {self._address}: {why}")

    def _not_let_in(self, why: str) -> AuthenticationError:
        return AuthenticationError(f"the broker at {self._address} does not let this client in: {why}")


def _session_s(answer: Any) -> float:
    """Return how long the session lasts; 0 without a limit, and from brokers that do not say it."""
    lifetime = getattr(answer, "session_lifetime", None)
    return 0.0 if lifetime is None else float(lifetime.total_seconds())


_SOFTWARE: dict[str, Any] = {"client_software_name": "stratalog", "client_software_version": "1"}
