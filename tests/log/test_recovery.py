"""Opening a directory in every state that a broker, or a bad disk, can leave it in."""

from __future__ import annotations

import contextlib
import logging
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.config.topic import LogConfig
from stratalog.errors import CorruptRecordError, InconsistentTopicIdError, OffsetOutOfRangeError
from stratalog.log.format.file_names import LEADER_EPOCH_CHECKPOINT
from stratalog.log.format.values import Isolation
from stratalog.log.partition_log import PartitionLog
from stratalog.log.segment.log_bytes import LogBytes
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.testing.clock import ManualClock
from stratalog.testing.lossy_filesystem import Killed, LossyFileSystem
from stratalog.util.checksum import crc32c
from tests.log.log_model import assert_lookups, batch_of, read_records
from tests.log.unsynced import UNSYNCED

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=100, segment_index_bytes=240)
BATCHES = 21
#: Log end offset; the last batch has three records.
END = 42


def make_log(directory: Path, *, close: bool = True) -> PartitionLog:
    """Batches of one to three records; an idempotent producer; a leader epoch every ten batches; three segments."""
    clock = ManualClock()
    log = PartitionLog.open(directory, CONFIG, clock=clock)
    sequence = 0
    for i in range(BATCHES):
        clock.advance(10)
        count = 1 + i % 3
        values = [b"value-%d-%d" % (i, j) for j in range(count)]
        batch = batch_of(values, [clock.now_ms()] * count, producer_id=3, producer_epoch=0, base_sequence=sequence)
        log.append_as_leader(batch, leader_epoch=i // 10)
        sequence += count
    log.update_high_watermark(log.log_end_offset)
    if close:
        log.close()
    return log


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that was closed cleanly."""
    directory = tmp_path_factory.mktemp("pristine") / "orders-0"
    make_log(directory)
    return directory


@pytest.fixture
def directory(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "orders-0"))


def reopen(directory: Path, *, clean: bool = False, recovery_point: int = 0) -> PartitionLog:
    return PartitionLog.open(
        directory,
        CONFIG,
        clock=ManualClock(),
        fs=UNSYNCED,
        clean_shutdown=clean,
        recovery_point=recovery_point,
    )


def logs_of(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_a_clean_directory_is_opened_without_reading_it(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "stratalog.log.recovery.recovery")
    before = contents(directory)
    log = reopen(directory, clean=True)
    assert log.recovery_point == log.log_end_offset == END
    assert len(read_records(log, 0)) == END
    assert not caplog.records
    log.close()
    after = contents(directory)
    assert {name: after[name] for name in before} == before


def test_a_tail_torn_at_any_byte_is_cut_to_whole_batches(pristine: Path, tmp_path: Path) -> None:
    whole = reopen(Path(shutil.copytree(pristine, tmp_path / "whole-0")))
    last = whole.active_segment
    ends = {0: last.base_offset} | {
        position + header[1] + 12: header[0] + header[6] + 1 for position, header in last.headers()
    }
    expected = read_records(whole, 0)
    for cut in range(last.size_bytes + 1):
        directory = Path(shutil.copytree(pristine, tmp_path / "cut-0", dirs_exist_ok=True))
        with logs_of(directory)[-1].open("r+b") as file:
            file.truncate(cut)
        log = reopen(directory)
        end_offset = max(offset for position, offset in ends.items() if position <= cut)
        assert log.log_end_offset == end_offset
        assert read_records(log, 0) == expected[:end_offset]


@pytest.mark.parametrize("position", [8, 16, 17, 21, 40, 61, 70])
def test_a_flipped_bit_in_an_unflushed_segment_ends_the_log_there(directory: Path, position: int) -> None:
    path = logs_of(directory)[2]
    data = bytearray(path.read_bytes())
    data[position] ^= 0x40
    path.write_bytes(data)
    log = reopen(directory)
    assert log.log_end_offset == int(path.stem)
    assert len(log.segments) == 3
    assert [record.offset for record in read_records(log, 0)] == list(range(int(path.stem)))
    info = log.append_as_leader(batch_of([b"x"], [1]), leader_epoch=9)
    assert info.first_offset == int(path.stem)


def test_what_recovery_found_and_did_is_said_in_one_line_each(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    second, third = logs_of(directory)[1:]
    with second.open("r+b") as file:
        file.truncate(second.stat().st_size - 1)
    caplog.set_level(logging.INFO, "stratalog.log.recovery.recovery")
    log = reopen(directory)
    end = log.log_end_offset
    cut, dropped, done = [record.getMessage() for record in caplog.records]
    assert cut.startswith(f"orders-0: cut {second.name} at position ")
    assert f"bytes from offset {end} on: a batch of " in cut
    assert dropped.startswith(f"orders-0: {third.name} follows the cut")
    assert done.startswith("orders-0: recovered: read 2 segments (")
    assert "and 1 segments after them" in done
    assert f"the log ends at offset {end}" in done


def test_what_is_cut_is_kept_unless_a_torn_write_left_it(directory: Path) -> None:
    """Whole segments behind a cut, and a batch that is there as a whole, may be somebody's records."""
    _, second, third = logs_of(directory)
    behind = third.read_bytes()
    data = bytearray(second.read_bytes())
    data[70] ^= 1
    second.write_bytes(data)
    log = reopen(directory)
    assert log.log_end_offset == int(second.stem)
    kept = sorted(path.name for path in directory.glob("*.cut"))
    assert kept == [f"{second.name}.0.cut", f"{third.name}.cut"]
    assert (directory / kept[0]).read_bytes() == data
    assert (directory / kept[1]).read_bytes() == behind
    log.close()
    reopen(directory, clean=True).close()  # no one takes them for segments
    assert sorted(path.name for path in directory.glob("*.cut")) == kept


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
@pytest.mark.parametrize("which", [0, -1], ids=["first", "last"])
def test_a_missing_index_is_made_again_as_it_was(directory: Path, suffix: str, which: int, clean: bool) -> None:
    before = contents(directory)
    path = sorted(directory.glob(f"*.{suffix}"))[which]
    path.unlink()
    log = reopen(directory, clean=clean, recovery_point=10_000)
    assert_lookups(log, read_records(log, 0))
    log.close()
    after = contents(directory)
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: data[:-1], id="torn"),
        pytest.param(lambda data: bytes(len(data)), id="zeros"),
        pytest.param(lambda data: data[8:] + data[:8], id="turned"),
        pytest.param(lambda data: b"\x7f" * len(data), id="behind the end"),
    ],
)
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_a_damaged_index_is_made_again(directory: Path, suffix: str, damage: Callable[[bytes], bytes]) -> None:
    path = sorted(directory.glob(f"*.{suffix}"))[1]
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    log = reopen(directory, clean=True)
    assert_lookups(log, read_records(log, 0))
    assert path.read_bytes() == whole


