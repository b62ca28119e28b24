"""Open one partition directory in this process, without a broker.

    with stratalog.open_log("data/orders-0") as log:
        log.append([Record(0, now_ms, b"key", b"value")])
        for record in log.records(0): ...

The directory is a Kafka partition directory; a broker can serve it afterwards. The `.lock` of the log directory around
it keeps other processes from opening it at the same time (`dir_lock`). `stratalog dump` and Spark read the files
without a lock.

The checkpoints of the log directory hold how far the log is flushed and where it begins, as for a broker
(`partition_checkpoints`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from typing_extensions import Buffer

from stratalog.config import LogConfig
from stratalog.errors import DataDirError, KafkaStorageError, StillLoadingError
from stratalog.log.format import AppendInfo, FetchData, TimestampOffset, parse_partition_dir
from stratalog.log.partition_log import PartitionLog
from stratalog.log.producers import NEVER
from stratalog.log.recovery import LOCK, DirLock, PartitionCheckpoints, hold_partition
from stratalog.records import Record, RecordLike, build_batch, iter_batches, load_native
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, Clock, FileSystem, StrPath, make_dirs_durably

logger = logging.getLogger(__name__)

_READ_SIZE = 1024 * 1024


class OpenLog:
    """A partition log with itself as leader. Thread-safe. `partition_log` has the full interface."""

    def __init__(
        self,
        partition_log: PartitionLog,
        checkpoints: PartitionCheckpoints | None = None,
        *,
        lock: DirLock | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.partition_log = partition_log
        self._checkpoints = checkpoints
        self._lock = lock
        self._clock = clock
        self._checkpoint_lock = threading.Lock()
        #: The values in the checkpoints.
        self._written: tuple[int, int] | None = None
        partition_log.write_bounds_by(self._write_bounds)
        latest = partition_log.leader_epochs.latest_epoch
        self._epoch = 0 if latest is None else latest
        partition_log.advance_high_watermark()

    @property
    def log_start_offset(self) -> int:
        return self.partition_log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.partition_log.log_end_offset

    def append(self, records: Buffer | Iterable[RecordLike]) -> AppendInfo:
        """Append record batches as bytes, or records as one batch (their own offsets are ignored).

        Raises the errors of `PartitionLog.append_as_leader`, and InvalidRecordError without any record.
        """
        if not isinstance(records, (bytes, bytearray, memoryview)):
            assert isinstance(records, Iterable)
            records = self._batch(records)
        try:
            info = self.partition_log.append_as_leader(records, leader_epoch=self._epoch)
        except StillLoadingError:  # only a broker cannot wait for codecs to load
            load_native()
            info = self.partition_log.append_as_leader(records, leader_epoch=self._epoch)
        self.partition_log.advance_high_watermark()
        try:
            if self.partition_log.flush_if_due(self._clock.now_ms()):
                self._write_down("append")
        except KafkaStorageError as error:  # the records are in the log; the next flush or close raises too
            logger.warning("Appended records are not durable: %s", error)
        return info

    def _write_down(self, what: str) -> None:
        """Store how far the log is flushed for the next opening. Raises KafkaStorageError."""
        try:
            self._write_bounds()
        except OSError as error:
            raise KafkaStorageError(
                f"{self.partition_log.directory}: {what}: the checkpoints cannot be written: {error.strerror or error}"
            ) from error

    def _write_bounds(self) -> None:
        if self._checkpoints is None:
            return
        with self._checkpoint_lock:
            bounds = self.partition_log.recovery_point, self.partition_log.log_start_offset
            if bounds != self._written:
                self._checkpoints.write(*bounds)
                self._written = bounds

    def _batch(self, records: Iterable[RecordLike]) -> bytes:
        numbered = [
            Record(offset, record.timestamp_ms, record.key, record.value, tuple(record.headers))
            for offset, record in enumerate(records)
        ]
        return build_batch(numbered) if numbered else b""

    def read(self, offset: int, max_bytes: int = _READ_SIZE) -> FetchData:
        """Return batches from the one with `offset` on. Raises OffsetOutOfRangeError."""
        return self.partition_log.read(offset, max_bytes)

    def records(self, offset: int | None = None) -> Iterator[Record]:
        """Yield every record from `offset` (default: the log start) to the end at the time it is reached."""
        next_offset = self.log_start_offset if offset is None else offset
        while next_offset < self.partition_log.high_watermark:
            data = self.read(next_offset)
            if data.slice is None:
                return
            for batch in iter_batches(data.slice.read()):
                if not batch.is_control:
                    yield from (record for record in batch.records() if record.offset >= next_offset)
                next_offset = batch.next_offset

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """Return the first record with a timestamp of at least `timestamp_ms`."""
        return self.partition_log.offset_for_timestamp(timestamp_ms)

    def flush(self) -> None:
        """Make appended records durable, and store how far the log is flushed. Raises KafkaStorageError."""
        self.partition_log.flush()
        self._write_down("flush")

    def close(self) -> None:
        """Flush and close. A second call does nothing."""
        try:
            self.partition_log.close()
            self._write_down("close")
        finally:
            if self._lock is not None:
                self._lock.close()

    def __enter__(self) -> OpenLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"OpenLog({self.partition_log!r})"


def open_log(
    path: StrPath,
    config: LogConfig | Mapping[str, str] | None = None,
    *,
    clock: Clock = SYSTEM_CLOCK,
    fs: FileSystem = REAL_FILESYSTEM,
) -> OpenLog:
    """Open a partition directory, `<topic>-<partition>`, creating it if it is missing.

    `config` is a LogConfig or topic properties under Kafka's names. Records not known to be flushed are checked;
    flushed ones are never cut. Raises ValueError for an invalid name, InvalidConfigError, DataDirError while another
    process uses the directory, OSError.
    """
    if not isinstance(config, LogConfig):
        config = LogConfig.from_properties(dict(config or {}))
    directory = Path(path).absolute()
    partition = parse_partition_dir(directory.name)
    if partition is None:
        raise ValueError(f"{directory}: not the name of a partition directory, <topic>-<partition>")
    make_dirs_durably(directory.parent, fs)
    lock = hold_partition(directory.parent, directory.name, fs)
    if lock is None:
        raise DataDirError(
            f"{directory} is in use: a broker, a check or another open_log uses it ({directory.parent / LOCK} is held)."
            " Stop or close that first; to look at the log while it runs, use `stratalog dump`"
        )
    try:
        checkpoints = PartitionCheckpoints(directory, partition, fs)
        known = checkpoints.begin()
        log = PartitionLog.open(directory, config, clock=clock, fs=fs, producer_expiration_ms=NEVER, **known._asdict())
        return OpenLog(log, checkpoints, lock=lock, clock=clock)
    except BaseException:
        lock.close()
        raise
