"""What the remote tier says of itself: plain values, as of one moment."""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.remote.api import RemoteLogSegmentMetadata


@dataclass(frozen=True, slots=True)
class RunResult:
    """What one turn of a partition's tasks did: segments copied and segments deleted."""

    copied: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class TierLag:
    """Sealed segments that are not in the remote tier yet, or remote ones that are left to delete."""

    segments: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RemoteTally:
    """What the metadata of a partition adds up to, and how long it took to tell.

    `metadata_count` counts segments in every state before the end of their deletion, `size_bytes` those that were
    copied.
    """

    metadata_count: int = 0
    size_bytes: int = 0
    computation_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class RemoteSizes:
    """What the metadata knows of a partition: all segments in any state, and the bytes of the readable ones."""

    segments: int
    readable_segments: int
    readable_bytes: int


@dataclass(frozen=True, slots=True)
class RemoteTotals:
    """What a metadata manager adds up of a partition as events come, so that no caller has to walk over its segments.

    Segments in any state, the readable ones, and the bytes of these; `clamped` are the readable ones whose size is the
    largest that Kafka's field holds, as their true size may be larger.
    """

    segments: int
    readable_segments: int
    readable_bytes: int
    clamped: tuple[RemoteLogSegmentMetadata, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionGauges:
    """What Kafka's gauges of a tiered partition say; sizes in bytes."""

    copy_lag_bytes: int
    copy_lag_segments: int
    delete_lag_bytes: int
    delete_lag_segments: int
    metadata_count: int
    size_bytes: int
    size_computation_ms: float


@dataclass(slots=True)
class ReaderTime:
    """Reads of the remote tier that have ended, and the time that they took.

    Kafka's RemoteLogReaderFetchRateAndTimeMs.
    """

    reads: int = 0
    total_ms: float = 0.0

    def add(self, elapsed_ms: float) -> None:
        self.reads += 1
        self.total_ms += elapsed_ms
