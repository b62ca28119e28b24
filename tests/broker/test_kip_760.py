"""KIP-760: `min.topic.segment.ms` and `min.topic.segment.bytes`, the operator's minimums for topics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker.admin import alter, create, described, replace_configs
from tests.broker.admin_cases import BROKER, DELETE, SET, TOPIC
from tests.support.wire import Wire

from stratalog.broker.server.server import Broker

INVALID_CONFIG = 40


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path) as broker:
        yield broker


def attempts(wire: Wire, topic: str, key: str, value: str, *, validate_only: bool = False) -> list[Any]:
    """CreateTopics of another topic, IncrementalAlterConfigs and AlterConfigs of this one."""
    config: dict[str, Any] = {key.replace(".", "_"): value}
    return [
        create(wire, f"{topic}-new", validate_only=validate_only, **config),
        alter(wire, TOPIC, topic, (key, SET, value), validate_only=validate_only),
        replace_configs(wire, TOPIC, topic, validate_only=validate_only, **config),
    ]


def test_the_minimums_are_dynamic_broker_configs_with_the_documents_defaults(wire: Wire) -> None:
    entries = described(wire, BROKER, "1")
    for key, type_, default in (
        ("min.topic.segment.ms", 5, "3600000"),
        ("min.topic.segment.bytes", 3, "1048576"),
    ):
        assert (entries[key].config_type, entries[key].value, entries[key].read_only) == (
            type_,
            default,
            False,
        )


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(
    ("key", "minimum_key", "value", "minimum"),
    [
        ("segment.ms", "min.topic.segment.ms", "3599999", "3600000"),
        ("segment.ms", "min.topic.segment.ms", "1", "3600000"),
        ("segment.bytes", "min.topic.segment.bytes", "2097151", "2097152"),
    ],
)
def test_a_segment_below_the_minimum_is_refused_by_each_api_naming_topic_value_and_minimum(
    wire: Wire, key: str, minimum_key: str, value: str, minimum: str, validate_only: bool
) -> None:
    create(wire, "t")
    alter(wire, BROKER, "", ("min.topic.segment.bytes", SET, "2097152"))
    answers = attempts(wire, "t", key, value, validate_only=validate_only)
    assert [int(answer.error_code) for answer in answers] == [INVALID_CONFIG] * 3
    for topic, answer in zip(("t-new", "t", "t"), answers, strict=True):
        assert answer.error_message == (
            f"Invalid value {value} for configuration {key}: "
            f"Topic {topic} has {key} ({value}) that is less than {minimum_key} ({minimum})."
        )
    assert described(wire, TOPIC, "t")[key].config_source != 1


def test_the_minimum_itself_is_allowed(wire: Wire) -> None:
    create(wire, "t")
    for key, value in (("segment.ms", "3600000"), ("segment.bytes", "1048576")):
        answers = attempts(wire, f"t{'' if key == 'segment.ms' else '-new'}", key, value)
        assert [int(answer.error_code) for answer in answers] == [0, 0, 0]


@pytest.mark.parametrize("entity", ["", "1"])
def test_the_minimums_can_be_changed_while_the_broker_runs(wire: Wire, entity: str) -> None:
    create(wire, "t")
    minimums = (("min.topic.segment.ms", SET, "10"), ("min.topic.segment.bytes", SET, "2097152"))
    assert alter(wire, BROKER, entity, *minimums).error_code == 0
    assert alter(wire, TOPIC, "t", ("segment.ms", SET, "10")).error_code == 0
    assert alter(wire, TOPIC, "t", ("segment.ms", SET, "9")).error_code == INVALID_CONFIG
    assert alter(wire, TOPIC, "t", ("segment.bytes", SET, "2097151")).error_code == INVALID_CONFIG
    assert alter(wire, TOPIC, "t", ("segment.bytes", SET, "2097152")).error_code == 0
    undone = tuple((key, DELETE, None) for key, _, _ in minimums)
    assert alter(wire, BROKER, entity, *undone).error_code == 0
    assert alter(wire, TOPIC, "t", ("segment.ms", SET, "11")).error_code == INVALID_CONFIG


def test_a_brokers_own_minimum_wins_over_the_clusters(wire: Wire) -> None:
    create(wire, "t")
    alter(wire, BROKER, "", ("min.topic.segment.ms", SET, "10"))
    alter(wire, BROKER, "1", ("min.topic.segment.ms", SET, "20"))
    assert alter(wire, TOPIC, "t", ("segment.ms", SET, "19")).error_code == INVALID_CONFIG
    assert alter(wire, TOPIC, "t", ("segment.ms", SET, "20")).error_code == 0


@pytest.mark.parametrize(("key", "value"), [("min.topic.segment.ms", "-1"), ("min.topic.segment.bytes", str(2**31))])
def test_a_minimum_that_is_none_is_refused(wire: Wire, key: str, value: str) -> None:
    assert alter(wire, BROKER, "", (key, SET, value)).error_code == 42


@pytest.fixture
def short(wire: Wire) -> str:
    """A topic whose segment.ms is below what is the minimum now."""
    alter(wire, BROKER, "", ("min.topic.segment.ms", SET, "1"))
    assert create(wire, "short", segment_ms="5000", retention_ms="60000").error_code == 0
    assert alter(wire, BROKER, "", ("min.topic.segment.ms", DELETE, None)).error_code == 0
    return "short"


def test_a_topic_below_a_later_minimum_can_still_be_changed_otherwise(wire: Wire, short: str) -> None:
    """The minimums "will not cause issue on the existing topic": by either API, what is set already may stay."""
    assert alter(wire, TOPIC, short, ("retention.ms", SET, "1000")).error_code == 0
    assert described(wire, TOPIC, short)["segment.ms"].value == "5000"
    kept = replace_configs(wire, TOPIC, short, segment_ms=" 5000", retention_ms="2000")
    assert kept.error_code == 0
    assert alter(wire, TOPIC, short, ("segment.ms", SET, "5000")).error_code == 0


def test_it_cannot_be_set_to_another_value_below_the_minimum(wire: Wire, short: str) -> None:
    for value in ("4999", "5001"):
        assert alter(wire, TOPIC, short, ("segment.ms", SET, value)).error_code == INVALID_CONFIG
        assert replace_configs(wire, TOPIC, short, segment_ms=value).error_code == INVALID_CONFIG
    assert alter(wire, TOPIC, short, ("segment.ms", DELETE, None)).error_code == 0
    # What is gone counts as new when it comes back.
    assert alter(wire, TOPIC, short, ("segment.ms", SET, "5000")).error_code == INVALID_CONFIG


def test_what_the_broker_gives_to_topics_is_the_operators_own_matter(tmp_path: Path) -> None:
    config = {"log.roll.ms": "1000"}
    with Broker(data_dir=tmp_path, config=config) as broker, Wire(broker.bootstrap_servers) as wire:
        assert create(wire, "t").error_code == 0
        assert described(wire, TOPIC, "t")["segment.ms"].value == "1000"


def test_a_start_warns_of_topics_below_the_minimums_in_the_documents_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        Broker(data_dir=tmp_path, config={"min.topic.segment.ms": "1"}) as broker,
        Wire(broker.bootstrap_servers) as wire,
    ):
        create(wire, "short", segment_ms="5000", segment_bytes="1048576")
        create(wire, "good", segment_ms="3600000", segment_bytes="2097152")
        create(wire, "unset")
    assert not [text for text in caplog.messages if "less than" in text]
    with Broker(data_dir=tmp_path, config={"min.topic.segment.bytes": "2097152"}):
        pass
    assert [text for text in caplog.messages if "less than" in text] == [
        "Topic short has segment.ms (5000) that is less than min.topic.segment.ms (3600000).",
        "Topic short has segment.bytes (1048576) that is less than min.topic.segment.bytes (2097152).",
    ]


def test_a_start_heeds_a_minimum_that_was_set_dynamically(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Broker(data_dir=tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        create(wire, "t", segment_ms="3600000")
        assert alter(wire, BROKER, "", ("min.topic.segment.ms", SET, "7200000")).error_code == 0
    with Broker(data_dir=tmp_path):
        pass
    assert "Topic t has segment.ms (3600000) that is less than min.topic.segment.ms (7200000)." in caplog.messages
