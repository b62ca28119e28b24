"""The storage manager that keeps segments in an object store, in the layout of `object_names`.

A copy puts records, indexes, snapshot and leader epochs, and the manifest last. A deletion removes the manifest first.
So a manifest implies a complete segment, and remains of a crash are never mistaken for one. The manifest has a checksum
of every object, and fetched data are compared with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stratalog.errors import (
    CorruptRecordError,
    RemoteStorageError,
    UnsupportedForMessageFormatError,
    UsageError,
)
from stratalog.remote.api import (
    BrokerIdentity,
    CustomMetadata,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    StoredSegment,
    StoreOwnership,
)
from stratalog.remote.storage.aiven import keys as aiven_keys
from stratalog.remote.storage.block_facts import BlockFacts
from stratalog.remote.storage.block_timestamps import block_timestamps
from stratalog.remote.storage.deadline import DeadlineObjectStore
from stratalog.remote.storage.encoder import Encoder, Encoding
from stratalog.remote.storage.layouts import ReadKeys, SegmentReader
from stratalog.remote.storage.manifest import BLOCK_BYTES, SegmentManifest, StoredObject
from stratalog.remote.storage.object_names import DELETION_ORDER, ObjectKey, ObjectKind
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.storage.segment_store import DEFAULT_DEADLINE_MS, SegmentStore
from stratalog.util import REAL_FILESYSTEM, FileSystem, crc32c


class ObjectStoreRemoteStorageManager(SegmentStore):
    """A `RemoteStorageManager` on an object store.

    Omit `store` if `configure` will define it (`url`, `deadline.ms`, `compression`, `encryption.key.file`, and options
    of the store). Every store call has a deadline, larger than the store's own for one request with its retries. New
    segments are written with `encoding`; old ones are read in any encoding.
    """

    def __init__(
        self,
        store: ObjectStore | None = None,
        *,
        deadline_ms: int = DEFAULT_DEADLINE_MS,
        fs: FileSystem = REAL_FILESYSTEM,
        encoding: Encoding | None = None,
        keys: ReadKeys | None = None,
    ) -> None:
        super().__init__()
        self._fs = fs
        self._encoding = encoding or Encoding()
        self._ownership: StoreOwnership | None = None
        if store is not None:
            self._attach(store, deadline_ms, keys or ReadKeys(self._encoding.keyring))

    def configure(self, configs: Mapping[str, str]) -> None:
        keys, options = ReadKeys.split(configs, self._fs)
        for name in BrokerIdentity.KEYS:  # the layout of objects does not use it
            options.pop(name, None)
        url = options.pop("url", None)
        if url is None:
            raise UsageError("the object store of the remote tier has no url")
        deadline = options.pop("deadline.ms", str(DEFAULT_DEADLINE_MS))
        if not deadline.isdigit() or int(deadline) == 0:
            raise UsageError(f"deadline.ms={deadline}: expected a number of milliseconds")
        self._encoding = Encoding.of(options.pop("compression", "none"), keys.keyring)
        self._attach(ObjectStore.from_url(url, options, self._fs), int(deadline), keys)

    def _attach(self, store: ObjectStore, deadline_ms: int, keys: ReadKeys) -> None:
        self._deadline_store = DeadlineObjectStore(store, deadline_ms)
        self._reader = SegmentReader(self._deadline_store, keys)

    def own(self, ownership: StoreOwnership) -> None:
        """Check `ownership` before each publication and deletion. Tools that check it themselves do not call this."""
        self._ownership = ownership

    @property
    def is_read_only(self) -> bool:
        return self._ownership is not None and self._ownership.is_read_only

    def ensure_owner(self) -> None:
        if self._ownership is not None:
            self._ownership.ensure()

    def release_owner(self) -> None:
        if self._ownership is not None:
            self._ownership.release()

    def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> CustomMetadata | None:
        manifest = self.stage(metadata, data)
        self.ensure_owner()
        self.store.put(_key(metadata, ObjectKind.MANIFEST), manifest.to_json())
        self.reader.remember(manifest)
        return None

    def stage(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> SegmentManifest:
        """Store everything but the manifest, and return that. Until it is stored, no reader sees the segment."""
        reader = self.reader
        encoding = self._encoding.current()
        encoder = Encoder(reader.store, encoding, metadata, self._fs, on_progress=data.on_progress)
        blocks = data.block_facts or self._blocks(data.log_segment)
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
                objects[kind] = encoder.put_file(kind, path)
        objects[ObjectKind.LEADER_EPOCHS] = encoder.put(ObjectKind.LEADER_EPOCHS, data.leader_epoch_index)
        if objects[ObjectKind.LOG].size != metadata.segment_size_bytes:
            raise RemoteStorageError(
                f"{data.log_segment} had {objects[ObjectKind.LOG].size} bytes when it was copied, "
                f"{metadata.segment_size_bytes} were expected"
            )
        manifest = SegmentManifest.of(
            metadata,
            objects,
            blocks.checksums,
            data.offset_index_entry_size,
            topic_config=data.topic_config,
            partition_count=data.partition_count,
            block_timestamps=blocks.timestamps,
            compression=encoding.compression,
            encryption=encoding.encryption,
        )
        self._check_sizes({manifest.key(kind): stored.stored_size for kind, stored in manifest.objects.items()})
        return manifest

    def _blocks(self, path: Path) -> BlockFacts:
        """Read the blocks of a `.log` that was not read before."""
        with self._fs.open(path) as file:
            crcs = tuple(crc32c(file.pread(BLOCK_BYTES, at)) for at in range(0, file.size(), BLOCK_BYTES))
            try:
                return BlockFacts(crcs, block_timestamps(file, BLOCK_BYTES))
            except (CorruptRecordError, UnsupportedForMessageFormatError):
                return BlockFacts(crcs, None)

    def stored_segment(self, metadata: RemoteLogSegmentMetadata) -> StoredSegment:
        manifest = self.manifest(metadata)
        return StoredSegment(manifest.segment_size_in_bytes, manifest.offset_index_entry_size)

    def manifest(self, metadata: RemoteLogSegmentMetadata) -> SegmentManifest:
        """Return the manifest of a segment of either layout, and cache it."""
        return self.reader.manifest(ObjectKey.of(metadata, ObjectKind.MANIFEST))

    def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Delete the objects of a segment of either layout: without a manifest, the layout is unknown."""
        if self.is_read_only:
            return  # its metadata are removed, but its objects belong to another cluster
        self.ensure_owner()
        key = ObjectKey.of(metadata, ObjectKind.MANIFEST)
        self.reader.forget(key)
        manifest, *contents, replaced = [_key(metadata, kind) for kind in DELETION_ORDER]
        others = [each for suffix in aiven_keys.SUFFIXES if (each := aiven_keys.aiven_key(key, suffix)) not in contents]
        # The manifest goes first, and what a replaced one was is kept to the last.
        self.store.delete([manifest, others[0]])
        self.store.delete_together([*contents, *others[1:]])
        self.store.delete([replaced])


def _key(metadata: RemoteLogSegmentMetadata, kind: ObjectKind) -> str:
    return str(ObjectKey.of(metadata, kind))
