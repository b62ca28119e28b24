"""Whatever the moment of a crash: what was flushed is there, nothing else than was appended, and the log goes on."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from stratalog.config.topic import LogConfig
from stratalog.log.partition_log import PartitionLog
from stratalog.records.record import Record
from stratalog.testing.clock import ManualClock
from stratalog.testing.lossy_filesystem import Killed, LossyFileSystem
from tests.log.log_model import assert_lookups, batch_of, read_records

SEEDS = range(40)
CONFIG = LogConfig(segment_bytes=3_000, index_interval_bytes=200, segment_index_bytes=960, file_delete_delay_ms=1_000)


class Story:
    """Appends, flushes and retention on a lossy disk until the process is killed; remembers what it was promised."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = ManualClock()
        self.directory = directory
        directory.mkdir()
        self.fs = LossyFileSystem(directory.parent, seed)
        self.appended: dict[int, Record] = {}
        #: What a broker would have in its checkpoint files.
        self.recovery_point = 0
        self.log_start_offset = 0
        #: Below this everything was promised to be durable.
        self.flushed = 0
        #: Below this everything was appended, and the caller told so.
        self.acknowledged = 0
        #: Nothing was deleted from here on.
        self.kept_from = 0
        self.sequence = 0
        self.log = self.open()

    def open(self) -> PartitionLog:
        return PartitionLog.open(
            self.directory,
            CONFIG,
            clock=self.clock,
            fs=self.fs,
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start_offset,
        )

    def live(self, steps: int) -> None:
        for _ in range(steps):
            self.random.choices(
                (
                    self.append,
                    self.flush,
                    self.checkpoint,
                    self.roll,
                    self.retention,
                    self.purge,
                    self.truncate,
                ),
                (60, 3, 3, 2, 2, 4, 1),
            )[0]()

    def append(self) -> None:
        self.clock.advance(self.random.choice((1, 5, 200)))
        count = self.random.choice((1, 2, 5))
        base = self.log.log_end_offset
        values = [b"%d-%d" % (base, i) * self.random.choice((1, 10, 60)) for i in range(count)]
        timestamps = [self.clock.now_ms() - self.random.choice((0, 3, 300)) for _ in values]
        idempotent = self.random.random() < 0.5
        fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": self.sequence} if idempotent else {}
        # Told before the append: a batch whose append was cut short may be there or not.
        for i, value in enumerate(values):
            self.appended[base + i] = Record(base + i, timestamps[i], b"k", value)
        self.log.append_as_leader(batch_of(values, timestamps, **fields), leader_epoch=base // 40)
        if idempotent:
            self.sequence += count
        self.acknowledged = self.log.log_end_offset
        self.log.update_high_watermark(self.log.log_end_offset)
        self.log.flush_if_due(self.clock.now_ms())
        self.flushed = max(self.flushed, self.log.recovery_point)

    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.log.recovery_point

    def checkpoint(self) -> None:
        self.recovery_point = self.log.recovery_point
        self.log_start_offset = self.log.log_start_offset

    def roll(self) -> None:
        self.log.roll()

    def retention(self) -> None:
        size = self.log.size_bytes
        self.log.config = replace(CONFIG, retention_bytes=size // 2)
        self.kept_from = max(self.kept_from, self.log.log_end_offset)  # until the call is over, anything may go
        self.log.delete_old_segments()
        self.kept_from = self.log.log_start_offset

    def purge(self) -> None:
        self.clock.advance(2_000)
        self.log.purge_deleted(self.clock.now_ms())

    def truncate(self) -> None:
        end = max(self.log.log_start_offset, self.log.log_end_offset - self.random.choice((1, 7)))
        end = max((o for o in self._batch_ends() if o <= end), default=self.log.log_start_offset)
        self.flushed = min(self.flushed, end)
        self.acknowledged = min(self.acknowledged, end)
        self.recovery_point = min(self.recovery_point, end)
        removed = {o: r for o, r in self.appended.items() if o >= end}
        self.log.truncate_to(end)
        for offset in removed:
            del self.appended[offset]
        self.sequence = self._next_sequence()

    def _batch_ends(self) -> list[int]:
        ends = [self.log.log_start_offset]
        for segment in self.log.segments:
            ends += [header[0] + header[6] + 1 for _, header in segment.headers()]
        return ends

    def _next_sequence(self) -> int:
        producer = self.log.producers.producers.get(7)
        return 0 if producer is None else producer.last_sequence + 1


@pytest.mark.parametrize("power_loss", [False, True], ids=["kill-9", "power-loss"])
def test_a_log_survives_a_crash_at_any_change(tmp_path: Path, power_loss: bool) -> None:
    for seed in SEEDS:
        (tmp_path / f"s{seed}").mkdir()
        story = Story(tmp_path / f"s{seed}" / "orders-0", seed)
        for _ in range(2):  # a log that was recovered may crash again
            _crash_and_check(story, power_loss, seed)


def _crash_and_check(story: Story, power_loss: bool, seed: int) -> None:
    story.fs.kill_at = story.random.randint(1, 250)
    try:
        story.live(90)
        story.fs.kill_at = None
    except Killed:
        pass
    story.fs.crash(power_loss=power_loss)
    log = story.log = story.open()
    context = f"seed {seed}, power loss {power_loss}"
    records = read_records(log, log.log_start_offset)
    promised = story.flushed if power_loss else story.acknowledged
    assert log.log_end_offset >= promised, context
    # As in Kafka, a file that lost whole batches at its end leaves a gap before the next segment: of unflushed records.
    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets)), context
    if records:
        # What an earlier crash took of the unflushed records does not come back.
        wanted = {offset for offset in story.appended if offsets[0] <= offset < promised}
        assert set(offsets) >= wanted, context
    for record in records:
        expected = story.appended.get(record.offset)
        assert expected is not None, context
        assert (record.timestamp_ms, record.value) == (expected.timestamp_ms, expected.value), context
    assert log.log_start_offset <= max(story.kept_from, story.log_start_offset), context
    first = records[0].offset if records else log.log_end_offset
    assert first <= max(story.kept_from, log.log_start_offset) or not story.appended, context
    assert_lookups(log, records)
    story.appended = {record.offset: story.appended[record.offset] for record in records}
    story.flushed = log.recovery_point
    story.acknowledged = log.log_end_offset
    story.kept_from = log.log_start_offset
    story.sequence = story._next_sequence()
    log.update_high_watermark(log.log_end_offset)


