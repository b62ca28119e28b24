"""A log that the engine has open and appends to is read as it stands."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql.datasource import GreaterThanOrEqual

from stratalog.config.topic import LogConfig
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from tests.spark.partitions import T0, scan
from tests.spark.test_filters import at


def append(log: PartitionLog, count: int) -> None:
    for _ in range(count):
        start = log.log_end_offset
        batch = build_batch([Record(n, T0 + (start + n) * 10, b"k", b"v" * 200) for n in range(10)])
        log.append_as_leader(batch, leader_epoch=0)


def test_a_log_that_is_being_written(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path / "orders-0", LogConfig(segment_bytes=100_000, index_interval_bytes=4096))
    log.leader_epochs.assign(0, 0)
    for size in (1, 60, 3):
        append(log, size)
        found = scan(path=tmp_path, subscribe="orders", splitBytes="20k")
        assert found.offsets == list(range(log.log_end_offset))
    assert len(log.segments) > 1
    assert len(found.plans) > 5
    for n in (0, 1, 250, 491, 639):
        timestamp = T0 + n * 10
        expected = log.offset_for_timestamp(timestamp)
        assert expected is not None
        by_option = scan(path=tmp_path, subscribe="orders", startingTimestamp=timestamp)
        by_filter = scan([GreaterThanOrEqual(("timestamp",), at(timestamp))], path=tmp_path, subscribe="orders")
        assert by_option.offsets == by_filter.offsets == list(range(expected.offset, log.log_end_offset))
    log.close()
    assert scan(path=tmp_path, subscribe="orders").offsets == list(range(640))


def test_a_log_that_was_cut_from_the_front(tmp_path: Path) -> None:
    log = PartitionLog.open(tmp_path / "orders-0", LogConfig(segment_bytes=20_000, retention_bytes=50_000))
    log.leader_epochs.assign(0, 0)
    append(log, 60)
    log.update_high_watermark(log.log_end_offset)
    log.delete_old_segments()
    assert log.log_start_offset > 0
    found = scan(path=tmp_path, subscribe="orders")
    assert found.offsets == list(range(log.log_start_offset, log.log_end_offset))
    log.close()
