"""Requests of coordinators to other brokers: one connection and thread for each broker and kind of request.

Kafka also has separate threads for markers and verifications: a slow broker must not delay requests to others.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from stratalog.broker.cluster.controller_channel import connect_to_node
from stratalog.wire import ApiKey
from stratalog.wire.client import Client, ConnectionOptions, UnreachableError

#: Host and port of a broker; None for one that is not registered.
Addresses = Callable[[int], tuple[str, int] | None]


class _Channel:
    """One connection, opened on demand and again after a failure. `call` runs on the channel's thread."""

    def __init__(self, broker: int, key: ApiKey, address: Addresses, connection: ConnectionOptions) -> None:
        self._broker = broker
        self._key = key
        self._address = address
        self._connection = connection
        self._client: Client | None = None
        self._at: tuple[str, int] | None = None
        self.thread = ThreadPoolExecutor(1, thread_name_prefix=f"stratalog-{key.name.lower()}-{broker}")

    def call(self, versions: tuple[int, int], fields: dict[str, Any]) -> Any:
        address = self._address(self._broker)
        if address is None:
            raise UnreachableError(f"broker {self._broker} is not registered")
        try:
            if self._client is None or self._at != address:
                self.close()
                self._client, self._at = connect_to_node(*address, self._connection), address
            return self._client.call(self._key, versions, **fields)
        except BaseException:  # the next request might get the response to this one
            self.close()
            raise

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


class BrokerChannels:
    """The channels. Call `ask` on a loop's thread; `close` is thread-safe."""

    def __init__(self, address: Addresses, connection: ConnectionOptions) -> None:
        self._address = address
        self._connection = connection
        self._channels: dict[tuple[int, ApiKey], _Channel] = {}
        self._lock = threading.Lock()
        self._closed = False

    def ask(self, broker: int, key: ApiKey, versions: tuple[int, int], /, **fields: Any) -> asyncio.Future[Any]:
        """Send a request to a broker; UnreachableError or OSError without a response."""
        with self._lock:
            if self._closed:
                raise UnreachableError("the broker is stopping")
            channel = self._channels.get((broker, key))
            if channel is None:
                channel = self._channels[broker, key] = _Channel(broker, key, self._address, self._connection)
        return asyncio.get_running_loop().run_in_executor(channel.thread, channel.call, versions, fields)

    def close(self) -> None:
        """Send no more requests, and wait for no response."""
        with self._lock:
            self._closed = True
            channels = list(self._channels.values())
        for channel in channels:
            channel.thread.shutdown(wait=False, cancel_futures=True)
            channel.close()
