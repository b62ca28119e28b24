"""Throttled replication (KIP-73): the rate, who counts in it, and who waits."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.engine.test_log_manager import batch
from tests.engine.test_replicas import Pair, pair, until

from stratalog.engine.replication import ReplicationThrottle

__all__ = ["pair"]


class _Time:
    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


def throttle(time: Any, limit: int = 1000, *, windows: int = 11) -> ReplicationThrottle:
    return ReplicationThrottle(time, 2, lambda: limit, windows=windows, window_ms=1000)


def test_the_rate_is_over_the_windows_that_have_begun() -> None:
    time = _Time()
    measured = throttle(time)
    assert measured.rate() == 0
    measured.record(500)
    assert measured.rate() == 500  # never over less than a window
    time.now_s += 2
    measured.record(1500)
    assert measured.rate() == 1000
    assert not measured.is_exceeded
    measured.record(1)
    assert measured.is_exceeded
    time.now_s += 2
    assert measured.rate() == 2001 / 4


def test_what_is_older_than_all_windows_counts_no_more() -> None:
    time = _Time()
    measured = throttle(time, windows=3)
    measured.record(900)
    time.now_s += 2.9
    measured.record(300)
    assert measured.rate() == pytest.approx(1200 / 2.9)
    time.now_s += 0.1
    assert measured.rate() == pytest.approx(300 / 1)
    time.now_s += 3
    assert measured.rate() == 0


@pytest.mark.parametrize(
    ("replicas", "partition", "is_throttled"),
    [
        ((), 0, False),
        (("*",), 7, True),
        (("0:2", "1:3"), 0, True),
        (("0:2", "1:3"), 1, False),
        (("1:22", "12:2"), 1, False),
        (("1:22", "012:2"), 12, True),
    ],
)
def test_a_topic_names_the_replicas_that_count(replicas: tuple[str, ...], partition: int, is_throttled: bool) -> None:
    assert throttle(_Time()).is_throttled(replicas, partition) is is_throttled


def _throttle(pair: Pair, node: int, side: str) -> None:
    """Let a broker's replicas of the topic count, with a rate that one batch uses up."""
    log = pair.partition(node).log
    if side == "leader":
        log.config = replace(log.config, leader_replication_throttled_replicas=("*",))
    else:
        log.config = replace(log.config, follower_replication_throttled_replicas=("*",))
    engine = pair.engines[node]
    changed = {**engine.config.properties, f"{side}.replication.throttled.rate": "1"}
    engine.update_broker_config(type(engine.config).from_properties(changed))


def _leave(pair: Pair) -> None:
    """Let broker 2 fall out of the ISR, with a record that it lacks."""
    pair.publish()
    pair.unreachable = {2}
    pair.partition(1).append(batch(b"v"))
    replication = pair.engines[1].replication
    assert replication is not None

    def has_left() -> bool:
        replication.shrink_isrs()
        return pair.assigned.isr == (1,)

    until(has_left)


def test_a_follower_that_is_not_in_sync_waits_until_the_rate_allows_more(pair: Pair) -> None:
    _leave(pair)
    _throttle(pair, 2, "follower")
    replication = pair.engines[2].replication
    assert replication is not None
    replication.throttles.follower.record(1_000_000)
    (following,) = replication.fetchers.followings()
    following.is_in_sync = False
    pair.unreachable = set()
    asked: list[int] = []
    fetch = pair.fetch

    def note(leader: int, fields: dict[str, Any]) -> Any:
        asked.append(leader)
        return fetch(leader, fields)

    pair.fetch = note  # type: ignore[method-assign]
    before = following.due_s
    until(lambda: following.due_s > before)
    assert asked == []
    assert pair.partition(2).log.log_end_offset == 0
    engine = pair.engines[2]
    properties = {**engine.config.properties, "follower.replication.throttled.rate": "100000000"}
    engine.update_broker_config(type(engine.config).from_properties(properties))
    until(lambda: pair.partition(2).log.log_end_offset == 1)
    until(lambda: set(pair.assigned.isr) == {1, 2})


def _has(pair: Pair, count: int) -> bool:
    """Return whether the follower has so many records, and knows that they are committed."""
    log = pair.partition(2).log
    return log.log_end_offset == log.high_watermark == count


def test_what_a_throttled_follower_fetches_counts_in_sync_or_not(pair: Pair) -> None:
    pair.publish()
    _throttle(pair, 2, "follower")
    replication = pair.engines[2].replication
    assert replication is not None
    for count in range(1, 4):  # in sync, it does not wait
        size = len(batch(b"v"))
        pair.partition(1).append(batch(b"v"))
        until(partial(_has, pair, count))
        assert replication.throttles.follower.rate() > 0.01 * count * size


def test_a_leader_holds_back_those_that_are_not_in_sync(pair: Pair) -> None:
    pair.publish()
    led = pair.partition(1).led
    assert led is not None
    _throttle(pair, 1, "leader")
    replication = pair.engines[1].replication
    assert replication is not None
    replication.throttles.leader.record(1_000_000)
    assert led.is_throttled
    assert not led.is_held_back(2), "it is in sync"
    assert led.is_held_back(3)
    replication.throttles.config = pair.engines[2].config
    assert not led.is_held_back(3), "the other configuration has no limit"
