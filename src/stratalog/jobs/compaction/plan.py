"""The plan of one partition's compaction, made before records are read. Pure, except `keys_estimate`.

It covers closed segments up to the end offset. Those of one group become one segment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final

from stratalog.config import LogConfig
from stratalog.errors import KafkaError
from stratalog.inspect import ByteSources
from stratalog.jobs.compaction.upload import Upload
from stratalog.jobs.compaction.values import (
    FilterFacts,
    KeysTask,
    RewriteTask,
    SegmentSummary,
    SourceSegment,
)
from stratalog.log.cleaner import LastRecord, MetData, SegmentSizes, group_by_size
from stratalog.log.index import AbortedTransaction
from stratalog.records import HEADER_SIZE, LOG_OVERHEAD, MAGIC, RecordBatch
from stratalog.remote.api import INT32_MAX

#: The maximum number of entries in a bucket, and so of keys in the memory of one task.
KEYS_A_BUCKET: Final = 1_000_000
#: Buckets are not made smaller than this just to have one for each core.
_KEYS_A_BUCKET_MIN: Final = 100_000

_SAMPLE_BYTES: Final = 64 * 1024
#: For a segment without statistics.
_RECORD_BYTES: Final = 100


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """The plan of one partition. `aborted` has the transaction index entries of each of `sources`, in order.

    Offsets from `first_dirty_offset` on were not compacted before. New segments are made in `directory`.
    """

    topic: str
    partition: int
    sources: Sequence[SourceSegment]
    aborted: Sequence[Sequence[AbortedTransaction]]
    first_dirty_offset: int
    end_offset: int
    high_watermark: int
    last_records: Mapping[int, LastRecord] = field(hash=False)
    config: LogConfig
    now_ms: int
    places: ByteSources
    directory: str
    #: Returns where the new segment of some sources goes; None: it stays in `directory`.
    upload: Callable[[range], Upload] | None = None

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def bytes(self) -> int:
        return sum(source.size for source in self.sources)

    @property
    def dirty_bytes(self) -> int:
        """The size of the segments that were not compacted before."""
        return sum(source.size for source in self.sources if source.end_offset > self.first_dirty_offset)

    @property
    def dirty_ratio(self) -> float:
        """The share of the segments that were not compacted before."""
        return self.dirty_bytes / self.bytes if self.bytes else 0.0

    def groups(self) -> list[range]:
        """Return the runs of segments, by their numbers, that become one segment each."""
        facts = [
            SegmentSizes(each.base_offset, each.size, each.offset_index_size, each.time_index_size)
            for each in self.sources
        ]
        return group_by_size(
            facts,
            size_max=self.config.segment_bytes,
            index_size_max=self.config.segment_index_bytes,
            first_uncleanable_offset=self.end_offset,
        )

    def aborted_in(self, segment: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap a segment. Their markers are in it or after it."""
        end = self.sources[segment].end_offset
        found = []
        for entries in self.aborted[segment:]:
            for transaction in entries:
                if transaction.first_offset < end:
                    found.append(transaction)
                if transaction.last_stable_offset >= end:
                    return found
        return found

    def facts(self) -> FilterFacts:
        clean = [source for source in self.sources if source.base_offset < self.first_dirty_offset]
        retention_ms = self.config.delete_retention_ms
        return FilterFacts(
            now_ms=self.now_ms,
            delete_retention_ms=retention_ms,
            legacy_horizon_ms=clean[-1].last_modified_ms - retention_ms if clean else 0,
            latest_offset=self.end_offset - 1,
            high_watermark=self.high_watermark,
            last_records=dict(self.last_records),
        )


def topic_config(properties: Mapping[str, str], *, is_large: bool = False) -> LogConfig:
    """Return a topic's configuration, with large indexes if it has or needs them. Raises InvalidConfigError."""
    size = properties.get("segment.bytes", "")
    needs_large = size.isdigit() and int(size) > INT32_MAX
    return LogConfig.from_properties(properties, use_large_index_format=is_large or needs_large)


