"""Read segments of both layouts: find their manifest, locate their bytes, and decode their contents.

`SegmentReader` is for callers that have a manifest. It checks contents with the checksums, tags and sizes of the
manifest. Callers that have keys use `plain_view`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from uuid import UUID

from typing_extensions import Buffer

from stratalog.errors import (
    DamagedRemoteObjectError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    ReplacedRemoteObjectError,
    RetriableRemoteStorageError,
)
from stratalog.remote.storage.aiven import DataKeys, data_keys, keys as aiven_keys, manifest as aiven_manifest
from stratalog.remote.storage.chunk_codec import AesGcm, ChunkCodec, Compression
from stratalog.remote.storage.keyring import KeyFiles, Keyring
from stratalog.remote.storage.manifest import Encryption, ObjectLayout, SegmentManifest
from stratalog.remote.storage.object_names import ObjectKey, ObjectKind
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.util import REAL_FILESYSTEM, FileSystem

KEY_FILE = "encryption.key.file"

_MANIFESTS_KEPT = 1000
_CODECS_KEPT = 1000


@dataclass(frozen=True, slots=True)
class ReadKeys:
    """Keys of encrypted segments."""

    keyring: Keyring | KeyFiles = field(default_factory=Keyring)
    data_keys: DataKeys = field(default_factory=DataKeys)

    @classmethod
    def split(cls, options: Mapping[str, str], fs: FileSystem = REAL_FILESYSTEM) -> tuple[ReadKeys, dict[str, str]]:
        """Return the keys that options name, and the other options. Raises UsageError for a file without a key."""
        rest: dict[str, str] = {}
        named: dict[str, str] = {}
        for name, value in options.items():
            (named if name.replace("_", ".") in (KEY_FILE, data_keys.OPTION) else rest)[name] = value
        files = {name.replace("_", "."): value for name, value in named.items()}
        return cls(KeyFiles(files.get(KEY_FILE), fs), DataKeys.of_files(files.get(data_keys.OPTION), fs)), rest


# --- manifests --------------------------------------------------------------------------------------------------------


_MANIFEST_ENDS = (f".{ObjectKind.MANIFEST.value}", f".{aiven_keys.MANIFEST}")


def parse_manifest_key(key: str) -> ObjectKey | None:
    """Return the segment of a manifest key of either layout, or None for any other key."""
    if not key.endswith(_MANIFEST_ENDS):  # excludes most keys of a listing
        return None
    found = ObjectKey.parse(key)
    if found is not None:
        return found if found.kind is ObjectKind.MANIFEST else None
    return aiven_keys.parse_manifest_key(key)


def read_manifest(store: ObjectStore, key: str) -> SegmentManifest:
    """Return the manifest at a key that `parse_manifest_key` accepts. Raises RemoteStorageError."""
    segment = parse_manifest_key(key)
    source = f"{store.url}/{key}"
    if segment is None:
        raise RemoteStorageError(f"{source} is not the key of a segment manifest")
    decode = SegmentManifest.from_json if key == str(segment) else aiven_manifest.decode
    manifest = decode(store.get(key), source)
    if manifest.key(ObjectKind.MANIFEST) != str(segment):
        raise RemoteStorageError(f"{source} is the manifest of another segment, {manifest.key()}")
    return manifest


def read_replaced(store: ObjectStore, segment: ObjectKey) -> SegmentManifest:
    """Return the manifest of a replaced segment. Raises RemoteStorageError."""
    key = str(replace(segment, kind=ObjectKind.REPLACED))
    source = f"{store.url}/{key}"
    manifest = SegmentManifest.from_json(store.get(key), source)
    if manifest.key(ObjectKind.REPLACED) != key:
        raise RemoteStorageError(f"{source} is the manifest of another segment, {manifest.key()}")
    return manifest


def object_key(manifest: SegmentManifest, kind: ObjectKind) -> str:
    """Return the key of the object with a content. Several contents may share one object."""
    key = manifest.key(kind)
    if manifest.layout is ObjectLayout.STRATALOG:
        return key
    stem = manifest.object_stem or key.removesuffix(f".{kind.value}")
    return f"{stem}.{aiven_keys.suffix(kind)}"


def stored_objects(manifest: SegmentManifest) -> dict[str, int]:
    """Return keys and sizes of all objects of a segment except its manifest, as a listing of the bucket shows them."""
    sizes: dict[str, int] = {}
    for kind, stored in manifest.objects.items():
        key = object_key(manifest, kind)
        end = stored.stored_size if stored.chunks is None else stored.chunks.position + stored.stored_size
        sizes[key] = max(sizes.get(key, 0), end)
    return sizes


# --- contents ---------------------------------------------------------------------------------------------------------


class SegmentReader:
    """Reads contents of segments in a store. Thread-safe."""

    def __init__(self, store: ObjectStore, keys: ReadKeys | None = None) -> None:
        self.store = store
        self.keys = keys or ReadKeys()
        self._manifests: OrderedDict[tuple[UUID, UUID, int], SegmentManifest] = OrderedDict()
        self._codecs: OrderedDict[UUID, ChunkCodec] = OrderedDict()
        self._lock = threading.Lock()

    def manifest(self, key: ObjectKey, find: Callable[[ObjectKey], SegmentManifest] | None = None) -> SegmentManifest:
        """Return and cache the manifest of the segment of `key`. Raises RemoteStorageError.

        Includes replaced segments, which readers may use until their objects are removed. `find` fetches the manifest
        if its location does not follow from the key.
        """
        wanted = _identity(key)
        with self._lock:
            known = self._manifests.get(wanted)
            if known is not None:
                self._manifests.move_to_end(wanted)
                return known
        manifest = (find or self._find)(replace(key, kind=ObjectKind.MANIFEST))
        self.remember(manifest)
        return manifest

    def _find(self, key: ObjectKey) -> SegmentManifest:
        """Return the manifest from the store. Raises RemoteStorageError."""
        try:
            return read_manifest(self.store, str(key))
        except RemoteResourceNotFoundError as missing:
            for read in (_read_aiven, read_replaced):
                with suppress(RemoteResourceNotFoundError):
                    return read(self.store, key)
            raise missing from None

    def remember(self, manifest: SegmentManifest) -> None:
        """Add `manifest` to the cache."""
        with self._lock:
            key = (manifest.topic_id, manifest.segment_id, manifest.base_offset)
            self._manifests[key] = manifest
            if len(self._manifests) > _MANIFESTS_KEPT:
                self._manifests.popitem(last=False)

    def forget(self, key: ObjectKey) -> None:
        with self._lock:
            self._manifests.pop(_identity(key), None)
            self._codecs.pop(key.segment_id.id, None)

    def read(self, manifest: SegmentManifest, kind: ObjectKind) -> bytes:
        """Return a whole content, checked.

        Raises RemoteResourceNotFoundError when the segment has none of this kind.
        """
        stored = manifest.objects.get(kind)
        if stored is None:
            raise RemoteResourceNotFoundError(f"{manifest.key()} has no {kind.value}")
        if stored.chunks is None:
            data = bytes(self.store.get(object_key(manifest, kind)))
        else:
            data = bytes(self._chunks(manifest, kind, 0, stored.size))
        self._checked(manifest, kind, lambda: manifest.check_object(kind, data))
        return data

    def read_range(
        self, manifest: SegmentManifest, kind: ObjectKind, start: int, end: int, *, blocks: bool = True
    ) -> Buffer:
        """Return the content [start, end), clipped to its size.

        With `blocks`, records without chunks are fetched in whole blocks and compared with their checksums (aligned
        ranges waste nothing); without, the caller checks them. Chunks are always checked.
        """
        stored = manifest.objects[kind]
        end = min(end, stored.size)
        if start >= end:
            return b""
        if stored.chunks is not None:
            return self._chunks(manifest, kind, start, end)
        checked = blocks and kind is ObjectKind.LOG and manifest.block_crc32c is not None
        block = manifest.block_bytes if checked else 1
        first, last = start - start % block, min(stored.size, -(-end // block) * block)
        data = self._range(manifest, kind, first, last)
        if checked:
            self._checked(manifest, kind, lambda: manifest.check_blocks(first, data))
        return data[start - first : end - first]

    def _chunks(self, manifest: SegmentManifest, kind: ObjectKind, start: int, end: int) -> Buffer:
        """Return the content [start, end) of a chunked object."""
        index = manifest.objects[kind].chunks
        chunks = [] if index is None else index.chunks(start, end)
        if index is None or not chunks:
            return b""
        first = chunks[0]
        data = self._range(manifest, kind, first.stored_start, chunks[-1].stored_end)
        codec, name = self._codec(manifest, kind), object_key(manifest, kind)

        def decoded() -> Buffer:
            pieces = [
                codec.decode(
                    name,
                    chunk,
                    index.count,
                    data[chunk.stored_start - first.stored_start : chunk.stored_end - first.stored_start],
                )
                for chunk in chunks
            ]
            content = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            if kind is ObjectKind.LOG and index.chunk_bytes == manifest.block_bytes:
                manifest.check_blocks(first.start, content)
            return content

        content = memoryview(self._checked(manifest, kind, decoded)).cast("B")
        return content[start - first.start : end - first.start]

    def _range(self, manifest: SegmentManifest, kind: ObjectKind, start: int, end: int) -> memoryview:
        """Return exactly the requested bytes of an object, undecoded."""
        key = object_key(manifest, kind)
        data = memoryview(self.store.get_range(key, start, end)).cast("B")
        if len(data) != end - start:
            short = RetriableRemoteStorageError(
                f"{key}: {len(data)} bytes were returned for [{start}, {end}), which has {end - start}"
            )
            raise self._replaced(manifest, kind, short) or short
        return data

    def _codec(self, manifest: SegmentManifest, kind: ObjectKind) -> ChunkCodec:
        if manifest.layout is ObjectLayout.AIVEN and kind is not ObjectKind.LOG:
            return ChunkCodec(Compression.NONE, self._segment_codec(manifest).cipher)
        return self._segment_codec(manifest)

    def _segment_codec(self, manifest: SegmentManifest) -> ChunkCodec:
        with self._lock:
            known = self._codecs.get(manifest.segment_id)
        if known is None:
            known = self._new_codec(manifest)
            with self._lock:
                self._codecs[manifest.segment_id] = known
                if len(self._codecs) > _CODECS_KEPT:
                    self._codecs.popitem(last=False)
        return known

    def _new_codec(self, manifest: SegmentManifest) -> ChunkCodec:
        encryption, source = manifest.encryption, f"{self.store.url}/{manifest.key()}"
        if encryption is None:
            return ChunkCodec(manifest.compression)
        if encryption.sealed_data_key is None:
            key = self.keys.keyring.current().segment_key(encryption.key_id, manifest.segment_id, source)
            return ChunkCodec(manifest.compression, AesGcm(key))
        return ChunkCodec(manifest.compression, _envelope(encryption, self.keys.data_keys, source))

    # --- replaced objects -------------------------------------------------------------------------------------------

    def _checked(self, manifest: SegmentManifest, kind: ObjectKind, check: Callable[[], Buffer | None]) -> Buffer:
        try:
            return check() or b""
        except DamagedRemoteObjectError as error:
            raise self._replaced(manifest, kind, error) or error from None

    def _replaced(
        self, manifest: SegmentManifest, kind: ObjectKind, error: RemoteStorageError
    ) -> ReplacedRemoteObjectError | None:
        """Return an error if the object was replaced since it was stored, else None."""
        key, noted = object_key(manifest, kind), manifest.objects[kind]
        size = stored_objects(manifest)[key]
        try:
            found = self.store.head(key)
        except RemoteStorageError:
            return None
        if found.size != size and (manifest.layout is ObjectLayout.STRATALOG or found.size < size):
            what = f"it has {found.size} bytes, and {size} were stored"
        elif noted.etag is not None and found.etag is not None and found.etag != noted.etag:
            what = f"its entity tag is {found.etag}, and {noted.etag} was stored"
        else:
            return None
        return ReplacedRemoteObjectError(
            f"{error}; {self.store.url}/{key} was replaced after it was copied: {what}; restore its earlier version"
        )


def _read_aiven(store: ObjectStore, key: ObjectKey) -> SegmentManifest:
    return read_manifest(store, aiven_keys.aiven_key(key, aiven_keys.MANIFEST))


def _identity(key: ObjectKey) -> tuple[UUID, UUID, int]:
    return key.segment_id.topic_id_partition.topic_id, key.segment_id.id, key.start_offset


def _envelope(encryption: Encryption, keys: DataKeys, source: str) -> AesGcm:
    """Return the cipher of a segment with its own data key: the same associated data for every chunk."""
    associated = encryption.associated or b""
    return AesGcm(keys.open(encryption.key_id, encryption.sealed_data_key or b"", source), lambda _: associated)
