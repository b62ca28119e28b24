"""Convert offset indexes of remote segments to the other format, one segment at a time.

The new object is put first, then the manifest with its size, checksum and entry size. A reader in between finds an
index that does not match, and rebuilds it from the records, as for a damaged one. Encrypted segments and those in
Aiven's layout are not changed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stratalog.errors import DamagedRemoteObjectError
from stratalog.log.format import OffsetIndexFormat, detect_from_entries, format_of, offset_index_format, used_size
from stratalog.remote.storage import ObjectKind, ObjectLayout, PlainView, SegmentManifest, StoredObject


@dataclass(frozen=True, slots=True)
class Converted:
    """The result: `is_needed` if entries had the other size. `misfit` is the largest position if it does not fit."""

    is_needed: bool
    entries: int
    misfit: int | None = None


def why_untouchable(manifest: SegmentManifest) -> str | None:
    """Return the reason why a segment's indexes must not be changed, or None."""
    if manifest.layout is not ObjectLayout.STRATALOG:
        return "it is in Aiven's layout, which is never written"
    return "it is encrypted" if manifest.encryption is not None else None


def convert_index(
    view: PlainView, manifest: SegmentManifest, form: OffsetIndexFormat, *, is_dry: bool = False
) -> Converted:
    """Convert the offset index, unless it already has the format, has no entries, or does not fit.

    Raises DamagedRemoteObjectError if it differs from the manifest or is not an offset index, and other
    RemoteStorageErrors.
    """
    key = manifest.key(ObjectKind.OFFSET_INDEX)
    data = memoryview(view.get(key)).cast("B")
    manifest.check_object(ObjectKind.OFFSET_INDEX, data)
    found = _format(manifest, data, key)
    entries = list(
        offset_index_format.decode_entries(data[: used_size_in_entries(data, found)], manifest.base_offset, found)
    )
    if not entries or found is form:
        return Converted(False, len(entries))
    if entries[-1].position > form.position_max:
        return Converted(True, len(entries), entries[-1].position)
    if not is_dry:
        packed = b"".join(form.entry.pack(e.offset - manifest.base_offset, e.position) for e in entries)
        _put(view, manifest, packed, form.entry_size)
    return Converted(True, len(entries))


def used_size_in_entries(data: memoryview, form: OffsetIndexFormat) -> int:
    """Return the bytes of whole entries, without the zeros after them."""
    used = -(-used_size(data) // form.entry_size) * form.entry_size
    return min(used, len(data) // form.entry_size * form.entry_size)


def _format(manifest: SegmentManifest, data: memoryview, key: str) -> OffsetIndexFormat:
    if manifest.offset_index_entry_size is not None:
        return format_of(manifest.offset_index_entry_size)
    found = detect_from_entries(data)
    if found.is_corrupt:
        raise DamagedRemoteObjectError(f"{key} is not an offset index: {found.reason}")
    return found.format


def _put(view: PlainView, manifest: SegmentManifest, data: bytes, entry_size: int) -> None:
    """Store the offset index, compare what is read back, then store the manifest."""
    store, kind = view.inner, ObjectKind.OFFSET_INDEX
    key = manifest.key(kind)
    uploaded = store.put(key, data)
    if bytes(store.get(key)) != data:
        raise DamagedRemoteObjectError(
            f"{store.url}/{key}: it differs from what was written; the manifest is unchanged"
        )
    objects = {**manifest.objects, kind: StoredObject(uploaded.size, uploaded.crc32c, etag=uploaded.etag)}
    changed = replace(manifest, objects=objects, offset_index_entry_size=entry_size)
    store.put(manifest.key(ObjectKind.MANIFEST), changed.to_json())
    view.reader.remember(changed)
