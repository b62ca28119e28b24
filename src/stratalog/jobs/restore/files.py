"""Write the files of a restore, as Kafka would: partition directories and those of the metadata topic.

A partition begins locally at the end of its remote segments. Its directory must be empty. Errors are OSErrors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final
from uuid import UUID

from stratalog.config import LogConfig
from stratalog.errors import RemoteStorageError
from stratalog.jobs.restore.plan import PartitionRestore
from stratalog.log import PartitionLog
from stratalog.log.format import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    PartitionMetadataFile,
    ProducerSnapshotEntry,
    decode as decode_producers,
    encode_epochs,
    log_file,
    offset_index_file,
    snapshot_file,
    time_index_file,
)
from stratalog.log.producers import NEVER
from stratalog.records import ControlType, Record, build_batch, end_transaction_marker
from stratalog.remote.api import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from stratalog.remote.metadata import encode, metadata_partition
from stratalog.util import Clock, FileSystem, write_atomic

METADATA_TOPIC: Final = "__remote_log_metadata"

_EVENTS_IN_BATCH: Final = 500

#: The configuration of the logs while they are written. The broker opens them with their own later.
_CONFIG = LogConfig(remote_storage_enable=True, retention_ms=-1)
_METADATA_CONFIG = LogConfig(retention_ms=-1)


def write_partition(data_dir: Path, plan: PartitionRestore, *, clock: Clock, fs: FileSystem) -> tuple[int, list[int]]:
    """Make the directory of a partition. Return its log end offset and the producers of aborted transactions.

    The log is empty, with the leader epochs and producers at the end of the last remote segment. A transaction that was
    open there is aborted, because its outcome was in records that are lost.
    """
    partition, end = plan.partition, plan.log_end_offset
    directory = data_dir / f"{partition.topic}-{partition.partition}"
    fs.make_dirs(directory)
    PartitionMetadataFile(directory / PARTITION_METADATA, fs).write(partition.topic_id)
    write_atomic(directory / LEADER_EPOCH_CHECKPOINT, encode_epochs(plan.epochs), fs)
    if plan.producer_snapshot is not None:
        write_atomic(directory / snapshot_file(end), plan.producer_snapshot, fs)
    for name in (offset_index_file(end), time_index_file(end), log_file(end)):
        write_atomic(directory / name, b"", fs)
    log = PartitionLog.open(
        directory,
        _CONFIG,
        topic_id=partition.topic_id,
        clock=clock,
        fs=fs,
        clean_shutdown=True,
        recovery_point=end,
        log_start_offset=plan.log_start_offset,
        producer_expiration_ms=NEVER,
    )
    try:
        if log.log_end_offset != end:
            raise RemoteStorageError(f"{directory} ends at offset {log.log_end_offset}, expected {end}")
        ended = _end_transactions(log, plan, clock)
        return log.log_end_offset, ended
    finally:
        log.close()


def _end_transactions(log: PartitionLog, plan: PartitionRestore, clock: Clock) -> list[int]:
    ended = []
    for entry in open_transactions(plan):
        marker = end_transaction_marker(
            ControlType.ABORT,
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
            coordinator_epoch=max(entry.coordinator_epoch, 0),
            timestamp_ms=clock.now_ms(),
        )
        log.append_as_leader(marker, leader_epoch=plan.epochs[-1].epoch, origin="coordinator")
        log.advance_high_watermark()
        ended.append(entry.producer_id)
    return ended


def open_transactions(plan: PartitionRestore) -> list[ProducerSnapshotEntry]:
    """Return the producers that had a transaction open at the end of the remote data."""
    if plan.producer_snapshot is None:
        return []
    return [entry for entry in decode_producers(plan.producer_snapshot) if entry.current_txn_first_offset >= 0]


def write_metadata(
    data_dir: Path,
    topic_id: UUID,
    partition_count: int,
    segments: Iterable[RemoteLogSegmentMetadata],
    *,
    clock: Clock,
    fs: FileSystem,
) -> dict[int, int]:
    """Write the events of finished copies. Return the log end offset of each metadata partition that got any.

    The broker makes the other partitions of the topic.
    """
    by_number: dict[int, list[RemoteLogSegmentMetadata]] = {}
    numbers: dict[TopicIdPartition, int] = {}
    for segment in segments:
        partition = segment.topic_id_partition
        if partition not in numbers:
            numbers[partition] = metadata_partition(partition, partition_count)
        by_number.setdefault(numbers[partition], []).append(segment)
    return {
        number: _write_events(data_dir / f"{METADATA_TOPIC}-{number}", topic_id, of_number, clock, fs)
        for number, of_number in sorted(by_number.items())
    }


def _write_events(
    directory: Path,
    topic_id: UUID,
    segments: Sequence[RemoteLogSegmentMetadata],
    clock: Clock,
    fs: FileSystem,
) -> int:
    log = PartitionLog.open(directory, _METADATA_CONFIG, topic_id=topic_id, clock=clock, fs=fs, clean_shutdown=True)
    try:
        values = _events(segments)
        while batch := list(islice(values, _EVENTS_IN_BATCH)):
            records = [Record(at, clock.now_ms(), None, value) for at, value in enumerate(batch)]
            log.append_as_leader(build_batch(records), leader_epoch=0, origin="coordinator")
            log.advance_high_watermark()
        return log.log_end_offset
    finally:
        log.close()


def _events(segments: Iterable[RemoteLogSegmentMetadata]) -> Iterator[bytes]:
    """Yield the events of each copied segment: copy started, copy finished."""
    for segment in segments:
        yield encode(replace(segment, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED, custom_metadata=None))
        yield encode(
            RemoteLogSegmentMetadataUpdate(
                segment.segment_id,
                segment.event_timestamp_ms,
                segment.custom_metadata,
                segment.state,
                segment.broker_id,
            )
        )
