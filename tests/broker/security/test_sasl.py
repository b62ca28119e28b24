"""SASL of a listener: who proves who it is comes in, and no one else; codes as Kafka's."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AIOKafkaError
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tests.support.authority import Authority
from tests.support.reference_kafka import ReferenceKafka, free_port, require_reference_kafka, tool
from tests.support.token_cases import log_in
from tests.support.wire import Wire

from stratalog.broker.security.peer import Principal
from stratalog.broker.security.sasl_exchange import SaslFailureError
from stratalog.broker.security.scram import (
    Account,
    ScramExchange,
    credential_of_password,
)
from stratalog.broker.server.server import Broker
from stratalog.errors import StratalogError
from stratalog.util import SystemClock
from stratalog.wire import ApiKey
from stratalog.wire.client import (
    Client,
    ConnectionOptions,
    SecurityProtocol,
    UnreachableError,
    connection as client_connection,
)
from stratalog.wire.client.options import Sasl
from stratalog.wire.client.sasl import Dialogue, dialogue

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret" user_bob="b,=ob";'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def sasl_config(port: int | None = None, **more: str) -> dict[str, object]:
    return {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{free_port() if port is None else port}",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN,
        "connection.failed.authentication.delay.ms": "0",
        **{name.replace("__", "."): value for name, value in more.items()},
    }


@contextmanager
def serving(tmp_path: Path, config: Mapping[str, object]) -> Iterator[Broker]:
    with Broker(tmp_path / "data", config=config) as broker:
        put = {
            (mechanism, "alice"): credential_of_password(mechanism, "alice-secret", 4096)
            for mechanism in MECHANISMS
            if mechanism != "PLAIN"
        }
        broker.services.scram.change(put)
        yield broker


def client(broker: Broker, mechanism: str, password: str = "alice-secret", user: str = "alice") -> dict[str, str]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_records_pass_and_a_wrong_password_does_not(tmp_path: Path, mechanism: str) -> None:
    with serving(tmp_path, sasl_config()) as broker:
        producer = Producer(client(broker, mechanism))
        for number in range(100):
            producer.produce("orders", str(number).encode())
        assert producer.flush(30) == 0
        consumer = Consumer({**client(broker, mechanism), "group.id": "g", "auto.offset.reset": "earliest"})
        try:
            consumer.subscribe(["orders"])
            got = [message.value() for _ in range(100) if (message := consumer.poll(30)) is not None]
        finally:
            consumer.close()
        assert got == [str(number).encode() for number in range(100)]
        asyncio.run(_by_aiokafka(broker.bootstrap_servers, mechanism, "alice-secret"))
        for user, password in (("alice", "wrong"), ("mallory", "alice-secret")):
            admin = AdminClient({**client(broker, mechanism, password, user), "log_level": 0})
            with pytest.raises(KafkaException):
                admin.list_topics(timeout=1)
        with pytest.raises(AIOKafkaError):
            asyncio.run(_by_aiokafka(broker.bootstrap_servers, mechanism, "wrong"))


async def _by_aiokafka(servers: str, mechanism: str, password: str) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password=password,
    )
    try:
        await producer.start()
        await producer.send_and_wait("more", b"more")
    finally:
        await producer.stop()


def test_sasl_within_tls(tmp_path: Path) -> None:
    authority = Authority()
    config = {
        **sasl_config(),
        "listeners": f"OUTSIDE://127.0.0.1:{free_port()}",
        "listener.security.protocol.map": "OUTSIDE:SASL_SSL",
        "listener.name.outside.ssl.keystore.type": "PEM",
        "listener.name.outside.ssl.keystore.location": str(authority.issue().write_pem(tmp_path / "server.pem")),
        "listener.name.outside.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    with serving(tmp_path, config) as broker:
        options = {
            **client(broker, "SCRAM-SHA-512"),
            "security.protocol": "SASL_SSL",
            "ssl.ca.pem": authority.pem,
            "ssl.endpoint.identification.algorithm": "https",
        }
        producer = Producer(options)
        producer.produce("orders", b"one")
        assert producer.flush(30) == 0
        refused = AdminClient({**options, "sasl.mechanism": "SCRAM-SHA-256", "log_level": 0})
        with pytest.raises(KafkaException):
            refused.list_topics(timeout=1)


def principals(broker: Broker) -> set[str]:
    import gc

    from stratalog.broker.server.acceptor import Acceptor

    return {
        str(connection.peer.principal)
        for entry in gc.get_objects()
        if isinstance(entry, Acceptor) and entry.services is broker.services
        for connection in entry.connections
    }


def authenticate(wire: Wire, mechanism: str, password: str = "alice-secret", user: str = "alice") -> Any:
    """The last answer of an authentication by hand."""
    return log_in(wire, Sasl(mechanism, user, password))


def test_a_client_is_who_it_proved_to_be(tmp_path: Path) -> None:
    with serving(tmp_path, sasl_config()) as broker, Wire(broker.bootstrap_servers) as wire:
        assert wire.call(ApiKey.API_VERSIONS, 0).error_code == 0
        assert authenticate(wire, "SCRAM-SHA-256").session_lifetime.total_seconds() == 0
        assert principals(broker) == {"User:alice"}
        assert wire.call(ApiKey.METADATA, 12, topics=[]).cluster_id
        assert wire.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == 34
        again = wire.call(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"")
        assert again.error_code == 34


def test_tokens_without_headers_are_taken_as_old_clients_send_them(tmp_path: Path) -> None:
    with serving(tmp_path, sasl_config()) as broker:
        host, port = broker.bootstrap_servers.split(":")
        with socket.create_connection((host, int(port)), timeout=30) as sock:
            head = bytes.fromhex("0011000000000001ffff") + b"\x00\x05PLAIN"
            sock.sendall(len(head).to_bytes(4) + head)
            sock.recv(int.from_bytes(sock.recv(4, socket.MSG_WAITALL)), socket.MSG_WAITALL)
            token = b"\0alice\0alice-secret"
            sock.sendall(len(token).to_bytes(4) + token)
            assert sock.recv(4, socket.MSG_WAITALL) == bytes(4)
            sock.sendall(bytes.fromhex("0000000a0012000000000001ffff"))
            assert sock.recv(4)


def conversation(servers: str) -> list[object]:
    """What a secured broker says to clients that do it wrong: error codes, and None for an end of the connection."""
    said: list[object] = []

    def ask(*requests: tuple[ApiKey, int, dict[str, Any]], later: bool = False) -> None:
        answers: list[object] = []
        with Wire(servers) as wire:
            for key, version, fields in requests:
                if key == ApiKey.SASL_HANDSHAKE and later:
                    time.sleep(1.1)  # Kafka lets no one begin again sooner
                try:
                    response = wire.call(key, version, **fields)
                except (ConnectionError, EOFError, OSError):
                    answers.append(None)
                    break
                answers.append((int(response.error_code), getattr(response, "error_message", None)))
        said.append(answers)

    shake = (ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    good = (ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0alice\0alice-secret"})
    versions: tuple[ApiKey, int, dict[str, Any]] = (ApiKey.API_VERSIONS, 0, {})
    ask((ApiKey.LIST_GROUPS, 4, {}))
    ask((ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b""}))
    ask((ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "GSSAPI"}), versions)
    ask((ApiKey.SASL_HANDSHAKE, 1, {"mechanism": ""}), versions)
    ask(versions, versions)
    ask(shake, versions)
    ask(shake, shake)
    ask(shake, (ApiKey.LIST_GROUPS, 4, {}), versions)
    for token in (
        b"", b"alice", b"\0alice", b"\0alice\0wrong", b"\0mallory\0alice-secret", b"bob\0alice\0alice-secret",
        b"\0\0alice-secret", b"\0alice\0", b"alice\0alice\0alice-secret", b"\0a\0b\0c", b"\xff\xfe\0a\0b",
    ):  # fmt: skip
        ask(shake, (ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": token}), versions)
    for mechanism, token in (
        ("SCRAM-SHA-256", b"n,,n=mallory,r=abc"),
        ("SCRAM-SHA-256", b"n,,n=alice"),
        ("SCRAM-SHA-512", b"n,a=bob,n=alice,r=abc"),
        ("SCRAM-SHA-512", b"p=tls-unique,,n=alice,r=abc"),
        ("SCRAM-SHA-512", b""),
    ):
        ask(
            (ApiKey.SASL_HANDSHAKE, 1, {"mechanism": mechanism}),
            (ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": token}),
            versions,
        )
    ask(shake, good, shake, good, shake)
    ask(shake, good, shake, good, versions, later=True)
    ask(shake, good, shake, (ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0bob\0b,=ob"}), versions, later=True)
    ask(shake, good, (ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-256"}), good, versions, later=True)
    ask(shake, good, (ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "GSSAPI"}), versions, later=True)
    ask(shake, good, shake, versions, later=True)
    ask(shake, good, shake, (ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0bob\0b,=ob"}), versions)
    ask(shake, good, (ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "SCRAM-SHA-256"}), good, versions)
    ask(shake, (ApiKey.SASL_AUTHENTICATE, 0, {"auth_bytes": b"\0alice\0alice-secret"}), shake, good)
    ask(shake, good, good)
    return said


@pytest.mark.interop
def test_a_secured_kafka_says_the_same_to_those_who_do_it_wrong(tmp_path: Path) -> None:
    require_reference_kafka()
    port = free_port()
    reference = ReferenceKafka(
        tmp_path / "kafka",
        config={
            "listeners": "PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:" + str(port),
        },
        format_options=[
            option
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for option in ("--add-scram", f"{mechanism}=[name=alice,password=alice-secret]")
        ],
    )
    reauth: dict[str, Any] = {"connections__max__reauth__ms": "60000"}
    reference.config = {
        **{name: str(value) for name, value in sasl_config(port, **reauth).items()},
        "listeners": f"PLAINTEXT://127.0.0.1:{reference.port},SASL_PLAINTEXT://127.0.0.1:{port},"
        f"CONTROLLER://127.0.0.1:{reference._controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{reference.port},SASL_PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": SCRAM,
        "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": SCRAM,
    }
    with reference:
        expected = conversation(f"127.0.0.1:{port}")
    with serving(tmp_path, sasl_config(**reauth)) as broker:
        found = conversation(broker.bootstrap_servers)
    assert found == expected


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "GSSAPI"),
        ({"sasl.enabled.mechanisms": ""}, "is empty"),
        ({"sasl.enabled.mechanisms": "PLAIN,CRAM-MD5"}, "CRAM-MD5 is not supported"),
        ({"listener.name.sasl_plaintext.plain.sasl.jaas.config": ""}, r"plain\.sasl\.jaas\.config names no user"),
        ({"listener.name.sasl_plaintext.plain.sasl.jaas.config": SCRAM}, "expected a line such as"),
        ({"listener.name.sasl_plaintext.plain.sasl.jaas.config": "hush"}, "expected a line such as"),
        ({"listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "soon"}, r"plain\.connections\.max\.reauth"),
        ({"sasl.jaas.config": PLAIN}, "one line of JAAS for all mechanisms"),
        ({"listener.name.sasl_plaintext.plain.sasl.server.callback.handler.class": "X"}, "callback"),
    ],
)
def test_what_cannot_be_kept_refuses_the_start_by_one_line(tmp_path: Path, more: dict[str, str], said: str) -> None:
    with pytest.raises(StratalogError, match=said) as raised:
        Broker(tmp_path / "data", config={**sasl_config(), **more})
    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)
    assert not (tmp_path / "data").exists()


def test_a_session_ends_unless_the_client_authenticates_again(tmp_path: Path) -> None:
    config = sasl_config(listener__name__sasl_plaintext__plain__connections__max__reauth__ms="x")
    del config["listener.name.sasl_plaintext.plain.connections.max.reauth.ms"]
    config["listener.name.sasl_plaintext.plain.connections.max.reauth.ms"] = "1200"
    with serving(tmp_path, config) as broker:
        with Wire(broker.bootstrap_servers) as good, Wire(broker.bootstrap_servers) as late:
            for wire in (good, late):
                assert authenticate(wire, "PLAIN").session_lifetime.total_seconds() == pytest.approx(1.2)
            assert authenticate(good, "PLAIN").error_code == 0
            ended = False
            while not ended:
                try:
                    late.call(ApiKey.METADATA, 12, topics=[])
                except OSError:
                    ended = True
            assert authenticate(good, "PLAIN").error_code == 0
            assert good.call(ApiKey.METADATA, 12, topics=[]).cluster_id
        asyncio.run(_by_aiokafka(broker.bootstrap_servers, "SCRAM-SHA-256", "alice-secret"))


def test_our_client_authenticates_again_before_its_session_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talks: list[Sasl] = []
    ahead_s = 0.0
    password = "alice-secret"

    def talk(sasl: Sasl) -> Dialogue:
        talks.append(sasl)
        return dialogue(replace(sasl, password=password))

    class AheadClock(SystemClock):
        def monotonic(self) -> float:
            return super().monotonic() + ahead_s

    monkeypatch.setattr(client_connection, "dialogue", talk)
    monkeypatch.setattr(client_connection, "SYSTEM_CLOCK", AheadClock())
    with serving(tmp_path, sasl_config(connections__max__reauth__ms="60000")) as broker:
        host, port = broker.bootstrap_servers.split(":")
        login = Sasl("SCRAM-SHA-256", "alice", password)
        protocol = SecurityProtocol.SASL_PLAINTEXT
        options = ConnectionOptions(((host, int(port)),), protocol=protocol, sasl=login)
        ours, refused = (Client(host, int(port), options) for _ in range(2))
        for wait_s, expected in ((0.0, 2), (52.0, 3), (3.0, 3)):
            ahead_s += wait_s
            assert ours.call(ApiKey.METADATA, (12, 12), topics=[]).cluster_id
            assert len(talks) == expected
        password = "wrong"
        with pytest.raises(UnreachableError, match="does not let this client in"):
            refused.call(ApiKey.METADATA, (12, 12), topics=[])
        assert refused.is_broken
        ours.close()
        refused.close()


def test_librdkafka_authenticates_again_and_loses_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, sasl_config(connections__max__reauth__ms="1500")) as broker:
        failed: list[object] = []
        producer = Producer({**client(broker, "SCRAM-SHA-256"), "linger.ms": 5})
        for number in range(60):
            producer.produce(
                "orders", str(number).encode(), on_delivery=lambda error, _: failed.append(error) if error else None
            )
            producer.poll(0.05)
        assert producer.flush(30) == 0
        assert failed == []


def test_users_are_described_and_altered_as_by_kafka(tmp_path: Path) -> None:
    port = free_port()
    config = sasl_config()
    config["listeners"] = f"{config['listeners']},PLAINTEXT://127.0.0.1:{port}"
    with serving(tmp_path, config) as broker:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
        change = admin.alter_user_scram_credentials(
            [
                UserScramCredentialUpsertion(
                    "carol", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 5000), b"carols"
                ),
                UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_512),
            ]
        )
        for future in change.values():
            future.result(30)
        described = {
            user: [(info.mechanism.name, info.iterations) for info in future.result(30).scram_credential_infos]
            for user, future in admin.describe_user_scram_credentials(["alice", "carol"]).items()
        }
        assert described == {"alice": [("SCRAM_SHA_256", 4096)], "carol": [("SCRAM_SHA_512", 5000)]}
        asyncio.run(_produce_as(broker.bootstrap_servers, "carol", "carols"))
    with Broker(tmp_path / "data", config=config) as broker:
        asyncio.run(_produce_as(broker.bootstrap_servers, "carol", "carols"))


async def _produce_as(servers: str, user: str, password: str) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username=user,
        sasl_plain_password=password,
    )
    await producer.start()
    try:
        await producer.send_and_wait("orders", b"one")
    finally:
        await producer.stop()


def test_changes_of_users_that_may_not_be_are_refused_one_by_one(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker, Wire(broker.bootstrap_servers) as wire:
        put = {"iterations": 4096, "salt": b"s" * 10, "salted_password": b"p" * 32}
        answer = wire.call(
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            0,
            deletions=[{"name": "nobody", "mechanism": 1}, {"name": "twice", "mechanism": 1}],
            upsertions=[
                {"name": "", "mechanism": 1, **put},
                {"name": "what", "mechanism": 9, **put},
                {"name": "few", "mechanism": 1, **put, "iterations": 4095},
                {"name": "many", "mechanism": 1, **put, "iterations": 16_385},
                {"name": "twice", "mechanism": 1, **put},
                {"name": "both", "mechanism": 1, **put},
                {"name": "both", "mechanism": 2, **put},
                {"name": "wrong first", "mechanism": 9, **put},
                {"name": "wrong first", "mechanism": 1, **put},
                {"name": "wrong last", "mechanism": 1, **put},
                {"name": "wrong last", "mechanism": 1, **put, "iterations": 1},
                {"name": "good", "mechanism": 2, **put},
            ],
        )
        codes = {result.user: int(result.error_code) for result in answer.results}
        refused = {"nobody": 91, "twice": 91, "": 93, "what": 33, "few": 93, "many": 93, "both": 92}
        assert codes == {**refused, "wrong first": 33, "wrong last": 92, "good": 0}
        described = wire.call(
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=[{"name": "good"}, {"name": "no"}, {"name": "no"}]
        )
        assert {result.user: int(result.error_code) for result in described.results} == {"good": 0, "no": 92}
        everybody = wire.call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)
        assert [result.user for result in everybody.results] == ["good"]


def test_no_password_is_in_the_store_or_in_a_repr(tmp_path: Path) -> None:
    with serving(tmp_path, sasl_config()) as broker:
        credential = broker.services.scram.get("SCRAM-SHA-256", "alice")
        assert credential is not None
        assert str(credential.stored_key) not in repr(credential)
    for path in (tmp_path / "data").rglob("*"):
        if path.is_file():
            assert b"alice-secret" not in path.read_bytes()


def test_any_message_of_scram_is_answered_or_refused_by_name() -> None:
    """Whatever a client says: an answer or SaslFailureError; never another error, never a principal without proof."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    account = Account(credential_of_password("SCRAM-SHA-256", "pencil", 4096), Principal("User", "user"))
    for _ in range(3000):
        exchange = ScramExchange("SCRAM-SHA-256", lambda _m, name, _t: account if name == "user" else None)
        message = mangled(dice, b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL")
        try:
            answer = exchange.evaluate(message)
            assert answer.startswith(b"r=")
            last = mangled(dice, b"c=biws," + answer.split(b",")[0] + b",p=" + b"A" * 43 + b"=")
            exchange.evaluate(last)
        except SaslFailureError:
            pass
        assert exchange.principal is None


def mangled(dice: random.Random, message: bytes) -> bytes:
    data = bytearray(message)
    for _ in range(dice.randrange(4)):
        at = dice.randrange(len(data) + 1)
        match dice.randrange(3):
            case 0:
                data[at:at] = bytes(dice.choices(range(256), k=dice.randrange(1, 5)))
            case 1:
                del data[at : at + dice.randrange(1, 9)]
            case _:
                data[at : at + 1] = dice.choice((b",", b"=", b"\0", b"\xff", b"n=", b"r=", b"a=x"))
        data = data or bytearray(b"n")
    return bytes(data)


def test_any_bytes_before_authentication_end_in_a_closed_connection_and_harm_no_client(tmp_path: Path) -> None:
    """Whatever comes before a client has authenticated: the connection ends, and the next client is served."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    shake = bytes.fromhex("0011000100000001ffff") + b"\x00\x05PLAIN"
    token = bytes.fromhex("0024000200000002ffff00") + b"\x14\0alice\0alice-secret\0"
    with serving(tmp_path, sasl_config()) as broker:
        address = ("127.0.0.1", int(broker.bootstrap_servers.split(":")[1]))
        for _ in range(150):
            frames = [mangled(dice, each) for each in (shake, token)]
            with socket.create_connection(address, timeout=30) as sock:
                try:
                    for frame in frames:
                        sock.sendall((len(frame) + dice.choice((0, 0, 0, 1, -1))).to_bytes(4) + frame)
                    sock.shutdown(socket.SHUT_WR)
                    while sock.recv(4096):
                        pass
                except OSError:
                    pass
        for opening in (bytes(8), b"\x7f\xff\xff\xff\0\0\0\0", b"GET / HT", b"\x00\x08\x00\x01\0\0\0\0"):
            with socket.create_connection(address, timeout=30) as sock:
                sock.sendall(opening)
                try:
                    sock.shutdown(socket.SHUT_WR)
                    while sock.recv(4096):
                        pass
                except OSError:
                    pass
        with Wire(broker.bootstrap_servers) as wire:
            assert authenticate(wire, "PLAIN").error_code == 0


def test_a_client_that_never_says_who_it_is_is_closed(tmp_path: Path) -> None:
    with serving(tmp_path, sasl_config(connections__max__idle__ms="600")) as broker:
        address = ("127.0.0.1", int(broker.bootstrap_servers.split(":")[1]))
        with socket.create_connection(address, timeout=30) as slow:
            slow.settimeout(0.05)
            data = b"\0\0\1\0" + bytes(200)
            ended = False
            for at in range(200):
                try:
                    slow.sendall(data[at : at + 1])
                    ended = slow.recv(1) == b""
                except TimeoutError:
                    continue
                except OSError:
                    ended = True
                if ended:
                    break
            assert ended


@pytest.mark.interop
def test_kafkas_own_tools_come_in_with_their_properties(tmp_path: Path) -> None:
    require_reference_kafka()
    authority = Authority()
    port = free_port()
    config = {
        **sasl_config(),
        "listeners": f"SASL_SSL://127.0.0.1:{port}",
        "ssl.keystore.location": str(authority.issue().write_pkcs12(tmp_path / "server.p12", "hush")),
        "ssl.keystore.password": "hush",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={authority.write(tmp_path / 'ca.pem')}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="alice" password="alice-secret";\n'
    )
    with serving(tmp_path, config) as broker:
        arguments = ["--bootstrap-server", broker.bootstrap_servers, "--command-config", str(properties)]
        command = "org.apache.kafka.tools.TopicCommand"
        tool(command, [*arguments, "--create", "--topic", "orders", "--partitions", "3"])
        assert tool(command, [*arguments, "--list"]).split() == ["orders"]
        context = ssl.create_default_context(cadata=authority.pem)
        with context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="127.0.0.1") as bare:
            bare.sendall(bytes.fromhex("0000000a0010000400000001ffff"))
            assert bare.recv(4) == b""
