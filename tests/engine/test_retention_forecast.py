"""The forecast from a directory's files, replayed: the engine, with a clock that is moved on, deletes exactly then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.test_log_manager import TOPIC_ID, Running, batch, get

from stratalog.config.topic import LogConfig
from stratalog.engine.log_manager import TopicSpec
from stratalog.inspect import read_local_log
from stratalog.jobs.retention.fate import Fate
from stratalog.jobs.retention.forecast import forecast_local
from stratalog.log.partition_log import PartitionLog
from stratalog.log.retention.decision import RetentionLimits

MINUTE_MS = 60_000


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    running = Running([tmp_path / "data"])
    yield running
    running.stop()


def forecast(log: PartitionLog, config: LogConfig, now_ms: int) -> list[Fate]:
    """From the files alone, as an operator sees them; `log` says where they are."""
    facts = read_local_log(log.directory)
    limits = RetentionLimits.of(
        config,
        log_start_offset=facts.base_offset,
        local_log_start_offset=facts.base_offset,
        high_watermark=facts.log_end_offset,
        log_end_offset=facts.log_end_offset,
        highest_offset_in_remote_storage=-1,
    )
    return forecast_local(facts.segments, limits, config, now_ms)


def test_segments_go_at_the_first_check_after_the_forecast_and_not_before(running: Running) -> None:
    config = LogConfig(retention_ms=10 * MINUTE_MS, segment_bytes=4096, index_interval_bytes=200)
    manager = running.start(TopicSpec("orders", TOPIC_ID, 1, config))
    partition = get(manager)
    offsets_ms = (0, 1, 2, 9, 3, 4, 5, 5, 6, 25, 7, 8)  # minutes; one record is ahead of its time
    begin = running.clock.now_ms()
    for minute in offsets_ms:
        partition.append(batch(b"x" * 1500, timestamp_ms=begin + minute * MINUTE_MS))
    partition.log.flush()
    fates = forecast(partition.log, config, running.clock.now_ms())
    assert len(fates) == len(partition.log.segments) == 6
    due = [fate.due.rule_ms for fate in fates if fate.due is not None]
    assert len(due) == len(fates)
    checks = {begin + quarter * MINUTE_MS // 4 for quarter in range(160)}
    checks |= {at + by for at in due for by in (-1, 0)}  # the very millisecond before, and the one itself
    left: list[int] = []
    for now in sorted(checks):
        running.clock.advance(now - running.clock.now_ms())
        manager.apply_retention()
        left = [segment.base_offset for segment in partition.log.segments if segment.size_bytes]
        expected = [fate.base_offset for fate, at in zip(fates, due, strict=True) if at > now]
        assert left == expected, f"minute {(now - begin) / MINUTE_MS}"
    assert left == []


def test_what_goes_for_its_size_is_what_was_forecast(running: Running) -> None:
    config = LogConfig(retention_ms=-1, retention_bytes=5000, segment_bytes=4096)
    manager = running.start(TopicSpec("orders", TOPIC_ID, 1, config))
    partition = get(manager)
    for _ in range(9):
        partition.append(batch(b"x" * 1500, timestamp_ms=running.clock.now_ms()))
    partition.log.flush()
    fates = forecast(partition.log, config, running.clock.now_ms())
    staying = [fate.base_offset for fate in fates if not fate.is_due(running.clock.now_ms())]
    assert 0 < len(staying) < len(fates)
    manager.apply_retention()
    assert [segment.base_offset for segment in partition.log.segments] == staying


def test_a_time_index_that_lost_its_entries_does_not_make_the_forecast_too_early(running: Running) -> None:
    config = LogConfig(retention_ms=10 * MINUTE_MS, segment_bytes=4096)
    manager = running.start(TopicSpec("orders", TOPIC_ID, 1, config))
    partition = get(manager)
    begin = running.clock.now_ms()
    for minute in (0, 8, 9):
        partition.append(batch(b"x" * 1500, timestamp_ms=begin + minute * MINUTE_MS))
    partition.log.flush()
    path = partition.log.directory / "00000000000000000000.timeindex"
    path.write_bytes(b"")
    (first, _) = forecast(partition.log, config, begin)
    assert first.largest_timestamp_ms == begin + 8 * MINUTE_MS
