"""Check one partition directory: its segments, the files derived from them, and how they fit together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from uuid import UUID

from stratalog.errors import CorruptCheckpointError
from stratalog.jobs.fsck.actions import CutTail
from stratalog.jobs.fsck.derived import check_derived
from stratalog.jobs.fsck.epochs import check_epochs
from stratalog.jobs.fsck.findings import FsckFindings, FsckKind
from stratalog.jobs.fsck.indexes import check_indexes
from stratalog.jobs.fsck.layout import Layout, read_layout
from stratalog.jobs.fsck.log_end import LogEnd, cut_of, trailing_damage
from stratalog.jobs.fsck.segment import SegmentScan, read_segment
from stratalog.log.format import METADATA_LOG, PARTITION_METADATA, checkpoints, log_file
from stratalog.util import FileSystem


@dataclass
class PartitionReport:
    """The findings in one partition directory.

    The log ends after its last sound batch, or later if it lost records there.
    """

    name: str
    directory: Path
    findings: FsckFindings
    segments: int = 0
    batches: int = 0
    size: int = 0
    first_offset: int = 0
    log_end_offset: int = 0
    topic_id: UUID | None = None
    #: Whether the start and end of the log are known, because every segment could be read.
    is_readable: bool = True


def check_partition(
    directory: Path,
    fs: FileSystem,
    facts: Mapping[Path, SegmentScan],
    *,
    was_clean: bool = False,
    log_start_offset: int | None = None,
    recovery_point: int | None = None,
    accept_loss: bool = False,
) -> PartitionReport:
    """Check a partition directory. Reads the segments that `facts` does not have.

    `was_clean`: the last broker stopped cleanly. `log_start_offset` and `recovery_point` come from the checkpoints of
    the log directory; None if there is no entry, or it may be out of date. With `accept_loss` repair may remove damage
    at the end of a segment although its records were acknowledged.

    A file that cannot be read is a finding. Raises OSError if the directory cannot be listed.
    """
    report = PartitionReport(directory.name, directory, FsckFindings(directory.name))
    layout = read_layout(directory, fs)
    report.findings += layout.findings
    segments = _read_segments(layout, report, fs, facts)
    if segments:
        report.segments, report.batches = len(segments), sum(facts.batches for facts in segments)
        report.size = sum(facts.size for facts in segments)
        report.first_offset, report.log_end_offset = segments[0].base_offset, segments[-1].next_offset
    if not segments and report.is_readable:
        report.findings.add(FsckKind.NO_SEGMENTS, directory, "no .log", "at least one segment")
    tails: dict[int, CutTail] = {}
    if accept_loss:
        tails = {facts.base_offset: cut_of(facts, fs) for facts in segments[:-1] if trailing_damage(facts)}
    if report.is_readable:
        end = LogEnd(directory, segments, layout.snapshots, fs, was_clean=was_clean, recovery_point=recovery_point)
        report.log_end_offset = end.offset
        at_end = end.findings(accept_loss=accept_loss)
        report.findings += at_end
        for one in at_end:
            if isinstance(one.action, CutTail):
                tails[segments[-1].base_offset] = one.action
    _add_faults(segments, tails, report)
    _add_neighbours(segments, report)
    _check_indexes(segments, tails, report, fs, was_clean=was_clean)
    end_offset = report.log_end_offset
    report.findings += check_derived(segments, layout, fs, end_offset)
    report.findings += check_epochs(segments, directory, fs, log_start_offset, end_offset)
    _check_topic_id(report, fs)
    return report


def _read_segments(
    layout: Layout, report: PartitionReport, fs: FileSystem, known: Mapping[Path, SegmentScan]
) -> list[SegmentScan]:
    segments = []
    for base in layout.segments:
        path = layout.directory / log_file(base)
        try:
            segments.append(known.get(path) or read_segment(path, base, layout.snapshots, fs))
        except OSError as error:
            report.is_readable = False
            report.findings.add_unreadable(path, error)
    return segments


def _add_faults(segments: Sequence[SegmentScan], tails: dict[int, CutTail], report: PartitionReport) -> None:
    """Report the faults of the logs themselves, except those after the last sound batch of the partition.

    `tails` has the cut of each segment that gets one.
    """
    for facts in segments:
        trailing = trailing_damage(facts)
        for one in facts.faults:
            if facts is segments[-1] and report.is_readable and one in trailing:
                continue
            report.findings.add(
                one.kind,
                facts.path,
                one.found,
                one.expected,
                position=one.position,
                size=one.size,
                action=tails.get(facts.base_offset) if one in trailing else None,
            )


def _add_neighbours(segments: Sequence[SegmentScan], report: PartitionReport) -> None:
    """Report overlaps of segments, and gaps between them. Compaction leaves gaps everywhere, which are no fault."""
    is_compacted = any(facts.has_gaps for facts in segments)
    for facts, following in pairwise(segments):
        if facts.next_offset > following.base_offset:
            report.findings.add(
                FsckKind.SEGMENT_OVERLAP,
                facts.path,
                f"offsets up to {facts.last_offset}",
                f"offsets below {following.base_offset}, where the next segment begins",
            )
        elif facts.next_offset < following.base_offset and facts.is_sound and not is_compacted:
            report.findings.add(
                FsckKind.SEGMENT_GAP,
                following.path,
                f"no records from offset {facts.next_offset} to {following.base_offset - 1}",
                "a segment that begins where the one before ends; there are no other gaps, such as compaction leaves",
            )


def _check_indexes(
    segments: Sequence[SegmentScan],
    tails: dict[int, CutTail],
    report: PartitionReport,
    fs: FileSystem,
    *,
    was_clean: bool,
) -> None:
    for facts in segments:
        if any(one.kind is FsckKind.NO_BATCH and one.position < facts.sound_end for one in facts.faults):
            continue  # it cannot be walked, so its indexes can neither be checked nor rebuilt
        can_rebuild = facts.is_sound or (facts.base_offset in tails and not facts.has_damage_within)
        is_sealed = facts is not segments[-1] or (was_clean and report.name != METADATA_LOG)
        try:
            report.findings += check_indexes(facts, fs, is_sealed=is_sealed, can_rebuild=can_rebuild)
        except OSError as error:
            report.findings.add_unreadable(Path(error.filename or report.directory), error)


def _check_topic_id(report: PartitionReport, fs: FileSystem) -> None:
    path = report.directory / PARTITION_METADATA
    try:
        report.topic_id = checkpoints.PartitionMetadataFile(path, fs).read()
    except CorruptCheckpointError as error:
        report.findings.add(
            FsckKind.TOPIC_ID_DAMAGED, path, error.reason, "version 0 and a topic id", size=fs.size(path)
        )
    except OSError as error:
        report.findings.add_unreadable(path, error)