def test_a_read_does_not_believe_a_damaged_entry_amid_an_index(tmp_path: Path) -> None:
    """Every single flipped bit of an offset index is either found at the start, or harmless to every read."""
    directory = tmp_path / "orders-0"
    config = LogConfig(index_interval_bytes=100, segment_index_bytes=240)
    log = PartitionLog.open(directory, config, clock=ManualClock())
    for i in range(20):
        log.append_as_leader(batch_of([b"value-%d" % i, b"x"], [1, 1]), leader_epoch=0)
    records = read_records(log, 0)
    log.close()
    (path,) = directory.glob("*.index")
    whole = path.read_bytes()
    for bit in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        log = PartitionLog.open(directory, config, clock=ManualClock(), fs=UNSYNCED, clean_shutdown=True)
        for record in records:
            data = log.read(record.offset, 1, isolation=Isolation.LOG_END)
            assert data.start.offset == record.offset - record.offset % 2


def test_an_index_without_its_log_goes(directory: Path) -> None:
    orphan = directory / "00000000000000009999.index"
    orphan.write_bytes(b"")
    reopen(directory, clean=True)
    assert not orphan.exists()


def test_files_that_were_being_deleted_or_cleaned_go(directory: Path) -> None:
    for name in ("00000000000000000000.log.deleted", "00000000000000000007.index.cleaned"):
        (directory / name).write_bytes(b"x")
    before = contents(directory).keys()
    log = reopen(directory, clean=True)
    assert before - contents(directory).keys() == {
        "00000000000000000000.log.deleted",
        "00000000000000000007.index.cleaned",
    }
    assert log.log_end_offset == END


