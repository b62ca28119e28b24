"""Repair rebuilds derived files and cuts torn tails; a second check finds nothing of what was repaired."""

from __future__ import annotations

import errno
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.errors import CorruptRecordError
from stratalog.jobs import Severity
from stratalog.jobs.executor import Threads
from stratalog.jobs.fsck.actions import CutTail
from stratalog.jobs.fsck.findings import FileFinding, FsckKind
from stratalog.jobs.fsck.repair import plan
from stratalog.jobs.fsck.run import fsck
from stratalog.log.format.checkpoints import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    OffsetCheckpoint,
)
from stratalog.log.format.values import Isolation
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.util.filesystem import REAL_FILESYSTEM, File, FileSystem, StrPath
from tests.interop.contents import SMALL_SEGMENTS, read_log
from tests.log.check.conftest import report_of
from tests.log.check.test_findings import batches, change, found, logs
from tests.log.unsynced import UNSYNCED


def content(directory: Path, *suffixes: str) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and (not suffixes or path.suffix in suffixes)
    }


def repair(*paths: Path, accept_loss: bool = False) -> list[FileFinding]:
    """Repair, and give what a second check finds, notes left out."""
    for action in plan(fsck(paths, REAL_FILESYSTEM, executor=Threads(2), accept_loss=accept_loss).findings):
        action.carry_out(REAL_FILESYSTEM)
    return [one for one in found(*paths) if one.severity > Severity.NOTE]


def killed(data: Path, recovery_point: int) -> None:
    """The broker did not stop: what is behind the recovery point may be anything."""
    (data / CLEAN_SHUTDOWN).unlink()
    checkpoint = OffsetCheckpoint(data / RECOVERY_POINTS)
    checkpoint.write(checkpoint.read() | {("orders", 0): recovery_point})


def reopened(partition: Path, *, clean: bool, recovery_point: int | None) -> PartitionLog:
    return PartitionLog.open(
        partition, SMALL_SEGMENTS, clean_shutdown=clean, recovery_point=recovery_point, fs=UNSYNCED
    )


def damage_index(data: Path) -> None:
    change(logs(data / "orders-0")[0].with_suffix(".index"), 9, b"\x7f")


def remove_indexes(data: Path) -> None:
    for suffix in (".index", ".timeindex"):
        logs(data / "orders-1")[1].with_suffix(suffix).unlink()


def damage_txn_index(data: Path) -> None:
    change(sorted((data / "orders-0").glob("*.txnindex"))[0], 20, b"\x7f")


def remove_txn_index(data: Path) -> None:
    sorted((data / "orders-0").glob("*.txnindex"))[0].unlink()


def damage_snapshots(data: Path) -> None:
    for path in (data / "orders-0").glob("*.snapshot"):
        change(path, 20, b"\x7f\x7f")


def damage_epochs(data: Path) -> None:
    (data / "orders-0" / "leader-epoch-checkpoint").write_bytes(b"0\n7\n")


@pytest.mark.parametrize(
    "damage",
    [damage_index, remove_indexes, damage_txn_index, remove_txn_index, damage_snapshots, damage_epochs],
)
def test_derived_files_are_what_they_were_before_the_damage(data: Path, damage: Callable[[Path], None]) -> None:
    """Byte for byte, but for the order of producers in a snapshot and the distance of index entries."""
    before = content(data)
    damage(data)
    assert content(data) != before
    assert repair(data) == []
    after = content(data)
    assert after.keys() == before.keys()
    changed = {name for name in before if after[name] != before[name]}
    assert {Path(name).suffix for name in changed} <= {".index", ".timeindex", ".snapshot"}
    assert all(sorted(after[name]) == sorted(before[name]) for name in changed if name.endswith(".snapshot"))


@pytest.mark.parametrize("content", [b"garbage", b"0\n1\norders 0 -7\n"])
def test_no_start_cuts_what_was_there_when_recovery_points_were_written_again(data: Path, content: bytes) -> None:
    """A client that wrote the damaged ones may have flushed all of it: Kafka too takes what is now in the file as it
    stands."""
    partition = data / "orders-0"
    end = report_of(partition).partitions[0].log_end_offset
    batch = batches(logs(partition)[-1])[0]
    killed(data, 0)
    (data / RECOVERY_POINTS).write_bytes(content)
    change(logs(partition)[-1], batch.start + batch.size - 1, b"\x7f")
    assert {one.kind for one in repair(data)} == {FsckKind.CORRUPT_BATCH}
    assert plan(fsck([data], REAL_FILESYSTEM, executor=Threads(2)).findings) == []
    point = OffsetCheckpoint(data / RECOVERY_POINTS).read()["orders", 0]
    assert point == end
    log = reopened(partition, clean=False, recovery_point=point)
    assert log.log_end_offset == end
    log.advance_high_watermark()
    assert log.read(batch.last_offset + 1, 1).slice is not None
    with pytest.raises(CorruptRecordError):
        log.read(batch.base_offset, 1)
    log.close()


