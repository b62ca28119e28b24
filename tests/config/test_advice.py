"""What a start says of settings that do nothing."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.broker.admin import alter, create
from tests.broker.admin_cases import BROKER, SET
from tests.support.wire import Wire

from stratalog.broker.server.server import Broker
from stratalog.config.advice import broker_advice, topic_advice
from stratalog.config.broker import BrokerConfig

TIERING = {"remote.log.storage.system.enable": "true"}


def _advice(**properties: str) -> list[str]:
    return list(broker_advice(BrokerConfig({name.replace("_", "."): value for name, value in properties.items()})))


def test_keys_without_an_effect_are_named_when_they_are_set_to_another_value() -> None:
    assert _advice(queued_max_requests="500", offsets_topic_replication_factor="1") == []
    (line,) = _advice(queued_max_requests="7")
    assert line.startswith("queued.max.requests=7 has no effect: requests are not queued")
    (line,) = _advice(unclean_leader_election_enable="true")
    assert line.startswith("unclean.leader.election.enable=true has no effect")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("log.retention.hour", "log.retention.hours"),
        ("log.rentention.ms", "log.retention.ms"),
        ("remote.log.storage.system.enabled", "remote.log.storage.system.enable"),
        ("stratalog.remote.urls", "stratalog.remote.url"),
        ("authoriser.class.name", "authorizer.class.name"),
    ],
)
def test_a_mistyped_key_is_named_with_what_was_meant(name: str, meant: str) -> None:
    (line,) = broker_advice(BrokerConfig({name: "1"}))
    assert line == f"Unknown configuration keys: {name} (did you mean {meant}?)"


def test_a_minimum_below_the_one_that_holds_anyway_is_reported_at_a_start_and_when_it_is_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert _advice(min_topic_segment_bytes="1048576") == []
    (line,) = _advice(min_topic_segment_bytes="1048575")
    assert line.startswith("min.topic.segment.bytes=1048575 has no effect: segment.bytes must be at least 1048576")
    with Broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        assert alter(wire, BROKER, "", ("min.topic.segment.bytes", SET, "7")).error_code == 0
    assert "min.topic.segment.bytes=7 has no effect" in caplog.text


def test_a_key_of_kafkas_or_like_none_is_named_alone() -> None:
    (line,) = broker_advice(BrokerConfig({"num.io.threads": "8", "x.y": "1", "rsm.config.a": "1", **TIERING}))
    assert line == "Unknown configuration keys: num.io.threads, x.y"


def test_settings_of_a_remote_tier_that_is_switched_off_are_named() -> None:
    properties = {"stratalog.remote.url": "s3://bucket/prefix", "rsm.config.timeout_ms": "1"}
    (line,) = broker_advice(BrokerConfig(properties))
    assert line.startswith("rsm.config.timeout_ms, stratalog.remote.url: no effect while remote.log.storage.system")
    assert list(broker_advice(BrokerConfig({**properties, **TIERING}))) == []
    plugin = {"remote.log.storage.manager.class.name": "m:C"}
    (line,) = broker_advice(BrokerConfig({**properties, **TIERING, **plugin}))
    assert line.startswith("stratalog.remote.url: no effect with remote.log.storage.manager.class.name")


def test_what_does_nothing_on_a_topic_is_reported_when_it_is_set(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert list(topic_advice("t", {"unclean.leader.election.enable": "false"})) == []
    caplog.set_level(logging.WARNING)
    with Broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        assert create(wire, "t", unclean_leader_election_enable="true").error_code == 0
    assert "Topic t: unclean.leader.election.enable=true has no effect: a broker by itself keeps one" in caplog.text
