"""What a `server.properties` asks for and cannot be kept refuses the start, by one line.

What is of no harm does not.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from stratalog.broker.security import Listener
from stratalog.broker.server.listen_address import ListenAddress
from stratalog.broker.server.open_listeners import open_listeners
from stratalog.broker.server.server import Broker
from stratalog.config.broker import BrokerConfig
from stratalog.config.properties_file import parse_properties
from stratalog.config.unkept import refuse_unkept
from stratalog.errors import InvalidConfigError, StratalogError, UsageError

#: A single node of Kafka 4, broker and controller, as its own file has it.
SINGLE_NODE = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
log.dirs=/tmp/kraft-combined-logs
"""


def _refused(**changes: str) -> str:
    properties = {
        **parse_properties(SINGLE_NODE, "f"),
        **{k.replace("__", "."): v for k, v in changes.items()},
    }
    with pytest.raises(StratalogError) as raised:
        refuse_unkept(properties, lambda key: f"file of {key}", plain_only=True)
    line = str(raised.value)
    assert "\n" not in line
    return line


def test_kafkas_file_of_a_single_node_can_be_used_as_it_is() -> None:
    properties = parse_properties(SINGLE_NODE, "f")
    refuse_unkept(properties)
    config = BrokerConfig(properties)
    with closing(open_listeners(None, config)) as opened:
        (only,) = opened.all
        assert only.bound == ListenAddress("", 9092)
        assert only.listener == opened.inter_broker == Listener("localhost", 9092)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ssl.engine.factory.class", "required"),
        ("ssl.provider", "/etc/kafka/provider"),
        ("ssl.trustmanager.algorithm", "OurChecks"),
        ("security.providers", "com.example.Creator"),
        ("sasl.oauthbearer.jwt.validator.class", "com.example.Validator"),
        ("listener.name.plaintext.oauthbearer.sasl.oauthbearer.jwt.validator.class", "com.example.Validator"),
        ("listener.name.plaintext.ssl.engine.factory.class", "-----BEGIN CERTIFICATE-----"),
        ("authorizer.class.name", "com.example.OurAuthorizer"),
        ("sasl.login.callback.handler.class", "x.Y"),
        ("listener.name.plaintext.plain.sasl.server.callback.handler.class", "x.Y"),
        ("listener.name.plaintext.sasl.jaas.config", "hush-hush"),
        ("sasl.jaas.config", "hush-hush"),
        ("password.encoder.secret", "hush-hush"),
        ("delegation.token.master.key", "hush-hush"),
        ("config.providers", "vault"),
        ("client.quota.callback.class", "X"),
        ("quota.producer.default", "1024"),
        ("create.topic.policy.class.name", "X"),
        ("controller.quorum.voters", "1@a:9093,2@b:9093,3@c:9093"),
        ("controller.quorum.bootstrap.servers", "a:9093,b:9093"),
        ("process.roles", "controller"),
    ],
)
def test_a_key_of_safety_is_refused_with_file_key_and_what_to_do(key: str, value: str) -> None:
    line = _refused(**{key: value})
    assert line.startswith(f"file of {key}: {key}")
    assert f"--set {key}=" in line
    assert value not in line or key == "process.roles"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("authorizer.class.name", ""),
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("ssl.client.auth", "none"),
        ("ssl.protocol", "TLSv1.3"),
        ("security.inter.broker.protocol", "PLAINTEXT"),
        ("listener.name.controller.ssl.keystore.location", "x"),
        ("max.connections.per.ip", "10"),
        ("listener.name.plaintext.max.connections", "10"),
        ("quota.window.num", "11"),
        ("num.io.threads", "8"),
        ("no.such.key", "1"),
    ],
)
def test_what_is_of_no_harm_is_not_refused(key: str, value: str) -> None:
    refuse_unkept({**parse_properties(SINGLE_NODE, "f"), key: value})


