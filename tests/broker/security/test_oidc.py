"""OAUTHBEARER with a real OpenID provider over https: clients fetch tokens from it, the broker its keys."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from tests.broker.security.test_sasl import principals
from tests.cli.admin_commands import CommandLine
from tests.support.authority import Authority
from tests.support.oidc_server import SECRET, OidcServer, require_oidc_server
from tests.support.reference_kafka import free_port, require_reference_kafka, tool

from stratalog.broker.server.server import Broker
from stratalog.errors import InvalidConfigError
from stratalog.spark.options import ReadOptions, with_client_properties
from stratalog.spark.sink import BrokerSinkOptions
from stratalog.wire.client import Cluster

JAVA = "org.apache.kafka.common.security.oauthbearer"

pytest.importorskip("jwt", reason="pip install 'stratalog[security]'")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("oidc")


@pytest.fixture(scope="module")
def authority(directory: Path) -> Authority:
    require_oidc_server()
    found = Authority()
    found.write(directory / "ca.pem")
    return found


@pytest.fixture(scope="module")
def server(directory: Path, authority: Authority) -> Iterator[OidcServer]:
    with OidcServer(directory, authority) as server:
        yield server


@pytest.fixture
def config(server: OidcServer) -> dict[str, object]:
    return {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{free_port()}",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": server.discovered["jwks_uri"],
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": server.discovered["issuer"],
        "connection.failed.authentication.delay.ms": "0",
    }


@pytest.fixture
def broker(
    tmp_path: Path, directory: Path, config: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Broker]:
    monkeypatch.setenv("SSL_CERT_FILE", str(directory / "ca.pem"))
    with Broker(tmp_path / "data", config=config) as broker:
        yield broker


def test_librdkafka_fetches_a_token_and_comes_in_by_it(broker: Broker, server: OidcServer, directory: Path) -> None:
    def client(secret: str) -> AdminClient:
        return AdminClient(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "billing",
                "sasl.oauthbearer.client.secret": secret,
                "sasl.oauthbearer.token.endpoint.url": server.discovered["token_endpoint"],
                "https.ca.location": str(directory / "ca.pem"),
                "log_level": 0,
            }
        )

    good = client(SECRET)
    for future in good.create_topics([NewTopic("orders", 1)]).values():
        future.result(30)
    assert "User:billing" in principals(broker)
    bad = client("wrong")
    with pytest.raises(KafkaException):
        bad.list_topics(timeout=2)
    assert principals(broker) <= {"User:billing", "User:ANONYMOUS"}


def client_file(path: Path, jaas: str, url: str | None) -> Path:
    """Write Kafka's client properties; without a URL, for an unsigned token."""
    handler = f"sasl.login.callback.handler.class={JAVA}.OAuthBearerLoginCallbackHandler\n" if url else ""
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n{handler}"
        f"sasl.oauthbearer.token.endpoint.url={url or ''}\n"
        f"sasl.jaas.config={JAVA}.OAuthBearerLoginModule required {jaas};\n"
    )
    return path


def test_our_commands_and_spark_fetch_a_token_and_come_in_by_it(
    broker: Broker,
    server: OidcServer,
    directory: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = server.discovered["token_endpoint"]
    monkeypatch.setenv("KAFKA_OPTS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}")
    trust = f'ssl.truststore.type="PEM" ssl.truststore.location="{directory / "ca.pem"}"'
    good = client_file(tmp_path / "good", f'clientId="billing" clientSecret="{SECRET}" {trust}', url)
    cli = CommandLine(broker.bootstrap_servers, capsys)
    cli.good("topics", "create", "orders", "--command-config", str(good))
    cli.good("produce", "orders", "hello", "--command-config", str(good))
    assert cli.good("consume", "orders", "-e", "--command-config", str(good)).out == "hello\n"
    spark = {"kafka.bootstrap.servers": broker.bootstrap_servers, "commandConfig": str(good)}
    read = ReadOptions.parse(with_client_properties({**spark, "subscribe": "orders"})).broker
    written = BrokerSinkOptions.parse(with_client_properties(spark)).cluster
    for options in (read, written):
        assert options is not None
        with Cluster(pickle.loads(pickle.dumps(options))) as cluster:
            assert list(cluster.topics()) == ["orders"]
            assert "User:billing" in principals(broker)

    wrong = client_file(tmp_path / "wrong", f'clientId="billing" clientSecret="Planted-3f1" {trust}', url)
    unsigned = client_file(tmp_path / "unsigned", 'unsecuredLoginStringClaim_sub="billing"', None)
    for command in (["topics", "list"], ["produce", "orders", "x"], ["consume", "orders", "-e"]):
        line = cli.refused(*command, "--command-config", str(wrong), code=2)
        assert "sasl.oauthbearer.token.endpoint.url=" in line
        assert "the endpoint answers 401 (invalid_client)" in line
        assert "Planted-3f1" not in line
        line = cli.refused(*command, "--command-config", str(unsigned), code=2)
        assert "invalid_token" in line
    monkeypatch.setenv("KAFKA_OPTS", "")
    assert "the environment does not allow" in cli.refused("topics", "list", "--command-config", str(good), code=2)


@pytest.mark.interop
@pytest.mark.soak
def test_javas_client_fetches_a_token_and_comes_in_by_it(
    broker: Broker, server: OidcServer, directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_reference_kafka()
    url = server.discovered["token_endpoint"]
    trust = f'ssl.truststore.type="PEM" ssl.truststore.location="{directory / "ca.pem"}"'
    properties = client_file(tmp_path / "java", f'clientId="billing" clientSecret="{SECRET}" {trust}', url)
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}")
    arguments = ["--bootstrap-server", broker.bootstrap_servers, "--command-config", str(properties)]
    tool("org.apache.kafka.tools.TopicCommand", [*arguments, "--create", "--topic", "orders"])
    assert tool("org.apache.kafka.tools.TopicCommand", [*arguments, "--list"]).split() == ["orders"]


def test_keys_of_a_server_that_no_one_vouches_for_refuse_the_start(tmp_path: Path, config: dict[str, object]) -> None:
    with pytest.raises(InvalidConfigError, match=r"no keys can be read: .*certificate verify failed"):
        Broker(tmp_path / "data", config=config)


def test_a_password_in_the_url_of_keys_refuses_the_start_and_is_not_shown(
    tmp_path: Path, config: dict[str, object]
) -> None:
    config["sasl.oauthbearer.jwks.endpoint.url"] = "https://me:secret@127.0.0.1/keys"
    with pytest.raises(InvalidConfigError, match="expected a URL without user and password") as raised:
        Broker(tmp_path / "data", config=config)
    assert "secret@" not in str(raised.value)


def test_a_server_that_speaks_no_http_refuses_the_start_by_one_line(tmp_path: Path, config: dict[str, object]) -> None:
    with Broker(tmp_path / "other") as other:
        config["sasl.oauthbearer.jwks.endpoint.url"] = f"http://{other.bootstrap_servers}/keys"
        with pytest.raises(InvalidConfigError, match="no keys can be read") as raised:
            Broker(tmp_path / "data", config=config)
    assert "\n" not in str(raised.value)
