"""How much a trigger takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings, strategies as st

from stratalog.errors import UsageError
from stratalog.spark.options.read_options import LimitKind
from stratalog.spark.stream.admission import (
    TriggerLimits,
    limited_by_offsets,
    must_wait,
    shares,
    total_lag,
)
from stratalog.spark.stream.options import StreamOptions, parse_for_either, trigger_limits

PARTITIONS = [("a", 0), ("a", 1), ("b", 0), ("c", 7)]

begins = st.fixed_dictionaries({key: st.integers(0, 10**12) for key in PARTITIONS})
lags = st.fixed_dictionaries({key: st.integers(0, 10**9) | st.just(0) for key in PARTITIONS})


@given(begins, lags, st.integers(1, 10**10))
@settings(deadline=None)
def test_a_limit_is_kept_and_no_one_starves(begin: dict[Any, int], lag: dict[Any, int], limit: int) -> None:
    """A batch is within the log, at most one record a partition over the limit, and every partition that lags gets
    on."""
    latest = {key: begin[key] + lag[key] for key in begin}
    end = limited_by_offsets(limit, begin, latest)
    taken = {key: end[key] - begin[key] for key in begin}
    assert all(0 <= taken[key] <= lag[key] for key in begin)
    assert all(taken[key] > 0 for key in begin if lag[key])
    assert sum(taken.values()) <= limit + len(begin)


@given(begins, lags, st.integers(1, 10**6))
@settings(deadline=None)
def test_a_stream_with_a_limit_comes_to_the_end(begin: dict[Any, int], lag: dict[Any, int], limit: int) -> None:
    """Batch by batch, every partition reaches its latest offset."""
    assume(sum(lag.values()) <= 50 * limit)
    latest = {key: begin[key] + lag[key] for key in begin}
    at = dict(begin)
    for _ in range(200 * len(begin)):
        at = limited_by_offsets(limit, at, latest)
    assert at == latest


@given(st.dictionaries(st.sampled_from(PARTITIONS), st.integers(1, 10**15), min_size=1), st.integers(1, 10**15))
@settings(deadline=None)
def test_shares_are_in_proportion(waiting: dict[Any, int], limit: int) -> None:
    """No one gets more than his part, rounded down, but for one where that would be nothing."""
    total = sum(waiting.values())
    for key, share in shares(limit, waiting).items():
        exact = limit * waiting[key] / total
        assert share == 1 if exact < 1 else exact - 1 - exact * 1e-9 <= share <= exact * (1 + 1e-9)


def test_the_numbers_of_sparks_kafka_source() -> None:
    """Worked by hand from its rule: limit x lag / total, floor, or 1 for less than 1."""
    begin = {("t", 0): 100, ("t", 1): 0, ("t", 2): 5, ("t", 3): 9}
    latest = {("t", 0): 1100, ("t", 1): 10, ("t", 2): 5, ("t", 3): 8}
    assert limited_by_offsets(50, begin, latest) == {
        ("t", 0): 149,  # 50 * 1000 / 1010 = 49.5
        ("t", 1): 1,  # 50 * 10 / 1010 = 0.495
        ("t", 2): 5,
        ("t", 3): 8,  # shorter than what was read: reported elsewhere
    }


def test_a_minimum_holds_back_until_its_delay_is_over() -> None:
    limits = TriggerLimits(offsets_min=10, delay_max_ms=1000)
    assert must_wait(limits, 9, 999)
    assert not must_wait(limits, 10, 0)
    assert not must_wait(limits, 0, 1000)
    assert not must_wait(TriggerLimits(offsets_max=5), 0, 0)


def test_the_lag_counts_new_partitions_from_zero() -> None:
    assert total_lag({("a", 0): 5}, {("a", 0): 7, ("a", 1): 3}) == 5


# --- options ----------------------------------------------------------------------------------------------------------


def test_limits_are_read_from_options_of_any_case() -> None:
    assert trigger_limits(
        {
            "MAXOFFSETSPERTRIGGER": "10",
            "minoffsetspertrigger": "2",
            "maxTriggerDelay": "5m",
            "maxBytesPerTrigger": "2m",
        }
    ) == TriggerLimits(10, 2, 2 << 20, 300_000)
    assert not trigger_limits({}).any


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger=0"),
        ({"minOffsetsPerTrigger": "many"}, "minOffsetsPerTrigger=many"),
        ({"maxBytesPerTrigger": "-5"}, "maxBytesPerTrigger=-5"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay=soon"),
        ({"remotePollInterval": "often"}, "remotePollInterval=often"),
        ({"minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"}, "minOffsetsPerTrigger=11"),
        ({"endingOffsets": "latest"}, "endingOffsets=latest"),
        ({"endingTimestamp": "5"}, "endingTimestamp=5"),
        ({"startingOffsets": "sometimes"}, "startingOffsets=sometimes"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, "startingOffsets"),
        ({"startingOfsets": "latest"}, "startingOfsets=latest"),
    ],
)
def test_a_wrong_option_of_a_stream_is_named(options: dict[str, str], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        StreamOptions.parse({"path": "/data", "subscribe": "a"} | options)


@pytest.mark.parametrize("starting", ["earliest", "latest", '{"a":{"0":-1,"1":-2,"2":7}}'])
def test_a_stream_may_begin_anywhere(starting: str) -> None:
    options = {"path": "/data", "subscribe": "a", "startingOffsets": starting}
    assert StreamOptions.parse(options).read.starting.option == "startingOffsets"


def test_options_are_checked_when_a_query_is_written_down() -> None:
    base = {"path": "/data", "subscribe": "a"}
    assert parse_for_either(base | {"startingOffsets": "latest"}).starting.kind is LimitKind.LATEST
    assert parse_for_either(base | {"endingOffsets": "latest", "maxOffsetsPerTrigger": "5"}).paths == ("/data",)
    with pytest.raises(UsageError, match="splitBytes"):
        parse_for_either(base | {"startingOffsets": "latest", "splitBytes": "none"})
    with pytest.raises(UsageError, match="maxOffsetsPerTrigger"):
        parse_for_either(base | {"maxOffsetsPerTrigger": "none"})
