"""Segments take the place of others: at once for readers, and after a crash at any step it either happened or did
not."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from stratalog.config.topic import LogConfig
from stratalog.errors import KafkaStorageError
from stratalog.log.append.preparation import BatchFacts
from stratalog.log.partition_log import PartitionLog
from stratalog.log.segment.segment import LogSegment
from stratalog.records.batch import RecordBatch, iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.testing.clock import ManualClock
from stratalog.testing.lossy_filesystem import Killed, LossyFileSystem
from stratalog.util.filesystem import REAL_FILESYSTEM, FileSystem
from tests.log.log_model import read_records

CONFIG = LogConfig(index_interval_bytes=0, segment_index_bytes=960, file_delete_delay_ms=60_000)
PRODUCER = 7


def open_log(directory: Path, fs: FileSystem = REAL_FILESYSTEM, *, clean: bool = True) -> PartitionLog:
    log = PartitionLog.open(directory, CONFIG, clock=ManualClock(), fs=fs, clean_shutdown=clean)
    log.update_high_watermark(log.log_end_offset)
    return log


def fill(log: PartitionLog, *, segments: int, batches: int = 3) -> None:
    """`segments` sealed ones of `batches` batches of one record each, of an idempotent producer.

    An active one behind.
    """
    for number in range(segments * batches + 1):
        if number and number % batches == 0:
            log.roll()
        value = b"%d" % number
        log.append_as_leader(
            build_batch(
                [Record(0, 1_700_000_000_000 + number, b"k%d" % number, value)],
                producer_id=PRODUCER,
                producer_epoch=0,
                base_sequence=number,
            ),
            leader_epoch=0,
        )
    log.update_high_watermark(log.log_end_offset)
    log.flush()


def copied(
    log: PartitionLog,
    segments: Iterable[LogSegment],
    base_offset: int,
    keep: Callable[[int], bool],
    fs: FileSystem,
) -> LogSegment:
    """A `.cleaned` segment, sealed and flushed, of the batches of `segments` whose offset is to be kept."""
    new = LogSegment.create(log.directory, base_offset, CONFIG, clock=ManualClock(), fs=fs, suffix=".cleaned")
    for segment in segments:
        for position, header in segment.headers():
            batch = segment.read_batch(position, header[1] + 12)
            if keep(batch.base_offset):
                append(new, batch)
    new.become_inactive()
    new.flush()
    return new


def append(segment: LogSegment, batch: RecordBatch) -> None:
    facts = BatchFacts(batch.base_offset, batch.last_offset, batch.max_timestamp, batch.size, 0)
    segment.append([batch.as_memoryview()], batch.size, [facts])


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def offsets(log: PartitionLog) -> list[int]:
    return [record.offset for record in read_records(log, log.log_start_offset)]


def temporary(directory: Path) -> list[str]:
    return sorted(p.name for p in directory.iterdir() if p.suffix in (".cleaned", ".swap", ".deleted"))


def even(offset: int) -> bool:
    return offset % 2 == 0


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data" / "orders-0"


def merge(log: PartitionLog, count: int, fs: FileSystem = REAL_FILESYSTEM) -> None:
    """The first `count` segments become one, with their even offsets."""
    old = log.segments[:count]
    log.replace_segments([copied(log, old, old[0].base_offset, even, fs)], old)


def test_new_segments_take_the_place_of_old_ones(directory: Path) -> None:
    log = open_log(directory)
    fill(log, segments=4)
    merge(log, 3)
    assert bases(log) == [0, 9, 12]
    assert offsets(log) == [0, 2, 4, 6, 8, 9, 10, 11, 12]
    assert log.active_segment is log.segments[-1]
    log.close()
    assert offsets(open_log(directory)) == [0, 2, 4, 6, 8, 9, 10, 11, 12]
    assert temporary(directory) == []


def test_lookups_find_the_new_segments(directory: Path) -> None:
    log = open_log(directory)
    fill(log, segments=2)
    merge(log, 2)
    slice_ = log.read(3, 1).slice
    assert slice_ is not None
    assert [batch.base_offset for batch in iter_batches(slice_.read())] == [4]
    found = log.offset_for_timestamp(1_700_000_000_003)
    assert found is not None
    assert found.offset == 4


def test_a_slice_of_a_replaced_segment_stays_readable_even_when_its_files_are_gone(directory: Path) -> None:
    log = open_log(directory)
    fill(log, segments=2)
    part = log.read(1, 1).slice
    assert part is not None
    merge(log, 2)
    log.purge_deleted(ManualClock().now_ms() + 100_000)
    assert temporary(directory) == []
    assert [record.value for batch in iter_batches(part.read()) for record in batch.records()] == [b"1"]


def test_the_row_that_a_reader_took_stays_as_it_was(directory: Path) -> None:
    log = open_log(directory)
    fill(log, segments=2)
    row = log.segments
    merge(log, 2)
    assert [segment.base_offset for segment in row] == [0, 3, 6]
    assert [header[0] for segment in row[:2] for _, header in segment.headers()] == [0, 1, 2, 3, 4, 5]


def test_the_snapshot_goes_with_a_segment_that_no_new_one_begins_at(directory: Path) -> None:
    log = open_log(directory)
    fill(log, segments=3)
    log.replace_segments([copied(log, log.segments[1:3], 3, even, REAL_FILESYSTEM)], log.segments[1:3])
    assert [path.name for path in sorted(directory.glob("*.snapshot"))] == [
        "00000000000000000003.snapshot",
        "00000000000000000009.snapshot",
    ]
    assert (directory / "00000000000000000006.snapshot.deleted").exists()


def test_old_files_wait_for_their_removal_as_deleted_ones(directory: Path) -> None:
    log = open_log(directory)
    fill(log, segments=2)
    merge(log, 2)
    assert "00000000000000000000.log.deleted" in temporary(directory)
    assert "00000000000000000003.timeindex.deleted" in temporary(directory)
    log.purge_deleted(ManualClock().now_ms() + 60_000)
    assert temporary(directory) == []


def test_a_position_of_the_high_watermark_in_an_old_segment_is_forgotten(directory: Path) -> None:
    log = open_log(directory)
    log.append_as_leader(build_batch([Record(0, 1, b"k", b"a")]), leader_epoch=0)
    log.append_as_leader(build_batch([Record(0, 1, b"k", b"b" * 100)]), leader_epoch=0)
    log.update_high_watermark(2)  # is at the end, with its position there
    log.append_as_leader(build_batch([Record(0, 1, b"k", b"c")]), leader_epoch=0)
    log.roll()
    log.append_as_leader(build_batch([Record(0, 1, b"k", b"d")]), leader_epoch=0)
    old = log.segments[:1]
    log.replace_segments([copied(log, old, 0, lambda offset: offset == 0, REAL_FILESYSTEM)], old)
    part = log.read(0, 10_000).slice
    assert part is not None
    assert len(part.read()) == part.size


def test_old_segments_that_left_the_log_concurrently_are_passed_over(directory: Path) -> None:
    log = open_log(directory)
    fill(log, segments=3)
    old = log.segments[:2]
    new = copied(log, old, 0, even, REAL_FILESYSTEM)
    log.increment_log_start_offset(3, "a test")
    log.delete_old_segments()
    log.replace_segments([new], old)
    assert bases(log) == [0, 6, 9]
    assert offsets(log) == [4, 6, 7, 8, 9]


def test_without_any_old_segment_left_the_new_ones_go(directory: Path) -> None:
    log = open_log(directory)
    fill(log, segments=3)
    old = log.segments[:1]
    new = copied(log, old, 0, even, REAL_FILESYSTEM)
    log.increment_log_start_offset(3, "a test")
    log.delete_old_segments()
    log.replace_segments([new], old)
    assert bases(log) == [3, 6, 9]
    assert not list(directory.glob("*.cleaned")) + list(directory.glob("*.swap"))


def test_the_active_segment_is_never_replaced(directory: Path) -> None:
    log = open_log(directory)
    fill(log, segments=1)
    with pytest.raises(ValueError):
        log.replace_segments([copied(log, log.segments, 0, even, REAL_FILESYSTEM)], log.segments)
    assert bases(log) == [0, 3]


def test_a_closed_log_takes_nothing_and_keeps_nothing_of_it(directory: Path) -> None:
    log = open_log(directory)
    fill(log, segments=1)
    old = log.segments[:1]
    new = copied(log, old, 0, even, REAL_FILESYSTEM)
    log.close()
    with pytest.raises(KafkaStorageError):
        log.replace_segments([new], old)
    assert temporary(directory) == []


class FailingRenames(FileSystem):
    """Refuses the n-th rename."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.renames = 0
        self.on = False

    def rename(self, source: object, target: object) -> None:
        if self.on:
            self.renames += 1
            if self.renames == self.after:
                raise OSError(5, "Input/output error")
        super().rename(source, target)  # type: ignore[arg-type]


