"""Rules for all segments of a partition together: duplicate offsets, missing offsets, other lineages.

Pure. Covers only the segments that readers use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stratalog.inspect import LogFacts
from stratalog.jobs.audit.findings import AuditKind, ObjectFinding, Offsets
from stratalog.jobs.findings import Severity
from stratalog.remote.api import TopicIdPartition, is_within_lineage, without_empty_epochs
from stratalog.remote.storage import SegmentManifest


def audit_offsets(
    partition: TopicIdPartition, readable: Sequence[SegmentManifest], log: LogFacts | None
) -> list[ObjectFinding]:
    """Return the findings of a partition's readable segments, in any order; `log` is None if unknown."""
    ordered = sorted(readable, key=lambda m: (m.base_offset, -m.end_offset, m.event_timestamp))
    findings: list[ObjectFinding] = []
    current: list[SegmentManifest] = []
    strangers = _of_another_lineage(ordered, log)
    log_start = None if log is None else log.log_start_offset
    for manifest in ordered:
        if log_start is not None and manifest.end_offset < log_start:
            findings.append(_below_log_start(manifest, log_start))
        elif id(manifest) in strangers:
            findings.append(_other_lineage(manifest))
        else:
            current.append(manifest)
    findings += _overlaps(current)
    findings += _gaps(partition, current, log)
    return findings


def _of_another_lineage(ordered: Sequence[SegmentManifest], log: LogFacts | None) -> set[int]:
    """Return the identities of the manifests that do not belong to the current lineage."""
    if log is not None and log.lineage:
        return {
            id(manifest)
            for manifest in ordered
            if not is_within_lineage(manifest.metadata(), log.log_end_offset, log.lineage)
        }
    return _older_than_before(ordered)


def _older_than_before(ordered: Sequence[SegmentManifest]) -> set[int]:
    """Find segments of abandoned lineages without asking a leader: in one lineage epochs ascend with offsets.

    The newest epochs are trusted first. A segment that contradicts them belongs to an abandoned lineage: one of its
    epochs ends after a later one has begun, or begins before an earlier one has ended.
    """
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    strangers = set()
    for manifest in sorted(ordered, key=lambda m: (max(m.leader_epochs), m.event_timestamp), reverse=True):
        ranges = list(_epoch_ranges(manifest))
        if any(
            any(start <= last for epoch, start in begins.items() if epoch > own)
            or any(end >= first for epoch, end in ends.items() if epoch < own)
            for own, first, last in ranges
        ):
            strangers.add(id(manifest))
            continue
        for own, first, last in ranges:
            begins[own] = min(first, begins.get(own, first))
            ends[own] = max(last, ends.get(own, last))
    return strangers


def _epoch_ranges(manifest: SegmentManifest) -> Iterator[tuple[int, int, int]]:
    """Yield epoch, first and last offset of every epoch that has records in a segment."""
    epochs = sorted(without_empty_epochs(manifest.leader_epochs).items())
    following = [start - 1 for _, start in epochs[1:]] + [manifest.end_offset]
    for (epoch, start), last in zip(epochs, following, strict=True):
        yield epoch, start, last


def _overlaps(ordered: Sequence[SegmentManifest]) -> Iterator[ObjectFinding]:
    widest: SegmentManifest | None = None
    for manifest in ordered:
        if widest is not None and manifest.end_offset <= widest.end_offset:
            yield _finding(
                manifest,
                Severity.NOTE,
                AuditKind.COVERED,
                f"offsets {_offsets(widest)} of another segment cover it",
                "none: readers take the other one, and both go with retention",
            )
            continue
        if widest is not None and manifest.base_offset <= widest.end_offset:
            yield _finding(
                manifest,
                Severity.WARNING,
                AuditKind.OVERLAP,
                f"offsets {Offsets(manifest.base_offset, widest.end_offset)} are in the segment {_offsets(widest)} too",
                "none: readers take each offset once, and both go with retention",
            )
        widest = manifest


def _gaps(
    partition: TopicIdPartition, ordered: Sequence[SegmentManifest], log: LogFacts | None
) -> Iterator[ObjectFinding]:
    """Report offsets between the first and the last that no segment has; with `log`, those that neither tier has."""
    expected = None if log is None else log.log_start_offset
    if expected is None:
        if not ordered:
            return
        expected = ordered[0].base_offset
    for manifest in ordered:
        if manifest.base_offset > expected:
            yield from _gap(partition, Offsets(expected, manifest.base_offset - 1), log)
        expected = max(expected, manifest.end_offset + 1)
    if log is not None and expected < log.local_log_start_offset:
        yield from _gap(partition, Offsets(expected, log.local_log_start_offset - 1), log)


def _gap(partition: TopicIdPartition, missing: Offsets, log: LogFacts | None) -> Iterator[ObjectFinding]:
    if log is None:
        severity, kind, text = Severity.WARNING, AuditKind.GAP, "no segment has these offsets"
        action = "give the data directory (--data-dir), which may have them"
    elif missing.first >= log.local_log_start_offset:
        severity, kind, text = Severity.NOTE, AuditKind.GAP, "only the local log has these offsets"
        action = "none: the broker copies them, unless copying is disabled"
    else:
        lost = Offsets(missing.first, min(missing.last, log.local_log_start_offset - 1))
        missing = lost
        severity, kind, text = Severity.ERROR, AuditKind.LOST_OFFSETS, "neither tier has these offsets"
        action = "look for them in a replica or in an older version of the bucket"
    yield ObjectFinding(
        severity=severity,
        kind=kind,
        topic=partition.topic,
        partition=partition.partition,
        offsets=missing,
        text=text,
        action=action,
    )


def _below_log_start(manifest: SegmentManifest, log_start_offset: int) -> ObjectFinding:
    return _finding(
        manifest,
        Severity.NOTE,
        AuditKind.BELOW_LOG_START,
        f"it ends below the log start offset {log_start_offset}",
        "none: the broker deletes it in its next run",
    )


def _other_lineage(manifest: SegmentManifest) -> ObjectFinding:
    epochs = ", ".join(f"{epoch} from {start}" for epoch, start in sorted(manifest.leader_epochs.items()))
    return _finding(
        manifest,
        Severity.WARNING,
        AuditKind.OTHER_LINEAGE,
        f"its leader epochs ({epochs}) belong to an abandoned lineage",
        "none: the broker deletes it once its epochs are older than the log's first",
    )


def _finding(manifest: SegmentManifest, severity: Severity, kind: AuditKind, text: str, action: str) -> ObjectFinding:
    return ObjectFinding(
        severity=severity,
        kind=kind,
        topic=manifest.topic,
        partition=manifest.partition,
        segment_id=manifest.segment_id,
        object_key=manifest.key(),
        offsets=_offsets(manifest),
        bytes=manifest.segment_size_in_bytes,
        text=text,
        action=action,
        newest_ms=manifest.event_timestamp,
    )


def _offsets(manifest: SegmentManifest) -> Offsets:
    return Offsets(manifest.base_offset, manifest.end_offset)
