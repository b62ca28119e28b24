from __future__ import annotations

import errno
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typing_extensions import Buffer

from stratalog.errors import (
    DataDirError,
    RemoteResourceNotFoundError,
    RetriableRemoteStorageError,
)
from stratalog.log.format.offset_index_format import LARGE, LEGACY
from stratalog.log.format.values import OffsetPosition
from stratalog.log.index.txn_index import AbortedTransaction, encode_entry
from stratalog.remote.api.interfaces import IndexType, RemoteLogSegmentMetadata
from stratalog.remote.reading.index_cache import DELETE_DELAY_MS, DELETED_SUFFIX, RemoteIndexCache
from stratalog.remote.reading.index_loader import TMP_SUFFIX
from stratalog.testing.clock import ManualClock
from stratalog.util.clock import SYSTEM_CLOCK, Clock
from stratalog.util.filesystem import File, FileSystem, StrPath
from tests.remote.values import segment

ENTRIES = [(n * 10, n * 1_000) for n in range(1, 20)]
SIZE = 19 * 8 + 12


class FakeStore:
    """Only what the cache asks for; counts."""

    def __init__(self) -> None:
        self.fetched: list[tuple[int, IndexType]] = []
        self.offset_index = b"".join(LEGACY.entry.pack(*entry) for entry in ENTRIES)
        self.txn_index: bytes | None = None

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        self.fetched.append((metadata.start_offset, index_type))
        if index_type is IndexType.TRANSACTION:
            if self.txn_index is None:
                raise RemoteResourceNotFoundError("none")
            return self.txn_index
        return self.offset_index if index_type is IndexType.OFFSET else struct.pack(">qi", 5_000, 190)


def _cache(
    path: Path,
    store: FakeStore,
    capacity: int = 10**6,
    ttl_ms: int = -1,
    clock: Clock = SYSTEM_CLOCK,
) -> RemoteIndexCache:
    return RemoteIndexCache(path, store, capacity_bytes=capacity, ttl_ms=ttl_ms, clock=clock)  # type: ignore[arg-type]


def _in_place(path: Path) -> list[str]:
    """The files that belong to an entry."""
    return sorted(found.name for found in path.iterdir() if found.suffix != DELETED_SUFFIX)


def _segment(number: int, *, txn_index_empty: bool = True) -> RemoteLogSegmentMetadata:
    return segment(
        number,
        number * 1000,
        number * 1000 + 999,
        size=10**6,
        max_timestamp=5_000,
        txn_index_empty=txn_index_empty,
    )


def test_indexes_are_fetched_once_and_lie_on_disk_under_kafkas_names(tmp_path: Path) -> None:
    store = FakeStore()
    cache = _cache(tmp_path, store)
    for _ in range(3):
        with cache.indexes(_segment(1)) as found:
            assert found.offset_index.lookup(1_025) == OffsetPosition(1_020, 2_000)
            assert found.time_index.last_entry == (5_000, 1_190)
            assert found.txn_index.is_empty
    assert store.fetched == [(1_000, IndexType.OFFSET), (1_000, IndexType.TIMESTAMP)]
    stem = "1000_AAAAAAAAAAAAAAAAAAAD6Q"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{stem}.index",
        f"{stem}.timeindex",
        f"{stem}.txnindex",
    ]
    assert (len(cache), cache.size_bytes) == (1, SIZE)
    cache.close()


def test_a_transaction_index_is_fetched_when_there_is_one_and_missed_when_there_is_not(
    tmp_path: Path,
) -> None:
    store = FakeStore()
    cache = _cache(tmp_path, store)
    with cache.indexes(_segment(1, txn_index_empty=False)) as found:
        assert found.txn_index.is_empty
    aborted = AbortedTransaction(7, 2_001, 2_050, 2_051)
    store.txn_index = encode_entry(aborted)
    with cache.indexes(_segment(2, txn_index_empty=False)) as found:
        assert found.txn_index.all == [aborted]
    cache.close()


def test_entries_of_twelve_bytes_are_recognised(tmp_path: Path) -> None:
    store = FakeStore()
    store.offset_index = b"".join(LARGE.entry.pack(*entry) for entry in ENTRIES)
    cache = _cache(tmp_path, store)
    with cache.indexes(_segment(1)) as found:
        assert found.offset_index.entry_size == 12
        assert found.offset_index.lookup(1_025) == OffsetPosition(1_020, 2_000)
    cache.close()


def test_the_limit_holds_and_files_of_what_goes_are_removed(tmp_path: Path) -> None:
    store = FakeStore()
    cache = _cache(tmp_path, store, capacity=5 * SIZE)
    for number in range(30):
        with cache.indexes(_segment(number)) as found:
            assert found.offset_index.lookup(number * 1000 + 25).position == 2_000
    assert cache.size_bytes <= 5 * SIZE
    assert sum((tmp_path / name).stat().st_size for name in _in_place(tmp_path)) <= 5 * SIZE
    assert 0 < len(_in_place(tmp_path)) == 3 * len(cache)
    cache.close()
    assert len(list(tmp_path.iterdir())) == len(_in_place(tmp_path))


