"""How a bucket is read for an audit: in order, a few partitions ahead, without what goes away concurrently."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from stratalog.inspect.bucket import PARTITIONS_AHEAD, PartitionReader, find_partitions
from stratalog.remote.api.topic_id_partition import TopicIdPartition
from stratalog.remote.storage.object_names import ObjectKind, partition_directory
from stratalog.remote.storage.object_store import ObjectInfo, ObjectStore
from stratalog.testing.faulty_store import FaultPlan, FaultyObjectStore
from tests.remote.audit_world import SoundBucket


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> SoundBucket:
    return SoundBucket.make(tmp_path_factory.mktemp("sound"), batches=40)


def many(sound: SoundBucket, count: int) -> ObjectStore:
    """A bucket with this many partitions, of which each has records without a manifest."""
    store = ObjectStore.from_url("memory:///")
    for number in range(count):
        directory = partition_directory(replace(sound.partition, partition=number))
        store.put(f"{directory}/00000000000000000000-hB5yJqzOSDmxmNHsV7oUaw.log", b"x")
    return store


def test_partitions_are_found_by_number_and_the_rest_is_foreign(sound: SoundBucket) -> None:
    store = many(sound, 12)
    directory = partition_directory(sound.partition).rpartition("/")[0]
    for key in ("top", "dir/x", f"{directory}/03/x", f"{directory}/notes"):
        store.put(key, b"")
    found = find_partitions(store)
    assert [one.partition for one in found.partitions] == list(range(12))
    assert found.foreign_directories == ("dir", f"{directory}/03")
    assert [info.key for info in found.foreign_objects] == ["top", f"{directory}/notes"]
    assert find_partitions(store, {"other"}).partitions == ()


def test_no_more_partitions_are_in_memory_than_were_said(sound: SoundBucket) -> None:
    listed: list[str] = []

    class Counting(FaultyObjectStore):
        def list(self, directory: str = "") -> Iterator[ObjectInfo]:
            listed.append(directory)
            return super().list(directory)

    store = Counting(many(sound, 30), FaultPlan())
    partitions = find_partitions(store).partitions
    with PartitionReader(store) as reader:
        for taken, stored in enumerate(reader.read_all(partitions), start=1):
            assert stored.partition == partitions[taken - 1]
            assert len(listed) <= taken + PARTITIONS_AHEAD
    assert len(listed) == 30


def test_a_segment_whose_manifest_goes_away_concurrently_is_left_out(sound: SoundBucket) -> None:
    bucket = sound.copy()
    lost = bucket.key(1, ObjectKind.MANIFEST)

    class Deleting(FaultyObjectStore):
        def list(self, directory: str = "") -> Iterator[ObjectInfo]:
            found = list(super().list(directory))
            self.inner.delete([lost])
            return iter(found)

    with PartitionReader(Deleting(bucket.store, FaultPlan())) as reader:
        stored = reader.read(sound.partition)
    assert bucket.segment_id(1) not in stored.manifests
    assert not any(lost.removesuffix("manifest.json") in info.key for info in stored.objects)
    assert len(stored.complete) == len(sound.segments) - 1


def test_an_error_of_the_store_comes_through(sound: SoundBucket) -> None:
    from stratalog.errors import RemoteStorageError
    from stratalog.testing.faulty_store import StoreFault

    faults = FaultPlan()
    store = FaultyObjectStore(many(sound, 8), faults)
    partitions: tuple[TopicIdPartition, ...] = find_partitions(store).partitions
    faults.at(5, StoreFault.DENIED)
    with PartitionReader(store) as reader, pytest.raises(RemoteStorageError, match="denied"):
        list(reader.read_all(partitions))
