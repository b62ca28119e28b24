"""Users and delegation tokens, changed at any broker of a cluster, let clients in at ours without a restart."""

from __future__ import annotations

import contextlib
import signal
from base64 import b64encode
from collections.abc import Iterator
from functools import partial

import pytest

from stratalog.wire import ApiKey
from stratalog.wire.client import AuthenticationError, Client, ConnectionOptions
from tests.interop.test_kraft_replication import FIRST, JVM, OurMember, wait_until
from tests.support.kraft_cluster import BROKER_CONFIG, KraftCluster
from tests.support.reference_jars import BROKER_JARS, CONFIGS_JARS, TOOLS_JARS
from tests.support.reference_kafka import require_reference_kafka, tool

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.xdist_group("kraft")]

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
MECHANISMS = (SHA_256, SHA_512)
_MODULES = "org.apache.kafka.common.security"
_PLAIN = f"{_MODULES}.plain.PlainLoginModule"
_SCRAM = f"{_MODULES}.scram.ScramLoginModule"
TOKEN_REQUEST_NOT_ALLOWED = 64
CONFIG = {
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,NODES:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
    "inter.broker.listener.name": "NODES",
    "sasl.enabled.mechanisms": f"PLAIN,{SHA_256},{SHA_512}",
    "listener.name.clients.plain.sasl.jaas.config": f'{_PLAIN} required user_admin="a" username="admin" password="a";',
    "listener.name.clients.scram-sha-256.sasl.jaas.config": f"{_SCRAM} required;",
    "listener.name.clients.scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
    "connection.failed.authentication.delay.ms": "0",
    "delegation.token.secret.key": "a secret of tokens",
    "delegation.token.expiry.check.interval.ms": "1000",
}


class World:
    """One controller, a broker of Kafka's and one of ours, with a listener for clients that have to log in."""

    def __init__(self, cluster: KraftCluster) -> None:
        self.cluster = cluster
        cluster.start_broker(JVM, {**BROKER_CONFIG, **CONFIG})
        self.ours = OurMember(cluster, FIRST, CONFIG)
        self.ports = {JVM: cluster.brokers[JVM].port, FIRST: self.ours.port}
        self.admin_file = cluster.directory / "admin.properties"
        login = f'{_PLAIN} required username="admin" password="a";'
        self.admin_file.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n"
        )

    def connect(self, node: int, mechanism: str, name: str, password: str, *, by_token: bool = False) -> Client:
        token = ' tokenauth="true"' if by_token else ""
        options = {
            "kafka.bootstrap.servers": f"127.0.0.1:{self.ports[node]}",
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": mechanism,
            "kafka.sasl.jaas.config": f'{_SCRAM} required username="{name}" password="{password}"{token};',
        }
        return Client("127.0.0.1", self.ports[node], ConnectionOptions.of(options))

    def enters(self, node: int, mechanism: str, name: str, password: str, *, by_token: bool = False) -> bool:
        try:
            self.connect(node, mechanism, name, password, by_token=by_token).close()
        except AuthenticationError:
            return False
        return True

    def change_user(self, node: int, user: str, *change: str) -> None:
        """Change a user at a broker, with Kafka's tool."""
        where = ["--bootstrap-server", f"127.0.0.1:{self.ports[node]}", "--command-config", str(self.admin_file)]
        line = [*where, "--alter", "--entity-type", "users", "--entity-name", user, *change]
        tool("kafka.admin.ConfigCommand", line, jars=(CONFIGS_JARS, TOOLS_JARS, BROKER_JARS))

    def set_password(self, node: int, user: str, password: str) -> None:
        for each in MECHANISMS:  # the controllers take one at a time
            self.change_user(node, user, "--add-config", f"{each}=[iterations=4096,password={password}]")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    require_reference_kafka(CONFIGS_JARS)
    directory = tmp_path_factory.mktemp("kraft")
    with KraftCluster(directory, config=CONFIG, listeners=("CLIENTS", "NODES")) as cluster:
        made = World(cluster)
        yield made
        if made.ours.process.poll() is None:
            made.ours.end(signal.SIGKILL)


