"""Leader epochs: the cache against a plain model, and the file as Kafka writes it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.errors import CorruptCheckpointError
from stratalog.log.format.values import EpochEntry
from stratalog.log.leader_epochs import LeaderEpochCache
from stratalog.testing.failing_filesystem import FailingFileSystem
from stratalog.util.filesystem import File, FileSystem, StrPath

EPOCHS, OFFSETS = range(8), range(40)


class UnsyncedFile(File):
    def sync(self) -> None:
        """Thousands of syncs would take a minute."""


class UnsyncedFileSystem(FileSystem):
    def open(self, path: StrPath, *, write: bool = False, create: bool = False) -> File:
        with super().open(path, write=write, create=create) as file:
            return UnsyncedFile(path, os.dup(file.fileno()))

    def sync_dir(self, path: StrPath) -> None:
        """As for the file."""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("epochs") / "leader-epoch-checkpoint"


operations = st.lists(
    st.one_of(
        st.tuples(st.just("assign"), st.sampled_from(EPOCHS), st.sampled_from(OFFSETS)),
        st.tuples(st.just("end"), st.just(0), st.integers(-1, 41)),
        st.tuples(st.just("start"), st.just(0), st.integers(-1, 41)),
        st.tuples(st.just("clear"), st.just(0), st.just(0)),
    ),
    max_size=15,
)


class Model:
    """Which epoch wrote each offset from its entry on, kept as a dict from epoch to start offset."""

    def __init__(self) -> None:
        self.starts: dict[int, int] = {}

    def apply(self, name: str, epoch: int, offset: int) -> None:
        if name == "clear":
            self.starts = {}
        elif name == "end" and offset >= 0:
            self.starts = {e: o for e, o in self.starts.items() if o < offset}
        elif name == "start":
            begun = [e for e, o in self.starts.items() if o <= offset]
            if begun:
                self.starts = {e: o for e, o in self.starts.items() if o > offset} | {max(begun): offset}
        elif name == "assign":
            latest = max(self.starts, default=None)
            if latest is None or epoch != latest or offset < self.starts[latest]:
                self.starts = {e: o for e, o in self.starts.items() if e < epoch and o < offset} | {epoch: offset}

    def epoch_for(self, offset: int) -> int | None:
        return max((e for e, o in self.starts.items() if o <= offset), default=None)

    def end_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        higher = [o for e, o in self.starts.items() if e > epoch]
        if epoch in self.starts and not higher:
            return epoch, log_end
        if epoch < 0 or not higher:
            return -1, -1
        return max((e for e in self.starts if e <= epoch), default=epoch), min(higher)


@given(operations=operations)
@settings(deadline=None, max_examples=150)
def test_the_cache_answers_as_a_plain_model_does(path: Path, operations: list[tuple[str, int, int]]) -> None:
    """After any operations, all answers equal the model's; the file read again gives the same cache."""
    path.unlink(missing_ok=True)
    cache, model = LeaderEpochCache(path, UnsyncedFileSystem()), Model()
    for name, epoch, offset in operations:
        if name == "assign":
            cache.assign(epoch, offset)
        elif name == "end":
            cache.truncate_from_end(offset)
        elif name == "start":
            cache.truncate_from_start(offset)
        else:
            cache.clear()
        model.apply(name, epoch, offset)
    expected = [EpochEntry(e, o) for e, o in sorted(model.starts.items())]
    for found in (cache, LeaderEpochCache(path)):
        assert found.entries == expected
        assert found.latest_epoch == max(model.starts, default=None)
        assert found.entries[-1:] == expected[-1:]
        assert found.earliest_entry == (expected[0] if expected else None)
        for offset in range(-1, 42):
            assert found.epoch_for_offset(offset) == model.epoch_for(offset)
            assert found.entries_up_to(offset) == [entry for entry in expected if entry.start_offset < offset]
        for epoch in range(-1, 10):
            assert found.end_offset_for(epoch, 99) == model.end_for(epoch, 99)
            assert found.previous_epoch(epoch) == max((e for e in model.starts if e < epoch), default=None)
            assert found.next_epoch(epoch) == min((e for e in model.starts if e > epoch), default=None)


