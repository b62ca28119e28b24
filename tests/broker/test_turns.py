"""Turns of connections: who has just sent something small does not wait for those who keep the loop busy.

Invariant: of connections that are new, or took long before, one is worked on in each turn of the loop.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from pathlib import Path

import pytest
from typing_extensions import Buffer

from stratalog.broker.server import Broker, calls, connection
from stratalog.broker.server.acceptor import Acceptor
from stratalog.broker.server.connection import Connection
from stratalog.broker.server.entrance import Entrance
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


def acceptor_of(broker: Broker) -> Acceptor:
    return next(each for each in gc.get_objects() if isinstance(each, Acceptor) and each.services is broker.services)


def answered(sock: socket.socket) -> None:
    (size,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
    assert len(sock.recv(size, socket.MSG_WAITALL)) == size


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """The ports of the clients that waited in line, one for each turn."""
    ports: list[int | None] = []
    give_turn = Acceptor.give_turn

    def noted(self: Acceptor, take_turn: Callable[[], object]) -> None:
        who = getattr(take_turn, "__self__", None)
        if isinstance(who, Connection):
            ports.append(who.peer.client_port)
        give_turn(self, take_turn)

    monkeypatch.setattr(Acceptor, "give_turn", noted)
    return ports


def port_of(sock: socket.socket) -> int:
    return int(sock.getsockname()[1])


def test_only_connections_that_are_new_or_took_long_wait_in_line(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, waited: list[int | None]
) -> None:
    monkeypatch.setattr(connection, "_QUICK_S", 60.0)
    with connect(broker) as sock:
        for _ in range(5):
            sock.sendall(REQUEST)
            answered(sock)
        assert waited.count(port_of(sock)) == 1
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), broker.services.loop).result(30)  # the last one is over
        monkeypatch.setattr(connection, "_QUICK_S", 0.0)
        for _ in range(5):
            sock.sendall(REQUEST)
            answered(sock)
        assert waited.count(port_of(sock)) in (4, 5)  # the first of them shows that it takes long, or the first two


def test_a_connection_with_more_requests_than_fit_a_turn_waits_in_line(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However little CPU each of them takes: several such connections would take turn after turn before any other."""
    monkeypatch.setattr(connection, "_QUICK_S", 60.0)
    monkeypatch.setattr(calls, "_TURN_S", -1.0)
    waits: list[str] = []
    give_turn = Acceptor.give_turn

    def noted(self: Acceptor, take_turn: Callable[[], object]) -> None:
        waits.append(take_turn.__name__)
        give_turn(self, take_turn)

    monkeypatch.setattr(Acceptor, "give_turn", noted)
    with connect(broker) as sock:
        for bursts in (1, 2, 3):
            sock.sendall(REQUEST * 5)
            for _ in range(5):
                answered(sock)
            assert waits.count("_take_in_and_proceed") == bursts


def test_a_quick_client_is_served_between_the_turns_of_slow_ones(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While many wait in line, at most one of them comes before a client that is quick."""
    monkeypatch.setattr(connection, "_QUICK_S", 60.0)  # those that wait do so as new ones; the good one is none
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
        quick_port = port_of(good)
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


def test_the_rest_of_a_large_request_waits_in_line_however_quick_its_client_is(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, waited: list[int | None]
) -> None:
    """To receive a megabyte takes less than what makes a client slow; forty clients may send one in the same turn."""
    monkeypatch.setattr(connection, "_QUICK_S", 60.0)
    size = 8 << 20
    with connect(broker) as sock:
        sock.sendall(REQUEST)
        answered(sock)
        port = port_of(sock)
        assert waited.count(port) == 1  # it was new
        sock.sendall(struct.pack(">ihhih", size, ApiKey.PRODUCE, 9, 1, -1))
        sent = 14
        while sent < size // 2:
            sent += sock.send(bytes(65536))
        (served,) = [each for each in acceptor_of(broker).connections if each.peer.client_port == port]
        while not served.framing.is_large_begun:
            time.sleep(0.001)
        before = waited.count(port)
        sock.sendall(bytes(65536))
        while waited.count(port) == before:
            time.sleep(0.001)


def test_a_crowd_of_connections_is_accepted_a_few_in_each_turn(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    on_acceptable, let_in = Entrance._on_acceptable, Entrance._connect
    gate = threading.Event()

    def noted_turn(self: Entrance) -> None:
        gate.wait(30)  # all are there by then
        counts.append(0)
        on_acceptable(self)

    def noted(self: Entrance, sock: socket.socket, address: object) -> None:
        counts[-1] += 1
        let_in(self, sock, address)

    monkeypatch.setattr(Entrance, "_connect", noted)
    monkeypatch.setattr(Entrance, "_on_acceptable", noted_turn)
    for entrance in acceptor_of(broker)._entrances:  # their callbacks are bound already
        broker.services.loop.call_soon_threadsafe(entrance._pause)
        broker.services.loop.call_soon_threadsafe(entrance.accept_again)
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0), broker.services.loop).result(30)  # they have theirs again
    many = [connect(broker) for _ in range(40)]  # fewer than the backlog of the listener
    gate.set()
    for sock in many:
        sock.sendall(REQUEST)
        answered(sock)
        sock.close()
    assert sum(counts) == 40
    assert max(counts) <= 16
