"""The same clients come in by a name and a password within TLS: each by each mechanism, against our broker.

Each produces, and consumes in a group; one with a wrong password does neither. Where a client has a suite for
security, or its walk of the API takes a login, that is run whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import shutil
import ssl
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import aiokafka
import pytest
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokens
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import Consumer, KafkaError, Producer

from tests.broker.security.test_oauth_bearer import Issuer
from tests.interop.clients import test_librdkafka
from tests.interop.clients.test_franz_go import kgo_outcome
from tests.interop.clients.test_java_suite import java_outcome
from tests.interop.clients.test_kafka_python_suite import kafka_python_outcome
from tests.interop.clients.test_kafkajs import PARTS, kafkajs_walk
from tests.support.certificate import make_certificate
from tests.support.client_suites import OURS, Server, build, built, need, served
from tests.support.reference_jars import BROKER_JARS, TOOLS_JARS
from tests.support.reference_kafka import free_port, require_reference_kafka, tool

with warnings.catch_warnings():  # kafka-python reads its resources by a deprecated function
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.errors import KafkaError as KafkaPythonError
    from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.timeout(1200)]

LOGINS = ("SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
#: The password is a token there.
BY_TOKEN = "OAUTHBEARER"
USER, PASSWORD = "anne", "swordfish"
SENT = [f"record {number}".encode() for number in range(20)]
WAIT_S = 60.0
KGO_LOGIN = Path(__file__).parent / "kgo_login"
KGO_REFUSED = 3


@dataclass(frozen=True)
class Secured:
    """A broker with a listener for each security protocol, and the certificate to trust."""

    server: Server
    trusted: Path
    issuer: Issuer

    @property
    def address(self) -> str:
        return self.server.address["SASL_SSL"]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    super_users = f"User:ANONYMOUS;User:{USER}"
    with secured_broker(tmp_path_factory.mktemp("secured"), {"super.users": super_users}) as secured:
        yield secured


@contextlib.contextmanager
def secured_broker(directory: Path, settings: Mapping[str, str]) -> Iterator[Secured]:
    certificate = make_certificate(directory)
    identity = directory / "identity.pem"
    identity.write_text(certificate.key.read_text() + certificate.certificate.read_text())
    login = "org.apache.kafka.common.security"
    issuer = Issuer(directory / "keys.json")
    secure = {
        **settings,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(identity),
        "sasl.enabled.mechanisms": ",".join((*MECHANISMS, BY_TOKEN)),
        "sasl.oauthbearer.jwks.endpoint.url": issuer.path.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "us",
    }
    for listener in map(str.lower, LOGINS):
        key = f"listener.name.{listener}.%s.sasl.jaas.config"
        secure[key % "plain"] = f'{login}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        for mechanism in MECHANISMS[1:]:
            secure[key % mechanism.lower()] = f"{login}.scram.ScramLoginModule required;"
    users = [f"{mechanism}=[name={USER},password={PASSWORD}]" for mechanism in MECHANISMS[1:]]
    address = {protocol: f"127.0.0.1:{free_port()}" for protocol in ("PLAINTEXT", "SSL", *LOGINS)}
    with served(OURS, directory, secure, address=address, users=users) as server:
        yield Secured(server, certificate.certificate, issuer)


def topic() -> str:
    return f"topic-{uuid4().hex}"


# --- each client, as (where, mechanism, password) -> what came back, or the exception of a refused login --------------


class LoginRefusedError(Exception):
    """The broker did not let the client in."""


def by_librdkafka(secured: Secured, mechanism: str, password: str) -> list[bytes]:
    refused: list[KafkaError] = []

    def noticed(error: KafkaError) -> None:
        if error.code() == KafkaError._AUTHENTICATION:
            refused.append(error)

    settings = {
        "bootstrap.servers": secured.address,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(secured.trusted),
        "sasl.mechanism": mechanism,
        "log_level": 0,
        "error_cb": noticed,
    }
    if mechanism == BY_TOKEN:
        settings["oauth_cb"] = lambda _: (password, time.time() + 600)
    else:
        settings |= {"sasl.username": USER, "sasl.password": password}
    name = topic()
    producer = Producer({**settings, "message.timeout.ms": 60_000})
    for value in SENT:
        producer.produce(name, value, partition=0)
    while producer.flush(0.1):
        if refused:
            producer.purge()
            raise LoginRefusedError(refused[0])
    consumer = Consumer({**settings, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([name])
    try:
        got = consumer.consume(len(SENT), WAIT_S)
    finally:
        consumer.close()
    return [message.value() for message in got if message.error() is None]


def named(password: str) -> dict[str, object]:
    return {"sasl_plain_username": USER, "sasl_plain_password": password}


def by_kafka_python(secured: Secured, mechanism: str, password: str) -> list[bytes]:
    class Tokens(KafkaPythonTokens):  # type: ignore[misc]
        def token(self) -> str:
            return password

    settings = {
        "bootstrap_servers": secured.address,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(secured.trusted),
        "sasl_mechanism": mechanism,
        **({"sasl_oauth_token_provider": Tokens()} if mechanism == BY_TOKEN else named(password)),
    }
    name = topic()
    try:
        producer = KafkaProducer(**settings)
    except KafkaPythonError as error:
        raise LoginRefusedError from error
    for value in SENT:
        producer.send(name, value, partition=0).get(WAIT_S)
    producer.close()
    consumer = KafkaConsumer(
        name, group_id=name, auto_offset_reset="earliest", consumer_timeout_ms=int(WAIT_S * 1000), **settings
    )
    try:
        return [next(consumer).value for _ in SENT]
    finally:
        consumer.close()


def by_aiokafka(secured: Secured, mechanism: str, password: str) -> list[bytes]:
    return asyncio.run(_by_aiokafka(secured, mechanism, password))


async def _by_aiokafka(secured: Secured, mechanism: str, password: str) -> list[bytes]:
    class Tokens(AiokafkaTokens):  # type: ignore[misc]
        async def token(self) -> str:
            return password

    settings = {
        "bootstrap_servers": secured.address,
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=str(secured.trusted)),
        "sasl_mechanism": mechanism,
        **({"sasl_oauth_token_provider": Tokens()} if mechanism == BY_TOKEN else named(password)),
    }
    name = topic()
    producer = aiokafka.AIOKafkaProducer(**settings)
    try:
        await producer.start()
    except AiokafkaError as error:
        await producer.stop()
        raise LoginRefusedError from error
    for value in SENT:
        await producer.send_and_wait(name, value, partition=0)
    await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(name, group_id=name, auto_offset_reset="earliest", **settings)
    await consumer.start()
    try:
        return [(await asyncio.wait_for(consumer.getone(), WAIT_S)).value for _ in SENT]
    finally:
        await consumer.stop()


def by_java(secured: Secured, mechanism: str, password: str) -> list[bytes]:
    require_reference_kafka()
    properties = client_properties(secured, mechanism, password)
    name, where = topic(), ["--bootstrap-server", secured.address]
    jars = (BROKER_JARS, TOOLS_JARS)
    config = ["--command-config", str(properties)]
    text = b"\n".join(SENT).decode()
    try:
        tool("org.apache.kafka.tools.TopicCommand", [*where, *config, "--create", "--topic", name], jars=jars)
    except RuntimeError as error:
        if "SaslAuthenticationException" not in str(error):
            raise
        raise LoginRefusedError from error
    tool("org.apache.kafka.tools.ConsoleProducer", [*where, *config, "--topic", name], stdin=text, jars=jars)
    asked = ["--topic", name, "--group", name, "--from-beginning", "--max-messages", str(len(SENT))]
    asked += ["--timeout-ms", "60000"]
    printed = tool("org.apache.kafka.tools.consumer.ConsoleConsumer", [*where, *config, *asked], jars=jars)
    return [line.encode() for line in printed.splitlines()]


def client_properties(secured: Secured, mechanism: str, password: str) -> Path:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    properties = secured.trusted.with_name(f"client-{uuid4().hex}.properties")
    properties.write_text(
        "security.protocol=SASL_SSL\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={secured.trusted}\n"
        f"sasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{module} required "
        f'username="{USER}" password="{password}";\n'
    )
    return properties


def by_franz_go(secured: Secured, mechanism: str, password: str) -> list[bytes]:
    name, values = topic(), [value.decode() for value in SENT]
    done = subprocess.run(
        [kgo_login(), secured.address, secured.trusted, mechanism, USER, password, name, *values],
        capture_output=True,
        timeout=2 * WAIT_S,
        check=False,
    )
    if done.returncode == KGO_REFUSED:
        raise LoginRefusedError(done.stderr)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def kgo_login() -> Path:
    """The program, built from what stands beside this file."""
    need("go")
    sources = sorted(KGO_LOGIN.iterdir())
    version = hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()[:12]

    def make(home: Path) -> None:
        for each in sources:
            shutil.copy(each, home)
        build(["go", "build", "-o", "kgo_login", "."], home)

    return built(f"kgo_login-{version}", make) / "kgo_login"


Client = Callable[[Secured, str, str], list[bytes]]
CLIENTS: list[Client] = [by_librdkafka, by_kafka_python, by_aiokafka, by_java, by_franz_go]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # kafka-python leaves a socket behind
def test_records_pass_and_a_wrong_password_does_not(secured: Secured, client: Client, mechanism: str) -> None:
    assert sorted(client(secured, mechanism, PASSWORD)) == sorted(SENT)
    with pytest.raises(LoginRefusedError):
        client(secured, mechanism, "sawfish")


@pytest.mark.parametrize("client", [by_librdkafka, by_kafka_python, by_aiokafka, by_franz_go])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # kafka-python leaves a socket behind
def test_records_pass_by_a_token_and_by_no_stranger_s(secured: Secured, client: Client, tmp_path: Path) -> None:
    assert sorted(client(secured, BY_TOKEN, secured.issuer.token(sub=USER))) == sorted(SENT)
    stranger = Issuer(tmp_path / "keys.json")
    with pytest.raises(LoginRefusedError):
        client(secured, BY_TOKEN, stranger.token(sub=USER))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafkajs_walks_its_api(secured: Secured, mechanism: str) -> None:
    kafkajs_walk(
        BROKER=secured.address,
        MECHANISM=mechanism.lower(),
        USERNAME=USER,
        PASSWORD=PASSWORD,
        CA=str(secured.trusted),
    ).holds({}, at_least=PARTS)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # sockets of the tests before
def test_the_suite_of_kafka_python(secured: Secured, mechanism: str) -> None:
    login = {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(secured.trusted),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }
    kafka_python_outcome(secured.address, login).holds({}, at_least=50)


@pytest.mark.parametrize("mechanism", ["256", "512"])
def test_the_scram_tests_of_franz_go(secured: Secured, mechanism: str) -> None:
    """They speak no TLS."""
    kgo_outcome(
        "-test.run=SCRAM",
        KGO_SEEDS=secured.server.address["SSL"],
        KGO_TEST_TLS=f"ca:{secured.trusted}",
        KGO_TEST_SCRAM=f"{USER}:{PASSWORD}:{mechanism}",
        KGO_TEST_SCRAM_SEEDS=secured.server.address["SASL_PLAINTEXT"],
    ).holds({}, at_least=2)


def test_the_suite_of_franz_go_within_tls(secured: Secured) -> None:
    kgo_outcome(KGO_SEEDS=secured.server.address["SSL"], KGO_TEST_TLS=f"ca:{secured.trusted}").holds({}, at_least=140)


#: Of the classes of Java's clients those that make each client through their cluster, and how many tests pass.
JAVA_CLASSES: Mapping[str, int] = {
    "consumer.PlaintextConsumerAssignTest": 18,
    "consumer.SaslPlainPlaintextConsumerTest": 4,
}


@pytest.mark.parametrize("name", JAVA_CLASSES)
def test_the_tests_of_a_class_of_java_s_clients(name: str, tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    identity = tmp_path / "identity.pem"
    identity.write_text(certificate.key.read_text() + certificate.certificate.read_text())
    java_outcome(
        f"org.apache.kafka.clients.{name}",
        tmp_path,
        broker_identity=str(identity),
        broker_trusted=str(certificate.certificate),
    ).holds({}, at_least=JAVA_CLASSES[name])


@pytest.mark.timeout(3600)
def test_the_tests_of_librdkafka(tmp_path: Path) -> None:
    """The client is no super user: rules are to hold for it. `0077_compaction` leaves itself out with a login."""
    require_reference_kafka()  # its tools create topics for some tests
    mechanism = "SCRAM-SHA-256"
    broker = tmp_path / "broker"
    broker.mkdir()
    with secured_broker(broker, test_librdkafka.SETTINGS) as secured:
        lines = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(secured.trusted),
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }
        login = test_librdkafka.Login(lines, client_properties(secured, mechanism, PASSWORD))
        test_librdkafka.outcome(secured.server, tmp_path, login=login).holds({}, at_least=75)
