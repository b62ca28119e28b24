"""What one segment is like: its batches by their headers, and a sample of them opened and compressed with every codec.

Of a local segment only headers and the sample are read; of a remote one everything, in ranges.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from stratalog.errors import StratalogError
from stratalog.log import scan_headers
from stratalog.records import HEADER_SIZE, LOG_APPEND_TIME, Codec, RecordBatch, batch_at, compress, walk
from stratalog.remote.storage import open_bucket
from stratalog.spark.byte_sources import ByteSources
from stratalog.spark.model import Place, PlaceMissingError, PlaceTier
from stratalog.util import File

_RANGE_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """`key` is a path, or with `url` the key of the records' object.

    A segment that `is_sealed` has whole batches only.
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


@dataclass(slots=True)
class CodecTrial:
    """The sample compressed with one codec."""

    bytes: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class SegmentStats:
    """Sizes in bytes, times in milliseconds. `disorder_ms`: how far a batch's newest record is behind one before it.

    `sample_bytes` of batches were opened, to `sample_plain_bytes`; `trials` by the codec's name are of those, and
    `sample_headers` is what the headers of those batches take, whatever the codec.
    """

    topic: str
    partition: int
    tier: str
    base_offset: int
    last_offset: int = -1
    size: int = 0
    batches: int = 0
    control_batches: int = 0
    records: int = 0
    batch_bytes_max: int = 0
    codec_bytes: dict[str, int] = field(default_factory=dict)
    oldest_ms: int = -1
    newest_ms: int = -1
    disorder_ms: int = 0
    sample_batches: int = 0
    sample_bytes: int = 0
    sample_plain_bytes: int = 0
    sample_headers: int = 0
    trials: dict[str, CodecTrial] = field(default_factory=dict)
    #: what could not be read any further, with its reason
    damage: str | None = None

    def see(self, batch: RecordBatch) -> None:
        """Count the next batch, by its header."""
        self.batches += 1
        self.size += batch.size
        self.last_offset = batch.last_offset
        self.batch_bytes_max = max(self.batch_bytes_max, batch.size)
        self.codec_bytes[batch.codec_name] = self.codec_bytes.get(batch.codec_name, 0) + batch.size
        if batch.is_control:
            self.control_batches += 1
            return
        self.records += batch.record_count
        newest = batch.max_timestamp
        oldest = _oldest_ms(batch)
        if oldest >= 0:
            self.oldest_ms = oldest if self.oldest_ms < 0 else min(oldest, self.oldest_ms)
        if newest >= 0:
            self.disorder_ms = max(self.disorder_ms, self.newest_ms - newest)
            self.newest_ms = max(self.newest_ms, newest)

    def sample(self, batch: RecordBatch) -> None:
        """Open a whole batch and compress what is in it with every codec."""
        plain = bytes(batch.decompressed_payload())
        self.sample_batches += 1
        self.sample_bytes += batch.size
        self.sample_plain_bytes += len(plain)
        self.sample_headers += HEADER_SIZE
        for codec in Codec:
            trial = self.trials.setdefault(codec.name.lower(), CodecTrial())
            started = time.perf_counter()
            trial.bytes += len(compress(codec, plain)) if codec is not Codec.NONE else len(plain)
            trial.seconds += time.perf_counter() - started


def _oldest_ms(batch: RecordBatch) -> int:
    """Return the timestamp of a batch's first record, as its header has it: a record behind it may be older."""
    is_kept_there = batch.magic >= 2 and batch.timestamp_type != LOG_APPEND_TIME and not batch.has_delete_horizon
    return batch.base_timestamp if is_kept_there else batch.max_timestamp


def measure(task: SegmentTask) -> SegmentStats:
    """Look at a segment; bytes that are no batch end the look and are told of. RemoteStorageError, OSError.

    A local one is what its file is by now: a broker that compacts may have put another there. It has nothing any more
    when it is gone.
    """
    stats = SegmentStats(task.topic, task.partition, task.tier, task.base_offset)
    if task.url is not None:
        return _measured(task, stats, _remote(task), task.size)
    try:
        with ByteSources().open_local(Place(PlaceTier.LOCAL, task.key)) as log:
            return _measured(task, stats, _local(log, _every(task)), log.size())
    except PlaceMissingError:
        return stats


def _every(task: SegmentTask) -> int:
    """One of how many bytes is sampled."""
    return max(task.size // max(task.sample_bytes, 1), 1)


def _measured(
    task: SegmentTask,
    stats: SegmentStats,
    batches: Iterator[tuple[RecordBatch, RecordBatch | None]],
    size: int,
) -> SegmentStats:
    """`stats` with all batches of a segment of `size` bytes."""
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
        stats.damage = f"the last {size - stats.size} bytes are no whole batch"
    return stats


def _local(log: File, every: int) -> Iterator[tuple[RecordBatch, RecordBatch | None]]:
    """Each batch by its header; and whole, where a sample is due."""
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