def _as_swap(directory: Path, base: str) -> None:
    """Copies of a segment's files, as a replacement that is being swapped in."""
    for suffix in ("log", "index", "timeindex"):
        shutil.copy(directory / f"{base}.{suffix}", directory / f"{base}.{suffix}.swap")


def test_an_interrupted_swap_is_completed(directory: Path) -> None:
    first, second = (path.stem for path in logs_of(directory)[:2])
    merged = (directory / f"{first}.log").read_bytes() + (directory / f"{second}.log").read_bytes()
    _as_swap(directory, first)
    (directory / f"{first}.log.swap").write_bytes(merged)
    (directory / f"{first}.log").unlink()  # the old one was on its way out
    log = reopen(directory)
    assert not list(directory.glob("*.swap"))
    assert not (directory / f"{second}.log").exists()
    assert len(read_records(log, 0)) == END
    assert_lookups(log, read_records(log, 0))


def test_a_swap_that_was_not_whole_is_dropped(directory: Path) -> None:
    base = logs_of(directory)[0].stem
    _as_swap(directory, base)
    (directory / f"{base}.log.cleaned").write_bytes(b"x")
    before = (directory / f"{base}.log").read_bytes()
    log = reopen(directory, clean=True)
    assert not list(directory.glob("*.swap")) + list(directory.glob("*.cleaned"))
    assert (directory / f"{base}.log").read_bytes() == before
    assert log.log_end_offset == END


def test_producers_are_known_again_from_snapshot_and_log(directory: Path) -> None:
    for snapshot in sorted(directory.glob("*.snapshot"))[-2:]:
        snapshot.unlink()
    log = reopen(directory)
    batch = batch_of([b"again"] * 3, [1] * 3, producer_id=3, producer_epoch=0, base_sequence=END - 3)
    assert log.append_as_leader(batch, leader_epoch=2).duplicate
    following = batch_of([b"next"], [1], producer_id=3, producer_epoch=0, base_sequence=END)
    assert log.append_as_leader(following, leader_epoch=2).first_offset == END


def test_a_damaged_snapshot_is_no_loss(directory: Path) -> None:
    for snapshot in directory.glob("*.snapshot"):
        snapshot.write_bytes(b"\0\1garbage-garbage")
    log = reopen(directory)
    assert log.producers.producers[3].last_sequence == END - 1


def test_leader_epochs_end_where_the_log_does(directory: Path) -> None:
    path = logs_of(directory)[1]
    path.write_bytes(path.read_bytes()[:10])
    log = reopen(directory)
    assert log.leader_epochs.latest_epoch == 0
    assert all(entry.start_offset < log.log_end_offset for entry in log.leader_epochs.entries)


@pytest.mark.parametrize("damage", [b"0\n2\n0 0\n", b"\xff\xfe", b"0\n1\nx y\n"])
def test_leader_epochs_are_read_from_the_log_when_their_file_is_damaged(directory: Path, damage: bytes) -> None:
    before = (directory / LEADER_EPOCH_CHECKPOINT).read_bytes()
    (directory / LEADER_EPOCH_CHECKPOINT).write_bytes(damage)
    log = reopen(directory, clean=True)
    assert [entry.epoch for entry in log.leader_epochs.entries] == [0, 1, 2]
    assert (directory / LEADER_EPOCH_CHECKPOINT).read_bytes() == before


