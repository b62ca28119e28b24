from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings, strategies as st

from stratalog.remote.api.interfaces import RemoteLogSegmentMetadata
from stratalog.remote.api.segment_state import RemoteLogSegmentState
from stratalog.remote.tier.retention import (
    ExpirationReason,
    RetentionFacts,
    counted_sizes,
    plan_expiration,
    quiet_until,
)
from tests.remote.values import segment

STARTED, FINISHED, DELETING, DELETED = RemoteLogSegmentState
NOW = 1_000_000
FACTS = RetentionFacts(
    retention_ms=-1,
    retention_bytes=-1,
    now_ms=NOW,
    log_start_offset=0,
    log_end_offset=1000,
    only_local_bytes=0,
    lineage={0: 0},
)


def finished(number: int, start: int, end: int, **options: int) -> RemoteLogSegmentMetadata:
    return segment(number, start, end, state=FINISHED, **options)  # type: ignore[arg-type]


def row(count: int = 5, size: int = 100) -> list[RemoteLogSegmentMetadata]:
    """Segments of 10 offsets; the largest timestamps are 0, 1000, 2000 ... before NOW - 10,000."""
    return [finished(n, n * 10, n * 10 + 9, size=size, max_timestamp=NOW - 10_000 + n * 1000) for n in range(count)]


def reasons(segments: list[RemoteLogSegmentMetadata], facts: RetentionFacts) -> dict[int, ExpirationReason]:
    return {e.segment.start_offset: e.reason for e in plan_expiration(segments, facts).expirations}


def test_without_bounds_everything_stays() -> None:
    plan = plan_expiration(row(), FACTS)
    assert plan.expirations == ()
    assert plan.log_start_offset == 0


def test_the_time_bound_is_inclusive() -> None:
    assert reasons(row(), replace(FACTS, retention_ms=8_000)) == {
        0: ExpirationReason.TIME,
        10: ExpirationReason.TIME,
        20: ExpirationReason.TIME,
    }
    assert set(reasons(row(), replace(FACTS, retention_ms=8_001))) == {0, 10}


def test_time_stops_at_the_first_segment_that_stays() -> None:
    segments = row()
    segments[1] = replace(segments[1], max_timestamp_ms=NOW)
    assert set(reasons(segments, replace(FACTS, retention_ms=1))) == {0}


def test_size_takes_the_oldest_as_long_as_enough_is_left_without_them() -> None:
    assert set(reasons(row(), replace(FACTS, retention_bytes=300))) == {0, 10}
    assert set(reasons(row(), replace(FACTS, retention_bytes=301))) == {0}
    assert set(reasons(row(), replace(FACTS, retention_bytes=500))) == set()


def test_what_is_only_local_counts_towards_the_size() -> None:
    assert set(reasons(row(), replace(FACTS, retention_bytes=500, only_local_bytes=200))) == {0, 10}


def test_failed_copies_never_count_and_go() -> None:
    segments = [*row(), segment(9, 50, 59, size=10**9, state=STARTED)]
    assert reasons(segments, replace(FACTS, retention_bytes=500)) == {50: ExpirationReason.FAILED_COPY}


def test_a_begun_deletion_is_done_again_and_does_not_count() -> None:
    segments = [*row(), segment(9, 50, 59, size=10**9, state=DELETING)]
    assert reasons(segments, replace(FACTS, retention_bytes=500)) == {50: ExpirationReason.DELETE_STARTED}


def test_overlapping_segments_count_once() -> None:
    doubled = [
        *row(),
        *(replace(s, segment_id=segment(50 + n, 0, 1).segment_id) for n, s in enumerate(row())),
    ]
    assert reasons(doubled, replace(FACTS, retention_bytes=500)) == {}
    half = [finished(1, 0, 9, size=100), finished(2, 5, 14, size=100)]
    assert [size for _, size in counted_sizes(half)] == [100, 50]


def test_a_covered_segment_goes_with_the_one_that_covers_it() -> None:
    segments = [*row(), finished(9, 12, 15, size=40, max_timestamp=NOW)]
    plan = plan_expiration(segments, replace(FACTS, retention_bytes=300))
    assert [e.segment.start_offset for e in plan.expirations] == [0, 10, 12]
    assert plan.log_start_offset == 20


def test_segments_below_the_log_start_offset_go() -> None:
    facts = replace(FACTS, log_start_offset=25, lineage={0: 25})
    assert reasons(row(), facts) == {
        0: ExpirationReason.LOG_START_OFFSET,
        10: ExpirationReason.LOG_START_OFFSET,
    }
    assert set(reasons(row(), replace(facts, log_start_offset=20))) == {0, 10}
    assert set(reasons(row(), replace(facts, log_start_offset=19))) == {0}