def test_recovery_points_stay_unknown_while_a_partition_cannot_be_read(data: Path) -> None:
    class Failing(FileSystem):
        def open(self, path: StrPath, *, write: bool = False, create: bool = False) -> File:
            if Path(path) == logs(data / "orders-1")[0]:
                raise OSError(errno.EIO, "bad sector")
            return super().open(path, write=write, create=create)

    (data / RECOVERY_POINTS).write_bytes(b"garbage")
    report = fsck([data], Failing(), executor=Threads(2))
    (one,) = [each for each in report.findings if each.kind is FsckKind.CHECKPOINT_DAMAGED]
    assert one.action is None


def test_a_torn_tail_is_cut_and_kept(data: Path) -> None:
    """What a batch was whole before stays; the rest is beside it, byte for byte; the log opens and goes on."""
    partition = data / "orders-0"
    log = logs(partition)[-1]
    last = batches(log)[-1]
    killed(data, int(log.stem))
    whole = log.read_bytes()
    change(log, last.start + last.size - 1, b"\xff")
    log.write_bytes(log.read_bytes() + b"more that was torn")
    damaged = log.read_bytes()
    (torn,) = [one for one in found(data) if one.kind is FsckKind.TORN_TAIL]
    assert (torn.position, torn.size) == (last.start, last.size + 18)
    assert repair(data) == []
    assert log.read_bytes() == whole[: last.start]
    aside = log.with_name(f"{log.name}.{last.start}.cut")
    assert aside.read_bytes() == damaged[last.start :]
    opened = PartitionLog.open(partition, SMALL_SEGMENTS, clean_shutdown=False)
    assert opened.log_end_offset == last.base_offset
    assert read_log(opened)
    opened.close()


