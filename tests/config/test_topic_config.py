from __future__ import annotations

import pytest

from stratalog.config.broker import BROKER_KEYS, BrokerConfig
from stratalog.config.properties_file import parse_properties
from stratalog.config.topic import TOPIC_KEYS, LogConfig, changed_properties, index_size_needed
from stratalog.errors import InvalidConfigError, UsageError


def test_defaults_are_the_same_by_both_ways() -> None:
    assert LogConfig.from_properties({}) == LogConfig() == LogConfig.from_properties({}, BrokerConfig())


def test_every_broker_key_of_a_topic_key_is_declared() -> None:
    assert [key.broker_key for key in TOPIC_KEYS if key.broker_key and key.broker_key not in BROKER_KEYS] == []


def test_the_topic_wins_over_the_broker_and_the_broker_over_the_default() -> None:
    broker = BrokerConfig({"log.segment.bytes": "2000000", "log.retention.hours": "2"})
    config = LogConfig.from_properties({"segment.bytes": "3000000"}, broker)
    assert (config.segment_bytes, config.retention_ms) == (3_000_000, 7_200_000)


@pytest.mark.parametrize(
    ("properties", "expected_ms"),
    [
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "1"}, 60_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "1", "log.retention.ms": "7"}, 7),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finest_spelling_of_a_time_wins(properties: dict[str, str], expected_ms: int) -> None:
    assert BrokerConfig(properties)["log.retention.ms"] == expected_ms


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "segment.bytes",
            "5",
            "Invalid value 5 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            "retention.ms",
            "soon",
            "Invalid value soon for configuration retention.ms: Not a number of type LONG",
        ),
        ("cleanup.policy", "shred", "String must be one of: compact, delete"),
        ("cleanup.policy", "delete,", "Configuration 'cleanup.policy' values must not be empty."),
        ("preallocate", "yes", "Expected value to be either true or false"),
        ("min.cleanable.dirty.ratio", "1.5", "Value must be no more than 1"),
        ("max.message.bytes", "99999999999", "Not a number of type INT"),
        ("segment.bites", "5", "Unknown topic config name: segment.bites"),
    ],
)
def test_a_bad_value_names_key_value_and_what_is_allowed(key: str, value: str, message: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        LogConfig.from_properties({key: value})
    assert message in str(caught.value)


def test_segments_past_2_gib_need_the_feature() -> None:
    big = {"segment.bytes": str(2**31)}
    with pytest.raises(InvalidConfigError, match="stratalog features upgrade"):
        LogConfig.from_properties(big)
    assert LogConfig.from_properties(big, use_large_index_format=True).segment_bytes == 2**31


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"cleanup.policy": "compact"}, "only supports topics with cleanup.policy=delete"),
        (
            {"retention.ms": "100", "local.retention.ms": "200"},
            "must not be more than retention.ms property value: 100",
        ),
        (
            {"retention.bytes": "9", "local.retention.bytes": "-1"},
            "must not be -1 as retention.bytes value is set",
        ),
        (
            {"retention.ms": "5000", "local.retention.ms": "1000", "remote.copy.lag.ms": "1001"},
            r"Value must not exceed local.retention.ms \(effective value: 1000\)",
        ),
        (
            {"retention.bytes": "5000", "remote.copy.lag.bytes": "5001"},
            r"Value must not exceed local.retention.bytes \(effective value: 5000\)",
        ),
        (
            {"remote.log.copy.disable": "true", "retention.ms": "1000", "local.retention.ms": "100"},
            "the `local.retention.ms` and `retention.ms` must be set to the identical value",
        ),
        (
            {"remote.log.copy.disable": "true", "retention.bytes": "1000", "local.retention.bytes": "100"},
            "the `local.retention.bytes` and `retention.bytes` must be set to the identical value",
        ),
    ],
)
def test_rules_of_tiered_topics(properties: dict[str, str], message: str) -> None:
    LogConfig.from_properties(properties)
    with pytest.raises(InvalidConfigError, match=message):
        LogConfig.from_properties({**properties, "remote.storage.enable": "true"})