def test_a_log_that_ends_before_its_start_offset_begins_again_there(directory: Path) -> None:
    log = PartitionLog.open(directory, CONFIG, clock=ManualClock(), log_start_offset=1_000)
    assert (log.log_start_offset, log.log_end_offset, len(log.segments)) == (1_000, 1_000, 1)


def test_flushed_segments_are_not_read_again(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "stratalog.log.recovery.recovery")
    log = reopen(directory, recovery_point=END - 1)
    assert "read 1 segments" in caplog.text
    assert log.recovery_point == END - 1


def test_a_preallocated_segment_is_cut_to_its_batches(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=100_000, preallocate=True)
    log = PartitionLog.open(tmp_path / "orders-0", config, clock=ManualClock())
    log.append_as_leader(batch_of([b"x"], [1]), leader_epoch=0)
    size = log.active_segment.size_bytes
    assert log.active_segment.log_path.stat().st_size == 100_000
    log = PartitionLog.open(tmp_path / "orders-0", config, clock=ManualClock())
    assert log.active_segment.log_path.stat().st_size == size
    assert log.log_end_offset == 1


@pytest.mark.parametrize("damage", ["payload", "crc", "torn"])
def test_a_batch_within_a_record_is_never_taken_for_one_of_the_log(tmp_path: Path, damage: str) -> None:
    """Whole segments as values: of the right offsets, if somebody wants to."""
    directory = tmp_path / "orders-0"
    log = PartitionLog.open(directory, LogConfig(), clock=ManualClock(), fs=UNSYNCED)
    log.append_as_leader(batch_of([b"first"], [1]), leader_epoch=0)
    start = log.active_segment.size_bytes
    inner = b"".join(build_batch([Record(offset, 1, b"k", b"inner")], base_offset=offset) for offset in (2, 3))
    log.append_as_leader(batch_of([inner, b"more"], [1, 1]), leader_epoch=0)
    log.append_as_leader(batch_of([b"last"], [1]), leader_epoch=0)
    path = log.active_segment.log_path
    data = bytearray(path.read_bytes())
    if damage == "torn":
        del data[data.index(b"more") :]
    else:
        data[data.index(b"more") if damage == "payload" else start + 17] ^= 1
    path.write_bytes(data)
    for suffix in (".index", ".timeindex"):
        path.with_suffix(suffix).unlink()
    again = PartitionLog.open(
        directory,
        LogConfig(),
        clock=ManualClock(),
        fs=UNSYNCED,
        clean_shutdown=damage != "torn",
        recovery_point=4,
    )
    found = []
    for offset in range(again.log_end_offset):
        with contextlib.suppress(CorruptRecordError, OffsetOutOfRangeError):
            part = again.read(offset, 1, isolation=Isolation.LOG_END).slice
            found += [record.value for record in next(iter_batches(part.read())).records()] if part else []
    assert b"inner" not in found
    assert found == [b"first"] if damage == "torn" else [b"first", b"last"]
    assert again.log_end_offset == 4


