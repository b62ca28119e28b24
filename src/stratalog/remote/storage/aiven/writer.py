"""Write new segments in this layout: the records, then the indexes in one object. The caller puts the manifest.

The objects are those that the plugin would write, byte for byte except for random parts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from stratalog.errors import (
    CorruptRecordError,
    RemoteStorageError,
    RetriableRemoteStorageError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from stratalog.log import scan_headers
from stratalog.log.format import LEGACY
from stratalog.records import Codec, batch_at
from stratalog.remote.api import LogSegmentData, RemoteLogSegmentMetadata
from stratalog.remote.storage.aiven.data_keys import DATA_KEY_BYTES, SealingKey
from stratalog.remote.storage.aiven.keys import INDEXES, LOG
from stratalog.remote.storage.aiven.manifest import INDEX_ORDER, index_object
from stratalog.remote.storage.chunk_codec import AesGcm, ChunkCodec, Compression
from stratalog.remote.storage.encoder import ChunkedContent, put_chunks
from stratalog.remote.storage.manifest import Encryption, ObjectLayout, SegmentManifest, StoredObject
from stratalog.remote.storage.object_names import ObjectKind
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.util import File, FileSystem, random_bytes

logger = logging.getLogger(__name__)

_AAD_BYTES = 32


class CompressionRule(Enum):
    """Which segments are compressed."""

    NEVER = "never"
    ALWAYS = "always"
    #: All but those whose first batch is: the rest is assumed to be like it.
    UNLESS_COMPRESSED = "unless compressed"


@dataclass(frozen=True, slots=True)
class AivenEncoding:
    """How new segments are stored. With a key, each segment gets its own data key."""

    chunk_bytes: int
    compression: CompressionRule = CompressionRule.NEVER
    sealing_key: SealingKey | None = None


class AivenSegmentWriter:
    """Stores the contents of segments. Thread-safe. Raises RemoteStorageError."""

    def __init__(self, store: ObjectStore, encoding: AivenEncoding, fs: FileSystem) -> None:
        self._store = store
        self._encoding = encoding
        self._fs = fs

    def put(self, stem: str, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> SegmentManifest:
        """Store records and indexes as `stem` with their suffixes. Return the manifest, which is yet to be stored."""
        if data.offset_index_entry_size not in (None, LEGACY.entry_size):
            raise RemoteStorageError(
                f"{data.offset_index} has entries of {data.offset_index_entry_size} bytes, which brokers with Aiven's "
                "plugin cannot read: keep segment.bytes of tiered topics below 2 GiB"
            )
        encryption, cipher = self._new_cipher()
        with _there(data.log_segment), self._fs.open(data.log_segment) as file:
            codec = ChunkCodec(self._compression(file), cipher)
            records = self._put_records(f"{stem}.{LOG}", file, codec, data)
        if records.size != metadata.segment_size_bytes:
            raise RemoteStorageError(
                f"{data.log_segment} had {records.size} bytes when it was copied, {metadata.segment_size_bytes} were "
                "expected"
            )
        indexes = self._put_indexes(f"{stem}.{INDEXES}", cipher, data)
        return SegmentManifest(
            topic=metadata.topic_id_partition.topic,
            topic_id=metadata.topic_id_partition.topic_id,
            partition=metadata.topic_id_partition.partition,
            segment_id=metadata.segment_id.id,
            base_offset=metadata.start_offset,
            end_offset=metadata.end_offset,
            max_timestamp=metadata.max_timestamp_ms,
            broker_id=metadata.broker_id,
            event_timestamp=metadata.event_timestamp_ms,
            leader_epochs=dict(metadata.segment_leader_epochs),
            txn_index_empty=metadata.txn_index_empty,
            objects={ObjectKind.LOG: records, **indexes},
            block_bytes=self._encoding.chunk_bytes,
            block_crc32c=None,
            compression=codec.compression,
            encryption=encryption,
            layout=ObjectLayout.AIVEN,
            object_stem=stem,
        )

    def _new_cipher(self) -> tuple[Encryption | None, AesGcm | None]:
        key = self._encoding.sealing_key
        if key is None:
            return None, None
        data_key, associated = random_bytes(DATA_KEY_BYTES), random_bytes(_AAD_BYTES)
        return Encryption(key.key_id, key.seal(data_key), associated), AesGcm(data_key, lambda _: associated)

    def _compression(self, file: File) -> Compression:
        rule = self._encoding.compression
        if rule is CompressionRule.NEVER or (rule is CompressionRule.UNLESS_COMPRESSED and _is_compressed(file)):
            return Compression.NONE
        return Compression.ZSTD

    def _put_records(self, key: str, file: File, codec: ChunkCodec, data: LogSegmentData) -> StoredObject:
        if codec.compression is Compression.NONE and codec.cipher is None:
            return StoredObject(self._store.put_file(key, data.log_segment, progress=data.on_progress).size, None)
        content = ChunkedContent(file.size(), file.pread, self._encoding.chunk_bytes)
        stored = put_chunks(self._store, key, content, codec, on_progress=data.on_progress)
        return StoredObject(stored.size, None, stored.chunks)

    def _put_indexes(self, key: str, cipher: AesGcm | None, data: LogSegmentData) -> Mapping[ObjectKind, StoredObject]:
        objects: dict[ObjectKind, StoredObject] = {}
        pieces: list[bytes] = []
        position = 0
        for kind, content in self._indexes(data):
            stored = content if cipher is None or not content else cipher.seal(content, b"")
            objects[kind] = index_object(position, len(stored), cipher is not None)
            pieces.append(stored)
            position += len(stored)
        self._store.put(key, b"".join(pieces))
        return objects

    def _indexes(self, data: LogSegmentData) -> Iterator[tuple[ObjectKind, bytes]]:
        if data.producer_snapshot_index is None:
            raise RemoteStorageError(
                f"{data.log_segment} has no snapshot of producers at its end, and a segment of the layout of Aiven's "
                "plugin must have one: let another replica lead the partition"
            )
        files = {
            ObjectKind.OFFSET_INDEX: data.offset_index,
            ObjectKind.TIME_INDEX: data.time_index,
            ObjectKind.PRODUCER_SNAPSHOT: data.producer_snapshot_index,
            ObjectKind.TXN_INDEX: data.transaction_index,
        }
        for kind in INDEX_ORDER:
            path = files.get(kind)
            if kind is ObjectKind.LEADER_EPOCHS:
                yield kind, data.leader_epoch_index
            elif path is not None:
                with _there(path):
                    yield kind, self._fs.read_bytes(path)


@contextmanager
def _there(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise RetriableRemoteStorageError(f"{path} was removed while it was copied") from error


def _is_compressed(log: File) -> bool:
    """Return whether the first batch is compressed. A damaged batch is copied unchanged."""
    try:
        first = next(scan_headers(log), None)
        if first is None:
            raise CorruptRecordError("there is no batch", where=str(log.path))
        batch = batch_at(log.pread(first[1].size, 0))
        batch.ensure_valid()
        return batch.codec is not Codec.NONE
    except (CorruptRecordError, UnsupportedCompressionTypeError, UnsupportedForMessageFormatError) as error:
        logger.warning("%s is copied without compression, as its first batch cannot be read: %s", log.path, error)
        return True
