"""Quotas, users and certificates of a secured cluster change under load: nothing is lost, all brokers follow.

The changes go through the controllers, which let brokers in by SCRAM too (KIP-900).
"""

from __future__ import annotations

import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from stratalog.records import Record, build_batch
from stratalog.wire import ApiKey
from stratalog.wire.client import AuthenticationError
from tests.interop.test_kraft_replication import wait_until
from tests.interop.test_kraft_security import (
    FIRST,
    JVM,
    SECOND,
    TOPIC,
    USERS,
    World,
    prepared,
    produce,
    read,
)
from tests.support.certificate import make_certificate
from tests.support.reference_jars import CONFIGS_JARS
from tests.support.reference_kafka import require_reference_kafka

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.xdist_group("kraft")]

BROKERS = (JVM, FIRST, SECOND)
_CONFIGS = "kafka.admin.ConfigCommand"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    require_reference_kafka(CONFIGS_JARS)
    world = World(tmp_path_factory.mktemp("kraft-scram"), "SCRAM")
    try:
        prepared(world)
        yield world
    finally:
        world.close()


@contextmanager
def load(world: World) -> Iterator[list[bytes]]:
    """Write to each leader as alice; at the end everything that was confirmed is read. Yields what is confirmed."""
    confirmed: list[bytes] = []
    failed: list[str] = []
    stop = threading.Event()

    def told(error: Any, message: Any) -> None:
        if error is None:
            confirmed.append(message.value())
        else:
            failed.append(error.name())

    producer = Producer({**world.client("alice"), "acks": "all", "linger.ms": 2})

    def write() -> None:
        number = 0
        while not stop.is_set():
            for at in range(3):
                with suppress(BufferError):
                    producer.produce(TOPIC, b"under-load-%d" % number, partition=at, on_delivery=told)
                    number += 1
            producer.poll(0.01)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        wait_until(lambda: len(confirmed) > 100, "records are confirmed")
        yield confirmed
        at_the_end = len(confirmed)
        wait_until(lambda: len(confirmed) > at_the_end + 100, "records are confirmed after the change")
    finally:
        stop.set()
        thread.join(60)
        producer.flush(60)
    assert failed == []
    read(world, lambda values: set(confirmed) <= set(values))


def is_throttled(world: World, broker: int, *, wanted: bool = True) -> bool:
    """Return whether one broker throttles alice after a record of 50 KB, or does not."""
    partition = {FIRST: 0, SECOND: 1, JVM: 2}[broker]
    records = build_batch([Record(0, 1_000, None, bytes(50_000))])
    topic = {"name": TOPIC, "partition_data": [{"index": partition, "records": records}]}
    with closing(world.at("alice", broker)) as client:
        told = client.call(ApiKey.PRODUCE, (12, 12), acks=-1, timeout=20_000, topic_data=[topic])
    assert int(told.responses[0].partition_responses[0].error_code) == 0
    return bool(told.throttle_time.total_seconds() > 0) == wanted


@pytest.mark.parametrize("asked", [FIRST, JVM])
def test_a_quota_holds_at_brokers_of_both_sorts_and_goes_again(world: World, asked: int) -> None:
    of_alice = ["--entity-type", "users", "--entity-name", "alice"]
    with load(world):
        quota = ["--alter", "--add-config", "producer_byte_rate=20000", *of_alice]
        world.tool(_CONFIGS, *quota, broker=asked)
        for broker in BROKERS:
            wait_until(partial(is_throttled, world, broker), f"broker {broker} throttles her")
        world.tool(_CONFIGS, "--alter", "--delete-config", "producer_byte_rate", *of_alice, broker=asked)
        for broker in BROKERS:
            wait_until(partial(is_throttled, world, broker, wanted=False), f"broker {broker} lets her write")


def enters(world: World, broker: int, user: str, *, wanted: bool = True) -> bool:
    try:
        world.at(user, broker).close()
    except AuthenticationError:
        return not wanted
    return wanted


