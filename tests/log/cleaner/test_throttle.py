"""The throttle of the cleaners' input and output."""

from __future__ import annotations

from stratalog.log.cleaner.throttle import Throttle
from stratalog.testing.clock import ManualClock


def test_below_the_rate_no_one_sleeps() -> None:
    clock = ManualClock(0)
    throttle = Throttle(1_000, clock=clock)
    for _ in range(10):
        clock.advance(100)
        throttle.maybe_throttle(100)
    assert clock.now_ms() == 1_000


def test_what_is_over_the_rate_is_slept_off_at_the_end_of_the_period() -> None:
    clock = ManualClock(0)
    throttle = Throttle(1_000, clock=clock)
    throttle.maybe_throttle(500)
    assert clock.now_ms() == 0, "the period of 300 ms is not over"
    clock.advance(400)
    throttle.maybe_throttle(500)
    assert clock.now_ms() == 1_000


def test_a_period_begins_again_behind_the_sleep() -> None:
    clock = ManualClock(0)
    throttle = Throttle(1_000, clock=clock)
    clock.advance(400)
    throttle.maybe_throttle(1_000)
    clock.advance(400)
    throttle.maybe_throttle(400)
    assert clock.now_ms() == 1_400


def test_another_rate_counts_at_once() -> None:
    clock = ManualClock(0)
    throttle = Throttle(clock=clock)
    clock.advance(400)
    throttle.maybe_throttle(1 << 40)
    assert clock.now_ms() == 400
    throttle.bytes_per_second = 1_000
    clock.advance(400)
    throttle.maybe_throttle(800)
    assert clock.now_ms() == 400 + 800
