"""Open a partition directory: identify it, and load its segments, leader epochs and producers.

`recovery` loads the segments. Damaged leader epochs are rebuilt from the batches.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from stratalog.errors import CorruptCheckpointError, CorruptRecordError, InconsistentTopicIdError
from stratalog.log.format import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    EpochEntry,
    PartitionMetadataFile,
    parse_future_dir,
    parse_partition_dir,
)
from stratalog.log.leader_epochs import UNDEFINED_EPOCH, LeaderEpochCache
from stratalog.log.local_log import LocalLog
from stratalog.log.producers import ProducerStateManager
from stratalog.log.recovery.recovery import LoadedLog, LogLoader, OpenSettings
from stratalog.log.segment import SegmentTable
from stratalog.util import FileSystem

logger = logging.getLogger(__name__)


class OpenedLog(NamedTuple):
    topic: str
    partition: int
    topic_id: UUID | None
    leader_epochs: LeaderEpochCache
    local: LocalLog
    was_clean: bool


def open_directory(
    directory: Path, settings: OpenSettings, *, topic_id: UUID | None, producer_expiration_ms: int
) -> OpenedLog:
    clock, fs = settings.clock, settings.fs
    named = parse_partition_dir(directory.name) or parse_future_dir(directory.name)
    if named is None:
        raise ValueError(f"{directory}: not the name of a partition directory, <topic>-<partition>")
    topic, partition = named
    name = f"{topic}-{partition}"
    fs.make_dirs(directory)
    # Nothing of a new log has to be durable before its first records: the first flush syncs these files too.
    is_new = not fs.list_dir(directory)
    topic_id = _identify(directory, topic_id, fs, durable=not is_new)
    epochs, epochs_lost = _open_epochs(directory / LEADER_EPOCH_CHECKPOINT, fs, durable=not is_new)
    producers = ProducerStateManager(name, directory, clock=clock, fs=fs, expiration_ms=producer_expiration_ms)
    loaded = LogLoader(directory, name, settings, epochs, producers).load()
    if epochs_lost or not _fit(epochs, loaded.segments):
        if not epochs_lost:
            logger.warning("%s: leader epochs are missing or of another log: reading them from this one", epochs.path)
        _restore_epochs(epochs, loaded, name)
    local = LocalLog(directory, name, settings.config, clock=clock, fs=fs, producers=producers, loaded=loaded)
    return OpenedLog(topic, partition, topic_id, epochs, local, settings.clean_shutdown)


def _identify(directory: Path, topic_id: UUID | None, fs: FileSystem, *, durable: bool) -> UUID | None:
    """Return the directory's topic id. Write it if there is none yet."""
    metadata = PartitionMetadataFile(directory / PARTITION_METADATA, fs)
    try:
        stored = metadata.read()
    except CorruptCheckpointError as error:
        if topic_id is None:
            raise
        logger.warning("rewriting %s: %s", metadata.path, error)
        stored = None
    if stored is None:
        if topic_id is not None:
            metadata.write(topic_id, durable=durable)
        return topic_id
    if topic_id is not None and stored != topic_id:
        raise InconsistentTopicIdError(f"{metadata.path}: topic id {stored}, expected {topic_id}")
    return stored


def _open_epochs(path: Path, fs: FileSystem, *, durable: bool) -> tuple[LeaderEpochCache, bool]:
    """Return the leader epochs, and whether the file was damaged and they must be read from the batches."""
    try:
        return LeaderEpochCache(path, fs, durable=durable), False
    except CorruptCheckpointError as error:
        logger.warning("reading leader epochs from the log: %s", error)
        fs.remove(path)
        return LeaderEpochCache(path, fs), True


def _restore_epochs(epochs: LeaderEpochCache, loaded: LoadedLog, name: str) -> None:
    """Rebuild the epochs from the batches, from the log start on. Damaged batches have none."""
    found: list[EpochEntry] = []
    latest = UNDEFINED_EPOCH
    for segment in loaded.segments:
        try:
            for _, header in segment.headers():
                if header[2] > latest:
                    latest = header[2]
                    found.append(EpochEntry(latest, header[0]))
        except CorruptRecordError as error:
            logger.warning("%s: leader epochs after this are not known: %s", name, error)
    epochs.clear()
    epochs.assign_all(found)
    epochs.truncate_from_start(loaded.log_start_offset)


def _fit(epochs: LeaderEpochCache, segments: SegmentTable) -> bool:
    """Return whether the epochs match the last segment: its first batch of the first epoch or a later one."""
    earliest = epochs.earliest_entry
    first_known = 0 if earliest is None else earliest.start_offset
    for segment in reversed(segments.all):
        offset = max(segment.base_offset, first_known)
        try:
            found = segment.translate_offset(offset)
            if found is None:
                continue
            for _, header in segment.headers(found.position, found.position + found.size):
                return header[2] < 0 or epochs.epoch_for_offset(max(offset, header[0])) == header[2]
        except CorruptRecordError:
            continue
    return True
