"""Repair of a bucket, one mend at a time. Each is safe to do again, and a crash within it leaves nothing worse.

    delete      the manifest first, as a deletion does; what has got a manifest meanwhile is left alone
    remake      the new index, then the manifest with its checksum; in between readers take the index for damaged, as before
    manifest    one object, whole or not at all

A mend looks again before it writes: what was found may be minutes old.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stratalog.errors import (
    DamagedRemoteObjectError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
)
from stratalog.log.offset_index_format import detect
from stratalog.remote.api import RemoteLogSegmentMetadata
from stratalog.remote.audit_bucket import read_manifest
from stratalog.remote.audit_contents import Expected, check_small
from stratalog.remote.audit_facts import REMAKEABLE
from stratalog.remote.audit_findings import DeleteObjects, Mend, RemakeIndexes
from stratalog.remote.audit_read import read_segment, walk_records
from stratalog.remote.audit_run import CLOCK_KEY, plain_view
from stratalog.remote.index_rebuild import ALIGNMENT_BYTES, rebuild_indexes
from stratalog.remote.storage.layouts import SegmentReader
from stratalog.remote.storage.manifest import BLOCK_BYTES, SegmentManifest, StoredObject
from stratalog.remote.storage.object_key import CONTENTS, ObjectKey, ObjectKind
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.util.crc32c import crc32c
from stratalog.util.filesystem import REAL_FILESYSTEM, File


class NotProvedError(RemoteStorageError):
    """The objects do not prove what a mend would write; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Mended:
    """What a mend did."""

    text: str


def store_time_ms(store: ObjectStore) -> int:
    """The store's own time, by an object that is written and deleted: this machine's clock may be wrong.

    So a store that takes no writes or deletions is found before anything is changed. Raises RemoteStorageError.
    """
    store.put(CLOCK_KEY, b"written by tier repair to learn the time of the store\n")
    found = store.head(CLOCK_KEY).last_modified_ms
    store.delete([CLOCK_KEY])
    return found


def carry_out(store: ObjectStore, mend: Mend) -> Mended:
    """Do one mend. NotProvedError when it must not be done, other RemoteStorageErrors when the store failed."""
    store = plain_view(store).inner  # objects as they are: what has no manifest has no contents
    if isinstance(mend, DeleteObjects):
        return _delete(store, mend)
    if isinstance(mend, RemakeIndexes):
        return _remake(store, mend)
    return _write_manifest(store, mend.metadata)


def _delete(store: ObjectStore, mend: DeleteObjects) -> Mended:
    if mend.manifest_key is not None and _exists(store, mend.manifest_key):
        raise NotProvedError(f"{mend.manifest_key} has come meanwhile: nothing is deleted")
    store.delete(mend.keys)
    return Mended(f"deleted {len(mend.keys)} objects")


def _exists(store: ObjectStore, key: str) -> bool:
    try:
        store.head(key)
    except RemoteResourceNotFoundError:
        return False
    return True


# --- indexes ------------------------------------------------------------------------------------------------------------


def _remake(store: ObjectStore, mend: RemakeIndexes) -> Mended:
    manifest = read_manifest(store, mend.manifest_key)
    if not isinstance(manifest, SegmentManifest):
        raise NotProvedError(f"{mend.manifest_key} is no longer a readable manifest")
    changed = _put_indexes(store, manifest, mend.kinds)
    if changed != manifest:
        store.put(mend.manifest_key, changed.to_json())
    return Mended(f"made {' and '.join(kind.value for kind in mend.kinds)} anew")


def _put_indexes(
    store: ObjectStore, manifest: SegmentManifest, kinds: Sequence[ObjectKind]
) -> SegmentManifest:
    """Make both indexes, store those asked for, and give the manifest as it is then to be."""
    with tempfile.TemporaryDirectory(prefix="stratalog-index-") as directory:
        return _put_indexes_by(store, manifest, kinds, Path(directory))


