"""Measure one segment: its batches by their headers, and a sample of them compressed with every codec.

Reads only headers and the sample of a local segment, and all of a remote one, in ranges.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from stratalog.errors import StratalogError
from stratalog.jobs.stats.result import SegmentStats
from stratalog.log import scan_headers
from stratalog.log.format import DELETED_SUFFIX
from stratalog.records import RecordBatch, batch_at, walk
from stratalog.remote.storage import open_bucket
from stratalog.util import REAL_FILESYSTEM, File

_RANGE_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """A segment to measure. `key` is a path, or with `url` the key of the records' object.

    A segment that `is_sealed` has only whole batches.
    """

    topic: str
    partition: int
    base_offset: int
    size: int
    key: str
    url: str | None
    options: dict[str, str] = field(hash=False)
    sample_bytes: int
    is_sealed: bool = True

    @property
    def tier(self) -> str:
        return "local" if self.url is None else "remote"

    def __str__(self) -> str:
        return self.key if self.url is None else f"{self.url}/{self.key}"


def measure(task: SegmentTask) -> SegmentStats:
    """Measure a segment. Bytes that are not a batch end it, and are reported. Raises RemoteStorageError or OSError.

    The file of a local segment is read as it is now: a broker may have compacted it. A deleted segment counts as empty.
    """
    stats = SegmentStats(task.topic, task.partition, task.tier, task.base_offset)
    if task.url is not None:
        return _measured(task, stats, _remote(task), task.size)
    log = _open(task.key)
    if log is None:
        return stats
    with log:
        return _measured(task, stats, _local(log, _every(task)), log.size())


def _open(log_path: str) -> File | None:
    """Return a local `.log`, even one marked as deleted, or None if it no longer exists."""
    for name in (log_path, log_path + DELETED_SUFFIX):
        with suppress(FileNotFoundError):
            return REAL_FILESYSTEM.open(name)
    return None


def _every(task: SegmentTask) -> int:
    """Return the n for which one of n bytes is sampled."""
    return max(task.size // max(task.sample_bytes, 1), 1)


def _measured(
    task: SegmentTask,
    stats: SegmentStats,
    batches: Iterator[tuple[RecordBatch, RecordBatch | None]],
    size: int,
) -> SegmentStats:
    """Add all batches of a segment of `size` bytes to `stats`."""
    every = _every(task)
    sampled_at = 0
    try:
        for batch, whole in batches:
            stats.see(batch)
            is_turn = stats.size >= sampled_at and stats.sample_bytes < task.sample_bytes
            if whole is not None and is_turn and not batch.is_control:
                stats.sample(whole)
                sampled_at = stats.size + batch.size * (every - 1)
    except StratalogError as error:
        if type(error).__name__.endswith("StorageError"):
            raise
        stats.damage = str(error)
    if stats.damage is None and task.is_sealed and stats.size < size:
        stats.damage = f"the last {size - stats.size} bytes are not a whole batch"
    return stats


def _local(log: File, every: int) -> Iterator[tuple[RecordBatch, RecordBatch | None]]:
    """Yield the header of each batch, and the complete batch if it is sampled."""
    due = 0
    for position, batch in scan_headers(log):
        whole = None
        if position >= due:
            whole = batch_at(log.pread(batch.size, position))
            due = position + batch.size * every
        yield batch, whole


def _remote(task: SegmentTask) -> Iterator[tuple[RecordBatch, RecordBatch | None]]:
    assert task.url is not None
    view = open_bucket(task.url, task.options)
    batches = walk(
        lambda size, position: view.get_range(task.key, position, position + size),
        task.size,
        window_size=_RANGE_BYTES,
        name=task.key,
    )
    for _, batch in batches:
        yield batch, batch
