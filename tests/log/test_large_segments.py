"""Segments past 2 GiB and 4 GiB, with the 12-byte index entries of KIP-1333; what lies between is holes of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.config.topic import LogConfig
from stratalog.jobs.index.check import verify_offset_index, verify_time_index
from stratalog.log.format.offset_index_format import LARGE, LEGACY, Evidence, OffsetIndexFormat
from stratalog.log.format.offset_index_proof import detect_from_log
from stratalog.log.format.values import Isolation, OffsetPosition
from stratalog.log.partition_log import PartitionLog
from stratalog.log.segment.segment import LogSegment
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.testing.clock import ManualClock
from tests.log.log_model import batch_of
from tests.log.sparse_log import append_giants

GIB = 1 << 30
CONFIG = LogConfig(
    segment_bytes=8 * GIB, index_interval_bytes=0, segment_index_bytes=1_200, use_large_index_format=True
)
OLD = LogConfig(index_interval_bytes=0, segment_index_bytes=1_200)


def open_log(directory: Path, config: LogConfig = CONFIG, *, clean: bool = True) -> PartitionLog:
    return PartitionLog.open(directory / "big-0", config, clock=ManualClock(), clean_shutdown=clean)


def append(log: PartitionLog, value: bytes, timestamp: int = 1) -> int:
    return log.append_as_leader(batch_of([value, value], [timestamp] * 2), leader_epoch=0).first_offset


def follower_batch(offset: int, count: int) -> bytes:
    return build_batch([Record(offset + i, 1, b"k", b"v") for i in range(count)], base_offset=offset)


def assert_found(log: PartitionLog, offset: int, value: bytes, position_min: int) -> None:
    data = log.read(offset + 1, 1, isolation=Isolation.LOG_END)
    assert data.start.position >= position_min
    assert data.slice is not None
    assert value in data.slice.read()


#: Sizes of what is appended first, so that the next batch begins right below, at and behind the limits of 32 bits.
FIRST = len(batch_of([b"first"] * 2, [1, 1]))
FILLS = {
    "begins at 2^31-1": (2 * GIB - 1 - FIRST,),
    "begins at 2^31": (2 * GIB - FIRST,),
    "begins at 2^32-1": (2 * GIB - 1, 2 * GIB - FIRST),
    "begins at 2^32": (2 * GIB - 1, 2 * GIB - 1 - 2 * FIRST, FIRST + 2),
    "begins behind 5 GiB": (2 * GIB - 1, 2 * GIB - 1, GIB + 9),
}


@pytest.fixture(params=FILLS)
def fills(request: pytest.FixtureRequest) -> tuple[int, ...]:
    return FILLS[request.param]


def test_batches_behind_the_limits_of_32_bits_are_indexed_read_and_found_again(
    tmp_path: Path, fills: tuple[int, ...]
) -> None:
    log = open_log(tmp_path)
    append(log, b"first")
    append_giants(log, *fills)
    position = FIRST + sum(fills)
    offsets = [append(log, b"far-%d" % i, 100 + i) for i in range(3)]
    assert len(log.segments) == 1
    for i, offset in enumerate(offsets):
        assert_found(log, offset, b"far-%d" % i, position)
        assert log.active_segment.offset_index.lookup(offset + 1).position >= position
        assert log.offset_for_timestamp(100 + i) == (100 + i, offset)
    log.close()
    again = open_log(tmp_path)
    assert again.log_end_offset == offsets[-1] + 2
    for i, offset in enumerate(offsets):
        assert_found(again, offset, b"far-%d" % i, position)
    again.close()


@pytest.mark.parametrize("giants", [1, pytest.param(2, marks=pytest.mark.slow)], ids=["2 GiB", "4 GiB"])
def test_a_recovery_reads_past_the_limits_of_32_bits_and_makes_the_same_indexes(tmp_path: Path, giants: int) -> None:
    """Every batch is sound, holes and all; what a torn write left behind the last one is cut."""
    log = open_log(tmp_path)
    append(log, b"first")
    append_giants(log, *[2 * GIB - 1] * giants)
    offsets = [append(log, b"far-%d" % i, 100 + i) for i in range(3)]
    segment = log.active_segment
    size, entries, times = segment.size_bytes, list(segment.offset_index), list(segment.time_index)
    segment.file.write_at(b"torn", size)
    log.close()
    again = open_log(tmp_path, clean=False)
    segment = again.active_segment
    assert (segment.size_bytes, segment.file.size(), again.log_end_offset) == (size, size, offsets[-1] + 2)
    assert (list(segment.offset_index), segment.offset_index.format) == (entries, LARGE)
    assert list(segment.time_index)[: len(times)] == times
    assert entries[-1].position > giants * 2 * GIB
    paths = segment.log_path, segment.offset_index_path, segment.time_index_path
    assert verify_offset_index(paths[0], paths[1], 0) == verify_time_index(paths[0], paths[2], 0) == []
    again.close()


def test_a_recovery_in_the_old_format_ends_its_index_at_2_gib_and_reads_go_on(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, b"first")
    append_giants(log, 2 * GIB - 1)
    offsets = [append(log, b"far-%d" % i) for i in range(3)]
    position = log.active_segment.size_bytes
    log.close()
    again = open_log(tmp_path, OLD, clean=False)
    segment = again.active_segment
    assert segment.offset_index.format is LEGACY
    assert 0 < segment.offset_index.last_entry.position <= 2**31 - 1
    assert_found(again, offsets[-1], b"far-2", 2 * GIB)
    assert append(again, b"next") == offsets[-1] + 2
    assert [s.base_offset for s in again.segments] == [0, offsets[-1] + 2]
    assert segment.size_bytes == position
    again.close()


@pytest.mark.parametrize("keep", [1, 2, 3, 4], ids=lambda n: f"up to giant {n - 1}" if n < 4 else "all giants")
def test_a_truncation_at_any_position_keeps_what_is_below(tmp_path: Path, keep: int) -> None:
    log = open_log(tmp_path)
    first = append(log, b"first")
    sizes = [log.active_segment.size_bytes]
    for size in (2 * GIB - 1, 2 * GIB - 1, GIB):
        append_giants(log, size)
        sizes.append(log.active_segment.size_bytes)
    append(log, b"last")
    log.truncate_to(first + 1 + keep)
    assert log.active_segment.size_bytes == sizes[keep - 1]
    assert log.active_segment.file.size() == sizes[keep - 1]
    assert log.active_segment.offset_index.entries == keep - 1
    offset = append(log, b"again")
    assert offset == first + 1 + keep
    assert_found(log, offset, b"again", sizes[keep - 1])
    log.close()


@pytest.mark.parametrize("limit", [2 * GIB + 1, 3 * GIB, 4 * GIB + 1])
def test_a_segment_rolls_at_segment_bytes_beyond_2_gib(tmp_path: Path, limit: int) -> None:
    config = LogConfig(
        segment_bytes=limit, index_interval_bytes=0, segment_index_bytes=1_200, use_large_index_format=True
    )
    log = open_log(tmp_path, config)
    size = len(batch_of([b"x", b"x"], [1, 1]))
    append_giants(log, 2 * GIB - 1)
    rest = limit - log.active_segment.size_bytes - size
    if rest > 0:
        append_giants(log, *([GIB, rest - GIB] if rest > 2 * GIB - 1 else [rest]))
    before = log.active_segment.size_bytes
    append(log, b"x")
    assert len(log.segments) == (1 if before + size <= limit else 2)
    next_offset = append(log, b"x")
    assert log.active_segment.base_offset == next_offset - (0 if before + size <= limit else 2)
    assert log.segments[0].size_bytes <= limit
    log.close()


def test_a_large_segment_rolls_when_its_index_is_full(tmp_path: Path) -> None:
    """segment.index.bytes counts in entries of 12 bytes: the time index is full one entry before."""
    config = LogConfig(
        segment_bytes=8 * GIB, index_interval_bytes=0, segment_index_bytes=60, use_large_index_format=True
    )
    log = open_log(tmp_path, config)
    append_giants(log, 2 * GIB - 1, 2 * GIB - 1)
    for i in range(6):
        append(log, b"v%d" % i, 10 + i)
    first, second = log.segments
    assert first.offset_index.entries == 4
    assert first.offset_index.last_entry.position > 4 * GIB - 3
    assert second.offset_index.entries < 4
    log.close()


def test_a_segment_with_a_legacy_index_rolls_before_2_gib_though_it_may_be_larger_now(tmp_path: Path) -> None:
    log = open_log(tmp_path, OLD)
    append(log, b"first")
    log.config = CONFIG
    append_giants(log, 2 * GIB - 1 - 2 * log.active_segment.size_bytes)
    at_limit = append(log, b"fits")
    assert len(log.segments) == 1
    behind = append(log, b"behind")
    assert [segment.base_offset for segment in log.segments] == [0, behind]
    assert [segment.offset_index.entry_size for segment in log.segments] == [8, 12]
    assert_found(log, at_limit, b"fits", GIB)
    log.close()


def test_an_offset_too_far_from_the_base_begins_a_new_segment_however_small_the_old_one_is(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path)
    append(log, b"first")
    far = 2**31 - 2
    log.append_as_follower(follower_batch(far, 2))
    assert [segment.base_offset for segment in log.segments] == [0]
    log.append_as_follower(follower_batch(far + 2, 1))
    assert [segment.base_offset for segment in log.segments] == [0, far + 2]
    assert log.segments[0].offset_index.last_entry == OffsetPosition(2**31 - 1, FIRST)
    assert log.read(far + 2, 1, isolation=Isolation.LOG_END).start.segment_base_offset == far + 2
    log.close()


def format_of(segment: LogSegment) -> OffsetIndexFormat:
    data = segment.offset_index_path.read_bytes()
    found = detect_from_log(data, segment.base_offset, segment.file, segment.size_bytes, LEGACY)
    assert found.evidence is Evidence.LOG
    return found.format


def test_an_index_whose_first_entry_is_beyond_4_gib_is_proved_by_its_log(tmp_path: Path) -> None:
    """No broker writes one, because an interval ends before.

    By its bytes alone it would be taken for a legacy index.
    """
    config = LogConfig(
        segment_bytes=8 * GIB,
        index_interval_bytes=2**31 - 1,
        segment_index_bytes=1_200,
        use_large_index_format=True,
    )
    log = open_log(tmp_path, config)
    append_giants(log, 2 * GIB - 1, 2 * GIB - 1, 10_000)
    append(log, b"far")
    segment = log.active_segment
    segment.become_inactive()
    assert segment.offset_index.entries == 1
    assert format_of(segment) is LARGE
    log.close()


@pytest.mark.parametrize("use_large", [False, True], ids=["legacy", "large"])
@pytest.mark.parametrize("batches", [1, 2, 4, 7, 13])
def test_the_format_of_an_index_is_detected_from_the_log(tmp_path: Path, batches: int, use_large: bool) -> None:
    config = LogConfig(index_interval_bytes=0, segment_index_bytes=1_200, use_large_index_format=use_large)
    log = open_log(tmp_path, config)
    for i in range(batches):
        append(log, b"v%d" % i)
    log.close()
    other = LogConfig(index_interval_bytes=0, segment_index_bytes=1_200, use_large_index_format=not use_large)
    again = open_log(tmp_path, other)
    expected_size = (12 if use_large else 8) if batches > 1 else (8 if use_large else 12)
    assert again.active_segment.offset_index.entry_size == expected_size
    assert again.active_segment.offset_index.entries == batches - 1
    for i in range(batches):
        assert again.read(2 * i, 1, isolation=Isolation.LOG_END).start.offset == 2 * i
    again.close()
