"""A partition that moves to another log directory: served all the time, and whole after a crash at any step.

Invariant: what was appended before the crash and flushed is there after it, once, in the same order, in one directory.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.test_log_manager import NOW_MS, batch, spec
from tests.support.waiting import wait_until

from stratalog.config import BrokerConfig
from stratalog.engine import LogManager, Partition
from stratalog.engine.moves import DirectoryMoves
from stratalog.errors import KafkaStorageError, LogDirNotFoundError
from stratalog.log.cleaner import IDLE
from stratalog.log.format import CLEANER_OFFSETS, Isolation
from stratalog.records import Record, build_batch, iter_batches
from stratalog.testing.clock import ManualClock
from stratalog.testing.lossy_filesystem import Killed, LossyFileSystem
from stratalog.util import REAL_FILESYSTEM, FileSystem

CONFIG = {"node.id": "1", "replica.alter.log.dirs.io.max.bytes.per.second": "1000000000000"}
#: Small segments, so that a move makes many files.
SPEC = spec(segment_ms="1000000", internal_segment_bytes="2000", file_delete_delay_ms="0")
LARGE = spec(file_delete_delay_ms="0")


def manager(root: Path, fs: FileSystem = REAL_FILESYSTEM, **configs: str) -> LogManager:
    properties = {**CONFIG, **{key.replace("_", "."): value for key, value in configs.items()}}
    dirs = [root / "one", root / "two"]
    return LogManager(dirs, BrokerConfig.from_properties(properties), cluster_id="c", clock=ManualClock(NOW_MS), fs=fs)


def keyed(value: bytes) -> bytes:
    return build_batch([Record(0, NOW_MS, b"key", value)])


def contents(partition: Partition) -> list[bytes]:
    found: list[bytes] = []
    log = partition.log
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, isolation=Isolation.LOG_END)
        assert data.slice is not None
        for each in iter_batches(data.slice.read()):
            found += [bytes(record.value or b"") for record in each.records()]
            offset = each.last_offset + 1
    return found


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogManager]:
    logs = manager(tmp_path)
    logs.start([SPEC])
    yield logs
    logs.close()


def orders(logs: LogManager) -> Partition:
    found = logs.get("orders", 0)
    assert found is not None
    return found


def wait(logs: LogManager) -> None:
    for _ in range(3000):
        if not logs.moves.all():
            return
        time.sleep(0.01)
    raise AssertionError("it does not come to an end")


def other(partition: Partition) -> Path:
    here = partition.log.directory.parent
    return here.parent / ("two" if here.name == "one" else "one")


def test_a_partition_is_written_and_read_while_it_moves_to_and_fro(logs: LogManager) -> None:
    partition = orders(logs)
    acknowledged: list[bytes] = []
    failures: list[BaseException] = []
    over = threading.Event()

    def produce() -> None:
        number = 0
        while not over.is_set():
            value = b"%08d" % number
            try:
                info = partition.append(batch(value))
                assert info.first_offset == number
            except BaseException as error:
                failures.append(error)
                return
            acknowledged.append(value)
            number += 1

    thread = threading.Thread(target=produce)
    thread.start()
    places = set()
    try:
        for _ in range(3):
            logs.moves.begin(partition, other(partition))
            wait(logs)
            places.add(partition.log.directory)
    finally:
        over.set()
        thread.join()
    assert not failures
    assert len(places) == 2
    assert partition.log.high_watermark == partition.log.log_end_offset
    assert contents(partition) == acknowledged
    logs.purge()
    assert [path.parent.name for path in partition.log.directory.parent.parent.glob("*/orders*")] == [
        partition.log.directory.parent.name
    ]


def test_what_is_deleted_and_who_produced_moves_too_and_a_restart_finds_it(tmp_path: Path, logs: LogManager) -> None:
    partition = orders(logs)
    for number in range(100):
        partition.append(batch(b"%d" % number))
    partition.log.increment_log_start_offset(60, "DeleteRecords")
    logs.moves.begin(partition, other(partition))
    wait(logs)
    place, expected = partition.log.directory, [b"%d" % number for number in range(60, 100)]
    assert contents(partition) == expected
    logs.close()
    again = manager(tmp_path)
    report = again.start([SPEC])
    assert (report.strays, orders(again).log.directory) == ((), place)
    assert contents(orders(again)) == expected
    again.close()


def test_how_far_a_log_is_clean_moves_too_and_no_cleaner_works_on_it_concurrently(tmp_path: Path) -> None:
    logs = manager(tmp_path, replica_alter_log_dirs_io_max_bytes_per_second="1", log_cleaner_enable="false")
    compacted = spec(cleanup_policy="compact", min_cleanable_dirty_ratio="0", file_delete_delay_ms="0")
    logs.start([compacted])
    partition = orders(logs)
    for _ in range(20):
        partition.append(keyed(b"x" * 100_000))
    partition.log.roll()
    cleaning, source = logs.cleaning, partition.log.directory.parent
    found = cleaning.take_filthiest(NOW_MS)
    assert found is not None
    cleaning.done_cleaning(found, 15)
    logs.moves.begin(partition, other(partition))
    wait_until(lambda: any(move.size_bytes for move in logs.moves.all()), "the copy begins")
    assert cleaning.take_filthiest(NOW_MS) is None
    logs.moves.begin(partition, source)
    again = cleaning.take_filthiest(NOW_MS)
    assert again is not None
    assert again.first_dirty_offset == 15
    cleaning.done_cleaning(again, 15)
    logs.close()

    logs = manager(tmp_path, log_cleaner_enable="false")
    logs.start([compacted])
    logs.moves.begin(orders(logs), other(orders(logs)))
    wait(logs)
    assert logs.cleaning.checkpointed(orders(logs).log) == 15
    assert logs.cleaning.state(("orders", 0)) == IDLE
    logs.close()
    stored = {path.parent.name: "orders 0 15" in path.read_text() for path in tmp_path.glob(f"*/{CLEANER_OFFSETS}")}
    assert stored == {"one": source.name != "one", "two": source.name != "two"}


def test_a_copy_begins_again_when_its_log_becomes_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DirectoryMoves, "_start", lambda _: None)
    logs = manager(tmp_path)
    logs.start([LARGE])
    partition = orders(logs)
    for _ in range(20):
        partition.append(keyed(b"x" * 100_000))
    logs.moves.begin(partition, other(partition))
    (move,) = logs.moves.all()
    logs.moves._copy(move)
    copied = move.size_bytes
    assert copied > 0
    assert not move.is_paused
    logs.update_config("orders", spec(cleanup_policy="compact", file_delete_delay_ms="0").config)
    logs.moves._copy(move)
    assert move.size_bytes == copied, "the first piece, again"
    assert move.is_paused
    logs.moves.work_off()
    assert len(contents(orders(logs))) == 20
    assert logs.cleaning.state(("orders", 0)) == IDLE
    logs.close()


def test_a_move_goes_on_after_a_restart(tmp_path: Path) -> None:
    logs = manager(tmp_path, replica_alter_log_dirs_io_max_bytes_per_second="1")
    logs.start([LARGE])
    partition = orders(logs)
    for number in range(20):
        partition.append(batch(b"x" * 100_000, b"%d" % number))
    destination = other(partition)
    logs.moves.begin(partition, destination)
    (move,) = logs.moves.all()
    assert move.offset_lag > 0
    logs.close()
    assert len(list(destination.glob("orders-0.*-future"))) == 1
    again = manager(tmp_path)
    again.start([LARGE])
    wait(again)
    assert orders(again).log.directory == destination / "orders-0"
    assert len(contents(orders(again))) == 40
    again.purge()
    again.close()
    assert not list(tmp_path.glob("*/*-future"))


@pytest.mark.parametrize(
    ("is_clean", "policy", "goes_on"), [(True, "delete", 1), (True, "compact", 0), (False, "delete", 0)]
)
def test_a_copy_is_gone_on_with_after_a_clean_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_clean: bool, policy: str, goes_on: int
) -> None:
    monkeypatch.setattr(DirectoryMoves, "_start", lambda _: None)
    topic = spec(cleanup_policy=policy, file_delete_delay_ms="0")
    logs = manager(tmp_path)
    logs.start([topic])
    partition = orders(logs)
    for _ in range(30):
        partition.append(keyed(b"x" * 100_000))
    logs.moves.begin(partition, other(partition))
    (move,) = logs.moves.all()
    logs.moves._copy(move)
    assert move.future is not None
    piece = move.future.log_end_offset
    logs.close(clean=is_clean)
    again = manager(tmp_path)
    again.start([topic])
    (move,) = again.moves.all()
    again.moves._copy(move)
    assert move.future is not None
    assert move.future.log_end_offset == piece * (1 + goes_on)
    expected = contents(orders(again))
    again.moves.work_off()
    assert orders(again).log.directory.parent == move.destination
    assert contents(orders(again)) == expected
    again.purge()
    again.close()
    assert len(list(tmp_path.glob("*/orders-0*"))) == 1


def test_a_copy_that_cannot_be_gone_on_with_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DirectoryMoves, "_start", lambda _: None)
    logs = manager(tmp_path)
    logs.start([LARGE])
    partition = orders(logs)
    partition.append(batch(b"1"))
    logs.moves.begin(partition, other(partition))
    (move,) = logs.moves.all()
    logs.moves._copy(move)
    logs.close()
    shutil.copytree(move.directory, move.destination / f"orders-0.{'0' * 32}-future")
    again = manager(tmp_path)
    again.start([LARGE])
    again.purge()
    assert len(list(tmp_path.glob("*/orders-0.*-future"))) == 1
    again.moves.work_off()
    again.purge()
    again.close()
    assert len(list(tmp_path.glob("*/orders-0*"))) == 1


def test_a_move_can_be_broken_off_and_ends_with_its_topic(tmp_path: Path) -> None:
    logs = manager(tmp_path, replica_alter_log_dirs_io_max_bytes_per_second="1")
    logs.start([LARGE])
    partition = orders(logs)
    for _ in range(20):
        partition.append(batch(b"x" * 100_000))
    logs.moves.begin(partition, other(partition))
    logs.moves.begin(partition, partition.log.directory.parent)
    assert not logs.moves.all()
    assert not list(tmp_path.glob("*/*-future"))
    logs.moves.begin(partition, other(partition))
    logs.delete_topic("orders")
    assert not logs.moves.all()
    assert not list(tmp_path.glob("*/*-future"))
    logs.close()


def test_errors_are_kafkas(logs: LogManager, tmp_path: Path) -> None:
    partition = orders(logs)
    with pytest.raises(LogDirNotFoundError):
        logs.moves.begin(partition, tmp_path / "three")
    logs.dirs.fail(other(partition), "gone")
    with pytest.raises(KafkaStorageError):
        logs.moves.begin(partition, other(partition))


def crash_at(root: Path, kill_at: int, *, power_loss: bool, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Kill a move before one of its changes to the disk, start again and look; whether it was killed."""
    monkeypatch.setattr(DirectoryMoves, "_start", lambda _: None)
    live = root / "live"
    live.mkdir(parents=True)
    fs = LossyFileSystem(live, kill_at)
    logs = manager(live, fs)
    logs.start([SPEC])
    partition = orders(logs)
    expected = [b"%d" % number for number in range(40)]
    for value in expected:
        partition.append(batch(value))
    partition.log.flush()
    logs.write_checkpoints()
    fs.kill_at = kill_at
    is_killed = False
    try:
        logs.moves.begin(partition, other(partition))
        logs.moves.work_off()
    except Killed:
        is_killed = True
    fs.crash(power_loss=power_loss)
    left = root / "left"
    shutil.copytree(live, left)
    with contextlib.suppress(Exception):
        logs.close(clean=False)
    again = manager(left)
    again.start([SPEC])
    try:
        assert contents(orders(again)) == expected, kill_at
        orders(again).append(batch(b"more"))
        again.moves.work_off()
        again.purge()
        assert contents(orders(again)) == [*expected, b"more"], kill_at
        assert len(list(left.glob("*/orders-0*"))) == 1, kill_at
    finally:
        again.close()
    return is_killed


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_crash_at_some_steps_of_a_move_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, power_loss: bool
) -> None:
    at, was_killed = int(power_loss), True
    while was_killed:
        was_killed = crash_at(tmp_path / str(at), at, power_loss=power_loss, monkeypatch=monkeypatch)
        at += 29
    assert at > 60


@pytest.mark.soak
@pytest.mark.parametrize("power_loss", [False, True])
def test_a_crash_at_any_step_of_a_move_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, power_loss: bool
) -> None:
    at = 0
    while crash_at(tmp_path / str(at), at, power_loss=power_loss, monkeypatch=monkeypatch):
        at += 1