def test_an_entry_in_use_outlives_its_eviction(tmp_path: Path) -> None:
    store = FakeStore()
    cache = _cache(tmp_path, store)
    with cache.indexes(_segment(1)) as found:
        cache.invalidate(_segment(1).segment_id.id)
        assert len(cache) == 0
        assert _in_place(tmp_path) == []
        assert found.offset_index.lookup(1_025).position == 2_000
        assert found.time_index.lookup(9_999) == (5_000, 1_190)
    cache.close()


def test_an_entry_invalidated_in_use_is_fetched_again_for_the_next_reader(tmp_path: Path) -> None:
    store = FakeStore()
    cache = _cache(tmp_path, store)
    with cache.indexes(_segment(1)):
        cache.invalidate(_segment(1).segment_id.id)
        with cache.indexes(_segment(1)) as again:
            assert again.offset_index.lookup(1_025).position == 2_000
        assert len(store.fetched) == 4
    with cache.indexes(_segment(1)) as found:
        assert found.offset_index.lookup(1_025).position == 2_000
    cache.close()


def test_the_next_process_takes_over_what_is_complete_and_removes_the_rest(tmp_path: Path) -> None:
    store = FakeStore()
    cache = _cache(tmp_path, store)
    for number in (1, 2, 3):
        with cache.indexes(_segment(number)):
            pass
    cache.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    (tmp_path / next(n for n in names if n.startswith("1000_") and n.endswith(".timeindex"))).unlink()
    (tmp_path / next(n for n in names if n.startswith("2000_") and n.endswith(".index"))).write_bytes(b"damage!")
    (tmp_path / "5000_x.index.tmp").write_bytes(b"x")
    (tmp_path / "notes.txt").write_bytes(b"x")

    again = _cache(tmp_path, store)
    assert {path.name.split("_")[0] for path in tmp_path.iterdir()} == {"3000"}
    store.fetched.clear()
    for number in (1, 2, 3):
        with again.indexes(_segment(number)) as found:
            assert found.offset_index.lookup(number * 1000 + 25).position == 2_000
    assert {start for start, _ in store.fetched} == {1_000, 2_000}
    again.close()


def test_many_readers_share_one_download(tmp_path: Path) -> None:
    store = FakeStore()
    cache = _cache(tmp_path, store)
    barrier = threading.Barrier(8)

    def read(_: int) -> int:
        barrier.wait()
        with cache.indexes(_segment(1)) as found:
            return found.offset_index.lookup(1_025).position

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(read, range(8))) == {2_000}
    assert len(store.fetched) == 2
    cache.close()


def test_readers_race_eviction_and_always_get_their_answer(tmp_path: Path) -> None:
    store = FakeStore()
    cache = _cache(tmp_path, store, capacity=2 * SIZE)

    def read(seed: int) -> bool:
        return all(_looks_right(cache, (seed * 7 + n * (seed % 3 + 1)) % 9, evict=n % 11 == 0) for n in range(120))

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(read, range(6)))
    assert len(_in_place(tmp_path)) == 3 * len(cache)
    cache.close()
    assert len(list(tmp_path.iterdir())) == len(_in_place(tmp_path))


def _looks_right(cache: RemoteIndexCache, number: int, *, evict: bool) -> bool:
    if evict:
        cache.invalidate(_segment(number).segment_id.id)
    with cache.indexes(_segment(number)) as found:
        return found.offset_index.lookup(number * 1000 + 25).position == 2_000


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"a file")
    with pytest.raises(DataDirError, match="remote index cache"):
        _cache(tmp_path / "cache", FakeStore())


class FullDisk(FileSystem):
    """Takes no more bytes while `full`."""

    full = False

    def open(self, path: StrPath, *, write: bool = False, create: bool = False) -> File:
        if self.full and create:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return super().open(path, write=write, create=create)


def test_a_full_disk_is_a_retriable_error_that_names_the_file(tmp_path: Path) -> None:
    fs = FullDisk()
    cache = RemoteIndexCache(tmp_path, FakeStore(), capacity_bytes=10**6, fs=fs)  # type: ignore[arg-type]
    fs.full = True
    with pytest.raises(RetriableRemoteStorageError, match="No space left"), cache.indexes(_segment(1)):
        pass
    fs.full = False
    with cache.indexes(_segment(1)) as found:
        assert found.offset_index.lookup(1_025).position == 2_000
    cache.close()


