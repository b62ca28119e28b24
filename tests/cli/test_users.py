"""`stratalog users`, against a broker of ours and Apache Kafka: credentials that clients log in by."""

from __future__ import annotations

import io
from base64 import b64encode
from pathlib import Path

import pytest
from tests.cli.admin_commands import CommandLine
from tests.cli.test_completion import completed
from tests.support.reference_kafka import free_port
from tests.support.token_cases import log_in, token_config
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog import Broker
from stratalog.broker.security import Principal
from stratalog.broker.security.scram import credential_of_password
from stratalog.cli.main import run
from stratalog.wire.client.options import Sasl


def password_file(directory: Path, text: str) -> tuple[str, str]:
    file = directory / "password"
    file.write_text(text)
    return ("--password-file", str(file))


def seen(cli: CommandLine, *users: str) -> list[tuple[str, str, int]]:
    ran = cli("users", "list", *users, "--json")
    return [(each["user"], each["mechanism"], each["iterations"]) for each in ran.json["users"]] if ran.out else []


def test_users_are_set_listed_and_removed(any_cli: CommandLine, tmp_path: Path) -> None:
    file = password_file(tmp_path, "alice, her=secret\n")
    both = ("--mechanism", "scram-sha-256", "--mechanism", "SCRAM-SHA-512")
    said = any_cli.good("users", "set", "alice", *file, *both, "--iterations", "8192", "--json").json
    assert said["users"] == [
        {"user": "alice", "mechanism": f"SCRAM-SHA-{bits}", "iterations": 8192, "change": "added"}
        for bits in (256, 512)
    ]
    any_cli.good("users", "set", "bob", *file)
    expected = [("alice", "SCRAM-SHA-256", 8192), ("alice", "SCRAM-SHA-512", 8192), ("bob", "SCRAM-SHA-512", 4096)]
    wait_until(lambda: seen(any_cli) == expected, "Kafka's broker to know them")
    assert seen(any_cli, "bob") == expected[2:]
    assert "changed" in any_cli.good("users", "set", "alice", *both, "--dry-run").out
    any_cli.good("users", "remove", "alice", "--dry-run")
    any_cli.good("users", "remove", "alice", "--mechanism", "SCRAM-SHA-256")
    wait_until(lambda: seen(any_cli) == expected[1:], "the removal")
    assert any_cli.refused("users", "remove", "alice", "--mechanism", "SCRAM-SHA-256") == (
        "alice has no credential of SCRAM-SHA-256, only of SCRAM-SHA-512"
    )
    for user in ("alice", "bob"):
        any_cli.good("users", "remove", user)
    wait_until(lambda: seen(any_cli) == [], "the removal")
    assert any_cli.refused("users", "list", "alice").startswith("there is no user alice with SCRAM credentials")
    assert any_cli.refused("users", "remove", "alice").startswith("there is no user alice with SCRAM credentials")


def test_a_user_logs_in_by_its_password_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, sasl = (f"127.0.0.1:{free_port()}" for _ in range(2))
    config = {
        "listeners": f"PLAINTEXT://{plain},SASL_PLAINTEXT://{sasl}",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "connection.failed.authentication.delay.ms": "0",
    }

    def code(user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> int:
        with Wire(sasl) as wire:
            return int(log_in(wire, Sasl(mechanism, user, password)).error_code)

    with Broker(tmp_path / "data", config=config) as broker:
        cli = CommandLine(plain, capsys)
        cli.good("users", "set", "alice", *password_file(tmp_path, "first\r\nanother line\n"))
        assert (code("alice", "first"), code("alice", "first", "SCRAM-SHA-256")) == (0, 58)
        cli.good("users", "set", "alice", *password_file(tmp_path, "geheimnis-ü"))
        assert (code("alice", "first"), code("alice", "geheimnis-ü")) == (58, 0)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"by pipe\n")))
        cli.good("users", "set", "alice", "--password-file", "-")
        assert code("alice", "by pipe") == 0
        monkeypatch.setenv("STRATALOG_BOOTSTRAP_SERVER", broker.bootstrap_servers)
        assert completed("stratalog users remove a", capsys, monkeypatch) == ["alice"]
        cli.good("users", "remove", "alice")
        assert code("alice", "by pipe") == 58


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("set", "alice"), "there is no terminal to ask for the password: give --password-file FILE, or - for stdin"),
        (("set", "alice", "--password-file", "/no/such"), "--password-file /no/such: No such file or directory"),
        (("set", "alice", "--password-file", "/dev/null"), "the password cannot be empty"),
        (("set", "User:alice"), "User:alice: give the name alone, alice; User: is for access rules"),
        (("set", ""), "the name of a user cannot be empty"),
        (("set", "alice", "--iterations", "100"), "--iterations 100: brokers take 4096 to 16384"),
        (
            ("remove", "alice", "--mechanism", "PLAIN"),
            "--mechanism PLAIN: expected SCRAM-SHA-256 or SCRAM-SHA-512; users of PLAIN are in server.properties",
        ),
    ],
)
def test_wrong_usage_is_refused_before_anything_is_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], said: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    assert run(["users", *args, "-b", "127.0.0.1:1"]) == 2
    assert capsys.readouterr().err == f"stratalog: {said}\n"


def test_a_password_is_asked_for_twice(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    answers = iter(("one", "two"))
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("stratalog.cli.users.getpass", lambda prompt: next(answers))
    assert run(["users", "set", "alice", "-b", "127.0.0.1:1"]) == 2
    assert capsys.readouterr().err == "stratalog: the two passwords differ\n"


def test_produce_and_consume_log_in_by_a_token_and_not_with_few_rounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, sasl = (f"127.0.0.1:{free_port()}" for _ in range(2))
    scram = (
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config=x.ScramLoginModule required "
    )
    properties = tmp_path / "client.properties"
    with Broker(tmp_path / "data", config=token_config(plain, sasl)) as broker:
        services = broker.services
        alice = Principal("User", "admin")
        token = services.tokens.create(alice, alice, [], -1)
        secret = b64encode(services.tokens.hmac(token.id)).decode()
        cli = CommandLine(sasl, capsys)
        login = ("--command-config", str(properties))
        properties.write_text(f'{scram}username="{token.id}" password="{secret}" tokenauth="true";\n')
        cli.good("produce", "orders", "one", "--create", *login)
        assert cli.good("consume", "orders", "-e", "-o", "beginning", *login).out == "one\n"
        services.scram.change({("SCRAM-SHA-256", "few"): credential_of_password("SCRAM-SHA-256", "secret", 1)})
        properties.write_text(f'{scram}username="few" password="secret";\n')
        for command in (("produce", "orders", "two"), ("consume", "orders", "-e")):
            ran = cli(*command, *login)
            assert ran.code != 0
            assert ran.err.count("\n") == 1
            assert "asks for 1 rounds of SCRAM, expected 4096 or more" in ran.err
