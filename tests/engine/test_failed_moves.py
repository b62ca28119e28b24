"""A partition that moves to another log directory while disks fail, space ends, or others work on its log.

Invariant: whatever fails, what was acknowledged is served, or at least found by the next start, once and in order.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from tests.engine.test_compaction import spec as compacted
from tests.engine.test_log_manager import NOW_MS, batch
from tests.engine.test_moves import CONFIG, SPEC, contents, orders, other

from stratalog.config import BrokerConfig, LogConfig
from stratalog.engine import LogManager, TopicSpec
from stratalog.engine.moves import MARK, DirectoryMoves
from stratalog.engine.tiering import start_tiering
from stratalog.errors import DuplicateSequenceError, KafkaStorageError, OutOfOrderSequenceError
from stratalog.log.cleaner import CleanerSettings
from stratalog.log.format import Isolation
from stratalog.records import ControlType, Record, build_batch, end_transaction_marker, iter_batches
from stratalog.testing.clock import ManualClock
from stratalog.testing.failing_filesystem import CHANGES, FailingFileSystem
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, Clock, FileSystem

EXPECTED = [b"%d" % number for number in range(40)]


@pytest.fixture(autouse=True)
def _no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Moves are made by `work_off`."""
    monkeypatch.setattr(DirectoryMoves, "_start", lambda _: None)


def manager(
    root: Path,
    fs: FileSystem = REAL_FILESYSTEM,
    dirs: tuple[str, ...] = ("one", "two"),
    clock: Clock | None = None,
) -> LogManager:
    config = BrokerConfig.from_properties({**CONFIG, "log.cleaner.threads": "0"})
    paths = [root / name for name in dirs]
    return LogManager(paths, config, cluster_id="c", clock=clock or ManualClock(NOW_MS), fs=fs)


def restarted(root: Path) -> Iterator[LogManager]:
    logs = manager(root)
    logs.start([SPEC])
    yield logs
    logs.close()


def fail_at(root: Path, place: str, after: int) -> bool:
    """Let one change of the disk fail during a move, go on, start again and look; whether one failed."""
    fs = FailingFileSystem()
    logs = manager(root, fs)
    logs.start([SPEC])
    partition = orders(logs)
    for value in EXPECTED:
        partition.append(batch(value))
    logs.write_checkpoints()
    here = {"source": partition.log.directory.parent, "destination": other(partition)}[place]
    fs.fail_once(here, errno.EIO, after=after, operations=CHANGES)
    try:
        logs.moves.begin(partition, other(partition))
    except KafkaStorageError:
        assert fs.has_failed
    logs.moves.work_off()
    acknowledged = list(EXPECTED)
    try:
        partition.append(batch(b"more"))
        acknowledged.append(b"more")
        assert contents(partition) == acknowledged, (place, after)
    except KafkaStorageError:  # its directory goes offline
        assert fs.has_failed
    logs.purge()
    logs.close()
    again = manager(root)
    again.start([SPEC])
    again.moves.work_off()
    again.purge()
    found = contents(orders(again))
    assert found == acknowledged, (place, after)
    assert len(list(root.glob("*/orders-0*"))) == 1, (place, after)
    again.close()
    return fs.has_failed


@pytest.mark.parametrize("place", ["source", "destination"])
def test_a_disk_that_fails_at_some_steps_of_a_move_loses_nothing(tmp_path: Path, place: str) -> None:
    after = 0
    while fail_at(tmp_path / str(after), place, after):
        after += 1 if place == "source" else 17
    assert after > 3


@pytest.mark.soak
def test_a_disk_that_fails_at_any_step_of_a_move_loses_nothing(tmp_path: Path) -> None:
    after = 0
    while fail_at(tmp_path / str(after), "destination", after):
        after += 1