class BrokenWrites(FileSystem):
    """Writes half of what it is given, and fails."""

    def open(self, path: StrPath, *, write: bool = False, create: bool = False) -> File:
        file = super().open(path, write=write, create=create)
        if create:
            whole = file.write_at

            def half(data: Buffer, position: int) -> int:
                whole(bytes(data)[: len(bytes(data)) // 2], position)
                raise OSError(errno.EIO, "Input/output error", str(path))

            file.write_at = half  # type: ignore[method-assign]
        return file


def test_a_file_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    cache = RemoteIndexCache(tmp_path, FakeStore(), capacity_bytes=10**6, fs=BrokenWrites())  # type: ignore[arg-type]
    with pytest.raises(RetriableRemoteStorageError, match="Input/output error"), cache.indexes(_segment(1)):
        pass
    left = [path.name for path in tmp_path.iterdir()]
    assert left
    assert all(name.endswith(TMP_SUFFIX) for name in left)
    cache.close()
    _cache(tmp_path, FakeStore()).close()
    assert list(tmp_path.iterdir()) == []


def test_files_of_what_goes_are_renamed_at_once_and_removed_after_a_delay(tmp_path: Path) -> None:
    clock, store = ManualClock(), FakeStore()
    cache = _cache(tmp_path, store, clock=clock)
    with cache.indexes(_segment(1)) as found:
        cache.invalidate(_segment(1).segment_id.id)
        with cache.indexes(_segment(1)) as again:  # the names are free at once
            assert again is not found
        clock.advance(DELETE_DELAY_MS - 1)
        cache.purge()
        assert len(list(tmp_path.iterdir())) == 6
        clock.advance(1)
        cache.purge()
        assert len(list(tmp_path.iterdir())) == len(_in_place(tmp_path)) == 3
        assert found.offset_index.lookup(1_025).position == 2_000
    cache.close()


def test_what_a_crash_left_half_deleted_is_removed_at_the_next_start(tmp_path: Path) -> None:
    cache = _cache(tmp_path, FakeStore())
    with cache.indexes(_segment(1)):
        cache.invalidate(_segment(1).segment_id.id)
    assert len(list(tmp_path.iterdir())) == 3
    _cache(tmp_path, FakeStore()).close()
    assert list(tmp_path.iterdir()) == []
    cache.close()


def test_entries_that_no_one_used_for_the_ttl_go_and_used_ones_stay(tmp_path: Path) -> None:
    clock, store = ManualClock(), FakeStore()
    cache = _cache(tmp_path, store, ttl_ms=60_000, clock=clock)
    for number in (1, 2):
        with cache.indexes(_segment(number)):
            pass
    clock.advance(59_999)
    with cache.indexes(_segment(2)):
        pass
    cache.purge()
    assert len(cache) == 2
    clock.advance(1)
    cache.purge()
    assert [name.split("_")[0] for name in _in_place(tmp_path)] == ["2000"] * 3
    assert len(cache) == 1
    cache.close()


def test_the_cache_shrinks_and_grows_while_it_is_in_use(tmp_path: Path) -> None:
    store = FakeStore()
    cache = _cache(tmp_path, store, capacity=10 * SIZE)
    for number in range(8):
        with cache.indexes(_segment(number)):
            pass
    assert len(cache) == 8
    with cache.indexes(_segment(0)) as found:
        cache.resize(3 * SIZE)
        assert cache.size_bytes <= 3 * SIZE
        assert found.offset_index.lookup(25).position == 2_000
    assert len(_in_place(tmp_path)) == 3 * len(cache)
    cache.resize(20 * SIZE)
    for number in range(15):
        with cache.indexes(_segment(number)) as found:
            assert found.offset_index.lookup(number * 1000 + 25).position == 2_000
    assert len(cache) == 15
    cache.close()


def _kept(directory: Path) -> set[int]:
    return {int(name.partition("_")[0]) // 1000 for name in _in_place(directory)}


def test_the_least_recently_used_entry_goes_first(tmp_path: Path) -> None:
    cache = _cache(tmp_path, FakeStore(), capacity=3 * SIZE)
    for number in (0, 1, 2, 0, 3):
        with cache.indexes(_segment(number)):
            pass
    assert _kept(tmp_path) == {0, 2, 3}
    cache.close()


def test_an_entry_larger_than_the_whole_cache_takes_no_other_with_it(tmp_path: Path) -> None:
    store = FakeStore()
    cache = _cache(tmp_path, store, capacity=2 * SIZE)
    with cache.indexes(_segment(0)):
        pass
    store.offset_index = b"".join(LEGACY.entry.pack(n, n * 100) for n in range(1, 200))
    with cache.indexes(_segment(1)) as found:
        assert found.offset_index.lookup(1_025).position == 2_500
    assert (_kept(tmp_path), cache.size_bytes) == ({0}, SIZE)
    cache.close()
