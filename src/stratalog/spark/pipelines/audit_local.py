"""The local half of an audit: every `.log` read by a task of its own, then each partition checked with what they told.

The rules are those of `stratalog fsck` (`log.check`). A sealed segment that an earlier run found sound, and whose file
has the same size and time of change since, is not read again.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from stratalog.jobs.fsck import (
    CheckReport,
    EpochRun,
    PartitionFacts,
    PartitionReport,
    SegmentFacts,
    check_dirs,
    check_partition,
    partition_facts,
    read_layout,
    read_segment,
)
from stratalog.log import list_partitions
from stratalog.log.format import log_file
from stratalog.spark.pipelines.progress import Progress
from stratalog.spark.pipelines.runner import run_tasks
from stratalog.spark.pipelines.state import Ledger
from stratalog.util import REAL_FILESYSTEM, crc32c

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class LocalAudit:
    """What the check of log directories found, and how much of it had to be read."""

    report: CheckReport
    read_bytes: int
    known_segments: int


@dataclass(frozen=True, slots=True)
class _SegmentTask:
    path: Path
    base_offset: int
    snapshots: tuple[int, ...]
    size: int
    fingerprint: str
    is_sealed: bool

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class _PartitionTask:
    directory: Path
    facts: dict[Path, SegmentFacts] = field(hash=False)
    known: PartitionFacts = field(hash=False)

    def __str__(self) -> str:
        return str(self.directory)


def audit_local(spark: SparkSession, directories: Sequence[Path], ledger: Ledger, progress: Progress) -> LocalAudit:
    """Check log directories that no broker serves. OSError for one that cannot be listed."""
    tasks = [task for directory in directories for task in _segment_tasks(directory)]
    facts: dict[Path, SegmentFacts] = {}
    unknown = []
    for task in tasks:
        known = _from_ledger(task, ledger)
        if known is None:
            unknown.append(task)
        else:
            facts[task.path] = known
    by_path = {task.path: task for task in unknown}
    work = run_tasks(spark, unknown, _read, title="reading segments", progress=progress, cost=lambda task: task.size)
    for found in work:
        facts[found.path] = found
        task = by_path[found.path]
        if task.is_sealed and found.is_sound:
            ledger.add(_key(task.path), _to_json(task.fingerprint, found))
    reports = _check_partitions(spark, directories, facts, progress)
    report = check_dirs(directories, REAL_FILESYSTEM, threads=1, check=lambda path, *_, **__: reports[path])
    return LocalAudit(report, sum(task.size for task in unknown), len(tasks) - len(unknown))


def _check_partitions(
    spark: SparkSession, directories: Sequence[Path], facts: dict[Path, SegmentFacts], progress: Progress
) -> dict[Path, PartitionReport]:
    tasks = []
    for directory in directories:
        known_of = partition_facts(directory, REAL_FILESYSTEM)
        for _, _, path in list_partitions(directory):
            own = {each: known for each, known in facts.items() if each.parent == path}
            tasks.append(_PartitionTask(path, own, known_of(path.name)))
    work = run_tasks(
        spark,
        tasks,
        _check,
        title="checking partitions",
        progress=progress,
        cost=lambda task: len(task.facts),
    )
    return {report.directory: report for report in work}


def _segment_tasks(directory: Path) -> Iterator[_SegmentTask]:
    for _, _, path in list_partitions(directory):
        layout = read_layout(path, path.name, REAL_FILESYSTEM)
        bases = list(layout.segments)
        snapshots = tuple(layout.snapshots)
        for base in bases:
            log = path / log_file(base)
            found = log.stat()
            asked = crc32c(repr(snapshots).encode())
            fingerprint = f"{found.st_size}:{found.st_mtime_ns}:{asked:08x}"
            yield _SegmentTask(log, base, snapshots, found.st_size, fingerprint, base != bases[-1])


# --- on the workers ---------------------------------------------------------------------------------------------------


def _read(task: _SegmentTask) -> SegmentFacts:
    return read_segment(task.path, task.base_offset, task.snapshots, REAL_FILESYSTEM, lambda _: None)


def _check(task: _PartitionTask) -> PartitionReport:
    return check_partition(
        task.directory,
        REAL_FILESYSTEM,
        _Known(task.facts),
        **task.known,
    )


class _Known(Executor):
    """Gives what is known of segments instead of reading them; everything else is done here and now."""

    def __init__(self, facts: dict[Path, SegmentFacts]) -> None:
        self._facts = facts

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        future: Future[Any] = Future()
        try:
            known = self._facts.get(args[0]) if fn is read_segment else None
            future.set_result(fn(*args, **kwargs) if known is None else known)
        except Exception as error:
            future.set_exception(error)
        return future


# --- what is kept of a sound segment ----------------------------------------------------------------------------------


def _key(path: Path) -> str:
    return f"file:{path}"


def _to_json(fingerprint: str, facts: SegmentFacts) -> list[Any]:
    producers = [base64.b64encode(data).decode() for data in facts.producer_batches]
    return [
        fingerprint,
        facts.first_offset,
        facts.last_offset,
        facts.batches,
        facts.sound_end,
        facts.has_gaps,
        facts.is_old_format,
        [list(run) for run in facts.epochs],
        producers,
    ]


def _from_ledger(task: _SegmentTask, ledger: Ledger) -> SegmentFacts | None:
    known = ledger.get(_key(task.path)) if task.is_sealed else None
    if not known or known[0] != task.fingerprint:
        return None
    _, first, last, batches, sound_end, has_gaps, is_old, epochs, producers = known
    return SegmentFacts(
        task.base_offset,
        task.path,
        task.size,
        first,
        last,
        batches,
        sound_end,
        has_gaps,
        is_old,
        [EpochRun(*run) for run in epochs],
        [base64.b64decode(data) for data in producers],
    )
