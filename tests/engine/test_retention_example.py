"""Why records outlive their retention: the worked example of "Retention Time Lies", minute by minute.

Retention is 10 minutes. A segment of 16 KB fills in 7: its first record can go no earlier than its last one, at 17. The
check runs every 5 minutes, and the one at 17 sees a record that is not older than 10 minutes, so the next one, at 22,
deletes the segment; its files stay for another minute: 23.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.test_log_manager import TOPIC_ID, Running, batch, get, spec, values

from stratalog.config.topic import LogConfig
from stratalog.engine.log_manager import TopicSpec

MINUTE_MS = 60_000


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    running = Running([tmp_path / "data"])
    yield running
    running.stop()


def test_ten_minutes_become_seventeen_then_twenty_two_then_twenty_three(running: Running) -> None:
    config = LogConfig(retention_ms=600_000, segment_bytes=16_384, file_delete_delay_ms=60_000)
    own_checks = {"log_initial_task_delay_ms": str(24 * 60 * MINUTE_MS)}  # never: a check skips what another looks at
    manager = running.start(TopicSpec("orders", TOPIC_ID, 1, config), **own_checks)
    partition = get(manager)
    begin = running.clock.now_ms()
    for half_minute in range(15):  # minutes 0 to 7: 15 records of 1 KB, and no room for another
        partition.append(batch(b"x" * 1000, timestamp_ms=running.clock.now_ms()))
        running.clock.advance(MINUTE_MS // 2 if half_minute < 14 else 0)
    assert (running.clock.now_ms() - begin) // MINUTE_MS == 7
    partition.append(batch(b"y" * 2000, timestamp_ms=running.clock.now_ms()))
    first, second = (segment.log_path for segment in partition.log.segments)
    seen: dict[int, tuple[bool, bool]] = {}
    deleted = first.with_name(first.name + ".deleted")
    for minute in range(7, 25):
        if minute % 5 == 2:  # the check runs at 2, 7, 12, 17, 22
            manager.apply_retention()
            partition.append(batch(b"z", timestamp_ms=running.clock.now_ms()))
        manager.purge()
        seen[minute] = partition.log.log_start_offset == 0, first.exists() or deleted.exists()
        running.clock.advance(MINUTE_MS)
    assert {minute for minute, (readable, _) in seen.items() if readable} == set(range(7, 22))
    assert {minute for minute, (_, on_disk) in seen.items() if on_disk} == set(range(7, 23))
    assert second.exists()
    assert values(partition, partition.log.log_start_offset)[0] == b"y" * 2000


def test_the_check_waits_for_its_first_turn_and_then_its_period(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """log.initial.task.delay.ms and log.retention.check.interval.ms, as Kafka has them."""
    planned: dict[str, tuple[float, object]] = {}

    def add(_: object, name: str, run: object, *, delay_ms: float = 0, interval_ms: float | None = None) -> None:
        planned[name] = delay_ms, interval_ms

    monkeypatch.setattr("stratalog.util.schedule.Schedule.add", add)
    running.start(spec())
    assert [planned["retention"], planned["checkpoint"]] == [(30_000, 300_000), (30_000, 60_000)]
