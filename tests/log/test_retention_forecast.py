"""The forecast of retention against the rules themselves: what is due at a time is what the plan of that time takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.config.topic import LogConfig
from stratalog.inspect import LocalSegment
from stratalog.jobs.retention.fate import Fate, Hold
from stratalog.jobs.retention.forecast import forecast_local
from stratalog.jobs.retention.words import roll_text, span_text
from stratalog.log.retention.decision import RetentionLimits, plan_retention

NOW_MS = 1_700_000_000_000
MINUTE_MS = 60_000


def limits_of(config: LogConfig, end: int, *, start: int = 0, remote_through: int = -1) -> RetentionLimits:
    return RetentionLimits.of(
        config,
        log_start_offset=start,
        local_log_start_offset=start,
        high_watermark=end,
        log_end_offset=end,
        highest_offset_in_remote_storage=remote_through,
    )


def fates_of(
    config: LogConfig, *segments: LocalSegment, end: int, start: int = 0, remote_through: int = -1
) -> list[Fate]:
    limits = limits_of(config, end, start=start, remote_through=remote_through)
    return forecast_local(segments, limits, config, NOW_MS)


def segment(base: int, age_ms: int, size: int = 100, first_age_ms: int | None = None) -> LocalSegment:
    return LocalSegment(base, size, NOW_MS - age_ms, None if first_age_ms is None else NOW_MS - first_age_ms)


@settings(deadline=None, max_examples=400)
@given(
    sizes=st.lists(st.integers(1, 100), min_size=1, max_size=8),
    ages=st.lists(st.integers(-500, 500), min_size=8, max_size=8),
    retention_ms=st.integers(-1, 400),
    retention_bytes=st.integers(-1, 400),
    start=st.integers(0, 90),
    watermark=st.integers(0, 80),
    remote_through=st.none() | st.integers(-1, 80),
    is_empty=st.booleans(),
    later_ms=st.integers(0, 1200),
)
def test_what_is_due_at_a_time_is_what_the_plan_of_that_time_deletes(
    sizes: list[int],
    ages: list[int],
    retention_ms: int,
    retention_bytes: int,
    start: int,
    watermark: int,
    remote_through: int | None,
    is_empty: bool,
    later_ms: int,
) -> None:
    """A segment is deleted by the plan of a time exactly if the forecast has it due by then, and by the same rule."""
    segments = [LocalSegment(i * 10, size, NOW_MS - ages[i]) for i, size in enumerate(sizes)]
    if is_empty:
        segments[-1] = replace(segments[-1], size_bytes=0)
    limits = RetentionLimits(
        retention_ms,
        retention_bytes,
        start,
        watermark,
        len(segments) * 10,
        remote_through,
        start,
        roll_active=remote_through is not None,
    )
    plan = plan_retention(segments, limits, NOW_MS + later_ms)
    fates = forecast_local(segments, limits, LogConfig(), NOW_MS)
    due = [fate.rule for fate in fates if fate.is_due(NOW_MS + later_ms)]
    assert due == [reason.value for reason in plan.deletions]
    assert all(fate.holds or fate.is_due(NOW_MS) for fate in fates)
    assert all(fate.text for fate in fates)


def test_a_segment_goes_with_its_newest_record_and_its_first_one_overstays() -> None:
    config = LogConfig(retention_ms=10 * MINUTE_MS)
    first, active = fates_of(config, segment(0, 3 * MINUTE_MS, first_age_ms=10 * MINUTE_MS), segment(15, 0), end=16)
    assert first.holds == (Hold.NEWEST_TIMESTAMP,)
    assert first.due is not None
    assert first.due.rule_ms == NOW_MS + 7 * MINUTE_MS + 1
    assert first.due.deleted_by_ms == first.due.rule_ms + 5 * MINUTE_MS
    assert first.due.files_gone_by_ms == first.due.deleted_by_ms + MINUTE_MS
    assert first.overstay_ms == 7 * MINUTE_MS + 1
    assert "its first record is 7 min older" in first.text
    assert Hold.ACTIVE in active.holds
    assert "segment.bytes" in active.text


def test_one_record_of_the_future_keeps_its_segment_and_all_behind_it() -> None:
    config = LogConfig(retention_ms=MINUTE_MS)
    future, behind, _ = fates_of(config, segment(0, -3_600_000), segment(10, 2 * MINUTE_MS), segment(20, 0), end=30)
    assert future.holds == (Hold.FUTURE_TIMESTAMP,)
    assert "1 h in the future" in future.text
    assert behind.holds == (Hold.EARLIER_SEGMENT, Hold.FUTURE_TIMESTAMP)
    assert "segment 0" in behind.text
    assert future.due == behind.due


@pytest.mark.parametrize(
    ("config", "hold", "words"),
    [
        (LogConfig(retention_ms=-1), Hold.UNLIMITED, "retention.ms and retention.bytes are -1"),
        (LogConfig(retention_ms=-1, retention_bytes=1000), Hold.SIZE_BUDGET, "less than retention.bytes=1000"),
        (
            LogConfig(cleanup_policy=frozenset({"compact"})),
            Hold.NO_DELETE_POLICY,
            "cleanup.policy does not include delete",
        ),
    ],
)
def test_what_nothing_takes_says_why(config: LogConfig, hold: Hold, words: str) -> None:
    first, _ = fates_of(config, segment(0, 10**12), segment(10, 0), end=20)
    assert (first.rule, first.due, first.holds[0]) == (None, None, hold)
    assert words in first.text


def test_a_segment_of_a_tiered_topic_waits_for_its_copy_however_old_it_is() -> None:
    config = LogConfig(remote_storage_enable=True, retention_ms=10 * MINUTE_MS, local_retention_ms=MINUTE_MS)
    copied, waiting, active = fates_of(
        config, segment(0, 5 * MINUTE_MS), segment(10, 4 * MINUTE_MS), segment(20, 0), end=30, remote_through=9
    )
    assert copied.is_due(NOW_MS)
    assert "local.retention.ms=60000" in copied.text
    assert (waiting.due, waiting.holds[0]) == (None, Hold.NOT_COPIED)
    assert "offsets up to 9" in waiting.text
    assert active.holds[0] is Hold.ACTIVE


def test_what_is_above_the_high_watermark_stays() -> None:
    limits = replace(limits_of(LogConfig(retention_ms=1), 20), high_watermark=5)
    fates = forecast_local([segment(0, 100), segment(10, 100)], limits, LogConfig(retention_ms=1), NOW_MS)
    assert [fate.holds[0] for fate in fates] == [Hold.HIGH_WATERMARK, Hold.HIGH_WATERMARK]


def test_the_size_rule_takes_the_oldest_as_long_as_enough_is_left() -> None:
    config = LogConfig(retention_ms=-1, retention_bytes=150)
    fates = fates_of(config, segment(0, 0, 100), segment(10, 0, 100), segment(20, 0, 100), end=30)
    assert [fate.is_due(NOW_MS) for fate in fates] == [True, False, False]
    assert "300 bytes" in fates[0].text


def test_the_active_segment_says_when_it_rolls() -> None:
    config = LogConfig(segment_bytes=2000, segment_ms=3_600_000)
    text = roll_text(500, NOW_MS, config, NOW_MS)
    assert "1500 bytes left" in text
    assert "2023-11-14 23:13:20Z" in text
    assert "by the next append" in roll_text(500, NOW_MS - 7_200_000, config, NOW_MS)


@pytest.mark.parametrize(
    ("ms", "text"), [(5, "5 ms"), (61_000, "1 min 1 s"), (3_600_000, "1 h"), (90_061_000, "1 d 1 h")]
)
def test_spans_have_their_two_largest_units(ms: int, text: str) -> None:
    assert span_text(ms) == text
