"""Read and write the checkpoints of a log directory for one partition that is opened alone.

The files are those of a broker, so each finds what the other left:

    recovery-point-offset-checkpoint    everything below is on disk; unknown without an entry
    log-start-offset-checkpoint         where the log begins; no entry for 0
    .kafka_cleanshutdown                a broker stopped cleanly, and no other process has started since

Processes that have different partitions of the directory open take turns at these files (`flock` of the directory,
where the file system supports it).
"""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from stratalog.errors import CorruptCheckpointError
from stratalog.log.format import (
    CLEAN_SHUTDOWN,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    OffsetCheckpoint,
    TopicPartition,
    decode_epochs,
)
from stratalog.util import FileSystem

logger = logging.getLogger(__name__)

_NAMES: Final = (RECOVERY_POINTS, LOG_START_OFFSETS)


class Remembered(NamedTuple):
    """What is known of a partition before it is opened. `recovery_point` is None if unknown."""

    clean_shutdown: bool
    recovery_point: int | None
    log_start_offset: int


class PartitionCheckpoints:
    """The checkpoint entries of the partition in `directory`. Not thread-safe. Raises OSError."""

    def __init__(self, directory: Path, partition: TopicPartition, fs: FileSystem) -> None:
        self._directory = directory
        self._log_dir = directory.parent
        self._partition = partition
        self._fs = fs

    def begin(self) -> Remembered:
        """Return the entries, and mark the log directory as not cleanly stopped.

        Entries of a directory that does not exist belonged to an earlier one and are removed.
        """
        if not self._fs.is_dir(self._log_dir):
            return Remembered(True, 0, 0)
        with self._held():
            offsets = {name: self._read(name).get(self._partition) for name in _NAMES}
            if not self._fs.is_dir(self._directory):
                for name in [name for name, offset in offsets.items() if offset is not None]:
                    self._replace(name, None)
                return Remembered(True, 0, 0)
            mark = self._log_dir / CLEAN_SHUTDOWN
            was_clean = self._fs.exists(mark)
            if was_clean:
                self._fs.remove(mark)
                self._fs.sync_dir(self._log_dir)
        start = plausible_start(self._directory, offsets[LOG_START_OFFSETS] or 0, self._fs)
        return Remembered(was_clean, known_recovery_point(offsets[RECOVERY_POINTS]), start)

    def write(self, recovery_point: int, log_start_offset: int) -> None:
        """Write both entries durably."""
        with self._held():
            self._replace(LOG_START_OFFSETS, log_start_offset or None)
            self._replace(RECOVERY_POINTS, recovery_point)

    def _replace(self, name: str, offset: int | None) -> None:
        """Set or remove the partition's entry. Those of other partitions stay."""
        before = self._read(name)
        after = {key: known for key, known in before.items() if key != self._partition}
        if offset is not None:
            after[self._partition] = offset
        if after != before:
            OffsetCheckpoint(self._log_dir / name, self._fs).write(after)

    def _read(self, name: str) -> dict[TopicPartition, int]:
        try:
            return OffsetCheckpoint(self._log_dir / name, self._fs).read()
        except CorruptCheckpointError as error:
            logger.warning("Ignoring a damaged checkpoint: %s", error)
            return {}

    @contextmanager
    def _held(self) -> Iterator[None]:
        with self._fs.open(self._log_dir) as directory:
            with suppress(OSError):  # no locks on this file system (NFS)
                fcntl.flock(directory.fileno(), fcntl.LOCK_EX)
            yield


def known_recovery_point(offset: int | None) -> int | None:
    """Return a recovery point from a checkpoint, or None for a negative one, which no broker writes."""
    return None if offset is None or offset < 0 else offset


def plausible_start(path: Path, offset: int, fs: FileSystem) -> int:
    """Return the log start offset, given that of a checkpoint.

    The log's own leader epochs are truncated before the checkpoint is written. If they begin earlier, the checkpoint is
    wrong (it has no checksum), and trusting it would delete valid records.
    """
    checkpoint = path / LEADER_EPOCH_CHECKPOINT
    if offset <= 0 or not fs.exists(checkpoint):
        return max(offset, 0)
    try:
        epochs = decode_epochs(fs.read_bytes(checkpoint), str(checkpoint))
    except CorruptCheckpointError:
        return offset
    if not epochs or epochs[0].start_offset >= offset:
        return offset
    logger.warning(
        "%s: the checkpoint has log start offset %d, the leader epochs begin at %d: using %d",
        path,
        offset,
        epochs[0].start_offset,
        epochs[0].start_offset,
    )
    return epochs[0].start_offset
