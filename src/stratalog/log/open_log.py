"""One partition directory, in process, without a broker.

    with stratalog.open_log("data/orders-0") as log:
        log.append([Record(0, now_ms, b"key", b"value")])
        for record in log.records(0): ...

The directory is a Kafka partition directory; a broker can serve it afterwards. Nobody else may have it open.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType

from typing_extensions import Buffer

from stratalog.config.topic import LogConfig
from stratalog.log.partition_log import PartitionLog
from stratalog.log.values import AppendInfo, FetchData, TimestampOffset
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record, RecordLike
from stratalog.util.clock import SYSTEM_CLOCK, Clock
from stratalog.util.filesystem import REAL_FILESYSTEM, FileSystem, StrPath

_READ_SIZE = 1024 * 1024


class OpenLog:
    """A partition log with itself as leader. Thread-safe; `partition_log` has everything else."""

    def __init__(self, partition_log: PartitionLog) -> None:
        self.partition_log = partition_log
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
        """Append record batches as bytes, or records as one batch (their own offsets do not matter).

        Errors are those of `PartitionLog.append_as_leader`; InvalidRecordError for no record at all.
        """
        if not isinstance(records, (bytes, bytearray, memoryview)):
            assert isinstance(records, Iterable)
            records = self._batch(records)
        info = self.partition_log.append_as_leader(records, leader_epoch=self._epoch)
        self.partition_log.advance_high_watermark()
        return info

    def _batch(self, records: Iterable[RecordLike]) -> bytes:
        numbered = [
            Record(offset, record.timestamp_ms, record.key, record.value, tuple(record.headers))
            for offset, record in enumerate(records)
        ]
        return build_batch(numbered) if numbered else b""

    def read(self, offset: int, max_bytes: int = _READ_SIZE) -> FetchData:
        """Batches from the one that holds `offset` on; OffsetOutOfRangeError for an offset that is not there."""
        return self.partition_log.read(offset, max_bytes)

    def records(self, offset: int | None = None) -> Iterator[Record]:
        """Every record from `offset` (default: the log start) to the end as it is when it is reached."""
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
        """The first record that is not older than `timestamp_ms`."""
        return self.partition_log.offset_for_timestamp(timestamp_ms)

    def flush(self) -> None:
        self.partition_log.flush()

    def close(self) -> None:
        """Flush and close. Harmless when called again."""
        self.partition_log.close()

    def __enter__(self) -> OpenLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
    """Open a partition directory, `<topic>-<partition>`, and make it if it is missing.

    `config` is a LogConfig or topic properties under Kafka's names. Whether the last user closed it is not known, so
    everything in it is checked. Raises ValueError for another kind of name, InvalidConfigError, OSError.
    """
    if not isinstance(config, LogConfig):
        config = LogConfig.from_properties(dict(config or {}))
    return OpenLog(PartitionLog.open(Path(path).absolute(), config, clock=clock, fs=fs))
