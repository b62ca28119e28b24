"""Leader epochs: the cache against a plain model, and the file as Kafka writes it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stratalog.errors import CorruptCheckpointError
from stratalog.log.leader_epochs import LeaderEpochCache
from stratalog.log.values import EpochEntry
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
                self.starts = {e: o for e, o in self.starts.items() if e < epoch and o < offset} | {
                    epoch: offset
                }

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
        assert found.latest_entry == (expected[-1] if expected else None)
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


def test_a_damaged_file_is_told_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    path.write_bytes(b"0\n2\n0 0\n")
    with pytest.raises(CorruptCheckpointError, match="leader-epoch-checkpoint: 1 entries, but line 2 says 2"):
        LeaderEpochCache(path)


def test_the_cache_follows_its_directory(tmp_path: Path) -> None:
    old, new = tmp_path / "a-0", tmp_path / "a-0.x-delete"
    old.mkdir()
    cache = LeaderEpochCache(old / "leader-epoch-checkpoint")
    old.rename(new)
    cache.moved_to(new)
    cache.assign(0, 0)
    assert (new / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n0 0\n"
