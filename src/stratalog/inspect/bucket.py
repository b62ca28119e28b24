"""The bucket as an audit sees it, read one partition at a time: listings streamed, manifests in parallel.

What is kept at a time: the names of all partitions; of `PARTITIONS_AHEAD` partitions the listing and the manifests
without their checksums of blocks, some 4 KiB a segment; the findings. Nothing is changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar
from uuid import UUID

from stratalog.errors import ManifestFromTheFutureError, RemoteResourceNotFoundError, RemoteStorageError
from stratalog.inspect.facts import Manifest, ManifestFault, parse_key
from stratalog.remote.api import TopicIdPartition
from stratalog.remote.ownership import bucket_owner
from stratalog.remote.storage import (
    METADATA_DIRECTORY,
    ChunkIndex,
    ObjectInfo,
    ObjectKind,
    ObjectStore,
    SegmentManifest,
    parse_manifest_key,
    parse_topic_directory,
    partition_directory,
)
from stratalog.remote.storage.aiven import manifest as aiven_manifest
from stratalog.remote.transactions import bucket_transaction
from stratalog.util import uuid_from_base64

READERS = 16
PARTITIONS_AHEAD = 4

_ID_CHARACTERS = 22
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class BucketPartitions:
    """The partitions with a directory, and other directories and objects on that level, as listed."""

    partitions: tuple[TopicIdPartition, ...]
    foreign_directories: tuple[str, ...]
    foreign_objects: tuple[ObjectInfo, ...]


@dataclass(frozen=True, slots=True)
class PartitionObjects:
    """All objects of a partition, and its manifests by segment id."""

    partition: TopicIdPartition
    objects: tuple[ObjectInfo, ...]
    manifests: dict[UUID, Manifest]

    @property
    def complete(self) -> list[SegmentManifest]:
        """The manifests that can be read, by base offset."""
        found = [manifest for manifest in self.manifests.values() if isinstance(manifest, SegmentManifest)]
        return sorted(found, key=lambda m: (m.base_offset, -m.end_offset, m.event_timestamp))


def find_partitions(store: ObjectStore, topics: Collection[str] | None = None) -> BucketPartitions:
    """Return the partitions of `topics` (None: of all), by topic, id and number. Raises RemoteStorageError."""
    top = store.list_level("")
    partitions: list[TopicIdPartition] = []
    directories: list[str] = []
    objects = list(top.objects)
    for name in top.directories:
        topic = parse_topic_directory(name)
        if topic is None:
            if name not in (bucket_transaction.DIRECTORY, bucket_owner.DIRECTORY, METADATA_DIRECTORY):
                directories.append(name)
            continue
        if topics is not None and topic not in topics:
            continue
        topic_id = uuid_from_base64(name[-_ID_CHARACTERS:])
        level = store.list_level(name)
        objects += level.objects
        for number in level.directories:
            if number.isdigit() and str(int(number)) == number:
                partitions.append(TopicIdPartition(topic_id, topic, int(number)))
            else:
                directories.append(f"{name}/{number}")
    partitions.sort(key=lambda p: (p.topic, p.topic_id, p.partition))
    return BucketPartitions(tuple(partitions), tuple(directories), tuple(objects))


class PartitionReader:
    """Lists partitions and reads their manifests with `READERS` requests at a time. A context manager; thread-safe."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        #: What a publication has made visible and a crash kept from its place.
        self._published: dict[TopicIdPartition, list[SegmentManifest]] = {}
        for manifest in bucket_transaction.applied({}, bucket_transaction.read_publications(store)).values():
            self._published.setdefault(manifest.topic_id_partition, []).append(manifest)
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="tier-manifests")
        self._ahead = ThreadPoolExecutor(PARTITIONS_AHEAD, thread_name_prefix="tier-partitions")

    def __enter__(self) -> PartitionReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._ahead.shutdown(cancel_futures=True)
        self._pool.shutdown(cancel_futures=True)

    def read_all(self, partitions: Iterable[TopicIdPartition]) -> Iterator[PartitionObjects]:
        """Each partition's objects, in the order given, a few read ahead. Raises RemoteStorageError."""
        return in_order(self._ahead, self.read, partitions, PARTITIONS_AHEAD)

    def read(self, partition: TopicIdPartition) -> PartitionObjects:
        """One partition. A segment whose manifest disappears during the walk is being deleted and is left out."""
        infos = list(self._store.list(partition_directory(partition)))
        keys = [info.key for info in infos if parse_manifest_key(info.key) is not None]
        manifests: dict[UUID, Manifest] = {}
        vanished: set[UUID] = set()
        for key, manifest in zip(keys, self._pool.map(self._read_manifest, keys), strict=True):
            segment = parse_manifest_key(key)
            if segment is None:
                continue
            if manifest is None:
                vanished.add(segment.segment_id.id)
            elif key == str(segment) or segment.segment_id.id not in manifests:
                manifests[segment.segment_id.id] = manifest  # ours, where there are two
        for published in self._published.get(partition, ()):
            manifests.setdefault(published.segment_id, _slim(published))
        if vanished:
            infos = [info for info in infos if _segment_id(info) not in vanished]
        return PartitionObjects(partition, tuple(infos), manifests)

    def _read_manifest(self, key: str) -> Manifest | None:
        found = read_manifest(self._store, key)
        return _slim(found) if isinstance(found, SegmentManifest) else found


def read_manifest(store: ObjectStore, key: str) -> Manifest | None:
    """Return the manifest of either layout at a key, or why it is none, or None when it is not there.

    Raises RemoteStorageError.
    """
    segment = parse_manifest_key(key)
    try:
        data = store.get(key)
    except RemoteResourceNotFoundError:
        return None
    decode = SegmentManifest.from_json if key == str(segment) else aiven_manifest.decode
    try:
        manifest = decode(data, "it")
    except RemoteStorageError as error:
        return ManifestFault(str(error), isinstance(error, ManifestFromTheFutureError))
    if manifest.key(ObjectKind.MANIFEST) != str(segment):
        return ManifestFault(f"it is the manifest of another segment, {manifest.key(ObjectKind.MANIFEST)}")
    return manifest


def _slim(manifest: SegmentManifest) -> SegmentManifest:
    """Without what is said of every block and chunk; sizes stay as they are."""
    objects = {
        kind: stored
        if stored.chunks is None or stored.chunks.count < 2
        else replace(
            stored,
            chunks=ChunkIndex(stored.size, stored.size, (stored.chunks.stored_size,), stored.chunks.position),
        )
        for kind, stored in manifest.objects.items()
    }
    return replace(manifest, objects=objects, block_crc32c=None, block_timestamps=None)


def _segment_id(info: ObjectInfo) -> UUID | None:
    key = parse_key(info.key)
    return None if key is None else key.segment_id.id


def in_order(
    pool: ThreadPoolExecutor, function: Callable[[_Item], _Result], items: Iterable[_Item], ahead: int
) -> Iterator[_Result]:
    """Yield `function` of each item, in order, with at most `ahead` of them in progress or waiting to be taken."""
    waiting: deque[Future[_Result]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def topic_ids(partitions: Sequence[TopicIdPartition]) -> dict[str, set[UUID]]:
    """Return the ids under which each topic has partitions."""
    found: dict[str, set[UUID]] = {}
    for partition in partitions:
        found.setdefault(partition.topic, set()).add(partition.topic_id)
    return found
