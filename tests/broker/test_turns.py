"""Turns of connections: who has just sent something small does not wait for those who keep the loop busy.

Invariant: of connections that are new, or took long before, one is worked on in each turn of the loop.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from pathlib import Path

import pytest
from typing_extensions import Buffer

from stratalog.broker.server import Broker, connection
from stratalog.broker.server.acceptor import Acceptor
from stratalog.broker.server.connection import Connection
from stratalog.util import give_back_maps
from stratalog.wire.api_keys import ApiKey

REQUEST = struct.pack(">ihhih", 10, ApiKey.API_VERSIONS, 0, 7, -1)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path) as broker:
        yield broker


def connect(broker: Broker) -> socket.socket:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def answered(sock: socket.socket) -> None:
    (size,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
    assert len(sock.recv(size, socket.MSG_WAITALL)) == size


def test_only_connections_that_are_new_or_took_long_wait_in_line(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[object] = []
    give_turn = Acceptor.give_turn
    monkeypatch.setattr(Acceptor, "give_turn", lambda self, turn: (waited.append(turn), give_turn(self, turn)))
    monkeypatch.setattr(connection, "_QUICK_S", 60.0)
    with connect(broker) as sock:
        for _ in range(5):
            sock.sendall(REQUEST)
            answered(sock)
        assert len(waited) == 1
        monkeypatch.setattr(connection, "_QUICK_S", 0.0)
        for _ in range(5):
            sock.sendall(REQUEST)
            answered(sock)
        assert len(waited) in (4, 5)  # the first of them shows that it takes long, or the first two


def test_a_quick_client_is_served_between_the_turns_of_slow_ones(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While many wait in line, at most one of them comes before a client that is quick."""
    slow = [connect(broker) for _ in range(20)]
    order: list[str] = []
    gate = threading.Event()
    take_in = Connection._take_in

    def noted(self: Connection) -> None:
        quick = self.peer.client_port == quick_port
        order.append("quick" if quick else "slow")
        if not quick and not gate.is_set():
            gate.wait(30)  # all have sent by then
        take_in(self)

    with connect(broker) as good:
        quick_port = good.getsockname()[1]
        good.sendall(REQUEST)
        answered(good)
        monkeypatch.setattr(Connection, "_take_in", noted)
        for sock in slow:
            sock.sendall(REQUEST)
        good.sendall(REQUEST)
        gate.set()
        answered(good)
        for sock in slow:
            answered(sock)
            sock.close()
    assert order.index("quick") <= 3
    assert order.count("slow") >= 20


def test_maps_that_are_given_back_are_empty() -> None:
    one = mmap(-1, 20 << 20, flags=MAP_PRIVATE | MAP_ANONYMOUS)
    one[:] = b"x" * len(one)
    maps: list[Buffer] = [one]
    give_back_maps(maps)
    assert maps == []
    assert one[:10] == bytes(10)
