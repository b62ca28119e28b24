"""A cleaning that is killed at any change to the disk: no survivor is lost, none is doubled, and it can be done
again."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from stratalog.config.topic import LogConfig
from stratalog.log.cleaner.cleaner import Cleaner, CleanerSettings
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch_builder import build_batch
from stratalog.records.control import ControlType, end_transaction_marker
from stratalog.records.record import Record
from stratalog.testing.clock import ManualClock
from stratalog.testing.lossy_filesystem import Killed, LossyFileSystem
from tests.log.log_model import read_records

NOW = 1_700_000_000_000
CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=900,
    segment_index_bytes=240,
    index_interval_bytes=100,
    file_delete_delay_ms=60_000,
)
SETTINGS = CleanerSettings(dedupe_buffer_bytes=24 * 200, io_buffer_bytes=1_000)


class Life:
    """A log on a lossy disk, flushed, with the values of a few keys and an aborted transaction."""

    def __init__(self, directory: Path, seed: int) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        self.fs = LossyFileSystem(directory.parent, seed)
        self.random = random.Random(1)
        self.written: dict[int, tuple[bytes | None, bytes | None]] = {}
        self.newest: dict[bytes | None, int] = {}
        self.recovery_point = 0
        log = self.open()
        for number in range(28):
            if number == 14:
                self.abort_a_transaction(log)
            batch = [
                Record(i, NOW + number, b"%d" % self.random.randrange(6), b"%d-%d" % (number, i)) for i in range(2)
            ]
            self.append(log, batch)
        log.roll()
        self.append(log, [Record(0, NOW, b"last", b"last")])
        log.flush()
        self.recovery_point = log.log_end_offset
        self.log = log

    def open(self) -> PartitionLog:
        log = PartitionLog.open(
            self.directory, CONFIG, clock=ManualClock(), fs=self.fs, recovery_point=self.recovery_point
        )
        log.update_high_watermark(log.log_end_offset)
        return log

    def append(self, log: PartitionLog, records: list[Record]) -> None:
        base = log.append_as_leader(build_batch(records), leader_epoch=0).first_offset
        for record in records:
            self.written[base + record.offset] = (record.key, record.value)
            self.newest[record.key] = base + record.offset
        log.update_high_watermark(log.log_end_offset)

    def abort_a_transaction(self, log: PartitionLog) -> None:
        fields = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
        batch = build_batch([Record(0, NOW, b"0", b"aborted")], **fields)  # type: ignore[arg-type]
        base = log.append_as_leader(batch, leader_epoch=0).first_offset
        self.written[base] = (b"0", b"aborted")
        marker = end_transaction_marker(
            ControlType.ABORT, producer_id=9, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW
        )
        log.append_as_leader(marker, leader_epoch=0, origin="coordinator")
        log.update_high_watermark(log.log_end_offset)

    def clean(self) -> None:
        Cleaner(SETTINGS, clock=ManualClock(), fs=self.fs).clean(
            self.log,
            first_dirty_offset=0,
            first_uncleanable_offset=self.log.active_segment.base_offset,
            now_ms=NOW,
            check_abort=lambda: None,
        )

    def offsets(self) -> list[int]:
        return [record.offset for record in read_records(self.log, 0) if record.offset in self.written]

    def check(self, context: object) -> None:
        records = [record for record in read_records(self.log, 0) if record.offset in self.written]
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets)), context
        assert set(offsets) >= set(self.newest.values()), context
        assert all(self.written[r.offset] == (r.key, r.value) for r in records), context
        names = {path.suffix for path in self.directory.iterdir()}
        assert not names & {".cleaned", ".swap", ".deleted"}, context


@pytest.mark.parametrize("power_loss", [False, True], ids=["kill-9", "power-loss"])
def test_a_cleaning_may_be_killed_at_any_change(tmp_path: Path, power_loss: bool) -> None:
    untouched = Life(tmp_path / "whole" / "t-0", 0)
    before = untouched.fs.changes
    untouched.clean()
    steps = untouched.fs.changes - before
    assert untouched.offsets() == sorted(untouched.newest.values())
    assert steps > 30
    assert len(untouched.log.segments) > 2  # several groups
    for step in range(steps):
        life = Life(tmp_path / str(step) / "t-0", step)
        life.fs.kill_at = step
        with contextlib.suppress(Killed):
            life.clean()
        life.fs.crash(power_loss=power_loss)
        life.log = life.open()
        life.check(step)
        life.clean()
        assert life.offsets() == sorted(life.newest.values()), step
