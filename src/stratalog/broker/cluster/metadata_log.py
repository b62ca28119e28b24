"""`__cluster_metadata-0` on disk, in Kafka's format: a partition directory with snapshots and `quorum-state`.

    00000000000000000000.log ...              fetched batches; those above the high watermark may be truncated
    OFFSET-EPOCH.checkpoint                   a snapshot: everything below OFFSET, whose last record is of EPOCH
    quorum-state                              the last known leader and epoch

The log starts at the newest snapshot, or below. A snapshot is written to a temporary name first. Source:
`KafkaRaftLog`, `Snapshots`, `FileQuorumStateStore`.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from typing_extensions import Buffer

from stratalog.broker.cluster.metadata_batches import MetadataBatch, decode_batches
from stratalog.config import LogConfig
from stratalog.errors import CorruptRecordError
from stratalog.log import PartitionLog
from stratalog.log.format import Isolation
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, Clock, FileSystem, uuid_from_base64, write_atomic

logger = logging.getLogger(__name__)

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = uuid_from_base64("AAAAAAAAAAAAAAAAAAAAAQ")
METADATA_PARTITION_DIR: Final = f"{METADATA_TOPIC}-0"

_QUORUM_STATE: Final = "quorum-state"
_SNAPSHOT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_READ_BYTES: Final = 1 << 20
#: No deletion by time or size: snapshots determine it.
_CONFIG: Final = LogConfig(max_message_bytes=2**31 - 1, retention_ms=-1, retention_bytes=-1)


class SnapshotId(NamedTuple):
    """A snapshot with everything below `end_offset`; `epoch` is that of the record before it."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


