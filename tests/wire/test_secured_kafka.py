"""TLS and SASL against Apache Kafka: who is let in, and what is said to those who are not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.certificate import make_certificate
from tests.support.secured_kafka import PASSWORD, Secured, secured_kafka

from stratalog.errors import UsageError
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.client import AuthenticationError, Cluster, ConnectionOptions, UnreachableError

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_kafka(tmp_path_factory.mktemp("kafka")) as secured:
        yield secured


def login(mechanism: str, password: str) -> dict[str, str]:
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    quoted = password.replace('"', '\\"')
    return {
        "kafka.sasl.mechanism": mechanism,
        "kafka.sasl.jaas.config": f"org.apache.kafka.common.security.{module} required "
        f'username="me" password="{quoted}";',
    }


def options(secured: Secured, protocol: str, **more: str) -> ConnectionOptions:
    values = {
        "kafka.bootstrap.servers": secured.address[protocol],
        "kafka.security.protocol": protocol,
        "kafka.default.api.timeout.ms": "10000",
        **more,
    }
    return ConnectionOptions.of(values)


def trust(secured: Secured) -> dict[str, str]:
    return {
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(secured.certificate.certificate),
    }


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize(
    ("mechanism", "password"),
    [("PLAIN", PASSWORD), ("SCRAM-SHA-256", "swordfish"), ("SCRAM-SHA-512", "swordfish")],
)
def test_who_knows_the_password_is_let_in(secured: Secured, protocol: str, mechanism: str, password: str) -> None:
    with Cluster(options(secured, protocol, **login(mechanism, password), **trust(secured))) as cluster:
        assert list(cluster.nodes()) == [1]
        assert cluster.node(1).call(ApiKey.METADATA, (1, 12), topics=[]).brokers


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_who_does_not_is_refused_without_the_password(secured: Secured, mechanism: str) -> None:
    with pytest.raises(AuthenticationError, match="does not let this client in") as raised:
        Cluster(options(secured, "SASL_PLAINTEXT", **login(mechanism, "hunter2")))
    assert secured.address["SASL_PLAINTEXT"] in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_a_client_with_a_certificate(secured: Secured) -> None:
    identity = {
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": secured.certificate.certificate.read_text(),
        "kafka.ssl.keystore.key": secured.certificate.key.read_text(),
    }
    with Cluster(options(secured, "SSL", **trust(secured), **identity)) as cluster:
        assert cluster.topics() == {}
    with pytest.raises(UnreachableError, match=secured.address["SSL"]):
        Cluster(options(secured, "SSL", **trust(secured))).topics()
    with pytest.raises(UsageError, match=r"certificate\.chain: expected a private key and its certificates"):
        Cluster(options(secured, "SSL", **trust(secured), **identity | {"kafka.ssl.keystore.key": "none"}))


def test_a_broker_that_cannot_be_trusted(secured: Secured, tmp_path: Path) -> None:
    other = make_certificate(tmp_path)
    for truststore in ({}, {"kafka.ssl.truststore.certificates": other.certificate.read_text()}):
        with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
            Cluster(options(secured, "SASL_SSL", **login("PLAIN", PASSWORD), **truststore))
    with pytest.raises(UsageError, match=r"truststore\.location=.*: expected certificates in PEM"):
        Cluster(options(secured, "SSL", **{"kafka.ssl.truststore.location": str(other.key)}))


def test_the_wrong_protocol_is_named(secured: Secured) -> None:
    with pytest.raises(UnreachableError, match=secured.address["PLAINTEXT"]):
        Cluster(as_if(secured, "SSL", "PLAINTEXT"))
    with pytest.raises(UnreachableError, match=secured.address["SASL_SSL"]):
        Cluster(as_if(secured, "PLAINTEXT", "SASL_SSL"))


def as_if(secured: Secured, protocol: str, really: str) -> ConnectionOptions:
    return ConnectionOptions.of(
        {"kafka.bootstrap.servers": secured.address[really], "kafka.security.protocol": protocol}
    )
