"""When a segment rolls."""

from __future__ import annotations

from typing import Any

import pytest

from stratalog.log.append.roll import RELATIVE_OFFSET_MAX, RollReason, roll_reason, time_waited

FACTS: dict[str, Any] = {
    "size": 500,
    "incoming_size": 100,
    "segment_bytes_max": 1_000,
    "waited_ms": 10,
    "segment_ms_max": 1_000,
    "indexes_full": False,
    "base_offset": 7,
    "incoming_last_offset": 20,
}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, None),
        ({"size": 900}, None),
        ({"size": 901}, RollReason.SIZE),
        ({"size": 0, "incoming_size": 1_001}, RollReason.SIZE),
        ({"waited_ms": 1_000}, None),
        ({"waited_ms": 1_001}, RollReason.AGE),
        ({"waited_ms": 1_001, "size": 0}, None),
        ({"indexes_full": True}, RollReason.INDEX_FULL),
        ({"indexes_full": True, "size": 0}, RollReason.INDEX_FULL),
        ({"incoming_last_offset": 7 + RELATIVE_OFFSET_MAX}, None),
        ({"incoming_last_offset": 8 + RELATIVE_OFFSET_MAX}, RollReason.OFFSET_OVERFLOW),
        ({"size": 5 << 32, "segment_bytes_max": 6 << 32}, None),
        ({"size": 6 << 32, "segment_bytes_max": 6 << 32}, RollReason.SIZE),
    ],
)
def test_a_segment_rolls_for_size_age_full_index_and_offset_overflow(
    changed: dict[str, int], expected: RollReason | None
) -> None:
    assert roll_reason(**(FACTS | changed)) is expected


@pytest.mark.parametrize(
    ("first_batch_timestamp", "expected"),
    [(600, 300), (None, 4_000), (-1, 4_000), (0, 900)],
    ids=["record time", "empty segment", "no timestamps", "the epoch itself"],
)
def test_age_is_in_record_time_where_there_is_any(first_batch_timestamp: int | None, expected: int) -> None:
    waited = time_waited(
        now_ms=5_000,
        first_batch_timestamp=first_batch_timestamp,
        created_ms=1_000,
        incoming_max_timestamp=900,
    )
    assert waited == expected
