"""On a full disk an append raises and leaves nothing; the process lives on, whichever file had no room."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import Buffer

from stratalog.config.topic import LogConfig
from stratalog.errors import KafkaStorageError
from stratalog.log.format.values import Isolation
from stratalog.log.index.index_file import IndexFile
from stratalog.log.index.offset_index import OffsetIndex
from stratalog.log.index.time_index import TimeIndex
from stratalog.log.index.txn_index import TransactionIndex
from stratalog.log.partition_log import PartitionLog
from stratalog.records.control import ControlType, end_transaction_marker
from stratalog.testing.lossy_filesystem import LossyFileSystem
from stratalog.util.filesystem import File, FileSystem, StrPath
from tests.log.log_model import batch_of, read_records

INDEX_SIZE = 120_000
#: An entry of both indexes for each batch but the first.
EVERY_BATCH = LogConfig(index_interval_bytes=0)
#: As many entries as are written in several pieces in either index.
MANY = 2_100


def offset_index(path: Path, **options: Any) -> tuple[IndexFile[Any], Callable[[int], None]]:
    index = OffsetIndex(path, 0, max_size=INDEX_SIZE, **options)
    return index, lambda n: index.append(n, n)


def time_index_of(path: Path, **options: Any) -> tuple[IndexFile[Any], Callable[[int], None]]:
    index = TimeIndex(path, 0, max_size=INDEX_SIZE, **options)
    return index, lambda n: index.maybe_append(n, n)


class OverwritingOnly(FileSystem):
    """A full disk: what is in a file can be written over, and cut off, and nothing is added to it."""

    def open(self, path: StrPath, *, write: bool = False, create: bool = False) -> File:
        class Full(File):
            def write_at(self, data: Buffer, position: int) -> int:
                if position + memoryview(data).nbytes > self.size():
                    raise OSError(errno.ENOSPC, "No space left on device")
                return super().write_at(data, position)

        opened = super().open(path, write=write, create=create)
        fd, opened._fd = opened._fd, -1
        return Full(path, fd)


kinds = pytest.mark.parametrize("make", [offset_index, time_index_of])


@kinds
def test_entries_are_written_less_than_once_a_page_and_all_of_them(tmp_path: Path, make: Any) -> None:
    fs = LossyFileSystem(tmp_path)
    path = tmp_path / "index"
    index, append = make(path, fs=fs)
    before = fs.changes
    for n in range(1, MANY):
        append(n)
    assert 0 < fs.changes - before <= index.size_in_bytes // 4096
    index.write_out()
    content = path.read_bytes()
    assert len(content) == INDEX_SIZE
    assert content[: index.size_in_bytes] == index._copy()
    assert not any(content[index.size_in_bytes :])
    index.close()
    assert path.read_bytes() == content[: (MANY - 1) * index.entry_size]


@kinds
@pytest.mark.parametrize("entries", [0, 1, 2_048, 1_365, 1_366])
def test_without_room_an_entry_that_cannot_be_written_is_refused_or_kept(
    tmp_path: Path, make: Any, entries: int
) -> None:
    """Also for an index that was opened again, trimmed as it was closed: it takes what there is room for in memory, and
    writes it when there is room on the disk."""
    fs = LossyFileSystem(tmp_path)
    index, append = make(tmp_path / "index", fs=fs)
    for n in range(1, entries + 1):
        append(n)
    index.close()
    index, append = make(tmp_path / "index", fs=fs)
    index.resize(INDEX_SIZE)
    fs.bytes_left = 100
    taken = entries
    with suppress(OSError):
        while True:
            append(taken + 1)
            taken += 1
    assert 0 < (taken - entries) * index.entry_size <= 4096 + index.entry_size
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            append(taken + 1)
        with pytest.raises(OSError, match="No space left"):
            index.flush()
        with pytest.raises(OSError, match="No space left"):
            index.trim_to_valid_size()
        assert [entry[0] for entry in index] == list(range(1, taken + 1))
    fs.bytes_left = None
    append(taken + 1)
    index.close()
    index, _ = make(tmp_path / "index")
    assert [entry[0] for entry in index] == list(range(1, taken + 2))


@kinds
def test_an_index_that_is_made_again_needs_no_more_room_than_it_had(tmp_path: Path, make: Any) -> None:
    """As a recovery makes it, on a disk that is full."""
    path = tmp_path / "index"
    index, append = make(path)
    for n in range(1, MANY):
        append(n)
    index.close()
    sound = path.read_bytes()
    path.write_bytes(sound[:100] + bytes(50) + sound[150:] + bytes(1_200))
    fs = OverwritingOnly()
    index, append = make(path, fs=fs)
    index.reset()
    for n in range(1, MANY):
        append(n)
    index.trim_to_valid_size()
    assert path.read_bytes() == sound


@pytest.mark.parametrize("room", [0, 60, 200, 10_000, 16_384, 16_500, 20_000, 33_000, 40_000, 70_000])
def test_a_log_on_a_full_disk_refuses_and_goes_on_when_there_is_space(tmp_path: Path, room: int) -> None:
    """Wherever the room ends, in the log or in either index, the log holds what was acknowledged, and only that."""
    fs = LossyFileSystem(tmp_path)
    log = PartitionLog.open(tmp_path / "orders-0", EVERY_BATCH, fs=fs)
    fs.bytes_left = room
    acknowledged: list[bytes] = []
    refused: list[str] = []
    for n in range(400):
        value = b"%04d" % n
        if n == 300:
            fs.bytes_left = None
        try:
            log.append_as_leader(batch_of([value], [n + 1]), leader_epoch=0)
        except KafkaStorageError as error:
            refused.append(str(error))
        else:
            acknowledged.append(value)
        assert log.active_segment.log_path.stat().st_size == log.size_bytes
    assert len(acknowledged) >= 100
    assert len(refused) + len(acknowledged) == 400
    assert all("append failed: No space left on device" in message for message in refused)
    assert bool(refused) == (room < 33_000)
    segment = log.active_segment
    segment.offset_index.sanity_check()
    segment.time_index.sanity_check()
    assert segment.offset_index.entries == segment.time_index.entries == len(acknowledged) - 1
    log.close()
    for clean in (True, False):
        again = PartitionLog.open(tmp_path / "orders-0", EVERY_BATCH, clean_shutdown=clean)
        assert [record.value for record in read_records(again, 0)] == acknowledged
        again.close()


def test_an_abort_marker_without_room_for_its_index_entry_is_not_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = PartitionLog.open(tmp_path / "orders-0", LogConfig())
    data = batch_of([b"x"], [1], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append_as_leader(data, leader_epoch=0)
    marker = end_transaction_marker(
        ControlType.ABORT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1
    )
    size = log.size_bytes

    def half_written(index: TransactionIndex, *_: object) -> None:
        index._channel(create=True).write_at(b"\0" * 5, index.size_in_bytes)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(TransactionIndex, "append", half_written)
        with pytest.raises(KafkaStorageError, match="append failed: No space left"):
            log.append_as_leader(marker, leader_epoch=0, origin="coordinator")
    log.update_high_watermark(log.log_end_offset)
    assert (log.log_end_offset, log.size_bytes, log.last_stable_offset) == (1, size, 0)
    log.active_segment.txn_index.sanity_check()
    log.append_as_leader(marker, leader_epoch=0, origin="coordinator")
    log.update_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 2
    aborted = log.read(0, 1_000, isolation=Isolation.TXN_COMMITTED).aborted
    assert aborted is not None
    assert [(a.producer_id, a.first_offset, a.last_offset) for a in aborted] == [(1, 0, 1)]


def test_after_a_roll_that_failed_half_way_the_next_append_rolls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The active segment was sealed already, and its indexes take nothing more."""
    log = PartitionLog.open(tmp_path / "orders-0", EVERY_BATCH)
    for n in range(3):
        log.append_as_leader(batch_of([b"x"], [n + 1]), leader_epoch=0)

    def no_space(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("stratalog.log.segment.segment.LogSegment.create", no_space)
        with pytest.raises(KafkaStorageError, match="roll failed"):
            log.roll()
    log.append_as_leader(batch_of([b"x"], [4]), leader_epoch=0)
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    assert len(read_records(log, 0)) == 4


def test_a_new_leader_epoch_without_room_for_its_file_refuses_the_append(tmp_path: Path) -> None:
    fs = LossyFileSystem(tmp_path)
    log = PartitionLog.open(tmp_path / "orders-0", LogConfig(), fs=fs)
    log.append_as_leader(batch_of([b"x"], [1]), leader_epoch=0)
    fs.bytes_left = 0
    with pytest.raises(KafkaStorageError, match="append failed: No space left"):
        log.append_as_leader(batch_of([b"x"], [1]), leader_epoch=1)
    fs.bytes_left = None
    log.append_as_leader(batch_of([b"x"], [1]), leader_epoch=1)
    assert log.leader_epochs.latest_epoch == 1
    assert log.log_end_offset == 2


@pytest.mark.parametrize("room", [0, 10])
def test_a_close_on_a_full_disk_is_a_storage_error_and_lets_go_of_everything(tmp_path: Path, room: int) -> None:
    fs = LossyFileSystem(tmp_path)
    log = PartitionLog.open(tmp_path / "orders-0", EVERY_BATCH, fs=fs)
    for n in range(3):
        log.append_as_leader(
            batch_of([b"x"], [n + 1], producer_id=1, producer_epoch=0, base_sequence=n), leader_epoch=0
        )
    fs.bytes_left = room
    with pytest.raises(KafkaStorageError, match="close failed: No space left"):
        log.close()
    log.close()
    with pytest.raises(KafkaStorageError, match="closed"):
        log.read(0, 100)
    fs.bytes_left = None
    assert len(read_records(PartitionLog.open(tmp_path / "orders-0", EVERY_BATCH), 0)) == 3
