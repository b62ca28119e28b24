"""Several listeners: each tells its own clients its own address, and has limits of its own."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from tests.support.reference_kafka import free_port
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.server.connection_limits import ConnectionLimits, CreationRate, parse_overrides
from stratalog.broker.server.open_listeners import open_listeners
from stratalog.broker.server.server import Broker
from stratalog.config.broker import BrokerConfig
from stratalog.config.listeners import listener_settings
from stratalog.errors import InvalidConfigError, UsageError
from stratalog.wire import ApiKey


def pair(inside: int, outside: int, **more: object) -> dict[str, object]:
    """The usual pair of a container, as Kafka's own file has it."""
    return {
        "listeners": f"INTERNAL://127.0.0.1:{inside},EXTERNAL://127.0.0.2:{outside}",
        "advertised.listeners": f"INTERNAL://127.0.0.1:{inside},EXTERNAL://localhost:{outside}",
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def test_each_listener_answers_with_its_own_address(tmp_path: Path) -> None:
    inside, outside = free_port(), free_port()
    with Broker(tmp_path, config=pair(inside, outside)) as broker:
        assert broker.bootstrap_servers == f"127.0.0.1:{inside}"
        for reached, reported in (
            (f"127.0.0.1:{inside}", ("127.0.0.1", inside)),
            (f"127.0.0.2:{outside}", ("localhost", outside)),
        ):
            with Wire(reached) as wire:
                (node,) = wire.call(ApiKey.METADATA, 12, topics=[]).brokers
                assert (node.host, node.port) == reported
                (node,) = wire.call(ApiKey.DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=False).brokers
                assert (node.host, node.port) == reported
                (found,) = wire.call(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"]).coordinators
                assert (found.host, found.port) == reported


def test_a_record_goes_in_by_one_listener_and_out_by_another(tmp_path: Path) -> None:
    inside, outside = free_port(), free_port()
    config = pair(
        inside, outside, advertised__listeners=f"INTERNAL://127.0.0.1:{inside},EXTERNAL://127.0.0.2:{outside}"
    )
    with Broker(tmp_path, config=config):
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{inside}"})
        producer.produce("orders", b"one")
        assert producer.flush(30) == 0
        consumer = Consumer(
            {"bootstrap.servers": f"127.0.0.2:{outside}", "group.id": "g", "auto.offset.reset": "earliest"}
        )
        try:
            consumer.subscribe(["orders"])
            message = consumer.poll(30)
            assert message is not None
            assert message.value() == b"one"
        finally:
            consumer.close()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"listeners": "A://:0,A://:0", "listener.security.protocol.map": "A:PLAINTEXT"}, "different name"),
        ({"listeners": "PLAINTEXT://:0", "inter.broker.listener.name": "INSIDE"}, "inter.broker.listener.name"),
        (
            {
                "listeners": "PLAINTEXT://:0",
                "inter.broker.listener.name": "PLAINTEXT",
                "security.inter.broker.protocol": "PLAINTEXT",
            },
            "must not be set too",
        ),
        ({"listeners": "PLAINTEXT://:0", "security.inter.broker.protocol": "TLS"}, "security.inter.broker.protocol"),
        (
            {"listeners": "PLAINTEXT://:0", "listener.name.plaintext.max.connections": "x"},
            "listener.name.plaintext.max",
        ),
        ({"listeners": "PLAINTEXT://:0", "max.connections.per.ip.overrides": "here"}, "expected host:number"),
        ({"listeners": "PLAINTEXT://:0", "max.connections.per.ip.overrides": "no.such.host.invalid:1"}, "is not known"),
    ],
)
def test_what_no_listener_can_keep_refuses_the_start(tmp_path: Path, config: Mapping[str, str], said: str) -> None:
    with pytest.raises((InvalidConfigError, UsageError), match=said) as raised:
        Broker(tmp_path / "data", config=config)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "data").exists()


def test_nothing_stays_bound_when_one_address_cannot_be_had() -> None:
    free = free_port()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = BrokerConfig(
            {
                "listeners": f"A://127.0.0.1:{free},B://127.0.0.1:{taken.getsockname()[1]}",
                "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
            }
        )
        with pytest.raises(UsageError, match="port is in use"):
            open_listeners(None, config)
        socket.create_server(("127.0.0.1", free)).close()


def answers(sock: socket.socket) -> bool:
    """Whether the broker answers ApiVersions v0 on this connection; False when it closes it."""
    try:
        sock.sendall(bytes.fromhex("0000000a0012000000000001ffff"))
        size = sock.recv(4, socket.MSG_WAITALL)
        return bool(size) and bool(sock.recv(int.from_bytes(size), socket.MSG_WAITALL))
    except ConnectionError:
        return False


