"""`stratalog tokens`, against a broker of ours and Apache Kafka: made, listed, renewed, used and ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.admin_commands import CommandLine, Ran
from tests.golden.tokens.make import token_kafka
from tests.support.reference_kafka import free_port, require_reference_kafka
from tests.support.token_cases import DAY_MS, token_config
from tests.support.waiting import wait_until

from stratalog import Broker
from stratalog.cli.main import run


@pytest.fixture(
    scope="module", params=["stratalog", pytest.param("kafka", marks=[pytest.mark.interop, pytest.mark.soak])]
)
def addresses(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The plain address of a broker, and the one for passwords."""
    directory = tmp_path_factory.mktemp("broker")
    if request.param == "stratalog":
        plain, sasl = (f"127.0.0.1:{free_port()}" for _ in range(2))
        with Broker(directory, config=token_config(plain, sasl)):
            yield plain, sasl
    else:
        require_reference_kafka()
        with token_kafka(directory) as found:
            yield found


class Clients:
    """Command lines of users who have logged in."""

    def __init__(self, directory: Path, address: str, capture: pytest.CaptureFixture[str]) -> None:
        self._directory = directory
        self._cli = CommandLine(address, capture)

    def login(self, who: str, jaas: str, mechanism: str) -> tuple[str, str]:
        file = self._directory / f"{who}.properties"
        file.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f"sasl.jaas.config=org.apache.kafka.common.security.{jaas};\n"
        )
        return ("--command-config", str(file))

    def of(self, who: str) -> tuple[str, str]:
        module = f'plain.PlainLoginModule required username="{who}" password="{who}-secret"'
        return self.login(who, module, "PLAIN")

    def good(self, who: str, *args: str) -> Ran:
        return self._cli.good(*args, *self.of(who))

    def refused(self, who: str, *args: str) -> str:
        return self._cli.refused(*args, *self.of(who))

    def run(self, login: tuple[str, str], *args: str) -> Ran:
        return self._cli(*args, *login)


@pytest.fixture
def clients(addresses: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Clients:
    return Clients(tmp_path, addresses[1], capsys)


def listed(clients: Clients, who: str, *args: str) -> dict[str, Any]:
    return {each["id"]: each for each in clients.good(who, "tokens", "list", "--json", *args).json["tokens"]}


def test_a_token_is_made_used_renewed_and_ended(clients: Clients) -> None:
    made = clients.good(
        "bob", "tokens", "create", "--renewer-principal", "User:carol", "--max-lifetime", "2d", "--json"
    )
    (token,) = made.json["tokens"]
    assert (token["owner"], token["requester"], token["renewers"]) == ("User:bob", "User:bob", ["User:carol"])
    assert token["max_ms"] - token["issued_ms"] == 2 * DAY_MS
    known = {name: value for name, value in token.items() if name != "hmac"}
    wait_until(lambda: listed(clients, "bob").get(token["id"]) == known, "Kafka's broker to know it")
    assert listed(clients, "carol", "--show-hmac")[token["id"]] == token
    assert token["id"] not in listed(clients, "dave")
    jaas = f'scram.ScramLoginModule required username="{token["id"]}" password="{token["hmac"]}" tokenauth="true"'
    by_token = clients.login("by_token", jaas, "SCRAM-SHA-256")
    assert clients.run(by_token, "tokens", "list").err == (
        "stratalog: Could not list tokens: log in by a password or certificate: not in plain text, and not by a token\n"
    )
    assert clients.run(by_token, "topics", "list").code == 0
    clients.good("carol", "tokens", "renew", token["id"], "--dry-run")
    clients.good("carol", "tokens", "renew", token["id"], "--period", "1h")
    wait_until(
        lambda: listed(clients, "bob")[token["id"]]["expires_ms"] - token["issued_ms"] < DAY_MS / 2, "the renewal"
    )
    assert clients.refused("dave", "tokens", "renew", token["id"]).startswith(f"there is no token {token['id']}")
    clients.good("bob", "tokens", "expire", token["id"], "--dry-run")
    assert token["id"] in listed(clients, "bob")
    clients.good("bob", "tokens", "expire", token["id"])
    wait_until(lambda: token["id"] not in listed(clients, "bob"), "its end")


def test_refusals_say_what_to_do(addresses: tuple[str, str], clients: Clients) -> None:
    assert clients.refused("alice", "tokens", "create", "--owner-principal", "User:bob") == (
        "Could not make a token: in another's name needs a right: `stratalog acls add --allow-principal User:YOU "
        "--operation create-tokens --user-principal User:OWNER`"
    )
    clients.good(
        "admin", "acls", "add", "--allow-principal", "User:erin", "--operation", "create-tokens",
        "--user-principal", "User:bob",
    )  # fmt: skip
    wait_until(
        lambda: clients.run(clients.of("erin"), "tokens", "create", "--owner-principal", "User:bob").code == 0,
        "Kafka's broker to know the rule",
    )
    wait_until(lambda: listed(clients, "erin"), "Kafka's broker to know the token")
    (token,) = listed(clients, "erin").values()
    assert clients.refused("erin", "tokens", "expire", token["id"]) == (
        f"Could not end {token['id']}: only the owner of a token and its renewers may do that"
    )
    shown = clients.good("erin", "tokens", "list").out
    assert token["id"] in shown
    assert "hmac" not in shown
    assert "hmac of" in clients.good("erin", "tokens", "list", "--show-hmac").out


def test_an_open_listener_gives_no_tokens(addresses: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        CommandLine(addresses[0], capsys)
        .refused("tokens", "create")
        .startswith("Could not make a token: log in by a password or certificate")
    )


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("create", "--max-lifetime", "0"), "--max-lifetime 0: a token has to last for a while, such as 12h"),
        (("create", "--max-lifetime", "soon"), "--max-lifetime soon: expected a number and a unit, such as 90s"),
        (("create", "--renewer-principal", "bob"), "--renewer-principal bob: expected a principal such as User:bob"),
        (("renew", "x", "--period", "0"), "--period 0: to end a token, use `stratalog tokens expire`"),
    ],
)
def test_wrong_usage_is_refused_before_anything_is_asked(
    capsys: pytest.CaptureFixture[str], args: tuple[str, ...], said: str
) -> None:
    assert run(["tokens", *args, "-b", "127.0.0.1:1"]) == 2
    assert capsys.readouterr().err.startswith(f"stratalog: {said}")
