"""Why a segment is still local, or not yet remote: one test a reason."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given, settings, strategies as st

from stratalog.config.topic import LogConfig
from stratalog.remote.tier.status import Reason, TaskFailure, TierFacts, partition_status
from stratalog.remote.tier.watchdog import Step, StepKind

NOW_MS = 1_000_000
CONFIG = LogConfig(remote_storage_enable=True, retention_ms=-1)
COPYING = Step(StepKind.STORE, "the store")


@dataclass(frozen=True)
class Segment:
    base_offset: int
    size_bytes: int = 100
    timestamp_ms: int = 0

    def largest_timestamp(self) -> int:
        return self.timestamp_ms


def facts(**changes: Any) -> TierFacts:
    """Four segments of ten offsets, the last one active; the first is remote."""
    made = TierFacts(
        topic="t",
        partition=0,
        config=CONFIG,
        segments=[Segment(base) for base in (0, 10, 20, 30)],
        log_start_offset=0,
        local_log_start_offset=0,
        last_stable_offset=40,
        high_watermark=40,
        log_end_offset=40,
        highest_remote_offset=9,
        now_ms=NOW_MS,
    )
    return replace(made, **changes)


def reasons(**changes: Any) -> list[Reason]:
    return [segment.reason for segment in partition_status(facts(**changes)).segments]


def test_segments_that_are_due_wait_for_their_turn_and_the_active_one_for_its_roll() -> None:
    assert reasons() == [Reason.LOCAL_RETENTION, Reason.WAITING, Reason.WAITING, Reason.ACTIVE_SEGMENT]
    status = partition_status(facts())
    assert (status.reason, status.lag_segments, status.lag_bytes) == (Reason.WAITING, 2, 200)
    assert "offset 10 on" in status.text
    assert not status.is_failing


def test_the_first_segment_that_is_due_is_the_one_that_is_copied() -> None:
    found = reasons(step=COPYING)
    assert found[1:3] == [Reason.COPYING, Reason.WAITING]


def test_a_copy_may_wait_for_its_quota() -> None:
    status = partition_status(facts(step=Step(StepKind.QUOTA, "the copy quota of 10")))
    assert status.reason is Reason.QUOTA
    assert "remote.log.manager.copy.max.bytes.per.second" in status.text


def test_what_an_open_transaction_reaches_into_is_above_the_lso() -> None:
    found = reasons(last_stable_offset=25)
    assert found[1:3] == [Reason.WAITING, Reason.ABOVE_LSO]
    assert "LSO 15" in partition_status(facts(last_stable_offset=15)).text


def test_the_copy_lag_keeps_young_segments_back_and_everything_behind_them() -> None:
    lagging = replace(CONFIG, remote_copy_lag_ms=1_000, remote_copy_lag_bytes=10_000)
    segments = [Segment(0), Segment(10, timestamp_ms=NOW_MS - 10), Segment(20), Segment(30)]
    status = partition_status(facts(config=lagging, segments=segments))
    assert [one.reason for one in status.segments][1:3] == [Reason.COPY_LAG, Reason.COPY_LAG]
    assert "remote.copy.lag.ms=1000" in status.text


def test_a_copy_that_fails_says_how_often_and_with_what() -> None:
    failure = TaskFailure("copy", 3, 5, "the bucket orders does not exist")
    status = partition_status(facts(failures=[failure]))
    assert status.reason is Reason.FAILING
    assert status.is_failing
    assert "3 times" in status.text
    assert "the bucket orders does not exist" in status.text


def test_a_failure_counts_also_while_the_next_attempt_is_under_way() -> None:
    status = partition_status(facts(failures=[TaskFailure("copy", 1, 5, "denied")], step=COPYING))
    assert status.reason is Reason.FAILING


def test_a_failure_of_another_task_is_a_failure_but_no_reason() -> None:
    status = partition_status(facts(failures=[TaskFailure("expiration", 1, 5, "denied")]))
    assert status.reason is Reason.WAITING
    assert status.is_failing


def test_copies_that_were_ended_for_good_are_failing() -> None:
    status = partition_status(facts(is_stopped=True))
    assert (status.reason, status.is_failing) == (Reason.FAILING, True)
    assert "custom metadata" in status.text


def test_what_holds_for_the_topic_holds_for_all_that_is_not_remote() -> None:
    whole = [
        (Reason.COPY_DISABLED, {"config": replace(CONFIG, remote_log_copy_disable=True)}),
        (Reason.DISABLED, {"config": replace(CONFIG, remote_storage_enable=False)}),
        (Reason.DISABLED, {"is_available": False}),
        (Reason.FOLLOWER, {"is_leader": False}),
    ]
    for reason, changes in whole:
        assert isinstance(changes, dict)
        assert reasons(**changes) == [Reason.LOCAL_RETENTION, reason, reason, reason]


def test_an_empty_active_segment_is_nothing_to_wait_for() -> None:
    segments = [Segment(0), Segment(10, size_bytes=0)]
    status = partition_status(facts(segments=segments, log_end_offset=10, high_watermark=10, last_stable_offset=10))
    assert status.reason is Reason.UP_TO_DATE
    assert (status.lag_segments, status.lag_bytes) == (0, 0)


def test_a_segment_below_the_log_start_is_not_waited_for() -> None:
    assert reasons(highest_remote_offset=-1, log_start_offset=15)[:2] == [
        Reason.LOCAL_RETENTION,
        Reason.WAITING,
    ]


@settings(deadline=None)
@given(
    remote=st.integers(-1, 39),
    stable=st.integers(0, 40),
    start=st.integers(0, 40),
    step=st.sampled_from([None, COPYING, Step(StepKind.QUOTA, "the copy quota of 10")]),
)
def test_the_lag_is_what_is_sealed_and_not_remote(remote: int, stable: int, start: int, step: Step | None) -> None:
    """Whatever holds a segment back, it counts as lag if and only if it is sealed, wanted and not remote."""
    status = partition_status(
        facts(highest_remote_offset=remote, last_stable_offset=stable, log_start_offset=start, step=step)
    )
    expected = [base for base in (0, 10, 20) if base + 10 > max(remote + 1, start)]
    assert status.lag_segments == len(expected)
    assert sum(one.reason in (Reason.COPYING, Reason.QUOTA) for one in status.segments) <= 1
