"""The forecast for the remote tier against the plan of every later time."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings, strategies as st

from stratalog.config.topic import LogConfig
from stratalog.jobs.retention.fate import Hold, Tier
from stratalog.jobs.retention.remote_forecast import forecast_remote
from stratalog.remote.tier.retention import ExpirationReason, plan_expiration
from tests.remote.test_retention import FACTS, FINISHED, NOW, STARTED, finished, row
from tests.remote.values import segment

BY_RETENTION = (ExpirationReason.TIME, ExpirationReason.SIZE)


@settings(deadline=None, max_examples=400)
@given(
    shapes=st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 15), st.integers(1, 100), st.integers(-500, 500)),
        max_size=8,
    ),
    retention_ms=st.integers(-1, 600),
    retention_bytes=st.integers(-1, 300),
    only_local=st.integers(0, 100),
    start=st.integers(0, 20),
    later_ms=st.integers(0, 1500),
)
def test_what_is_due_at_a_time_is_what_the_plan_of_that_time_takes(
    shapes: list[tuple[int, int, int, int]],
    retention_ms: int,
    retention_bytes: int,
    only_local: int,
    start: int,
    later_ms: int,
) -> None:
    """Time and size take a segment by a time exactly if the forecast has it due by then."""
    segments = [
        finished(n, at, at + length, size=size, max_timestamp=NOW + age)
        for n, (at, length, size, age) in enumerate(shapes)
    ]
    facts = replace(
        FACTS,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        only_local_bytes=only_local,
        log_start_offset=start,
    )
    now = plan_expiration(segments, facts)
    then = plan_expiration(segments, replace(facts, now_ms=NOW + later_ms))
    taken = sorted(
        (e.segment.start_offset, e.segment.end_offset, e.segment.max_timestamp_ms)
        for e in (*then.expirations, *now.expirations)
        if e.reason in BY_RETENTION
    )
    rules = {reason.value for reason in BY_RETENTION}
    due = sorted(
        (fate.base_offset, fate.end_offset, fate.largest_timestamp_ms)
        for fate in forecast_remote(segments, facts, LogConfig())
        if fate.rule in rules and fate.is_due(NOW + later_ms)
    )
    assert set(due) == set(taken)


def test_every_segment_has_a_fate_and_a_word_on_it() -> None:
    copying = segment(8, 40, 49, state=STARTED)
    covered = finished(9, 12, 15)
    other = replace(finished(10, 50, 59), segment_leader_epochs={7: 50})
    segments = [*row(4), copying, covered, other]
    facts = replace(FACTS, retention_ms=8_500)
    fates = forecast_remote(segments, facts, LogConfig())
    assert [(fate.base_offset, fate.holds) for fate in fates if fate.base_offset in (20, 30, 50)] == [
        (20, (Hold.NEWEST_TIMESTAMP,)),
        (30, (Hold.NEWEST_TIMESTAMP,)),
        (50, (Hold.OTHER_LINEAGE,)),
    ]
    assert all(fate.text and fate.tier is Tier.REMOTE for fate in fates)
    assert len(fates) == len(segments)


def test_an_old_segment_waits_for_the_older_offsets_before_it() -> None:
    segments = [finished(0, 0, 9, max_timestamp=NOW + 5000), finished(1, 10, 19, max_timestamp=NOW - 5000)]
    first, second = forecast_remote(segments, replace(FACTS, retention_ms=1000), LogConfig())
    assert (first.holds, second.holds) == ((Hold.FUTURE_TIMESTAMP,), (Hold.EARLIER_SEGMENT,))
    assert first.due == second.due
    assert first.due is not None
    assert first.due.rule_ms == NOW + 6000
    assert FINISHED is segments[0].state