def test_offsets_behind_a_cut_follow_the_log(data: Path) -> None:
    """Checkpoints, snapshots and epochs that said more than the log now has are brought back with it."""
    partition = data / "orders-0"
    log = logs(partition)[-1]
    whole = batches(log)
    killed(data, int(log.stem))
    change(log, whole[2].start + 100, bytes(log.stat().st_size - whole[2].start - 100))
    kinds = {one.kind for one in found(data)}
    assert kinds >= {FsckKind.TORN_TAIL, FsckKind.CHECKPOINT_OFFSET, FsckKind.SNAPSHOT_CONTENT}
    assert repair(data) == []
    end = report_of(partition).partitions[0].log_end_offset
    assert OffsetCheckpoint(data / HIGH_WATERMARKS).read()["orders", 0] == end


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("accept_loss", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_no_repair_gives_an_acknowledged_offset_again(data: Path, clean: bool, accept_loss: bool, seed: int) -> None:
    """Whatever is wrong with a last segment that was flushed: the log goes on where it had ended, with every byte
    kept."""
    chosen = random.Random(seed)
    partition = data / "orders-0"
    shutil.rmtree(data / "orders-1")
    end = report_of(partition).partitions[0].log_end_offset
    if not clean:
        killed(data, end)
    log = logs(partition)[-1]
    whole = log.read_bytes()
    position = batches(log)[-1].start if seed == 0 else chosen.randrange(len(whole))
    if seed % 2:
        log.write_bytes(whole[:position])
    else:
        change(log, position, chosen.randbytes(chosen.randrange(1, 20)))
    damaged = log.read_bytes()
    left = repair(data, accept_loss=accept_loss)
    assert [one for one in left if one.action is not None] == []
    kept = b"".join(path.read_bytes() for path in (log, *partition.glob(f"{log.name}.*.cut")))
    assert kept == damaged
    assert accept_loss or log.read_bytes() == damaged
    for recovery_point in (end, None):
        opened = reopened(partition, clean=clean, recovery_point=recovery_point)
        assert opened.log_end_offset == end
        opened.close()


def test_readers_pass_over_a_loss_that_was_accepted(data: Path) -> None:
    partition = data / "orders-0"
    log = logs(partition)[-1]
    last = batches(log)[-1]
    end = report_of(partition).partitions[0].log_end_offset
    change(log, last.start + last.size - 1, b"\xff")
    repair(data)
    opened = reopened(partition, clean=True, recovery_point=end)
    with pytest.raises(CorruptRecordError):
        opened.read(last.base_offset, 1, isolation=Isolation.LOG_END)
    opened.close()
    assert {one.kind for one in repair(data, accept_loss=True)} <= {FsckKind.SEGMENT_GAP}
    assert log.with_name(f"{log.name}.{last.start}.cut").stat().st_size == last.size
    opened = reopened(partition, clean=True, recovery_point=end)
    opened.append_as_leader(build_batch([Record(0, 1, None, b"next")]), leader_epoch=9)
    opened.advance_high_watermark()
    part = opened.read(last.base_offset, 1).slice
    assert part is not None
    assert next(iter_batches(part.read())).base_offset == end
    opened.close()


def test_a_log_whose_last_segment_is_gone_goes_on_where_it_had_ended(data: Path) -> None:
    partition = data / "orders-0"
    end = report_of(partition).partitions[0].log_end_offset
    for path in partition.glob(f"{logs(partition)[-1].stem}.*"):
        path.unlink()
    (one,) = [one for one in found(data) if one.kind is FsckKind.LOST_TAIL]
    assert one.action is not None
    assert {one.kind for one in repair(data)} <= {FsckKind.SEGMENT_GAP}
    opened = reopened(partition, clean=True, recovery_point=0)
    assert opened.log_end_offset == end
    opened.close()


def test_zeros_are_cut_without_keeping_them(data: Path) -> None:
    log = logs(data / "orders-0")[-1]
    before = content(data)
    log.write_bytes(log.read_bytes() + bytes(5000))
    assert repair(data) == []
    assert content(data).keys() == before.keys()
    assert log.read_bytes() == before[f"orders-0/{log.name}"]


def test_damage_in_the_middle_is_never_touched(data: Path) -> None:
    partition = data / "orders-0"
    for log in (logs(partition)[0], logs(partition)[-1]):
        batch = batches(log)[1]
        change(log, batch.start + 80, b"\xff\xfe\xfd")
        log.with_suffix(".index").unlink()
    before = content(data)
    left = repair(data)
    assert content(data, ".log") == {name: data for name, data in before.items() if name.endswith(".log")}
    assert {one.kind for one in left} >= {FsckKind.CORRUPT_BATCH, FsckKind.INDEX_MISSING}
    assert {one.kind for one in left if one.action is not None} == set()


@pytest.mark.parametrize("name", [LOG_START_OFFSETS, HIGH_WATERMARKS])
def test_a_checkpoint_that_cannot_be_read_becomes_a_safe_one(data: Path, name: str) -> None:
    (data / ".kafka_cleanshutdown").unlink()
    (data / name).write_bytes(b"garbage")
    assert repair(data) == []
    assert set(OffsetCheckpoint(data / name).read().values()) == {0}


def test_entries_of_unknown_partitions_go_and_offsets_come_within_their_logs(data: Path) -> None:
    checkpoint = OffsetCheckpoint(data / HIGH_WATERMARKS)
    good = checkpoint.read()
    checkpoint.write(good | {("gone", 0): 7, ("orders", 1): 10**12})
    assert repair(data) == []
    assert checkpoint.read() == good


def test_what_cannot_follow_from_the_log_is_left_alone(data: Path) -> None:
    (data / "orders-0" / "partition.metadata").write_text("?")
    (data / "meta.properties").write_text("version=9\n")
    (data / "orders-0" / "notes.txt").write_text("mine")
    before = content(data)
    assert len(repair(data)) == 5
    assert content(data) == before


def test_a_repair_that_fails_leaves_the_file_as_it_was(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = logs(data / "orders-0")[-1]
    log.write_bytes(log.read_bytes() + b"torn tail")
    before = content(data)
    (cut,) = plan(found(data))
    assert isinstance(cut, CutTail)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FileSystem, "rename", full)
    with pytest.raises(OSError, match="No space"):
        cut.carry_out(REAL_FILESYSTEM)
    assert {name: data for name, data in content(data).items() if not name.endswith(".tmp")} == before


def test_a_plan_names_each_file_once_and_logs_first(data: Path) -> None:
    partition = data / "orders-0"
    log = logs(partition)[-1]
    log.write_bytes(log.read_bytes() + b"torn")
    for suffix in (".index", ".timeindex"):
        log.with_suffix(suffix).unlink()
    damage_snapshots(data)
    actions = plan(found(data))
    paths = [action.path for action in actions]
    assert isinstance(actions[0], CutTail)
    assert len(set(paths)) == len(paths)
    assert repair(data) == []


def test_a_log_that_begins_late_is_repaired_from_its_first_snapshot(data: Path) -> None:
    partition = data / "orders-1"
    first, second = logs(partition)[:2]
    for path in partition.glob(f"{first.stem}.*"):
        path.unlink()
    for path in sorted(partition.glob("*.snapshot")):
        if path.stem < second.stem:
            path.unlink()
    base = int(second.stem)
    (partition / "leader-epoch-checkpoint").unlink()
    assert repair(partition) == []
    change(sorted(partition.glob("*.snapshot"))[-1], 30, b"\x7f")
    assert repair(partition) == []
    assert report_of(partition).partitions[0].first_offset == base
    shutil.copytree(partition, partition.with_name("copy-0"))
    opened = PartitionLog.open(
        partition.with_name("copy-0"), SMALL_SEGMENTS, log_start_offset=base, clean_shutdown=False
    )
    assert read_log(opened)
    opened.close()
