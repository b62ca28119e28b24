from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from uuid import UUID

import pytest
from typing_extensions import Buffer

from stratalog.errors import RemoteStorageError
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.inspect.manifest_cache import ManifestCache
from stratalog.remote.api.interfaces import RemoteLogSegmentId
from stratalog.remote.api.topic_id_partition import TopicIdPartition
from stratalog.remote.storage.manifest import SegmentManifest, StoredObject
from stratalog.remote.storage.object_names import ObjectKind
from stratalog.remote.storage.object_store import ObjectInfo, ObjectStore
from stratalog.testing.faulty_store import FaultPlan, FaultyObjectStore
from tests.remote.values import segment


def _put(store: ObjectStore, number: int, start: int, end: int, topic: str = "flights", partition: int = 0) -> None:
    where = TopicIdPartition(UUID(int=sum(topic.encode()) + 5), topic, partition)
    metadata = replace(segment(number, start, end), segment_id=RemoteLogSegmentId(where, UUID(int=number + 9)))
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
        ("a", 0, 20, 29),
        ("a", 0, 100, 109),
        ("a", 1, 0, 9),
        ("b", 0, 0, 9),
        ("b", 0, 10, 19),
    ]
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


class CountingStore(FaultyObjectStore):
    """Counts what is listed and read."""

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner, FaultPlan())
        self.listed: list[str] = []
        self.read: list[str] = []

    def list(self, directory: str = "") -> Iterator[ObjectInfo]:
        self.listed.append(directory)
        return self.inner.list(directory)

    def get(self, key: str) -> Buffer:
        self.read.append(key)
        return self.inner.get(key)


def test_only_wanted_partitions_are_listed_and_read() -> None:
    inner = ObjectStore.from_url("memory:///")
    for number in range(12):
        _put(inner, number, 0, 9, "a", number)
    store = CountingStore(inner)
    found = list_remote_segments(store, wanted=lambda _topic, partition: partition == 7)
    assert _offsets(found) == [("a", 7, 0, 9)]
    assert [name.rsplit("/", 1)[1] for name in store.listed] == ["7"]
    assert len(store.read) == 1


def test_a_cache_spares_what_was_read_and_not_what_was_written_again() -> None:
    inner = ObjectStore.from_url("memory:///")
    for number in range(5):
        _put(inner, number, number * 10, number * 10 + 9)
    store, cache = CountingStore(inner), ManifestCache()
    first = list_remote_segments(store, cache=cache)
    assert list_remote_segments(store, cache=cache) == first
    assert len(store.read) == 5
    again = first[0].key(ObjectKind.MANIFEST)
    inner.put(again, replace(first[0], end_offset=8).to_json() + b"\n")
    assert _offsets(list_remote_segments(store, cache=cache))[0] == ("flights", 0, 0, 8)
    assert store.read[5:] == [again]


def test_a_cache_stays_within_its_bytes() -> None:
    store = ObjectStore.from_url("memory:///")
    for number in range(20):
        _put(store, number, number * 10, number * 10 + 9)
    cache = ManifestCache(5 * 4200)
    assert len(list_remote_segments(store, cache=cache)) == 20
    assert len(cache) == 5
    assert len(list_remote_segments(store, cache=cache)) == 20
