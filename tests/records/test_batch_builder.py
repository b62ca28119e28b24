from __future__ import annotations

import pytest

from stratalog.records import Codec, Record, RecordBatch, build_batch


def test_offsets_must_ascend() -> None:
    with pytest.raises(ValueError, match="record 1 has offset 4, expected at least 6"):
        build_batch([Record(5, 0, None, None), Record(4, 0, None, None)], base_offset=5)


def test_an_offset_before_the_base_offset_is_refused() -> None:
    with pytest.raises(ValueError, match="expected at least 5"):
        build_batch([Record(4, 0, None, None)], base_offset=5)


def test_the_last_offset_delta_may_not_end_before_the_records() -> None:
    with pytest.raises(ValueError, match="last offset delta 0 is not between 1 and"):
        build_batch([Record(0, 0, None, None), Record(1, 0, None, None)], last_offset_delta=0)


def test_offsets_further_apart_than_int32_are_refused() -> None:
    with pytest.raises(ValueError, match="last offset delta"):
        build_batch([Record(2**31, 0, None, None)])


def test_a_batch_without_records_keeps_its_offsets() -> None:
    batch = RecordBatch(build_batch([], base_offset=7, last_offset_delta=3, codec=Codec.ZSTD))
    batch.ensure_valid()
    assert (batch.record_count, batch.base_offset, batch.last_offset, batch.codec) == (0, 7, 10, Codec.NONE)
    assert list(batch.records()) == []


def test_a_batch_without_records_needs_to_be_reported_its_offsets() -> None:
    with pytest.raises(ValueError, match="needs last_offset_delta"):
        build_batch([])
