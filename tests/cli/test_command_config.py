"""`--command-config FILE`: Kafka's client properties on the commands that talk to a broker."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.cli.admin_commands import CommandLine
from tests.support.secured_kafka import Secured, secured_kafka

JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_kafka(tmp_path_factory.mktemp("kafka")) as secured:
        yield secured


def properties(directory: Path, secured: Secured, password: str) -> str:
    file = directory / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={JAAS} \\\n  username="me" password="{password}";\n'
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={secured.certificate.certificate}\n"
    )
    return str(file)


@pytest.mark.interop
def test_commands_say_who_they_are_over_tls(
    secured: Secured, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = CommandLine(secured.address["SASL_SSL"], capsys)
    config = properties(tmp_path, secured, "swordfish")
    cli.good("topics", "create", "orders", "--command-config", config)
    cli.good("produce", "orders", "hello", "--command-config", config)
    monkeypatch.setenv("STRATALOG_COMMAND_CONFIG", config)
    assert cli.good("consume", "orders", "-n", "1").out == "hello\n"
    assert cli.good("consume", "orders", "-e", "-G", "g").out == "hello\n"
    assert "orders\n" in cli.good("topics", "list").out
    assert "orders" in cli.good("log-dirs", "describe", "--json").out
    assert "metadata.version" in cli.good("features", "describe").out
    line = cli.refused("topics", "list", "--command-config", properties(tmp_path, secured, "hunter2"), code=2)
    assert "does not let this client in" in line
    assert "hunter2" not in line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file or directory"),
        ("security.protocol=SASL", "security.protocol=SASL: expected one of PLAINTEXT"),
        ("security.protocol", "client.properties:1: expected key=value"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN", "sasl.jaas.config is not set"),
        ("security.protocol=SSL\nssl.truststore.type=JKS", "only PEM is read"),
    ],
)
def test_a_file_that_says_nothing_usable_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, said: str
) -> None:
    file = tmp_path / "client.properties"
    if text is not None:
        file.write_text(text)
    line = CommandLine("127.0.0.1:1", capsys).refused("topics", "list", "--command-config", str(file), code=2)
    assert str(file) in line
    assert said in line
    assert "option kafka." not in line


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ("ssl.truststore.location={missing}", "ssl.truststore.location={missing}: cannot be read"),
        ("ssl.keystore.location={missing}", "ssl.keystore.location={missing}: expected a private key"),
        ("ssl.truststore.certificates=none", "ssl.truststore.certificates: expected certificates in PEM"),
    ],
)
def test_a_store_that_cannot_be_read_is_named_by_file_and_property(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, key: str
) -> None:
    file, missing = tmp_path / "client.properties", tmp_path / "missing.pem"
    file.write_text(f"security.protocol=SSL\n{more.format(missing=missing)}\n")
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        cli = CommandLine(f"127.0.0.1:{listening.getsockname()[1]}", capsys)
        line = cli.refused("topics", "list", "--command-config", str(file), code=2)
    assert f"{file}: {key.format(missing=missing)}" in line
