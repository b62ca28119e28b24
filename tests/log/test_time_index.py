"""The time index: Kafka's bytes and rules, lookups as a plain list gives them."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.errors import CorruptIndexError
from stratalog.log.format.values import TimestampOffset
from stratalog.log.index.time_index import TimeIndex

BASE = 500
T0 = 1_700_000_000_000

appends = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=50)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("index") / "00000000000000000500.timeindex"


def fill(path: Path, steps: list[tuple[int, int]]) -> tuple[TimeIndex, list[TimestampOffset]]:
    """An index and the list that it should be: an entry only where the timestamp grew."""
    path.unlink(missing_ok=True)
    index = TimeIndex(path, BASE, max_size=12 * 100)
    expected: list[TimestampOffset] = []
    timestamp, offset = T0, BASE
    for timestamp_step, offset_step in steps:
        timestamp += timestamp_step
        offset += offset_step
        index.maybe_append(timestamp, offset)
        if not expected or timestamp > expected[-1].timestamp_ms:
            expected.append(TimestampOffset(timestamp, offset))
    return index, expected


@given(steps=appends, targets=st.lists(st.integers(T0 - 5, T0 + 160), max_size=20))
@settings(deadline=None, max_examples=150)
def test_a_lookup_gives_the_last_entry_at_or_before_the_timestamp(
    path: Path, steps: list[tuple[int, int]], targets: list[int]
) -> None:
    """For every target: the last entry of a plain list whose timestamp is not above it, else (-1, base offset)."""
    index, expected = fill(path, steps)
    with index:
        assert list(index) == expected
        for target in targets:
            below = [entry for entry in expected if entry.timestamp_ms <= target]
            assert index.lookup(target) == (below[-1] if below else TimestampOffset(-1, BASE))


@given(steps=appends, cut=st.integers(BASE - 1, BASE + 160))
@settings(deadline=None, max_examples=100)
def test_truncation_drops_the_entries_at_and_behind_an_offset(
    path: Path, steps: list[tuple[int, int]], cut: int
) -> None:
    """After truncate_to(o) the index is the list of entries below o, also when opened again."""
    index, expected = fill(path, steps)
    kept = [entry for entry in expected if entry.offset < cut]
    with index:
        index.truncate_to(cut)
        assert list(index) == kept
        assert index.last_entry == (kept[-1] if kept else TimestampOffset(-1, BASE))
    with TimeIndex(path, BASE, max_size=0, writable=False) as reopened:
        assert list(reopened) == kept


def test_one_slot_is_kept_for_the_entry_at_the_roll(tmp_path: Path) -> None:
    index = TimeIndex(tmp_path / "t.timeindex", BASE, max_size=47)
    assert (tmp_path / "t.timeindex").stat().st_size == 36
    index.maybe_append(T0, BASE)
    index.maybe_append(T0 + 1, BASE + 1)
    assert index.is_full
    with pytest.raises(ValueError, match="full"):
        index.maybe_append(T0 + 2, BASE + 2)
    index.maybe_append(T0 + 2, BASE + 2, skip_full_check=True)
    with pytest.raises(ValueError, match="full"):
        index.maybe_append(T0 + 3, BASE + 3, skip_full_check=True)
    index.close()
    assert (tmp_path / "t.timeindex").read_bytes() == struct.pack(">qiqiqi", T0, 0, T0 + 1, 1, T0 + 2, 2)


def test_timestamps_and_offsets_never_go_back(tmp_path: Path) -> None:
    with TimeIndex(tmp_path / "t.timeindex", BASE, max_size=1200) as index:
        index.maybe_append(T0, BASE + 5)
        index.maybe_append(T0, BASE + 9)  # no newer timestamp: nothing to add
        for timestamp, offset in ((T0 - 1, BASE + 6), (T0 + 1, BASE + 4), (T0 + 1, BASE + 2**31)):
            with pytest.raises(ValueError, match=r"t\.timeindex"):
                index.maybe_append(timestamp, offset)
        assert list(index) == [TimestampOffset(T0, BASE + 5)]


def test_a_timestamp_below_zero_adds_nothing(tmp_path: Path) -> None:
    with TimeIndex(tmp_path / "t.timeindex", BASE, max_size=1200) as index:
        index.maybe_append(-1, BASE)
        assert index.entries == 0


def test_every_cut_and_every_flipped_byte_is_found_or_leaves_an_ordered_index(tmp_path: Path) -> None:
    """Whatever one damaged byte does: CorruptIndexError, or timestamps ascend and offsets do not descend."""
    path = tmp_path / "t.timeindex"
    index, _ = fill(path, [(1, 1)] * 5)
    index.close()
    sound = path.read_bytes()
    damaged = [sound[:n] for n in range(len(sound))]
    damaged += [
        sound[:n] + bytes([sound[n] ^ (1 << bit)]) + sound[n + 1 :] for n in range(len(sound)) for bit in (0, 7)
    ]
    for data in damaged:
        path.write_bytes(data)
        with contextlib.closing(TimeIndex(path, BASE, max_size=0, writable=False)) as reader:
            try:
                reader.sanity_check()
            except CorruptIndexError:
                continue
            found = list(reader)
            assert [entry.timestamp_ms for entry in found] == sorted({entry.timestamp_ms for entry in found})
            assert [entry.offset for entry in found] == sorted(entry.offset for entry in found)


def test_entries_are_had_by_slot_and_no_other_slot(tmp_path: Path) -> None:
    index, expected = fill(tmp_path / "i.timeindex", [(1, 1)] * 5)
    with index:
        assert [index.entry(slot) for slot in range(5)] == expected
        assert index.entry_size == 12
        for slot in (-1, 5):
            with pytest.raises(IndexError, match="of 5 entries"):
                index.entry(slot)


def test_the_last_entry_follows_appends_and_truncation(tmp_path: Path) -> None:
    path = tmp_path / "i.timeindex"
    with TimeIndex(path, BASE, max_size=120) as index:
        assert index.last_entry == TimestampOffset(-1, BASE)
        index.maybe_append(T0, BASE + 3)
        assert index.last_entry == TimestampOffset(T0, BASE + 3)
        index.maybe_append(T0 + 1, BASE + 4)
        index.truncate_to(BASE + 4)
        assert index.last_entry == TimestampOffset(T0, BASE + 3)
        index.truncate()
        assert (index.entries, index.last_entry) == (0, TimestampOffset(-1, BASE))


def test_resizing_says_whether_it_did_anything_and_keeps_the_entries(tmp_path: Path) -> None:
    index, expected = fill(tmp_path / "i.timeindex", [(1, 1)] * 5)
    with index:
        assert not index.resize(index.length)
        assert index.resize(index.length // 2)
        assert index.resize(index.length * 4 + 11)
        assert index.length % 12 == 0
        assert list(index) == expected
        with pytest.raises(ValueError, match="do not hold 5 entries"):
            index.resize(48)


@given(steps=appends, targets=st.lists(st.integers(T0 - 5, T0 + 160), max_size=50))
@settings(deadline=None, max_examples=100)
def test_many_lookups_at_once_are_as_many_single_ones(
    path: Path, steps: list[tuple[int, int]], targets: list[int]
) -> None:
    """lookup_many(targets)[i] is lookup(targets[i])."""
    index, _ = fill(path, steps)
    with index:
        timestamps, offsets = index.lookup_many(targets)
        assert list(zip(timestamps.tolist(), offsets.tolist(), strict=True)) == [
            tuple(index.lookup(target)) for target in targets
        ]


@pytest.mark.parametrize("entries", [100, 30_000])
def test_an_entry_amid_an_index_of_any_size_that_goes_back_is_corrupt(tmp_path: Path, entries: int) -> None:
    """Large indexes are checked by other means than small ones."""
    path = tmp_path / "i.timeindex"
    sound = b"".join(struct.pack(">qi", T0 + i, i) for i in range(entries))
    path.write_bytes(sound)
    with TimeIndex(path, BASE, max_size=0, writable=False) as index:
        index.sanity_check()
    for wrong in ((T0 + entries // 2 - 1, entries // 2), (T0 + entries // 2, entries // 2 - 2), (-5, 0)):
        damaged = bytearray(sound)
        struct.pack_into(">qi", damaged, entries // 2 * 12, *wrong)
        path.write_bytes(damaged)
        with (
            TimeIndex(path, BASE, max_size=0, writable=False) as index,
            pytest.raises(CorruptIndexError, match=f"entry {entries // 2}"),
        ):
            index.sanity_check()
