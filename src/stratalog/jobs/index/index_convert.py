"""Indexes of remote segments made anew or put in the other format, one segment at a time.

The new object is put first, then the manifest with its size, checksum and entry size: whoever reads in between finds an
index that does not match and makes his own from the records, as for a damaged one. What is encrypted or of Aiven's layout
is not changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from stratalog.errors import DamagedRemoteObjectError, RemoteStorageError
from stratalog.jobs.fsck.producers import Replay
from stratalog.log.format import offset_index_format, producer_snapshot
from stratalog.log.format.offset_index_format import OffsetIndexFormat, detect, format_of, used_size
from stratalog.log.index import txn_index
from stratalog.records.batch import RecordBatch, checked_batch_size, iter_batches
from stratalog.records.batch_format import HEADER_SIZE_UP_TO_MAGIC
from stratalog.remote.storage.manifest import Layout, SegmentManifest, StoredObject
from stratalog.remote.storage.object_key import ObjectKind
from stratalog.remote.storage.plain_view import PlainView

_RANGE_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Converted:
    """`is_needed`: the index has entries of the other size. `misfit`: the largest position, where it does not fit."""

    is_needed: bool
    entries: int
    misfit: int | None = None


def why_untouchable(manifest: SegmentManifest) -> str | None:
    """Why a segment's indexes are not changed, None where they may be."""
    if manifest.layout is not Layout.STRATALOG:
        return "it is of Aiven's layout, which is not written here"
    return "it is encrypted" if manifest.encryption is not None else None


def convert_index(
    view: PlainView, manifest: SegmentManifest, form: OffsetIndexFormat, *, is_dry: bool = False
) -> Converted:
    """Put the offset index in another format, unless it has it, has no entries, or does not fit.

    DamagedRemoteObjectError when it is not what the manifest says, or no offset index; other RemoteStorageErrors.
    """
    key = manifest.key(ObjectKind.OFFSET_INDEX)
    data = memoryview(view.get(key)).cast("B")
    manifest.check_object(ObjectKind.OFFSET_INDEX, data)
    found = _format(manifest, data, key)
    entries = list(
        offset_index_format.decode_entries(
            data[: used_size_in_entries(data, found)], manifest.base_offset, found
        )
    )
    if not entries or found is form:
        return Converted(False, len(entries))
    if entries[-1].position > form.position_max:
        return Converted(True, len(entries), entries[-1].position)
    if not is_dry:
        packed = b"".join(form.entry.pack(e.offset - manifest.base_offset, e.position) for e in entries)
        _put(view, manifest, ObjectKind.OFFSET_INDEX, packed, entry_size=form.entry_size)
    return Converted(True, len(entries))


def used_size_in_entries(data: memoryview, form: OffsetIndexFormat) -> int:
    """Bytes of whole entries, without zeros behind them."""
    used = -(-used_size(data) // form.entry_size) * form.entry_size
    return min(used, len(data) // form.entry_size * form.entry_size)


def _format(manifest: SegmentManifest, data: memoryview, key: str) -> OffsetIndexFormat:
    if manifest.offset_index_entry_size is not None:
        return format_of(manifest.offset_index_entry_size)
    found = detect(data)
    if found.is_corrupt:
        raise DamagedRemoteObjectError(f"{key} is no offset index: {found.reason}")
    return found.format


def remake_txn_index(
    view: PlainView, manifest: SegmentManifest, before: SegmentManifest | None, *, is_dry: bool = False
) -> int:
    """Make the transaction index anew from the records, and from the producers that the segment before ended with.

    The number of aborted transactions. RemoteStorageError when that is not to be had, or the records cannot be read.
    """
    replay = Replay(is_complete=True)
    if before is None or before.end_offset + 1 != manifest.base_offset:
        if manifest.base_offset != 0:
            raise RemoteStorageError(
                f"{manifest.key()}: the segment before it is not there, so what it had of transactions is not known"
            )
    elif ObjectKind.PRODUCER_SNAPSHOT in before.objects:
        replay.load(producer_snapshot.decode(bytes(view.get(before.key(ObjectKind.PRODUCER_SNAPSHOT)))))
    for batch in _batches(view, manifest):
        if batch.producer_id >= 0:
            replay.see(batch)
    data = b"".join(map(txn_index.encode_entry, replay.aborted))
    if not is_dry:
        _put(view, manifest, ObjectKind.TXN_INDEX, data)
    return len(replay.aborted)


def _batches(view: PlainView, manifest: SegmentManifest) -> Iterator[RecordBatch]:
    position, rest, size = 0, b"", manifest.segment_size_in_bytes
    while position < size:
        piece = bytes(view.get_range(manifest.key(), position, min(position + _RANGE_BYTES, size)))
        position += len(piece)
        data, consumed = rest + piece, 0
        for batch in iter_batches(data):
            yield batch
            consumed = batch.start + batch.size
        rest = data[consumed:]
        if len(rest) >= HEADER_SIZE_UP_TO_MAGIC:
            checked_batch_size(rest, 0)
        if not piece:
            raise DamagedRemoteObjectError(f"{manifest.key()} ends at {position} of {size} bytes")


def _put(
    view: PlainView,
    manifest: SegmentManifest,
    kind: ObjectKind,
    data: bytes,
    *,
    entry_size: int | None = None,
) -> None:
    """The object, what is read back of it, then the manifest."""
    store, key = view.inner, manifest.key(kind)
    uploaded = store.put(key, data)
    if bytes(store.get(key)) != data:
        raise DamagedRemoteObjectError(
            f"{store.url}/{key}: not what was put there; the manifest is as it was"
        )
    objects = {**manifest.objects, kind: StoredObject(uploaded.size, uploaded.crc32c, etag=uploaded.etag)}
    changed = replace(manifest, objects=objects)
    if entry_size is not None:
        changed = replace(changed, offset_index_entry_size=entry_size)
    if kind is ObjectKind.TXN_INDEX:
        changed = replace(changed, txn_index_empty=not data)
    store.put(manifest.key(ObjectKind.MANIFEST), changed.to_json())
    view.reader.remember(changed)
