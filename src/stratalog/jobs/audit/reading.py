"""Read and check every object of one segment, for `--deep`.

`layouts.PlainView` gives decoded contents under the keys of our layout, whatever the bucket's own layout is. Records
are fetched in ranges of `RANGE_BYTES`, one of which is in memory for each segment being read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from typing_extensions import Buffer

from stratalog.errors import DamagedRemoteObjectError, RemoteResourceNotFoundError
from stratalog.inspect import REMAKEABLE
from stratalog.jobs.audit.contents import ContentFault, Expected, IndexEntries, RecordsWalk, check_small
from stratalog.jobs.audit.findings import AuditKind
from stratalog.remote.storage import ObjectKind, ObjectLayout, ObjectStore, SegmentManifest

#: A multiple of every block size that a manifest may have.
RANGE_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ReadSegment:
    """The result of reading a segment: its faults, and the walk over its records with their checksums."""

    faults: tuple[ContentFault, ...]
    records: RecordsWalk


def read_segment(
    store: ObjectStore, manifest: SegmentManifest, on_bytes: Callable[[int], None] = lambda _: None
) -> ReadSegment:
    """Read every object that a manifest lists. Missing objects are not faults here: the listing reports them.

    Raises RemoteStorageError when the store fails.
    """
    faults: list[ContentFault] = []
    small: dict[ObjectKind, Buffer] = {}
    for kind in manifest.objects:
        if kind is not ObjectKind.LOG and not _has_no_entries(manifest, kind):
            data, fault = _read_small(store, manifest, kind, on_bytes)
            if fault is not None:
                faults.append(fault)
            elif data is not None:
                small[kind] = data
    last_epoch = max(manifest.leader_epochs)
    for kind, data in small.items():
        if kind not in REMAKEABLE and (wrong := check_small(kind, data, last_epoch)) is not None:
            faults.append(wrong)
    expected = Expected(
        base_offset=manifest.base_offset,
        end_offset=manifest.end_offset,
        size=manifest.segment_size_in_bytes,
        max_timestamp=manifest.max_timestamp,
        block_bytes=manifest.block_bytes,
        block_crc32c=manifest.block_crc32c,
        offset_index_entry_size=manifest.offset_index_entry_size,
    )
    walk = walk_records(store, manifest.key(), expected, small, on_bytes)
    return ReadSegment((*faults, *walk.faults), walk)


def walk_records(
    store: ObjectStore,
    key: str,
    expected: Expected,
    indexes: Mapping[ObjectKind, Buffer],
    on_bytes: Callable[[int], None] = lambda _: None,
) -> RecordsWalk:
    """Read all records at `key`, and compare them with `expected` and with their indexes."""
    entries = IndexEntries(expected, indexes.get(ObjectKind.OFFSET_INDEX), indexes.get(ObjectKind.TIME_INDEX))
    walk = RecordsWalk(expected, entries)
    step = max(RANGE_BYTES // expected.block_bytes, 1) * expected.block_bytes
    for start in range(0, expected.size, step):
        try:
            piece = store.get_range(key, start, min(start + step, expected.size))
        except RemoteResourceNotFoundError:
            break
        except DamagedRemoteObjectError:
            walk.lose(AuditKind.DAMAGED_OBJECT, f"the chunks from position {start} on cannot be opened")
            break
        walk.feed(piece)
        on_bytes(memoryview(piece).nbytes)
        if memoryview(piece).nbytes < min(step, expected.size - start):
            break
    walk.end()
    return walk


def _read_small(
    store: ObjectStore, manifest: SegmentManifest, kind: ObjectKind, on_bytes: Callable[[int], None]
) -> tuple[Buffer | None, ContentFault | None]:
    try:
        data = store.get(manifest.key(kind))
    except RemoteResourceNotFoundError:
        return None, None
    except DamagedRemoteObjectError:
        return None, _damaged(kind)
    on_bytes(memoryview(data).nbytes)
    try:
        manifest.check_object(kind, data)
    except DamagedRemoteObjectError:
        return None, _damaged(kind)
    return data, None


def _damaged(kind: ObjectKind) -> ContentFault:
    return ContentFault(kind, AuditKind.DAMAGED_OBJECT, "its bytes do not match the checksum in the manifest")


def _has_no_entries(manifest: SegmentManifest, kind: ObjectKind) -> bool:
    """Return whether the index is empty. Aiven's layout stores an index without entries as zero bytes."""
    return manifest.layout is ObjectLayout.AIVEN and manifest.objects[kind].size == 0
