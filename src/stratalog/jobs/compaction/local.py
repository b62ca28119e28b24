"""Partitions of log directories: opened for the plan, closed while the steps run, and opened again for the swap.

Opening does what a broker does: it recovers a log that was not closed, and finishes or undoes an interrupted swap. New
segments are swapped in group after group, as the cleaner does (`log.replacement`). A crash at any moment leaves
complete segments, old or new, and the next run starts from those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from stratalog.config import LogConfig
from stratalog.inspect import ByteSources, Place, PlaceTier
from stratalog.jobs.compaction.data_dirs import LocalPartition, clear_attempts, note_cleaned
from stratalog.jobs.compaction.plan import CompactionPlan
from stratalog.jobs.compaction.values import Rewritten, SourceSegment
from stratalog.log import PartitionLog
from stratalog.log.cleaner import Candidate, CleanableLog, last_records
from stratalog.log.format import CLEANED_SUFFIX, LARGE
from stratalog.log.producers import NEVER
from stratalog.log.segment import LogSegment
from stratalog.util import REAL_FILESYSTEM, Clock, FileSystem


class LocalPlan(NamedTuple):
    """The plan of a local partition. `is_due`: a cleaner would compact it now."""

    partition: LocalPartition
    plan: CompactionPlan
    is_due: bool


@contextmanager
def opened(
    partition: LocalPartition, config: LogConfig, clock: Clock, fs: FileSystem = REAL_FILESYSTEM
) -> Iterator[PartitionLog]:
    """Yield the log, recovered if it was not closed. The high watermark is the checkpointed one, otherwise its end."""
    log = PartitionLog.open(
        partition.path,
        config,
        clock=clock,
        fs=fs,
        clean_shutdown=partition.was_clean,
        recovery_point=partition.recovery_point,
        log_start_offset=partition.log_start_offset,
        producer_expiration_ms=NEVER,
    )
    try:
        watermark = partition.high_watermark
        log.update_high_watermark(log.log_end_offset if watermark is None else watermark)
        yield log
    finally:
        log.close()


def plan_of(partition: LocalPartition, config: LogConfig, clock: Clock, fs: FileSystem = REAL_FILESYSTEM) -> LocalPlan:
    """Plan the compaction of a partition. Raises KafkaError or OSError."""
    clear_attempts(partition.path, fs)
    now_ms = clock.now_ms()
    with opened(partition, config, clock, fs) as log:
        facts = CleanableLog.of(log)
        candidate = Candidate.of(
            (partition.topic, partition.partition),
            facts,
            checkpointed=partition.cleaned_to,
            min_cleanable_ratio=config.min_cleanable_dirty_ratio,
            now_ms=now_ms,
        )
        first_dirty = candidate.first_dirty.offset
        end = candidate.dirtiness.first_uncleanable_offset
        if end <= first_dirty:  # nothing new
            end = log.log_start_offset
        segments = [segment for segment in log.segments if segment.base_offset < end]
        ends = [*(segment.base_offset for segment in segments), end][1:]
        plan = CompactionPlan(
            topic=partition.topic,
            partition=partition.partition,
            sources=[_source(segment, next_base) for segment, next_base in zip(segments, ends, strict=True)],
            aborted=[list(segment.txn_index.all) for segment in segments]
            + [list(segment.txn_index.all) for segment in log.segments[len(segments) :]],
            first_dirty_offset=first_dirty,
            end_offset=end,
            high_watermark=log.high_watermark,
            last_records=last_records(log),
            config=_as_indexed(config, log.segments),
            now_ms=now_ms,
            places=ByteSources(),
            directory=str(partition.path),
        )
    # It was closed a moment ago and is locked, so it needs no recovery.
    return LocalPlan(replace(partition, was_clean=True), plan, candidate.is_due)


def _as_indexed(config: LogConfig, segments: Sequence[LogSegment]) -> LogConfig:
    """Return the configuration, with large indexes if any exist: only a broker knows which format it uses."""
    is_large = any(segment.offset_index.entry_size == LARGE.entry_size for segment in segments)
    return replace(config, use_large_index_format=config.use_large_index_format or is_large)


def _source(segment: LogSegment, end_offset: int) -> SourceSegment:
    return SourceSegment(
        base_offset=segment.base_offset,
        end_offset=end_offset,
        size=segment.size_bytes,
        place=Place(PlaceTier.LOCAL, str(segment.log_path)),
        name=str(segment.log_path),
        last_modified_ms=segment.last_modified_ms,
        offset_index_size=segment.offset_index.size_in_bytes,
        time_index_size=segment.time_index.size_in_bytes,
    )


def swap_in(local: LocalPlan, rewritten: Sequence[Rewritten], clock: Clock, fs: FileSystem = REAL_FILESYSTEM) -> None:
    """Replace groups with their new segments, and record how far the partition is clean."""
    partition, plan = local.partition, local.plan
    groups = plan.groups()
    with opened(partition, plan.config, clock, fs) as log:
        for new in rewritten:
            bases = {plan.sources[number].base_offset for number in groups[new.group]}
            _move_in(Path(new.directory), partition.path, fs)
            cleaned = LogSegment(
                partition.path, new.base_offset, plan.config, clock=clock, fs=fs, suffix=CLEANED_SUFFIX
            )
            log.replace_segments([cleaned], [each for each in log.segments if each.base_offset in bases])
    cleaned_to = max(plan.end_offset, plan.first_dirty_offset)
    note_cleaned(partition.path.parent, partition.topic, partition.partition, cleaned_to, fs)


def _move_in(attempt: Path, directory: Path, fs: FileSystem) -> None:
    """Move the files of an attempt to `.cleaned` files of the partition."""
    for name in sorted(fs.list_dir(attempt)):
        fs.rename(attempt / name, directory / (name + CLEANED_SUFFIX))
    fs.sync_dir(directory)
    fs.remove_tree(attempt)


def discard(rewritten: Sequence[Rewritten], fs: FileSystem = REAL_FILESYSTEM) -> None:
    """Remove new segments that are not going to be swapped in."""
    for new in rewritten:
        fs.remove_tree(Path(new.directory))
