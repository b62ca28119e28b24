"""Forward client requests to the controller in an Envelope (KIP-590).

The client's request is sent unchanged, including its header, with the client's principal and address. So the controller
authorizes the client, and its response has the client's correlation id. Source: `ForwardingManagerImpl`,
`NodeToControllerChannelManagerImpl`.
"""

from __future__ import annotations

import ipaddress
import logging
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from stratalog.broker.cluster.controller_channel import ControllerChannel, connect_to_node
from stratalog.broker.cluster.quorum import Address
from stratalog.broker.security import Principal
from stratalog.errors import RequestTimedOutError, UnknownServerError, UnsupportedVersionError, UsageError
from stratalog.util import SYSTEM_CLOCK, Clock
from stratalog.wire import (
    ApiKey,
    build_message,
    make_message,
    principal_class,
    read_message,
    request_class,
    request_frame,
    response_class,
    write_message,
)
from stratalog.wire.client import Client, ConnectionOptions, UnreachableError

if TYPE_CHECKING:
    from stratalog.broker.server import RequestContext

logger = logging.getLogger(__name__)

#: APIs that a broker of a cluster does not handle itself.
FORWARDED: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
    }
)

_ENVELOPE_VERSIONS: Final = (0, 0)
_NOT_CONTROLLER: Final = 41
_RETRY_S: Final = 0.1
_CORRELATION_SIZE: Final = 4
_PRINCIPAL_VERSION: Final = struct.Struct(">h")


@dataclass(frozen=True, slots=True)
class ForwardedClient:
    """The client of a forwarded request, and its address."""

    principal: Principal
    host: str
    by_token: bool = False
    client_id: str = ""

    @classmethod
    def of(cls, ctx: RequestContext) -> ForwardedClient:
        peer = ctx.peer
        return cls(peer.principal, peer.client_host, peer.by_token, ctx.client_id or "")


class Forwarder:
    """One connection to the active controller with one request at a time, as in Kafka. Thread-safe.

    After a lost connection the request is sent again. The controller may have executed it already; its response says
    so.
    """

    def __init__(
        self,
        connection: ConnectionOptions,
        controller: Callable[[], Address | None],
        *,
        timeout_s: float = 60.0,
        clock: Clock = SYSTEM_CLOCK,
        connect: Callable[[str, int, ConnectionOptions], Client] = connect_to_node,
    ) -> None:
        patient = replace(connection, request_timeout_s=min(connection.request_timeout_s, timeout_s))
        self._channel = ControllerChannel(patient, controller, connect)
        self._timeout_s = timeout_s
        self._clock = clock
        self._lock = threading.Lock()

    def versions(self, key: ApiKey) -> tuple[int, int]:
        """Return the lowest and highest version of an API that the controller supports. Raises UnreachableError."""
        with self._lock:
            answer = self._channel.connected().api_versions
        ranges = {int(each.api_key): (int(each.min_version), int(each.max_version)) for each in answer.api_keys}
        if int(key) not in ranges:
            raise UsageError(f"the controller does not support {key.message}")
        return ranges[int(key)]

    def ask(self, key: ApiKey, versions: tuple[int, int], /, **fields: Any) -> Any:
        """Send a request of the broker itself and return the response. Blocks.

        Raises RequestTimedOutError if no active controller responds in time.
        """
        deadline = self._clock.monotonic() + self._timeout_s
        with self._lock:
            while True:
                try:
                    answer = self._channel.call(key, versions, **fields)
                except (UnreachableError, OSError) as error:
                    why: object = error
                else:
                    if int(getattr(answer, "error_code", 0)) != _NOT_CONTROLLER:
                        return answer
                    why = "it does not lead"
                    self._channel.close()
                if self._clock.monotonic() >= deadline:
                    raise RequestTimedOutError(f"no controller has answered the request: {why}")
                self._clock.sleep(_RETRY_S)

    def forward(self, request: bytes, principal: Principal, client_host: str, *, by_token: bool = False) -> bytes:
        """Return the response to a request; both include their headers. Blocks.

        Raises RequestTimedOutError if no controller responds in time, UnsupportedVersionError if it does not support
        the version, UnknownServerError if it cannot parse the request.
        """
        answer = self.ask(
            ApiKey.ENVELOPE,
            _ENVELOPE_VERSIONS,
            request_data=request,
            request_principal=encode_principal(principal, by_token=by_token),
            client_host_address=ipaddress.ip_address(client_host).packed,
        )
        if int(answer.error_code) == UnsupportedVersionError.code:
            raise UnsupportedVersionError("the controller does not support this version of the request")
        if int(answer.error_code):
            raise UnknownServerError(f"the controller returned {answer.error_code.name.upper()}")
        return bytes(answer.response_data or b"")

    def ask_for(self, client: ForwardedClient, key: ApiKey, newest: int, /, **fields: Any) -> Any:
        """Send a request in a client's name, at most in version `newest`; return the response. Errors as `forward`."""
        try:
            version = min(newest, self.versions(key)[1])
        except UnreachableError:
            version = newest
        return self.forward_message(client, key, version, build_message(request_class(key, version), fields))

    def forward_message(self, client: ForwardedClient, key: ApiKey, version: int, request: Any) -> Any:
        """Send a request in a client's name; return the response. Errors as `forward`. Blocks."""
        frame, _ = request_frame(key, version, client.client_id, request)
        response = self.forward(frame, client.principal, client.host, by_token=client.by_token)
        cls = response_class(key, version)
        answer, _ = read_message(cls, response, _CORRELATION_SIZE + int(cls.__flexible__))
        return answer

    def close(self) -> None:
        with self._lock:
            self._channel.close()


def encode_principal(principal: Principal, *, by_token: bool = False) -> bytes:
    """Return a principal in the format of `DefaultKafkaPrincipalBuilder`: version int16, then DefaultPrincipalData."""
    data = {"type_": principal.kind, "name": principal.name, "token_authenticated": by_token}
    return _PRINCIPAL_VERSION.pack(0) + write_message(make_message(principal_class(), data))
