from __future__ import annotations

import logging

import pytest

from stratalog.remote.tier.watchdog import Stall, StepKind, Watchdog
from stratalog.testing.clock import ManualClock
from tests.remote.values import PARTITION

STALL_MS = 120_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def watchdog(clock: ManualClock) -> Watchdog:
    return Watchdog(STALL_MS, clock)


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_task_that_stands_still_is_reported_once_with_what_it_waits_for_and_when_it_goes_on(
    clock: ManualClock, watchdog: Watchdog, caplog: pytest.LogCaptureFixture
) -> None:
    progress = watchdog.watch(PARTITION, "copy")
    began = clock.now_ms()
    progress.note(StepKind.STORE, "the store")
    clock.advance(STALL_MS - 1)
    watchdog.look()
    assert (watchdog.stalls, _lines(caplog)) == ({}, [])
    clock.advance(1)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            watchdog.look()
    assert watchdog.stalls == {(PARTITION, "copy"): Stall(began, "the store")}
    assert _lines(caplog) == [f"copy of {PARTITION} has made no progress for 120 s; it waits for the store"]
    clock.advance(5_000)
    progress.note(StepKind.STORE, "the metadata")
    with caplog.at_level(logging.WARNING):
        watchdog.look()
    assert watchdog.stalls == {}
    assert _lines(caplog)[1:] == [f"copy of {PARTITION} continues after 125 s; it waited for the store"]


def test_what_advances_or_is_idle_does_not_stand_still(clock: ManualClock, watchdog: Watchdog) -> None:
    moving, idle = watchdog.watch(PARTITION, "copy"), watchdog.watch(PARTITION, "expiration")
    moving.note(StepKind.STORE, "the store")
    idle.note(StepKind.STORE, "the store")
    idle.end()
    idle.advance()
    for _ in range(5):
        clock.advance(STALL_MS - 1)
        moving.advance()
        watchdog.look()
        assert watchdog.stalls == {}


def test_a_partition_that_is_stopped_is_no_longer_watched(clock: ManualClock, watchdog: Watchdog) -> None:
    watchdog.watch(PARTITION, "copy").note(StepKind.STORE, "the store")
    clock.advance(STALL_MS)
    watchdog.look()
    assert len(watchdog.stalls) == 1
    watchdog.forget(PARTITION)
    watchdog.look()
    assert watchdog.stalls == {}