class ClusterMetadataLog:
    """The log. Belongs to the observer's thread. Raises OSError and KafkaStorageError on disk errors."""

    def __init__(self, log: PartitionLog, fs: FileSystem) -> None:
        self._log = log
        self._fs = fs

    @classmethod
    def open(
        cls,
        data_dir: Path,
        *,
        clean_shutdown: bool,
        clock: Clock = SYSTEM_CLOCK,
        fs: FileSystem = REAL_FILESYSTEM,
    ) -> ClusterMetadataLog:
        """Open the log in a data directory that the caller has locked, and check what may not be flushed.

        A log that ends below its newest snapshot starts there: after a crash between the two writes.
        """
        directory = data_dir / METADATA_PARTITION_DIR
        newest = max(_snapshots(directory, fs), default=None)
        log = PartitionLog.open(
            directory,
            _CONFIG,
            topic_id=METADATA_TOPIC_ID,
            clock=clock,
            fs=fs,
            clean_shutdown=clean_shutdown,
            log_start_offset=0 if newest is None else newest.end_offset,
        )
        opened = cls(log, fs)
        if newest is not None and log.log_end_offset < newest.end_offset:
            opened._begin_at(newest)
        return opened

    @property
    def end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, in the log or in the snapshot below it; 0 for none."""
        latest = self._log.leader_epochs.latest_epoch
        newest = self.newest_snapshot()
        return max(latest or 0, 0 if newest is None else newest.epoch)

    def append(self, records: Buffer, *, leader_epoch: int) -> None:
        """Append complete batches of the leader. Raises CorruptRecordError for invalid ones."""
        self._log.append_as_follower(records, leader_epoch=leader_epoch)

    def common_end(self, epoch: int, end_offset: int) -> int:
        """Return where this log diverges from the leader's, whose last offset of `epoch` is below `end_offset`."""
        own_epoch, own_end = self._log.leader_epochs.end_offset_for(epoch, self.end_offset)
        return min(own_end, end_offset) if own_epoch == epoch else max(own_end, 0)

    def truncate_to(self, offset: int) -> None:
        self._log.truncate_to(offset)

    def batches_from(self, offset: int) -> Iterator[MetadataBatch]:
        """Decode the batches of the log from `offset` on."""
        while offset < self.end_offset:
            data = self._log.read(offset, _READ_BYTES, isolation=Isolation.LOG_END)
            if data.slice is None:
                return
            for batch in decode_batches(data.slice.read()):
                if batch.last_offset >= offset:
                    yield batch
                    offset = batch.last_offset + 1

    def newest_snapshot(self) -> SnapshotId | None:
        return max(_snapshots(self._log.directory, self._fs), default=None)

    def read_snapshot(self, snapshot: SnapshotId) -> list[MetadataBatch]:
        """Decode a snapshot. Raises CorruptRecordError for one without a footer: it is incomplete."""
        path = self._log.directory / snapshot.file_name
        return _decode_snapshot(self._fs.read_bytes(path), str(path))

    def begin_with_snapshot(self, snapshot: SnapshotId, data: bytes) -> list[MetadataBatch]:
        """Store a fetched snapshot, and start the log after it. Return its contents.

        Raises CorruptRecordError for one that is damaged or incomplete. It is not stored: the next start would fail.
        """
        batches = _decode_snapshot(data, f"snapshot {snapshot.file_name} of the controller")
        self._write_snapshot(snapshot, data)
        self._begin_at(snapshot)
        return batches

    def add_snapshot(self, snapshot: SnapshotId, data: bytes) -> None:
        """Store a snapshot of the applied records, and drop whole segments and older snapshots below it."""
        self._write_snapshot(snapshot, data)
        self._log.update_high_watermark(snapshot.end_offset)
        self._log.increment_log_start_offset(snapshot.end_offset, "snapshot")
        self._log.delete_old_segments()
        self._remove_older_than(snapshot)

    def _begin_at(self, snapshot: SnapshotId) -> None:
        self._log.truncate_fully_and_start_at(snapshot.end_offset)
        self._remove_older_than(snapshot)

    def _write_snapshot(self, snapshot: SnapshotId, data: bytes) -> None:
        write_atomic(self._log.directory / snapshot.file_name, data, self._fs)

    def _remove_older_than(self, snapshot: SnapshotId) -> None:
        for other in list(_snapshots(self._log.directory, self._fs)):
            if other < snapshot:
                self._fs.remove(self._log.directory / other.file_name)

    def quorum_epoch(self) -> int:
        """Return the last known epoch; 0 for none, or if the file cannot be read."""
        path = self._log.directory / _QUORUM_STATE
        if not self._fs.exists(path):
            return 0
        try:
            return max(0, int(json.loads(self._fs.read_bytes(path))["leaderEpoch"]))
        except (ValueError, KeyError, TypeError) as error:
            logger.warning("%s cannot be read, asking the quorum: %s", path, error)
            return 0

    def write_quorum_state(self, leader_id: int, epoch: int) -> None:
        """Store the leader, in version 1 of Kafka's file, which works for both kinds of quorum."""
        state = {
            "leaderId": leader_id,
            "leaderEpoch": epoch,
            "votedId": -1,
            "votedDirectoryId": "AAAAAAAAAAAAAAAAAAAAAA",
            "data_version": 1,
        }
        content = json.dumps(state, separators=(",", ":")).encode()
        write_atomic(self._log.directory / _QUORUM_STATE, content, self._fs)

    def close(self, *, clean: bool) -> None:
        self._log.close(flush=clean)


def _decode_snapshot(data: bytes, what: str) -> list[MetadataBatch]:
    batches = list(decode_batches(data))
    if not batches or not any(type(each).__name__ == "SnapshotFooterRecord" for each in batches[-1].control):
        raise CorruptRecordError(f"{what}: the snapshot does not end with its footer")
    return batches


def _snapshots(directory: Path, fs: FileSystem) -> Iterator[SnapshotId]:
    for name in fs.list_dir(directory) if fs.exists(directory) else ():
        if match := _SNAPSHOT.fullmatch(name):
            yield SnapshotId(int(match[1]), int(match[2]))
