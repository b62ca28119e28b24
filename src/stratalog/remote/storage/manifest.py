"""The manifest of a remote segment: all metadata needed to read a bucket without any broker.

It is written after all other objects of its segment and deleted before them, so a manifest implies a complete set of
objects. It repeats the segment's metadata and the topic's configuration, and has the size and CRC-32C of every content;
for the records also the CRC-32C and the timestamps of every block of `block_bytes`, to check ranged reads and to find
times. `manifest_json` has its stored form; `docs/formats/remote_layout.md` has an example.

A bucket may also hold segments of another layout (`aiven`), whose manifests are converted to the same class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

from typing_extensions import Buffer

from stratalog.errors import DamagedRemoteObjectError
from stratalog.log.format import format_of
from stratalog.remote.api import (
    CustomMetadata,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
)
from stratalog.remote.storage.block_timestamps import BlockTimestamps
from stratalog.remote.storage.chunk_codec import Compression
from stratalog.remote.storage.chunks import ChunkIndex
from stratalog.remote.storage.object_names import ObjectKey, ObjectKind
from stratalog.util import PackedUint32s, crc32c

FORMAT = "stratalog-segment-manifest"
#: Without and with an encoding (see `manifest_json`).
VERSION = 1
ENCODED_VERSION = 2

#: Bytes covered by one checksum of the records, and bytes of one chunk of a chunked content.
BLOCK_BYTES = 1024 * 1024


class ObjectLayout(Enum):
    STRATALOG = "stratalog"
    AIVEN = "aiven"


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One content: its size and CRC-32C (None if not recorded), and its place in its object.

    Without `chunks` the object is the content. `etag` is the store's entity tag right after the upload.
    """

    size: int
    crc32c: int | None
    chunks: ChunkIndex | None = None
    etag: str | None = None

    @property
    def stored_size(self) -> int:
        """Bytes in the bucket."""
        return self.size if self.chunks is None else self.chunks.stored_size


@dataclass(frozen=True, slots=True)
class Encryption:
    """The key that encrypts the chunks.

    `key_id` names a configured key. If the segment has its own data key, `sealed_data_key` is that key encrypted with
    the named one, and `associated` is the associated data of every chunk (the layout of Aiven).
    """

    key_id: str
    sealed_data_key: bytes | None = None
    associated: bytes | None = None


