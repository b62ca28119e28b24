"""One topic: its partitions, its settings, and the groups that read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from stratalog.broker.server import ApiKey
from stratalog.errors import KafkaError, KafkaStorageError
from stratalog.web.declarations import ChangeConflictError, Console, NotThatValueError
from stratalog.web.fields import choice, whole, words
from stratalog.web.pages.groups import group_rows
from stratalog.web.pages.partition_numbers import numbers_by_topic, numbers_of
from stratalog.web.pages.topics import settings_in_short
from stratalog.web.viewer import ConsoleViewer, check_code

_TOPIC: Final = 2
_SET, _DELETE = 0, 1
_PARTITIONS_A_PAGE: Final = 100
_SOURCES: Final = {
    1: "this topic",
    2: "this broker, dynamic",
    3: "all brokers, dynamic",
    4: "the broker's file",
    5: "default",
}

PARTITIONS_FIELDS = (whole("page", 1, 1, 100_000),)
SETTINGS_FIELDS = (
    choice("show", ("all", "changed"), help="All settings, or those that differ from the default."),
    words("q", longest=200, help="Part of a setting's name."),
)
CHANGE_FIELDS = (
    words("key", longest=200, help="The setting."),
    words("value", longest=20_000, help="Its new value; empty: back to the default."),
    words("was", longest=20_000, help="The value shown."),
    choice("act", ("set", "reset")),
)


def head(viewer: ConsoleViewer, console: Console, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the common parts of a topic's pages."""
    name = values["topic"]
    viewer.check_topic(name)
    topic = viewer.broker.metadata.topic(name)
    rates = console.sampler.topic_rates.get(name, (0.0, 0.0, 0.0))
    return {
        "topic": name,
        "topicId": None if topic is None else str(topic.topic_id),
        "createdMs": None if topic is None else topic.created_ms,
        "partitionCount": 0 if topic is None else topic.partition_count,
        "numbers": numbers_by_topic(viewer.broker.logs, [name])[name].json(),
        "bytesInRate": rates[0],
        "bytesOutRate": rates[1],
        "recordsInRate": rates[2],
        **settings_in_short(viewer, name),
    }


def partitions(viewer: ConsoleViewer, console: Console, values: Mapping[str, Any]) -> dict[str, Any]:
    name = values["topic"]
    common = head(viewer, console, values)
    here = {each.partition: each for each in viewer.broker.logs.partitions(name)}
    count = max(common["partitionCount"], 1 + max(here, default=-1))
    pages = max((count + _PARTITIONS_A_PAGE - 1) // _PARTITIONS_A_PAGE, 1)
    page = min(values["page"], pages)
    rows: list[dict[str, Any]] = []
    for number in range(count)[(page - 1) * _PARTITIONS_A_PAGE : page * _PARTITIONS_A_PAGE]:
        each, leader = here.get(number), viewer.leader(name, number)
        if each is None:
            where = viewer.elsewhere(name, number) or "it is being created or deleted"
            rows.append({"partition": number, "leader": leader, "isHere": False, "error": where})
            continue
        row = {"partition": number, "leader": leader, "isHere": True, **numbers_of(each).json()}
        try:
            log = each.log
        except KafkaStorageError as error:
            rows.append({**row, "error": str(error)})
            continue
        rows.append(
            {
                **row,
                "error": None,
                "leaderEpoch": each.leader_epoch,
                "logStartOffset": log.log_start_offset,
                "localLogStartOffset": log.local_log_start_offset,
                "lastStableOffset": log.last_stable_offset,
                "highWatermark": log.high_watermark,
                "logEndOffset": log.log_end_offset,
            }
        )
    return {**common, "pageAt": page, "pages": pages, "rows": rows}


def settings(viewer: ConsoleViewer, console: Console, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a topic, with the origin of each value."""
    name = values["topic"]
    common = head(viewer, console, values)
    found = _describe(viewer, name)
    query = values["q"].lower()
    shown = [
        each for each in found if query in each["name"] and (values["show"] == "all" or each["source"] == _SOURCES[1])
    ]
    return {**common, "settings": shown, "changed": sum(each["source"] == _SOURCES[1] for each in found)}


def _describe(viewer: ConsoleViewer, name: str) -> list[dict[str, Any]]:
    answer = viewer.call(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        resources=[{"resource_type": _TOPIC, "resource_name": name}],
        include_synonyms=False,
        include_documentation=True,
    ).results[0]
    check_code(int(answer.error_code), answer.error_message)
    return [
        {
            "name": each.name,
            "value": None if each.is_sensitive else each.value,
            "isSensitive": bool(each.is_sensitive),
            "isReadOnly": bool(each.read_only),
            "source": _SOURCES.get(int(each.config_source), "default"),
            "help": each.documentation or "",
        }
        for each in answer.configs
    ]


def change(viewer: ConsoleViewer, console: Console, values: Mapping[str, Any]) -> tuple[str, str]:
    """Set one setting of a topic, or reset it to the default, unless it has changed since it was shown."""
    name, key, value = values["topic"], values["key"], values["value"]
    viewer.check_topic(name)
    now = next((each for each in _describe(viewer, name) if each["name"] == key), None)
    if now is None:
        raise NotThatValueError("key", f"unknown setting {key}")
    if (now["value"] or "") != values["was"]:
        raise ChangeConflictError(
            f"{key} has been changed to {now['value']!r} since this page was loaded; nothing was done"
        )
    reset = values["act"] == "reset"
    answer = viewer.call(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        resources=[
            {
                "resource_type": _TOPIC,
                "resource_name": name,
                "configs": [
                    {"name": key, "config_operation": _DELETE if reset else _SET, "value": None if reset else value}
                ],
            }
        ],
        validate_only=False,
    ).responses[0]
    try:
        check_code(int(answer.error_code), answer.error_message)
    except KafkaError as error:
        raise NotThatValueError("value", str(error)) from error
    done = f"{key} of {name} is back to its default" if reset else f"{key} of {name} is now {value}"
    console.events.note("info", "console", f"{viewer.principal}: {done}")
    return f"/topics/{name}/settings#{key}", done


def consumers(viewer: ConsoleViewer, console: Console, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the groups that have committed offsets for a topic."""
    name = values["topic"]
    common = head(viewer, console, values)
    return {**common, "groups": [each for each in group_rows(viewer, topic=name) if each["partitions"]]}
