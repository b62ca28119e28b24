"""Which format an offset index has: never detected wrongly for one that a broker wrote, with or without the log."""

from __future__ import annotations

import logging
import random
import struct
from pathlib import Path

import pytest
from benchmarks.detection import SparseLog, by_document
from hypothesis import given, settings, strategies as st

from stratalog.log.format.offset_index_detection import detect_in_file
from stratalog.log.format.offset_index_format import (
    LARGE,
    LEGACY,
    Evidence,
    OffsetIndexFormat,
    detect_from_entries,
    used_entries,
    used_size,
)
from stratalog.log.format.offset_index_proof import detect_from_log
from stratalog.util.filesystem import REAL_FILESYSTEM

BASE = 5_000_000_000
FORMATS = [LEGACY, LARGE]

formats = st.sampled_from(FORMATS)
#: Steps of (offset, position) from entry to entry; small ones are records compressed to less than a byte each.
logs = st.lists(st.tuples(st.integers(1, 40_000), st.integers(62, 40_000)), min_size=1, max_size=60)


def entries_of(steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    offset, position, entries = -1, 0, []
    for offset_step, position_step in steps:
        offset += offset_step
        position += position_step
        entries.append((offset, position))
    return entries


def encode(entries: list[tuple[int, int]], form: OffsetIndexFormat) -> bytes:
    return b"".join(form.entry.pack(*entry) for entry in entries)


def log_of(entries: list[tuple[int, int]]) -> SparseLog:
    absolute = [(BASE + offset, position) for offset, position in entries]
    return SparseLog(absolute, entries[-1][1] + 61, random.Random(len(entries)))


@given(steps=logs, form=formats, expected=formats, tail=st.integers(0, 30))
@settings(deadline=None, max_examples=500)
def test_with_the_log_the_format_is_never_detected_wrongly(
    steps: list[tuple[int, int]], form: OffsetIndexFormat, expected: OffsetIndexFormat, tail: int
) -> None:
    """For every log and every preallocated tail: the format that it was written in, whatever is expected."""
    entries = entries_of(steps)
    data = encode(entries, form) + bytes(tail * form.entry_size)
    log = log_of(entries)
    found = detect_from_log(data, BASE, log, log.size, expected)
    assert (found.format, found.evidence) == (form, Evidence.LOG)


@given(steps=logs, form=formats, expected=formats, tail=st.integers(0, 30))
@settings(deadline=None, max_examples=500)
def test_without_the_log_an_index_that_a_broker_wrote_is_never_detected_wrongly(
    steps: list[tuple[int, int]], form: OffsetIndexFormat, expected: OffsetIndexFormat, tail: int
) -> None:
    """For every index whose first position lies above 0 and below 2^32: its format, and never a guess."""
    data = encode(entries_of(steps), form) + bytes(tail * form.entry_size)
    found = detect_from_entries(data, expected)
    assert found.format is form
    assert not found.is_guess
    assert not found.is_corrupt


@given(steps=logs, form=formats, expected=formats)
@settings(deadline=None, max_examples=500)
def test_where_the_document_decides_the_answer_is_the_same(
    steps: list[tuple[int, int]], form: OffsetIndexFormat, expected: OffsetIndexFormat
) -> None:
    """Where the document's rule gives the same for both expectations, it gives what `detect_from_entries` gives."""
    entries = entries_of(steps)
    data = encode(entries[: len(entries) // 6 * 6], form)
    if len(data) and by_document(data, LEGACY) is by_document(data, LARGE):
        assert detect_from_entries(data, expected).format is by_document(data, expected)


def test_an_index_that_the_document_leaves_to_the_level_is_reported_by_its_first_position() -> None:
    """Nearly one offset a byte: each field, read either way, ascends."""
    entries = [(100 * i, 90 * i) for i in range(1, 10)]
    data = encode(entries, LEGACY)
    assert [by_document(data, expected) for expected in FORMATS] == FORMATS
    assert [detect_from_entries(data, expected).format for expected in FORMATS] == [LEGACY, LEGACY]
    assert detect_from_entries(data).evidence is Evidence.FIRST


def test_an_index_that_no_broker_writes_is_left_to_the_level_in_force() -> None:
    """An entry for position 0 first: read either way its entries ascend and its first position is none or 0."""
    for entries in (
        [(0, 0), (0, 0), (7, 7)],
        [(0, 0), (20, 4096), (41, 8192)],
    ):  # the second as the document draws one
        for expected in FORMATS:
            found = detect_from_entries(encode(entries, LEGACY), expected)
            assert (found.format, found.is_guess) == (expected, True)


def test_a_guess_is_warned_of_with_path_and_format(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "00000000000000000000.index"
    path.write_bytes(encode([(0, 0), (0, 0), (7, 7)], LEGACY))
    with caplog.at_level(logging.WARNING):
        assert detect_in_file(path, 0, fs=REAL_FILESYSTEM, expected=LARGE).format is LARGE
    assert str(path) in caplog.text
    assert "large (12 bytes an entry), the format in force" in caplog.text


@pytest.mark.parametrize("form", FORMATS, ids=str)
@pytest.mark.parametrize("damaged", [[0], [0, 1], [0, 3, 5], [1, 2, 3, 4, 5]])
def test_wrong_entries_do_not_decide_against_the_log(form: OffsetIndexFormat, damaged: list[int]) -> None:
    """One true entry among those looked at is enough, because no entry is true in the other format."""
    entries = entries_of([(10, 5000)] * 6)
    log = log_of(entries)
    wrong = [(o + 3, p + 17) if slot in damaged else (o, p) for slot, (o, p) in enumerate(entries)]
    for expected in FORMATS:
        assert detect_from_log(encode(wrong, form), BASE, log, log.size, expected).format is form


@pytest.mark.parametrize("form", FORMATS, ids=str)
def test_an_index_of_another_log_is_corrupt_however_well_it_ascends(form: OffsetIndexFormat) -> None:
    data = encode(entries_of([(10, 5000)] * 6), form)
    other = log_of(entries_of([(11, 6000)] * 6))
    assert not detect_from_entries(data).is_corrupt
    found = detect_from_log(data, BASE, other, other.size, LARGE)
    assert found.is_corrupt
    assert found.format is LARGE


def test_an_index_that_was_cut_within_an_entry_is_corrupt_even_if_the_other_size_divides_it() -> None:
    entries = entries_of([(10, 5000)] * 9)
    log = log_of(entries)
    data = encode(entries, LEGACY)[:60]  # seven entries and a half, or five of the large format
    assert detect_from_entries(data).evidence is Evidence.SIZE
    found = detect_from_log(data, BASE, log, log.size)
    assert found.is_corrupt
    assert "60 bytes are no multiple" in found.reason


@pytest.mark.parametrize("expected", FORMATS, ids=str)
@pytest.mark.parametrize("size", [0, 8, 12, 24, 10_485_760, 10_485_756, 4800])
def test_an_index_without_entries_has_the_format_of_its_size_or_the_expected_one(
    size: int, expected: OffsetIndexFormat
) -> None:
    found = detect_from_entries(bytes(size), expected)
    by_size = {8: LEGACY, 10_485_760: LEGACY, 12: LARGE, 10_485_756: LARGE}
    assert found.format is by_size.get(size, expected)
    assert found.evidence is Evidence.EMPTY
    log = SparseLog([], 0, random.Random(1))
    assert detect_from_log(bytes(size), BASE, log, 0, expected) == found


@pytest.mark.parametrize("size", [1, 7, 9, 13, 10_485_759])
def test_a_size_that_no_entry_size_divides_is_corrupt_and_made_again_as_expected(size: int) -> None:
    for expected in FORMATS:
        found = detect_from_entries(b"\1" * size, expected)
        assert (found.format, found.evidence) == (expected, Evidence.NONE)


def test_zeros_are_counted_from_the_end_whatever_the_size() -> None:
    for used in (0, 1, 12, 65_535, 65_536, 65_537, 200_000):
        data = b"\1" * used + bytes(200_000 - used)
        assert used_size(data) == used
    assert used_entries(struct.pack(">iiii", 1, 0x100, 0, 0), LEGACY) == 1
    assert used_entries(b"", LARGE) == 0
