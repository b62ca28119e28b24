"""Bytes found on disk are checked once, where they are first read; what this process wrote is not."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from stratalog.config.topic import LogConfig
from stratalog.errors import CorruptRecordError
from stratalog.log.format.values import Isolation
from stratalog.log.partition_log import PartitionLog
from stratalog.log.segment import checked_ranges
from stratalog.records import record_scan
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.testing.failing_filesystem import FailingFileSystem
from tests.log.log_model import batch_of, read_records
from tests.log.unsynced import UNSYNCED

CONFIG = LogConfig(segment_bytes=20_000)


def written(directory: Path, batches: int = 60) -> PartitionLog:
    log = PartitionLog.open(directory, CONFIG)
    for number in range(batches):
        log.append_as_leader(batch_of([b"%d" % number * 500], [number + 1]), leader_epoch=0)
    return log


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of what was checked."""
    seen: list[int] = []
    real = checked_ranges.crc_flaw

    def counted(data: bytes, at: int, header: tuple[int, ...]) -> str | None:
        seen.append(header[1])
        return real(data, at, header)

    monkeypatch.setattr(checked_ranges, "crc_flaw", counted)
    return seen


def test_what_was_written_here_is_not_checked(tmp_path: Path, checks: list[int]) -> None:
    log = written(tmp_path / "orders-0")
    assert len(read_records(log, 0)) == 60
    assert not checks


def test_what_was_recovered_is_not_checked_again(tmp_path: Path, checks: list[int]) -> None:
    written(tmp_path / "orders-0").close()
    log = PartitionLog.open(tmp_path / "orders-0", CONFIG)
    assert len(read_records(log, 0)) == 60
    assert not checks


def test_what_was_found_is_checked_once(tmp_path: Path, checks: list[int]) -> None:
    written(tmp_path / "orders-0").close()
    log = PartitionLog.open(tmp_path / "orders-0", CONFIG, clean_shutdown=True)
    for _ in range(3):
        assert len(read_records(log, 0, 5_000)) == 60
    assert len(checks) == 60
    assert all(segment.sound.unchecked_end == 0 for segment in log.segments)


def test_reads_here_and_there_are_remembered(tmp_path: Path, checks: list[int]) -> None:
    written(tmp_path / "orders-0").close()
    log = PartitionLog.open(tmp_path / "orders-0", CONFIG, clean_shutdown=True)
    for offset in (40, 3, 17, 3, 40, 41, 2, 17):
        log.read(offset, 1, isolation=Isolation.LOG_END)
    assert len(checks) == 5
    read_records(log, 0)
    assert len(checks) == 60


def test_a_reader_gets_what_lies_before_the_damage_and_then_learns_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = written(tmp_path / "orders-0")
    segment = log.segments[0]
    place = segment.translate_offset(5)
    assert place is not None
    log.close()
    with segment.log_path.open("r+b") as file:
        file.seek(place.position + 100)
        byte = file.read(1)[0]
        file.seek(place.position + 100)
        file.write(bytes([byte ^ 1]))
    before = segment.log_path.read_bytes()
    log = PartitionLog.open(tmp_path / "orders-0", CONFIG, clean_shutdown=True)
    part = log.read(0, 10_000, isolation=Isolation.LOG_END).slice
    assert part is not None
    assert part.size == place.position
    for _ in range(3):
        with pytest.raises(
            CorruptRecordError, match=f"{segment.log_path.name}: the batch at position {place.position} "
        ):
            log.read(5, 10_000, isolation=Isolation.LOG_END)
    assert [record.offset for record in read_records(log, 6)] == list(range(6, 60))
    assert len([r for r in caplog.records if "is damaged" in r.getMessage()]) == 1
    log.close()
    assert segment.log_path.read_bytes() == before


def test_flushed_segments_are_not_read_when_a_log_is_opened(tmp_path: Path) -> None:
    """Neither after a clean stop nor after a crash, but for a few headers to see that their indexes fit."""
    log = written(tmp_path / "orders-0", 600)
    log.flush()
    last = log.active_segment.log_path.name
    sizes = {segment.log_path.name: segment.size_bytes for segment in log.segments}
    point = log.log_end_offset
    log.close()
    for clean in (True, False):
        fs = FailingFileSystem()
        again = PartitionLog.open(tmp_path / "orders-0", CONFIG, fs=fs, clean_shutdown=clean, recovery_point=point)
        assert len(sizes) > 15
        assert clean or fs.bytes_read[last] >= sizes[last]
        for name in sizes.keys() - (set() if clean else {last}):
            assert fs.bytes_read[name] <= 4 * 8192
        again.close()


