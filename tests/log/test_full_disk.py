"""On a full disk an append raises and leaves nothing; the process lives on, whichever file had no room."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stratalog.config.topic import LogConfig
from stratalog.errors import KafkaStorageError
from stratalog.log import time_index
from stratalog.log.index_file import IndexFile
from stratalog.log.offset_index import OffsetIndex
from stratalog.log.partition_log import PartitionLog
from stratalog.log.time_index import TimeIndex
from stratalog.log.txn_index import TransactionIndex
from stratalog.log.values import Isolation
from stratalog.records.control import ControlType, end_transaction_marker
from stratalog.testing.lossy_filesystem import LossyFileSystem
from tests.log.log_model import batch_of, read_records

INDEX_SIZE = 120_000
#: An entry of both indexes for each batch but the first.
EVERY_BATCH = LogConfig(index_interval_bytes=0)
#: As many entries as need a second piece of blocks in either index.
MANY = 2_100


def offset_index(path: Path, **options: Any) -> tuple[IndexFile, Callable[[int], None]]:
    index = OffsetIndex.open(path, 0, max_size=INDEX_SIZE, **options)
    return index, lambda n: index.append(n, n)


def time_index_of(path: Path, **options: Any) -> tuple[IndexFile, Callable[[int], None]]:
    index = TimeIndex.open(path, 0, max_size=INDEX_SIZE, **options)
    return index, lambda n: index.maybe_append(n, n)


kinds = pytest.mark.parametrize("make", [offset_index, time_index_of])


def blocks_of(path: Path) -> int:
    """Bytes for which the file has blocks, from its start on: there is no hole before the last one."""
    return path.stat().st_blocks * 512


@kinds
def test_an_entry_has_its_blocks_before_it_is_written(
    tmp_path: Path, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "index"
    index, append = make(path)
    assert blocks_of(path) == 0
    seen: list[int] = []

    def watched(pack_into: Callable[..., None]) -> Callable[..., None]:
        def pack(buffer: Any, at: int, *fields: int) -> None:
            assert blocks_of(path) >= at + index.entry_size
            seen.append(at)
            pack_into(buffer, at, *fields)

        return pack

    entry = time_index.ENTRY
    spy = SimpleNamespace(pack_into=watched(entry.pack_into), unpack_from=entry.unpack_from)
    monkeypatch.setattr(time_index, "ENTRY", spy)
    if isinstance(index, OffsetIndex):
        monkeypatch.setattr(index, "_pack_into", watched(index._pack_into))
    for n in range(1, MANY):
        append(n)
    assert seen == [slot * index.entry_size for slot in range(MANY - 1)]
    assert path.stat().st_size == INDEX_SIZE
    index.close()
    assert path.stat().st_size == (MANY - 1) * index.entry_size


@kinds
def test_blocks_are_asked_for_less_than_once_a_page(tmp_path: Path, make: Any) -> None:
    fs = LossyFileSystem(tmp_path)
    index, append = make(tmp_path / "index", fs=fs)
    before = fs.changes
    for n in range(1, MANY):
        append(n)
    assert 0 < fs.changes - before <= index.size_in_bytes // 4096 / 2


@kinds
@pytest.mark.parametrize("entries", [0, 1, 2_048, 1_365, 1_366])
def test_without_room_for_an_entry_there_is_none(tmp_path: Path, make: Any, entries: int) -> None:
    """Also for an index that was opened again, trimmed as it was closed."""
    fs = LossyFileSystem(tmp_path)
    index, append = make(tmp_path / "index", fs=fs)
    for n in range(1, entries + 1):
        append(n)
    index.close()
    index, append = make(tmp_path / "index", fs=fs)
    index.resize(INDEX_SIZE)
    content = (tmp_path / "index").read_bytes()
    assert content[index.size_in_bytes :] == bytes(INDEX_SIZE - index.size_in_bytes)
    fs.bytes_left = 100
    for _ in range(2):
        with pytest.raises(OSError, match="No space left") as raised:
            append(entries + 1)
        assert raised.value.errno == errno.ENOSPC
    assert index.entries == entries
    assert (tmp_path / "index").read_bytes() == content
    fs.bytes_left = None
    append(entries + 1)
    assert index.entries == entries + 1


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
    assert bool(refused) == (room < 70_000)
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
        index._channel().write_at(b"\0" * 5, index.size_in_bytes)
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
        patch.setattr("stratalog.log.segment.LogSegment.create", no_space)
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
def test_a_close_on_a_full_disk_is_a_storage_error_and_lets_go_of_everything(
    tmp_path: Path, room: int
) -> None:
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
