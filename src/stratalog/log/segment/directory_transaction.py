"""Append whole segments to partitions of a data directory, all segments of a job in one step.

    stage     workers write segments below `staging_directory`, with provisional offsets
    publish   the segments get their offsets, the journal is written (the commit), files are renamed into place
    discard   the staging directory is removed

The staging directory is named like a partition that is being deleted: a starting broker, Kafka's too, removes it, and
nothing reads it. The journal `stratalog-publication-<name>.json` lists the renames. After a crash before the journal is
written, nothing has changed. After a later crash, `finish` (of the next publication) or `finish_held` (of a starting
broker) completes it; until then each partition is a log that ends somewhere within the job. The journal of a stream is
kept and records its last batch.

No broker may serve the directory at the same time: its `.lock` is held as a broker holds it. Publications take turns,
so concurrent jobs get consecutive offsets. Raises OSError unless stated otherwise.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from stratalog.config import LogConfig
from stratalog.errors import CorruptCheckpointError, DataDirError, UsageError
from stratalog.log.format import (
    CLEAN_SHUTDOWN,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    EpochEntry,
    OffsetCheckpoint,
    PartitionMetadataFile,
    encode_epochs,
    log_file,
    offset_index_file,
    parse_partition_dir,
    snapshot_file,
    time_index_file,
    txn_index_file,
)
from stratalog.log.partition_log import PartitionLog
from stratalog.log.producers import NEVER
from stratalog.log.recovery import LOCK, hold, known_recovery_point, plausible_start
from stratalog.log.segment.renumbering import renumber
from stratalog.log.segment.segment_writer import WrittenSegment
from stratalog.records import batch_format as fmt
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, Clock, FileSystem, uuid_to_base64, write_atomic

#: A staging directory unchanged for this long belongs to a dead job.
ABANDONED_AFTER_MS: Final = 24 * 3_600_000

_JOURNAL: Final = "stratalog-publication-"
_STAGING: Final = "stratalog-staging-0."
_DELETE: Final = "-delete"
#: Segments renumbered in parallel: most of the time is spent waiting for the disk.
_RENUMBERED_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class StagedPartition:
    """Segments to append to a partition, in order."""

    topic: str
    topic_id: UUID
    partition: int
    segments: tuple[WrittenSegment, ...]

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


def staging_directory(data_dir: Path, job: UUID) -> Path:
    """Return where a job's segments are written: on their final file system, and under no partition's name."""
    return data_dir / f"{_STAGING}{job.hex}{_DELETE}"


def topic_id_in(data_dir: Path, topic: str, fs: FileSystem = REAL_FILESYSTEM) -> tuple[UUID | None, int]:
    """Return the id of a topic in a data directory (None without a partition), and the number of its partitions.

    The number is the largest partition number plus one.
    """
    count, topic_id = 0, None
    for name in fs.list_dir(data_dir):
        parsed = parse_partition_dir(name)
        if parsed is not None and parsed[0] == topic:
            count = max(count, parsed[1] + 1)
            topic_id = topic_id or PartitionMetadataFile(data_dir / name / PARTITION_METADATA, fs).read()
    return topic_id, count


def topics_in(data_dir: Path, fs: FileSystem = REAL_FILESYSTEM) -> set[str]:
    return {parsed[0] for name in fs.list_dir(data_dir) if (parsed := parse_partition_dir(name)) is not None}


def publish(
    data_dir: Path,
    job: UUID,
    name: str,
    partitions: Sequence[StagedPartition],
    *,
    batch: int | None = None,
    fs: FileSystem = REAL_FILESYSTEM,
    clock: Clock = SYSTEM_CLOCK,
) -> bool:
    """Append what `job` has staged to its partitions. Missing partitions begin at offset 0.

    `name` identifies the job or the stream. Returns False, and does nothing, if this `batch` or a later one of that
    name was published. Raises UsageError if a broker uses the directory, or a topic changed since the job began.
    """
    with _held(data_dir, fs):
        _finish(data_dir, fs)
        journal = data_dir / f"{_JOURNAL}{name}.json"
        if batch is not None:
            last = _batch_of(journal, fs)
            if last is not None and last >= batch:
                return False
        staging = staging_directory(data_dir, job)
        renames: list[list[str]] = []
        ends: dict[str, int] = {}
        for staged in partitions:
            moves, ends[staged.name] = _prepared(data_dir, staging, staged, fs, clock)
            renames += moves
        document = {"version": 1, "staging": staging.name, "batch": batch, "renames": renames, "ends": ends}
        write_atomic(journal, json.dumps(document, indent=1).encode(), fs)
        _carry_out(data_dir, journal, document, fs)
        return True


def published_batch(data_dir: Path, name: str, fs: FileSystem = REAL_FILESYSTEM) -> int | None:
    """Return the number of the last batch published under a name, or None."""
    return _batch_of(data_dir / f"{_JOURNAL}{name}.json", fs)


def is_unfinished(data_dir: Path, name: str, fs: FileSystem = REAL_FILESYSTEM) -> bool:
    """Return whether the journal was written but not carried out: staged segments then belong to the log."""
    journal = data_dir / f"{_JOURNAL}{name}.json"
    return fs.exists(journal) and bool(_document(journal, fs)["renames"])


def finish(data_dir: Path, fs: FileSystem = REAL_FILESYSTEM, clock: Clock = SYSTEM_CLOCK) -> int:
    """Complete publications that a crash interrupted and return their number.

    UsageError if a broker uses the directory. Removes the staging directories of dead jobs.
    """
    with _held(data_dir, fs):
        finished = _finish(data_dir, fs)
        for entry in fs.list_dir(data_dir):
            if entry.startswith(_STAGING) and entry.endswith(_DELETE):
                with fs.open(data_dir / entry) as directory:
                    if clock.now_ms() - directory.mtime_ms() > ABANDONED_AFTER_MS:
                        fs.remove_tree(data_dir / entry)
        return finished


def finish_held(data_dir: Path, fs: FileSystem = REAL_FILESYSTEM) -> int:
    """Do the same as `finish` while holding the directory's lock, before deleted partitions are removed.

    Raises DataDirError for an invalid journal, or one whose segments are missing.
    """
    return _finish(data_dir, fs)


def discard(data_dir: Path, job: UUID, fs: FileSystem = REAL_FILESYSTEM) -> None:
    """Remove what a job has staged and not published."""
    staging = staging_directory(data_dir, job)
    if fs.is_dir(staging):
        fs.remove_tree(staging)


def check_not_served(data_dir: Path, fs: FileSystem = REAL_FILESYSTEM) -> None:
    """Raise UsageError if a broker uses the directory, or it is no directory."""
    if not fs.is_dir(data_dir):
        raise UsageError(f"{data_dir} is no directory; give a broker's log directory, or make an empty one")
    with _held(data_dir, fs):
        return


# --- before the commit ---------------------------------------------------------------------------------------------


def _prepared(
    data_dir: Path, staging: Path, staged: StagedPartition, fs: FileSystem, clock: Clock
) -> tuple[list[list[str]], int]:
    """Assign offsets to the staged segments of a partition.

    Returns the renames that put them in place, in order, and the end offset.
    """
    target = data_dir / staged.name
    if fs.is_dir(target):
        there = PartitionMetadataFile(target / PARTITION_METADATA, fs).read()
        if there is not None and there != staged.topic_id:
            raise UsageError(
                f"topic {staged.topic} was created with the id {uuid_to_base64(there)} while this job ran: nothing "
                "was"
                " published; run it again"
            )
        offset, epoch = _sealed_end(target, staged, fs, clock)
        prepared = staging / f"end-{staged.name}"
    else:
        offset, epoch = 0, 0
        prepared = staging / f"new-{staged.name}"
    fs.make_dirs(prepared)
    bases = list(accumulate((s.last_offset - s.base_offset + 1 for s in staged.segments), initial=offset))
    with ThreadPoolExecutor(_RENUMBERED_AT_ONCE, thread_name_prefix="publication") as pool:
        moves = [pool.submit(_move, *move, epoch, fs) for move in zip(staged.segments, bases, strict=False)]
    for move in moves:
        move.result()
    renames: list[list[str]] = []
    for segment, (base, end) in zip(staged.segments, pairwise(bases), strict=True):
        names = (offset_index_file(base), time_index_file(base), snapshot_file(end), log_file(base))
        for path, name in zip(segment.files, names, strict=True):
            fs.rename(path, prepared / name)
            renames.append([f"{staging.name}/{prepared.name}/{name}", f"{staged.name}/{name}"])
    if not fs.is_dir(target):
        PartitionMetadataFile(prepared / PARTITION_METADATA, fs).write(staged.topic_id)
        write_atomic(prepared / LEADER_EPOCH_CHECKPOINT, encode_epochs([EpochEntry(epoch, 0)]), fs)
        renames = [[f"{staging.name}/{prepared.name}", staged.name]]
    fs.sync_dir(prepared)
    fs.sync_dir(staging)
    return renames, bases[-1]


def _move(segment: WrittenSegment, base_offset: int, epoch: int, fs: FileSystem) -> None:
    """Renumber a segment unless its provisional offsets are right. All its batches have one epoch."""
    shift = base_offset - segment.base_offset
    with fs.open(segment.log, write=True) as file:
        header = file.pread(fmt.HEADER_SIZE_UP_TO_MAGIC, 0)
        if shift or fmt.INT32.unpack_from(header, fmt.PARTITION_LEADER_EPOCH_AT)[0] != epoch:
            renumber(file, shift, epoch)
            file.sync()


def _sealed_end(directory: Path, staged: StagedPartition, fs: FileSystem, clock: Clock) -> tuple[int, int]:
    """Recover and roll a partition's log. Return its end offset and the leader epoch of what follows."""
    parent = directory.parent
    key = staged.topic, staged.partition
    start = OffsetCheckpoint(parent / LOG_START_OFFSETS, fs).read().get(key, 0)
    log = PartitionLog.open(
        directory,
        LogConfig(retention_ms=-1),
        topic_id=staged.topic_id,
        clock=clock,
        fs=fs,
        clean_shutdown=fs.exists(parent / CLEAN_SHUTDOWN),
        recovery_point=known_recovery_point(OffsetCheckpoint(parent / RECOVERY_POINTS, fs).read().get(key)),
        log_start_offset=plausible_start(directory, start, fs),
        producer_expiration_ms=NEVER,
    )
    try:
        end = log.log_end_offset
        epoch = log.leader_epochs.latest_epoch
        if epoch is None:
            epoch = 0
            log.leader_epochs.assign(epoch, end)
        log.roll()
        return end, epoch
    finally:
        log.close()
        # Only the names of the empty active segment are needed: the renames replace it.
        fs.remove(directory / txn_index_file(end))


