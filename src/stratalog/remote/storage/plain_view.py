"""A view of a bucket by object keys, in which every segment has plain objects of our layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from typing_extensions import Buffer

from stratalog.errors import RemoteResourceNotFoundError, RemoteStorageError
from stratalog.remote.storage.layouts import ReadKeys, SegmentReader, object_key, parse_manifest_key
from stratalog.remote.storage.manifest import ObjectLayout, SegmentManifest
from stratalog.remote.storage.object_names import CONTENTS, ObjectKey, ObjectKind
from stratalog.remote.storage.object_store import ForwardingObjectStore, ObjectInfo, ObjectStore
from stratalog.util import REAL_FILESYSTEM, FileSystem

_Result = TypeVar("_Result")


def open_bucket(url: str, options: Mapping[str, str] | None = None, fs: FileSystem = REAL_FILESYSTEM) -> PlainView:
    """Open a store for readers, like `ObjectStore.from_url`.

    Uses the keys of the options `encryption.key.file` and `aiven.encryption.key.file`. Raises UsageError.
    """
    keys, rest = ReadKeys.split(options or {}, fs)
    return PlainView(SegmentReader(ObjectStore.from_url(url, rest, fs), keys))


class PlainView(ForwardingObjectStore):
    """A store in which each content of each segment is decoded, under its key of our layout (`SegmentManifest.key`).

    Listings show the stored objects. Objects that are no content of a segment, or of a segment without a manifest, are
    passed through. Contents of encrypted segments and of other layouts cannot be put: the segment would become a mix.
    """

    def __init__(self, reader: SegmentReader) -> None:
        super().__init__(reader.store)
        self.reader = reader

    def around(self, operation: str, key: str, call: Callable[[], _Result]) -> _Result:
        if operation == "put":
            self._refuse(key)
        return call()

    def get(self, key: str) -> Buffer:
        content = self._content(key)
        return self.inner.get(key) if content is None else self.reader.read(*content)

    def get_range(self, key: str, start: int, end: int) -> Buffer:
        content = self._content(key)
        if content is None:
            return self.inner.get_range(key, start, end)
        manifest, kind = content
        return self.reader.read_range(manifest, kind, start, end, blocks=False)

    def head(self, key: str) -> ObjectInfo:
        content = self._content(key)
        if content is None:
            return self.inner.head(key)
        manifest, kind = content
        found = self.inner.head(object_key(manifest, kind))
        return ObjectInfo(key, manifest.objects[kind].size, found.last_modified_ms, found.etag)

    def delete(self, keys: Sequence[str]) -> None:
        self._forget(keys)
        super().delete(keys)

    def delete_together(self, keys: Sequence[str]) -> None:
        self._forget(keys)
        super().delete_together(keys)

    def _forget(self, keys: Sequence[str]) -> None:
        for key in keys:
            segment = ObjectKey.parse(key) or parse_manifest_key(key)
            if segment is not None:
                self.reader.forget(segment)

    def _content(self, key: str) -> tuple[SegmentManifest, ObjectKind] | None:
        """Return the content at `key` if it has to be decoded, else None."""
        parsed = ObjectKey.parse(key)
        if parsed is None or parsed.kind not in CONTENTS:
            return None
        try:
            manifest = self.reader.manifest(parsed)
        except RemoteResourceNotFoundError:
            return None
        stored = manifest.objects.get(parsed.kind)
        plain = stored is None or stored.chunks is None
        return None if plain else (manifest, parsed.kind)

    def _refuse(self, key: str) -> None:
        """Raise RemoteStorageError for a content that cannot be put.

        A new manifest replaces the cached one.
        """
        parsed = ObjectKey.parse(key)
        if parsed is None:
            return
        if parsed.kind not in CONTENTS:
            self.reader.forget(parsed)
            return
        try:
            manifest = self.reader.manifest(parsed)
        except RemoteResourceNotFoundError:
            return
        if manifest.encryption is not None or manifest.layout is not ObjectLayout.STRATALOG:
            raise RemoteStorageError(
                f"{self.url}/{key} is of a segment that is encrypted or of another layout; it is not changed in place"
            )