def test_the_snapshot_of_a_clean_stop_survives_a_power_failure(tmp_path: Path) -> None:
    """It says where the log ended, and what the producers did: a log that is left cleanly is not read again."""
    for seed in range(10):
        directory = tmp_path / f"s{seed}" / "orders-0"
        directory.parent.mkdir()
        fs = LossyFileSystem(directory.parent, seed)
        log = PartitionLog.open(directory, CONFIG, fs=fs)
        log.append_as_leader(batch_of([b"a"], [1], producer_id=7, producer_epoch=0, base_sequence=0), leader_epoch=0)
        log.close()
        fs.crash()
        assert [path.stem for path in directory.glob("*.snapshot")] == [f"{1:020d}"], seed


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("killed_before", [False, True], ids=["new", "recovered"])
def test_zeros_that_were_cut_from_a_preallocated_log_do_not_come_back_behind_a_clean_stop(
    tmp_path: Path, seed: int, killed_before: bool
) -> None:
    """Also when all records were flushed before, so that nothing was left to flush."""
    config = replace(CONFIG, preallocate=True)
    directory = tmp_path / "orders-0"
    fs = LossyFileSystem(tmp_path, seed)
    log = PartitionLog.open(directory, config, fs=fs)
    log.append_as_leader(batch_of([b"a"], [1]), leader_epoch=0)
    log.flush()
    if killed_before:
        fs.crash(power_loss=False)
        log = PartitionLog.open(directory, config, fs=fs, recovery_point=1)
    else:
        log.roll()
        log.append_as_leader(batch_of([b"b"], [1]), leader_epoch=0)
        log.flush()
    end = log.log_end_offset
    log.close()
    fs.crash()
    again = PartitionLog.open(directory, config, fs=fs, clean_shutdown=True, recovery_point=end)
    assert again.log_end_offset == end
    assert [record.offset for record in read_records(again, 0)] == list(range(end))
