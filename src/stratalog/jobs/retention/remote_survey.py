"""Forecast retention for a partition from the files on disk and in a bucket, without a broker or an open log.

A partition is a directory, remote segments, or both. Where the files do not tell, the forecast assumes that the high
watermark is the log end offset, and that no records were deleted after the log start checkpoint was written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from stratalog.config import LogConfig
from stratalog.errors import CorruptCheckpointError
from stratalog.inspect import LogOnDisk, read_local_log
from stratalog.jobs.retention.fate import Fate, Rhythm
from stratalog.jobs.retention.forecast import forecast_local
from stratalog.jobs.retention.remote_forecast import forecast_remote
from stratalog.log.format import LEADER_EPOCH_CHECKPOINT, LOG_START_OFFSETS, OffsetCheckpoint, decode_epochs
from stratalog.log.retention import RetentionLimits
from stratalog.remote.api import RemoteLogSegmentMetadata, is_within_lineage, lineage_of, without_empty_epochs
from stratalog.remote.tier import RetentionFacts
from stratalog.util import REAL_FILESYSTEM, FileSystem


@dataclass(frozen=True, slots=True)
class KnownOffsets:
    """Offsets of a partition that a running broker reports. They take precedence over files."""

    log_start_offset: int
    high_watermark: int
    local_log_start_offset: int | None = None
    #: -1: nothing exists; None: not asked.
    highest_remote_offset: int | None = None


@dataclass(frozen=True, slots=True)
class SurveyedPartition:
    """The places of a partition: its directory (None: not here), and its remote segments in any live state."""

    topic: str
    partition: int
    directory: Path | None = None
    remote: tuple[RemoteLogSegmentMetadata, ...] = field(default=(), hash=False)
    known: KnownOffsets | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class _Facts:
    local: LogOnDisk
    log_start_offset: int
    local_log_start_offset: int
    high_watermark: int
    log_end_offset: int
    highest_remote_offset: int
    lineage: Mapping[int, int] = field(hash=False)


def survey(
    partition: SurveyedPartition,
    config: LogConfig,
    now_ms: int,
    rhythm: Rhythm,
    fs: FileSystem = REAL_FILESYSTEM,
) -> list[Fate]:
    """Return the fate of every segment of a partition: first those in the bucket, then those on disk. Raises OSError.

    Records that are in both tiers have a fate in each.
    """
    facts = _facts(partition, fs)
    fates: list[Fate] = []
    if partition.remote:
        fates += forecast_remote(partition.remote, _remote_facts(facts, config, now_ms), config)
    if facts.local.segments:
        limits = RetentionLimits.of(
            config,
            log_start_offset=facts.log_start_offset,
            local_log_start_offset=facts.local_log_start_offset,
            high_watermark=facts.high_watermark,
            log_end_offset=facts.log_end_offset,
            highest_offset_in_remote_storage=facts.highest_remote_offset,
        )
        local_rhythm = replace(rhythm, file_delete_delay_ms=config.file_delete_delay_ms)
        fates += forecast_local(facts.local.segments, limits, config, now_ms, local_rhythm)
    return fates


def _remote_facts(facts: _Facts, config: LogConfig, now_ms: int) -> RetentionFacts:
    deletes = "delete" in config.cleanup_policy
    return RetentionFacts(
        retention_ms=config.retention_ms if deletes else -1,
        retention_bytes=config.retention_bytes if deletes else -1,
        now_ms=now_ms,
        log_start_offset=facts.log_start_offset,
        log_end_offset=facts.log_end_offset,
        only_local_bytes=sum(
            segment.size_bytes for segment in facts.local.segments if segment.base_offset > facts.highest_remote_offset
        ),
        lineage=facts.lineage,
    )


def _facts(partition: SurveyedPartition, fs: FileSystem) -> _Facts:
    finished = [segment for segment in partition.remote if segment.is_readable]
    if partition.directory is None:
        local, lineage = LogOnDisk(()), _lineage_of_remote(finished)
    else:
        local, lineage = read_local_log(partition.directory, fs), _lineage_of_log(partition.directory, fs)
    end = max([local.log_end_offset, *(segment.end_offset + 1 for segment in finished)])
    if local.segments:
        end = local.log_end_offset
    readable = [segment for segment in finished if is_within_lineage(segment, end, lineage)]
    highest = max((segment.end_offset for segment in readable), default=-1)
    checkpoint = _checkpointed_start(partition, fs)
    local_start = max(local.base_offset, checkpoint)
    first = min([s.start_offset for s in readable] + ([local_start] if local.segments else []), default=0)
    start = max(first, checkpoint)
    known = partition.known
    if known is None:
        return _Facts(
            local=local,
            log_start_offset=start,
            local_log_start_offset=max(local_start, start) if local.segments else start,
            high_watermark=end,
            log_end_offset=end,
            highest_remote_offset=highest,
            lineage=lineage,
        )
    if known.highest_remote_offset is not None:
        highest = known.highest_remote_offset
    return _Facts(
        local=local,
        log_start_offset=known.log_start_offset,
        local_log_start_offset=max(known.local_log_start_offset or 0, local_start),
        high_watermark=known.high_watermark,
        log_end_offset=max(end, known.high_watermark),
        highest_remote_offset=highest,
        lineage=lineage,
    )


def _checkpointed_start(partition: SurveyedPartition, fs: FileSystem) -> int:
    if partition.directory is None:
        return 0
    try:
        starts = OffsetCheckpoint(partition.directory.parent / LOG_START_OFFSETS, fs).read()
    except (CorruptCheckpointError, OSError):
        return 0
    return starts.get((partition.topic, partition.partition), 0)


def _lineage_of_log(directory: Path, fs: FileSystem) -> dict[int, int]:
    try:
        return lineage_of(decode_epochs(fs.read_bytes(directory / LEADER_EPOCH_CHECKPOINT)))
    except (CorruptCheckpointError, OSError):
        return {}


def _lineage_of_remote(finished: Sequence[RemoteLogSegmentMetadata]) -> dict[int, int]:
    """Return the lineage of the newest segment, with earlier epochs from older segments."""
    if not finished:
        return {}
    newest = max(finished, key=lambda s: (max(s.segment_leader_epochs), s.end_offset, s.event_timestamp_ms))
    epochs = dict(newest.segment_leader_epochs)
    for segment in sorted(finished, key=lambda s: (-s.end_offset, -s.event_timestamp_ms)):
        first = min(epochs)
        for epoch, start in segment.segment_leader_epochs.items():
            if epoch < first or (epoch == first and start < epochs[first]):
                epochs[epoch] = start
    return without_empty_epochs(epochs)


def config_of(properties: Mapping[str, str], what_if: Mapping[str, str] | None = None) -> LogConfig:
    """Return a topic's configuration with the trial settings. Raises InvalidConfigError that names a key."""
    merged = {**properties, **(what_if or {})}
    return LogConfig.from_properties(merged, use_large_index_format=True)
