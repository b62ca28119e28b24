"""Copy one segment out of a bucket, in a worker: into files of a partition directory, or into another bucket.

Contents of any layout, compression and encryption are decoded and checked on the way.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from typing_extensions import Buffer

from stratalog.errors import CorruptRecordError, RemoteStorageError
from stratalog.jobs.index import format_for_rebuild, index_log, write_offset_index, write_time_index
from stratalog.log.format import log_file, offset_index_file, time_index_file, txn_index_file
from stratalog.log.index import txn_index
from stratalog.records import RAISE_CUT, walk
from stratalog.remote.api import LogSegmentData
from stratalog.remote.storage import (
    Encoding,
    ObjectKind,
    ObjectStore,
    ObjectStoreRemoteStorageManager,
    ReadKeys,
    SegmentManifest,
    SegmentReader,
    open_bucket,
    read_manifest,
)
from stratalog.util import REAL_FILESYSTEM, write_atomic

_RANGE_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Source:
    """A segment of a bucket. Batches below `from_offset` are skipped, because the previous segment has them."""

    url: str
    options: dict[str, str] = field(hash=False)
    manifest_key: str
    from_offset: int
    size: int

    def __str__(self) -> str:
        return f"{self.url}/{self.manifest_key}"


@dataclass(frozen=True, slots=True)
class LocalTask:
    """Write a segment into a partition directory."""

    source: Source
    directory: Path

    def __str__(self) -> str:
        return str(self.source)


@dataclass(frozen=True, slots=True)
class CopiedSegment:
    """The written `.log` and its size; None if nothing of the segment was needed."""

    log: Path | None
    size: int


@dataclass(frozen=True, slots=True)
class BucketTask:
    """Stage a segment in another bucket, encoded by `target_options` (compression, encryption.key.file)."""

    source: Source
    target_url: str
    target_options: dict[str, str] = field(hash=False)

    def __str__(self) -> str:
        return str(self.source)


def copy_to_directory(task: LocalTask) -> CopiedSegment:
    """Write and sync all files of a segment. Raises RemoteStorageError, CorruptRecordError or OSError."""
    reader, manifest = _open(task.source)
    return _write_files(reader, manifest, task.directory, task.source.from_offset)


def copy_to_bucket(task: BucketTask) -> SegmentManifest:
    """Stage all objects except the manifest, which is returned. Needs local disk space for the segment."""
    reader, manifest = _open(task.source)
    keys, options = ReadKeys.split(task.target_options)
    encoding = Encoding.of(options.pop("compression", "none"), keys.keyring.current())
    with tempfile.TemporaryDirectory(prefix="stratalog-restore-") as temporary:
        directory = Path(temporary)
        written = _write_files(reader, manifest, directory, manifest.base_offset)
        if written.log is None:
            raise RemoteStorageError(f"{task.source}: it has no records")
        base, entry_size = manifest.base_offset, manifest.offset_index_entry_size
        snapshot = _optional(reader, manifest, ObjectKind.PRODUCER_SNAPSHOT, directory / "snapshot")
        aborted = directory / txn_index_file(base)
        data = LogSegmentData(
            written.log,
            directory / offset_index_file(base),
            directory / time_index_file(base),
            aborted if aborted.exists() else None,
            snapshot,
            reader.read(manifest, ObjectKind.LEADER_EPOCHS),
            offset_index_entry_size=entry_size,
            topic_config=manifest.topic_config,
            partition_count=manifest.partition_count,
        )
        target = ObjectStoreRemoteStorageManager(
            ObjectStore.from_url(task.target_url, options), encoding=encoding, keys=keys
        )
        try:
            return target.stage(manifest.metadata(), data)
        finally:
            target.close()


def can_encode(options: dict[str, str]) -> None:
    """Raise UsageError if nothing can be written with these options of a target."""
    keys, rest = ReadKeys.split(options)
    Encoding.of(rest.get("compression", "none"), keys.keyring)


def _open(source: Source) -> tuple[SegmentReader, SegmentManifest]:
    reader = open_bucket(source.url, source.options).reader
    manifest = read_manifest(reader.store, source.manifest_key)
    reader.remember(manifest)
    return reader, manifest


def _write_files(reader: SegmentReader, manifest: SegmentManifest, directory: Path, from_offset: int) -> CopiedSegment:
    is_whole = from_offset <= manifest.base_offset
    part = directory / f"{manifest.base_offset:020d}.part"
    base = manifest.base_offset
    with REAL_FILESYSTEM.open(part, create=True) as file:
        file.truncate(0)
        size, first = 0, None
        for piece, offset in _pieces(reader, manifest, None if is_whole else from_offset):
            first = offset if first is None else first
            size += file.write_at(piece, size)
        file.sync()
    if not size:
        REAL_FILESYSTEM.remove(part)
        return CopiedSegment(None, 0)
    if not is_whole and first is not None:
        base = first
    log = directory / log_file(base)
    REAL_FILESYSTEM.rename(part, log)
    _write_indexes(reader, manifest, directory, log, base, is_whole=is_whole)
    REAL_FILESYSTEM.sync_dir(directory)
    return CopiedSegment(log, size)


def _pieces(reader: SegmentReader, manifest: SegmentManifest, from_offset: int | None) -> Iterator[tuple[Buffer, int]]:
    """Yield the records in pieces; with `from_offset`, in whole batches, each with its base offset."""
    total = manifest.segment_size_in_bytes

    def read(size: int, position: int) -> Buffer:
        data = reader.read_range(manifest, ObjectKind.LOG, position, position + size)
        if memoryview(data).nbytes != size:
            raise RemoteStorageError(
                f"{manifest.key()}: {memoryview(data).nbytes} bytes were returned for [{position}, {position + size})"
            )
        return data

    if from_offset is None:
        for position in range(0, total, _RANGE_BYTES):
            yield read(min(_RANGE_BYTES, total - position), position), manifest.base_offset
        return
    for _, batch in walk(read, total, on_damage=RAISE_CUT, window_size=_RANGE_BYTES, name=manifest.key()):
        if batch.last_offset < from_offset:
            continue
        if batch.base_offset < from_offset:
            raise CorruptRecordError(
                f"{manifest.key()}: the batch with offsets {batch.base_offset} to {batch.last_offset} lies across "
                f"offset {from_offset}, where the segment before ends"
            )
        yield batch.as_memoryview(), batch.base_offset


def _write_indexes(
    reader: SegmentReader, manifest: SegmentManifest, directory: Path, log: Path, base: int, *, is_whole: bool
) -> None:
    """Write the stored indexes. Rebuild them if they are missing, or cover more than was copied."""
    index, times = directory / offset_index_file(base), directory / time_index_file(base)
    try:
        if not is_whole:
            raise RemoteStorageError("only a part of the segment is wanted")
        write_atomic(index, reader.read(manifest, ObjectKind.OFFSET_INDEX))
        write_atomic(times, reader.read(manifest, ObjectKind.TIME_INDEX))
    except (RemoteStorageError, KeyError):
        REAL_FILESYSTEM.remove(index)
        form = format_for_rebuild(log, index, base)
        made = index_log(log, base)
        write_offset_index(index, base, made.offset, form)
        write_time_index(times, base, made.time)
    if not manifest.txn_index_empty and ObjectKind.TXN_INDEX in manifest.objects:
        entries = txn_index.decode_entries(reader.read(manifest, ObjectKind.TXN_INDEX))
        wanted = b"".join(txn_index.encode_entry(entry) for entry in entries if entry.last_offset >= base)
        if wanted:
            write_atomic(directory / txn_index_file(base), wanted)


def _optional(reader: SegmentReader, manifest: SegmentManifest, kind: ObjectKind, path: Path) -> Path | None:
    if kind not in manifest.objects:
        return None
    write_atomic(path, reader.read(manifest, kind))
    return path
