"""Values that the remote tier reports, as of one moment."""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.remote.api import RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class RunResult:
    """Result of one run of a partition's tasks: segments copied and segments deleted."""

    copied: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class TierLag:
    """Sealed segments not yet in the remote tier, or remote ones yet to be deleted."""

    segments: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RemoteTally:
    """Totals of a partition's metadata, and how long their computation took.

    `metadata_count` counts segments in every state before DELETE_SEGMENT_FINISHED, `size_bytes` those that were copied.
    """

    metadata_count: int = 0
    size_bytes: int = 0
    computation_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class RemoteSizes:
    """Number of segments of a partition in any state, and the bytes of the readable ones."""

    segments: int
    readable_segments: int
    readable_bytes: int


@dataclass(frozen=True, slots=True)
class RemoteTotals:
    """Totals of a partition that a metadata manager updates with each event.

    Segments in any state, the readable ones, and the bytes of these. `clamped` are the readable ones with the largest
    size of Kafka's field: their true size may be larger.
    """

    segments: int
    readable_segments: int
    readable_bytes: int
    clamped: tuple[RemoteLogSegmentMetadata, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionGauges:
    """Values of Kafka's gauges of a tiered partition; sizes in bytes."""

    copy_lag_bytes: int
    copy_lag_segments: int
    delete_lag_bytes: int
    delete_lag_segments: int
    metadata_count: int
    size_bytes: int
    size_computation_ms: float


@dataclass(slots=True)
class ReaderTime:
    """Number and total time of finished reads of the remote tier.

    Kafka's RemoteLogReaderFetchRateAndTimeMs.
    """

    reads: int = 0
    total_ms: float = 0.0

    def add(self, elapsed_ms: float) -> None:
        self.reads += 1
        self.total_ms += elapsed_ms
