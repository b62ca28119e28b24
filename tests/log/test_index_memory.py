"""Copies of indexes in memory: as many as there is room for, the least used go first, and none is missed."""

from __future__ import annotations

import gc
import struct
import threading
from pathlib import Path

import pytest

from stratalog.config.topic import LogConfig
from stratalog.log.format.values import OffsetPosition
from stratalog.log.index.index_memory import IndexMemory
from stratalog.log.index.offset_index import OffsetIndex
from stratalog.log.partition_log import PartitionLog
from tests.log.writers import append


class Copy:
    """Something that was lent memory."""

    def __init__(self) -> None:
        self.is_used = False
        self.is_dropped = False

    def drop(self) -> None:
        self.is_dropped = True


def test_what_was_not_used_goes_first() -> None:
    memory = IndexMemory(100)
    copies = [Copy() for _ in range(4)]
    for copy in copies[:3]:
        memory.lend(copy, 30)
    copies[0].is_used = True
    memory.lend(copies[3], 30)
    assert [copy.is_dropped for copy in copies] == [False, True, False, False]
    assert memory.bytes_lent == 90


def test_when_all_are_used_room_is_made_all_the_same() -> None:
    memory = IndexMemory(100)
    copies = [Copy() for _ in range(4)]
    for copy in copies:
        copy.is_used = True
        memory.lend(copy, 30)
    assert [copy.is_dropped for copy in copies].count(True) == 1
    assert not copies[-1].is_dropped
    assert memory.bytes_lent == 90


def test_one_that_is_larger_than_all_room_is_kept_alone() -> None:
    memory = IndexMemory(100)
    small, large = Copy(), Copy()
    memory.lend(small, 30)
    memory.lend(large, 500)
    assert (small.is_dropped, large.is_dropped, memory.bytes_lent) == (True, False, 500)
    memory.lend(large, 40)
    memory.end(small)
    assert memory.bytes_lent == 40


def test_the_forgotten_take_no_room_for_long() -> None:
    memory = IndexMemory(100)
    memory.lend(Copy(), 60)
    gc.collect()
    alive = Copy()
    memory.lend(alive, 60)
    assert (alive.is_dropped, memory.bytes_lent) == (False, 60)


def test_searches_while_copies_are_dropped_find_what_was_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer adds, readers search for what was there before, and there is room for one index of four at a time."""
    monkeypatch.setattr("stratalog.log.index.index_file.INDEX_MEMORY", IndexMemory(5_000))
    indexes = [OffsetIndex(tmp_path / f"{n}.index", 0, max_size=80_000) for n in range(4)]
    failures: list[BaseException] = []
    is_done = threading.Event()

    def search() -> None:
        try:
            while not is_done.is_set():
                for index in indexes:
                    entries = index.entries
                    if entries > 1:
                        wanted = OffsetPosition(10 * (entries // 2), 100 * (entries // 2))
                        assert index.lookup(wanted.offset + 5) == wanted
        except BaseException as error:
            failures.append(error)

    readers = [threading.Thread(target=search) for _ in range(2)]
    for reader in readers:
        reader.start()
    for n in range(1, 3_000):
        for index in indexes:
            index.append(10 * n, 100 * n)
    is_done.set()
    for reader in readers:
        reader.join()
    assert not failures
    for index in indexes:
        index.close()
        assert (tmp_path / index.path).read_bytes() == b"".join(
            struct.pack(">ii", 10 * n, 100 * n) for n in range(1, 3_000)
        )


def test_nothing_of_a_log_in_use_is_mapped(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path / "foo-0", LogConfig(index_interval_bytes=0))
    append(log, times=500)
    log.update_high_watermark(500)
    log.flush()
    log.read(250, 1000)
    log.offset_for_timestamp(0)
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()
    log.close()
