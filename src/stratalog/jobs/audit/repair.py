"""Repair a bucket, one mend at a time. Each can be repeated, and a crash in the middle does no harm.

    delete      the manifest first, as for a deletion; objects that now have a manifest are left alone
    rebuild     the new content, then the manifest with its checksum; until then the segment still counts as damaged
    manifest    one object, atomically

Findings may be minutes old, so a mend checks again before it writes.
"""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.errors import RemoteResourceNotFoundError
from stratalog.inspect import REMAKEABLE, read_manifest
from stratalog.jobs.audit.bucket import CLOCK_KEY, plain_view
from stratalog.jobs.audit.contents import Expected, check_small
from stratalog.jobs.audit.findings import DeleteObjects, Mend, RemakeIndexes, TakeBackUpload, in_words
from stratalog.jobs.audit.reading import read_segment, walk_records
from stratalog.jobs.audit.rebuild_objects import remake
from stratalog.jobs.audit.segment_history import NotProvedError
from stratalog.log.format import detect_from_entries
from stratalog.remote.api import RemoteLogSegmentMetadata
from stratalog.remote.storage import (
    BLOCK_BYTES,
    CONTENTS,
    ObjectKey,
    ObjectKind,
    ObjectStore,
    PlainView,
    S3Uploads,
    SegmentManifest,
    StoredObject,
)
from stratalog.util import crc32c


@dataclass(frozen=True, slots=True)
class Mended:
    text: str


def store_time_ms(store: ObjectStore) -> int:
    """Return the store's own time, because this machine's clock may be wrong. Writes and deletes an object.

    A store that refuses writes or deletions is thus found before anything is changed. Raises RemoteStorageError.
    """
    store.put(CLOCK_KEY, b"written by tier repair to learn the time of the store\n")
    found = store.head(CLOCK_KEY).last_modified_ms
    store.delete([CLOCK_KEY])
    return found


def carry_out(store: ObjectStore, mend: Mend, uploads: S3Uploads | None = None) -> Mended:
    """Carry out one mend. `uploads` lists the store's unfinished uploads; a `TakeBackUpload` needs it.

    Raises NotProvedError if the mend must not be done, and other RemoteStorageErrors if the store fails.
    """
    if isinstance(mend, TakeBackUpload):
        if uploads is None:
            raise NotProvedError(f"{mend.upload.key}: the uploads of this store are unknown")
        uploads.abort(mend.upload)
        return Mended("aborted the upload")
    view = plain_view(store)
    if isinstance(mend, RemakeIndexes):
        return _remake(view, mend)
    store = view.inner  # raw objects: without a manifest there is nothing to decode
    return _delete(store, mend) if isinstance(mend, DeleteObjects) else _write_manifest(store, mend.metadata)


def _delete(store: ObjectStore, mend: DeleteObjects) -> Mended:
    if mend.manifest_key is not None and _exists(store, mend.manifest_key):
        raise NotProvedError(f"{mend.manifest_key} was written since the audit: nothing is deleted")
    store.delete_together(mend.keys)
    return Mended(f"deleted {len(mend.keys)} objects")


def _exists(store: ObjectStore, key: str) -> bool:
    try:
        store.head(key)
    except RemoteResourceNotFoundError:
        return False
    return True


def _remake(view: PlainView, mend: RemakeIndexes) -> Mended:
    manifest = read_manifest(view.inner, mend.manifest_key)
    if not isinstance(manifest, SegmentManifest):
        raise NotProvedError(f"{mend.manifest_key} is no longer a readable manifest")
    view.reader.remember(manifest)
    remade = remake(view, manifest, mend.kinds)
    if remade.manifest != manifest:
        view.inner.put(mend.manifest_key, remade.manifest.to_json())
        view.reader.remember(remade.manifest)
    same = ", ".join(kind.value for kind in mend.kinds if kind in remade.as_before)
    return Mended(f"rebuilt {in_words(mend.kinds)}" + (f" ({same}: byte for byte as before)" if same else ""))


def _write_manifest(store: ObjectStore, metadata: RemoteLogSegmentMetadata) -> Mended:
    """Read all objects, prove that they are what the metadata says, and write the manifest of a finished copy."""
    key = str(ObjectKey.of(metadata, ObjectKind.MANIFEST))
    if isinstance(read_manifest(store, key), SegmentManifest):
        return Mended("the manifest already exists")
    manifest = prove_manifest(store, metadata)
    store.put(key, manifest.to_json())
    return Mended("wrote the manifest")


def prove_manifest(store: ObjectStore, metadata: RemoteLogSegmentMetadata) -> SegmentManifest:
    """Return the manifest of a segment from its objects.

    Missing or wrong objects other than the records are rebuilt and stored: without the manifest no reader sees them
    yet. Raises NotProvedError if the objects are not what the metadata says.
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
    entry_size = None if not index else detect_from_entries(index).format.entry_size
    expected = Expected(
        base_offset=metadata.start_offset,
        end_offset=metadata.end_offset,
        size=size,
        max_timestamp=metadata.max_timestamp_ms,
        block_bytes=BLOCK_BYTES,
        block_crc32c=None,
        offset_index_entry_size=entry_size,
    )
    walk = walk_records(store, log_key, expected, small)
    if not walk.records_are_sound or len(walk.block_crc32c) != -(-size // BLOCK_BYTES):
        raise NotProvedError("; ".join(fault.text for fault in walk.faults) or f"{log_key} cannot be read whole")
    wrong = {fault.object for fault in walk.faults}
    wrong |= {
        kind
        for kind, data in small.items()
        if kind not in REMAKEABLE and check_small(kind, data, metadata.last_epoch) is not None
    }
    objects = {ObjectKind.LOG: StoredObject(size, walk.crc32c)}
    objects |= {kind: StoredObject(len(data), crc32c(data)) for kind, data in small.items() if kind not in wrong}
    manifest = SegmentManifest.of(metadata, objects, tuple(walk.block_crc32c), entry_size)
    remade = [kind for kind in CONTENTS if kind in wrong or (kind not in objects and _is_needed(kind, metadata))]
    if remade:
        manifest = remake(plain_view(store), manifest, remade).manifest
    # Read everything once more: one wrong answer of the store must not end up in the manifest.
    if faults := read_segment(store, manifest).faults:
        raise NotProvedError(f"{log_key}: two reads differ: {faults[0].text}")
    return manifest


def _is_needed(kind: ObjectKind, metadata: RemoteLogSegmentMetadata) -> bool:
    """Return whether every segment must have this object."""
    if kind is ObjectKind.TXN_INDEX:
        return not metadata.txn_index_empty
    return kind is not ObjectKind.PRODUCER_SNAPSHOT