# --- after the commit ----------------------------------------------------------------------------------------------


def _carry_out(data_dir: Path, journal: Path, document: dict[str, Any], fs: FileSystem) -> None:
    """Do the remaining renames, indexes before their `.log`. Then keep only the batch number of a stream."""
    touched = {data_dir}
    for source, target in document["renames"]:
        if fs.exists(data_dir / source):
            fs.rename(data_dir / source, data_dir / target)
            touched.add((data_dir / target).parent)
        elif not fs.exists(data_dir / target):
            raise DataDirError(
                f"{data_dir / source} is missing: {journal.name} renames it to {target};"
                " the directory was started in between; run the job again and remove that file"
            )
    for directory in touched:
        fs.sync_dir(directory)
    _move_recovery_points(data_dir, document["ends"], fs)
    if document["batch"] is None:
        fs.remove(journal)
    else:
        write_atomic(journal, json.dumps({**document, "renames": [], "ends": {}}, indent=1).encode(), fs)
    fs.sync_dir(data_dir)
    staging = data_dir / document["staging"]
    if fs.is_dir(staging):
        fs.remove_tree(staging)


def _move_recovery_points(data_dir: Path, ends: dict[str, int], fs: FileSystem) -> None:
    """Record the published offsets as flushed, so that recovery cuts nothing of them."""
    checkpoint = OffsetCheckpoint(data_dir / RECOVERY_POINTS, fs)
    try:
        points = checkpoint.read()
    except CorruptCheckpointError:
        return  # the next start then assumes no flush
    for name, end in ends.items():
        partition = parse_partition_dir(name)
        if partition is not None:
            points[partition] = max(end, points.get(partition, 0))
    if ends:
        checkpoint.write(points)


