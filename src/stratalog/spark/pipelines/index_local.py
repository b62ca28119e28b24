"""Indexes of data directories: a task a segment. Files are replaced whole or not at all, and read back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stratalog.errors import UsageError
from stratalog.jobs.fsck import Finding, Kind
from stratalog.jobs.index import (
    convert_offset_index,
    format_for_rebuild,
    index_log,
    offset_entries,
    verify_offset_index,
    write_offset_index,
    write_time_index,
)
from stratalog.log import SegmentFiles, list_partitions, list_segments
from stratalog.log.format import OffsetIndexFormat, detect_file, format_of, parse_partition_dir
from stratalog.spark.pipelines.audit_local import audit_local
from stratalog.spark.pipelines.index_rows import IndexChange, Outcome
from stratalog.spark.pipelines.progress import Progress
from stratalog.spark.pipelines.runner import run_tasks
from stratalog.spark.pipelines.state import Ledger
from stratalog.util import REAL_FILESYSTEM

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OFFSET_AND_TIME: Final = (Kind.INDEX_MISSING, Kind.INDEX_DAMAGED, Kind.INDEX_ENTRY, Kind.INDEX_INEXACT)
_TRANSACTION: Final = (Kind.TXN_INDEX_DAMAGED, Kind.TXN_INDEX_ENTRY)


@dataclass(frozen=True, slots=True)
class _Task:
    segment: SegmentFiles
    entry_size: int | None
    interval_bytes: int
    is_dry: bool

    def __str__(self) -> str:
        return str(self.segment.log)


def verify_local(
    spark: SparkSession, directories: Sequence[Path], topics: frozenset[str] | None, progress: Progress
) -> list[Finding]:
    """What is wrong with offset, time and transaction indexes; the rules are those of `stratalog fsck`."""
    with Ledger(None, "index") as ledger:
        report = audit_local(spark, directories, ledger, progress).report
    return [
        finding
        for finding in report.findings
        if finding.kind in (*_OFFSET_AND_TIME, *_TRANSACTION)
        and (topics is None or (parse_partition_dir(finding.partition) or ("",))[0] in topics)
    ]


def rebuild_local(
    spark: SparkSession,
    directories: Sequence[Path],
    topics: frozenset[str] | None,
    progress: Progress,
    *,
    entry_size: int | None,
    interval_bytes: int,
    only_damaged: bool,
    is_dry: bool,
) -> list[IndexChange]:
    """Make indexes anew; transaction indexes only where they are wrong, as the log may not reach back far enough."""
    findings = verify_local(spark, directories, topics, progress)
    damaged = {finding.path.with_suffix("") for finding in findings if finding.kind in _OFFSET_AND_TIME}
    segments = [
        segment
        for segment in segments_of(directories, topics)
        if not only_damaged or segment.log.with_suffix("") in damaged
    ]
    tasks = [_Task(segment, entry_size, interval_bytes, is_dry) for segment in segments]
    _refuse_misfits(tasks)
    changes = _run(spark, tasks, _rebuild, "rebuilding indexes", progress)
    done: set[Path] = set()
    for finding in findings:
        if finding.kind not in _TRANSACTION or finding.path in done:
            continue
        done.add(finding.path)
        if finding.action is None:
            text = "the log does not tell: a transaction is older than it, or it has gaps"
            changes.append(IndexChange(finding.partition, str(finding.path), Outcome.SKIPPED, text))
            continue
        if not is_dry:
            finding.action.carry_out(REAL_FILESYSTEM)
        changes.append(IndexChange(finding.partition, str(finding.path), Outcome.REBUILT, finding.action.describe()))
    return changes


def convert_local(
    spark: SparkSession,
    directories: Sequence[Path],
    topics: frozenset[str] | None,
    progress: Progress,
    *,
    entry_size: int,
    is_dry: bool,
) -> list[IndexChange]:
    """Everything is verified before anything is written: with a DAMAGED among the changes nothing was."""
    tasks = [_Task(segment, entry_size, 0, True) for segment in segments_of(directories, topics)]
    planned = _run(spark, tasks, _plan_conversion, "verifying indexes", progress)
    misfits = [change for change in planned if change.outcome is Outcome.MISFIT]
    if misfits:
        raise UsageError(
            f"{misfits[0].place}: {misfits[0].detail} ({len(misfits)} such indexes); nothing was converted"
        )
    if is_dry or any(change.outcome is Outcome.DAMAGED for change in planned):
        return planned
    wanted = {change.place for change in planned if change.outcome is Outcome.CONVERTED}
    tasks = [task for task in tasks if str(task.segment.index) in wanted]
    converted = _run(spark, tasks, _convert, "converting indexes", progress)
    return [change for change in planned if change.place not in wanted] + converted


def segments_of(directories: Sequence[Path], topics: frozenset[str] | None) -> Iterator[SegmentFiles]:
    for directory in directories:
        for topic, _, path in list_partitions(directory):
            if topics is None or topic in topics:
                yield from list_segments(path)


def _refuse_misfits(tasks: Sequence[_Task]) -> None:
    for task in tasks:
        if task.entry_size is not None and task.segment.size > (form := format_of(task.entry_size)).position_max:
            raise UsageError(
                f"{task.segment.log}: {task.segment.size} bytes are too many for entries of {form.entry_size} bytes; "
                "nothing was written"
            )


def _run(
    spark: SparkSession,
    tasks: Sequence[_Task],
    work: Callable[[_Task], list[IndexChange]],
    title: str,
    progress: Progress,
) -> list[IndexChange]:
    found = run_tasks(spark, tasks, work, title=title, progress=progress, cost=lambda task: task.segment.size)
    return [change for changes in found for change in changes]


# --- on the workers ---------------------------------------------------------------------------------------------------


def _rebuild(task: _Task) -> list[IndexChange]:
    segment = task.segment
    form = (
        format_for_rebuild(segment.log, segment.index, segment.base_offset)
        if task.entry_size is None
        else format_of(task.entry_size)
    )
    made = index_log(segment.log, segment.base_offset, index_interval_bytes=task.interval_bytes)
    if not task.is_dry:
        write_offset_index(segment.index, segment.base_offset, made.offset, form)
        write_time_index(segment.timeindex, segment.base_offset, made.time)
    rest = segment.size - made.size_bytes
    outcome = Outcome.REBUILT if not rest else Outcome.TORN
    torn = f"; the last {rest} bytes of the log are no whole batch and are not indexed" if rest else ""
    partition = segment.log.parent.name
    return [
        IndexChange(partition, str(segment.index), outcome, f"{form.name}, {len(made.offset)} entries{torn}"),
        IndexChange(partition, str(segment.timeindex), outcome, f"time, {len(made.time)} entries{torn}"),
    ]


def _plan_conversion(task: _Task) -> list[IndexChange]:
    segment, form = task.segment, _wanted(task)
    partition, place = segment.log.parent.name, str(segment.index)
    findings = verify_offset_index(segment.log, segment.index, segment.base_offset)
    if findings:
        return [IndexChange(partition, place, Outcome.DAMAGED, findings[0].message)]
    found = detect_file(segment.index, segment.base_offset, fs=REAL_FILESYSTEM, log_path=segment.log, always_prove=True)
    entries = offset_entries(segment.index, segment.base_offset, found.format)
    if not entries or found.format is form:
        return [IndexChange(partition, place, Outcome.LEFT, f"{len(entries)} entries, already {form.name} or empty")]
    if entries[-1].position > form.position_max:
        text = f"position {entries[-1].position} does not fit entries of {form.entry_size} bytes"
        return [IndexChange(partition, place, Outcome.MISFIT, text)]
    return [IndexChange(partition, place, Outcome.CONVERTED, f"{len(entries)} entries, to {form.name}")]


def _convert(task: _Task) -> list[IndexChange]:
    segment, form = task.segment, _wanted(task)
    done = convert_offset_index(segment.log, segment.index, segment.base_offset, form)
    outcome = Outcome.CONVERTED if done else Outcome.LEFT
    return [IndexChange(segment.log.parent.name, str(segment.index), outcome, f"to {form.name}")]


def _wanted(task: _Task) -> OffsetIndexFormat:
    assert task.entry_size is not None
    return format_of(task.entry_size)