@pytest.mark.parametrize("after", range(1, 7))
def test_a_rename_that_is_refused_before_all_is_certain_leaves_the_log_as_it_was(directory: Path, after: int) -> None:
    fs = FailingRenames(after)
    log = open_log(directory, fs)
    fill(log, segments=2)
    old = log.segments[:2]
    new = [copied(log, old, 0, lambda o: o < 2, fs), copied(log, old, 2, lambda o: o >= 2, fs)]
    fs.on = True
    with pytest.raises(KafkaStorageError):
        log.replace_segments(new, old)
    fs.on = False
    assert offsets(log) == list(range(7))
    assert bases(log) == [0, 3, 6]
    assert temporary(directory) == []
    merge(log, 2)  # and it can be tried again
    assert offsets(log) == [0, 2, 4, 6]


@pytest.mark.parametrize("power_loss", [False, True], ids=["kill-9", "power-loss"])
@pytest.mark.parametrize("split", [False, True], ids=["merge", "split"])
def test_after_a_crash_at_any_step_no_survivor_is_lost_and_none_is_doubled(
    tmp_path: Path, power_loss: bool, split: bool
) -> None:
    steps = _steps_of_a_replacement(tmp_path / "count", split)
    assert steps > 20
    for step, seed in itertools.product(range(steps + 1), range(4 if power_loss else 1)):
        _kill_and_check(tmp_path / f"{step}-{seed}" / "orders-0", split, step, seed, power_loss)


