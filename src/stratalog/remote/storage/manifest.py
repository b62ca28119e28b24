"""The manifest of a remote segment: one small JSON object that makes the bucket readable without any broker.

It is written after all other objects of its segment and deleted before them: where there is a manifest, there is a
complete set of objects. It repeats all of the segment's metadata, and has the size and CRC-32C of every object; for the
records also the CRC-32C of every block of `block_bytes`, so that a ranged read can be checked. An example is in
`docs/formats/remote_layout.md`.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from typing_extensions import Buffer

from stratalog.errors import DamagedRemoteObjectError, RemoteStorageError
from stratalog.log.offset_index_format import format_of
from stratalog.remote.api import (
    CustomMetadata,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from stratalog.remote.segment_state import RemoteLogSegmentState
from stratalog.remote.storage.object_key import ObjectKey, ObjectKind
from stratalog.util.crc32c import crc32c
from stratalog.util.uuids import uuid_from_base64, uuid_to_base64

FORMAT = "stratalog-segment-manifest"
VERSION = 1

#: What one checksum of the records covers.
BLOCK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoredObject:
    """Size and CRC-32C of one object."""

    size: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class SegmentManifest:
    """All that is known of a complete remote segment. Offsets are inclusive, times in milliseconds, sizes in bytes."""

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
    block_crc32c: tuple[int, ...]
    #: Of the offset index: 8 or 12; None in manifests from before this was noted.
    offset_index_entry_size: int | None = None

    @classmethod
    def of(
        cls,
        metadata: RemoteLogSegmentMetadata,
        objects: Mapping[ObjectKind, StoredObject],
        block_crc32c: tuple[int, ...],
        offset_index_entry_size: int | None = None,
    ) -> SegmentManifest:
        """The manifest of a segment whose objects have just been stored."""
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
            block_crc32c=block_crc32c,
            offset_index_entry_size=offset_index_entry_size,
        )

    @property
    def segment_size_in_bytes(self) -> int:
        return self.objects[ObjectKind.LOG].size

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return TopicIdPartition(self.topic_id, self.topic, self.partition)

    def key(self, kind: ObjectKind = ObjectKind.LOG) -> str:
        """The key of one of the segment's objects, relative to the store's URL."""
        segment_id = RemoteLogSegmentId(self.topic_id_partition, self.segment_id)
        return str(ObjectKey(segment_id, self.base_offset, kind))

    def metadata(self, custom_metadata: CustomMetadata | None = None) -> RemoteLogSegmentMetadata:
        """The metadata that the manifest was made of, as of a finished copy."""
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
        entry_size = self.offset_index_entry_size
        document = {
            "format": FORMAT,
            "version": VERSION,
            "topic": self.topic,
            "topic_id": uuid_to_base64(self.topic_id),
            "partition": self.partition,
            "segment_id": uuid_to_base64(self.segment_id),
            "base_offset": self.base_offset,
            "end_offset": self.end_offset,
            "max_timestamp": self.max_timestamp,
            "broker_id": self.broker_id,
            "event_timestamp": self.event_timestamp,
            "leader_epochs": [[epoch, start] for epoch, start in sorted(self.leader_epochs.items())],
            "txn_index_empty": self.txn_index_empty,
            "objects": {
                kind.value: {"size": stored.size, "crc32c": f"{stored.crc32c:08x}"}
                for kind, stored in self.objects.items()
            },
            **({} if entry_size is None else {"offset_index_entry_size": entry_size}),
            "block_bytes": self.block_bytes,
            "block_crc32c": base64.b64encode(
                struct.pack(f">{len(self.block_crc32c)}I", *self.block_crc32c)
            ).decode(),
        }
        return (json.dumps(document, indent=1) + "\n").encode()

    @classmethod
    def from_json(cls, data: Buffer, source: str) -> SegmentManifest:
        """Parse; RemoteStorageError names `source` and what is wrong."""
        try:
            document = json.loads(bytes(data))
            if document["format"] != FORMAT or document["version"] != VERSION:
                raise ValueError(f"format {document['format']} version {document['version']} is unknown")
            manifest = cls._from_document(document)
            manifest._validate()
        except (KeyError, TypeError, ValueError, AttributeError, struct.error, binascii.Error) as error:
            what = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
            raise RemoteStorageError(f"{source} is no manifest of a segment: {what}") from error
        return manifest

    @classmethod
    def _from_document(cls, document: dict[str, Any]) -> SegmentManifest:
        packed = base64.b64decode(document["block_crc32c"], validate=True)
        entry_size = document.get("offset_index_entry_size")
        return cls(
            topic=str(document["topic"]),
            topic_id=uuid_from_base64(document["topic_id"]),
            partition=int(document["partition"]),
            segment_id=uuid_from_base64(document["segment_id"]),
            base_offset=int(document["base_offset"]),
            end_offset=int(document["end_offset"]),
            max_timestamp=int(document["max_timestamp"]),
            broker_id=int(document["broker_id"]),
            event_timestamp=int(document["event_timestamp"]),
            leader_epochs={int(epoch): int(start) for epoch, start in document["leader_epochs"]},
            txn_index_empty=bool(document["txn_index_empty"]),
            objects={
                ObjectKind(suffix): StoredObject(int(stored["size"]), int(stored["crc32c"], 16))
                for suffix, stored in document["objects"].items()
            },
            block_bytes=int(document["block_bytes"]),
            block_crc32c=struct.unpack(f">{len(packed) // 4}I", packed),
            offset_index_entry_size=None if entry_size is None else int(entry_size),
        )

    def _validate(self) -> None:
        if ObjectKind.LOG not in self.objects:
            raise ValueError("it lists no records")
        if self.offset_index_entry_size is not None:
            format_of(self.offset_index_entry_size)  # raises ValueError
        self.metadata()  # raises ValueError for offsets and epochs that no segment can have
        if self.block_bytes < 1 or len(self.block_crc32c) != -(
            -self.segment_size_in_bytes // self.block_bytes
        ):
            raise ValueError(
                f"{len(self.block_crc32c)} checksums of blocks of {self.block_bytes} bytes do not fit "
                f"{self.segment_size_in_bytes} bytes of records"
            )

    def check_object(self, kind: ObjectKind, data: Buffer) -> None:
        """Raise DamagedRemoteObjectError unless `data` is the object of that kind, whole."""
        expected = self.objects[kind]
        size = memoryview(data).nbytes
        if size != expected.size or crc32c(data) != expected.crc32c:
            raise DamagedRemoteObjectError(
                f"{self.key(kind)} is damaged in the store: {size} bytes with CRC-32C {crc32c(data):08x}, expected "
                f"{expected.size} with {expected.crc32c:08x}"
            )

    def check_blocks(self, start: int, data: Buffer) -> None:
        """Raise DamagedRemoteObjectError unless `data` is what was stored at position `start` of the records.

        `start` is a multiple of `block_bytes`, and so is the end unless it is that of the records.
        """
        view = memoryview(data).cast("B")
        for at in range(0, len(view), self.block_bytes):
            expected = self.block_crc32c[(start + at) // self.block_bytes]
            found = crc32c(view[at : at + self.block_bytes])
            if found != expected:
                raise DamagedRemoteObjectError(
                    f"{self.key()} is damaged in the store: the block at position {start + at} has CRC-32C {found:08x}, "
                    f"expected {expected:08x}"
                )
