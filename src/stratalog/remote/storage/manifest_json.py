"""The manifest as the JSON object in the bucket.

Version 1 describes a segment whose objects are its contents. Version 2 adds `encoding` and, for each object, its
`chunks`. It is written only if contents are compressed or encrypted, so that older releases can read the others and
refuse these. Unknown fields are ignored; a field that must not be ignored gets a new version.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import Buffer

from stratalog.errors import ManifestFromTheFutureError, RemoteStorageError
from stratalog.remote.storage.block_timestamps import BlockTimestamps
from stratalog.remote.storage.chunk_codec import Compression
from stratalog.remote.storage.chunks import ChunkIndex
from stratalog.remote.storage.manifest import (
    ENCODED_VERSION,
    FORMAT,
    VERSION,
    Encryption,
    ObjectLayout,
    SegmentManifest,
    StoredObject,
)
from stratalog.remote.storage.object_names import ObjectKind
from stratalog.util import PackedUint32s, uuid_from_base64, uuid_to_base64

ALGORITHM = "AES-256-GCM"


def encode(manifest: SegmentManifest) -> bytes:
    """Return the object. Raises ValueError for a manifest of another layout, which is never written."""
    if manifest.layout is not ObjectLayout.STRATALOG:
        raise ValueError(f"a manifest of the layout {manifest.layout.value} cannot be written here")
    encoded = any(stored.chunks is not None for stored in manifest.objects.values())
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": ENCODED_VERSION if encoded else VERSION,
        "topic": manifest.topic,
        "topic_id": uuid_to_base64(manifest.topic_id),
        "partition": manifest.partition,
        "segment_id": uuid_to_base64(manifest.segment_id),
        "base_offset": manifest.base_offset,
        "end_offset": manifest.end_offset,
        "max_timestamp": manifest.max_timestamp,
        "broker_id": manifest.broker_id,
        "event_timestamp": manifest.event_timestamp,
        "leader_epochs": [[epoch, start] for epoch, start in sorted(manifest.leader_epochs.items())],
        "txn_index_empty": manifest.txn_index_empty,
        "topic_config": manifest.topic_config,
        "partition_count": manifest.partition_count,
        "encoding": _encoding(manifest) if encoded else None,
        "objects": {kind.value: _object(stored) for kind, stored in manifest.objects.items()},
        "offset_index_entry_size": manifest.offset_index_entry_size,
        "block_bytes": manifest.block_bytes,
        "block_crc32c": _uint32s(manifest.block_crc32c or ()),
        "block_timestamps": None if manifest.block_timestamps is None else str(manifest.block_timestamps),
    }
    present = {name: value for name, value in document.items() if value is not None}
    return (json.dumps(present, indent=1) + "\n").encode()


def decode(data: Buffer, source: str) -> SegmentManifest:
    """Parse. RemoteStorageError names `source` and what is wrong; ManifestFromTheFutureError for a later version."""
    try:
        document = json.loads(bytes(data))
        if document["format"] != FORMAT:
            raise ValueError(f"format {document['format']} is unknown")
        version = document["version"]
        if version not in (VERSION, ENCODED_VERSION):
            raise _unknown_version(version, source)
        manifest = _manifest(document)
        manifest.validate()
    except (KeyError, TypeError, ValueError, AttributeError, struct.error, binascii.Error) as error:
        what = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise RemoteStorageError(f"{source} is not a manifest of a segment: {what}") from error
    return manifest


def _unknown_version(version: object, source: str) -> Exception:
    if not isinstance(version, int) or version < 1:
        return ValueError(f"version {version} is no version")
    return ManifestFromTheFutureError(
        f"{source} is a manifest of version {version}, and this release reads versions {VERSION} to {ENCODED_VERSION}: "
        "a later release wrote it; upgrade to that one to read this segment (it is unchanged)"
    )


def _encoding(manifest: SegmentManifest) -> dict[str, Any]:
    found: dict[str, Any] = {
        "chunk_bytes": manifest.block_bytes,
        "compression": manifest.compression.value,
    }
    if manifest.encryption is not None:
        found["encryption"] = {"algorithm": ALGORITHM, "key_id": manifest.encryption.key_id}
    return found


def _object(stored: StoredObject) -> dict[str, Any]:
    found: dict[str, Any] = {"size": stored.size}
    if stored.crc32c is not None:
        found["crc32c"] = f"{stored.crc32c:08x}"
    if stored.chunks is not None:
        found["chunks"] = _uint32s(stored.chunks.stored_sizes)
    if stored.etag is not None:
        found["etag"] = stored.etag
    return found


def _manifest(document: Mapping[str, Any]) -> SegmentManifest:
    entry_size = document.get("offset_index_entry_size")
    config, times = document.get("topic_config"), document.get("block_timestamps")
    partition_count = document.get("partition_count")
    encoding = document["encoding"] if document["version"] == ENCODED_VERSION else {}
    chunk_bytes = int(encoding["chunk_bytes"]) if encoding else None
    return SegmentManifest(
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
        objects={ObjectKind(suffix): _stored(stored, chunk_bytes) for suffix, stored in document["objects"].items()},
        block_bytes=int(document["block_bytes"]),
        block_crc32c=_from_uint32s(document["block_crc32c"]),
        offset_index_entry_size=None if entry_size is None else int(entry_size),
        topic_config=None if config is None else {str(name): str(value) for name, value in config.items()},
        partition_count=None if partition_count is None else int(partition_count),
        block_timestamps=None if times is None else BlockTimestamps.parse(times),
        compression=Compression(encoding.get("compression", "none")),
        encryption=_encryption(encoding.get("encryption")),
    )


def _encryption(found: Mapping[str, Any] | None) -> Encryption | None:
    if found is None:
        return None
    if found["algorithm"] != ALGORITHM:
        raise ValueError(f"the encryption {found['algorithm']} is unknown")
    return Encryption(str(found["key_id"]))


def _stored(found: Mapping[str, Any], chunk_bytes: int | None) -> StoredObject:
    size, etag = int(found["size"]), found.get("etag")
    chunks = None
    if chunk_bytes is not None and "chunks" in found:
        chunks = ChunkIndex(size, chunk_bytes, _from_uint32s(found["chunks"]))
    return StoredObject(size, int(found["crc32c"], 16), chunks, None if etag is None else str(etag))


def _uint32s(values: Sequence[int]) -> str:
    """Encode as base64 of big-endian uint32."""
    return base64.b64encode(PackedUint32s.of(values).packed).decode()


def _from_uint32s(text: str) -> PackedUint32s:
    return PackedUint32s(base64.b64decode(text, validate=True))
