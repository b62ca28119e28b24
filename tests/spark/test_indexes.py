"""Offset indexes as arrays: either format, positions of any size, with and without a manifest that has noted the
format."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.log.format.offset_index_format import LARGE, LEGACY, OffsetIndexFormat
from stratalog.spark.planning.indexes import offset_entries

#: Steps from entry to entry: offsets, and bytes of batches.
steps = st.lists(
    st.tuples(
        st.integers(1, 10**6),
        st.integers(61, 10**7) | st.sampled_from([2**20, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 2**31]),
    ),
    min_size=1,
    max_size=30,
)


@given(steps=steps, zeros=st.sampled_from([0, 8, 12, 24, 1000]), is_noted=st.booleans())
@settings(deadline=None, max_examples=400)
def test_every_entry_of_either_format_comes_back(steps: list[tuple[int, int]], zeros: int, is_noted: bool) -> None:
    """What is packed is read, whatever the positions, in the format that it was packed in."""
    entries = list(accumulate(steps, lambda before, step: (before[0] + step[0], before[1] + step[1])))
    log_size = entries[-1][1] + 61
    for form in (LEGACY, LARGE):
        if entries[-1][1] > form.position_max or entries[-1][0] > 2**31 - 1:
            continue
        data = b"".join(form.entry.pack(*entry) for entry in entries) + bytes(zeros)
        found = offset_entries(data, 1000, log_size, form.entry_size if is_noted else None)
        assert list(zip(found.offsets.tolist(), found.positions.tolist(), strict=True)) == [
            (1000 + offset, position) for offset, position in entries
        ]


@pytest.mark.parametrize(("written", "noted"), [(LEGACY, LARGE), (LARGE, LEGACY)])
def test_an_index_that_is_not_what_was_noted_has_no_entries(
    written: OffsetIndexFormat, noted: OffsetIndexFormat
) -> None:
    data = b"".join(written.entry.pack(n * 10, n * 1000) for n in range(1, 7))
    assert len(offset_entries(data, 0, 10**6, written.entry_size)) == 6
    assert len(offset_entries(data, 0, 10**6, noted.entry_size)) == 0