def test_segments_of_epochs_older_than_any_that_is_known_go() -> None:
    old = segment(9, 500, 509, {3: 500}, state=FINISHED)
    facts = replace(FACTS, lineage={5: 0})
    assert reasons([old], facts) == {500: ExpirationReason.UNREFERENCED}


def test_segments_outside_the_lineage_do_not_count() -> None:
    stray = segment(9, 0, 99, {0: 0, 1: 50}, state=FINISHED, size=10**9)
    assert reasons([*row(), stray], replace(FACTS, retention_bytes=500)) == {}


def test_the_log_start_offset_is_behind_all_that_goes_by_retention() -> None:
    assert plan_expiration(row(), replace(FACTS, retention_bytes=300)).log_start_offset == 20


@settings(deadline=None, max_examples=300)
@given(
    cuts=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 15), st.integers(1, 500)), max_size=12),
    states=st.lists(st.sampled_from([STARTED, FINISHED, FINISHED, DELETING]), min_size=12, max_size=12),
    retention_bytes=st.integers(-1, 3000),
    local=st.integers(0, 500),
    log_start=st.integers(0, 30),
)
def test_what_stays_is_never_less_than_retention_bytes(  # type: ignore[no-untyped-def]
    cuts, states, retention_bytes, local, log_start
) -> None:
    """Retention by size leaves at least `retention.bytes` of readable data if there was as much."""
    segments = [
        segment(n, start, start + length, state=states[n], size=size) for n, (start, length, size) in enumerate(cuts)
    ]
    facts = replace(
        FACTS,
        retention_bytes=retention_bytes,
        only_local_bytes=local,
        log_start_offset=log_start,
        lineage={0: log_start},
    )
    plan = plan_expiration(segments, facts)
    gone = {e.segment.segment_id for e in plan.expirations}
    live = [s for s in segments if s.state is FINISHED and s.end_offset >= log_start]
    before = local + sum(size for _, size in counted_sizes(live))
    by_size = {e.segment.segment_id: e.segment for e in plan.expirations if e.reason is ExpirationReason.SIZE}
    removed = sum(size for s, size in counted_sizes(live) if s.segment_id in by_size)
    assert not by_size or before - removed >= retention_bytes >= 0
    assert all(s.segment_id in gone for s in segments if s.end_offset < plan.log_start_offset)
    assert all(s.end_offset < plan.log_start_offset for s in live if s.segment_id in gone)


def test_sizes_beyond_31_bits_count_in_full() -> None:
    gib = 2**30
    segments = [finished(n, n * 10, n * 10 + 9, size=size * gib) for n, size in enumerate((3, 5, 3))]
    assert reasons(segments, replace(FACTS, retention_bytes=8 * gib)) == {0: ExpirationReason.SIZE}
    assert reasons(segments, replace(FACTS, retention_bytes=8 * gib + 1)) == {}
    assert plan_expiration(segments, replace(FACTS, retention_bytes=0)).size_bytes == 11 * gib


@settings(max_examples=300)
@given(
    sizes=st.lists(st.integers(1, 300), min_size=0, max_size=6),
    retention_ms=st.sampled_from([-1, 0, 500, 9_500, 20_000]),
    retention_bytes=st.sampled_from([-1, 0, 100, 700, 5_000]),
    only_local=st.integers(0, 1_000),
)
def test_quiet_ends_exactly_where_the_plan_begins_to_take_something(
    sizes: list[int], retention_ms: int, retention_bytes: int, only_local: int
) -> None:
    """While the facts but time and local bytes stay, a plan takes nothing before the bounds and something at them."""
    segments = [replace(each, segment_size_bytes=size) for each, size in zip(row(6), sizes, strict=False)]
    facts = replace(FACTS, retention_ms=retention_ms, retention_bytes=retention_bytes, only_local_bytes=only_local)
    if plan_expiration(segments, facts).expirations:
        return
    quiet = quiet_until(segments, facts)
    assert quiet.holds(facts.now_ms, facts.only_local_bytes)
    for name, bound in (("now_ms", quiet.now_ms), ("only_local_bytes", quiet.only_local_bytes)):
        far = 10**15 if bound is None else bound - 1
        later: dict[str, Any] = {name: max(far, getattr(facts, name))}
        assert not plan_expiration(segments, replace(facts, **later)).expirations
        if bound is not None:
            at: dict[str, Any] = {name: bound}
            assert plan_expiration(segments, replace(facts, **at)).expirations
