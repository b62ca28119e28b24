"""Values that the steps of a compaction exchange. All of them can be pickled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stratalog.config import LogConfig
from stratalog.inspect import ByteSources, Place
from stratalog.jobs.compaction.upload import Upload
from stratalog.log.cleaner import LastRecord, MetData
from stratalog.log.index import AbortedTransaction
from stratalog.remote.storage import SegmentManifest


@dataclass(frozen=True, slots=True)
class SourceSegment:
    """A closed segment: offsets [base_offset, end_offset) in `size` bytes. `name` is for messages."""

    base_offset: int
    end_offset: int
    size: int
    place: Place
    name: str
    last_modified_ms: int
    offset_index_size: int = 0
    time_index_size: int = 0


@dataclass(frozen=True, slots=True)
class KeysTask:
    """Step 1 of one segment, which is number `segment` of its partition (number `part` of the job)."""

    part: int
    segment: int
    source: SourceSegment
    places: ByteSources
    #: Transactions that overlap the segment.
    aborted: Sequence[AbortedTransaction]
    #: The partition has buckets [first_bucket, first_bucket + buckets) of the job.
    first_bucket: int
    buckets: int


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """The result of step 1 for one segment. `commits` and `aborts` are the producers whose markers are in it."""

    part: int
    segment: int
    bytes: int = 0
    batches: int = 0
    records: int = 0
    keys: int = 0
    keyless: int = 0
    tombstones: int = 0
    markers: int = 0
    #: Batches that cleaning may change independently of their keys.
    special_batches: int = 0
    seconds: float = 0.0
    met: MetData = field(default_factory=MetData)
    commits: frozenset[int] = frozenset()
    aborts: frozenset[int] = frozenset()

    @property
    def aborted(self) -> int:
        """Records of aborted transactions."""
        return self.records - self.keys - self.keyless - self.markers


@dataclass(frozen=True, slots=True)
class FilterFacts:
    """The facts that decide which records of a partition stay. See `log.cleaner.filter_plain.FilterRules`."""

    now_ms: int
    delete_retention_ms: int
    #: Tombstones of message formats 0 and 1 stay in segments that were modified after this time.
    legacy_horizon_ms: int
    #: Records after it stay.
    latest_offset: int
    high_watermark: int
    last_records: Mapping[int, LastRecord] = field(hash=False)


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """Step 3 of one group of neighbouring segments. `aborted` has the transactions that overlap each."""

    part: int
    group: int
    sources: Sequence[SourceSegment]
    places: ByteSources
    aborted: Sequence[Sequence[AbortedTransaction]]
    met: MetData
    facts: FilterFacts
    config: LogConfig
    #: The parent of the attempt's directory; empty for Spark's local directory on the worker.
    directory: str
    #: The destination of the new segment, None if it stays where it was written.
    upload: Upload | None = None


class RewriteStats(NamedTuple):
    """The counts of one rewritten group."""

    bytes_read: int
    bytes_written: int
    records_read: int
    records_written: int
    keyless: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The new segment of a group: files in `directory`, or objects in the bucket that lack only their `manifest`."""

    part: int
    group: int
    base_offset: int
    directory: str
    stats: RewriteStats
    manifest: SegmentManifest | None = None
