"""`stratalog index rebuild` and `convert`: new files in place of the old ones, each whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from stratalog.cli.index.offline import offline
from stratalog.cli.index.progress import progress
from stratalog.cli.index.targets import SegmentTarget, Target
from stratalog.cli.index.verify import findings_of, print_findings
from stratalog.cli.tables import print_json
from stratalog.errors import UsageError
from stratalog.jobs.index import (
    Finding,
    convert_offset_index,
    format_for_rebuild,
    index_log,
    offset_entries,
    verify_offset_index,
    write_offset_index,
    write_time_index,
)
from stratalog.log.format import OffsetIndexFormat, detect_file
from stratalog.util import REAL_FILESYSTEM


def rebuild_target(
    target: Target,
    *,
    form: OffsetIndexFormat | None,
    index_interval_bytes: int,
    only_damaged: bool,
    as_json: bool,
) -> int:
    """Make the indexes of the target anew, print what was made; how many logs end in bytes that are no batch.

    Without a format, each keeps the one that it has. UsageError, before anything is written, for a log that is too
    large.
    """
    target.require_logs()
    torn = 0
    with offline(target.data_dir), progress("rebuilding", target.log_bytes) as advance:
        formats = [_format_of(segment, form) for segment in target.segments]
        for segment, segment_form in zip(target.segments, formats, strict=True):
            if not only_damaged or findings_of(segment):
                torn += _rebuild(segment, segment_form, index_interval_bytes, as_json=as_json)
            advance(segment.log_size)
    return torn


def _format_of(segment: SegmentTarget, form: OffsetIndexFormat | None) -> OffsetIndexFormat:
    if form is None:
        index = segment.offset_index or segment.log.with_suffix(".index")
        return format_for_rebuild(segment.log, index, segment.base_offset)
    if segment.offset_index is not None and segment.log_size > form.position_max:
        raise UsageError(
            f"{segment.log}: {segment.log_size} bytes are too large for entries of {form.entry_size} bytes;"
            " nothing was written"
        )
    return form


def _rebuild(segment: SegmentTarget, form: OffsetIndexFormat, index_interval_bytes: int, *, as_json: bool) -> bool:
    made = index_log(segment.log, segment.base_offset, index_interval_bytes=index_interval_bytes)
    if segment.offset_index is not None:
        write_offset_index(segment.offset_index, segment.base_offset, made.offset, form)
        _say_made(segment.offset_index, form.name, len(made.offset), as_json=as_json)
    if segment.time_index is not None:
        write_time_index(segment.time_index, segment.base_offset, made.time)
        _say_made(segment.time_index, "time", len(made.time), as_json=as_json)
    rest = segment.log_size - made.size_bytes
    if rest and not as_json:
        print(f"{segment.log}: the last {rest} bytes are an incomplete batch and are not indexed")
    return rest > 0


def _say_made(path: Path, kind: str, entries: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"path": str(path), "format": kind, "entries": entries})
    else:
        print(f"{path}: rebuilt, {kind}, {entries} entries")


@dataclass(slots=True)
class _Plan:
    """What a conversion has to do, and why it cannot."""

    segments: list[SegmentTarget] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    #: Indexes with positions that do not fit, and the largest position of each.
    misfits: list[tuple[Path, int]] = field(default_factory=list)
    #: Indexes that have the format already, or no entries.
    already: int = 0


def convert_target(target: Target, form: OffsetIndexFormat, *, as_json: bool) -> int:
    """Give all offset indexes of the target one format; how many findings keep that from being done.

    Everything is verified before anything is written: what is damaged, and positions that do not fit (UsageError). What
    has the format already is left alone, so that a conversion that was interrupted goes on where it was.
    """
    target.require_logs()
    with offline(target.data_dir):
        plan = _plan(target, form)
        if plan.findings:
            print_findings(plan.findings, as_json=as_json)
            if not as_json:
                print("nothing was converted: repair these first with 'stratalog index rebuild --only-damaged'")
            return len(plan.findings)
        if plan.misfits:
            path, position = plan.misfits[0]
            raise UsageError(
                f"{path}: position {position} does not fit entries of {form.entry_size} bytes, whose largest is"
                f" {form.position_max} ({len(plan.misfits)} such indexes); nothing was converted"
            )
        with progress("converting", sum(segment.log_size for segment in plan.segments)) as advance:
            for segment in plan.segments:
                if segment.offset_index is not None:
                    convert_offset_index(segment.log, segment.offset_index, segment.base_offset, form)
                    if as_json:
                        print_json({"path": str(segment.offset_index), "format": form.name})
                advance(segment.log_size)
    if not as_json:
        print(f"{len(plan.segments)} offset indexes converted to the {form} format, {plan.already} left as they are")
    return 0


def _plan(target: Target, form: OffsetIndexFormat) -> _Plan:
    plan = _Plan()
    with progress("verifying", target.log_bytes) as advance:
        for segment in target.segments:
            if segment.offset_index is not None:
                _plan_one(plan, segment, segment.offset_index, form)
            advance(segment.log_size)
    return plan


def _plan_one(plan: _Plan, segment: SegmentTarget, path: Path, form: OffsetIndexFormat) -> None:
    base_offset = segment.base_offset
    findings = verify_offset_index(segment.log, path, base_offset)
    if findings:
        plan.findings += findings
        return
    found = detect_file(path, base_offset, fs=REAL_FILESYSTEM, log_path=segment.log, always_prove=True)
    entries = offset_entries(path, base_offset, found.format)
    if not entries or found.format is form:
        plan.already += 1
    elif entries[-1].position > form.position_max:
        plan.misfits.append((path, entries[-1].position))
    else:
        plan.segments.append(segment)
