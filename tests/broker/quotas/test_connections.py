"""Addresses that open connections faster than their quota are kept waiting; others are not."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.support.quota_cases import set_quota
from tests.support.reference_kafka import free_port
from tests.support.wire import Wire

from stratalog import Broker
from stratalog.testing.clock import ManualClock
from stratalog.wire.api_keys import ApiKey


def is_served(port: int, address: str) -> bool:
    """Whether a new connection from an address is answered, before it is closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(address, 0)) as sock:
        sock.sendall(b"\0\0\0\x0b" + b"\0\x12\0\0\0\0\0\1\0\1a")
        try:
            return bool(sock.recv(1))
        except ConnectionResetError:
            return False


def test_an_address_has_as_many_new_connections_as_its_quota_allows(tmp_path: Path) -> None:
    port, clock = free_port(), ManualClock()
    config = {"listeners": f"PLAINTEXT://0.0.0.0:{port}"}
    with Broker(tmp_path, config=config, clock=clock), Wire(f"127.0.0.1:{port}") as wire:
        set_quota(wire, {"ip": "127.0.0.2"}, connection_creation_rate=1)
        served = [is_served(port, "127.0.0.2") for _ in range(12)]
        assert served == [True] * 10 + [False] * 2
        assert is_served(port, "127.0.0.3")
        clock.advance(12_000)
        assert is_served(port, "127.0.0.2")
        set_quota(wire, {"ip": None}, connection_creation_rate=2)
        assert [is_served(port, "127.0.0.4") for _ in range(21)].count(True) == 20
        set_quota(wire, {"ip": None}, connection_creation_rate=None)
        assert is_served(port, "127.0.0.4")
        assert not wire.call(ApiKey.API_VERSIONS, 0).error_code
