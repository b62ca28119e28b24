"""A segment with offsets too far from its base is cut into several when the log is opened, with the same records."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from stratalog.config.topic import LogConfig
from stratalog.log.index.txn_index import AbortedTransaction, TransactionIndex
from stratalog.log.partition_log import PartitionLog
from stratalog.log.recovery.interrupted_swaps import finish_swaps
from stratalog.log.recovery.overflow import split_overflowed
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.testing.clock import ManualClock
from stratalog.testing.lossy_filesystem import Killed, LossyFileSystem
from stratalog.util.filesystem import REAL_FILESYSTEM, FileSystem
from tests.log.log_model import read_records

CONFIG = LogConfig(index_interval_bytes=0, segment_index_bytes=960)
FAR = 2**31
NOW = 1_700_000_000_000


def batch(offset: int) -> bytes:
    return build_batch([Record(offset, NOW, b"k", b"%d" % offset)], base_offset=offset)


def segment(directory: Path, base_offset: int, offsets: Sequence[int], tail: bytes = b"") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{base_offset:020d}.log"
    path.write_bytes(b"".join(map(batch, offsets)) + tail)
    return path


def split(directory: Path, end: int, fs: FileSystem = REAL_FILESYSTEM) -> None:
    split_overflowed(directory, CONFIG, clock=ManualClock(), fs=fs, log_end_offset=end)


def content(directory: Path) -> dict[int, list[int]]:
    """Base offset -> offsets, of every `.log`."""
    return {
        int(path.stem): [found.base_offset for found in iter_batches(path.read_bytes())]
        for path in sorted(directory.glob("*.log"))
    }


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "t-0"


def test_a_segment_that_reaches_too_far_becomes_several(directory: Path) -> None:
    segment(directory, 0, [0, 1, FAR - 1, FAR, FAR + 5, 2 * FAR, 2 * FAR + 1])
    segment(directory, 3 * FAR, [3 * FAR])
    split(directory, 3 * FAR + 1)
    assert content(directory) == {
        0: [0, 1, FAR - 1],
        FAR: [FAR, FAR + 5],
        2 * FAR: [2 * FAR, 2 * FAR + 1],
        3 * FAR: [3 * FAR],
    }
    assert not [path for path in directory.iterdir() if path.suffix in (".cleaned", ".swap", ".deleted")]


def test_the_first_part_keeps_the_base_offset_whatever_its_first_record(directory: Path) -> None:
    segment(directory, 7, [9, FAR + 9])
    split(directory, FAR + 10)
    assert content(directory) == {7: [9], FAR + 9: [FAR + 9]}


@pytest.mark.parametrize("count", [1, 2])
def test_nothing_within_reach_leaves_an_empty_segment_in_front(directory: Path, count: int) -> None:
    """Also when it is the last offset of the first batch that reaches too far."""
    far = build_batch([Record(FAR - 2 + i, NOW, None, b"x") for i in range(3)], base_offset=FAR - 2)
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(far + batch(FAR + 1) * (count - 1))
    split(directory, FAR + count)
    assert content(directory) == {0: [], FAR - 2: [FAR - 2, FAR + 1][:count]}


def test_the_new_segments_have_indexes_and_the_old_ones_time(directory: Path) -> None:
    path = segment(directory, 0, [0, 1, 2, FAR, FAR + 1])
    REAL_FILESYSTEM.set_mtime_ms(path, 1_600_000_000_000)
    split(directory, FAR + 2)
    for base_offset, entries in ((0, 2), (FAR, 1)):
        log = directory / f"{base_offset:020d}.log"
        assert log.stat().st_mtime_ns == 1_600_000_000_000_000_000
        assert log.with_suffix(".index").stat().st_size == entries * 8


def test_aborted_transactions_go_with_their_markers(directory: Path) -> None:
    segment(directory, 0, [0, 1, FAR, FAR + 1])
    index = TransactionIndex(directory / f"{0:020d}.txnindex", 0)
    transactions = [AbortedTransaction(1, 0, 1, 0), AbortedTransaction(1, FAR, FAR + 1, FAR)]
    for transaction in transactions:
        index.append(transaction)
    index.close()
    split(directory, FAR + 2)
    found = [TransactionIndex(directory / f"{base:020d}.txnindex", base).all for base in (0, FAR)]
    assert found == [transactions[:1], transactions[1:]]


def test_a_gap_before_the_next_segment_is_no_overflow(directory: Path) -> None:
    segment(directory, 0, [0, 1, FAR - 1])
    segment(directory, 3 * FAR, [3 * FAR])
    before = sorted(path.name for path in directory.iterdir())
    split(directory, 3 * FAR + 1)
    assert content(directory) == {0: [0, 1, FAR - 1], 3 * FAR: [3 * FAR]}
    assert sorted(path.name for path in directory.iterdir()) == before


def test_a_torn_tail_stays_for_recovery(directory: Path) -> None:
    segment(directory, 0, [0, FAR], tail=b"torn")
    split(directory, FAR + 1)
    assert (directory / f"{FAR:020d}.log").read_bytes() == batch(FAR) + b"torn"


def test_damage_is_no_reason_to_cut(directory: Path) -> None:
    far = bytearray(batch(FAR))
    far[-1] ^= 1
    path = segment(directory, 0, [0], tail=bytes(far))
    before = path.read_bytes()
    split(directory, FAR + 1)
    assert path.read_bytes() == before
    assert list(content(directory)) == [0]


def test_a_log_with_such_a_segment_opens_and_goes_on(directory: Path) -> None:
    segment(directory, 0, [0, FAR, FAR + 1])
    log = PartitionLog.open(directory, CONFIG, clock=ManualClock(), clean_shutdown=True, recovery_point=FAR + 2)
    assert [found.base_offset for found in log.segments] == [0, FAR]
    assert log.log_end_offset == FAR + 2
    log.append_as_leader(batch(0), leader_epoch=0)
    log.update_high_watermark(log.log_end_offset)
    assert [record.offset for record in read_records(log, 0)] == [0, FAR, FAR + 1, FAR + 2]


@pytest.mark.parametrize("power_loss", [False, True], ids=["kill-9", "power-loss"])
def test_after_a_crash_at_any_step_every_record_is_there_once(tmp_path: Path, power_loss: bool) -> None:
    offsets = [0, 1, FAR, FAR + 1, 2 * FAR]
    step = 0
    while True:
        directory = tmp_path / str(step) / "t-0"
        segment(directory, 0, offsets)
        fs = LossyFileSystem(directory.parent, step)
        fs.kill_at = step
        with contextlib.suppress(Killed):
            split(directory, 2 * FAR + 1, fs)
        is_over = fs.changes < step
        fs.crash(power_loss=power_loss)
        finish_swaps(directory, fs)
        found = [offset for part in content(directory).values() for offset in part]
        assert found == offsets, step
        assert list(content(directory)) in ([0], [0, FAR, 2 * FAR]), step
        split(directory, 2 * FAR + 1, fs)
        assert list(content(directory)) == [0, FAR, 2 * FAR], step
        if is_over:
            break
        step += 1
    assert step > 20


@pytest.mark.parametrize("clean", [False, True])
def test_the_last_segment_is_split_whatever_the_recovery_point_says(directory: Path, clean: bool) -> None:
    """A checkpoint that was lost, or is behind: nothing but the segment tells how far it reaches."""
    offsets = [0, 1, FAR - 1, FAR, FAR + 5, 2 * FAR, 2 * FAR + 1]
    segment(directory, 0, offsets)
    log = PartitionLog.open(directory, CONFIG, clean_shutdown=clean, recovery_point=0)
    assert content(directory) == {0: [0, 1, FAR - 1], FAR: [FAR, FAR + 5], 2 * FAR: [2 * FAR, 2 * FAR + 1]}
    assert log.log_end_offset == 2 * FAR + 2
    log.update_high_watermark(log.log_end_offset)
    assert [record.offset for record in read_records(log, 0)] == offsets
    log.close()
    assert not list(directory.glob("*.cut"))


def test_a_far_offset_that_nothing_confirms_is_no_reason_to_split(directory: Path) -> None:
    """Offsets are not under the CRC: a torn one must not send the log to the far end of its numbers."""
    segment(directory, 0, [0, 1, 2**40])
    log = PartitionLog.open(directory, CONFIG, clean_shutdown=False, recovery_point=0)
    assert content(directory) == {0: [0, 1]}
    assert log.log_end_offset == 2
    log.close()
