"""Nodes that log in to each other by OAUTHBEARER, with tokens of a real OpenID provider that last 20 seconds."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.interop.test_kraft_replication import FIRST, JVM, SECOND, World, wait_until
from tests.support.authority import Authority
from tests.support.kraft_cluster import KraftCluster
from tests.support.oidc_server import SECRET, OidcServer, require_oidc_server
from tests.support.reference_kafka import require_reference_kafka

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.xdist_group("kraft")]

JAVA = "org.apache.kafka.common.security.oauthbearer"
LIFETIME_S = 20
NODES = [FIRST, SECOND, JVM]


def settings(server: OidcServer, directory: Path) -> dict[str, str]:
    trust = f'ssl.truststore.type="PEM" ssl.truststore.location="{directory / "ca.pem"}"'
    found = {
        "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,NODES:SASL_PLAINTEXT,CLIENTS:PLAINTEXT",
        "sasl.mechanism.controller.protocol": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.login.refresh.min.period.seconds": "1",
        "sasl.login.refresh.buffer.seconds": "2",
        "sasl.oauthbearer.token.endpoint.url": server.discovered["token_endpoint"],
        "sasl.oauthbearer.jwks.endpoint.url": server.discovered["jwks_uri"],
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": server.discovered["issuer"],
    }
    for listener in ("controller", "nodes"):
        mechanism = f"listener.name.{listener}.oauthbearer.sasl"
        found |= {
            f"listener.name.{listener}.sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{mechanism}.jaas.config": f"{JAVA}.OAuthBearerLoginModule required "
            f'clientId="node" clientSecret="{SECRET}" {trust};',
            f"{mechanism}.login.callback.handler.class": f"{JAVA}.OAuthBearerLoginCallbackHandler",
            f"{mechanism}.server.callback.handler.class": f"{JAVA}.OAuthBearerValidatorCallbackHandler",
        }
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OidcServer]:
    require_reference_kafka()
    require_oidc_server()
    directory, authority = tmp_path_factory.mktemp("oidc"), Authority()
    authority.write(directory / "ca.pem")
    with OidcServer(directory, authority, LIFETIME_S) as server, pytest.MonkeyPatch.context() as patch:
        urls = f"{server.discovered['token_endpoint']},{server.discovered['jwks_uri']}"
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={urls}")
        patch.setenv("SSL_CERT_FILE", str(directory / "ca.pem"))
        yield server


@pytest.fixture(scope="module")
def world(server: OidcServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("kraft")
    Path(directory / "ca.pem").write_bytes(next(tmp_path_factory.getbasetemp().glob("oidc*/ca.pem")).read_bytes())
    shared = settings(server, directory)
    with KraftCluster(directory, config=shared, listeners=("CLIENTS", "NODES")) as cluster:
        made = World(cluster, {**shared, "inter.broker.listener.name": "NODES"})
        yield made
        made.client.close()
        for each in made.ours.values():
            if each.process.poll() is None:
                each.end(signal.SIGKILL)


def write_for(world: World, topic: str, seconds: float) -> int:
    """Write for some time to partitions that each broker leads, confirmed by all; return how many records."""
    producer = Producer({"bootstrap.servers": world.bootstrap, "acks": "all", "message.timeout.ms": 60_000})
    failed: list[str] = []
    count, deadline = 0, time.monotonic() + seconds
    while time.monotonic() < deadline:
        for partition in range(len(NODES)):
            producer.produce(
                topic,
                str(count).encode(),
                partition=partition,
                on_delivery=lambda error, _: failed.append(str(error)) if error else None,
            )
            count += 1
        producer.poll(0.1)
    assert producer.flush(60) == 0
    assert failed == []
    return count


def has_whole_isr(world: World, topic: str) -> bool:
    return world.isr(topic) == [set(NODES)] * len(NODES)


def test_sessions_outlast_their_tokens_and_a_provider_that_hangs(world: World, server: OidcServer) -> None:
    world.create("orders", *([*NODES[at:], *NODES[:at]] for at in range(len(NODES))), min_insync_replicas="2")
    wait_until(lambda: has_whole_isr(world, "orders"), "all replicas are in sync")
    assert write_for(world, "orders", 2.5 * LIFETIME_S) > 0
    assert has_whole_isr(world, "orders")

    world.ours[FIRST].end(signal.SIGKILL)
    world.ours[FIRST].start()
    wait_until(lambda: has_whole_isr(world, "orders"), "the killed broker is in sync again")

    server.send_signal(signal.SIGSTOP)
    try:
        time.sleep(2 * LIFETIME_S)  # no node gets a token, and all tokens end
    finally:
        server.send_signal(signal.SIGCONT)
    wait_until(lambda: has_whole_isr(world, "orders"), "all are in sync after the provider's pause")
    assert write_for(world, "orders", 3) > 0
    for each in world.ours.values():
        log = (each.directory / "log").read_text()
        assert SECRET not in log
        assert "Traceback" not in log
