"""A PartitionLog against a plain list of records, whatever is done to both."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stratalog.config.topic import LogConfig
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch_builder import build_batch
from stratalog.records.compression import Codec
from stratalog.records.record import Record
from stratalog.testing.clock import ManualClock
from tests.log.log_model import read_records
from tests.log.unsynced import UNSYNCED

SIZES = st.sampled_from([0, 1, 20, 200])


class LogMachine(RuleBasedStateMachine):
    """The log holds exactly the model's records from its start to its end, and finds each by offset and time."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.directory = self.root / "orders-0"
        self.clock = ManualClock()
        self.records: list[Record] = []
        self.start = 0
        self.end = 0

    @initialize(
        segment_bytes=st.sampled_from([400, 1_500, 1 << 30]),
        interval=st.sampled_from([0, 150, 4_096]),
        index_bytes=st.sampled_from([48, 240, 4_096]),
        segment_ms=st.sampled_from([300, 1 << 50]),
        preallocate=st.booleans(),
    )
    def begin(self, segment_bytes: int, interval: int, index_bytes: int, segment_ms: int, preallocate: bool) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_index_bytes=index_bytes,
            segment_ms=segment_ms,
            preallocate=preallocate and segment_bytes < 1 << 20,
            retention_ms=-1,
            message_timestamp_after_max_ms=1 << 60,
        )
        self.open(clean=True)

    def open(self, *, clean: bool) -> None:
        self.log = PartitionLog.open(
            self.directory,
            self.config,
            clock=self.clock,
            fs=UNSYNCED,
            clean_shutdown=clean,
            log_start_offset=self.start,
        )
        self.log.update_high_watermark(self.log.log_end_offset)

    @rule(
        sizes=st.lists(SIZES, min_size=1, max_size=4),
        ages=st.lists(st.integers(-50, 50), min_size=4, max_size=4),
        codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.ZSTD]),
        later=st.integers(0, 100),
    )
    def append(self, sizes: list[int], ages: list[int], codec: Codec, later: int) -> None:
        self.clock.advance(later)
        batch = [Record(i, self.clock.now_ms() - ages[i], b"k", b"v" * size) for i, size in enumerate(sizes)]
        data = build_batch(batch, codec=codec)
        if len(data) > self.config.segment_bytes:
            return
        info = self.log.append_as_leader(data, leader_epoch=0)
        assert (info.first_offset, info.last_offset) == (self.end, self.end + len(batch) - 1)
        self.records += [replace(record, offset=self.end + record.offset) for record in batch]
        self.end += len(batch)
        self.log.update_high_watermark(self.end)

    @rule(gap=st.integers(0, 3), count=st.integers(1, 3))
    def append_as_follower(self, gap: int, count: int) -> None:
        base = self.end + gap
        batch = [Record(base + i, self.clock.now_ms(), None, b"f") for i in range(count)]
        self.log.append_as_follower(build_batch(batch, base_offset=base, partition_leader_epoch=0))
        self.records += batch
        self.end = base + count
        self.log.update_high_watermark(self.end)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @precondition(lambda self: self.records)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        self.log.truncate_to(offset)
        if offset < self.end:
            # A batch that holds the offset goes whole; the next record gets the offset all the same.
            kept = read_records(self.log, self.log.log_start_offset)
            assert kept == self.records[: len(kept)]
            assert not [r for r in self.records[len(kept) :] if r.offset < offset - 3]
            self.records = kept
            self.end = offset
            self.start = min(self.start, offset)

    @rule(size=st.integers(0, 4_000))
    def retention_by_size(self, size: int) -> None:
        self.log.delete_old_segments()  # what lies below the log start offset is not to be kept for its size
        before = self.log.size_bytes
        self.log.config = replace(self.config, retention_bytes=size)
        deleted = self.log.delete_old_segments()
        self.log.config = self.config
        assert self.log.size_bytes >= min(before, size)
        assert not self.log.segments[0].size_bytes or self.log.size_bytes - self.log.segments[0].size_bytes < size
        self._start_at(self.log.log_start_offset, bool(deleted))

    @rule(age=st.integers(0, 200))
    def retention_by_time(self, age: int) -> None:
        self.log.config = replace(self.config, retention_ms=age)
        deleted = self.log.delete_old_segments()
        self.log.config = self.config
        start = self.log.log_start_offset
        for record in self.records:
            if self.start <= record.offset < start:
                assert self.clock.now_ms() - record.timestamp_ms > age, "deleted too early"
        self._start_at(start, bool(deleted))

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        assert self.log.increment_log_start_offset(offset, "test") == (offset > self.start)
        self._start_at(offset, offset > self.start)
        self.log.delete_old_segments()

    def _start_at(self, offset: int, moved: bool) -> None:
        assert moved or offset == self.start
        self.start = offset
        self.records = [record for record in self.records if record.offset >= offset]

    @rule()
    def purge(self) -> None:
        self.clock.advance(self.config.file_delete_delay_ms)
        self.log.purge_deleted(self.clock.now_ms())
        assert not list(self.directory.glob("*.deleted"))

    @rule()
    def restart(self) -> None:
        self.log.close()
        self.open(clean=True)
        self._check_reopened()

    @rule()
    def crash(self) -> None:
        self.open(clean=False)
        self._check_reopened()

    def _check_reopened(self) -> None:
        # An offset that was truncated amid a batch is given again from the end of what is left.
        last = self.records[-1].offset + 1 if self.records else self.log.log_end_offset
        assert self.log.log_end_offset <= self.end
        assert self.log.log_end_offset >= last
        self.end = self.log.log_end_offset

    @invariant()
    def holds_the_models_records(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.log_start_offset == self.start
        assert self.log.log_end_offset == self.end
        assert read_records(self.log, self.start) == self.records
        assert self.log.size_bytes == sum(s.file.size() for s in self.log.segments) or self.config.preallocate
        self._check_lookups()

    def _check_lookups(self) -> None:
        for record in self.records[:: max(1, len(self.records) // 5)]:
            found = self.log.offset_for_timestamp(record.timestamp_ms)
            first = next(r for r in self.records if r.timestamp_ms >= record.timestamp_ms)
            assert found == (first.timestamp_ms, first.offset)
        newest = max((r.timestamp_ms for r in self.records), default=None)
        if newest is not None and not any(r.offset < self.start for r in self.records):
            assert self.log.offset_for_timestamp(newest + 1) is None

    def teardown(self) -> None:
        shutil.rmtree(self.root)


TestLogAgainstAList = LogMachine.TestCase
TestLogAgainstAList.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
