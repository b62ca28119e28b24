"""Settings of groups: what is read of them, and what they count as."""

from __future__ import annotations

import pytest

from stratalog.config import GROUP_KEYS, BrokerConfig, GroupConfig, offset_reset_duration_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("by_duration:PT1H30M5.25S", 5_405_250),
        ("by_duration:P2DT3H", 183_600_000),
        ("by_duration:-PT-1,5S", 1_500),
        ("by_duration:PT-1H61M", 60_000),
        ("by_duration:PT0S", 0),
        ("by_duration:PT-0.5S", None),
        ("by_duration:P1DT", None),
        ("by_duration:P", None),
        ("by_duration:PT1H ", None),
        ("by_duration:PT\u0661H", None),
        ("by_duration:PT" + "9" * 5000 + "S", None),
        ("by_duration:PT9223372036854775808S", None),
        ("latest", None),
    ],
)
def test_durations_are_read_as_java_reads_them(text: str, expected: int | None) -> None:
    assert offset_reset_duration_ms(text) == expected


def test_a_group_without_settings_has_the_brokers() -> None:
    broker = BrokerConfig({"group.consumer.session.timeout.ms": "50000", "group.share.session.timeout.ms": "46000"})
    config = GroupConfig({}, broker)
    assert config["consumer.session.timeout.ms"] == 50_000
    assert config["share.session.timeout.ms"] == 46_000
    assert config["streams.assignor.name"] == "sticky"
    assert config["share.auto.offset.reset"] == "latest"
    assert all(config[key.name] is not None for key in GROUP_KEYS)


def test_what_is_set_counts_within_the_bounds_that_are_in_force() -> None:
    configs = {
        "share.delivery.count.limit": "9",
        "streams.num.warmup.replicas": "30",
        "streams.num.standby.replicas": "x",
    }
    config = GroupConfig(configs, BrokerConfig({"group.share.max.delivery.count.limit": "7"}))
    assert config["share.delivery.count.limit"] == 7
    assert config["streams.num.warmup.replicas"] == 20
    assert config["streams.num.standby.replicas"] == 0
