"""From a partition directory to a log that is open: whose it is, its epochs, its producers, its segments.

`recovery` does the segments. A log whose leader epochs are damaged finds them in its batches again.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from stratalog.config.topic import LogConfig
from stratalog.errors import CorruptCheckpointError, InconsistentTopicIdError
from stratalog.log.checkpoints import PartitionMetadataFile
from stratalog.log.file_names import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, parse_partition_dir
from stratalog.log.leader_epochs import UNDEFINED_EPOCH, LeaderEpochCache
from stratalog.log.local_log import LocalLog
from stratalog.log.producer_state import ProducerStateManager
from stratalog.log.recovery import LogLoader
from stratalog.log.segments import Segments
from stratalog.util.clock import Clock
from stratalog.util.filesystem import FileSystem

logger = logging.getLogger(__name__)


class OpenedLog(NamedTuple):
    """What a partition directory holds."""

    topic: str
    partition: int
    topic_id: UUID | None
    leader_epochs: LeaderEpochCache
    local: LocalLog


def open_directory(
    directory: Path,
    config: LogConfig,
    *,
    topic_id: UUID | None,
    clock: Clock,
    fs: FileSystem,
    clean_shutdown: bool,
    recovery_point: int,
    log_start_offset: int,
) -> OpenedLog:
    """What `PartitionLog.open` says."""
    named = parse_partition_dir(directory.name)
    if named is None:
        raise ValueError(f"{directory}: not the name of a partition directory, <topic>-<partition>")
    topic, partition = named
    name = f"{topic}-{partition}"
    fs.make_dirs(directory)
    topic_id = _identify(directory, topic_id, fs)
    epochs, epochs_lost = _open_epochs(directory / LEADER_EPOCH_CHECKPOINT, fs)
    producers = ProducerStateManager(name, directory, clock=clock, fs=fs)
    loaded = LogLoader(
        directory,
        name,
        config,
        clock=clock,
        fs=fs,
        clean_shutdown=clean_shutdown,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        leader_epochs=epochs,
        producers=producers,
    ).load()
    if epochs_lost:
        _restore_epochs(epochs, loaded.segments)
    local = LocalLog(directory, name, config, clock=clock, fs=fs, producers=producers, loaded=loaded)
    return OpenedLog(topic, partition, topic_id, epochs, local)


def _identify(directory: Path, topic_id: UUID | None, fs: FileSystem) -> UUID | None:
    """The directory's topic id, written if it has none yet."""
    metadata = PartitionMetadataFile(directory / PARTITION_METADATA, fs)
    try:
        stored = metadata.read()
    except CorruptCheckpointError as error:
        if topic_id is None:
            raise
        logger.warning("writing %s anew: %s", metadata.path, error)
        stored = None
    if stored is None:
        if topic_id is not None:
            metadata.write(topic_id)
        return topic_id
    if topic_id is not None and stored != topic_id:
        raise InconsistentTopicIdError(f"{metadata.path}: topic id {stored}, expected {topic_id}")
    return stored


def _open_epochs(path: Path, fs: FileSystem) -> tuple[LeaderEpochCache, bool]:
    """The leader epochs, and whether the file was damaged and they must be found in the batches."""
    try:
        return LeaderEpochCache(path, fs), False
    except CorruptCheckpointError as error:
        logger.warning("reading leader epochs from the log: %s", error)
        fs.remove(path)
        return LeaderEpochCache(path, fs), True


def _restore_epochs(epochs: LeaderEpochCache, segments: Segments) -> None:
    for segment in segments:
        for _, header in segment.headers():
            latest = epochs.latest_epoch
            if header[2] > (UNDEFINED_EPOCH if latest is None else latest):
                epochs.assign(header[2], header[0])
