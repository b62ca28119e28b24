"""How long requests took: counts and sums are exact, quantiles nearly so, and old ones weigh less."""

from __future__ import annotations

import math
import random
from statistics import fmean, pstdev

import pytest

from stratalog.broker import request_times
from stratalog.broker.request_times import QUANTILES, NamedRequestTimes, RequestNote, RequestPart, RequestTimes


def add(times: NamedRequestTimes, total_ms: float, *, count: int = 1, version: int = 3, size: float = 100) -> None:
    """Add requests that took so long, half of it in the broker and half in a wait."""
    begun = 1_000.0
    half_s = total_ms / 2000
    answered = begun + 2 * half_s
    note = RequestNote(
        version, requests=count, size=size, received=begun, begun=begun, worked=begun + half_s, answered=answered
    )
    times.add(note, answered, answered)


def test_quantiles_are_right_within_five_percent() -> None:
    times = NamedRequestTimes()
    chance = random.Random(7)
    values = [chance.lognormvariate(1, 2) for _ in range(500)]
    for value in values:
        add(times, value)
    times.settle()
    found = times.summary(RequestPart.TOTAL)
    assert found.requests == 500
    assert found.total == pytest.approx(sum(values))
    spread = times.spread(RequestPart.TOTAL)
    assert spread == pytest.approx((min(values), max(values), fmean(values), pstdev(values)))
    values.sort()
    for quantile, value in zip(QUANTILES, found.quantiles, strict=True):
        assert value == pytest.approx(values[math.ceil(quantile * 500) - 1], rel=0.05)


def test_parts_add_up_to_the_whole_time() -> None:
    times = NamedRequestTimes()
    note = RequestNote(1, requests=1, size=10, received=1.0, begun=1.001, worked=1.003, answered=1.007, throttle_ms=5)
    times.add(note, 1.015, 1.031)
    times.settle()
    found = {part: times.summary(part).total for part in RequestPart}
    expected = {"QUEUE": 1, "LOCAL": 2, "REMOTE": 4, "RESPONSE_QUEUE": 8, "SEND": 16, "TOTAL": 31, "THROTTLE": 5}
    for name, value in expected.items():
        assert found[RequestPart[name]] == pytest.approx(value)
    assert found[RequestPart.BYTES] == 10
    for part, only in found.items():
        assert times.spread(part) == pytest.approx((only, only, only, 0.0), abs=1e-9)


def test_counts_and_sums_are_exact_when_only_some_are_looked_at() -> None:
    times = NamedRequestTimes()
    for number in range(5_000):
        add(times, 2.0, count=1 + number % 3, version=number % 2)
    times.settle()
    counts = [1 + number % 3 for number in range(5_000)]
    assert times.versions == {0: sum(counts[::2]), 1: sum(counts[1::2])}
    found = times.summary(RequestPart.TOTAL)
    assert found.total == pytest.approx(2.0 * sum(counts))
    assert found.quantiles == pytest.approx([2.0] * len(QUANTILES), rel=0.05)
    assert times.summary(RequestPart.BYTES).total == pytest.approx(100 * sum(counts))


def test_the_longest_request_is_known_when_only_some_are_looked_at() -> None:
    times = NamedRequestTimes()
    for number in range(5_000):
        add(times, 80.0 if number == 4_001 else 2.0)
    times.settle()
    for part, value in ((RequestPart.TOTAL, 80.0), (RequestPart.LOCAL, 40.0), (RequestPart.REMOTE, 40.0)):
        assert times.spread(part).max == pytest.approx(value)
        assert times.spread(part).min == pytest.approx(1.0 if value == 40.0 else 2.0)


def test_one_that_stands_for_many_weighs_as_many() -> None:
    times = NamedRequestTimes()
    add(times, 1.0, count=98)
    add(times, 50.0, count=2)
    times.settle()
    quantiles = dict(zip(QUANTILES, times.summary(RequestPart.TOTAL).quantiles, strict=True))
    assert quantiles[0.98] == pytest.approx(1.0, rel=0.05)
    assert quantiles[0.99] == pytest.approx(50.0, rel=0.05)


def test_what_is_old_weighs_less(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(request_times, "perf_counter", lambda: now)
    times = NamedRequestTimes()
    add(times, 50.0, count=100)
    times.settle()
    now = 600.0
    add(times, 1.0, count=10)
    times.settle()
    found = times.summary(RequestPart.TOTAL)
    assert found.quantiles[QUANTILES.index(0.95)] == pytest.approx(1.0, rel=0.05)
    assert found.requests == 110
    assert times.spread(RequestPart.TOTAL).max == pytest.approx(50.0)


def test_quantiles_stay_when_no_more_requests_come(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(request_times, "perf_counter", lambda: now)
    times = NamedRequestTimes()
    add(times, 7.0)
    times.settle()
    now = 1e6
    times.settle()
    assert times.summary(RequestPart.TOTAL).quantiles == pytest.approx([7.0] * len(QUANTILES), rel=0.05)


def test_names_without_a_request_are_left_out() -> None:
    times = RequestTimes()
    times.of("Produce")
    add(times.of("Metadata"), 1.0)
    assert [name for name, _ in times.items()] == ["Metadata"]
    assert times.of("Produce").spread(RequestPart.TOTAL) == (0.0, 0.0, 0.0, 0.0)
    assert times.of("Produce").summary(RequestPart.TOTAL) == (0, 0.0, (0.0,) * len(QUANTILES))
