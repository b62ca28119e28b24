"""Whatever the moment of a crash: what was flushed is there, nothing else than was appended, and the log goes on."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from stratalog.config.topic import LogConfig
from stratalog.errors import KafkaStorageError
from stratalog.log.format import producer_snapshot
from stratalog.log.format.file_names import log_file
from stratalog.log.partition_log import PartitionLog
from stratalog.log.producers.producer_state import NEVER
from stratalog.log.recovery.partition_checkpoints import plausible_start
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
        #: Below this everything was appended, and the caller was answered so.
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


def opened(
    directory: Path, fs: LossyFileSystem, recovery_point: int = 0, *, clean_shutdown: bool = False
) -> PartitionLog:
    return PartitionLog.open(
        directory, CONFIG, fs=fs, recovery_point=recovery_point, clean_shutdown=clean_shutdown,
        producer_expiration_ms=NEVER,
    )  # fmt: skip


def a_batch(sequence: int) -> bytes:
    return batch_of([b"a"], [sequence + 1], producer_id=7, producer_epoch=0, base_sequence=sequence)


def assert_producer_is_known(directory: Path, fs: LossyFileSystem, end: int) -> None:
    """After a clean stop: a retry of the last batch is found to be one."""
    log = opened(directory, fs, clean_shutdown=True, recovery_point=end)
    assert log.append_as_leader(a_batch(end - 1), leader_epoch=0).first_offset == end - 1
    assert log.log_end_offset == end
    log.close()


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("before", ["roll", "recovery"])
def test_a_clean_stop_makes_an_earlier_snapshot_durable(tmp_path: Path, seed: int, before: str) -> None:
    """Also where all records were flushed before: a log left cleanly without any snapshot has no producers."""
    directory = tmp_path / "orders-0"
    fs = LossyFileSystem(tmp_path, seed)
    log = opened(directory, fs)
    log.append_as_leader(a_batch(0), leader_epoch=0)
    log.flush()
    if before == "roll":
        log.roll()
    else:
        fs.crash(power_loss=False)
        log = opened(directory, fs, recovery_point=1)
    log.close()
    fs.crash()
    assert_producer_is_known(directory, fs, 1)


@pytest.mark.parametrize("seed", range(20))
def test_a_snapshot_below_the_recovery_point_is_whole_after_a_power_failure(tmp_path: Path, seed: int) -> None:
    """Recovery reads nothing there, and would leave a torn one to copies and truncations."""
    directory = tmp_path / "orders-0"
    fs = LossyFileSystem(tmp_path, seed)
    log = opened(directory, fs)
    for sequence in range(4):
        log.append_as_leader(a_batch(sequence), leader_epoch=0)
        log.roll()
    log.flush()
    fs.crash()
    log = opened(directory, fs, recovery_point=4)
    log.close()
    for path in directory.glob("*.snapshot"):
        assert producer_snapshot.read(path), path


@pytest.mark.parametrize("seed", range(10))
def test_a_log_start_that_moved_before_anything_was_flushed_survives_a_power_failure(tmp_path: Path, seed: int) -> None:
    """The leader epochs say it as well as the checkpoint, which counts for a typing error where they begin earlier."""
    directory = tmp_path / "orders-0"
    fs = LossyFileSystem(tmp_path, seed)
    log = opened(directory, fs)
    fs.sync_dir(tmp_path)
    for sequence in range(4):
        log.append_as_leader(a_batch(sequence), leader_epoch=0)
    log.update_high_watermark(4)
    log.increment_log_start_offset(2, "asked for")
    fs.crash()
    assert plausible_start(directory, 2, fs) == 2


def test_what_a_truncation_cut_does_not_come_back_in_place_of_what_follows(tmp_path: Path) -> None:
    """It was flushed, and what follows is as large: a page of the file may be the old one after a power failure."""
    for seed in range(20):
        directory = tmp_path / f"s{seed}" / "orders-0"
        directory.parent.mkdir()
        fs = LossyFileSystem(directory.parent, seed)
        log = opened(directory, fs)
        for value in (b"kept", b"cut!"):
            log.append_as_leader(batch_of([value], [1]), leader_epoch=0)
        log.flush()
        log.truncate_to(1)
        log.append_as_leader(batch_of([b"next"], [1]), leader_epoch=1)
        fs.crash()
        found = [record.value for record in read_records(opened(directory, fs, recovery_point=1), 0)]
        assert found in ([b"kept"], [b"kept", b"next"]), seed


def test_a_log_start_stays_when_only_records_below_it_survive(tmp_path: Path) -> None:
    """The epoch begins where the log ends now, and is found in the batches again; it does not begin earlier by that."""
    directory = tmp_path / "orders-0"
    fs = LossyFileSystem(tmp_path)
    log = opened(directory, fs)
    for sequence in range(2):
        log.append_as_leader(a_batch(sequence), leader_epoch=0)
    log.update_high_watermark(2)
    log.increment_log_start_offset(1, "asked for")
    log.close()
    with (directory / log_file(0)).open("r+b") as file:
        file.truncate(len(a_batch(0)))
    for _ in range(2):
        start = plausible_start(directory, 1, fs)
        log = PartitionLog.open(directory, CONFIG, recovery_point=1, log_start_offset=start)
        assert (log.log_start_offset, log.log_end_offset) == (1, 1)
        log.close()


@pytest.mark.parametrize("end", ["killed", "full disk"])
def test_a_snapshot_has_its_name_when_it_is_whole(tmp_path: Path, end: str) -> None:
    """At whatever byte or change a stop ends; what is left of it goes at the next start."""
    for at in range(200):
        directory = tmp_path / f"{at}" / "orders-0"
        directory.parent.mkdir()
        fs = LossyFileSystem(directory.parent, at)
        log = opened(directory, fs)
        log.append_as_leader(a_batch(0), leader_epoch=0)
        log.flush()
        if end == "killed":
            fs.kill_at = at
        else:
            fs.bytes_left = at
        try:
            log.close()
        except (Killed, KafkaStorageError):
            is_over = False
        else:
            is_over = True
        fs.crash(power_loss=False)
        for path in directory.glob("*.snapshot"):
            assert producer_snapshot.read(path), (at, path)
        again = opened(directory, fs, recovery_point=1)
        again.close()
        assert not list(directory.glob("*.tmp")), at
        if is_over:
            return
    raise AssertionError("no stop came to its end")


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
