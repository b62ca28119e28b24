"""A connection whose exchange fails at any step is not used again: what it answers late is no one's."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from stratalog.broker.server import Broker
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.client.cluster import Cluster
from stratalog.wire.client.connection import Client
from stratalog.wire.client.errors import UnreachableError


class _FailingSocket:
    """A socket of which one call fails; the one after `calls` others."""

    def __init__(self, inner: socket.socket, error: BaseException, calls: int) -> None:
        self._inner, self._error, self.calls = inner, error, calls

    def _count(self) -> None:
        self.calls -= 1
        if self.calls < 0:
            raise self._error

    def sendall(self, data: bytes) -> None:
        self._count()
        self._inner.sendall(data)

    def recv_into(self, view: memoryview) -> int:
        self._count()
        return self._inner.recv_into(view)


@pytest.mark.parametrize(
    "error", [TimeoutError(), MemoryError(), KeyboardInterrupt()], ids=lambda error: type(error).__name__
)
@pytest.mark.parametrize("calls", range(3))
def test_a_connection_is_broken_by_whatever_ends_an_exchange_half_way(error: BaseException, calls: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        client: Any = object.__new__(Client)
        client._address, client._client_id, client._correlation_id = "here:1", b"test", 0
        client._lock, client.is_broken = threading.RLock(), False
        client._sasl = client._reauthenticate_at = None
        client._socket = _FailingSocket(ours, error, calls)
        theirs.sendall(b"\0\0\0\x0a\0\0\0\1secret")
        with pytest.raises((UnreachableError, MemoryError, KeyboardInterrupt)):
            client.exchange(ApiKey.API_VERSIONS, 0, {})
        assert client.is_broken


def test_a_broken_connection_is_closed_when_the_next_one_takes_its_place(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker, Cluster(broker.bootstrap_servers) as cluster:
        for ask in (lambda: cluster.any, lambda: cluster.node(broker.services.node_id)):
            before = ask()
            before.is_broken = True
            after = ask()
            assert after is not before
            assert before._socket.fileno() == -1
            assert after._socket.fileno() >= 0
