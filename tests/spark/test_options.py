"""Options: what is accepted, and that every wrong one is named with its value and what was expected."""

from __future__ import annotations

import pytest

from stratalog.errors import UsageError
from stratalog.spark.options.read_options import LimitKind, ReadOptions

BASE = {"path": "/data", "subscribe": "orders"}


def parse(**options: str) -> ReadOptions:
    return ReadOptions.parse(BASE | {name.replace("__", "."): value for name, value in options.items()})


def test_the_defaults() -> None:
    options = ReadOptions.parse(BASE)
    assert options.paths == ("/data",)
    assert options.starting.kind is LimitKind.EARLIEST
    assert options.ending.kind is LimitKind.LATEST
    assert options.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert options.fail_on_data_loss
    assert not options.read_committed
    assert options.split_bytes == 128 * 1024 * 1024
    assert options.timestamp_disorder_ms is None
    assert options.push_filters is None


def test_names_are_not_case_sensitive() -> None:
    assert ReadOptions.parse({"PATH": "/data", "Subscribe": "a"}).subscription.topics == {"a"}


def test_several_paths() -> None:
    assert parse(path="/a, /b").paths == ("/a", "/b")
    assert ReadOptions.parse({"paths": '["/a","/b"]', "subscribe": "t"}).paths == ("/a", "/b")


def test_options_of_the_store_lose_their_prefix() -> None:
    options = parse(remote="s3://bucket/tiered", remote__endpoint="http://127.0.0.1:1", remote__region="here")
    assert options.remote_url == "s3://bucket/tiered"
    assert options.remote_options == {"endpoint": "http://127.0.0.1:1", "region": "here"}


def test_options_of_a_consumer_are_accepted() -> None:
    parse(kafka__bootstrap__servers="somewhere:9092", groupIdPrefix="x", maxOffsetsPerTrigger="5")


def test_headers_come_with_their_option() -> None:
    assert parse(includeHeaders="true").columns[-1] == "headers"
    assert parse(columns="offset, VALUE").columns == ("offset", "value")
    assert parse(columns="headers").columns == ("headers",)


def test_limits_by_partition() -> None:
    options = parse(
        startingOffsets='{"orders":{"0":23,"1":-2}}',
        endingOffsetsByTimestamp='{"orders":{"0":1700000000000}}',
        endingOffsets="latest",
    )
    assert options.starting.by_partition == {("orders", 0): 23, ("orders", 1): -2}
    assert options.ending.kind is LimitKind.TIMESTAMPS  # before endingOffsets, as in Spark's source


def test_one_timestamp_comes_before_all_others() -> None:
    options = parse(startingTimestamp="5", startingOffsetsByTimestamp='{"orders":{"0":7}}', startingOffsets="earliest")
    assert (options.starting.kind, options.starting.timestamp_ms) == (LimitKind.TIMESTAMP, 5)


@pytest.mark.parametrize(
    ("text", "expected"), [("0", 0), ("500", 500), ("30s", 30_000), ("10 m", 600_000), ("1h", 3_600_000)]
)
def test_durations(text: str, expected: int) -> None:
    assert parse(timestampDisorder=text).timestamp_disorder_ms == expected


@pytest.mark.parametrize(("text", "expected"), [("1", 1), ("64k", 65536), ("2MB", 2 << 20), ("1 GiB", 1 << 30)])
def test_sizes(text: str, expected: int) -> None:
    assert parse(splitBytes=text).split_bytes == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("startingOffsets", "latest"),
        ("startingOffsets", "soon"),
        ("startingOffsets", '{"orders":{"0":-1}}'),
        ("startingOffsets", '{"orders":{"0":-3}}'),
        ("startingOffsets", '{"orders":{"0":1.5}}'),
        ("startingOffsets", '{"orders":{"0":true}}'),
        ("startingOffsets", '{"orders":{"zero":1}}'),
        ("startingOffsets", '{"orders":{"0":1,"0":2}}'),
        ("startingOffsets", '{"orders":{}}'),
        ("startingOffsets", "{}"),
        ("startingOffsets", "{"),
        ("endingOffsets", "earliest"),
        ("endingOffsets", '{"orders":{"0":-2}}'),
        ("startingTimestamp", "yesterday"),
        ("startingTimestamp", "-5"),
        ("endingOffsetsByTimestamp", '{"orders":{"0":-5}}'),
        ("startingOffsetsByTimestampStrategy", "earliest"),
        ("includeHeaders", "yes"),
        ("failOnDataLoss", "1"),
        ("minPartitions", "0"),
        ("minPartitions", "many"),
        ("maxRecordsPerPartition", "-1"),
        ("splitBytes", "0"),
        ("splitBytes", "1x"),
        ("isolationLevel", "serializable"),
        ("columns", "value,size"),
        ("columns", "value,value"),
        ("columns", ","),
        ("timestampDisorder", "1 fortnight"),
        ("pushFilters", "maybe"),
        ("subscribe", "a,,b"),
        ("subscribe", " "),
        ("startingofsets", "earliest"),
    ],
)
def test_an_error_names_option_and_value(name: str, value: str) -> None:
    with pytest.raises(UsageError) as raised:
        ReadOptions.parse(BASE | {name: value})
    message = str(raised.value)
    assert name in message
    assert value.strip() in message
    assert "\n" not in message


@pytest.mark.parametrize("value", ["(", "[a-"])
def test_a_bad_pattern_is_named(value: str) -> None:
    with pytest.raises(UsageError, match=r"subscribePattern=.*expected a regular expression"):
        ReadOptions.parse({"path": "/data", "subscribePattern": value})


@pytest.mark.parametrize("value", ["{", '{"a":[]}', '{"a":["0"]}', '{"a":[-1]}', "[]"])
def test_a_bad_assignment_is_named(value: str) -> None:
    with pytest.raises(UsageError, match="option assign="):
        ReadOptions.parse({"path": "/data", "assign": value})


def test_exactly_one_option_says_what_to_read() -> None:
    with pytest.raises(UsageError, match="exactly one"):
        ReadOptions.parse({"path": "/data"})
    with pytest.raises(UsageError, match="exactly one"):
        ReadOptions.parse({"path": "/data", "subscribe": "a", "assign": '{"a":[0]}'})


def test_there_must_be_something_to_read() -> None:
    with pytest.raises(UsageError, match="path"):
        ReadOptions.parse({"subscribe": "a"})


def test_a_pattern_does_not_mean_internal_topics() -> None:
    subscription = ReadOptions.parse({"path": "/data", "subscribePattern": ".*"}).subscription
    assert subscription.wants("orders", 0)
    assert not subscription.wants("__consumer_offsets", 0)
    assert ReadOptions.parse({"path": "/data", "subscribe": "__consumer_offsets"}).subscription.wants(
        "__consumer_offsets", 0
    )


def test_a_pattern_is_looked_for_in_the_name() -> None:
    subscription = ReadOptions.parse({"path": "/data", "subscribePattern": "order"}).subscription
    assert subscription.wants_topic("orders")
    subscription = ReadOptions.parse({"path": "/data", "subscribePattern": "^order$"}).subscription
    assert not subscription.wants_topic("orders")
