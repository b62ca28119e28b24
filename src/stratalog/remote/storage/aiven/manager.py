"""A storage manager that works like Aiven's tiered storage plugin, on the same objects.

A copy puts records, indexes, and the manifest last. A deletion removes the manifest first. The plugin records no owner
of a bucket, so none is checked: the leader of a partition copies and deletes, as with the plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from stratalog.errors import NotOwnerError, RemoteStorageError
from stratalog.remote.api import (
    INT32_MAX,
    CustomMetadata,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    StoredSegment,
)
from stratalog.remote.storage.aiven import custom_metadata, manifest as aiven_manifest
from stratalog.remote.storage.aiven.custom_metadata import NotedFields
from stratalog.remote.storage.aiven.keys import MANIFEST, SUFFIXES, main_path
from stratalog.remote.storage.aiven.settings import AivenSettings
from stratalog.remote.storage.aiven.writer import AivenSegmentWriter
from stratalog.remote.storage.deadline import DeadlineObjectStore
from stratalog.remote.storage.layouts import ReadKeys, SegmentReader, stored_objects
from stratalog.remote.storage.manifest import SegmentManifest
from stratalog.remote.storage.object_names import ObjectKey, ObjectKind
from stratalog.remote.storage.object_store import ForwardingObjectStore, ObjectStore
from stratalog.remote.storage.segment_store import DEFAULT_DEADLINE_MS, SegmentStore
from stratalog.util import REAL_FILESYSTEM, FileSystem

_Result = TypeVar("_Result")


class AivenRemoteStorageManager(SegmentStore):
    """A `RemoteStorageManager` configured with the plugin's own keys.

    Every store call has a deadline, larger than the store's own for one request. With `is_read_only` nothing is ever
    copied or deleted.
    """

    #: Positions in this layout are 32-bit integers.
    position_max = INT32_MAX

    def __init__(
        self,
        *,
        deadline_ms: int = DEFAULT_DEADLINE_MS,
        is_read_only: bool = False,
        fs: FileSystem = REAL_FILESYSTEM,
    ) -> None:
        super().__init__()
        self.is_read_only = is_read_only
        self._deadline_ms = deadline_ms
        self._fs = fs
        self._settings: AivenSettings | None = None

    def configure(self, configs: Mapping[str, str]) -> None:
        settings = AivenSettings.of(configs, self._fs)
        backend = settings.backend
        store = ObjectStore.from_url(backend.url, backend.options, self._fs)
        self._settings = settings
        self._deadline_store = DeadlineObjectStore(store, self._deadline_ms)
        shown = self._deadline_store
        masked = MaskedPrefixStore(shown, settings.key_prefix) if settings.masks_prefix else shown
        self._reader = SegmentReader(masked, ReadKeys(data_keys=settings.data_keys))

    @property
    def settings(self) -> AivenSettings:
        if self._settings is None:
            raise RemoteStorageError("the remote storage manager was not configured")
        return self._settings

    def ensure_owner(self) -> None:
        """Raise NotOwnerError if nothing may be copied or deleted."""
        if self.is_read_only:
            raise NotOwnerError(f"{self.store.url} is only read by this broker")

    def release_owner(self) -> None:
        """Do nothing: there is no record."""

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> CustomMetadata | None:
        self.ensure_owner()
        store, settings, main = self.store, self.settings, main_path(metadata)
        stem = settings.key_prefix + main
        manifest = AivenSegmentWriter(store, settings.encoding, self._fs).put(stem, metadata, data)
        sizes = stored_objects(manifest)
        self._check_sizes(sizes)
        try:
            encoded = aiven_manifest.encode(manifest)
        except ValueError as error:
            raise RemoteStorageError(
                f"{metadata.segment_id} does not fit the layout of Aiven's plugin: {error}"
            ) from error
        store.put(f"{stem}.{MANIFEST}", encoded)
        self.reader.remember(manifest)
        fields = NotedFields(sum(sizes.values()) + len(encoded), settings.key_prefix, main)
        noted = custom_metadata.encode(fields.including(settings.custom_fields))
        return CustomMetadata(noted) if noted else None

    def stored_segment(self, metadata: RemoteLogSegmentMetadata) -> StoredSegment:
        return StoredSegment(self.manifest(metadata).segment_size_in_bytes, None)

    def manifest(self, metadata: RemoteLogSegmentMetadata) -> SegmentManifest:
        """Return the manifest of a segment, and cache it."""
        return self.reader.manifest(ObjectKey.of(metadata, ObjectKind.MANIFEST), lambda _: self._find(metadata))

    def _find(self, metadata: RemoteLogSegmentMetadata) -> SegmentManifest:
        stem = self._stem(metadata)
        key = f"{stem}.{MANIFEST}"
        source = f"{self.store.url}/{key}"
        manifest = aiven_manifest.decode(self.store.get(key), source)
        if manifest.key() != str(ObjectKey.of(metadata, ObjectKind.LOG)):
            raise RemoteStorageError(f"{source} is the manifest of another segment, {manifest.key()}")
        return replace(manifest, object_stem=stem)

    def _stem(self, metadata: RemoteLogSegmentMetadata) -> str:
        """Return the key stem of a segment: the one recorded at its copy, else as configured now."""
        custom = metadata.custom_metadata
        noted = custom_metadata.decode(b"" if custom is None else custom.value, str(metadata.segment_id))
        prefix = self.settings.key_prefix if noted.object_prefix is None else noted.object_prefix
        return prefix + (main_path(metadata) if noted.object_key is None else noted.object_key)

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        if self.is_read_only:
            return  # its metadata are removed, but its objects belong to another cluster
        self.reader.forget(ObjectKey.of(metadata, ObjectKind.MANIFEST))
        stem = self._stem(metadata)
        manifest, *contents = [f"{stem}.{suffix}" for suffix in SUFFIXES]
        self.store.delete([manifest])
        self.store.delete_together(contents)


class MaskedPrefixStore(ForwardingObjectStore):
    """A store whose errors do not show the prefix of keys."""

    def __init__(self, inner: ObjectStore, prefix: str) -> None:
        super().__init__(inner)
        self._prefix = prefix

    def around(self, operation: str, key: str, call: Callable[[], _Result]) -> _Result:
        try:
            return super().around(operation, key, call)
        except RemoteStorageError as error:
            shown = f"{self.url}/<prefix>/{key.removeprefix(self._prefix)}"
            raise type(error)(error.reason, where=f"{operation} {shown}") from None
