"""`stratalog quotas`, against a broker of ours and Apache Kafka."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cli.admin_commands import CommandLine
from tests.cli.test_completion import completed
from tests.support.waiting import wait_until

Seen = set[tuple[tuple[tuple[str, Any], ...], str, float]]


def seen(cli: CommandLine, *args: str) -> Seen:
    found = cli.good("quotas", "list", *args, "--json").json["quotas"]
    return {(tuple(sorted(each["entity"].items())), each["quota"], each["value"]) for each in found}


def test_quotas_are_set_listed_and_removed(any_cli: CommandLine) -> None:
    alice, batch = ("user", "alice, her=own"), ("client-id", "batch")
    any_cli.good("quotas", "set", "--user", alice[1], "producer_byte_rate=1048576", "request_percentage=12.5")
    both = ("--user", alice[1], "--client-id", batch[1])
    any_cli.good("quotas", "set", *both, "--add-config", "consumer_byte_rate=5e6,controller_mutation_rate=3")
    any_cli.good("quotas", "set", "--user-defaults", "--client-defaults", "consumer_byte_rate=7")
    any_cli.good("quotas", "set", "--ip", "10.0.0.7", "connection_creation_rate=5")
    of_alice: Seen = {((alice,), "producer_byte_rate", 1048576), ((alice,), "request_percentage", 12.5)}
    of_both: Seen = {
        ((batch, alice), "consumer_byte_rate", 5e6),
        ((batch, alice), "controller_mutation_rate", 3),
    }
    others: Seen = {
        ((("client-id", None), ("user", None)), "consumer_byte_rate", 7),
        ((("ip", "10.0.0.7"),), "connection_creation_rate", 5),
    }
    wait_until(lambda: seen(any_cli) == of_alice | of_both | others, "Kafka's broker to know them")
    assert seen(any_cli, "--user", alice[1]) == of_alice | of_both
    assert seen(any_cli, "--user", alice[1], "--strict") == of_alice
    table = any_cli.good("quotas", "list").out
    for word in ("alice, her=own", "batch", "(default)", "10.0.0.7", "1048576", "12.5"):
        assert word in table

    any_cli.good("quotas", "set", "--user", alice[1], "producer_byte_rate=1", "--dry-run")
    any_cli.good("quotas", "remove", "--user", alice[1], "--dry-run")
    assert "12.5" in any_cli.good("quotas", "remove", "--user", alice[1], "request_percentage").out
    left: Seen = {((alice,), "producer_byte_rate", 1048576)}
    wait_until(lambda: seen(any_cli, "--user", alice[1], "--strict") == left, "the removal")
    assert any_cli.refused("quotas", "remove", "--user", alice[1], "request_percentage") == (
        "user alice, her=own has producer_byte_rate, not request_percentage; `stratalog quotas list` shows all"
    )
    any_cli.good("quotas", "remove", "--user", alice[1], "--delete-config", "producer_byte_rate")
    for rest in (both, ("--user-defaults", "--client-defaults"), ("--ip", "10.0.0.7")):
        any_cli.good("quotas", "remove", *rest)
    wait_until(lambda: seen(any_cli) == set(), "the removal")
    assert any_cli.refused("quotas", "remove", "--ip-defaults").startswith("the default ip has no quota")
    assert "is not a valid IP" in any_cli.refused(
        "quotas", "set", "--ip", "no-such-host.invalid", "connection_creation_rate=5"
    )


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("set", "producer_byte_rate=1"), "no entity: give"),
        (("set", "--user", "a"), "nothing to set"),
        (("set", "--user", "", "producer_byte_rate=1"), "cannot be empty"),
        (("set", "--user", "User:a", "producer_byte_rate=1"), "the name alone, a"),
        (("set", "--user", "a", "producer_byte_rat=1"), "is it producer_byte_rate?"),
        (("set", "--user", "a", "fly=1"), "there is no quota fly: expected producer_byte_rate"),
        (("set", "--user", "a", "producer_byte_rate"), "expected QUOTA=N"),
        (("set", "--user", "a", "producer_byte_rate="), "is not a number"),
        (("set", "--user", "a", "producer_byte_rate=fast"), "fast is not a number"),
        (("set", "--user", "a", "producer_byte_rate=0"), "must be greater than 0"),
        (("set", "--user", "a", "producer_byte_rate=-1"), "must be greater than 0"),
        (("set", "--user", "a", "producer_byte_rate=1.5"), "cannot be a fractional value"),
        (("set", "--user", "a", "request_percentage=nan"), "must be a finite number"),
        (("set", "--user", "a", "connection_creation_rate=1"), "give --ip or --ip-defaults"),
        (("set", "--ip", "::1", "producer_byte_rate=1"), "an address has connection_creation_rate"),
        (("set", "--ip", "::1", "--user", "a", "connection_creation_rate=1"), "quotas of an address do not combine"),
        (("set", "--user", "a", "--user-defaults", "producer_byte_rate=1"), "--user-defaults exclude each other"),
        (("remove",), "no entity: give"),
        (("list", "--ip", "::1", "--client-defaults"), "quotas of an address do not combine"),
    ],
)
def test_what_makes_no_quota_is_refused_with_what_to_do(
    capsys: pytest.CaptureFixture[str], args: tuple[str, ...], said: str
) -> None:
    ran = CommandLine("127.0.0.1:1", capsys)("quotas", *args)
    assert ran.code == 2
    assert said in ran.err


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("set --user a con", ["consumer_byte_rate=", "controller_mutation_rate="]),
        ("set --ip ::1 ", ["connection_creation_rate="]),
        ("remove --user a pro", ["producer_byte_rate"]),
    ],
)
def test_quotas_are_completed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: str, expected: list[str]
) -> None:
    assert completed(f"stratalog quotas {line}", capsys, monkeypatch) == expected
