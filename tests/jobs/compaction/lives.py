"""Partitions with a random past, for the log cleaner and for a compaction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from stratalog.config.topic import LogConfig
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.jobs.compaction import data_dirs, local
from stratalog.log.cleaner.cleaner import Cleaner
from stratalog.log.cleaner.values import CleanerSettings
from stratalog.log.format.checkpoints import encode_epochs
from stratalog.log.format.file_names import snapshot_file
from stratalog.log.partition_log import PartitionLog
from stratalog.records import batch_format as fmt
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.compression import Codec
from stratalog.records.record import Record
from stratalog.remote.api.interfaces import LogSegmentData, RemoteLogSegmentId, RemoteLogSegmentMetadata
from stratalog.remote.api.topic_id_partition import TopicIdPartition
from stratalog.remote.storage.object_names import ObjectKind
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.storage.plain_view import PlainView
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager
from stratalog.remote.transactions.staging import BULK_BROKER_ID
from stratalog.testing.clock import ManualClock
from tests.log.parity.cleaning_lives import DIRECTORY, random_cleaning_life
from tests.log.parity.scenario import live_as_stratalog

STEPS = 120
T0 = 1_700_000_000_000
PARTITION = TopicIdPartition(UUID(int=0x5EED), "latest", 0)


def lived(
    seed: int, root: Path, *, codecs: bool, old_formats: bool, large_index: bool, steps: int = STEPS
) -> tuple[Path, LogConfig, int]:
    """A partition directory with a random past, some cleanings in it, its configuration, and the time."""
    lines = random_cleaning_life(seed, steps, codecs=codecs, old_formats=old_formats)[:-7]
    live_as_stratalog([*lines, "hw end", "roll", "close"], root)
    opening = next(line for line in lines if line.startswith("open"))
    properties = dict(word.split("=", 1) for word in opening.split(" ")[6:])
    config = LogConfig.from_properties(properties, use_large_index_format=large_index)
    now_ms = max(int(line.split(" ")[1]) for line in lines if line.startswith("time"))
    return root / DIRECTORY, config, now_ms


def partition_at(directory: Path, cleaned_to: int | None = None) -> data_dirs.LocalPartition:
    """As the checkpoints of a directory that was stopped cleanly would describe it."""
    return data_dirs.LocalPartition("latest", 0, directory, True, cleaned_to, None, 0, 0)


def cleanable_end(log: PartitionLog) -> int:
    """Where the closed segments end that have no open transaction in them."""
    bound = min(log.active_segment.base_offset, log.last_stable_offset)
    return max(segment.base_offset for segment in log.segments if segment.base_offset <= bound)


def clean(directory: Path, config: LogConfig, now_ms: int, first_dirty: int) -> int:
    """One cleaning that sees everything; where it ends."""
    clock = ManualClock(now_ms)
    with local.opened(partition_at(directory), config, clock) as log:
        end = cleanable_end(log)
        result = Cleaner(CleanerSettings(24 * 100_000), clock=clock).clean(
            log,
            first_dirty_offset=max(first_dirty, log.log_start_offset),
            first_uncleanable_offset=end,
            now_ms=now_ms,
            check_abort=lambda: None,
        )
    return result.next_dirty_offset


def upload(log: PartitionLog, store: ObjectStore, *, topic: str = "latest") -> None:
    """Copy every closed segment."""
    manager = ObjectStoreRemoteStorageManager(store)
    for segment, following in zip(log.segments, log.segments[1:], strict=False):
        end = following.base_offset
        snapshot = log.directory / snapshot_file(end)
        epochs = log.leader_epochs.entries_in_range(segment.base_offset, end)
        metadata = RemoteLogSegmentMetadata(
            RemoteLogSegmentId.generate_new(replace(PARTITION, topic=topic)),
            segment.base_offset,
            end - 1,
            segment.largest_timestamp(),
            BULK_BROKER_ID,
            1,
            segment.size_bytes,
            {entry.epoch: entry.start_offset for entry in epochs} or {0: segment.base_offset},
            txn_index_empty=segment.txn_index.is_empty,
        )
        data = LogSegmentData(
            segment.log_path,
            segment.offset_index_path,
            segment.time_index_path,
            segment.txn_index.path if segment.txn_index.exists else None,
            snapshot if snapshot.exists() else None,
            encode_epochs(log.leader_epochs.entries_up_to(end)),
            segment.offset_index.entry_size,
        )
        manager.copy_log_segment_data(metadata, data)


class Found(NamedTuple):
    """A batch: all header fields that are not derived, and the records."""

    header: tuple[object, ...]
    records: list[Record]


def batches(data: bytes) -> list[Found]:
    """Each checked."""
    found = []
    for batch in iter_batches(data):
        batch.ensure_valid()
        header = (
            *(batch.base_offset, batch.last_offset, batch.magic, batch.attributes, batch.base_timestamp),
            *(batch.max_timestamp, batch.producer_id, batch.producer_epoch, batch.base_sequence),
            batch.partition_leader_epoch,
        )
        found.append(Found(header, list(batch.records())))
    return found


def bucket_batches(store: ObjectStore, topic: str = "latest") -> list[Found]:
    """Of all segments that are to be seen, in order."""
    view = store if isinstance(store, PlainView) else PlainView(ObjectStoreRemoteStorageManager(store).reader)
    return [
        batch
        for manifest in list_remote_segments(store, [topic])
        for batch in batches(bytes(view.reader.read(manifest, ObjectKind.LOG)))
    ]


def local_batches(directory: Path, *, below: int) -> list[Found]:
    """Of the segments that begin below an offset."""
    found: list[Found] = []
    for path in sorted(directory.glob("*.log")):
        if int(path.stem) < below:
            data = path.read_bytes()
            found += batches(data[: _end_of_batches(data)])
    return found


def _end_of_batches(data: bytes) -> int:
    """Where the zeros of a preallocated segment begin."""
    position = 0
    while position < len(data) and (length := int.from_bytes(data[position + 8 : position + 12], "big")):
        position += length + fmt.LOG_OVERHEAD
    return position


def write_log(directory: Path, *, records: int = 600, keys: int = 40) -> None:
    """A partition with several closed segments."""
    config = LogConfig.from_properties({"internal.segment.bytes": "8192"})
    log = PartitionLog.open(directory, config)
    for first in range(0, records, 20):
        batch = [Record(n, T0 + first + n, b"%d" % ((first + n) % keys), b"value %d" % (first + n)) for n in range(20)]
        codec = Codec.ZSTD if first % 40 else Codec.NONE
        log.append_as_leader(build_batch(batch, codec=codec), leader_epoch=0)
    log.roll()
    log.update_high_watermark(log.log_end_offset)
    log.close()
