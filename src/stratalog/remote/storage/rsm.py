"""The storage manager that keeps segments in an object store, in the layout of `object_key`.

Copy: records, indexes, snapshot and leader epochs first, the manifest last. Delete: the manifest first. So a manifest
stands for a complete segment, and what a crash leaves behind is never mistaken for one. Every object's checksum is in the
manifest; what is fetched is compared with it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

from typing_extensions import Buffer

from stratalog.errors import (
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
    UsageError,
)
from stratalog.remote.api import (
    CustomMetadata,
    IndexType,
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
)
from stratalog.remote.plugin import StoredSegment
from stratalog.remote.storage.deadline import DeadlineObjectStore
from stratalog.remote.storage.manifest import BLOCK_BYTES, SegmentManifest, StoredObject
from stratalog.remote.storage.object_key import KIND_OF_INDEX, ObjectKey, ObjectKind
from stratalog.remote.storage.object_store import ObjectStore, Uploaded
from stratalog.util.crc32c import crc32c
from stratalog.util.filesystem import REAL_FILESYSTEM, FileSystem

DEFAULT_DEADLINE_MS = 60_000

_MANIFESTS_KEPT = 1000


class ObjectStoreRemoteStorageManager:
    """See `RemoteStorageManager`.

    `store` may be left out when `configure` is going to name it (`url`, `deadline.ms`, and options of the store). Every
    call on the store has a deadline, larger than the store's own for one request with its retries.
    """

    def __init__(
        self,
        store: ObjectStore | None = None,
        *,
        deadline_ms: int = DEFAULT_DEADLINE_MS,
        fs: FileSystem = REAL_FILESYSTEM,
    ) -> None:
        self._fs = fs
        self._store = None if store is None else DeadlineObjectStore(store, deadline_ms)
        self._manifests: OrderedDict[RemoteLogSegmentId, SegmentManifest] = OrderedDict()
        self._lock = threading.Lock()

    def configure(self, configs: Mapping[str, str]) -> None:
        options = dict(configs)
        url = options.pop("url", None)
        if url is None:
            raise UsageError("the object store of the remote tier has no url")
        deadline = options.pop("deadline.ms", str(DEFAULT_DEADLINE_MS))
        if not deadline.isdigit() or int(deadline) == 0:
            raise UsageError(f"deadline.ms={deadline}: expected a number of milliseconds")
        self._store = DeadlineObjectStore(ObjectStore.from_url(url, options, self._fs), int(deadline))

    @property
    def store(self) -> ObjectStore:
        if self._store is None:
            raise RemoteStorageError("the remote storage manager was not configured")
        return self._store

    # --- copy -------------------------------------------------------------------------------------------------------

    def copy_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> CustomMetadata | None:
        block_crcs = self._block_checksums(data.log_segment)
        files: dict[ObjectKind, Path | None] = {
            ObjectKind.LOG: data.log_segment,
            ObjectKind.OFFSET_INDEX: data.offset_index,
            ObjectKind.TIME_INDEX: data.time_index,
            ObjectKind.TXN_INDEX: data.transaction_index,
            ObjectKind.PRODUCER_SNAPSHOT: data.producer_snapshot_index,
        }
        objects: dict[ObjectKind, StoredObject] = {}
        for kind, path in files.items():
            if path is not None:
                objects[kind] = self._put_file(metadata, kind, path)
        objects[ObjectKind.LEADER_EPOCHS] = _stored(
            self.store.put(_key(metadata, ObjectKind.LEADER_EPOCHS), data.leader_epoch_index)
        )
        if objects[ObjectKind.LOG].size != metadata.segment_size_bytes:
            raise RemoteStorageError(
                f"{data.log_segment} had {objects[ObjectKind.LOG].size} bytes when it was copied, "
                f"{metadata.segment_size_bytes} were expected"
            )
        manifest = SegmentManifest.of(metadata, objects, block_crcs, data.offset_index_entry_size)
        # A look at the other side: a store that lost or cut an object is found before anything local is given up.
        self._check_sizes(manifest)
        self.store.put(_key(metadata, ObjectKind.MANIFEST), manifest.to_json())
        self._remember(metadata.segment_id, manifest)
        return None

    def _put_file(self, metadata: RemoteLogSegmentMetadata, kind: ObjectKind, path: Path) -> StoredObject:
        try:
            return _stored(self.store.put_file(_key(metadata, kind), path))
        except FileNotFoundError as error:
            raise RetriableRemoteStorageError(f"{path} went away while it was copied") from error

    def _check_sizes(self, manifest: SegmentManifest) -> None:
        for kind, stored in manifest.objects.items():
            found = self.store.head(manifest.key(kind)).size
            if found != stored.size:
                raise RetriableRemoteStorageError(
                    f"{manifest.key(kind)} has {found} bytes in the store after {stored.size} were sent"
                )

    def _block_checksums(self, path: Path) -> tuple[int, ...]:
        with self._fs.open(path) as file:
            size = file.size()
            return tuple(crc32c(file.pread(BLOCK_BYTES, at)) for at in range(0, size, BLOCK_BYTES))

    # --- fetch ------------------------------------------------------------------------------------------------------

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> Buffer:
        """Whole blocks are fetched and compared with their checksums; aligned ranges waste nothing."""
        manifest = self.manifest(metadata)
        size, block = manifest.segment_size_in_bytes, manifest.block_bytes
        end = size if end_position is None else min(end_position, size)
        if start_position >= end:
            return b""
        first = start_position - start_position % block
        last = min(size, -(-end // block) * block)
        data = memoryview(self.store.get_range(manifest.key(), first, last)).cast("B")
        if len(data) != last - first:
            raise RetriableRemoteStorageError(
                f"{manifest.key()}: {len(data)} bytes came for [{first}, {last}), which has {last - first}"
            )
        manifest.check_blocks(first, data)
        return data[start_position - first : end - first]

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        manifest = self.manifest(metadata)
        kind = KIND_OF_INDEX[index_type]
        if kind not in manifest.objects:
            raise RemoteResourceNotFoundError(f"{metadata.segment_id} has no {index_type.value} index")
        data = bytes(self.store.get(manifest.key(kind)))
        manifest.check_object(kind, data)
        return data

    def stored_segment(self, metadata: RemoteLogSegmentMetadata) -> StoredSegment:
        """What the manifest says."""
        manifest = self.manifest(metadata)
        return StoredSegment(manifest.segment_size_in_bytes, manifest.offset_index_entry_size)

    def manifest(self, metadata: RemoteLogSegmentMetadata) -> SegmentManifest:
        """The manifest of a segment; kept for the next call."""
        with self._lock:
            known = self._manifests.get(metadata.segment_id)
            if known is not None:
                self._manifests.move_to_end(metadata.segment_id)
                return known
        key = _key(metadata, ObjectKind.MANIFEST)
        manifest = SegmentManifest.from_json(self.store.get(key), f"{self.store.url}/{key}")
        if (
            manifest.segment_id != metadata.segment_id.id
            or manifest.topic_id_partition != metadata.topic_id_partition
        ):
            raise RemoteStorageError(f"{self.store.url}/{key} is the manifest of another segment")
        self._remember(metadata.segment_id, manifest)
        return manifest

    def _remember(self, segment_id: RemoteLogSegmentId, manifest: SegmentManifest) -> None:
        with self._lock:
            self._manifests[segment_id] = manifest
            if len(self._manifests) > _MANIFESTS_KEPT:
                self._manifests.popitem(last=False)

    # --- delete -----------------------------------------------------------------------------------------------------

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        with self._lock:
            self._manifests.pop(metadata.segment_id, None)
        kinds = [ObjectKind.MANIFEST, *(kind for kind in ObjectKind if kind is not ObjectKind.MANIFEST)]
        self.store.delete([_key(metadata, kind) for kind in kinds])

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


def _key(metadata: RemoteLogSegmentMetadata, kind: ObjectKind) -> str:
    return str(ObjectKey.of(metadata, kind))


def _stored(uploaded: Uploaded) -> StoredObject:
    return StoredObject(uploaded.size, uploaded.crc32c)
