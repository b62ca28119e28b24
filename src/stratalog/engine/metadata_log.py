"""The partitions of `__remote_log_metadata` as the plain log of events that the metadata manager asks for."""

from __future__ import annotations

from collections.abc import Callable

from stratalog.engine.partition import Partition
from stratalog.errors import StratalogError
from stratalog.log.values import Isolation
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record

REMOTE_LOG_METADATA_TOPIC = "__remote_log_metadata"


class LocalMetadataLog:
    """Appends to and reads from the local partitions of the metadata topic.

    An append is flushed before it returns: the deletion of a local segment relies on what it says. Thread-safe, as the
    partitions are.
    """

    def __init__(self, partition_count: int, partition: Callable[[int], Partition | None]) -> None:
        self.partition_count = partition_count
        self._partition = partition

    def append(self, partition: int, value: bytes, timestamp_ms: int) -> int:
        """Store one event durably; return its offset."""
        batch = build_batch([Record(offset=0, timestamp_ms=timestamp_ms, key=None, value=value)])
        target = self._get(partition)
        offset = target.append(batch, origin="internal").first_offset
        target.log.flush()
        return offset

    def read(self, partition: int, offset: int, max_bytes: int = 1024 * 1024) -> list[tuple[int, bytes]]:
        """Events from `offset` on as (offset, value); an empty list at the end."""
        log = self._get(partition).log
        offset = max(offset, log.log_start_offset)
        if offset >= log.high_watermark:
            return []
        fetched = log.read(offset, max_bytes, isolation=Isolation.HIGH_WATERMARK, min_one_message=True)
        if fetched.slice is None:
            return []
        return [
            (record.offset, bytes(record.value))
            for batch in iter_batches(fetched.slice.read())
            if not batch.is_control
            for record in batch.records()
            if record.offset >= offset and record.value is not None
        ]

    def end_offset(self, partition: int) -> int:
        """The offset that the next event will get."""
        return self._get(partition).log.log_end_offset

    def _get(self, partition: int) -> Partition:
        found = self._partition(partition)
        if found is None:
            raise StratalogError(f"{REMOTE_LOG_METADATA_TOPIC}-{partition} is not loaded")
        return found
