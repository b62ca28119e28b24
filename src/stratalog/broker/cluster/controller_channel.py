"""A connection to the active controller, opened on demand, and again after an election."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stratalog.broker.cluster.quorum import Address
from stratalog.errors import UsageError
from stratalog.wire import ApiKey
from stratalog.wire.client import Client, ConnectionOptions, UnreachableError


def connect_to_node(host: str, port: int, options: ConnectionOptions) -> Client:
    """Connect to another node. Raises UnreachableError even if this broker is rejected, which may be temporary.

    A controller that has just started may not know the cluster's users yet, and certificates may be replaced.
    """
    try:
        return Client(host, port, options)
    except UnreachableError:
        raise
    except UsageError as error:
        raise UnreachableError(str(error)) from error


class ControllerChannel:
    """The connection. Use it from one thread at a time; only `close` is thread-safe, and interrupts a waiting call."""

    def __init__(
        self,
        connection: ConnectionOptions,
        controller: Callable[[], Address | None],
        connect: Callable[[str, int, ConnectionOptions], Client] = connect_to_node,
    ) -> None:
        self._connection = connection
        self._controller = controller
        self._connect = connect
        self._client: Client | None = None
        self._at: Address | None = None

    def call(self, key: ApiKey, versions: tuple[int, int], /, **fields: Any) -> Any:
        """Send a request and return the response. Raises UnreachableError or OSError after closing the connection."""
        try:
            return self.connected().call(key, versions, **fields)
        except (UnreachableError, OSError):
            self.close()
            raise

    def connected(self) -> Client:
        """Return the connection. Raises UnreachableError while no active controller is known."""
        address = self._controller()
        if address is None:
            raise UnreachableError("no controller is known to lead the quorum")
        if self._client is None or self._at != address:
            self.close()
            self._client, self._at = self._connect(*address, self._connection), address
        return self._client

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
