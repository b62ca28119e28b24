from __future__ import annotations

from stratalog.remote.tier.quota import RateQuota
from stratalog.testing.clock import ManualClock


def test_within_the_limit_no_one_waits() -> None:
    quota = RateQuota(100, 11, 1, ManualClock())
    assert quota.throttle_ms() == 0
    quota.record(100)
    assert quota.throttle_ms() == 0


def test_above_the_limit_one_waits_until_the_rate_is_back_at_it() -> None:
    clock = ManualClock()
    quota = RateQuota(100, 11, 1, clock)
    quota.record(500)
    assert quota.throttle_ms() == 4_000, "a rate is measured over one window at least"
    clock.advance(4_999)
    assert quota.throttle_ms() == 1
    clock.advance(1)
    assert quota.throttle_ms() == 0


def test_over_a_long_time_the_rate_is_the_limit() -> None:
    clock = ManualClock()
    quota = RateQuota(1_000, 11, 1, clock)
    sent, start = 0, clock.monotonic()
    for _ in range(200):
        while quota.throttle_ms() > 0:
            clock.advance(quota.throttle_ms())
        quota.record(700)
        sent += 700
    rate = sent / (clock.monotonic() - start)
    assert 900 < rate < 1_100


def test_what_lies_before_the_windows_is_forgotten() -> None:
    clock = ManualClock()
    quota = RateQuota(100, 3, 1, clock)
    quota.record(10_000)
    clock.advance(3_000)
    assert quota.throttle_ms() == 0


def test_the_default_limit_never_throttles() -> None:
    quota = RateQuota(2**63 - 1, 11, 1, ManualClock())
    quota.record(2**40)
    assert quota.throttle_ms() == 0


def test_a_caller_within_the_limit_gets_through_and_the_next_waits_and_is_counted() -> None:
    clock = ManualClock()
    quota = RateQuota(100, 11, 1, clock)
    assert quota.acquire(500) == 0
    assert quota.acquire(1) == 4_000
    clock.advance(1_000)
    assert quota.shed_ms() == 4_000, "the rate is measured over the time that has gone by"
    clock.advance(3_000)
    assert quota.acquire(1) == 1_000
    clock.advance(1_000)
    assert quota.acquire(1) == 0
    assert (quota.throttled.times, quota.throttled.max_ms) == (3, 4_000)
    assert quota.throttled.total_ms == 4_000 + 4_000 + 1_000


def test_a_limit_changes_live() -> None:
    clock = ManualClock()
    quota = RateQuota(100, 11, 1, clock)
    quota.record(500)
    quota.bytes_per_second = 1_000
    assert quota.throttle_ms() == 0
    quota.bytes_per_second = 50
    assert quota.throttle_ms() == 9_000
