"""Create and delete topics, and reset offsets of groups, through the broker's own APIs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from stratalog.broker.server import ApiKey
from stratalog.engine import Partition
from stratalog.errors import KafkaError, NotLeaderOrFollowerError
from stratalog.web.declarations import Console, NotThatValueError
from stratalog.web.fields import choice, moment_ms, whole, words
from stratalog.web.pages.groups import group
from stratalog.web.viewer import ConsoleViewer, check_code

_TIMEOUT_MS: Final = 3000
#: States of a group without members, whose commits would overwrite a new offset.
_WITHOUT_MEMBERS: Final = ("Empty", "Dead")

CREATE_FIELDS = (
    words("new_topic", longest=249, help="The topic's name."),
    whole("partitions", -1, 1, 100_000, help="Partitions; empty: the broker's num.partitions."),
    words("configs", longest=10_000, help="KEY=VALUE, one a line."),
)
DELETE_FIELDS = (words("confirm", longest=249, help="The topic's name once more."),)
RESET_FIELDS = (
    words("id", longest=32_767, help="The group."),
    words("reset_topic", longest=249, help="The topic."),
    whole("reset_partition", None, 0, 1_000_000, help="The partition; empty: all."),
    choice("reset_to", ("earliest", "latest", "offset", "time"), help="Where the group continues."),
    words("reset_value", longest=50, help="The offset, or a time such as 2026-01-31T12:00 or -15m."),
)


def create_topic(viewer: ConsoleViewer, console: Console, values: Mapping[str, Any]) -> tuple[str, str]:
    name = values["new_topic"]
    if not name:
        raise NotThatValueError("new_topic", "a name is needed")
    configs = _settings(values["configs"])
    answer = viewer.call(
        ApiKey.CREATE_TOPICS,
        7,
        topics=[
            {
                "name": name,
                "num_partitions": values["partitions"],
                "replication_factor": -1,
                "assignments": [],
                "configs": [{"name": key, "value": value} for key, value in configs],
            }
        ],
        timeout=_TIMEOUT_MS,
        validate_only=False,
    ).topics[0]
    try:
        check_code(int(answer.error_code), answer.error_message)
    except KafkaError as error:
        field = {37: "partitions", 40: "configs"}.get(error.code, "new_topic")
        raise NotThatValueError(field, str(error)) from error
    done = f"topic {name} is created"
    console.events.note("info", "console", f"{viewer.principal}: {done}")
    return f"/topics/{name}", done


def _settings(text: str) -> list[tuple[str, str]]:
    found = []
    for line in filter(str.strip, text.splitlines()):
        key, separator, value = line.partition("=")
        if not separator:
            raise NotThatValueError("configs", f"expected KEY=VALUE, not {line[:50]!r}")
        found.append((key.strip(), value.strip()))
    return found


def delete_topic(viewer: ConsoleViewer, console: Console, values: Mapping[str, Any]) -> tuple[str, str]:
    """Delete a topic with all data. Requires its name as confirmation."""
    name = values["topic"]
    viewer.check_topic(name)
    if values["confirm"] != name:
        raise NotThatValueError("confirm", "type the name of the topic to delete it")
    answer = viewer.call(ApiKey.DELETE_TOPICS, 5, topic_names=[name], timeout=_TIMEOUT_MS).responses[0]
    try:
        check_code(int(answer.error_code), answer.error_message)
    except KafkaError as error:
        raise NotThatValueError("confirm", str(error)) from error
    done = f"topic {name} is deleted"
    console.events.note("warning", "console", f"{viewer.principal}: {done}")
    return "/topics", done


def reset_offsets(viewer: ConsoleViewer, console: Console, values: Mapping[str, Any]) -> tuple[str, str]:
    """Reset the offsets of a group without members in a topic."""
    group_id, topic = values["id"], values["reset_topic"]
    known = group(viewer, console, {"id": group_id})
    if known["state"] not in _WITHOUT_MEMBERS:
        raise NotThatValueError("reset_to", "the group has members; stop them first, or they overwrite the offsets")
    if not topic:
        raise NotThatValueError("reset_topic", "a topic is needed")
    try:
        viewer.check_topic(topic)
        chosen = _led_here(viewer, topic, values["reset_partition"])
    except KafkaError as error:
        raise NotThatValueError("reset_topic", str(error)) from error
    offsets = {each.partition: _offset(viewer, each, values) for each in chosen}
    set_them = _let_begin if known["type"] == "share" else _commit
    try:
        set_them(viewer, group_id, topic, offsets)
    except KafkaError as error:
        raise NotThatValueError("reset_to", str(error)) from error
    listed = ", ".join(f"{topic}-{number} at {offset}" for number, offset in list(offsets.items())[:5])
    done = f"the group continues in {listed}{' and others' if len(offsets) > 5 else ''}"
    console.events.note("warning", "console", f"{viewer.principal}: offsets of a group are set: {listed}")
    return f"/group?{urlencode({'id': group_id})}", done


def _commit(viewer: ConsoleViewer, group_id: str, topic: str, offsets: Mapping[int, int]) -> None:
    answer = viewer.call(
        ApiKey.OFFSET_COMMIT,
        8,
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": number,
                        "committed_offset": offset,
                        "committed_leader_epoch": -1,
                        "committed_metadata": "",
                    }
                    for number, offset in offsets.items()
                ],
            }
        ],
    )
    for each in answer.topics[0].partitions:
        check_code(int(each.error_code))


def _let_begin(viewer: ConsoleViewer, group_id: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Set the start offsets of a share group."""
    answer = viewer.call(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        0,
        group_id=group_id,
        topics=[
            {
                "topic_name": topic,
                "partitions": [
                    {"partition_index": number, "start_offset": offset} for number, offset in offsets.items()
                ],
            }
        ],
    )
    check_code(int(answer.error_code), answer.error_message)
    for each in answer.responses[0].partitions:
        check_code(int(each.error_code), each.error_message)


def _led_here(viewer: ConsoleViewer, topic: str, wanted: int | None) -> list[Partition]:
    """Return the requested partition, or all. KafkaError unless this broker leads each, and so knows their ends."""
    known = viewer.broker.metadata.topic(topic)
    numbers = range(0 if known is None else known.partition_count) if wanted is None else (wanted,)
    found = [viewer.partition(topic, number) for number in numbers]
    for number in numbers:
        leader = viewer.leader(topic, number)
        if leader != viewer.broker.node_id:
            raise NotLeaderOrFollowerError(f"{topic}-{number} is led by broker {leader}, which knows where it ends")
    return found


def _offset(viewer: ConsoleViewer, partition: Partition, values: Mapping[str, Any]) -> int:
    """Return the requested offset, or the nearest available one."""
    first, end = partition.log.log_start_offset, partition.log.high_watermark
    text = values["reset_value"].strip()
    if values["reset_to"] == "earliest":
        return first
    if values["reset_to"] == "latest":
        return end
    if values["reset_to"] == "offset":
        if not text.isascii() or not text.isdigit() or len(text) > 18:
            raise NotThatValueError("reset_value", "expected an offset")
        return min(max(int(text), first), end)
    try:
        at = partition.offset_for_timestamp(moment_ms(text, viewer.broker.clock.now_ms()))
    except ValueError as error:
        raise NotThatValueError("reset_value", str(error)) from error
    return end if at is None else max(at.offset, first)
