"""The offset index: Kafka's bytes, lookups as a plain list gives them, and no damage that passes for sound."""

from __future__ import annotations

import bisect
import contextlib
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.errors import CorruptIndexError, KafkaStorageError
from stratalog.log.format.offset_index_format import LARGE, LEGACY, OffsetIndexFormat
from stratalog.log.format.values import OffsetPosition
from stratalog.log.index.offset_index import OffsetIndex
from stratalog.records.batch import RecordBatch

GOLDEN = Path(__file__).parents[1] / "golden" / "dump" / "indexed"
BASE = 1000

steps = st.lists(st.tuples(st.integers(1, 10_000), st.integers(1, 100_000)), max_size=60)


def open_index(path: Path, *, max_size: int = 4096, entry_size: int = 8, base: int = BASE) -> OffsetIndex:
    return OffsetIndex(path, base, max_size=max_size, entry_size=entry_size)


def entries_of(steps: list[tuple[int, int]]) -> list[OffsetPosition]:
    offset, position, entries = BASE, 0, []
    for offset_step, position_step in steps:
        offset += offset_step
        position += position_step
        entries.append(OffsetPosition(offset, position))
    return entries


@contextlib.contextmanager
def filled(path: Path, entries: list[OffsetPosition], entry_size: int = 8) -> Iterator[OffsetIndex]:
    path.unlink(missing_ok=True)
    with open_index(path, entry_size=entry_size) as index:
        for entry in entries:
            index.append(*entry)
        yield index


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("index") / "00000000000000001000.index"


@given(steps=steps, targets=st.lists(st.integers(0, 700_000), max_size=20), entry_size=st.sampled_from([8, 12]))
@settings(deadline=None, max_examples=150)
def test_a_lookup_gives_the_largest_entry_at_or_below_the_target(
    path: Path, steps: list[tuple[int, int]], targets: list[int], entry_size: int
) -> None:
    """For every target: the last entry of a plain list whose offset is not above it, else (base offset, 0)."""
    entries = entries_of(steps)
    with filled(path, entries, entry_size) as index:
        assert list(index) == entries
        near = [entry.offset + d for entry in entries for d in (-1, 0, 1)]
        for target in (*targets, *near, 0, BASE):
            at = bisect.bisect_right([entry.offset for entry in entries], target)
            assert index.lookup(target) == (entries[at - 1] if at else OffsetPosition(BASE, 0))


@given(steps=steps, start=st.integers(0, 60), size=st.integers(0, 400_000))
@settings(deadline=None, max_examples=100)
def test_the_upper_bound_is_the_first_entry_behind_the_bytes(
    path: Path, steps: list[tuple[int, int]], start: int, size: int
) -> None:
    """The first entry of a plain list at or above start + size, else None."""
    entries = entries_of(steps)
    begin = entries[start] if start < len(entries) else OffsetPosition(BASE, 0)
    expected = next((entry for entry in entries if entry.position >= begin.position + size), None)
    with filled(path, entries) as index:
        assert index.fetch_upper_bound(begin, size) == expected


@given(steps=steps, cut=st.integers(900, 200_000), more=steps)
@settings(deadline=None, max_examples=100)
def test_truncation_leaves_what_a_list_would_keep_and_appends_go_on(
    path: Path, steps: list[tuple[int, int]], cut: int, more: list[tuple[int, int]]
) -> None:
    """After truncate_to(o) the entries are those below o, and later appends stand behind them, also when reopened."""
    kept = [entry for entry in entries_of(steps) if entry.offset < cut]
    with filled(path, entries_of(steps)) as index:
        index.truncate_to(cut)
        assert list(index) == kept
        last = kept[-1] if kept else OffsetPosition(BASE, 0)
        added = [OffsetPosition(last.offset + o - BASE, last.position + p) for o, p in entries_of(more)]
        for entry in added:
            index.append(*entry)
    with open_index(path) as reopened:
        assert list(reopened) == kept + added
        assert reopened.last_entry == (added or kept or [OffsetPosition(BASE, 0)])[-1]