def connect(port: int, host: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection((host, port), timeout=30)


def test_a_full_listener_lets_clients_wait_and_leaves_the_other_alone(tmp_path: Path) -> None:
    inside, outside = free_port(), free_port()
    config = pair(inside, outside, **{"listener.name.external.max.connections": 1})
    with (
        Broker(tmp_path, config=config),
        connect(outside, "127.0.0.2") as first,
        connect(outside, "127.0.0.2") as second,
    ):
        assert answers(first)
        second.settimeout(0.2)
        with pytest.raises(TimeoutError):
            answers(second)
        with connect(inside) as other:
            assert answers(other)
        first.close()
        second.settimeout(30)
        assert second.recv(4)


def test_the_brokers_own_listener_takes_the_place_of_the_longest_idle_connection(tmp_path: Path) -> None:
    inside, outside = free_port(), free_port()
    with (
        Broker(tmp_path, config=pair(inside, outside, max__connections=2)),
        connect(outside, "127.0.0.2") as idle,
        connect(outside, "127.0.0.2") as busy,
    ):
        assert answers(idle)
        time.sleep(0.05)  # the loop's clock counts whole milliseconds
        assert answers(busy)
        with connect(inside) as own:
            assert answers(own)
            assert not answers(idle)
            assert answers(busy)


def test_an_address_has_its_own_limit_and_gets_its_places_back(tmp_path: Path) -> None:
    port = free_port()
    config = {
        "listeners": f"PLAINTEXT://0.0.0.0:{port}",
        "max.connections.per.ip": 1,
        "max.connections.per.ip.overrides": "127.0.0.1:2",
    }
    with Broker(tmp_path, config=config):
        with connect(port) as one, connect(port) as two, connect(port) as three:
            assert answers(one)
            assert answers(two)
            assert not answers(three)
        wait_until(lambda: _is_served(port), "a place that is free again")


def _is_served(port: int) -> bool:
    with connect(port) as sock:
        return answers(sock)


def test_a_rate_of_new_connections_holds_on_the_average() -> None:
    rate = CreationRate(0.0)
    accepted, now = 0, 0.0
    while now < 100:
        wait = rate.wait_s(5, now)
        if wait:
            now += wait
        else:
            rate.count()
            accepted += 1
    assert 5 * 100 <= accepted <= 5 * 110 + 1


def test_a_listener_waits_for_its_own_rate_and_for_the_brokers() -> None:
    config = BrokerConfig({"max.connection.creation.rate": "10", "listener.name.a.max.connection.creation.rate": "1"})
    limits = ConnectionLimits(lambda: config, ("A", "B"), "A", lambda: 0.0)

    def burst(name: str) -> int:
        taken = 0
        while not limits.wait_s(name):
            limits.take(name, "h")
            taken += 1
        return taken

    assert burst("A") == 10
    assert burst("B") == 90


def test_a_setting_of_one_listener_goes_over_that_of_all() -> None:
    config = BrokerConfig({"max.connections": "7", "listener.name.a.max.connections": "3"})
    assert listener_settings(config, "A")["max.connections"] == 3
    assert listener_settings(config, "B")["max.connections"] == 7
    assert parse_overrides(BrokerConfig({"max.connections.per.ip.overrides": "127.0.0.1:3,[::1]:4"})) == {
        "127.0.0.1": 3,
        "::1": 4,
    }


@pytest.mark.parametrize("value", ["here", "127.0.0.1", ":5", "127.0.0.1:x", "127.0.0.1:-1", "127.0.0.1:٣"])
def test_limits_of_addresses_that_are_none_are_refused(value: str) -> None:
    with pytest.raises(InvalidConfigError, match="expected host:number"):
        BrokerConfig({"max.connections.per.ip.overrides": value})["max.connections.per.ip.overrides"]


def test_settings_that_turn_out_wrong_while_it_serves_end_no_listener() -> None:
    config = BrokerConfig({"max.connections": "5"})
    limits = ConnectionLimits(lambda: config, ("PLAINTEXT",), "PLAINTEXT", lambda: 0.0)
    assert limits.has_room("PLAINTEXT")
    config = BrokerConfig(
        {
            "listener.name.plaintext.max.connections": "many",
            "max.connections.per.ip.overrides": "no.such.host.invalid:1,127.0.0.1:1",
        }
    )
    assert limits.has_room("PLAINTEXT")
    assert limits.take("PLAINTEXT", "127.0.0.1")
    assert not limits.take("PLAINTEXT", "127.0.0.1")
    assert limits.of("PLAINTEXT")["max.connections"] == 5
