"""Convert a manifest of this layout (`.rsm-manifest`, JSON, version "1") to and from a `SegmentManifest`.

chunkIndex        type "fixed": transformedChunkSize, finalTransformedChunkSize; type "variable": transformedChunks
                  (`chunk_sizes`); both: originalChunkSize, originalFileSize
segmentIndexes    offset, timestamp, producerSnapshot, leaderEpoch, transaction (may be null), each a position and a
                  size in `.indexes`; a size of 0 is an index without entries; each is one chunk of its own, never
                  compressed
compression       whether the chunks of `.log` are zstd frames
encryption        dataKey "<id of the RSA key>:<base64 of the AES key under it>" and aad (base64); missing: plain
remoteLogSegmentMetadata   the broker's metadata of the segment; the plugin does not read it

The plugin's JSON has no spaces, and its fields have this order; this module writes the same bytes.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from typing_extensions import Buffer

from stratalog.errors import ManifestFromTheFutureError, RemoteStorageError
from stratalog.remote.storage.aiven.chunk_sizes import decode_text, encode_text
from stratalog.remote.storage.chunk_codec import NONCE_BYTES, TAG_BYTES, Compression
from stratalog.remote.storage.chunks import ChunkIndex
from stratalog.remote.storage.manifest import Encryption, ObjectLayout, SegmentManifest, StoredObject
from stratalog.remote.storage.object_names import ObjectKind
from stratalog.util import uuid_from_base64, uuid_to_base64

VERSION = "1"

_KINDS = {
    "offset": ObjectKind.OFFSET_INDEX,
    "timestamp": ObjectKind.TIME_INDEX,
    "producerSnapshot": ObjectKind.PRODUCER_SNAPSHOT,
    "leaderEpoch": ObjectKind.LEADER_EPOCHS,
    "transaction": ObjectKind.TXN_INDEX,
}


#: Contents in their order in `.indexes`.
INDEX_ORDER = tuple(_KINDS.values())


def encode(manifest: SegmentManifest) -> bytes:
    """Return the object. ValueError for a manifest of another layout, or one that the plugin could not read."""
    if manifest.layout is not ObjectLayout.AIVEN:
        raise ValueError(f"a manifest of the layout {manifest.layout.value} is not one of Aiven's")
    document: dict[str, Any] = {
        "version": VERSION,
        "chunkIndex": _encoded_records(manifest),
        "segmentIndexes": {name: _encoded_index(manifest.objects.get(kind)) for name, kind in _KINDS.items()},
        "compression": manifest.compression is not Compression.NONE,
    }
    if manifest.encryption is not None:
        document["encryption"] = _encoded_encryption(manifest.encryption)
    document["remoteLogSegmentMetadata"] = _encoded_metadata(manifest)
    return json.dumps(document, separators=(",", ":")).encode()


def _encoded_records(manifest: SegmentManifest) -> dict[str, Any]:
    records, chunk_bytes = manifest.objects[ObjectKind.LOG], manifest.block_bytes
    index = {"originalChunkSize": chunk_bytes, "originalFileSize": records.size}
    if manifest.compression is not Compression.NONE:
        sizes = () if records.chunks is None else records.chunks.stored_sizes
        return {"type": "variable", **index, "transformedChunks": encode_text(sizes)}
    growth = 0 if manifest.encryption is None else NONCE_BYTES + TAG_BYTES
    last = records.size - (-(-records.size // chunk_bytes) - 1) * chunk_bytes if records.size else -growth
    return {
        "type": "fixed",
        **index,
        "transformedChunkSize": chunk_bytes + growth,
        "finalTransformedChunkSize": last + growth,
    }


def _encoded_index(index: StoredObject | None) -> dict[str, int] | None:
    if index is None or index.chunks is None:
        return None
    return {"position": index.chunks.position, "size": index.chunks.stored_size}


def _encoded_encryption(encryption: Encryption) -> dict[str, str]:
    sealed, associated = encryption.sealed_data_key or b"", encryption.associated or b""
    return {
        "dataKey": f"{encryption.key_id}:{base64.b64encode(sealed).decode()}",
        "aad": base64.b64encode(associated).decode(),
    }


def _encoded_metadata(manifest: SegmentManifest) -> dict[str, Any]:
    partition = {"topic": manifest.topic, "partition": manifest.partition}
    return {
        "remoteLogSegmentId": {
            "topicIdPartition": {"topicId": uuid_to_base64(manifest.topic_id), "topicPartition": partition},
            "id": uuid_to_base64(manifest.segment_id),
        },
        "startOffset": manifest.base_offset,
        "endOffset": manifest.end_offset,
        "maxTimestampMs": manifest.max_timestamp,
        "brokerId": manifest.broker_id,
        "eventTimestampMs": manifest.event_timestamp,
        "segmentLeaderEpochs": {str(epoch): start for epoch, start in sorted(manifest.leader_epochs.items())},
        "txnIdxEmpty": manifest.txn_index_empty,
    }


def decode(data: Buffer, source: str) -> SegmentManifest:
    """Parse. RemoteStorageError names `source` and what is wrong; ManifestFromTheFutureError for a later version."""
    try:
        document = json.loads(bytes(data))
        if document["version"] != VERSION:
            raise ManifestFromTheFutureError(
                f"{source} is a manifest of version {document['version']} of the Aiven layout, and this release reads "
                f"version {VERSION}: upgrade to a release that reads it (the segment is unchanged)"
            )
        manifest = _manifest(document)
        manifest.validate()
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
        what = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise RemoteStorageError(f"{source} is not a manifest of a segment of the Aiven layout: {what}") from error
    return manifest


def _manifest(document: Mapping[str, Any]) -> SegmentManifest:
    metadata = document["remoteLogSegmentMetadata"]
    segment_id = metadata["remoteLogSegmentId"]
    partition = segment_id["topicIdPartition"]
    encryption = _encryption(document.get("encryption"))
    compression = Compression.ZSTD if document["compression"] else Compression.NONE
    records = _records(document["chunkIndex"], plain=encryption is None and compression is Compression.NONE)
    objects = {ObjectKind.LOG: records}
    for name, kind in _KINDS.items():
        found = document["segmentIndexes"][name]
        if found is not None:
            objects[kind] = index_object(int(found["position"]), int(found["size"]), encryption is not None)
    transactions = objects.get(ObjectKind.TXN_INDEX)
    return SegmentManifest(
        topic=str(partition["topicPartition"]["topic"]),
        topic_id=uuid_from_base64(partition["topicId"]),
        partition=int(partition["topicPartition"]["partition"]),
        segment_id=uuid_from_base64(segment_id["id"]),
        base_offset=int(metadata["startOffset"]),
        end_offset=int(metadata["endOffset"]),
        max_timestamp=int(metadata["maxTimestampMs"]),
        broker_id=int(metadata["brokerId"]),
        event_timestamp=int(metadata["eventTimestampMs"]),
        leader_epochs={int(epoch): int(start) for epoch, start in metadata["segmentLeaderEpochs"].items()},
        txn_index_empty=transactions is None or transactions.size == 0,
        objects=objects,
        block_bytes=int(document["chunkIndex"]["originalChunkSize"]),
        block_crc32c=None,
        compression=compression,
        encryption=encryption,
        layout=ObjectLayout.AIVEN,
    )


def _records(index: Mapping[str, Any], *, plain: bool) -> StoredObject:
    size, chunk_bytes = int(index["originalFileSize"]), int(index["originalChunkSize"])
    if index["type"] == "variable":
        sizes = decode_text(index["transformedChunks"])
    elif index["type"] == "fixed":
        count = -(-size // chunk_bytes) if chunk_bytes > 0 else 0
        final = (int(index["finalTransformedChunkSize"]),)
        sizes = (int(index["transformedChunkSize"]),) * (count - 1) + final if count else ()
    else:
        raise ValueError(f"a chunk index of the type {index['type']}")
    chunks = ChunkIndex(size, chunk_bytes, sizes)
    if not plain:
        return StoredObject(size, None, chunks)
    if chunks.stored_size != size:
        raise ValueError(f"{size} bytes of records as they are do not take {chunks.stored_size}")
    return StoredObject(size, None)


def index_object(position: int, stored_size: int, encrypted: bool) -> StoredObject:
    """Return an index that takes `stored_size` bytes of `.indexes`. Raises ValueError for an invalid size."""
    if stored_size == 0:
        return StoredObject(0, None, ChunkIndex(0, 1, (), position))
    size = stored_size - (NONCE_BYTES + TAG_BYTES if encrypted else 0)
    if size < 1:
        raise ValueError(f"an index of {stored_size} bytes at position {position}")
    return StoredObject(size, None, ChunkIndex(size, size, (stored_size,), position))


def _encryption(found: Mapping[str, Any] | None) -> Encryption | None:
    if found is None:
        return None
    key_id, separator, sealed = str(found["dataKey"]).partition(":")
    if not key_id.strip() or not separator or not sealed or ":" in sealed:
        raise ValueError("the data key is not '<key id>:<base64>'")
    return Encryption(key_id, base64.b64decode(sealed, validate=True), base64.b64decode(found["aad"], validate=True))
