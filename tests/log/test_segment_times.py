"""The largest timestamp of a segment that was found on disk, whose time index has lost its end."""

from __future__ import annotations

import threading
from pathlib import Path

from stratalog.config.topic import LogConfig
from stratalog.log.append.preparation import BatchFacts
from stratalog.log.format.values import TimestampOffset
from stratalog.log.partition_log import PartitionLog
from stratalog.log.segment.segment import LogSegment
from stratalog.records.batch import RecordBatch
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.testing.clock import ManualClock
from stratalog.util.filesystem import REAL_FILESYSTEM

CONFIG = LogConfig(index_interval_bytes=0)


def add(segment: LogSegment, offset: int, timestamp_ms: int) -> None:
    data = build_batch([Record(offset, timestamp_ms, None, b"x")], base_offset=offset)
    batch = RecordBatch(data)
    facts = BatchFacts(offset, batch.last_offset, batch.max_timestamp, len(data), 0)
    segment.append([data], len(data), [facts])


def found_on_disk(directory: Path, *timestamps_ms: int) -> LogSegment:
    """A segment with a batch of each timestamp, and no time index."""

    def open_() -> LogSegment:
        return LogSegment(directory, 0, CONFIG, clock=ManualClock(), fs=REAL_FILESYSTEM)

    segment = open_()
    for offset, timestamp_ms in enumerate(timestamps_ms):
        add(segment, offset, timestamp_ms)
    segment.become_inactive()
    segment.time_index_path.write_bytes(b"")
    segment.close()
    again = open_()
    again.resize_indexes(1200)
    return again


def test_an_older_append_does_not_hide_what_was_proven(tmp_path: Path) -> None:
    segment = found_on_disk(tmp_path, 10, 50, 20)
    assert segment.max_timestamp.timestamp_ms == -1
    assert segment.prove_max_timestamp()
    assert segment.max_timestamp == TimestampOffset(50, 1)
    add(segment, 3, 30)
    assert segment.max_timestamp == TimestampOffset(50, 1)


def test_a_newer_append_during_the_proof_stays(tmp_path: Path) -> None:
    """Readers prove without the log's lock, while its writer appends."""
    segment = found_on_disk(tmp_path, 10, 50)
    read = segment._read_max_timestamp

    def overtaken() -> tuple[TimestampOffset, bool]:
        result = read()
        writer = threading.Thread(target=add, args=(segment, 2, 70))
        writer.start()
        writer.join()
        return result

    segment._read_max_timestamp = overtaken  # type: ignore[method-assign]
    segment.prove_max_timestamp()
    assert segment.max_timestamp == TimestampOffset(70, 2)


def test_batches_behind_a_wrong_length_count_as_young_as_the_file(tmp_path: Path) -> None:
    """They cannot be reached by headers, so retention must not take the segment for older than it may be."""
    segment = found_on_disk(tmp_path, 10, 20, 50)
    size = segment.size_bytes // 3
    data = bytearray(segment.log_path.read_bytes())
    data[size + 8] = 0x7F  # of the second batch
    segment.log_path.write_bytes(data)
    REAL_FILESYSTEM.set_mtime_ms(segment.log_path, 99)
    assert segment.prove_max_timestamp()
    assert segment.max_timestamp.timestamp_ms == 99


def test_a_log_whose_first_batch_is_damaged_takes_appends(tmp_path: Path) -> None:
    config = LogConfig()
    log = PartitionLog.open(tmp_path / "foo-0", config)
    data = build_batch([Record(0, 1_700_000_000_000, None, b"x")])
    for _ in range(3):
        log.append_as_leader(data, leader_epoch=0)
    log.close()
    path = tmp_path / "foo-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[16] = 9  # its magic
    path.write_bytes(content)
    log = PartitionLog.open(tmp_path / "foo-0", config, clean_shutdown=True, recovery_point=3)
    assert log.active_segment.first_batch_timestamp == -1
    assert log.append_as_leader(data, leader_epoch=0).first_offset == 3
    log.close()
