from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from stratalog.errors import RemoteStorageError
from stratalog.remote.api import RemoteLogSegmentId, TopicIdPartition
from stratalog.remote.catalog import list_remote_segments
from stratalog.remote.storage.manifest import SegmentManifest, StoredObject
from stratalog.remote.storage.object_key import ObjectKind
from stratalog.remote.storage.object_store import ObjectStore
from tests.remote.values import segment


def _put(
    store: ObjectStore, number: int, start: int, end: int, topic: str = "flights", partition: int = 0
) -> None:
    where = TopicIdPartition(UUID(int=sum(topic.encode()) + 5), topic, partition)
    metadata = replace(
        segment(number, start, end), segment_id=RemoteLogSegmentId(where, UUID(int=number + 9))
    )
    manifest = SegmentManifest.of(metadata, {ObjectKind.LOG: StoredObject(1, 1)}, (1,))
    store.put(manifest.key(), b"x")
    store.put(manifest.key(ObjectKind.MANIFEST), manifest.to_json())


def _offsets(manifests: list[SegmentManifest]) -> list[tuple[str, int, int, int]]:
    return [(m.topic, m.partition, m.base_offset, m.end_offset) for m in manifests]


def test_segments_come_by_topic_partition_and_offset() -> None:
    store = ObjectStore.from_url("memory:///")
    for number, (topic, partition, start) in enumerate(
        [("b", 0, 10), ("a", 1, 0), ("a", 0, 100), ("a", 0, 20), ("b", 0, 0)]
    ):
        _put(store, number, start, start + 9, topic, partition)
    assert _offsets(list_remote_segments(store)) == [
        ("a", 0, 20, 29), ("a", 0, 100, 109), ("a", 1, 0, 9), ("b", 0, 0, 9), ("b", 0, 10, 19),
    ]  # fmt: skip
    assert _offsets(list_remote_segments(store, topics=["b"])) == [("b", 0, 0, 9), ("b", 0, 10, 19)]
    assert list_remote_segments(store, topics=[]) == []
    assert list_remote_segments(store, topics=["none"]) == []


def test_a_segment_that_another_one_covers_is_left_out() -> None:
    store = ObjectStore.from_url("memory:///")
    for number, (start, end) in enumerate([(0, 50), (0, 100), (20, 30), (101, 150), (101, 150)]):
        _put(store, number, start, end)
    assert _offsets(list_remote_segments(store)) == [("flights", 0, 0, 100), ("flights", 0, 101, 150)]
    assert len(list_remote_segments(store, covered=True)) == 5


def test_objects_without_a_manifest_and_foreign_ones_are_not_seen() -> None:
    store = ObjectStore.from_url("memory:///")
    _put(store, 1, 0, 9)
    manifest = list_remote_segments(store)[0]
    store.delete([manifest.key(ObjectKind.MANIFEST)])
    for key in (
        "readme.txt",
        "other/place.manifest.json",
        "flights-dfcT2RzVTaa2kKZb1VMYtg/0/x.manifest.json",
    ):
        store.put(key, b"x")
    assert list_remote_segments(store) == []


def test_a_damaged_manifest_is_named() -> None:
    store = ObjectStore.from_url("memory:///")
    _put(store, 1, 0, 9)
    key = list_remote_segments(store)[0].key(ObjectKind.MANIFEST)
    store.put(key, b"{}")
    with pytest.raises(RemoteStorageError, match=key):
        list_remote_segments(store)


def test_an_empty_store_has_no_segments() -> None:
    assert list_remote_segments(ObjectStore.from_url("memory:///")) == []