@pytest.mark.parametrize(
    "properties",
    [
        {"remote.copy.lag.ms": "5001", "retention.ms": "-1"},
        {"remote.copy.lag.ms": "1000", "local.retention.ms": "1000"},
        {"remote.copy.lag.bytes": "0", "retention.bytes": "0"},
        {"remote.log.copy.disable": "true"},
        {"remote.log.copy.disable": "true", "local.retention.ms": "1000", "retention.ms": "1000"},
        {"cleanup.policy": ""},
    ],
)
def test_what_kafka_allows_a_tiered_topic_is_allowed(properties: dict[str, str]) -> None:
    assert LogConfig.from_properties({**properties, "remote.storage.enable": "true"}).remote_storage_enable


def test_local_retention_follows_the_total_one_unless_it_is_set() -> None:
    config = LogConfig.from_properties({"retention.ms": "100", "local.retention.bytes": "7"})
    assert (config.effective_local_retention_ms, config.effective_local_retention_bytes) == (100, 7)


def test_a_properties_file_is_read_as_java_does() -> None:
    text = "# comment\n\n a = 1 \nb=x=y\nlong=one,\\\n  two\n"
    assert parse_properties(text, "f") == {"a": "1", "b": "x=y", "long": "one,two"}


def test_a_line_that_is_no_property_is_named_and_not_shown() -> None:
    """It may be a line of a private key, or the rest of a password."""
    with pytest.raises(UsageError, match=r"f:2: expected key=value$"):
        parse_properties("a=1\noops\n", "f")


@pytest.mark.parametrize("escape", [r"\u12", r"\u12fg", r"\ud83d", r"\ude00x"])
def test_an_escape_that_is_no_character_is_named_and_not_shown(escape: str) -> None:
    with pytest.raises(UsageError, match=r"f:2: expected \\uXXXX with four hexadecimal digits$"):
        parse_properties(f"a=1\npassword=secret{escape}\n", "f")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\ufefflisteners=SSL://:1", {"listeners": "SSL://:1"}),
        ("p=\\ud83d\\ude00", {"p": "\U0001f600"}),  # as Java writes it
        ("p=a\u2028b=c\x0bd\x85e", {"p": "a\u2028b=c\x0bd\x85e"}),  # none of them ends a line in Java
        ("p=\xa0a\xa0", {"p": "\xa0a\xa0"}),
        ("a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\\ \nauthorizer.class.name=x", {"a": "1", "authorizer.class.name": "x"}),  # an escaped blank goes on
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
    ],
)
def test_lines_and_blanks_are_those_of_java(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text, "f") == expected


def test_unknown_broker_keys_are_kept_for_plugins_and_reported() -> None:
    config = BrokerConfig({"rsm.config.url": "file:///x", "controller.quorum.election.timeout.ms": "1000"})
    assert config.prefixed("rsm.config.") == {"url": "file:///x"}
    assert set(config.unknown) == {"rsm.config.url", "controller.quorum.election.timeout.ms"}


def test_a_copy_lag_in_time_alone_is_not_undone_by_the_default_in_bytes() -> None:
    config = LogConfig.from_properties({"remote.copy.lag.ms": "60000"})
    assert (config.remote_copy_lag_ms, config.remote_copy_lag_bytes) == (60_000, -1)


@pytest.mark.parametrize(
    ("segment_bytes", "interval_bytes", "needed"),
    [
        (8 * 2**30, 4096, 24 * 2**20),  # the example of KIP-1333
        (2**30, 4096, 3 * 2**20),
        (4097, 4096, 24),  # a part of an interval may have its entry too
        (610, 0, 120),  # an entry a batch, and no batch is smaller than its header
    ],
)
def test_an_index_is_sized_by_entries_of_12_bytes(segment_bytes: int, interval_bytes: int, needed: int) -> None:
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval_bytes)
    assert index_size_needed(config) == needed


def test_what_is_not_a_default_is_reported_as_text_that_makes_the_same_configuration() -> None:
    properties = {
        "retention.ms": "-1",
        "cleanup.policy": "compact,delete",
        "preallocate": "true",
        "segment.bytes": "1048576",
        "min.cleanable.dirty.ratio": "0.1",
        "message.timestamp.type": "LogAppendTime",
    }
    config = LogConfig.from_properties(properties)
    assert changed_properties(config) == properties
    assert LogConfig.from_properties(changed_properties(config)) == config
    assert changed_properties(LogConfig()) == {}
