"""The source, the sink and the commands of Spark log in by the file of client properties that other commands take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stratalog import Broker
from stratalog.cli.main import run
from stratalog.cli.spark.options import with_login
from stratalog.errors import UsageError
from stratalog.spark.options import ReadOptions, with_client_properties
from stratalog.spark.sink import BrokerSinkOptions
from stratalog.spark.source import StratalogDataSource
from stratalog.wire.client import Cluster, ConnectionOptions
from tests.support.reference_kafka import free_port
from tests.support.token_cases import token_config

FILE = """security.protocol=SASL_PLAINTEXT
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  username="alice" password="alice-secret";
client.id=from the file
bootstrap.servers=elsewhere:9092
key.deserializer=org.example.Deserializer
enable.auto.commit=true
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(FILE)
    return path


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    plain, sasl = (f"127.0.0.1:{free_port()}" for _ in range(2))
    config = {**token_config(plain, sasl), "super.users": "User:alice"}
    with Broker(tmp_path / "data", config=config) as broker:
        broker.create_topic("orders")
        yield sasl


def topics_of(options: ConnectionOptions | None) -> list[str]:
    assert options is not None
    with Cluster(options) as cluster:
        return list(cluster.topics())


def test_source_and_sink_log_in_by_the_file(address: str, file: Path) -> None:
    given = {"kafka.bootstrap.servers": address, "commandConfig": str(file), "subscribe": "orders"}
    source = StratalogDataSource(given)
    read = ReadOptions.parse(source.options).broker
    assert topics_of(read) == ["orders"]
    del source.options["subscribe"]
    written = BrokerSinkOptions.parse(source.options).cluster
    assert topics_of(written) == ["orders"]
    assert "alice-secret" not in repr((read, written))


def test_what_a_query_gives_itself_counts_more_than_the_file(file: Path) -> None:
    options = with_client_properties({"COMMANDCONFIG": str(file), "Kafka.Client.Id": "mine", "topic": "orders"})
    assert options == {
        "Kafka.Client.Id": "mine",
        "topic": "orders",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="alice-secret";',
    }
    assert with_client_properties({"topic": "orders"}) == {"topic": "orders"}
    assert with_login(None) == {}
    assert with_login(file)["kafka.client.id"] == "from the file"


def test_a_file_that_is_not_there_is_named_before_a_session_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(UsageError, match=r"option commandConfig .*missing: No such file"):
        StratalogDataSource({"commandConfig": missing})
    for command in (
        ("read", "--topic", "t", "--option", "kafka.bootstrap.servers=h:1"),
        ("export", "--to", str(tmp_path), "t"),
        ("compact", "t", "--remote", str(tmp_path), "--kafka", "bootstrap.servers=h:1"),
    ):
        assert run(["spark", *command, "--command-config", missing]) == 2
        assert "missing: No such file or directory" in capsys.readouterr().err
