"""Segments past 2 GiB, with the 12-byte index entries of KIP-1333; files are sparse."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.config.topic import LogConfig
from stratalog.log.partition_log import PartitionLog
from stratalog.log.values import Isolation, LogOffset
from stratalog.testing.clock import ManualClock
from tests.log.log_model import batch_of

GIB = 1 << 30
LARGE = LogConfig(
    segment_bytes=8 * GIB, index_interval_bytes=0, segment_index_bytes=1_200, use_large_index_format=True
)


def append(log: PartitionLog, value: bytes) -> int:
    return log.append_as_leader(batch_of([value, value], [1, 1]), leader_epoch=0).first_offset


def grow(log: PartitionLog, size: int) -> None:
    """A hole up to `size`, as if so much had been appended."""
    segment = log.active_segment
    segment.file.truncate(size)
    segment.size_bytes = size
    log._local.end = LogOffset(log.log_end_offset, segment.base_offset, size)


@pytest.mark.parametrize("position", [2 * GIB - 50, 2 * GIB, 4 * GIB - 1, 4 * GIB, 5 * GIB + 7])
def test_batches_behind_two_and_four_gib_are_indexed_and_read(tmp_path: Path, position: int) -> None:
    log = PartitionLog.open(tmp_path / "big-0", LARGE, clock=ManualClock())
    append(log, b"first")
    grow(log, position)
    offsets = [append(log, b"far-%d" % i) for i in range(3)]
    assert len(log.segments) == 1
    for i, offset in enumerate(offsets):
        data = log.read(offset + 1, 1, isolation=Isolation.LOG_END)
        assert data.start.position >= position
        assert data.slice is not None
        assert b"far-%d" % i in data.slice.read()
    log.close()
    again = PartitionLog.open(tmp_path / "big-0", LARGE, clock=ManualClock(), clean_shutdown=True)
    assert again.log_end_offset == 8
    assert again.read(offsets[2], 1, isolation=Isolation.LOG_END).start.offset == offsets[2]


def test_a_segment_with_a_legacy_index_rolls_before_two_gib(tmp_path: Path) -> None:
    legacy = LogConfig(index_interval_bytes=0, segment_index_bytes=1_200)
    log = PartitionLog.open(tmp_path / "big-0", legacy, clock=ManualClock())
    append(log, b"first")
    log.config = LARGE
    grow(log, 2 * GIB - 10)
    assert append(log, b"behind") == 2
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert log.active_segment.offset_index.entry_size == 12
    assert log.segments[0].offset_index.entry_size == 8


@pytest.mark.parametrize("use_large", [False, True], ids=["legacy", "large"])
@pytest.mark.parametrize("batches", [1, 2, 4, 7, 13])
def test_the_format_of_an_index_is_told_from_the_log(tmp_path: Path, batches: int, use_large: bool) -> None:
    config = LogConfig(index_interval_bytes=0, segment_index_bytes=1_200, use_large_index_format=use_large)
    log = PartitionLog.open(tmp_path / "some-0", config, clock=ManualClock())
    for i in range(batches):
        append(log, b"v%d" % i)
    log.close()
    other = LogConfig(index_interval_bytes=0, segment_index_bytes=1_200, use_large_index_format=not use_large)
    again = PartitionLog.open(tmp_path / "some-0", other, clock=ManualClock(), clean_shutdown=True)
    expected_size = (12 if use_large else 8) if batches > 1 else (8 if use_large else 12)
    assert again.active_segment.offset_index.entry_size == expected_size
    assert again.active_segment.offset_index.entries == batches - 1
    for i in range(batches):
        assert again.read(2 * i, 1, isolation=Isolation.LOG_END).start.offset == 2 * i