def test_the_last_steps_of_a_move_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark of a copy that is the partition by now cannot be removed: it is the partition all the same."""
    fs = FailingFileSystem()
    remove = fs.remove

    def refuse_mark(path: Path) -> None:
        if Path(path).name == MARK:
            raise OSError(errno.EIO, "no", str(path))
        remove(path)

    monkeypatch.setattr(fs, "remove", refuse_mark)
    logs = manager(tmp_path, fs)
    logs.start([SPEC])
    partition = orders(logs)
    partition.append(batch(b"1"))
    destination = other(partition)
    logs.moves.begin(partition, destination)
    logs.moves.work_off()
    partition.append(batch(b"2"))
    assert partition.log.directory.parent == destination
    logs.purge()
    logs.close()
    for again in restarted(tmp_path):
        assert contents(orders(again)) == [b"1", b"2"]
        assert not (destination / "orders-0" / MARK).exists()


def test_a_full_directory_ends_the_move_and_the_partition_is_served(tmp_path: Path) -> None:
    fs = FailingFileSystem()
    logs = manager(tmp_path, fs)
    logs.start([SPEC])
    partition = orders(logs)
    for value in EXPECTED:
        partition.append(batch(value))
    destination = other(partition)
    logs.moves.begin(partition, destination)
    fs.fail(destination, errno.ENOSPC, {"write"})
    logs.moves.work_off()
    assert not logs.moves.all()
    partition.append(batch(b"more"))
    assert contents(partition) == [*EXPECTED, b"more"]
    assert not list(destination.glob("orders-0*"))
    fs.mend(destination)
    logs.close()


def test_a_move_that_cannot_go_on_after_a_restart_takes_no_directory_out_of_service(tmp_path: Path) -> None:
    dirs = ("one", "two", "three")
    logs = manager(tmp_path, dirs=dirs)
    logs.start([SPEC])
    partition = orders(logs)
    partition.append(batch(b"1"))
    here = partition.log.directory.parent
    third, destination = [tmp_path / name for name in dirs if tmp_path / name != here]
    logs.moves.begin(partition, destination)
    logs.close()
    assert list(destination.glob("orders-0.*-future"))
    shutil.rmtree(third)
    third.write_text("a file where a directory should be")
    again = manager(tmp_path, dirs=dirs)
    again.start([SPEC])
    assert list(again.dirs.offline) == [third]
    assert contents(orders(again)) == [b"1"]
    again.close()


def test_a_copy_is_not_taken_for_the_partition_while_the_partition_may_be_offline(tmp_path: Path) -> None:
    """A crash left the copy with the partition's name, and the disk of the partition is gone at the next start."""
    logs = manager(tmp_path)
    logs.start([SPEC])
    partition = orders(logs)
    partition.append(batch(b"1"))
    here, destination = partition.log.directory.parent, other(partition)
    logs.moves.begin(partition, destination)
    (move,) = logs.moves.all()
    logs.moves._copy(move)
    assert move.future is not None
    move.future.flush()
    copy = shutil.copytree(move.directory, tmp_path / "copy")
    partition.append(batch(b"2"))  # behind the copy, as when a failure let the partition go on
    logs.close()
    for left in destination.glob("orders-0*"):
        shutil.rmtree(left)
    copy.rename(destination / "orders-0")
    (destination / "orders-0" / MARK).touch()
    away = tmp_path / "away"
    here.rename(away)
    here.write_text("a file where a directory should be")
    again = manager(tmp_path)
    again.start([SPEC])
    assert orders(again).failure is not None
    again.close()
    here.unlink()
    away.rename(here)
    for again in restarted(tmp_path):
        assert contents(orders(again)) == [b"1", b"2"]


def transaction(number: int, *, epoch: int = 0, sequence: int = 0) -> bytes:
    records = [Record(0, NOW_MS, None, b"t%d" % sequence)]
    return build_batch(records, producer_id=number, producer_epoch=epoch, base_sequence=sequence, is_transactional=True)


def marker(number: int, kind: ControlType) -> bytes:
    return end_transaction_marker(kind, producer_id=number, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS)