def test_a_user_comes_changes_and_goes_at_any_broker(world: World) -> None:
    assert not world.enters(FIRST, SHA_256, "alice", "first")
    world.set_password(FIRST, "alice", "first")
    for node in (FIRST, JVM):
        for mechanism in MECHANISMS:
            wait_until(partial(world.enters, node, mechanism, "alice", "first"), "alice may come in")
            assert not world.enters(node, mechanism, "alice", "wrong")
    stays = world.connect(FIRST, SHA_256, "alice", "first")
    world.set_password(JVM, "alice", "second")
    for node in (FIRST, JVM):
        for mechanism in MECHANISMS:
            wait_until(partial(world.enters, node, mechanism, "alice", "second"), "the password counts")
            assert not world.enters(node, mechanism, "alice", "first")
    assert stays.call(ApiKey.METADATA, (12, 12), topics=[]).cluster_id == world.cluster.cluster_id
    stays.close()
    world.change_user(JVM, "alice", "--delete-config", SHA_256)
    wait_until(lambda: not world.enters(FIRST, SHA_256, "alice", "second"), "one of two credentials is gone")
    assert world.enters(FIRST, SHA_512, "alice", "second")
    world.ours.end(signal.SIGKILL)
    world.ours.start()
    assert world.enters(FIRST, SHA_512, "alice", "second")
    assert not world.enters(FIRST, SHA_256, "alice", "second")


def _tokens(client: Client) -> dict[str, int]:
    """Return when each token expires that the client may see, in milliseconds."""
    reported = client.call(ApiKey.DESCRIBE_DELEGATION_TOKEN, (3, 3), owners=None)
    assert int(reported.error_code) == 0
    return {each.token_id: each.expiry_timestamp for each in reported.tokens}


def _create(client: Client, life_ms: int = -1) -> tuple[str, bytes]:
    reported = client.call(
        ApiKey.CREATE_DELEGATION_TOKEN,
        (3, 3),
        owner_principal_type=None,
        owner_principal_name=None,
        renewers=[],
        max_lifetime=life_ms,
    )
    assert int(reported.error_code) == 0
    return reported.token_id, bytes(reported.hmac)


@pytest.mark.parametrize(("maker", "other"), [(FIRST, JVM), (JVM, FIRST)])
def test_a_token_lets_its_owner_in_at_every_broker_until_it_ends(world: World, maker: int, other: int) -> None:
    world.set_password(maker, "bob", "builder")
    wait_until(lambda: all(world.enters(each, SHA_512, "bob", "builder") for each in (maker, other)), "bob is known")
    with contextlib.ExitStack() as connections:
        at_maker, at_other = (
            connections.enter_context(contextlib.closing(world.connect(node, SHA_512, "bob", "builder")))
            for node in (maker, other)
        )
        token, secret = _create(at_maker)
        password = b64encode(secret).decode()

        def enters(node: int, mechanism: str = SHA_256) -> bool:
            return world.enters(node, mechanism, token, password, by_token=True)

        wait_until(lambda: enters(maker) and enters(other), "the token counts")
        assert enters(maker, SHA_512)
        assert enters(other, SHA_512)
        assert not world.enters(FIRST, SHA_256, token, password), "it is no user"

        by_token = connections.enter_context(
            contextlib.closing(world.connect(FIRST, SHA_256, token, password, by_token=True))
        )
        # its time of -1 is none to the classes of messages
        refused = by_token.exchange(ApiKey.RENEW_DELEGATION_TOKEN, 2, {"hmac": secret, "renew_period": -1})
        assert int.from_bytes(refused[:2], "big") == TOKEN_REQUEST_NOT_ALLOWED

        before = _tokens(at_other)[token]
        renewed = at_other.call(ApiKey.RENEW_DELEGATION_TOKEN, (2, 2), hmac=secret, renew_period=3_600_000)
        assert int(renewed.error_code) == 0
        until = round(renewed.expiry_timestamp.timestamp() * 1000)
        assert until != before
        wait_until(lambda: {_tokens(each)[token] for each in (at_maker, at_other)} == {until}, "both know the end")

        ended = at_maker.call(ApiKey.EXPIRE_DELEGATION_TOKEN, (2, 2), hmac=secret, expiry_time_period=-1)
        assert int(ended.error_code) == 0
        wait_until(lambda: not enters(maker) and not enters(other), "the token lets nobody in any more")
        assert token not in _tokens(at_other)

        short, short_secret = _create(at_maker, life_ms=5_000)
        key = b64encode(short_secret).decode()
        wait_until(lambda: not world.enters(FIRST, SHA_256, short, key, by_token=True), "its time is over")


def test_kafkas_command_sees_at_our_broker_what_was_made_at_it(world: World) -> None:
    def run(node: int, *line: str) -> str:
        where = ["--bootstrap-server", f"127.0.0.1:{world.ports[node]}", "--command-config", str(world.admin_file)]
        return tool("org.apache.kafka.tools.DelegationTokenCommand", [*where, *line])

    made = run(FIRST, "--create", "--max-life-time-period", "-1")
    token = next(line.split()[0] for line in made.splitlines() if "User:admin" in line)
    describe = ("--describe", "--owner-principal", "User:admin")
    wait_until(lambda: token in run(FIRST, *describe), "the token is listed")
    assert run(FIRST, *describe) == run(JVM, *describe)
