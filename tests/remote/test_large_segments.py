"""Positions and sizes beyond 2^31 and 2^32, on sparse files."""

from __future__ import annotations

from pathlib import Path

from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.remote.segment_blocks import SegmentBlocks
from stratalog.remote.storage.manifest import BLOCK_BYTES, SegmentManifest, StoredObject
from stratalog.remote.storage.object_key import ObjectKind
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager
from stratalog.util.crc32c import crc32c
from tests.remote.values import segment

SIZE = 2**32 + 3 * BLOCK_BYTES + 17


def test_records_behind_four_gigabytes_are_read_and_checked(tmp_path: Path) -> None:
    batch = build_batch([Record(offset=9, timestamp_ms=1, key=None, value=b"far out")], base_offset=9)
    position = SIZE - len(batch)
    metadata = segment(1, 0, 9, size=SIZE)
    zeros = crc32c(bytes(BLOCK_BYTES))
    tail = bytes(SIZE % BLOCK_BYTES)
    last = (bytes(BLOCK_BYTES) + tail)[: BLOCK_BYTES + len(tail) - len(batch)] + batch
    crcs = [zeros] * (SIZE // BLOCK_BYTES - 1) + [crc32c(last[:BLOCK_BYTES]), crc32c(last[BLOCK_BYTES:])]
    manifest = SegmentManifest.of(metadata, {ObjectKind.LOG: StoredObject(SIZE, 0)}, tuple(crcs))
    assert len(manifest.to_json()) < 30_000

    store = ObjectStore.from_url(tmp_path.as_uri())
    path = tmp_path / manifest.key()
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(SIZE)
        file.seek(position)
        file.write(batch)
    store.put(manifest.key(ObjectKind.MANIFEST), manifest.to_json())

    rsm = ObjectStoreRemoteStorageManager(store)
    assert rsm.manifest(metadata).segment_size_in_bytes == SIZE
    assert bytes(rsm.fetch_log_segment(metadata, position)) == batch
    assert bytes(rsm.fetch_log_segment(metadata, 2**32 - 1, 2**32 + 1)) == b"\0\0"
    blocks = SegmentBlocks(rsm)
    data = b"".join(blocks.read(metadata, position, SIZE + 100))
    assert [b.base_offset for b in iter_batches(data)] == [9]
    blocks.close()
    rsm.close()