@pytest.mark.parametrize(
    ("listeners", "map_", "said"),
    [
        ("SASL_SSL://:9092,CONTROLLER://:9093", None, "SASL_SSL://:9092 asks for SASL_SSL"),
        ("PLAINTEXT://:9092,SASL_SSL://:9093", None, "SASL_SSL://:9093 asks for SASL_SSL"),
        ("PLAINTEXT://:9092", "PLAINTEXT:SASL_SSL", "PLAINTEXT://:9092 asks for SASL_SSL"),
        ("EXTERNAL://:9092", "EXTERNAL:SASL_PLAINTEXT", "EXTERNAL://:9092 asks for SASL_PLAINTEXT"),
        ("CONTROLLER://:9093", None, "expected a listener for clients"),
        ("EXTERNAL://:9092", None, "No security protocol is defined for listener EXTERNAL"),
        ("here:9092", None, "expected a listener such as"),
    ],
)
def test_listeners_that_cannot_be_kept_are_refused(listeners: str, map_: str | None, said: str) -> None:
    changes = {"listeners": listeners}
    if map_ is not None:
        changes["listener.security.protocol.map"] = map_
    line = _refused(**changes)
    assert line.startswith("file of listeners: ")
    assert said in line


def test_listeners_count_by_their_protocol_not_by_their_name() -> None:
    config = BrokerConfig(
        {
            "listeners": "INTERNAL://127.0.0.1:0",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,OTHER:PLAINTEXT",
            "advertised.listeners": "OTHER://other:1,INTERNAL://kafka.example:9092",
        }
    )
    with closing(open_listeners(None, config)) as opened:
        assert opened.all[0].bound.host == "127.0.0.1"
        assert opened.inter_broker == Listener("kafka.example", 9092, "INTERNAL")


def test_a_broker_in_process_keeps_its_listeners_and_refuses_what_it_cannot(tmp_path: Path) -> None:
    with Broker(tmp_path, config={"listeners": "PLAINTEXT://127.0.0.2:0"}) as broker:
        assert broker.bootstrap_servers.startswith("127.0.0.2:")
    with Broker(tmp_path, listen="127.0.0.1:0", config={"listeners": "PLAINTEXT://127.0.0.2:0"}) as broker:
        assert broker.bootstrap_servers.startswith("127.0.0.1:")
    with pytest.raises(InvalidConfigError, match=r"ssl\.keystore\.location is not set"):
        Broker(tmp_path, config={"listeners": "SSL://:0"})
    with pytest.raises(UsageError, match="the configuration: listeners=SSL://:0"):
        Broker(tmp_path, listen="127.0.0.1:0", config={"listeners": "SSL://:0"})


def test_older_names_count_where_the_newer_ones_are_not_set(tmp_path: Path) -> None:
    with Broker(config={"log.dir": str(tmp_path / "a"), "broker.id": "7"}) as broker:
        assert broker.services.data_dirs == [tmp_path / "a"]
        assert broker.services.node_id == 7
    config = {"log.dir": str(tmp_path / "a"), "log.dirs": f"{tmp_path}/b,{tmp_path}/c"}
    with Broker(config=config) as broker:
        assert broker.services.data_dirs == [tmp_path / "b", tmp_path / "c"]
    assert BrokerConfig({"broker.id": "7", "node.id": "7"})["node.id"] == 7
    with pytest.raises(InvalidConfigError, match=r"`node\.id` to the same value as `broker\.id`"):
        BrokerConfig({"broker.id": "7", "node.id": "8"})


def test_a_properties_file_is_read_as_java_reads_it() -> None:
    text = (
        "# a\n! b\n\n  key = value \nother:1\nspaced   x y\nlong=a,\\\n   b,\\\n   c\nk\\=1=x\\\\\n"
        "authorizer.class.name:x.Y=1\nutf=\\u00e9\\t|\nempty=\n"
    )
    assert parse_properties(text, "f") == {
        "key": "value",
        "other": "1",
        "spaced": "x y",
        "long": "a,b,c",
        "k=1": "x\\",
        "authorizer.class.name": "x.Y=1",
        "utf": "é\t|",
        "empty": "",
    }
