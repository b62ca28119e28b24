"""`stratalog groups` on a broker of ours and on Apache Kafka: how far they are, who is in them, a reset."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from tests.cli.admin_commands import CommandLine

from stratalog.cli.groups import describe as describe_module
from stratalog.wire import ApiKey
from stratalog.wire.client import Cluster


@pytest.fixture
def group(any_cli: CommandLine, topic: str) -> str:
    """A group that has read 3 of the 5 records of partition 0, and has no members."""
    any_cli.good("produce", topic, *"abcde", "-p", "0")
    any_cli.good("consume", topic, "-G", f"g-{topic}", "-n", "3")
    return f"g-{topic}"


@contextmanager
def member(cli: CommandLine, group: str, topic: str, **more: str) -> Iterator[Consumer]:
    settings = {"bootstrap.servers": cli._bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest", **more}
    consumer = Consumer(settings)
    try:
        consumer.subscribe([topic])
        assert consumer.poll(60) is not None
        yield consumer
    finally:
        consumer.close()


def described(cli: CommandLine, group: str) -> dict[str, Any]:
    reported = cli.good("groups", "describe", group, "--json").json
    assert isinstance(reported, dict)
    return reported


def offsets(cli: CommandLine, group: str) -> dict[int, int]:
    return {each["partition"]: each["currentOffset"] for each in described(cli, group)["offsets"]}


def test_groups_are_listed_by_state_and_type(any_cli: CommandLine, group: str) -> None:
    assert group in any_cli.good("groups", "list").out.splitlines()
    found = [json.loads(line) for line in any_cli.good("groups", "list", "--json").out.splitlines()]
    (mine,) = (each for each in found if each["group"] == group)
    assert mine == {
        "group": group,
        "type": "classic",
        "state": "Empty",
        "protocolType": "consumer",
        "coordinator": 1,
    }
    assert group in any_cli.good("groups", "list", "--state", "Empty,Dead", "--type", "classic").out
    assert group not in any_cli.good("groups", "list", "--state", "Stable").out


def test_a_group_shows_how_far_it_is(any_cli: CommandLine, group: str, topic: str) -> None:
    reported = described(any_cli, group)
    assert (reported["state"], reported["type"], reported["members"]) == ("Empty", "classic", [])
    at = next(each for each in reported["offsets"] if each["partition"] == 0)
    assert at == {
        "topic": topic,
        "partition": 0,
        "currentOffset": 3,
        "logStartOffset": 0,
        "logEndOffset": 5,
        "lag": 2,
        "metadata": "",
        "memberId": None,
    }
    lines = any_cli.good("groups", "describe", "--group", group).out.splitlines()
    assert lines[0] == f"{group}: classic, Empty, 0 members, lag 2"
    assert lines[2].split()[:5] == [topic, "0", "3", "5", "2"]
    assert any_cli.good("groups", "describe", group, "--state").out == f"{group}: classic, Empty, 0 members\n"


def test_members_show_what_is_assigned_to_them(any_cli: CommandLine, group: str, topic: str) -> None:
    with member(any_cli, group, topic, **{"client.id": "reader", "group.instance.id": "one"}):
        reported = described(any_cli, group)
        out = any_cli.good("groups", "describe", group, "--members").out
        said = any_cli.refused("groups", "delete", group)
        reset = any_cli.refused("groups", "reset-offsets", group, "--all-topics", "--to-earliest", "--execute")
    (one,) = reported["members"]
    assert (one["clientId"], one["instanceId"], one["epoch"]) == ("reader", "one", None)
    assert one["assignment"] == [{"topic": topic, "partitions": [0, 1, 2]}]
    assert all(each["memberId"] == one["memberId"] for each in reported["offsets"])
    assert f"{topic}(0,1,2)" in out
    assert said == f"Group {group}: NON_EMPTY_GROUP: it has members; stop them first"
    assert reset.startswith(f"group {group} is Stable and has 1 members")


def test_a_group_of_the_new_protocol_is_described_too(any_cli: CommandLine, topic: str) -> None:
    with Cluster(any_cli._bootstrap_servers) as cluster:
        spoken = {int(api.api_key) for api in cluster.any.api_versions.api_keys}
    if ApiKey.CONSUMER_GROUP_DESCRIBE not in spoken:
        pytest.skip("the broker has no groups of the new protocol")
    any_cli.good("produce", topic, "a", "b", "-p", "1")
    group = f"new-{topic}"
    with member(any_cli, group, topic, **{"group.protocol": "consumer"}):
        reported = described(any_cli, group)
    assert (reported["type"], reported["assignor"]) == ("consumer", "uniform")
    assert reported["epoch"] >= 1
    (one,) = reported["members"]
    assert one["epoch"] >= 1
    assert one["assignment"] == [{"topic": topic, "partitions": [0, 1, 2]}]


def test_groups_are_deleted_with_their_offsets(any_cli: CommandLine, group: str) -> None:
    assert any_cli.good("groups", "delete", group, "--json").json == {"deleted": [group]}
    assert group not in any_cli.good("groups", "list").out
    assert f"no group {group}" in any_cli.refused("groups", "describe", group)


def test_a_group_that_is_not_there_is_an_error_with_the_nearest_name(any_cli: CommandLine, group: str) -> None:
    assert any_cli.refused("groups", "describe", f"{group}x").endswith(f"did you mean {group}?")
    assert "no group given" in any_cli.refused("groups", "delete", code=2)
    assert "give either GROUP.. or --all-groups" in any_cli.refused("groups", "describe", code=2)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), 5),
        (("--to-current",), 3),
        (("--to-offset", "2"), 2),
        (("--to-offset", "99"), 5),
        (("--shift-by", "-1"), 2),
        (("--shift-by", "-100"), 0),
        (("--to-datetime", "2020-01-31T12:00:00Z"), 0),
        (("--by-duration", "1h"), 0),
        (("--by-duration", "PT1H30M"), 0),
        (("--by-duration", "0"), 5),
    ],
)
def test_offsets_are_set_only_when_that_is_asked_for(
    any_cli: CommandLine, group: str, topic: str, options: tuple[str, ...], expected: int
) -> None:
    one = ("--topic", f"{topic}:0")
    ran = any_cli("groups", "reset-offsets", group, *one, *options)
    assert (ran.code, ran.err) == (0, "stratalog: nothing was changed; use --execute to apply\n")
    assert ran.out.splitlines()[1].split() == [topic, "0", "3", str(expected)]
    assert offsets(any_cli, group)[0] == 3
    reported = any_cli.good("groups", "reset-offsets", group, *one, *options, "--execute", "--json").json
    assert (reported["currentOffset"], reported["newOffset"], reported["executed"]) == (3, expected, True)
    assert offsets(any_cli, group)[0] == expected


def test_what_is_exported_can_be_read_back(any_cli: CommandLine, group: str, topic: str, tmp_path: Path) -> None:
    out = any_cli.good("groups", "reset-offsets", group, "--all-topics", "--to-current", "--export").out
    assert f"{topic},0,3\n" in out
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{topic},0,1\n{group},{topic},1,0\nother,{topic},0,5\n")
    any_cli.good("groups", "reset-offsets", group, "--from-file", str(plan), "--execute")
    assert offsets(any_cli, group)[0] == 1
    plan.write_text(f"{topic},0\n")
    said = any_cli.refused("groups", "reset-offsets", group, "--from-file", str(plan), code=2)
    assert said == f"{plan}:1: expected topic,partition,offset"


@pytest.mark.parametrize("damage", [b"\xff\xfe,0,1\n", b'"' + b"x" * 200_000, b"\x00"])
def test_a_file_of_offsets_that_is_none_is_wrong_usage(
    any_cli: CommandLine, group: str, tmp_path: Path, damage: bytes
) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_bytes(damage)
    said = any_cli.refused("groups", "reset-offsets", group, "--from-file", str(plan), code=2)
    assert said.startswith(f"{plan}:")
    assert "topic,partition,offset" in said


def test_a_group_can_begin_with_a_reset(any_cli: CommandLine, topic: str) -> None:
    any_cli.good("produce", topic, "a", "b", "-p", "2")
    any_cli.good("groups", "reset-offsets", f"n-{topic}", "--topic", topic, "--to-latest", "--execute")
    assert offsets(any_cli, f"n-{topic}") == {0: 0, 1: 0, 2: 2}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--all-topics",), "give one of --to-earliest, --to-latest"),
        (("--all-topics", "--to-earliest", "--to-latest"), "give one of --to-earliest"),
        (("--to-earliest",), "give either --topic or --all-topics"),
        (("--topic", "a:b", "--to-earliest"), "--topic a:b: expected TOPIC or TOPIC:0,1,2"),
        (("--topic", "TOPIC:9", "--to-earliest"), "has no partition 9; it has 3"),
        (("--all-topics", "--to-datetime", "late"), "--to-datetime late: expected 2026-01-31"),
        (("--all-topics", "--by-duration", "P"), "--by-duration P: expected"),
        (("--all-topics", "--to-latest", "--execute", "--dry-run"), "give either --execute or --dry-run"),
    ],
)
def test_a_reset_that_says_nothing_usable_is_refused(
    any_cli: CommandLine, group: str, topic: str, options: tuple[str, ...], said: str
) -> None:
    words = [each.replace("TOPIC", topic) for each in options]
    assert said in any_cli.refused("groups", "reset-offsets", group, *words, code=2)


def test_a_person_sees_a_table(any_cli: CommandLine, group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe_module, "on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "70")
    out = any_cli.good("groups", "describe", group).out
    assert "Empty" in out
    assert max(map(len, out.splitlines())) <= 70


def test_a_partition_of_too_many_digits_is_wrong_usage(any_cli: CommandLine, group: str, topic: str) -> None:
    chosen = f"{topic}:{'9' * 5000}"
    said = any_cli.refused("groups", "reset-offsets", group, "--topic", chosen, "--to-earliest", code=2)
    assert said.endswith("expected TOPIC or TOPIC:0,1,2")


def test_offsets_are_deleted_by_topic_and_partition(any_cli: CommandLine, group: str, topic: str) -> None:
    any_cli.good("groups", "reset-offsets", group, "--topic", topic, "--to-earliest", "--execute")
    delete = ("groups", "delete-offsets", group, "--topic")
    reported = any_cli.good(*delete, f"{topic}:0", "--json").json
    assert reported == {"group": group, "deleted": [{"topic": topic, "partition": 0}]}
    left = offsets(any_cli, group)
    assert 0 not in left or left[0] is None
    with member(any_cli, group, topic):
        assert "is subscribed to it" in any_cli.refused(*delete, topic)
    assert topic in any_cli.good(*delete, topic).out
    assert "no topic no-such-topic" in any_cli("groups", "delete-offsets", group, "--topic", "no-such-topic").err
    assert "no topic given" in any_cli("groups", "delete-offsets", group).err