def _replace(log: PartitionLog, fs: FileSystem, split: bool) -> None:
    """The first segment becomes two, or the first three become one; odd offsets are the dead ones."""
    if split:
        old = log.segments[:1]
        starts = ((0, lambda o: o < 2), (2, lambda o: o >= 2))
        log.replace_segments([copied(log, old, base, keep, fs) for base, keep in starts], old)
    else:
        merge(log, 3, fs)


def _steps_of_a_replacement(directory: Path, split: bool) -> int:
    fs, log = _started(directory / "orders-0", 0)
    before = fs.changes
    _replace(log, fs, split)
    return fs.changes - before


def _started(directory: Path, seed: int) -> tuple[LossyFileSystem, PartitionLog]:
    directory.mkdir(parents=True)
    fs = LossyFileSystem(directory.parent, seed)
    log = open_log(directory, fs)
    fill(log, segments=4)
    fs.sync_dir(directory)
    return fs, log


def _kill_and_check(directory: Path, split: bool, step: int, seed: int, power_loss: bool) -> None:
    fs, log = _started(directory, seed)
    fs.kill_at = step
    with contextlib.suppress(Killed):
        _replace(log, fs, split)
    fs.crash(power_loss=power_loss)
    _kill_while_opening(directory, fs, seed, power_loss)
    log = open_log(directory, fs, clean=False)
    context = f"step {step}, seed {seed}"
    found = offsets(log)
    survivors = list(range(13)) if split else [o for o in range(13) if even(o) or o >= 9]
    assert found == sorted(set(found)), context
    assert set(found) >= set(survivors), context
    assert set(found) <= set(range(13)), context
    assert temporary(directory) == [], context
    for record in read_records(log, 0):
        assert record.value == b"%d" % record.offset, context
    assert log.log_end_offset == 13, context
    assert _last_sequence(log) == 12, context
    assert _gone_or_whole(bases(log), split), context


def _kill_while_opening(directory: Path, fs: LossyFileSystem, seed: int, power_loss: bool) -> None:
    """What comes after a crash may crash as well."""
    fs.kill_at = seed * 3 + 1
    with contextlib.suppress(Killed):
        open_log(directory, fs, clean=False)
    fs.crash(power_loss=power_loss)


def _last_sequence(log: PartitionLog) -> int:
    return log.producers.producers[PRODUCER].last_sequence


def _gone_or_whole(found: Sequence[int], split: bool) -> bool:
    return list(found) in ([0, 3, 6, 9, 12], [0, 2, 3, 6, 9, 12] if split else [0, 9, 12])
