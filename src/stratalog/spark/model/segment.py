"""A segment of a partition in either tier, and the range of its offsets to read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from stratalog.inspect import Place, PlaceTier
from stratalog.remote.storage import ObjectKind, SegmentManifest


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment: offsets [base_offset, end_offset) in the first `size` bytes of `log`, all of them whole batches.

    `log` has the mark of its last batch. `max_timestamp_ms` is an upper bound of its timestamps, None if unknown.
    `is_active`: records may still be added. Indexes may be missing or damaged. Remote segments have a `manifest`.
    """

    base_offset: int
    end_offset: int
    size: int
    max_timestamp_ms: int | None
    log: Place
    index: Place | None = None
    time_index: Place | None = None
    txn_index: Place | None = None
    snapshot: Place | None = None
    is_active: bool = False
    epoch: int = -1
    manifest: SegmentManifest | None = None

    @property
    def tier(self) -> PlaceTier:
        return self.log.tier


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """The offsets [start, end) that are read from `segment`."""

    segment: Segment
    start: int
    end: int


def within(ranges: Iterable[SegmentRange], start: int, end: int) -> list[SegmentRange]:
    return [
        replace(each, start=max(each.start, start), end=min(each.end, end))
        for each in ranges
        if max(each.start, start) < min(each.end, end)
    ]


def remote_segment(manifest: SegmentManifest) -> Segment:
    """Return the segment that a manifest describes."""

    def place(kind: ObjectKind) -> Place | None:
        return Place(PlaceTier.REMOTE, manifest.key(kind)) if kind in manifest.objects else None

    return Segment(
        base_offset=manifest.base_offset,
        end_offset=manifest.end_offset + 1,
        size=manifest.segment_size_in_bytes,
        max_timestamp_ms=manifest.max_timestamp if manifest.max_timestamp >= 0 else None,
        log=Place(PlaceTier.REMOTE, manifest.key()),
        index=place(ObjectKind.OFFSET_INDEX),
        time_index=place(ObjectKind.TIME_INDEX),
        txn_index=None if manifest.txn_index_empty else place(ObjectKind.TXN_INDEX),
        snapshot=place(ObjectKind.PRODUCER_SNAPSHOT),
        epoch=max(manifest.leader_epochs),
        manifest=manifest,
    )


def broker_segment(topic: str, partition: int, start: int, end: int) -> Segment:
    """Return a partition read through brokers, as one segment of unknown size without indexes."""
    place = Place(PlaceTier.BROKER, f"{topic}-{partition}")
    return Segment(base_offset=start, end_offset=end, size=0, max_timestamp_ms=None, log=place)


def has_compact_policy(segment: Segment) -> bool:
    """Return whether the manifest of a remote segment records a `cleanup.policy` that includes compact."""
    policy = ((segment.manifest.topic_config if segment.manifest else None) or {}).get("cleanup.policy", "")
    return "compact" in (part.strip() for part in policy.split(","))
