"""Which format a fetched offset index has, detected by its content alone."""

from __future__ import annotations

import tempfile
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.errors import CorruptIndexError
from stratalog.log.format.offset_index_format import LARGE, LEGACY
from stratalog.remote.reading.remote_indexes import detect_entry_size
from stratalog.util.filesystem import REAL_FILESYSTEM
from tests.remote.values import segment

#: Steps from entry to entry: offsets, and bytes of batches.
steps = st.lists(
    st.tuples(
        st.integers(1, 10**6),
        st.integers(61, 10**6) | st.sampled_from([2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 2**31]),
    ),
    max_size=30,
)


@given(steps=steps, knows_segment=st.booleans())
@settings(deadline=None, max_examples=300)
def test_the_format_of_an_index_is_detected_from_its_entries(steps: list[tuple[int, int]], knows_segment: bool) -> None:
    """An index that ascends strictly is read in the format that it was written in, except an empty one, which has
    none."""
    entries = list(accumulate(steps, lambda before, step: (before[0] + step[0], before[1] + step[1])))
    end, size = (entries[-1][0], entries[-1][1] + 61) if entries else (0, 61)
    metadata = segment(1, 1000, 1000 + end, size=size) if knows_segment else None
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "index"
        for form in (LEGACY, LARGE):
            if entries and entries[-1][1] > form.position_max:
                continue
            path.write_bytes(b"".join(form.entry.pack(*entry) for entry in entries))
            found = detect_entry_size(path, 1000, REAL_FILESYSTEM, metadata=metadata)
            assert found == form.entry_size or not entries


@pytest.mark.parametrize("noted", [None, 8, 12])
@pytest.mark.parametrize(
    "data",
    [bytes(range(13)), bytes(24), b"<?xml version='1.0'?><Er>", LEGACY.entry.pack(5, 100) * 3],
    ids=["13 bytes", "zeros", "text", "no order"],
)
def test_what_is_no_offset_index_is_refused(tmp_path: Path, data: bytes, noted: int | None) -> None:
    path = tmp_path / "index"
    path.write_bytes(data)
    with pytest.raises(CorruptIndexError, match="is no offset index with entries of"):
        detect_entry_size(path, 0, REAL_FILESYSTEM, metadata=segment(1, 0, 99, size=10**6), noted=noted)


def test_entries_beyond_the_segment_are_none_of_it(tmp_path: Path) -> None:
    path = tmp_path / "index"
    path.write_bytes(LARGE.entry.pack(10, 100) + LARGE.entry.pack(20, 5_000) + LARGE.entry.pack(30, 9_000))
    assert detect_entry_size(path, 0, REAL_FILESYSTEM, metadata=segment(1, 0, 30, size=9_061)) == 12
    for metadata in (segment(1, 0, 29, size=9_061), segment(1, 0, 30, size=9_000)):
        with pytest.raises(CorruptIndexError):
            detect_entry_size(path, 0, REAL_FILESYSTEM, metadata=metadata)
