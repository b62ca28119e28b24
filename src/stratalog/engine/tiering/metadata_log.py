"""The partitions of `__remote_log_metadata` as plain event logs for the metadata manager."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from stratalog.engine.partition import Partition
from stratalog.engine.tiering.metadata_topic_settings import REMOTE_LOG_METADATA_TOPIC
from stratalog.errors import CorruptRecordError, StratalogError
from stratalog.log import NO_CLAIM, PartitionLog, search
from stratalog.log.format import Isolation
from stratalog.log.segment import LogBytes
from stratalog.records import CODEC_MASK, Record, RecordBatch, build_batch, iter_batches
from stratalog.remote.metadata import SNAPSHOT_FILE, EventsRead
from stratalog.util import REAL_FILESYSTEM, FileSystem, decode_varint, write_atomic

logger = logging.getLogger(__name__)

REBUILD = "'stratalog tier restore URL --data-dir DIR --metadata-only' rebuilds it from the bucket"

#: Attributes, timestamp delta and offset delta of a batch's only record, and the length of a missing key.
_NO_KEY = b"\x00\x00\x00\x01"
#: From this value on a varint takes two bytes.
_LONG_VARINT = 0x80


class LocalMetadataLog:
    """Appends to and reads from the local partitions of the metadata topic.

    An append is flushed before it returns, because the deletion of local segments relies on it. Thread-safe.
    """

    def __init__(
        self,
        partition_count: int,
        partition: Callable[[int], Partition | None],
        fs: FileSystem = REAL_FILESYSTEM,
    ) -> None:
        self.partition_count = partition_count
        self._partition = partition
        self._fs = fs

    def append(self, partition: int, value: bytes, timestamp_ms: int) -> int:
        """Store one event durably. Return its offset."""
        batch = build_batch([Record(offset=0, timestamp_ms=timestamp_ms, key=None, value=value)])
        target = self._get(partition)
        offset = target.append(batch, origin="internal").first_offset
        target.log.flush()
        return offset

    def read(self, partition: int, offset: int, max_bytes: int = 1024 * 1024) -> EventsRead:
        """Return events from `offset` on.

        Damage is logged and skipped if later events are readable.

        CorruptRecordError for invalid bytes without a readable batch after them.
        """
        log = self._get(partition).log
        offset = max(offset, log.log_start_offset)
        events: list[tuple[int, bytes]] = []
        if offset >= log.high_watermark:
            return EventsRead(events, offset)
        try:
            fetched = log.read(offset, max_bytes, isolation=Isolation.HIGH_WATERMARK, min_one_message=True)
        except CorruptRecordError as error:
            return EventsRead(events, _behind_damage(log, offset, error))
        next_offset = offset if fetched.slice else log.high_watermark
        try:
            for batch in iter_batches(fetched.slice.read() if fetched.slice else b""):
                next_offset = batch.next_offset
                if not batch.is_crc_valid:
                    logger.error(
                        "%s: batch at offset %d is damaged, its events are left out; %s",
                        log.directory,
                        batch.base_offset,
                        REBUILD,
                    )
                elif not batch.is_control:
                    events += events_of(batch)
        except CorruptRecordError as error:
            raise CorruptRecordError(f"{log.directory}: {error}; {REBUILD}") from error
        if events and events[0][0] < offset:
            events = [event for event in events if event[0] >= offset]
        return EventsRead(events, next_offset)

    def start_offset(self, partition: int) -> int:
        """Return the offset of the first retained event."""
        return self._get(partition).log.log_start_offset

    def end_offset(self, partition: int) -> int:
        """Return the offset of the next event."""
        return self._get(partition).log.log_end_offset

    def read_snapshot(self, partition: int) -> bytes | None:
        path = self._snapshot_path(partition)
        return self._fs.read_bytes(path) if self._fs.exists(path) else None

    def write_snapshot(self, partition: int, data: bytes) -> None:
        """Store `data` beside the segments atomically, after making every event durable."""
        self._get(partition).log.flush()
        write_atomic(self._snapshot_path(partition), data, self._fs)

    def _snapshot_path(self, partition: int) -> Path:
        return self._get(partition).log.directory / SNAPSHOT_FILE

    def _get(self, partition: int) -> Partition:
        found = self._partition(partition)
        if found is None:
            raise StratalogError(f"{REMOTE_LOG_METADATA_TOPIC}-{partition} is not loaded")
        return found


def _behind_damage(log: PartitionLog, offset: int, error: CorruptRecordError) -> int:
    """Return the first readable offset after the damage at `offset`.

    Raises CorruptRecordError when there is none. The high watermark when no sound batch follows.
    """
    end = log.high_watermark
    found = next((later for later in range(offset + 1, end) if _can_read(log, later)), None)
    if found is None:
        if offset + 1 < end and _has_sound_batch_behind(log, offset):
            raise CorruptRecordError(f"{log.directory}: {error}; {REBUILD}") from error
        found = end
    logger.error(
        "%s: batch at offset %d is damaged, events %d to %d are left out: %s; %s",
        log.directory,
        offset,
        offset,
        found - 1,
        error,
        REBUILD,
    )
    return found


def _can_read(log: PartitionLog, offset: int) -> bool:
    try:
        log.read(offset, 1, isolation=Isolation.HIGH_WATERMARK, min_one_message=True)
    except CorruptRecordError:
        return False
    return True


def _has_sound_batch_behind(log: PartitionLog, offset: int) -> bool:
    """Return whether a sound batch with a later offset follows damage that readers cannot pass."""
    highest = log.high_watermark - 1
    contents = (LogBytes(segment.file, segment.size_bytes) for segment in log.segments)
    return any(search(content, 0, offset + 1, highest, NO_CLAIM)[1] >= 0 for content in contents)


def events_of(batch: RecordBatch) -> list[tuple[int, bytes]]:
    """Return the events of a batch as (offset, value).

    Optimised for batches of one event.
    """
    value = _only_value(batch)
    if value is not None:
        return [(batch.base_offset, value)]
    return [(record.offset, bytes(record.value)) for record in batch.records() if record.value is not None]


def _only_value(batch: RecordBatch) -> bytes | None:
    """Return the value of an uncompressed batch of one record without key and headers, else None.

    record: length (varint), attributes, timestamp delta, offset delta (all 0), key length (-1), value length, value, 0
    """
    if batch.record_count != 1 or batch.attributes & CODEC_MASK:
        return None
    payload = batch.records_payload
    length_size = 1 if payload[0] < _LONG_VARINT else 2
    if payload[length_size : length_size + len(_NO_KEY)] != _NO_KEY or payload[-1] != 0:
        return None
    size, start = decode_varint(payload, length_size + len(_NO_KEY))
    return bytes(payload[start : start + size]) if start + size + 1 == len(payload) else None
