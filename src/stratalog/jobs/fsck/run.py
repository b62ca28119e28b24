"""Check log directories: one task reads each `.log`, then another checks each partition with the facts.

With the ledger of an earlier run, a sealed segment that was sound is not read again while its file has the same size
and modification time.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stratalog.jobs.executor import THREADS, Executor
from stratalog.jobs.fsck.data_dir import (
    DirReport,
    PartitionFacts,
    check_beside_partitions,
    compare_dirs,
    is_partition_dir,
    partition_facts,
)
from stratalog.jobs.fsck.findings import FileFinding, FsckFindings
from stratalog.jobs.fsck.layout import read_layout
from stratalog.jobs.fsck.partition import PartitionReport, check_partition
from stratalog.jobs.fsck.segment import EpochRun, SegmentScan, read_segment
from stratalog.jobs.ledger import Ledger
from stratalog.jobs.progress import SILENT, Progress
from stratalog.log.format import log_file, parse_partition_dir
from stratalog.util import REAL_FILESYSTEM, FileSystem, crc32c


@dataclass
class CheckReport:
    """All findings, worst first within each partition, and how much of the logs was read."""

    dirs: list[DirReport]
    findings: list[FileFinding]
    read_bytes: int = 0
    known_segments: int = 0

    @property
    def partitions(self) -> list[PartitionReport]:
        return [partition for one in self.dirs for partition in one.partitions]


# --- the plan -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Partition:
    """A partition directory, and the facts from its log directory."""

    directory: Path
    known: PartitionFacts = field(hash=False)


@dataclass(frozen=True, slots=True)
class _SegmentTask:
    path: Path
    base_offset: int
    snapshots: tuple[int, ...]
    size: int
    fingerprint: str
    is_sealed: bool
    fs: FileSystem

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class _PartitionTask:
    partition: _Partition
    facts: dict[Path, SegmentScan] = field(hash=False)
    accept_loss: bool
    fs: FileSystem

    def __str__(self) -> str:
        return str(self.partition.directory)


def _partitions(path: Path, fs: FileSystem) -> list[_Partition]:
    """Return the partitions in a log directory, or `path` if it is a partition itself."""
    if is_partition_dir(path, fs):
        return [_Partition(path, partition_facts(path.absolute().parent, fs)(path.absolute().name))]
    known_of = partition_facts(path, fs)
    names = (name for name in fs.list_dir(path) if parse_partition_dir(name) is not None and fs.is_dir(path / name))
    return [_Partition(path / name, known_of(name)) for name in names]


def _segment_tasks(directory: Path, fs: FileSystem, *, is_noted: bool) -> list[_SegmentTask]:
    try:
        layout = read_layout(directory, fs)
        snapshots, tasks = tuple(layout.snapshots), []
        for base in layout.segments:
            path = directory / log_file(base)
            fingerprint = _fingerprint(path, snapshots, fs) if is_noted else ""
            is_sealed = base != layout.segments[-1]
            tasks.append(_SegmentTask(path, base, snapshots, fs.size(path), fingerprint, is_sealed, fs))
    except OSError:
        return []  # the check of the partition reports it
    return tasks


def _fingerprint(path: Path, snapshots: tuple[int, ...], fs: FileSystem) -> str:
    """Return a text that changes if the file changed since an earlier run, or if other facts are needed."""
    with fs.open(path) as log:
        return f"{log.size()}:{log.mtime_ms()}:{crc32c(repr(snapshots).encode()):08x}"


def fsck(
    paths: Sequence[Path],
    fs: FileSystem = REAL_FILESYSTEM,
    *,
    executor: Executor = THREADS,
    ledger: Ledger | None = None,
    accept_loss: bool = False,
    progress: Progress = SILENT,
) -> CheckReport:
    """Check log directories, or single partition directories, and what must agree between them. Change nothing.

    No broker may serve them. With `accept_loss` the proposed repair may move damage aside although its records were
    acknowledged. `ledger` remembers sound segments.

    Returns:
        All findings. A file that cannot be read is a finding too.

    Raises:
        OSError: One of `paths` cannot be listed.
        TaskError: A task failed on a worker.

    """
    found = [(path, _partitions(path, fs)) for path in paths]
    partitions = [partition for _, of_path in found for partition in of_path]
    tasks = [
        task
        for partition in partitions
        for task in _segment_tasks(partition.directory, fs, is_noted=ledger is not None)
    ]
    facts = {task.path: known for task in tasks if (known := _from_ledger(task, ledger)) is not None}
    unknown = {task.path: task for task in tasks if task.path not in facts}
    reading = executor.map(
        _read, list(unknown.values()), title="reading segments", progress=progress, cost=lambda task: task.size
    )
    with closing(reading):
        for read in reading:
            if read is None:
                continue
            facts[read.path] = read
            task = unknown[read.path]
            if ledger is not None and task.is_sealed and read.is_sound:
                ledger.add(_key(task.path), _to_json(task.fingerprint, read))
    reports = _check_partitions(partitions, facts, fs, executor, progress, accept_loss=accept_loss)
    dirs = [_assembled(path, of_path, reports, fs) for path, of_path in found]
    findings = compare_dirs(dirs)
    size = sum(task.size for task in unknown.values())
    return CheckReport(dirs, findings, size, len(tasks) - len(unknown))


def _check_partitions(
    partitions: Sequence[_Partition],
    facts: Mapping[Path, SegmentScan],
    fs: FileSystem,
    executor: Executor,
    progress: Progress,
    *,
    accept_loss: bool,
) -> dict[Path, PartitionReport | FileFinding]:
    by_directory: dict[Path, dict[Path, SegmentScan]] = {}
    for path, known in facts.items():
        by_directory.setdefault(path.parent, {})[path] = known
    tasks = [
        _PartitionTask(partition, by_directory.get(partition.directory, {}), accept_loss, fs)
        for partition in partitions
    ]
    checked = executor.map(
        _check, tasks, title="checking partitions", progress=progress, cost=lambda task: len(task.facts) + 1
    )
    return dict(checked)


def _assembled(
    path: Path, partitions: Sequence[_Partition], reports: Mapping[Path, PartitionReport | FileFinding], fs: FileSystem
) -> DirReport:
    """Return the report of a log directory: its partitions in order, then the other findings."""
    is_partition = [partition.directory for partition in partitions] == [path]
    report = DirReport(path.parent if is_partition else path)
    for partition in partitions:
        checked = reports[partition.directory]
        if isinstance(checked, FileFinding):
            report.findings.append(checked)
        else:
            report.partitions.append(checked)
    if not is_partition:
        check_beside_partitions(report, fs)
    return report


# --- the work -------------------------------------------------------------------------------------------------------


def _read(task: _SegmentTask) -> SegmentScan | None:
    """Read a segment. Return None if that fails: the check of its partition reports it."""
    try:
        return read_segment(task.path, task.base_offset, task.snapshots, task.fs)
    except OSError:
        return None


def _check(task: _PartitionTask) -> tuple[Path, PartitionReport | FileFinding]:
    directory = task.partition.directory
    try:
        return directory, check_partition(
            directory, task.fs, task.facts, accept_loss=task.accept_loss, **task.partition.known
        )
    except OSError as error:
        findings = FsckFindings(directory.name)
        findings.add_unreadable(directory, error)
        return directory, findings[0]


# --- the ledger entry of a sound segment ----------------------------------------------------------------------------


def _key(path: Path) -> str:
    return f"file:{path}"


def _to_json(fingerprint: str, facts: SegmentScan) -> list[Any]:
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


def _from_ledger(task: _SegmentTask, ledger: Ledger | None) -> SegmentScan | None:
    known = ledger.get(_key(task.path)) if ledger is not None and task.is_sealed else None
    if not known or known[0] != task.fingerprint:
        return None
    _, first, last, batches, sound_end, has_gaps, is_old, epochs, producers = known
    return SegmentScan(
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
