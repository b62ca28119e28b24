"""TLS of a listener: real clients in, everybody else out, by one line; certificates change under load."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from cryptography import x509
from cryptography.x509.oid import NameOID
from tests.support.authority import Authority, Issued
from tests.support.reference_kafka import free_port, require_reference_kafka, tool
from tests.support.waiting import wait_until

from stratalog.broker.security.distinguished_names import UnmappedNameError, map_name, parse_rules, subject_of
from stratalog.broker.server.server import Broker
from stratalog.errors import InvalidConfigError
from stratalog.wire.client import ConnectionOptions
from stratalog.wire.client.tls_limits import openssl_name
from stratalog.wire.client.transport import connect

API_VERSIONS = bytes.fromhex("0000000a0012000000000001ffff")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def server(authority: Authority) -> Issued:
    return authority.issue("broker")


def tls_config(tmp_path: Path, server: Issued, **more: str) -> dict[str, object]:
    return {
        "listeners": f"SSL://127.0.0.1:{free_port()}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(server.write_pem(tmp_path / "server.pem")),
        **{name.replace("__", "."): value for name, value in more.items()},
    }


@contextmanager
def serving(tmp_path: Path, config: Mapping[str, object]) -> Iterator[Broker]:
    with Broker(tmp_path / "data", config=config) as broker:
        yield broker


def handshake(broker: Broker, context: ssl.SSLContext) -> ssl.SSLSocket:
    host, port = broker.bootstrap_servers.split(":")
    return context.wrap_socket(socket.create_connection((host, int(port)), timeout=30), server_hostname=host)


def is_answered(sock: socket.socket) -> bool:
    try:
        sock.sendall(API_VERSIONS)
        return bool(sock.recv(4))
    except OSError:
        return False


def test_records_pass_by_librdkafka_and_aiokafka(tmp_path: Path, authority: Authority, server: Issued) -> None:
    ca = str(authority.write(tmp_path / "ca.pem"))
    with serving(tmp_path, tls_config(tmp_path, server)) as broker:
        client = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.ca.location": ca,
            "ssl.endpoint.identification.algorithm": "https",
        }
        payloads = [bytes([n % 251]) * 40_000 for n in range(100)]
        producer = Producer(client)
        for payload in payloads:
            producer.produce("orders", payload)
        assert producer.flush(60) == 0
        consumer = Consumer({**client, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        with closing(consumer):
            got = [message.value() for _ in payloads if (message := consumer.poll(30)) is not None]
        assert got == payloads
        assert asyncio.run(_by_aiokafka(broker.bootstrap_servers, ca)) == b"more"


async def _by_aiokafka(servers: str, ca: str) -> bytes | None:
    context = ssl.create_default_context(cafile=ca)
    options = {"bootstrap_servers": servers, "security_protocol": "SSL", "ssl_context": context}
    producer = AIOKafkaProducer(**options)
    await producer.start()
    try:
        await producer.send_and_wait("more", b"more")
    finally:
        await producer.stop()
    consumer = AIOKafkaConsumer("more", auto_offset_reset="earliest", **options)
    await consumer.start()
    try:
        found = await asyncio.wait_for(consumer.getone(), 30)
        return bytes(found.value)
    finally:
        await consumer.stop()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_are_spoken(
    tmp_path: Path, authority: Authority, server: Issued, version: ssl.TLSVersion
) -> None:
    context = ssl.create_default_context(cadata=authority.pem)
    context.minimum_version = context.maximum_version = version
    with serving(tmp_path, tls_config(tmp_path, server)) as broker, handshake(broker, context) as sock:
        assert is_answered(sock)
        assert str(sock.version()).replace(".", "_") == version.name


def test_a_version_or_suite_that_is_not_enabled_is_refused(
    tmp_path: Path, authority: Authority, server: Issued
) -> None:
    config = tls_config(
        tmp_path,
        server,
        ssl__enabled__protocols="TLSv1.2",
        ssl__cipher__suites="TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    )
    with serving(tmp_path, config) as broker:
        context = ssl.create_default_context(cadata=authority.pem)
        with handshake(broker, context) as sock:
            assert sock.version() == "TLSv1.2"
            cipher = sock.cipher()
            assert cipher is not None
            assert cipher[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        with pytest.raises(ssl.SSLError):
            handshake(broker, context)


def own_connection(broker: Broker, authority: Authority, **limits: str) -> ssl.SSLSocket:
    """Connect as our commands, Spark and brokers do."""
    found = connect(
        "127.0.0.1",
        int(broker.bootstrap_servers.rpartition(":")[2]),
        ConnectionOptions.of(
            {
                "kafka.bootstrap.servers": broker.bootstrap_servers,
                "kafka.security.protocol": "SSL",
                "kafka.ssl.truststore.certificates": authority.pem,
                **{f"kafka.{key.replace('__', '.')}": value for key, value in limits.items()},
            }
        ),
    )
    assert isinstance(found, ssl.SSLSocket)
    return found


def test_our_own_clients_keep_to_the_versions_and_suites_that_they_are_given(
    tmp_path: Path, authority: Authority, server: Issued
) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
    with serving(tmp_path, tls_config(tmp_path, server)) as broker:
        with own_connection(broker, authority) as sock:
            assert sock.version() == "TLSv1.3"
        with own_connection(broker, authority, ssl__enabled__protocols="TLSv1.2", ssl__cipher__suites=suite) as sock:
            assert sock.version() == "TLSv1.2"
            cipher = sock.cipher()
            assert cipher is not None
            assert cipher[0] == "ECDHE-ECDSA-CHACHA20-POLY1305"


def test_our_own_clients_do_not_fall_back_to_an_older_version(
    tmp_path: Path, authority: Authority, server: Issued
) -> None:
    config = tls_config(tmp_path, server, ssl__enabled__protocols="TLSv1.2")
    with serving(tmp_path, config) as broker, pytest.raises(ssl.SSLError):
        own_connection(broker, authority, ssl__enabled__protocols="TLSv1.3")


@pytest.mark.parametrize(
    ("suite", "name"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA256", "DHE-RSA-AES256-SHA256"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
    ],
)
def test_suites_have_their_standard_names(suite: str, name: str) -> None:
    assert openssl_name(suite) == name


def test_pkcs12_and_inline_pem_and_a_key_with_a_password_serve_alike(
    tmp_path: Path, authority: Authority, server: Issued
) -> None:
    context = ssl.create_default_context(cadata=authority.pem)
    ways: list[dict[str, object]] = [
        {
            "ssl.keystore.location": str(server.write_pkcs12(tmp_path / "server.p12", "hush")),
            "ssl.keystore.password": "hush",
        },
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": server.key_pem("hush"),
            "ssl.key.password": "hush",
            "ssl.keystore.certificate.chain": server.certificate_pem,
        },
        {
            "listener.name.ssl.ssl.keystore.type": "PEM",
            "listener.name.ssl.ssl.keystore.location": str(server.write_pem(tmp_path / "locked.pem", "hush")),
            "listener.name.ssl.ssl.key.password": "hush",
        },
    ]
    for way in ways:
        with (
            serving(tmp_path, {"listeners": "SSL://127.0.0.1:0", **way}) as broker,
            handshake(broker, context) as sock,
        ):
            assert is_answered(sock)


def bad_settings(tmp_path: Path, server: Issued) -> list[tuple[dict[str, str], str]]:
    pem = str(server.write_pem(tmp_path / "good.pem"))
    locked = str(server.write_pem(tmp_path / "locked.pem", "right"))
    p12 = str(server.write_pkcs12(tmp_path / "store.p12", "right"))
    jks = tmp_path / "store.jks"
    jks.write_bytes(bytes.fromhex("feedfeed00000002") + bytes(40))
    other = tmp_path / "other.pem"
    other.write_text(Authority().issue().key_pem() + server.certificate_pem)
    text = tmp_path / "no.pem"
    text.write_text("no certificate")
    empty = tmp_path / "empty.pem"
    empty.touch()
    good = {"ssl.keystore.type": "PEM", "ssl.keystore.location": pem}
    return [
        ({}, "ssl.keystore.location is not set"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(tmp_path / "none")}, "none: cannot be read"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(text)}, "no.pem: expected a private key"),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.location": locked}, "locked.pem: expected a private key"),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": locked, "ssl.key.password": "wrong"},
            "ssl.keystore.location=.*locked.pem: expected a private key",
        ),
        ({"ssl.keystore.type": "PEM", "ssl.keystore.location": str(other)}, "other.pem: expected a private key"),
        ({"ssl.keystore.location": p12, "ssl.keystore.password": "wrong"}, "ssl.keystore.password is wrong"),
        ({"ssl.keystore.location": str(jks)}, "keytool -importkeystore"),
        ({"ssl.keystore.location": pem}, "set ssl.keystore.type=PEM"),
        ({"ssl.keystore.type": "BKS", "ssl.keystore.location": pem}, "ssl.keystore.type=BKS"),
        ({**good, "ssl.client.auth": "required"}, "ssl.truststore.location is not set"),
        ({**good, "ssl.client.auth": "maybe"}, "ssl.client.auth"),
        (
            {
                **good,
                "ssl.client.auth": "required",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(text),
            },
            "ssl.truststore.location=.*no.pem: expected certificates",
        ),
        (
            {
                **good,
                "ssl.client.auth": "required",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(empty),
            },
            "ssl.truststore.location=.*empty.pem: expected certificates",
        ),
        ({**good, "ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "TLSv1.1 is not spoken"),
        ({**good, "ssl.cipher.suites": "TLS_NULL_WITH_NULL"}, "not known to OpenSSL"),
        ({**good, "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, "comes with all of its suites"),
        ({**good, "ssl.principal.mapping.rules": "RULE:^CN=(.*$/"}, "ssl.principal.mapping.rules"),
    ]


def test_what_cannot_be_kept_refuses_the_start_by_one_line(tmp_path: Path, server: Issued) -> None:
    for settings, said in bad_settings(tmp_path, server):
        with pytest.raises(InvalidConfigError, match=said) as raised:
            Broker(tmp_path / "data", config={"listeners": "SSL://127.0.0.1:0", **settings})
        assert "\n" not in str(raised.value)
        assert "hush" not in str(raised.value)
    assert not (tmp_path / "data").exists()


def principal_seen(broker: Broker, sock: socket.socket) -> str:
    """Who the broker takes the only client for."""
    assert is_answered(sock)
    seen: list[str] = []
    import gc

    from stratalog.broker.server.acceptor import Acceptor

    for entry in gc.get_objects():
        if isinstance(entry, Acceptor) and entry.services is broker.services:
            seen.extend(str(connection.peer.principal) for connection in entry.connections)
    (only,) = seen
    return only


def test_a_client_is_who_its_certificate_says_by_the_rules(
    tmp_path: Path, authority: Authority, server: Issued
) -> None:
    config = tls_config(
        tmp_path,
        server,
        ssl__client__auth="required",
        ssl__truststore__type="PEM",
        ssl__truststore__location=str(authority.write(tmp_path / "ca.pem")),
        ssl__principal__mapping__rules="RULE:^CN=([a-z]+),OU=.*$/$1@kafka/U,DEFAULT",
    )
    subjects = {
        "User:ALICE@KAFKA": [(NameOID.ORGANIZATIONAL_UNIT_NAME, "people"), (NameOID.COMMON_NAME, "alice")],
        "User:CN=bob\\, jr": [(NameOID.COMMON_NAME, "bob, jr")],
    }
    with serving(tmp_path, config) as broker:
        for expected, parts in subjects.items():
            client = authority.issue(x509.Name([x509.NameAttribute(oid, value) for oid, value in parts]))
            context = ssl.create_default_context(cadata=authority.pem)
            context.load_cert_chain(client.write_pem(tmp_path / "client.pem"))
            with handshake(broker, context) as sock:
                assert principal_seen(broker, sock) == expected


def test_names_are_written_as_java_writes_them(authority: Authority) -> None:
    parts = [
        (NameOID.COUNTRY_NAME, "DE"),
        (NameOID.STATE_OR_PROVINCE_NAME, "Bayern"),
        (NameOID.EMAIL_ADDRESS, "a@b"),
        (NameOID.DOMAIN_COMPONENT, "example"),
        (NameOID.COMMON_NAME, ' #a+"b" '),
    ]
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in parts])
    issued = authority.issue(name).certificate
    from cryptography.hazmat.primitives.serialization import Encoding

    assert subject_of(issued.public_bytes(Encoding.DER)) == (
        'CN=\\ #a\\+\\"b\\"\\ ,DC=example,1.2.840.113549.1.9.1=#1603614062,ST=Bayern,C=DE'
    )


@pytest.mark.parametrize(
    ("rules", "name", "mapped"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=serviceuser,OU=ServiceUsers,O=x", "serviceuser"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?)$/$1@$2/L, DEFAULT", "CN=Bob,OU=Ops,O=x", "bob@ops"),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,DEFAULT", "O=y,CN=me.too,C=z", "ME.TOO"),
        ("RULE:^CN=(.*)$/a\\/$1/", "CN=b", "a/b"),
        ("RULE:^OU=.*$/x/,DEFAULT", "CN=b", "CN=b"),
    ],
)
def test_rules_map_names(rules: str, name: str, mapped: str) -> None:
    assert map_name(name, parse_rules(rules)) == mapped


def test_a_name_without_a_rule_is_no_one() -> None:
    with pytest.raises(UnmappedNameError):
        map_name("CN=b", parse_rules("RULE:^OU=.*$/x/"))


def test_clients_that_may_not_come_in_are_turned_away_and_the_others_served(
    tmp_path: Path, authority: Authority, server: Issued
) -> None:
    config = tls_config(
        tmp_path,
        server,
        ssl__client__auth="required",
        ssl__truststore__location=str(authority.write_pkcs12(tmp_path / "ca.p12", "hush")),
        ssl__truststore__password="hush",
    )
    with serving(tmp_path, config) as broker:

        def context(issued: Issued | None) -> ssl.SSLContext:
            made = ssl.create_default_context(cadata=authority.pem)
            if issued is not None:
                made.load_cert_chain(issued.write_pem(tmp_path / "client.pem"))
            return made

        for bad in (None, authority.issue("old", expired=True), Authority().issue("stranger")):
            try:
                with handshake(broker, context(bad)) as sock:
                    assert not is_answered(sock)
            except OSError:
                pass
        with handshake(broker, context(authority.issue("alice"))) as sock:
            assert is_answered(sock)


def test_our_clients_turn_away_a_broker_that_is_not_who_it_should_be(tmp_path: Path, authority: Authority) -> None:
    from stratalog.errors import StratalogError
    from stratalog.wire.client.connection import Client
    from stratalog.wire.client.options import ConnectionOptions

    ca = str(authority.write(tmp_path / "ca.pem"))
    impostors = {
        "wrong host": authority.issue("elsewhere", hosts=("kafka.example",)),
        "expired": authority.issue("old", expired=True),
        "wrong authority": Authority().issue("broker"),
    }
    for issued in impostors.values():
        with serving(tmp_path, tls_config(tmp_path, issued)) as broker:
            options = ConnectionOptions.of(
                {
                    "kafka.bootstrap.servers": broker.bootstrap_servers,
                    "kafka.security.protocol": "SSL",
                    "kafka.ssl.truststore.location": ca,
                }
            )
            with pytest.raises(StratalogError):
                Client(*options.servers[0], options)
            admin = AdminClient(
                {
                    "bootstrap.servers": broker.bootstrap_servers,
                    "security.protocol": "SSL",
                    "ssl.ca.location": ca,
                    "ssl.endpoint.identification.algorithm": "https",
                    "log_level": 0,
                }
            )
            with pytest.raises(KafkaException):
                admin.list_topics(timeout=1)


def test_changed_files_count_for_new_connections_and_drop_no_old_one(
    tmp_path: Path, authority: Authority, server: Issued, caplog: pytest.LogCaptureFixture
) -> None:
    config = tls_config(tmp_path, server)
    context = ssl.create_default_context(cadata=authority.pem)
    with serving(tmp_path, config) as broker:

        def serial() -> int:
            with handshake(broker, context) as sock:
                der = sock.getpeercert(binary_form=True)
                assert der is not None
                return x509.load_der_x509_certificate(der).serial_number

        with handshake(broker, context) as old:
            assert serial() == server.certificate.serial_number
            renewed = authority.issue("broker")
            renewed.write_pem(tmp_path / "server.pem")
            wait_until(lambda: serial() == renewed.certificate.serial_number, "the renewed certificate")
            (tmp_path / "server.pem").write_text("half a file")
            with caplog.at_level(logging.ERROR):
                wait_until(lambda: bool(serial()) and "cannot be used" in caplog.text, "the complaint")
            assert serial() == renewed.certificate.serial_number
            assert is_answered(old)


def test_changed_files_count_once_there_is_room_to_load_them(
    tmp_path: Path,
    authority: Authority,
    server: Issued,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = ssl.create_default_context(cadata=authority.pem)
    with serving(tmp_path, tls_config(tmp_path, server)) as broker:

        def serial() -> int:
            with handshake(broker, context) as sock:
                der = sock.getpeercert(binary_form=True)
                assert der is not None
                return x509.load_der_x509_certificate(der).serial_number

        renewed = authority.issue("broker")
        with monkeypatch.context() as full, caplog.at_level(logging.ERROR):
            full.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
            renewed.write_pem(tmp_path / "server.pem")
            wait_until(lambda: bool(serial()) and "temporary file" in caplog.text, "the complaint")
            assert serial() == server.certificate.serial_number
        wait_until(lambda: serial() == renewed.certificate.serial_number, "the renewed certificate")


def test_nothing_is_lost_while_certificates_change_under_load(
    tmp_path: Path, authority: Authority, server: Issued
) -> None:
    config = tls_config(tmp_path, server)
    with serving(tmp_path, config) as broker:
        client = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SSL",
            "ssl.ca.pem": authority.pem,
        }
        failed: list[object] = []
        for turn in range(4):
            authority.issue("broker").write_pem(tmp_path / "server.pem")
            producer = Producer({**client, "linger.ms": 1})
            for number in range(250):
                producer.produce(
                    "orders",
                    f"{turn}-{number}".encode(),
                    on_delivery=lambda error, _: failed.append(error) if error else None,
                )
            assert producer.flush(60) == 0
        assert failed == []
        consumer = Consumer({**client, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        with closing(consumer):
            got = [message.value() for _ in range(1000) if (message := consumer.poll(30)) is not None]
        assert got == [f"{turn}-{number}".encode() for turn in range(4) for number in range(250)]


def test_cut_and_foreign_and_slow_handshakes_leave_nothing_behind(
    tmp_path: Path, authority: Authority, server: Issued
) -> None:
    import gc

    from stratalog.broker.server.acceptor import Acceptor

    context = ssl.create_default_context(cadata=authority.pem)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    hello = outgoing.read()
    with serving(tmp_path, tls_config(tmp_path, server)) as broker:
        (acceptor,) = [
            entry for entry in gc.get_objects() if isinstance(entry, Acceptor) and entry.services is broker.services
        ]
        address = ("127.0.0.1", int(broker.bootstrap_servers.split(":")[1]))
        for cut in range(0, len(hello), 37):
            with socket.create_connection(address, timeout=30) as sock:
                sock.sendall(hello[:cut])
        for foreign in (API_VERSIONS, b"GET / HTTP/1.1\r\n\r\n", bytes(8), b"\xff" * 8):
            with socket.create_connection(address, timeout=30) as sock:
                sock.sendall(foreign)
                with _either():
                    sock.shutdown(socket.SHUT_WR)
                    while sock.recv(4096):
                        pass
        with socket.create_connection(address, timeout=30) as slow, handshake(broker, context) as good:
            for at in range(40):
                slow.sendall(hello[at : at + 1])
                assert is_answered(good)
                while good.pending():
                    good.recv(4096)
        wait_until(lambda: not acceptor.connections, "the end of all connections")


@contextmanager
def _either() -> Iterator[None]:
    """A reset is as good an end as any; a socket that has had one is no longer connected."""
    try:
        yield
    except OSError as error:
        if not isinstance(error, ConnectionError) and error.errno != errno.ENOTCONN:
            raise


def test_a_client_that_does_not_read_holds_up_no_other(tmp_path: Path, authority: Authority, server: Issued) -> None:
    context = ssl.create_default_context(cadata=authority.pem)
    with serving(tmp_path, tls_config(tmp_path, server)) as broker, handshake(broker, context) as deaf:
        stop = threading.Event()

        def shout() -> None:
            deaf.settimeout(0.5)
            try:
                while not stop.is_set():
                    deaf.sendall(API_VERSIONS * 500)
            except OSError:
                return

        thread = threading.Thread(target=shout)
        thread.start()
        try:
            for _ in range(20):
                with handshake(broker, context) as good:
                    assert is_answered(good)
        finally:
            stop.set()
            thread.join()


@pytest.mark.interop
def test_kafkas_own_tools_come_in_with_their_properties(tmp_path: Path, authority: Authority, server: Issued) -> None:
    require_reference_kafka()
    client = authority.issue("alice")
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\nssl.keystore.type=PEM\n"
        f"ssl.truststore.location={authority.write(tmp_path / 'ca.pem')}\n"
        f"ssl.keystore.location={client.write_pem(tmp_path / 'client.pem')}\n"
    )
    config = tls_config(
        tmp_path,
        server,
        ssl__client__auth="required",
        ssl__truststore__type="PEM",
        ssl__truststore__certificates=authority.pem,
    )
    with serving(tmp_path, config) as broker:
        arguments = ["--bootstrap-server", broker.bootstrap_servers, "--command-config", str(properties)]
        command = "org.apache.kafka.tools.TopicCommand"
        tool(command, [*arguments, "--create", "--topic", "orders", "--partitions", "3"])
        assert tool(command, [*arguments, "--list"]).split() == ["orders"]