def _put_indexes_by(
    store: ObjectStore, manifest: SegmentManifest, kinds: Sequence[ObjectKind], directory: Path
) -> SegmentManifest:
    paths = {
        ObjectKind.OFFSET_INDEX: directory / f"{manifest.base_offset:020d}.index",
        ObjectKind.TIME_INDEX: directory / f"{manifest.base_offset:020d}.timeindex",
    }
    records = StoredRecords(SegmentReader(store), manifest)
    try:
        entry_size = rebuild_indexes(
            records, manifest.metadata(), paths[ObjectKind.OFFSET_INDEX], paths[ObjectKind.TIME_INDEX],
            REAL_FILESYSTEM, entry_size=manifest.offset_index_entry_size,
        )  # fmt: skip
    except DamagedRemoteObjectError as error:
        raise NotProvedError(str(error)) from error
    objects = dict(manifest.objects)
    for kind in kinds:
        uploaded = store.put(manifest.key(kind), REAL_FILESYSTEM.read_bytes(paths[kind]))
        objects[kind] = StoredObject(uploaded.size, uploaded.crc32c, etag=uploaded.etag)
    if ObjectKind.OFFSET_INDEX in kinds:
        return replace(manifest, objects=objects, offset_index_entry_size=entry_size)
    return replace(manifest, objects=objects)


class StoredRecords(File):
    """The records of a segment in a store as a file; what is read is compared with the manifest's checksums."""

    def __init__(self, reader: SegmentReader, manifest: SegmentManifest) -> None:
        super().__init__(manifest.key(), -1)
        self._reader = reader
        self._manifest = manifest

    def size(self) -> int:
        return self._manifest.segment_size_in_bytes

    def pread(self, size: int, position: int) -> bytes:
        """Up to where a checksum ends, which may be more than `size`. Raises RemoteStorageError."""
        end = -(-(position + size) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        return bytes(self._reader.read_range(self._manifest, ObjectKind.LOG, position, end))


# --- the manifest -------------------------------------------------------------------------------------------------------


def _write_manifest(store: ObjectStore, metadata: RemoteLogSegmentMetadata) -> Mended:
    """Read all objects, prove that they are what the metadata says, and write what a copy would have written."""
    key = str(ObjectKey.of(metadata, ObjectKind.MANIFEST))
    if isinstance(read_manifest(store, key), SegmentManifest):
        return Mended("the manifest is there by now")
    manifest = prove_manifest(store, metadata)
    store.put(key, manifest.to_json())
    return Mended("wrote the manifest")


def prove_manifest(store: ObjectStore, metadata: RemoteLogSegmentMetadata) -> SegmentManifest:
    """The manifest of a segment from its objects. NotProvedError when they are not what the metadata says.

    An index that is missing or wrong is made anew and stored: without the manifest nobody reads it yet.
    """
    small: dict[ObjectKind, bytes] = {}
    for kind in CONTENTS:
        if kind is ObjectKind.LOG:
            continue
        try:
            small[kind] = bytes(store.get(str(ObjectKey.of(metadata, kind))))
        except RemoteResourceNotFoundError:
            continue
    log_key = str(ObjectKey.of(metadata, ObjectKind.LOG))
    size = store.head(log_key).size
    index = small.get(ObjectKind.OFFSET_INDEX)
    entry_size = None if not index else detect(index).format.entry_size
    expected = Expected(
        metadata.start_offset, metadata.end_offset, size, metadata.max_timestamp_ms, BLOCK_BYTES, None, entry_size
    )  # fmt: skip
    walk = walk_records(store, log_key, expected, small)
    if not walk.records_are_sound or len(walk.block_crc32c) != -(-size // BLOCK_BYTES):
        raise NotProvedError(
            "; ".join(fault.text for fault in walk.faults) or f"{log_key} cannot be read whole"
        )
    last_epoch = metadata.last_epoch
    for kind, data in small.items():
        if kind not in REMAKEABLE and (fault := check_small(kind, data, last_epoch)) is not None:
            raise NotProvedError(f"{ObjectKey.of(metadata, kind)}: {fault.text}")
    objects = {ObjectKind.LOG: StoredObject(size, walk.crc32c)}
    objects |= {kind: StoredObject(len(data), crc32c(data)) for kind, data in small.items()}
    manifest = SegmentManifest.of(metadata, objects, tuple(walk.block_crc32c), entry_size)
    wrong = {fault.object for fault in walk.faults}
    remade = [kind for kind in REMAKEABLE if kind in wrong or kind not in small]
    if remade:
        manifest = _put_indexes(store, manifest, remade)
    # Once more, all of it: an answer that was wrong just once must not become the word on these objects.
    if faults := read_segment(store, manifest).faults:
        raise NotProvedError(f"{log_key}: what was read twice differs: {faults[0].text}")
    return manifest