def test_a_range_begins_with_the_epoch_that_wrote_its_first_offset(tmp_path: Path) -> None:
    cache = LeaderEpochCache(tmp_path / "leader-epoch-checkpoint")
    cache.assign_all([EpochEntry(0, 0), EpochEntry(2, 10), EpochEntry(5, 20)])
    assert cache.entries_in_range(12, 20) == [EpochEntry(2, 12)]
    assert cache.entries_in_range(10, 21) == [EpochEntry(2, 10), EpochEntry(5, 20)]
    assert cache.entries_in_range(-1, 10) == [EpochEntry(0, 0)]
    assert cache.entries == [EpochEntry(0, 0), EpochEntry(2, 10), EpochEntry(5, 20)]


def test_the_file_is_kafkas_and_there_before_the_first_epoch(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    cache = LeaderEpochCache(path)
    assert path.read_bytes() == b""
    cache.assign(0, 0)
    golden = Path(__file__).parents[1] / "golden" / "dump" / "none" / "leader-epoch-checkpoint"
    assert path.read_bytes() == golden.read_bytes() == b"0\n1\n0 0\n"
    cache.assign(3, 1007)
    assert path.read_bytes() == b"0\n2\n0 0\n3 1007\n"
    cache.clear()
    assert path.read_bytes() == b"0\n0\n"


def test_nothing_is_written_when_nothing_changes(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    cache = LeaderEpochCache(path)
    cache.assign(1, 5)
    path.unlink()
    cache.assign(1, 5)
    cache.assign(1, 9)
    cache.truncate_from_end(6)
    cache.truncate_from_start(5)
    assert not path.exists()


@pytest.mark.parametrize(("epoch", "offset"), [(-1, 0), (0, -1)])
def test_a_negative_epoch_or_offset_is_refused(tmp_path: Path, epoch: int, offset: int) -> None:
    cache = LeaderEpochCache(tmp_path / "leader-epoch-checkpoint")
    with pytest.raises(ValueError, match="0 up"):
        cache.assign(epoch, offset)
    assert cache.entries == []


def test_a_damaged_file_is_reported_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_bytes(b"0\n2\n0 0\n")
    with pytest.raises(CorruptCheckpointError, match="leader-epoch-checkpoint: 1 entries, but line 2 says 2"):
        LeaderEpochCache(path)


# --- by example: the behaviours that Kafka's own tests name -----------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path) -> LeaderEpochCache:
    return LeaderEpochCache(tmp_path / "leader-epoch-checkpoint")


def _entries(cache: LeaderEpochCache) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in cache.entries]


def _with(cache: LeaderEpochCache, *entries: tuple[int, int]) -> LeaderEpochCache:
    for epoch, start_offset in entries:
        cache.assign(epoch, start_offset)
    return cache


def test_an_empty_cache_knows_nothing_and_takes_everything(cache: LeaderEpochCache) -> None:
    assert (cache.latest_epoch, cache.entries, cache.earliest_entry) == (None, [], None)
    assert cache.end_offset_for(0, 9) == cache.end_offset_for(7, 9) == cache.end_offset_for(-1, 9) == (-1, -1)
    assert (cache.previous_epoch(3), cache.next_epoch(3), cache.epoch_for_offset(0)) == (None, None, None)
    cache.truncate_from_start(7)
    cache.truncate_from_end(0)
    assert _entries(cache) == []


def test_the_latest_epoch_ends_with_the_log_and_one_above_it_is_not_known(cache: LeaderEpochCache) -> None:
    _with(cache, (2, 5))
    assert cache.latest_epoch == 2
    assert cache.end_offset_for(2, 9) == (2, 9)
    assert cache.end_offset_for(3, 9) == cache.end_offset_for(-1, 9) == (-1, -1)


def test_an_epoch_ends_where_the_next_one_begins(cache: LeaderEpochCache) -> None:
    _with(cache, (5, 11), (6, 12), (7, 13))
    assert [cache.end_offset_for(epoch, 40) for epoch in (4, 5, 6, 7)] == [(4, 11), (5, 12), (6, 13), (7, 40)]


def test_between_epochs_the_lower_one_answers(cache: LeaderEpochCache) -> None:
    _with(cache, (0, 10), (2, 13), (4, 17))
    assert cache.end_offset_for(1, 30) == (0, 13)
    assert cache.end_offset_for(3, 30) == (2, 17)


def test_an_epoch_begins_once(cache: LeaderEpochCache) -> None:
    _with(cache, (2, 6), (2, 7), (2, 9), (3, 9), (3, 10))
    assert _entries(cache) == [(2, 6), (3, 9)]


def test_an_epoch_that_begins_earlier_than_it_did_replaces_itself(cache: LeaderEpochCache) -> None:
    _with(cache, (4, 6), (4, 5))
    assert _entries(cache) == [(4, 5)]
    _with(cache, (5, 7), (5, 4))
    assert _entries(cache) == [(5, 4)]


def test_epochs_and_offsets_that_go_back_take_away_what_they_contradict(cache: LeaderEpochCache) -> None:
    _with(cache, (1, 5), (2, 6))
    _with(cache, (1, 7))
    assert _entries(cache) == [(1, 7)]
    assert cache.end_offset_for(1, 8) == (1, 8)
    _with(cache, (3, 5))
    assert _entries(cache) == [(3, 5)]


def test_leaders_that_change_without_records_leave_one_epoch(cache: LeaderEpochCache) -> None:
    _with(cache, (0, 0), (1, 0), (2, 0))
    assert _entries(cache) == [(2, 0)]
    _with(cache, (3, 3), (4, 3), (5, 6))
    assert _entries(cache) == [(2, 0), (4, 3), (5, 6)]
    assert [cache.end_offset_for(epoch, 9) for epoch in range(6)] == [
        (0, 0),
        (1, 0),
        (2, 3),
        (2, 3),
        (4, 6),
        (5, 9),
    ]


def test_a_follower_gets_to_the_same_history_batch_by_batch(cache: LeaderEpochCache) -> None:
    for offset, epoch in enumerate((0, 0, 0, 1, 1, 1, 2, 2, 2)):
        cache.assign(epoch, offset)
        assert cache.latest_epoch == epoch
    assert _entries(cache) == [(0, 0), (1, 3), (2, 6)]
    assert [cache.end_offset_for(epoch, 9) for epoch in range(3)] == [(0, 3), (1, 6), (2, 9)]


THREE = ((2, 6), (3, 8), (4, 11))


@pytest.mark.parametrize(
    ("offset", "left"),
    [
        (8, [(2, 6)]),
        (9, [(2, 6), (3, 8)]),
        (6, []),
        (0, []),
        (11, [(2, 6), (3, 8)]),
        (12, [*THREE]),
        (-1, [*THREE]),
    ],
)
def test_from_the_end_entries_go_that_begin_at_the_cut_or_behind_it(
    cache: LeaderEpochCache, offset: int, left: list[tuple[int, int]]
) -> None:
    _with(cache, *THREE).truncate_from_end(offset)
    assert _entries(cache) == _entries(LeaderEpochCache(cache.path)) == left


@pytest.mark.parametrize(
    ("offset", "left"),
    [
        (8, [(3, 8), (4, 11)]),
        (9, [(3, 9), (4, 11)]),
        (10, [(3, 10), (4, 11)]),
        (5, [*THREE]),
        (6, [*THREE]),
        (7, [(2, 7), (3, 8), (4, 11)]),
        (11, [(4, 11)]),
        (15, [(4, 15)]),
        (-1, [*THREE]),
    ],
)
def test_from_the_start_the_epoch_at_the_cut_begins_there(
    cache: LeaderEpochCache, offset: int, left: list[tuple[int, int]]
) -> None:
    _with(cache, *THREE).truncate_from_start(offset)
    assert _entries(cache) == _entries(LeaderEpochCache(cache.path)) == left


def test_epochs_are_found_by_their_neighbours_and_their_offsets(cache: LeaderEpochCache) -> None:
    _with(cache, (2, 10), (4, 15), (10, 20))
    assert [cache.previous_epoch(epoch) for epoch in (2, 3, 4, 10, 11)] == [None, 2, 2, 4, 10]
    assert [cache.next_epoch(epoch) for epoch in (1, 2, 3, 4, 9, 10)] == [2, 4, 4, 10, 10, None]
    assert [cache.epoch_for_offset(offset) for offset in (9, 10, 14, 15, 19, 20, 99)] == [
        None,
        2,
        2,
        4,
        4,
        10,
        10,
    ]
    assert {entry.epoch: entry.start_offset for entry in cache.entries}.get(4) == 15


def test_an_epoch_that_could_not_be_written_is_not_known_and_can_be_assigned_again(tmp_path: Path) -> None:
    fs = FailingFileSystem()
    cache = LeaderEpochCache(tmp_path / "leader-epoch-checkpoint", fs)
    cache.assign(0, 0)
    fs.fail(tmp_path, errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        cache.assign(1, 5)
    assert cache.latest_epoch == 0
    fs.mend(tmp_path)
    cache.assign(1, 5)
    assert LeaderEpochCache(cache.path).entries == [EpochEntry(0, 0), EpochEntry(1, 5)]