@dataclass(frozen=True, slots=True)
class SegmentManifest:
    """All metadata of a complete remote segment. Offsets are inclusive, times in milliseconds, sizes in bytes."""

    topic: str
    topic_id: UUID
    partition: int
    segment_id: UUID
    base_offset: int
    end_offset: int
    max_timestamp: int
    broker_id: int
    event_timestamp: int
    leader_epochs: Mapping[int, int] = field(hash=False)
    txn_index_empty: bool
    objects: Mapping[ObjectKind, StoredObject] = field(hash=False)
    block_bytes: int
    #: None if not recorded.
    block_crc32c: Sequence[int] | None
    #: Of the offset index: 8 or 12; None in older manifests.
    offset_index_entry_size: int | None = None
    #: The topic's values that differ from Kafka's defaults, by Kafka's names; None in older manifests.
    topic_config: Mapping[str, str] | None = field(default=None, hash=False)
    #: Of the topic when the segment was copied; None in older manifests, or if it was unknown.
    partition_count: int | None = None
    #: None in older manifests, and for records that are no batches.
    block_timestamps: BlockTimestamps | None = None
    compression: Compression = Compression.NONE
    encryption: Encryption | None = None
    layout: ObjectLayout = ObjectLayout.STRATALOG
    #: The keys of its objects without their suffixes; None if they follow from the segment (`ObjectKey`).
    object_stem: str | None = None

    @classmethod
    def of(
        cls,
        metadata: RemoteLogSegmentMetadata,
        objects: Mapping[ObjectKind, StoredObject],
        block_crc32c: Sequence[int],
        offset_index_entry_size: int | None = None,
        *,
        topic_config: Mapping[str, str] | None = None,
        partition_count: int | None = None,
        block_timestamps: BlockTimestamps | None = None,
        compression: Compression = Compression.NONE,
        encryption: Encryption | None = None,
    ) -> SegmentManifest:
        """Return the manifest of a segment whose objects have just been stored."""
        partition = metadata.topic_id_partition
        return cls(
            topic=partition.topic,
            topic_id=partition.topic_id,
            partition=partition.partition,
            segment_id=metadata.segment_id.id,
            base_offset=metadata.start_offset,
            end_offset=metadata.end_offset,
            max_timestamp=metadata.max_timestamp_ms,
            broker_id=metadata.broker_id,
            event_timestamp=metadata.event_timestamp_ms,
            leader_epochs=dict(metadata.segment_leader_epochs),
            txn_index_empty=metadata.txn_index_empty,
            objects=dict(objects),
            block_bytes=BLOCK_BYTES,
            block_crc32c=PackedUint32s.of(block_crc32c),
            offset_index_entry_size=offset_index_entry_size,
            topic_config=None if topic_config is None else dict(topic_config),
            partition_count=partition_count,
            block_timestamps=block_timestamps,
            compression=compression,
            encryption=encryption,
        )

    @property
    def segment_size_in_bytes(self) -> int:
        """Size of the records before encoding."""
        return self.objects[ObjectKind.LOG].size

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return TopicIdPartition(self.topic_id, self.topic, self.partition)

    def key(self, kind: ObjectKind = ObjectKind.LOG) -> str:
        """Return the name of one of the segment's contents, relative to the store's URL.

        The key of its object in our layout.
        """
        segment_id = RemoteLogSegmentId(self.topic_id_partition, self.segment_id)
        return str(ObjectKey(segment_id, self.base_offset, kind))

    def metadata(self, custom_metadata: CustomMetadata | None = None) -> RemoteLogSegmentMetadata:
        """Return the metadata of the segment, as of a finished copy."""
        return RemoteLogSegmentMetadata(
            segment_id=RemoteLogSegmentId(self.topic_id_partition, self.segment_id),
            start_offset=self.base_offset,
            end_offset=self.end_offset,
            max_timestamp_ms=self.max_timestamp,
            broker_id=self.broker_id,
            event_timestamp_ms=self.event_timestamp,
            segment_size_bytes=self.segment_size_in_bytes,
            segment_leader_epochs=self.leader_epochs,
            state=RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
            custom_metadata=custom_metadata,
            txn_index_empty=self.txn_index_empty,
        )

    def to_json(self) -> bytes:
        from stratalog.remote.storage.manifest_json import encode  # it imports this module

        return encode(self)

    @classmethod
    def from_json(cls, data: Buffer, source: str) -> SegmentManifest:
        from stratalog.remote.storage.manifest_json import decode  # it imports this module

        return decode(data, source)

    def validate(self) -> None:
        """Raise ValueError for impossible values."""
        if ObjectKind.LOG not in self.objects:
            raise ValueError("it lists no records")
        if self.offset_index_entry_size is not None:
            format_of(self.offset_index_entry_size)  # raises ValueError
        if self.partition_count is not None and self.partition_count <= self.partition:
            raise ValueError(f"a topic of {self.partition_count} partitions has no partition {self.partition}")
        self.metadata()  # raises ValueError for offsets and epochs that no segment can have
        size = self.segment_size_in_bytes
        if self.block_bytes < 1:
            raise ValueError(f"blocks of {self.block_bytes} bytes")
        blocks = -(-size // self.block_bytes)
        for name, values in (("checksums", self.block_crc32c), ("time ranges", self.block_timestamps)):
            if values is not None and len(values) != blocks:
                raise ValueError(
                    f"{len(values)} {name} of blocks of {self.block_bytes} bytes do not fit {size} bytes of records"
                )

    def check_object(self, kind: ObjectKind, data: Buffer) -> None:
        """Raise DamagedRemoteObjectError unless `data` is the whole content of that kind."""
        expected = self.objects[kind]
        size = memoryview(data).nbytes
        if size != expected.size or (expected.crc32c is not None and crc32c(data) != expected.crc32c):
            crc = "" if expected.crc32c is None else f" with {expected.crc32c:08x}"
            raise DamagedRemoteObjectError(
                f"{self.key(kind)} is damaged in the store: {size} bytes with CRC-32C {crc32c(data):08x}, expected "
                f"{expected.size}{crc}"
            )

    def check_blocks(self, start: int, data: Buffer) -> None:
        """Raise DamagedRemoteObjectError unless `data` is what was stored at position `start` of the records.

        `start` is a multiple of `block_bytes`, and so is the end except at the end of the records. Without checksums
        nothing is compared.
        """
        if self.block_crc32c is None:
            return
        view = memoryview(data).cast("B")
        for at in range(0, len(view), self.block_bytes):
            expected = self.block_crc32c[(start + at) // self.block_bytes]
            found = crc32c(view[at : at + self.block_bytes])
            if found != expected:
                raise DamagedRemoteObjectError(
                    f"{self.key()} is damaged in the store: the block at position {start + at} has CRC-32C "
                    f"{found:08x}, expected {expected:08x}"
                )