def test_the_file_has_its_full_size_in_use_and_only_its_entries_when_closed(tmp_path: Path) -> None:
    path = tmp_path / "i.index"
    index = OffsetIndex(path, 0, max_size=10_485_763)
    assert path.stat().st_size == 10_485_760
    assert path.stat().st_blocks == 0
    index.append(5, 4200)
    index.append(9, 8500)
    index.flush()
    assert path.read_bytes()[:16] == struct.pack(">iiii", 5, 4200, 9, 8500)
    index.trim_to_valid_size()
    assert path.stat().st_size == 16
    assert index.is_full
    assert index.resize(10_485_763)
    index.append(12, 12_000)
    index.close()
    assert path.read_bytes() == struct.pack(">iiiiii", 5, 4200, 9, 8500, 12, 12_000)


def test_the_same_entries_as_kafka_make_the_same_bytes(tmp_path: Path) -> None:
    """Kafka wrote an entry for a batch once index.interval.bytes (300) lay between it and the last entry."""
    data = (GOLDEN / "00000000000000000000.log").read_bytes()
    path = tmp_path / "i.index"
    with OffsetIndex(path, 0, max_size=1024) as index:
        position, since = 0, 0
        while position < len(data):
            batch = RecordBatch(data, position)
            if since > 300:
                index.append(batch.last_offset, position)
                since = 0
            since += batch.size
            position += batch.size
        assert index.entries > 10
    assert path.read_bytes() == (GOLDEN / "00000000000000000000.index").read_bytes()


def test_a_closed_empty_index_is_an_empty_file_that_opens_again(tmp_path: Path) -> None:
    path = tmp_path / "i.index"
    open_index(path).close()
    assert path.stat().st_size == 0
    with open_index(path) as index:
        assert index.lookup(BASE + 7) == OffsetPosition(BASE, 0)
        assert index.last_offset == BASE
        index.sanity_check()
        index.truncate_to(BASE)
        assert index.resize(80)
        index.append(BASE + 1, 1)
        assert index.lookup(BASE + 7) == OffsetPosition(BASE + 1, 1)


def test_an_append_that_does_not_fit_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with OffsetIndex(tmp_path / "i.index", BASE, max_size=24) as index:
        index.append(BASE + 10, 100)
        for offset, position in (
            (BASE + 10, 200),
            (BASE + 9, 200),
            (BASE + 2**31, 200),
            (BASE - 1, 200),
            (BASE + 11, 2**31),
            (BASE + 11, -1),
        ):
            with pytest.raises(ValueError, match=r"i\.index"):
                index.append(offset, position)
        assert list(index) == [OffsetPosition(BASE + 10, 100)]
        index.append(BASE + 2**31 - 1, 2**31 - 1)
        assert not index.is_full
    with OffsetIndex(tmp_path / "j.index", BASE, max_size=8) as index:
        index.append(BASE + 1, 1)
        assert index.is_full
        with pytest.raises(ValueError, match="full"):
            index.append(BASE + 2, 2)


def test_the_large_format_takes_positions_beyond_4_gib(tmp_path: Path) -> None:
    entries = [
        OffsetPosition(BASE + 1, 2**31),
        OffsetPosition(BASE + 2, 2**32 + 1),
        OffsetPosition(BASE + 3, 2**45),
    ]
    path = tmp_path / "i.index"
    with filled(path, entries, entry_size=12) as index:
        assert index.lookup(BASE + 2) == entries[1]
        assert index.fetch_upper_bound(entries[0], 2**32) == entries[2]
    assert path.read_bytes() == b"".join(struct.pack(">iq", e.offset - BASE, e.position) for e in entries)


def test_only_eight_or_twelve_bytes_make_an_entry(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="8 or 12"):
        open_index(tmp_path / "i.index", entry_size=16)


