"""Which segments retention takes: examples, and any log against a plain model."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings, strategies as st

from stratalog.log.retention.decision import DeletionReason, RetentionLimits, RetentionPlan, plan_retention

NOW = 1_000


@dataclass(frozen=True)
class Segment:
    base_offset: int
    size_bytes: int
    timestamp: int = NOW

    def largest_timestamp(self) -> int:
        return self.timestamp


def limits(**changed: int | bool | None) -> RetentionLimits:
    values: dict[str, int | bool | None] = {
        "retention_ms": -1,
        "retention_bytes": -1,
        "start_offset": 0,
        "high_watermark": 100,
        "log_end_offset": 100,
    }
    return RetentionLimits(**(values | changed))  # type: ignore[arg-type]


def taken(segments: list[Segment], bounds: RetentionLimits) -> list[DeletionReason]:
    return list(plan_retention(segments, bounds, NOW).deletions)


SIZE, TIME, START = DeletionReason.SIZE, DeletionReason.TIME, DeletionReason.LOG_START_OFFSET


def test_time_is_strict() -> None:
    segments = [Segment(0, 10, 899), Segment(10, 10, 900), Segment(20, 10, 0)]
    assert taken(segments, limits(retention_ms=100)) == [TIME]


def test_the_first_segment_that_stays_keeps_all_behind_it() -> None:
    segments = [Segment(0, 10, 500), Segment(10, 10, NOW), Segment(20, 10, 500)]
    assert taken(segments, limits(retention_ms=100)) == [TIME]


def test_a_timestamp_in_the_future_keeps_its_segment() -> None:
    assert taken([Segment(0, 10, NOW + 5), Segment(10, 10)], limits(retention_ms=0)) == []


def test_size_never_goes_below_the_limit() -> None:
    segments = [Segment(0, 40), Segment(10, 40), Segment(20, 40)]
    assert taken(segments, limits(retention_bytes=80)) == [SIZE]
    assert taken(segments, limits(retention_bytes=81)) == []
    assert taken(segments, limits(retention_bytes=79)) == [SIZE]
    assert taken(segments, limits(retention_bytes=40)) == [SIZE, SIZE]
    assert taken(segments, limits(retention_bytes=0)) == [SIZE, SIZE, SIZE]


def test_what_lies_below_the_log_start_offset_goes() -> None:
    segments = [Segment(0, 40), Segment(10, 40), Segment(20, 40)]
    assert taken(segments, limits(start_offset=10)) == [START]
    assert taken(segments, limits(start_offset=19)) == [START]
    assert taken(segments, limits(start_offset=100)) == [START, START]


def test_rules_follow_each_other() -> None:
    segments = [Segment(0, 40, 0), Segment(10, 40, 0), Segment(20, 40, 0), Segment(30, 1)]
    bounds = limits(start_offset=10, retention_bytes=41, retention_ms=5)
    assert taken(segments, bounds) == [START, SIZE, TIME]


def test_nothing_above_the_high_watermark_goes() -> None:
    segments = [Segment(0, 40, 0), Segment(10, 40, 0), Segment(20, 40, 0)]
    assert taken(segments, limits(retention_ms=5, high_watermark=19)) == [TIME]
    assert taken(segments, limits(retention_ms=5, high_watermark=9)) == []


def test_an_active_segment_goes_when_its_data_is_too_old() -> None:
    assert taken([Segment(0, 40, 0)], limits(retention_ms=5)) == [TIME]
    assert taken([Segment(0, 0, 0)], limits(retention_ms=5)) == []


def test_a_tiered_active_segment_is_rolled_for_that_and_kept() -> None:
    bounds = limits(retention_ms=5, remote_through=-1, roll_active=True)
    assert plan_retention([Segment(0, 40, 0)], bounds, NOW) == RetentionPlan((), True)
    assert plan_retention([Segment(0, 0, 0)], bounds, NOW) == RetentionPlan((), False)


def test_a_tiered_segment_goes_only_when_it_is_remote() -> None:
    segments = [Segment(0, 40, 0), Segment(10, 40, 0), Segment(20, 40)]
    assert taken(segments, limits(retention_ms=5, remote_through=-1)) == []
    assert taken(segments, limits(retention_ms=5, remote_through=8)) == []
    assert taken(segments, limits(retention_ms=5, remote_through=9)) == [TIME]
    assert taken(segments, limits(retention_ms=5, remote_through=99)) == [TIME, TIME]


def test_a_tiered_segment_that_no_one_wants_goes_without_being_remote() -> None:
    segments = [Segment(0, 40), Segment(10, 40), Segment(20, 40)]
    assert taken(segments, limits(start_offset=15, log_start_offset=15, remote_through=-1)) == [START]


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Segment], RetentionLimits]:
    widths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=6))
    bases = [sum(widths[:i]) for i in range(len(widths))]
    segments = [Segment(base, draw(st.integers(1, 50)), draw(st.integers(NOW - 20, NOW + 2))) for base in bases]
    if draw(st.booleans()):
        segments[-1] = Segment(bases[-1], 0)
    end = sum(widths) if segments[-1].size_bytes else bases[-1]
    start = draw(st.integers(0, end))
    tiered = draw(st.booleans())
    bounds = RetentionLimits(
        retention_ms=draw(st.integers(-1, 20)),
        retention_bytes=draw(st.integers(-1, 200)),
        start_offset=start,
        high_watermark=draw(st.integers(start, end)),
        log_end_offset=end,
        remote_through=draw(st.integers(-1, end - 1)) if tiered else None,
        log_start_offset=draw(st.integers(0, start)),
        roll_active=tiered,
    )
    return segments, bounds


def model(segments: list[Segment], bounds: RetentionLimits) -> list[DeletionReason]:
    """The same in plain steps: is the oldest one to go, and may it? Then again without it."""
    reasons: list[DeletionReason] = []
    left = list(segments)
    for rule in (START, SIZE, TIME):
        while left:
            oldest, is_active = left[0], len(left) == 1
            end = bounds.log_end_offset if is_active else left[1].base_offset
            wanted = {
                START: not is_active and end <= bounds.start_offset,
                SIZE: 0 <= bounds.retention_bytes <= sum(s.size_bytes for s in left[1:]),
                TIME: 0 <= bounds.retention_ms < NOW - oldest.timestamp,
            }[rule]
            replicated = end <= bounds.high_watermark
            remote = (
                bounds.remote_through is None
                or 0 < end <= bounds.remote_through + 1
                or (not is_active and end <= bounds.log_start_offset)
            )
            kept_for_copy = is_active and bounds.roll_active
            if not (wanted and replicated and remote) or (is_active and not oldest.size_bytes) or kept_for_copy:
                break
            reasons.append(rule)
            left.pop(0)
    return reasons


@given(logs())
@settings(deadline=None, max_examples=400)
def test_any_log_keeps_and_loses_what_the_model_says(case: tuple[list[Segment], RetentionLimits]) -> None:
    """Retention takes segments from the oldest on, each for the first rule that wants it, as the model does."""
    segments, bounds = case
    assert taken(segments, bounds) == model(segments, bounds)