def test_transactions_that_are_open_and_over_move_with_their_partition(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    logs.start([SPEC])
    partition = orders(logs)
    log = partition.log
    for number, kind in ((1, ControlType.COMMIT), (2, ControlType.ABORT)):
        log.append_as_leader(transaction(number), leader_epoch=0, origin="internal")
        log.append_as_leader(marker(number, kind), leader_epoch=0, origin="coordinator")
    log.append_as_leader(transaction(3), leader_epoch=0, origin="internal")
    log.advance_high_watermark()
    before = log.read(0, 1 << 20, isolation=Isolation.TXN_COMMITTED)
    stable = log.last_stable_offset
    assert stable == 4
    logs.moves.begin(partition, other(partition))
    logs.moves.work_off()
    moved = partition.log
    assert moved is not log
    assert moved.last_stable_offset == stable
    assert moved.read(0, 1 << 20, isolation=Isolation.TXN_COMMITTED).aborted == before.aborted
    again = moved.append_as_leader(transaction(3), leader_epoch=0, origin="client")
    assert again.duplicate
    with pytest.raises((OutOfOrderSequenceError, DuplicateSequenceError)):
        moved.append_as_leader(transaction(3, sequence=7), leader_epoch=0, origin="client")
    moved.append_as_leader(marker(3, ControlType.ABORT), leader_epoch=0, origin="coordinator")
    moved.advance_high_watermark()
    assert moved.last_stable_offset == 6
    aborted = moved.read(0, 1 << 20, isolation=Isolation.TXN_COMMITTED).aborted
    assert [each.producer_id for each in aborted or ()] == [2, 3]
    logs.close()


def test_a_log_that_is_compacted_while_it_moves_arrives_compacted_and_whole(tmp_path: Path) -> None:
    logs = manager(tmp_path)
    logs.start([compacted()])
    (partition,) = logs.create_topic(compacted())

    def put(key: bytes, value: bytes) -> None:
        partition.append(build_batch([Record(0, NOW_MS, key, value)]))
        partition.log.roll()

    def clean() -> None:
        assert logs.cleaner is not None
        logs.cleaner.worker(CleanerSettings(dedupe_buffer_bytes=24_000)).turn()

    for number in range(20):
        put(b"%d" % (number % 3), b"%d" % number)
    logs.moves.begin(partition, other(partition))
    (move,) = logs.moves.all()
    assert logs.moves._copy(move)  # some of it is copied before the cleaner comes
    clean()
    put(b"0", b"last")
    partition.append(build_batch([Record(0, NOW_MS, b"9", b"end")]))
    destination = other(partition)
    logs.moves.work_off()
    assert partition.log.directory.parent == destination
    end = partition.log.log_end_offset
    clean()
    kept = {}
    for segment in partition.log.segments:
        for each in iter_batches(segment.slice(0, segment.size_bytes).read()):
            for record in each.records():
                kept[bytes(record.key or b"")] = bytes(record.value or b"")
    assert kept == {b"0": b"last", b"1": b"19", b"2": b"17", b"9": b"end"}
    assert partition.log.log_end_offset == end == 22
    logs.close()


def test_a_tiered_partition_moves_with_its_local_part_and_is_copied_on_from_there(tmp_path: Path) -> None:
    logs = manager(tmp_path, clock=SYSTEM_CLOCK)
    logs.start([])

    def ensure(name: str, count: int, configs: object) -> TopicSpec:
        made = TopicSpec(name, uuid4(), count, LogConfig.from_properties(configs, None))  # type: ignore[arg-type]
        logs.create_topic(made)
        return made

    remote = start_tiering(
        logs, logs.config, data_dir=tmp_path / "one", cluster_id="c", ensure_topic=ensure, partition_count=lambda _: 1
    )
    tiered = {"remote.storage.enable": "true", "retention.ms": "-1", "local.retention.bytes": "1"}
    tiered["file.delete.delay.ms"] = "0"
    (partition,) = logs.create_topic(TopicSpec("orders", uuid4(), 1, LogConfig.from_properties(tiered, None)))

    def put(count: int) -> None:
        for _ in range(count):
            partition.append(batch(b"%d" % partition.log.log_end_offset))
            partition.log.roll()

    put(4)
    remote.run_once(partition.topic_id_partition)
    partition.log.delete_old_segments()
    assert partition.log.local_log_start_offset == 3
    put(1)
    partition.append(batch(b"5"))
    destination = other(partition)
    logs.moves.begin(partition, destination)
    logs.moves.work_off()
    assert partition.log.directory.parent == destination
    assert (partition.log.log_start_offset, partition.log.local_log_start_offset) == (0, 3)
    assert not partition.log.delete_old_segments()  # nothing goes that is not known to be remote
    put(2)
    remote.run_once(partition.topic_id_partition)
    assert partition.log.highest_offset_in_remote_storage == 7
    partition.log.delete_old_segments()
    assert partition.log.local_log_start_offset == 7
    found = []
    for offset in range(8):
        data = partition.read_remote(offset, 1)
        first = next(iter(iter_batches(data.records)))
        found += [bytes(record.value or b"") for record in first.records() if record.offset == offset]
    assert found == [b"%d" % number for number in range(8)]
    logs.close()
