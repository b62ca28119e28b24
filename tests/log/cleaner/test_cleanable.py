"""What of a log can be cleaned, from its offsets and times alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from stratalog.log.cleaner.cleanable import (
    CleanableLog,
    Dirtiness,
    compaction_delay_ms,
    dirtiness,
    first_dirty_offset,
    first_uncleanable_offset,
)

NOW = 1_700_000_000_000


@dataclass
class Segment:
    base_offset: int
    size_bytes: int = 100
    first_batch_timestamp: int | None = NOW
    largest: int = NOW

    def largest_timestamp(self) -> int:
        return self.largest


def facts(
    *segments: Segment,
    start: int = 0,
    stable: int | None = None,
    min_lag: int = 0,
    max_lag: int = 2**63 - 1,
    deletes: bool = False,
) -> CleanableLog:
    """A log of these segments, the last one active, with ten offsets each."""
    end = segments[-1].base_offset + 10
    return CleanableLog(segments, start, end, end if stable is None else stable, min_lag, max_lag, deletes)


LOG = facts(Segment(0), Segment(10), Segment(20), Segment(30))


def test_without_a_checkpoint_everything_is_dirty() -> None:
    assert first_dirty_offset(replace(LOG, log_start_offset=7), None) == (7, None, False)


@pytest.mark.parametrize("offset", [0, 25, 40])
def test_a_checkpoint_within_the_log_is_believed(offset: int) -> None:
    assert first_dirty_offset(LOG, offset) == (offset, None, False)


def test_a_checkpoint_before_the_log_start_is_reset_to_it() -> None:
    found = first_dirty_offset(replace(LOG, log_start_offset=15), 3)
    assert (found.offset, found.is_unexpected) == (15, True)
    assert found.why_reset is not None


def test_that_retention_moved_the_log_start_is_no_surprise() -> None:
    found = first_dirty_offset(replace(LOG, log_start_offset=15, deletes_by_retention=True), 3)
    assert (found.offset, found.is_unexpected) == (15, False)
    assert found.why_reset is not None


def test_a_checkpoint_behind_the_log_end_makes_everything_dirty() -> None:
    found = first_dirty_offset(replace(LOG, log_start_offset=5), 41)
    assert (found.offset, found.is_unexpected) == (5, True)


def test_the_active_segment_is_never_cleaned() -> None:
    assert first_uncleanable_offset(LOG, 0, NOW) == 30


def test_nothing_is_cleaned_from_the_last_stable_offset_on() -> None:
    assert first_uncleanable_offset(replace(LOG, last_stable_offset=14), 0, NOW) == 14


def test_the_first_uncleanable_offset_is_never_below_the_first_dirty_one() -> None:
    assert first_uncleanable_offset(replace(LOG, last_stable_offset=14), 22, NOW) == 22


@pytest.mark.parametrize(("age", "expected"), [(0, 10), (999, 10), (1000, 20), (5000, 20)])
def test_nothing_is_cleaned_from_the_first_segment_on_that_has_a_record_too_young(age: int, expected: int) -> None:
    old = NOW - 10_000
    log = facts(
        Segment(0, largest=old),
        Segment(10, largest=NOW - age),
        Segment(20, largest=NOW),
        Segment(30, largest=0),
        min_lag=1000,
    )
    assert first_uncleanable_offset(log, 0, NOW) == expected


def test_the_age_of_what_is_clean_already_does_not_matter() -> None:
    log = facts(Segment(0, largest=NOW), Segment(10, largest=0), Segment(20), min_lag=1000)
    assert first_uncleanable_offset(log, 10, NOW) == 20


@pytest.mark.parametrize(
    ("first_batch", "delay"), [(NOW - 1500, 500), (NOW - 1000, 0), (NOW, 0), (-1, 0), (0, 0), (None, 0)]
)
def test_compaction_is_overdue_from_the_oldest_dirty_first_batch_on(first_batch: int | None, delay: int) -> None:
    log = facts(
        Segment(0, first_batch_timestamp=1),
        Segment(10, first_batch_timestamp=first_batch),
        Segment(20),
        max_lag=1000,
    )
    assert compaction_delay_ms(log, 10, NOW) == delay


def test_the_active_segment_is_never_overdue() -> None:
    assert compaction_delay_ms(facts(Segment(0, first_batch_timestamp=1), max_lag=1000), 0, NOW) == 0


@pytest.mark.parametrize(
    ("first_dirty", "uncleanable", "expected"),
    [
        (0, 30, (0, 300, 30)),
        (10, 30, (100, 200, 30)),
        (30, 30, (300, 0, 30)),
        (35, 35, (400, 0, 30)),  # the active segment: as Kafka counts it
        (0, 20, (0, 200, 20)),
        (0, 25, (0, 200, 20)),  # a segment that holds the first uncleanable offset is none
        (15, 30, (200, 200, 30)),  # one that holds the first dirty offset is read with both parts
        (25, 25, (300, 0, 20)),
    ],
)
def test_sizes_are_those_of_whole_segments(first_dirty: int, uncleanable: int, expected: tuple[int, int, int]) -> None:
    assert dirtiness(LOG, first_dirty, uncleanable) == Dirtiness(*expected)


def test_the_ratio_is_the_share_of_what_can_be_cleaned() -> None:
    assert dirtiness(LOG, 10, 30).ratio == pytest.approx(2 / 3)
