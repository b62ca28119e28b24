"""`stratalog groups` for share groups (KIP-932), on a broker of ours and on Apache Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from tests.broker.groups.consumer_cases import find_coordinator
from tests.broker.groups.share_cases import ShareTalk, has
from tests.cli.admin_commands import CommandLine
from tests.support.wire import Wire


@pytest.fixture
def group(any_cli: CommandLine) -> str:
    return f"s-{uuid4().hex[:8]}"


@pytest.fixture
def talk(any_cli: CommandLine, topic: str, group: str) -> Iterator[ShareTalk]:
    """The conversation of a member `a` that has all partitions of the topic, in which there are 3 records."""
    any_cli.good("produce", topic, *"abc", "-p", "1")
    with Wire(any_cli._bootstrap_servers, client_id="share") as wire:
        find_coordinator(wire)
        talk = ShareTalk(wire)
        talk.know_topics()
        talk.join("a joins", group, "a", [topic])
        talk.until("a has all", group, "a", 2, has(3))
        yield talk


def test_a_share_group_is_listed_described_set_elsewhere_and_deleted(
    any_cli: CommandLine, talk: ShareTalk, topic: str, group: str
) -> None:
    listed = [json.loads(line) for line in any_cli.good("groups", "list", "--type", "share", "--json").out.splitlines()]
    assert [each["state"] for each in listed if each["group"] == group] == ["Stable"]
    reported = any_cli.good("groups", "describe", group, "--json").json
    assert isinstance(reported, dict)
    assert (reported["type"], reported["state"], reported["assignor"]) == ("share", "Stable", "simple")
    (member,) = reported["members"]
    assert member["clientId"] == "share"
    assert member["assignment"] == [{"topic": topic, "partitions": [0, 1, 2]}]
    assert f"{topic}(0,1,2)" in any_cli.good("groups", "describe", group, "--members").out
    reset = ("groups", "reset-offsets", group, "--topic", topic)
    refused = any_cli.refused(*reset, "--to-earliest", "--execute")
    assert refused.startswith(f"group {group} is Stable and has 1 members")

    talk.beat("a leaves", group, "a", -1)
    shown = any_cli(*reset, "--to-offset", "1")
    assert (shown.code, shown.err) == (0, "stratalog: nothing was changed; use --execute to apply\n")
    any_cli.good(*reset, "--to-offset", "1", "--execute")
    assert offsets(any_cli, group) == {0: (0, 0), 1: (1, 2), 2: (0, 0)}
    any_cli.good("groups", "reset-offsets", group, "--all-topics", "--to-latest", "--execute")
    assert offsets(any_cli, group) == {0: (0, 0), 1: (3, 0), 2: (0, 0)}

    assert any_cli.good("groups", "delete", group, "--json").json == {"deleted": [group]}
    assert group not in any_cli.good("groups", "list").out


def test_offsets_of_a_share_group_are_deleted_by_topic(
    any_cli: CommandLine, talk: ShareTalk, topic: str, group: str
) -> None:
    delete = ("groups", "delete-offsets", group, "--topic", topic)
    assert any_cli.refused(*delete).endswith("it has members; stop them first")
    talk.beat("a leaves", group, "a", -1)
    any_cli.good("groups", "reset-offsets", group, "--topic", topic, "--to-earliest", "--execute")
    assert "its offsets go by topic" in any_cli("groups", "delete-offsets", group, "--topic", f"{topic}:0").err
    assert len(offsets(any_cli, group)) == 3
    assert any_cli.good(*delete, "--json").json == {"group": group, "deleted": [{"topic": topic}]}
    assert offsets(any_cli, group) == {}


def offsets(cli: CommandLine, group: str) -> dict[int, tuple[Any, Any]]:
    """Where the group begins in each partition, and its lag."""
    reported = cli.good("groups", "describe", group, "--json").json
    assert isinstance(reported, dict)
    return {each["partition"]: (each["currentOffset"], each["lag"]) for each in reported["offsets"]}