def test_a_large_file_is_read_piece_by_piece(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not all of it before the first batch is looked at: it may be larger than the memory."""
    sizes: list[int] = []
    looked_at: list[int] = []
    read_window = LogBytes.window

    def window(log: LogBytes, position: int, size: int = 0) -> memoryview:
        found = read_window(log, position, size)
        sizes.append(len(found))
        return found

    def checksum(view: memoryview) -> int:
        looked_at.append(len(sizes))
        return crc32c(view)

    monkeypatch.setattr("stratalog.log.segment.log_bytes.WINDOW_SIZE", 300)
    monkeypatch.setattr(LogBytes, "window", window)
    monkeypatch.setattr("stratalog.log.recovery.segment_recovery.crc32c", checksum)
    log = reopen(directory)
    assert log.log_end_offset == END
    assert len(sizes) > 2 * len(log.segments)
    assert max(sizes) <= 300
    assert looked_at[0] < looked_at[-1] == len(sizes)


PREALLOCATED = LogConfig(segment_bytes=100_000, preallocate=True)


def preallocated(directory: Path) -> tuple[PartitionLog, int]:
    """A log with three batches of zeros, and a fourth; and where that one begins."""
    log = PartitionLog.open(directory, PREALLOCATED, clock=ManualClock())
    for timestamp in range(3):
        log.append_as_leader(batch_of([b"x"], [timestamp + 1]), leader_epoch=0)
    size = log.active_segment.size_bytes
    log.append_as_leader(batch_of([b"y" * 300], [9]), leader_epoch=0)
    assert log.active_segment.log_path.stat().st_size == 100_000
    return log, size


@pytest.mark.parametrize("written", [1, 40, 61, 200])
def test_of_a_torn_write_in_a_preallocated_file_no_zeros_are_kept(tmp_path: Path, written: int) -> None:
    directory = tmp_path / "orders-0"
    log, size = preallocated(directory)
    with log.active_segment.log_path.open("r+b") as file:
        file.seek(size + written)
        file.write(bytes(500))
    again = PartitionLog.open(directory, PREALLOCATED, clock=ManualClock())
    assert again.log_end_offset == 3
    assert again.active_segment.log_path.stat().st_size == size
    kept = [path.stat().st_size for path in directory.glob("*.cut")]
    assert sum(kept) < 5_000
    assert len(kept) == (written > 1)


def test_empty_preallocated_segments_behind_a_cut_are_not_kept(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    log, size = preallocated(directory)
    first = log.active_segment.log_path
    log.roll()
    assert log.active_segment.log_path.stat().st_size == 100_000
    with first.open("r+b") as file:
        file.truncate(first.stat().st_size - 1)
    again = PartitionLog.open(directory, PREALLOCATED, clock=ManualClock())
    assert again.log_end_offset == 3
    assert first.stat().st_size == size
    assert list(directory.glob("*.cut")) == []


def test_a_preallocated_file_that_got_its_zeros_back_ends_no_log(tmp_path: Path) -> None:
    """The power went after the roll, before the disk knew that the segment was cut to its batches."""
    directory = tmp_path / "orders-0"
    log, _ = preallocated(directory)
    first = log.active_segment.log_path
    log.roll()
    log.append_as_leader(batch_of([b"z"], [1]), leader_epoch=0)
    size = first.stat().st_size
    with first.open("r+b") as file:
        file.truncate(100_000)
    again = PartitionLog.open(directory, PREALLOCATED, clock=ManualClock())
    assert again.log_end_offset == 5
    assert first.stat().st_size == size
    assert list(directory.glob("*.cut")) == []


def test_another_topics_directory_is_refused(tmp_path: Path) -> None:
    mine, other = uuid.uuid4(), uuid.uuid4()
    PartitionLog.open(tmp_path / "orders-0", CONFIG, topic_id=mine).close()
    assert PartitionLog.open(tmp_path / "orders-0", CONFIG).topic_id == mine
    with pytest.raises(InconsistentTopicIdError, match=str(other)):
        PartitionLog.open(tmp_path / "orders-0", CONFIG, topic_id=other)


def test_a_directory_with_another_kind_of_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="<topic>-<partition>"):
        PartitionLog.open(tmp_path / "orders", CONFIG)


def test_leader_epochs_of_a_log_that_begins_amid_a_segment_are_believed(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = reopen(directory, clean=True)
    log.update_high_watermark(log.log_end_offset)
    log.increment_log_start_offset(37, "test")
    log.close()
    log = PartitionLog.open(directory, CONFIG, clock=ManualClock(), clean_shutdown=True, log_start_offset=37)
    assert [tuple(entry) for entry in log.leader_epochs.entries] == [(1, 37), (2, 39)]
    assert "leader epochs" not in caplog.text


@pytest.mark.parametrize("epochs", [None, b"", b"0\n1\n7 0\n"], ids=["missing", "empty", "of another log"])
def test_leader_epochs_are_read_from_the_log_when_they_are_not_its_own(directory: Path, epochs: bytes | None) -> None:
    path = directory / LEADER_EPOCH_CHECKPOINT
    before = path.read_bytes()
    if epochs is None:
        path.unlink()
    else:
        path.write_bytes(epochs)
    reopen(directory, clean=True)
    assert path.read_bytes() == before


def test_a_recovery_that_is_killed_leaves_no_segment_behind_a_cut(directory: Path) -> None:
    """Else the next one would find a log that is whole up to the cut, and go on behind the gap."""
    logs = sorted(directory.glob("*.log"))
    assert len(logs) >= 3
    first = bytearray(logs[0].read_bytes())
    first[-1] ^= 1
    logs[0].write_bytes(first)
    changes = 0
    while True:
        copy = directory.parent / f"killed-{changes}" / "orders-0"
        shutil.copytree(directory, copy)
        fs = LossyFileSystem(copy)
        fs.kill_at = changes
        try:
            PartitionLog.open(copy, CONFIG, clock=ManualClock(), fs=fs, clean_shutdown=False).close()
        except Killed:
            log = PartitionLog.open(copy, CONFIG, clock=ManualClock(), clean_shutdown=False)
            bases = [segment.base_offset for segment in log.segments]
            assert len(bases) == 1, f"killed before change {changes}: segments {bases}"
            log.close()
        else:
            break
        changes += 1
    assert changes > 10


def test_a_disk_that_is_full_when_a_tail_is_to_be_kept_says_so_and_nothing_is_cut(directory: Path) -> None:
    last = sorted(directory.glob("*.log"))[-1]
    data = bytearray(last.read_bytes())
    data[100] ^= 1
    last.write_bytes(data)
    fs = LossyFileSystem(directory)
    fs.bytes_left = 150  # some for indexes and snapshots
    with pytest.raises(OSError, match="No space"):
        PartitionLog.open(directory, CONFIG, clock=ManualClock(), fs=fs, clean_shutdown=False)
    assert last.read_bytes() == data


@pytest.mark.parametrize("left", [50, 500])
def test_a_log_start_amid_unflushed_records_makes_no_damage_of_their_loss(tmp_path: Path, left: int) -> None:
    """The log begins amid a segment of which the disk got only the beginning, as the power went."""
    log = PartitionLog.open(tmp_path / "orders-0", CONFIG, clock=ManualClock())
    for number in range(12):
        log.append_as_leader(batch_of([b"%d" % number * 100] * 3, [number + 1] * 3), leader_epoch=0)
    log.update_high_watermark(log.log_end_offset)
    log.increment_log_start_offset(7, "asked for")
    assert log.recovery_point == 7  # as in Kafka, though nothing was flushed
    holding = [segment for segment in log.segments if segment.base_offset < 7][-1]
    path, point = holding.log_path, log.recovery_point
    log.close()
    with path.open("r+b") as file:
        file.truncate(left)
    log = PartitionLog.open(
        tmp_path / "orders-0",
        CONFIG,
        clock=ManualClock(),
        clean_shutdown=False,
        recovery_point=point,
        log_start_offset=7,
    )
    assert log.log_start_offset == 7
    found = [record.offset for record in read_records(log, 7)]
    assert found == list(range(7, log.log_end_offset))
    log.append_as_leader(batch_of([b"more"], [1]), leader_epoch=0)
    assert read_records(log, 7)[-1].value == b"more"
    log.close()
