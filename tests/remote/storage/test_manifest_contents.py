"""What a manifest says beside the metadata of a segment, and which manifests are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import stratalog
from stratalog.errors import ManifestFromTheFutureError, RemoteStorageError, ReplacedRemoteObjectError
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.log.scan import scan_headers
from stratalog.records.record import Record
from stratalog.remote.storage.block_timestamps import BlockTimestamps, TimeRange, block_timestamps
from stratalog.remote.storage.chunk_codec import Compression
from stratalog.remote.storage.encoder import Encoding
from stratalog.remote.storage.layouts import SegmentReader, read_manifest
from stratalog.remote.storage.manifest import SegmentManifest
from stratalog.remote.storage.object_names import ObjectKind
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager
from stratalog.util.filesystem import REAL_FILESYSTEM
from tests.remote.storage.segments import make_segment
from tests.remote.world import World

T0 = 1_700_000_000_000


def copied(
    tmp_path: Path, encoding: Encoding | None = None, url: str | None = None
) -> tuple[ObjectStore, SegmentManifest]:
    store = ObjectStore.from_url(url or (tmp_path / "bucket").as_uri())
    metadata, data, _ = make_segment(tmp_path)
    rsm = ObjectStoreRemoteStorageManager(store, encoding=encoding)
    rsm.copy_log_segment_data(metadata, data)
    rsm.close()
    return store, list_remote_segments(store)[0]


def document(store: ObjectStore, manifest: SegmentManifest) -> dict[str, Any]:
    found = json.loads(bytes(store.get(manifest.key(ObjectKind.MANIFEST))))
    assert isinstance(found, dict)
    return found


# --- versions ---------------------------------------------------------------------------------------------------------


def test_a_plain_segment_is_version_1_as_it_always_was(tmp_path: Path) -> None:
    """Nothing that older releases need has gone; what is new to them they pass over."""
    store, manifest = copied(tmp_path)
    found = document(store, manifest)
    assert found["version"] == 1
    assert "encoding" not in found
    assert {"objects", "block_bytes", "block_crc32c", "leader_epochs", "max_timestamp"} <= set(found)
    assert set(found["objects"]["log"]) == {"size", "crc32c", "etag"}


def test_a_manifest_from_before_these_fields_is_read(tmp_path: Path) -> None:
    store, manifest = copied(tmp_path)
    found = document(store, manifest)
    for name in ("topic_config", "partition_count", "block_timestamps", "offset_index_entry_size"):
        found.pop(name, None)
    for each in found["objects"].values():
        del each["etag"]
    old = SegmentManifest.from_json(json.dumps(found).encode(), "here")
    assert (old.topic_config, old.partition_count, old.block_timestamps) == (None, None, None)
    assert old.segment_size_in_bytes == manifest.segment_size_in_bytes
    assert len(SegmentReader(store).read(old, ObjectKind.OFFSET_INDEX)) == 800


def test_a_field_that_is_not_known_is_passed_over(tmp_path: Path) -> None:
    store, manifest = copied(tmp_path, Encoding(Compression.ZSTD))
    found = document(store, manifest) | {"something_new": {"x": 1}}
    assert SegmentManifest.from_json(json.dumps(found).encode(), "here") == manifest


def test_a_manifest_from_the_future_names_version_object_and_what_to_do(tmp_path: Path) -> None:
    store, manifest = copied(tmp_path)
    key = manifest.key(ObjectKind.MANIFEST)
    data = json.dumps(document(store, manifest) | {"version": 3, "topic": {"moved": "elsewhere"}}).encode()
    store.put(key, data)
    rsm = ObjectStoreRemoteStorageManager(store)
    with pytest.raises(ManifestFromTheFutureError) as caught:
        rsm.fetch_log_segment(manifest.metadata(), 0, 10)
    assert str(caught.value).startswith(
        f"{store.url}/{key} is a manifest of version 3, and this release reads versions 1 to 2"
    )
    assert "upgrade" in str(caught.value)
    assert bytes(store.get(key)) == data
    rsm.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"encoding": {"compression": "lz4", "chunk_bytes": 1048576}}, "lz4"),
        ({"encoding": {"compression": "zstd", "chunk_bytes": 5}}, "chunks"),
        (
            {"encoding": {"encryption": {"algorithm": "ROT13", "key_id": "x"}, "chunk_bytes": 1048576}},
            "ROT13",
        ),
        ({"block_timestamps": "AAAA"}, "no pairs"),
        ({"block_timestamps": "A" * 128}, "time ranges"),
        ({"partition_count": 0}, "a topic of 0 partitions has no partition 3"),
        ({"partition_count": "many"}, "many"),
    ],
)
def test_an_encoding_or_times_that_cannot_be_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    store, manifest = copied(tmp_path, Encoding(Compression.ZSTD))
    with pytest.raises(RemoteStorageError, match=message):
        SegmentManifest.from_json(json.dumps(document(store, manifest) | change).encode(), "here")


# --- configuration and times ------------------------------------------------------------------------------------------


def test_the_engine_notes_the_topics_configuration_and_times(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(40)
        world.tier()
        manifests = list_remote_segments(world.inner)
        assert manifests
        for manifest in manifests:
            assert manifest.topic_config is not None
            assert manifest.topic_config["remote.storage.enable"] == "true"
            assert manifest.block_timestamps is not None
            times = manifest.block_timestamps[0]
            assert times is not None
            assert times.least_ms <= times.largest_ms == manifest.max_timestamp


def test_times_of_blocks_are_those_of_their_batches(tmp_path: Path) -> None:
    """Against a walk over all batches, one block after the other."""
    log = stratalog.open_log(tmp_path / "t-0", {"message.timestamp.before.max.ms": str(10**13)})
    for number in range(60):
        at = T0 + (number * 7919) % 1000
        log.append([Record(0, at, None, b"v" * 90), Record(0, at + 3, None, b"w" * 300)])
    path = log.partition_log.segments[0].log_path
    log.close()
    for block_bytes in (100, 1000, 4096, 10**6):
        with REAL_FILESYSTEM.open(path) as file:
            found = block_timestamps(file, block_bytes)
            batches = [(position, batch.base_timestamp, batch.max_timestamp) for position, batch in scan_headers(file)]
        assert len(found) == -(-path.stat().st_size // block_bytes)
        for block in range(len(found)):
            inside = [each for each in batches if each[0] // block_bytes == block]
            expected = TimeRange(min(b for _, b, _ in inside), max(m for _, _, m in inside)) if inside else None
            assert found[block] == expected
        assert BlockTimestamps.parse(str(found)) == found


def test_with_log_append_time_both_ends_are_the_append(tmp_path: Path) -> None:
    log = stratalog.open_log(tmp_path / "t-0", {"message.timestamp.type": "LogAppendTime"})
    log.append([Record(0, 5, None, b"old")])
    path = log.partition_log.segments[0].log_path
    log.close()
    with REAL_FILESYSTEM.open(path) as file:
        times = block_timestamps(file, 1000)[0]
    assert times is not None
    assert times.least_ms == times.largest_ms > 5


# --- objects replaced under us ----------------------------------------------------------------------------------------


def test_an_object_of_another_size_is_said_to_be_replaced(tmp_path: Path) -> None:
    store, manifest = copied(tmp_path)
    store.put(manifest.key(), b"something else")
    size = manifest.segment_size_in_bytes
    with pytest.raises(
        ReplacedRemoteObjectError, match=rf"{manifest.key()} was replaced.*has 14 bytes, and {size} were"
    ):
        SegmentReader(store).read_range(manifest, ObjectKind.LOG, 0, 100)
    store.put(manifest.key(ObjectKind.TIME_INDEX), b"")
    with pytest.raises(ReplacedRemoteObjectError, match="it has 0 bytes, and 800 were stored"):
        SegmentReader(store).read(manifest, ObjectKind.TIME_INDEX)


def test_an_object_of_the_same_size_is_reported_by_its_entity_tag(tmp_path: Path) -> None:
    store, manifest = copied(tmp_path, url="memory:///")
    store.put(manifest.key(ObjectKind.OFFSET_INDEX), bytes(800))
    with pytest.raises(ReplacedRemoteObjectError, match=r"damaged in the store.*was replaced.*its entity tag is"):
        SegmentReader(store).read(manifest, ObjectKind.OFFSET_INDEX)


def test_a_copy_of_a_bucket_has_other_entity_tags_and_is_read(tmp_path: Path) -> None:
    store, manifest = copied(tmp_path)
    copy = ObjectStore.from_url("memory:///")
    for info in list(store.list()):
        copy.put(info.key, bytes(store.get(info.key)))
    again = read_manifest(copy, manifest.key(ObjectKind.MANIFEST))
    assert len(SegmentReader(copy).read(again, ObjectKind.OFFSET_INDEX)) == 800
