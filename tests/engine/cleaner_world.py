"""Logs in two data directories, to be cleaned."""

from __future__ import annotations

from pathlib import Path

from tests.log.unsynced import UNSYNCED

from stratalog.config.topic import LogConfig
from stratalog.engine.cleaning.cleaner_manager import CleanerManager, LogToClean
from stratalog.log.format.checkpoints import CLEANER_OFFSETS, OffsetCheckpoint
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.testing.clock import ManualClock
from stratalog.util.clock import Clock

NOW = 1_700_000_000_000


class World:
    """Logs in two data directories, and their manager."""

    def __init__(self, root: Path, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or ManualClock(NOW)
        self.dirs = [root / "a", root / "b"]
        for path in self.dirs:
            path.mkdir()
        self.failed_dirs: list[Path] = []
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self.manager = self.restarted()

    def restarted(self) -> CleanerManager:
        self.manager = CleanerManager(
            self.dirs,
            lambda: self.logs,
            UNSYNCED,
            on_disk_error=lambda path, _: self.failed_dirs.append(path),
        )
        return self.manager

    def config(self, policy: str, **config: object) -> LogConfig:
        fields: dict[str, object] = {
            "cleanup_policy": frozenset(policy.split(",")),
            "segment_index_bytes": 960,
            "file_delete_delay_ms": 0,
            "retention_ms": -1,
        }
        return LogConfig(**(fields | config))  # type: ignore[arg-type]

    def log(
        self,
        number: int = 0,
        *,
        segments: int = 0,
        policy: str = "compact",
        data_dir: int = 0,
        **config: object,
    ) -> PartitionLog:
        """A log of `segments` sealed segments of ten records each, and ten more in the active one."""
        log = PartitionLog.open(
            self.dirs[data_dir] / f"log-{number}",
            self.config(policy, **config),
            clock=self.clock,
            fs=UNSYNCED,
            clean_shutdown=True,
        )
        self.logs["log", number] = log
        for at in range(segments + (1 if segments else 0)):
            if at:
                log.roll()
            self.append(log, 10)
        return log

    def append(self, log: PartitionLog, count: int = 10, *, timestamp_ms: int = NOW) -> None:
        records = [Record(i, timestamp_ms, b"%d" % i, b"v") for i in range(count)]
        log.append_as_leader(build_batch(records), leader_epoch=0)
        log.update_high_watermark(log.log_end_offset)

    def put(self, log: PartitionLog, *pairs: tuple[bytes, bytes | None], timestamp_ms: int | None = None) -> None:
        """One batch of these keys and values, of now."""
        now_ms = self.clock.now_ms() if timestamp_ms is None else timestamp_ms
        records = [Record(i, now_ms, key, value) for i, (key, value) in enumerate(pairs)]
        log.append_as_leader(build_batch(records), leader_epoch=0)
        log.update_high_watermark(log.log_end_offset)

    def content(self, log: PartitionLog) -> list[tuple[int, bytes | None, bytes | None]]:
        """Offset, key and value of every record that is there."""
        found = []
        for segment in log.segments:
            data = segment.slice(0, segment.size_bytes).read()
            for batch in iter_batches(data):
                batch.ensure_valid()
                found += [(record.offset, record.key, record.value) for record in batch.records()]
        return found

    def checkpoint(self, data_dir: int = 0, **offsets: int) -> None:
        """What is in the file at the next start: partition number -> offset."""
        path = self.dirs[data_dir] / CLEANER_OFFSETS
        OffsetCheckpoint(path).write({("log", int(number[1:])): value for number, value in offsets.items()})
        self.restarted()

    def stored(self, data_dir: int = 0) -> dict[tuple[str, int], int]:
        return OffsetCheckpoint(self.dirs[data_dir] / CLEANER_OFFSETS).read()

    def take(self) -> LogToClean:
        taken = self.manager.take_filthiest(self.clock.now_ms())
        assert taken is not None
        return taken

    def nothing_to_take(self) -> bool:
        return self.manager.take_filthiest(self.clock.now_ms()) is None
