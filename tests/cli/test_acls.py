"""`stratalog acls` adds, lists and removes rules, and refuses what it cannot mean."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.admin_commands import CommandLine

import stratalog
from stratalog.config import STANDARD_AUTHORIZER

CONFIG = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}


@pytest.fixture
def ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[CommandLine]:
    with stratalog.Broker(data_dir=tmp_path / "data", config=CONFIG) as broker:
        yield CommandLine(broker.bootstrap_servers, capsys)


def rules(ours: CommandLine, *args: str) -> set[tuple[str, ...]]:
    found = ours.good("acls", "list", "--json", *args).json["acls"]
    return {(each["resource_type"], each["name"], each["principal"], each["operation"]) for each in found}


ALICE = ("--allow-principal", "User:alice")


def test_the_conveniences_are_what_kafka_acls_makes_of_them(ours: CommandLine) -> None:
    ours.good("acls", "add", *ALICE, "--producer", "--idempotent", "--topic", "orders", "--transactional-id", "t")
    ours.good("acls", "add", "--allow-principal", "User:bob", "--consumer", "--topic", "orders", "--group", "g")
    assert rules(ours) == {
        *(("topic", "orders", "User:alice", operation) for operation in ("write", "describe", "create")),
        *(("transactional-id", "t", "User:alice", operation) for operation in ("write", "describe")),
        ("cluster", "kafka-cluster", "User:alice", "idempotent-write"),
        *(("topic", "orders", "User:bob", operation) for operation in ("read", "describe")),
        ("group", "g", "User:bob", "read"),
    }
    assert rules(ours, "--principal", "User:bob", "--topic", "orders") == {
        ("topic", "orders", "User:bob", "read"),
        ("topic", "orders", "User:bob", "describe"),
    }


def test_a_rule_is_removed_alone_or_with_all_of_its_resource(ours: CommandLine) -> None:
    ours.good("acls", "add", *ALICE, "--operation", "read", "--operation", "alter-configs", "--topic", "orders")
    ours.good("acls", "remove", *ALICE, "--operation", "AlterConfigs", "--topic", "orders")
    assert rules(ours) == {("topic", "orders", "User:alice", "read")}
    ours.good("acls", "add", "--deny-principal", "User:eve", "--deny-host", "10.0.0.1", "--topic", "orders")
    ours.good("acls", "remove", "--topic", "orders", "--dry-run")
    assert len(rules(ours)) == 2
    ours.good("acls", "remove", "--topic", "orders")
    assert rules(ours) == set()


def test_the_table_says_all_of_a_rule(ours: CommandLine) -> None:
    line = ("--topic", "ord", "--resource-pattern-type", "prefixed", "--allow-host", "10.0.0.1", "--operation", "read")
    shown = ours.good("acls", "add", *ALICE, *line).out
    for word in ("topic", "ord", "prefixed", "User:alice", "10.0.0.1", "read", "allow"):
        assert word in shown
    assert rules(ours, "--topic", "orders", "--resource-pattern-type", "match") == {
        ("topic", "ord", "User:alice", "read")
    }


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("add", "--topic", "t"), "--allow-principal"),
        (("add", *ALICE), "--topic"),
        (("add", "--allow-principal", "alice", "--topic", "t"), "User:NAME"),
        (("add", *ALICE, "--topic", "t", "--operation", "fly"), "--operation fly"),
        (("add", *ALICE, "--topic", "t", "--resource-pattern-type", "any"), "--resource-pattern-type any"),
        (("add", *ALICE, "--consumer", "--topic", "t"), "--group"),
        (("add", *ALICE, "--producer", "--topic", "t", "--operation", "read"), "--operation"),
        (("add", *ALICE, "--deny-host", "1.2.3.4", "--topic", "t"), "--deny-host"),
        (("remove",), "nothing to remove"),
    ],
)
def test_what_makes_no_rule_is_refused_with_what_to_do(ours: CommandLine, args: tuple[str, ...], said: str) -> None:
    ran = ours("acls", *args)
    assert ran.code == 2
    assert said in ran.err
    assert rules(ours) == set()


def test_without_an_authorizer_the_broker_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with stratalog.Broker(data_dir=tmp_path / "data") as broker:
        ran = CommandLine(broker.bootstrap_servers, capsys)("acls", "list")
    assert ran.code != 0
    assert "No Authorizer is configured" in ran.err