def test_a_log_of_many_segments_is_opened_without_a_map_for_each(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=100, segment_index_bytes=1200)
    log = PartitionLog.open(tmp_path / "orders-0", config, fs=UNSYNCED)
    for number in range(500):
        log.append_as_leader(batch_of([b"x"], [number + 1]), leader_epoch=0)
    log.close()
    again = PartitionLog.open(tmp_path / "orders-0", config, clean_shutdown=True, fs=UNSYNCED)
    assert len(again.segments) == 500
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()
    again.close()


@pytest.mark.parametrize("clean", [True, False])
def test_memory_of_opening_does_not_grow_with_what_was_flushed(tmp_path: Path, clean: bool) -> None:
    """As many segments, twenty times the bytes: what is allocated on the way is about the same."""
    record_scan.load_native()  # else a thread may load the native loops while memory is measured
    peaks = []
    for times in (1, 20):
        directory = tmp_path / f"orders-{times}"
        log = PartitionLog.open(directory, replace(CONFIG, segment_bytes=2**40))
        for _ in range(8):
            for _ in range(10 * times):
                log.append_as_leader(build_batch([Record(0, 1, None, bytes(9_000))]), leader_epoch=0)
            log.roll()
        log.flush()
        point = log.log_end_offset
        log.close()
        tracemalloc.start()
        again = PartitionLog.open(directory, CONFIG, clean_shutdown=clean, recovery_point=point)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert again.log_end_offset == point
        again.close()
    assert peaks[1] < peaks[0] + 200_000


def with_a_wrong_base_offset(directory: Path, base_offset: int) -> PartitionLog:
    """A log of batches of three records, of which the one of offsets 18 to 20 says to begin elsewhere."""
    log = PartitionLog.open(directory, CONFIG)
    for number in range(12):
        log.append_as_leader(batch_of([b"%d" % number * 300] * 3, [number + 1] * 3), leader_epoch=0)
    segment = log.segments[0]
    place = segment.translate_offset(18)
    assert place is not None
    log.close()
    with segment.log_path.open("r+b") as file:
        file.seek(place.position)
        file.write(base_offset.to_bytes(8, "big"))
    return PartitionLog.open(directory, CONFIG, clean_shutdown=True)


@pytest.mark.parametrize("max_bytes", [1, 1_500, 100_000])
@pytest.mark.parametrize("start", [0, 12, 15])
def test_which_batch_has_a_wrong_offset_does_not_depend_on_where_reading_began(
    tmp_path: Path, start: int, max_bytes: int
) -> None:
    """Offsets are not under the CRC: two neighbours contradict each other, and only one of them is at fault."""
    log = with_a_wrong_base_offset(tmp_path / "orders-0", 14)
    offset = start
    while offset < 18:
        data = log.read(offset, max_bytes, isolation=Isolation.LOG_END).slice
        assert data is not None
        offset = max(batch.next_offset for batch in iter_batches(data.read()))
    with pytest.raises(CorruptRecordError):
        log.read(18, max_bytes, isolation=Isolation.LOG_END)
    log.close()


def test_no_offset_of_the_first_batch_behind_damage_is_out_of_reach_after_a_recovery(tmp_path: Path) -> None:
    with_a_wrong_base_offset(tmp_path / "orders-0", 14).close()
    for path in (tmp_path / "orders-0").glob("*.index"):
        path.unlink()
    log = PartitionLog.open(tmp_path / "orders-0", CONFIG, clean_shutdown=False, recovery_point=36)
    for offset in (18, 19, 20):
        with pytest.raises(CorruptRecordError):
            log.read(offset, 100_000, isolation=Isolation.LOG_END)
    for offset in range(21, 36):
        found = log.read(offset, 1, isolation=Isolation.LOG_END).slice
        assert found is not None
        assert next(iter(iter_batches(found.read()))).base_offset == offset // 3 * 3
    log.close()


def test_an_entry_whose_batch_has_a_wrong_offset_hides_no_loss(tmp_path: Path) -> None:
    """The index knows that a batch ended at this offset: what lies behind is no answer to it."""
    config = replace(CONFIG, index_interval_bytes=0)
    log = PartitionLog.open(tmp_path / "orders-0", config)
    for number in range(12):
        log.append_as_leader(batch_of([b"%d" % number * 300], [number + 1]), leader_epoch=0)
    place = log.segments[0].translate_offset(8)
    assert place is not None
    path = log.segments[0].log_path
    log.close()
    with path.open("r+b") as file:
        file.seek(place.position)
        file.write((4).to_bytes(8, "big"))
    log = PartitionLog.open(tmp_path / "orders-0", config, clean_shutdown=True)
    with pytest.raises(CorruptRecordError):
        log.read(8, 100_000, isolation=Isolation.LOG_END)
    assert [record.offset for record in read_records(log, 9)] == [9, 10, 11]
    log.close()
