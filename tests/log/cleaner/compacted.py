"""A compacted log in tests: short records in, cleanings, and what is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from stratalog.config.topic import LogConfig
from stratalog.log.cleaner.cleaner import Cleaner
from stratalog.log.cleaner.offset_map import ENTRY_SIZE
from stratalog.log.cleaner.throttle import Throttle
from stratalog.log.cleaner.values import CleanerSettings, CleanResult
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch import RecordBatch, iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.control import ControlType, end_transaction_marker
from stratalog.records.record import Record
from stratalog.testing.clock import ManualClock

NOW_MS = 1_700_000_000_000
RETENTION_MS = 86_400_000


class Compacted:
    """`clock` is the log's and the cleaner's. Everything is replicated at once."""

    def __init__(self, root: Path, *, io_bytes: int = 4_096, slots: int = 1_000, **config: object) -> None:
        self.clock = ManualClock(NOW_MS)
        properties = {"cleanup.policy": "compact", "internal.segment.bytes": "1024"}
        properties |= {key.replace("_", "."): str(value) for key, value in config.items()}
        self.directory = root / "latest-0"
        self.config = LogConfig.from_properties(properties)
        self.log = self.opened()
        self.dirty = 0
        settings = CleanerSettings(slots * ENTRY_SIZE, 0.9, io_bytes)
        self.throttle = Throttle(clock=self.clock)
        self.cleaner = Cleaner(settings, clock=self.clock, throttle=self.throttle)
        self.sequences: dict[int, int] = {}

    def opened(self) -> PartitionLog:
        log = PartitionLog.open(self.directory, self.config, clock=self.clock)
        log.update_high_watermark(log.log_end_offset)
        return log

    def put(self, key: int | None, value: int | bytes | None = 0) -> int:
        """One record in a batch of its own; its offset."""
        content = b"%d" % value if isinstance(value, int) else value
        record = Record(0, self.clock.now_ms(), None if key is None else b"%d" % key, content)
        return self.append(build_batch([record]))

    def append(self, batch: bytes, origin: str = "client") -> int:
        info = self.log.append_as_leader(batch, leader_epoch=0, origin=origin)  # type: ignore[arg-type]
        self.log.update_high_watermark(self.log.log_end_offset)
        return info.first_offset

    def follow(self, offset: int, *keys: int | None) -> None:
        """One batch from a leader; a key of None is a record that has none."""
        records = [
            Record(offset + n, self.clock.now_ms(), None if key is None else b"%d" % key, b"v")
            for n, key in enumerate(keys)
        ]
        batch = build_batch(records, base_offset=offset, partition_leader_epoch=0)
        self.log.append_as_follower(batch)
        self.log.update_high_watermark(self.log.log_end_offset)

    def produce(
        self, producer: int, keys: Iterable[int], *, transactional: bool = True, sequence: int | None = None
    ) -> int:
        """One batch of an idempotent producer."""
        records = [Record(n, self.clock.now_ms(), b"%d" % key, b"v") for n, key in enumerate(keys)]
        first = self.sequences.get(producer, 0) if sequence is None else sequence
        self.sequences[producer] = first + len(records)
        batch = build_batch(
            records,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=first,
            is_transactional=transactional,
        )
        return self.append(batch, "client" if sequence is None else "replication")

    def end(self, producer: int, kind: ControlType) -> int:
        marker = end_transaction_marker(
            kind,
            producer_id=producer,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=self.clock.now_ms(),
        )
        return self.append(marker, "coordinator")

    def commit(self, producer: int) -> int:
        return self.end(producer, ControlType.COMMIT)

    def abort(self, producer: int) -> int:
        return self.end(producer, ControlType.ABORT)

    def clean(
        self,
        *,
        first: int | None = None,
        end: int | None = None,
        check_abort: Callable[[], None] = lambda: None,
    ) -> CleanResult:
        """Clean from where the last cleaning ended to the active segment, by default."""
        result = self.cleaner.clean(
            self.log,
            first_dirty_offset=self.dirty if first is None else first,
            first_uncleanable_offset=self.log.active_segment.base_offset if end is None else end,
            now_ms=self.clock.now_ms(),
            check_abort=check_abort,
        )
        self.dirty = result.next_dirty_offset
        return result

    def clean_twice(self, *, first: int | None = None) -> None:
        """Set the delete horizons, let them pass, and clean again."""
        self.clean(first=first)
        self.clock.advance(RETENTION_MS + 1)
        self.clean(first=first)

    def batches(self) -> list[RecordBatch]:
        """All of them, each checked."""
        found = []
        for segment in self.log.segments:
            for batch in iter_batches(segment.file.pread(segment.size_bytes, 0)):
                batch.ensure_valid()
                found.append(batch)
        return found

    def records(self) -> list[Record]:
        return [record for batch in self.batches() for record in batch.records()]

    def keys(self) -> list[int]:
        """Of the data, in order."""
        return [
            int(record.key or b"-1") for batch in self.batches() if not batch.is_control for record in batch.records()
        ]

    def offsets(self) -> list[int]:
        return [record.offset for record in self.records()]

    def last_offsets(self) -> list[int]:
        """Of each batch."""
        return [batch.last_offset for batch in self.batches()]

    def aborted(self) -> list[tuple[int, int, int]]:
        return [
            (entry.producer_id, entry.first_offset, entry.last_offset)
            for segment in self.log.segments
            for entry in segment.txn_index.all
        ]

    def roll(self) -> None:
        self.log.roll()

    def fill(self, segments: int, *, distinct: int | None = None) -> None:
        """Records until there are so many segments; with as many keys, or one each."""
        while len(self.log.segments) < segments:
            offset = self.log.log_end_offset
            self.put(offset if distinct is None else offset % distinct, offset)
