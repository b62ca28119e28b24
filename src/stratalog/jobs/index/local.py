"""Indexes of directories, one task for each segment. Files are replaced atomically and read back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from stratalog.errors import UsageError
from stratalog.inspect import offset_entries
from stratalog.jobs.executor import THREADS, Executor, map_in_order
from stratalog.jobs.index.check import IndexFault, verify_offset_index, verify_time_index
from stratalog.jobs.index.rebuild import (
    INDEX_INTERVAL_BYTES,
    convert_offset_index,
    format_for_rebuild,
    index_log,
    write_offset_index,
    write_time_index,
)
from stratalog.jobs.index.result import IndexChange, Outcome, refuse_misfits
from stratalog.jobs.index.targets import SegmentTarget
from stratalog.jobs.progress import SILENT, Progress
from stratalog.log.format import OffsetIndexFormat, detect_in_file
from stratalog.util import REAL_FILESYSTEM

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class _Rebuild:
    """Rebuild the indexes of a segment from its log. If `form` is None, each keeps its format."""

    form: OffsetIndexFormat | None
    interval_bytes: int
    is_dry: bool

    def __call__(self, target: SegmentTarget) -> list[IndexChange]:
        made = index_log(target.log, target.base_offset, index_interval_bytes=self.interval_bytes)
        torn_bytes = target.log_size - made.size_bytes
        changes = []
        if target.offset_index is not None:
            form = self.form or format_for_rebuild(target.log, target.offset_index, target.base_offset)
            if not self.is_dry:
                write_offset_index(target.offset_index, target.base_offset, made.offset, form)
            changes.append(_made(target, target.offset_index, form.name, len(made.offset), torn_bytes))
        if target.time_index is not None:
            if not self.is_dry:
                write_time_index(target.time_index, target.base_offset, made.time)
            changes.append(_made(target, target.time_index, "time", len(made.time), torn_bytes))
        return changes


def _made(target: SegmentTarget, path: Path, form: str, entries: int, torn_bytes: int) -> IndexChange:
    outcome, detail = Outcome.REBUILT, f"{form}, {entries} entries"
    if torn_bytes:
        outcome = Outcome.TORN
        detail += f"; the last {torn_bytes} bytes of the log are not a whole batch and are not indexed"
    return IndexChange(
        partition=target.log.parent.name,
        place=str(path),
        outcome=outcome,
        detail=detail,
        form=form,
        entries=entries,
        torn_bytes=torn_bytes,
    )


@dataclass(frozen=True, slots=True)
class _PlanConversion:
    """Verify an offset index, and report whether it can be converted to another format."""

    form: OffsetIndexFormat

    def __call__(self, target: SegmentTarget) -> list[IndexChange]:
        path, base_offset, form = target.offset_index, target.base_offset, self.form
        if path is None:
            return []
        partition, place = target.log.parent.name, str(path)
        faults = verify_offset_index(target.log, path, base_offset)
        if faults:
            detail = faults[0].message
            return [IndexChange(partition, place, Outcome.DAMAGED, detail, faults=tuple(faults))]
        found = detect_in_file(path, base_offset, fs=REAL_FILESYSTEM, log_path=target.log, always_prove=True)
        entries = offset_entries(path, base_offset, found.format)
        if not entries or found.format is form:
            detail = f"{len(entries)} entries, already {form.name} or empty"
            return [IndexChange(partition, place, Outcome.LEFT, detail)]
        if entries[-1].position > form.position_max:
            detail = f"position {entries[-1].position} does not fit entries of {form.entry_size} bytes"
            return [IndexChange(partition, place, Outcome.MISFIT, detail)]
        detail = f"{len(entries)} entries, to {form.name}"
        return [IndexChange(partition, place, Outcome.CONVERTED, detail, form.name, len(entries))]


@dataclass(frozen=True, slots=True)
class _Convert:
    form: OffsetIndexFormat

    def __call__(self, target: SegmentTarget) -> list[IndexChange]:
        assert target.offset_index is not None
        done = convert_offset_index(target.log, target.offset_index, target.base_offset, self.form)
        outcome = Outcome.CONVERTED if done else Outcome.LEFT
        name = self.form.name
        return [IndexChange(target.log.parent.name, str(target.offset_index), outcome, f"to {name}", name)]


def faults_of(target: SegmentTarget) -> list[IndexFault]:
    """Return the faults of the indexes that `target` names. Raises OSError."""
    found: list[IndexFault] = []
    if target.offset_index is not None:
        found += verify_offset_index(target.log, target.offset_index, target.base_offset)
    if target.time_index is not None:
        found += verify_time_index(target.log, target.time_index, target.base_offset, is_sealed=target.is_sealed)
    return found


def verify_targets(targets: Sequence[SegmentTarget], *, progress: Progress = SILENT) -> list[IndexFault]:
    """Compare every entry of offset and time indexes with the logs. Raises OSError or TaskError."""
    return _run(targets, faults_of, "verifying", THREADS, progress)


def rebuild_targets(
    targets: Sequence[SegmentTarget],
    *,
    form: OffsetIndexFormat | None = None,
    interval_bytes: int = INDEX_INTERVAL_BYTES,
    is_dry: bool = False,
    executor: Executor = THREADS,
    progress: Progress = SILENT,
) -> list[IndexChange]:
    """Rebuild offset and time indexes from the logs.

    Raises UsageError, before anything is written, if a log is too large for the format; OSError; TaskError.
    """
    for target in targets:
        if form is not None and target.offset_index is not None and target.log_size > form.position_max:
            raise UsageError(
                f"{target.log}: {target.log_size} bytes are too large for entries of {form.entry_size} bytes; "
                "nothing was written"
            )
    return _run(targets, _Rebuild(form, interval_bytes, is_dry), "rebuilding indexes", executor, progress)


def convert_targets(
    targets: Sequence[SegmentTarget],
    form: OffsetIndexFormat,
    *,
    is_dry: bool = False,
    executor: Executor = THREADS,
    progress: Progress = SILENT,
) -> list[IndexChange]:
    """Convert offset indexes to one format. If any is DAMAGED, nothing is written.

    An index that already has the format is LEFT: to finish an interrupted conversion, run it again. Raises UsageError,
    before anything is written, if a position does not fit the format; OSError; TaskError.
    """
    planned = _run(targets, _PlanConversion(form), "verifying indexes", executor, progress)
    if any(change.outcome is Outcome.DAMAGED for change in planned):
        return planned
    refuse_misfits(planned)
    if is_dry:
        return planned
    wanted = {change.place for change in planned if change.outcome is Outcome.CONVERTED}
    chosen = [target for target in targets if str(target.offset_index) in wanted]
    converted = _run(chosen, _Convert(form), "converting indexes", executor, progress)
    return [change for change in planned if change.place not in wanted] + converted


def _run(
    targets: Sequence[SegmentTarget],
    work: Callable[[SegmentTarget], list[Found]],
    title: str,
    executor: Executor,
    progress: Progress,
) -> list[Found]:
    done = map_in_order(executor, work, targets, title=title, progress=progress, cost=lambda target: target.log_size)
    return [each for found in done for each in found]