def buckets_of(keys: int, cores: int) -> int:
    """Return the number of buckets for a number of keys."""
    by_size = -(-keys // KEYS_A_BUCKET)
    by_cores = min(cores, -(-keys // _KEYS_A_BUCKET_MIN))
    return max(by_size, by_cores, 1)


def keys_tasks(plans: Sequence[CompactionPlan], estimates: Sequence[int], cores: int) -> tuple[list[KeysTask], int]:
    """Return the tasks of step 1 for all segments of all partitions, and the number of buckets."""
    tasks: list[KeysTask] = []
    first_bucket = 0
    for part, (plan, keys) in enumerate(zip(plans, estimates, strict=True)):
        buckets = buckets_of(keys, cores)
        for segment, source in enumerate(plan.sources):
            task = KeysTask(
                part=part,
                segment=segment,
                source=source,
                places=plan.places,
                aborted=plan.aborted_in(segment),
                first_bucket=first_bucket,
                buckets=buckets,
            )
            tasks.append(task)
        first_bucket += buckets
    return tasks, first_bucket


def met_before(summaries: Sequence[SegmentSummary]) -> list[MetData]:
    """Return the transactions that a cleaning has met before each of these consecutive segments."""

    def after(before: MetData, segment: SegmentSummary) -> MetData:
        return MetData(
            aborted=(before.aborted - segment.aborts) | segment.met.aborted,
            committed=(before.committed - segment.commits) | segment.met.committed,
        )

    return list(accumulate(summaries[:-1], after, initial=MetData()))


@dataclass(frozen=True, slots=True)
class PartitionSurvey:
    """The results of steps 1 and 2: a summary of each segment, its superseded records, and the seconds of step 2."""

    summaries: Sequence[SegmentSummary]
    superseded: Sequence[int]
    seconds: float

    def changes(self, segments: range) -> bool:
        """Return whether rewriting a group would change it."""
        if len(segments) != 1:
            return True
        summary = self.summaries[segments[0]]
        return bool(self.superseded[segments[0]] or summary.keyless or summary.tombstones or summary.special_batches)


def rewrite_tasks(part: int, plan: CompactionPlan, survey: PartitionSurvey) -> list[RewriteTask]:
    """Return step 3 for the groups of one partition that change. `group` is the number within the partition."""
    met = met_before(survey.summaries)
    facts = plan.facts()
    return [
        RewriteTask(
            part=part,
            group=number,
            sources=[plan.sources[segment] for segment in segments],
            places=plan.places,
            aborted=[plan.aborted_in(segment) for segment in segments],
            met=met[segments[0]],
            facts=_narrowed(facts, plan.sources[segments[0]].base_offset, plan.sources[segments[-1]].end_offset),
            config=plan.config,
            directory=plan.directory,
            upload=None if plan.upload is None else plan.upload(segments),
        )
        for number, segments in enumerate(plan.groups())
        if survey.changes(segments)
    ]


def _narrowed(facts: FilterFacts, start: int, end: int) -> FilterFacts:
    """Return the facts without producers whose last batch is not in the group."""
    last = {
        producer: record
        for producer, record in facts.last_records.items()
        if record.last_data_offset < 0 or start <= record.last_data_offset < end
    }
    return replace(facts, last_records=last)


def keys_estimate(plan: CompactionPlan) -> int:
    """Estimate the number of records of a partition from the beginning of its largest segment."""
    largest = max(plan.sources, key=lambda source: source.size, default=None)
    if largest is None:
        return 0
    sample = plan.places.read_range(largest.place, 0, min(_SAMPLE_BYTES, largest.size))
    return int(plan.bytes * records_a_byte(bytes(sample)))


def records_a_byte(data: bytes) -> float:
    """Return records per byte of the batches whose headers are in `data`, or a guess if there are none."""
    position = records = 0
    while position + HEADER_SIZE <= len(data):
        batch = RecordBatch(memoryview(data)[position : position + HEADER_SIZE])
        try:
            if batch.magic != MAGIC or batch.size <= LOG_OVERHEAD:
                break
            records += max(batch.record_count, 0)
            position += batch.size
        except KafkaError:
            break
    return records / position if position and records else 1 / _RECORD_BYTES