@pytest.mark.parametrize("asked", [FIRST, JVM])
def test_users_come_change_and_go_beside_clients_that_are_in(
    world: World, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Kafka, a password counts for logins; who is in stays in."""
    name = f"carol-{asked}"
    of_carol = ["--entity-type", "users", "--entity-name", name]
    for user, first, second in ((name, "one", "two"), ("alice", USERS["alice"], "looking-glass")):
        monkeypatch.setitem(USERS, user, first)
        with load(world):
            for password in (first, second):
                secret = f"SCRAM-SHA-512=[iterations=4096,password={password}]"
                of_user = ["--entity-type", "users", "--entity-name", user]
                world.tool(_CONFIGS, "--alter", "--add-config", secret, *of_user, broker=asked)
                monkeypatch.setitem(USERS, user, password)
                for broker in BROKERS:
                    wait_until(partial(enters, world, broker, user), f"{user} enters at {broker}")
            monkeypatch.setitem(USERS, user, first)
            assert not [broker for broker in BROKERS if enters(world, broker, user)]
            monkeypatch.setitem(USERS, user, second)
    world.tool(_CONFIGS, "--alter", "--delete-config", "SCRAM-SHA-512", *of_carol, broker=asked)
    for broker in BROKERS:
        wait_until(partial(enters, world, broker, name, wanted=False), f"{name} is gone at {broker}")
    secret = "SCRAM-SHA-512=[iterations=4096,password=wonderland]"
    world.tool(_CONFIGS, "--alter", "--add-config", secret, "--entity-type", "users", "--entity-name", "alice")
    monkeypatch.setitem(USERS, "alice", "wonderland")
    for broker in BROKERS:
        wait_until(partial(enters, world, broker, "alice"), f"alice enters at {broker}")


def served_certificate(world: World, broker: int) -> str:
    host, port = world.addresses[broker].split(":")
    return ssl.get_server_certificate((host, int(port)), timeout=30)


def serves(world: World, broker: int, certificate: str) -> bool:
    return served_certificate(world, broker) == certificate


def test_a_rotated_certificate_is_served_and_no_connection_is_dropped(world: World, tmp_path: Path) -> None:
    """Each broker gets a key store of its own for clients, by a setting that goes through the controllers."""
    before = {broker: served_certificate(world, broker) for broker in BROKERS}
    assert len(set(before.values())) == 1
    open_before = {broker: world.at("alice", broker) for broker in BROKERS}
    made = make_certificate(tmp_path)
    identity = tmp_path / "identity.pem"
    identity.write_text(made.key.read_text() + made.certificate.read_text())
    trusted = world.secured.certificate.certificate
    trusted.write_text(trusted.read_text() + made.certificate.read_text())  # of who comes from now on
    entity = ["--entity-type", "brokers", "--entity-name"]
    setting = "listener.name.clients.ssl.keystore.location"
    with load(world):
        for broker in BROKERS:
            world.tool(
                _CONFIGS, "--alter", "--add-config", f"{setting}={identity}", *entity, str(broker), broker=broker
            )
            wait_until(
                partial(serves, world, broker, ssl_text(made.certificate)),
                f"broker {broker} serves the new certificate",
            )
        for broker, client in open_before.items():
            assert client.call(ApiKey.METADATA, (12, 12), topics=[{"name": TOPIC}]).topics, broker
            client.close()
    for broker in BROKERS:
        world.tool(_CONFIGS, "--alter", "--delete-config", setting, *entity, str(broker), broker=broker)
        wait_until(
            partial(serves, world, broker, before[broker]),
            f"broker {broker} serves the old certificate again",
        )
    assert produce(world.client("alice"), [b"after all"]) == {}


def ssl_text(certificate: Path) -> str:
    return ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert(certificate.read_text()))


@pytest.mark.parametrize("wrong", ["password", "name"])
def test_a_broker_that_the_controllers_do_not_know_refuses_to_start_by_one_line(world: World, wrong: str) -> None:
    """The log is that of `serve`; what it says names the controllers, and shows no password."""
    member = world.ours[SECOND]
    config = member.directory / f"wrong-{wrong}.properties"
    lines = []
    for line in member.config.read_text().splitlines():
        key, _, value = line.partition("=")
        if key == "listener.name.controller.scram-sha-512.sasl.jaas.config":
            value = (
                value.replace("of-the-brokers", "hunter2")
                if wrong == "password"
                else value.replace('username="broker"', 'username="stranger"')
            )
        lines.append(f"{key}={value}")
    config.write_text("\n".join(lines) + "\n")
    member.end(signal.SIGTERM)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "stratalog", "serve", "--config", str(config)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        member.start()
    said = done.stderr.strip().splitlines()
    assert done.returncode != 0
    assert len(said) == 1, done.stderr
    assert "hunter2" not in said[0]
    assert "Traceback" not in done.stderr
    assert "controller" in said[0], said[0]
    wait_until(lambda: _writes(world), "the broker leads again with the right password")


def _writes(world: World) -> bool:
    with suppress(KafkaException):
        return produce(world.client("alice", message_timeout_ms=3000), [b"again"]) == {}
    return False