def _finish(data_dir: Path, fs: FileSystem) -> int:
    finished = 0
    for name in fs.list_dir(data_dir):
        if name.startswith(_JOURNAL) and name.endswith(".json"):
            document = _document(data_dir / name, fs)
            if document["renames"]:
                _carry_out(data_dir, data_dir / name, document, fs)
                finished += 1
    return finished


def _batch_of(journal: Path, fs: FileSystem) -> int | None:
    if not fs.exists(journal):
        return None
    batch = _document(journal, fs)["batch"]
    return None if batch is None else int(batch)


def _document(journal: Path, fs: FileSystem) -> dict[str, Any]:
    try:
        document = json.loads(fs.read_bytes(journal))
        if document["version"] != 1:
            raise ValueError(f"version {document['version']}, expected 1")
        known = {key: document[key] for key in ("version", "staging", "batch", "renames")}
        return known | {"ends": document.get("ends", {})}  # older journals have none
    except (ValueError, KeyError, TypeError) as error:
        raise DataDirError(f"{journal} is no journal of a publication: {error}") from error


@contextmanager
def _held(data_dir: Path, fs: FileSystem) -> Iterator[None]:
    """Hold the directory's lock as a broker does. Wait for another publication.

    Where directories cannot be locked (NFS), a concurrent publication is reported as a broker.
    """
    with fs.open(data_dir) as directory:
        with suppress(OSError):
            fcntl.flock(directory.fileno(), fcntl.LOCK_EX)
        lock = hold(data_dir, fs)
        if lock is None:
            raise UsageError(
                f"{data_dir} is in use by a broker (its {LOCK} file is held): stop it first, or write through it"
            )
        with lock:
            yield