def test_a_missing_index_is_not_made_by_a_reader(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OffsetIndex(tmp_path / "i.index", 0, max_size=80, writable=False)
    assert list(tmp_path.iterdir()) == []


def test_a_reader_leaves_the_zero_tail_of_a_live_index(tmp_path: Path) -> None:
    path = tmp_path / "i.index"
    with OffsetIndex(path, 0, max_size=80) as writer:
        writer.append(7, 700)
        writer.write_out()
        with OffsetIndex(path, 0, max_size=0, writable=False) as reader:
            assert reader.entry(0) == OffsetPosition(7, 700)
        assert path.stat().st_size == 80


def test_use_after_close_is_an_error_of_storage_not_of_python(tmp_path: Path) -> None:
    index = OffsetIndex(tmp_path / "i.index", 0, max_size=80)
    index.append(1, 10)
    index.append(3, 30)
    index.close()
    index.close()
    with pytest.raises(KafkaStorageError, match="closed"):
        index.lookup(2)


def test_a_deleted_index_is_gone_and_deleting_again_is_fine(tmp_path: Path) -> None:
    index = OffsetIndex(tmp_path / "i.index", 0, max_size=80)
    index.rename_to(tmp_path / "i.index.deleted")
    index.append(1, 10)
    index.delete()
    index.delete()
    assert list(tmp_path.iterdir()) == []


def test_an_index_cut_by_someone_else_is_reported_instead_of_crashing(tmp_path: Path) -> None:
    path = tmp_path / "i.index"
    path.write_bytes(struct.pack(">iiii", 5, 4200, 9, 8500))
    index = OffsetIndex(path, 0, max_size=80, writable=False)
    path.write_bytes(b"")
    with pytest.raises(KafkaStorageError, match=r"i\.index: 0 bytes"):
        index.lookup(5)


@pytest.mark.parametrize("entry_size", [8, 12])
def test_every_cut_and_every_flipped_byte_is_found_or_leaves_an_ordered_index(tmp_path: Path, entry_size: int) -> None:
    """Whatever one damaged byte does: the checks raise CorruptIndexError, or offsets and positions still ascend."""
    path = tmp_path / "i.index"
    entries = entries_of([(10, 5000)] * 6)
    with filled(path, entries, entry_size):
        pass
    sound = path.read_bytes()
    damaged = [sound[:n] for n in range(len(sound))]
    damaged += [
        sound[:n] + bytes([sound[n] ^ (1 << bit)]) + sound[n + 1 :] for n in range(len(sound)) for bit in (0, 7)
    ]
    for data in damaged:
        path.write_bytes(data)
        with contextlib.closing(OffsetIndex(path, BASE, max_size=0, writable=False, entry_size=entry_size)) as index:
            try:
                index.sanity_check()
            except CorruptIndexError:
                continue
            found = list(index)
            assert found == sorted(set(found))
            assert [entry.position for entry in found] == sorted({entry.position for entry in found})


def test_a_zero_tail_left_by_a_crash_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "i.index"
    path.write_bytes(struct.pack(">iiii", 5, 4200, 9, 8500) + bytes(32))
    with OffsetIndex(path, BASE, max_size=0, writable=False) as index, pytest.raises(CorruptIndexError):
        index.sanity_check()


def test_entries_are_had_by_slot_and_no_other_slot(tmp_path: Path) -> None:
    entries = entries_of([(1, 5000)] * 4)
    with filled(tmp_path / "i.index", entries) as index:
        assert [index.entry(slot) for slot in range(4)] == entries
        for slot in (-1, 4):
            with pytest.raises(IndexError, match="of 4 entries"):
                index.entry(slot)


def test_a_reopened_index_has_its_entries_and_room_only_when_it_is_resized(tmp_path: Path) -> None:
    entries = entries_of([(1, 5000)] * 2)
    with filled(tmp_path / "i.index", entries):
        pass
    with open_index(tmp_path / "i.index") as index:
        assert (list(index), index.last_offset, index.entries) == (entries, BASE + 2, 2)
        with pytest.raises(ValueError, match="full"):
            index.append(BASE + 3, 20_000)


def test_an_entry_for_the_base_offset_itself_is_sound(tmp_path: Path) -> None:
    with open_index(tmp_path / "i.index") as index:
        index.append(BASE, 0)
        index.sanity_check()


def test_a_legacy_index_says_what_to_do_about_a_position_past_2_gib(tmp_path: Path) -> None:
    with open_index(tmp_path / "i.index") as index:
        with pytest.raises(ValueError, match="Finalize MetadataVersion to IBP_4_4_IV1 to enable large index format"):
            index.append(BASE + 1, 2**31)
        assert index.entries == 0
        index.append(BASE + 1, 2**31 - 1)


@pytest.mark.parametrize(("old", "new"), [(LEGACY, LARGE), (LARGE, LEGACY), (LEGACY, LEGACY)], ids=str)
def test_an_index_that_is_filled_again_may_have_another_format(
    tmp_path: Path, old: OffsetIndexFormat, new: OffsetIndexFormat
) -> None:
    path = tmp_path / "i.index"
    with OffsetIndex(path, BASE, max_size=1000, entry_size=old.entry_size) as index:
        for entry in entries_of([(1, 5000)] * 20):
            index.append(*entry)
        index.reset(new)
        assert (index.entries, index.format, index.length) == (
            0,
            new,
            1000 // new.entry_size * new.entry_size,
        )
        assert list(index) == []
        again = entries_of([(3, 7000)] * 30)
        for entry in again:
            index.append(*entry)
        assert list(index) == again
    assert path.read_bytes() == b"".join(new.entry.pack(e.offset - BASE, e.position) for e in again)


@given(steps=steps, targets=st.lists(st.integers(0, 700_000), max_size=50), entry_size=st.sampled_from([8, 12]))
@settings(deadline=None, max_examples=100)
def test_many_lookups_at_once_are_as_many_single_ones(
    path: Path, steps: list[tuple[int, int]], targets: list[int], entry_size: int
) -> None:
    """lookup_many(targets)[i] is lookup(targets[i])."""
    with filled(path, entries_of(steps), entry_size) as index:
        offsets, positions = index.lookup_many(targets)
        assert list(zip(offsets.tolist(), positions.tolist(), strict=True)) == [
            tuple(index.lookup(target)) for target in targets
        ]


def test_many_lookups_in_a_large_index_are_those_of_a_bisection(tmp_path: Path) -> None:
    """More entries than one sample covers, gaps of all sizes, targets at, below and behind every kind of place."""
    chance = random.Random(5)
    offsets = sorted(chance.sample(range(1, 2**31), 9000))
    path = tmp_path / "i.index"
    path.write_bytes(b"".join(struct.pack(">iq", o, 5000 * (i + 1)) for i, o in enumerate(offsets)))
    targets = [o + d for o in offsets[::7] for d in (-1, 0, 1)] + [-5, 0, 2**31, 2**40]
    with OffsetIndex(path, 0, max_size=0, writable=False, entry_size=12) as index:
        found, positions = index.lookup_many(targets)
        single = [index.lookup(target) for target in targets]
    expected = [bisect.bisect_right(offsets, target) for target in targets]
    assert found.tolist() == [offsets[n - 1] if n else 0 for n in expected]
    assert positions.tolist() == [5000 * n for n in expected]
    assert [tuple(entry) for entry in single] == list(zip(found.tolist(), positions.tolist(), strict=True))


def test_a_roll_does_not_wait_for_a_batched_lookup_of_another_thread(tmp_path: Path) -> None:
    """A view of the entries is held, as a lookup holds it, while the index is cut, grown and closed."""
    with filled(tmp_path / "i.index", entries_of([(1, 5000)] * 4)) as index:
        with memoryview(index._copy()) as view:
            before = bytes(view[:32])
            index.trim_to_valid_size()
            assert index.resize(80)
            index.append(BASE + 9, 90_000)
            assert bytes(view[:32]) == before
        assert index.lookup(BASE + 10) == OffsetPosition(BASE + 9, 90_000)
        with memoryview(index._copy()):
            index.close()
    assert (tmp_path / "i.index").stat().st_size == 40


@pytest.mark.parametrize("entries", [100, 30_000])
@pytest.mark.parametrize("form", [LEGACY, LARGE], ids=str)
def test_an_entry_amid_an_index_of_any_size_that_goes_back_is_corrupt(
    tmp_path: Path, entries: int, form: OffsetIndexFormat
) -> None:
    """Large indexes are checked by other means than small ones."""
    path, middle = tmp_path / "i.index", entries // 2
    sound = b"".join(form.entry.pack(i + 1, 100 * i + 100) for i in range(entries))
    path.write_bytes(sound)
    for wrong in (None, (middle, 100 * middle + 100), (middle + 1, 100 * middle), (-1, -1), (middle + 1, -7)):
        damaged = bytearray(sound)
        if wrong is not None:
            form.entry.pack_into(damaged, middle * form.entry_size, *wrong)
        path.write_bytes(damaged)
        with OffsetIndex(path, BASE, max_size=0, writable=False, entry_size=form.entry_size) as index:
            if wrong is None:
                index.sanity_check()
                continue
            with pytest.raises(CorruptIndexError, match=f"entry {middle}, "):
                index.sanity_check()
