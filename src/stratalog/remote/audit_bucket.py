"""The bucket as an audit sees it, read one partition at a time: listings streamed, manifests in parallel.

What is kept at a time: the names of all partitions; of `PARTITIONS_AHEAD` partitions the listing and the manifests without
their checksums of blocks, some 4 KiB a segment; the findings. Nothing is changed.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar
from uuid import UUID

from stratalog.errors import RemoteResourceNotFoundError, RemoteStorageError
from stratalog.remote.api import TopicIdPartition
from stratalog.remote.audit_facts import Manifest, ManifestFault
from stratalog.remote.storage.manifest import SegmentManifest
from stratalog.remote.storage.object_key import (
    ObjectKey,
    ObjectKind,
    parse_topic_directory,
    partition_directory,
)
from stratalog.remote.storage.object_store import ObjectInfo, ObjectStore
from stratalog.util.uuids import uuid_from_base64

READERS = 16
PARTITIONS_AHEAD = 4

_FORMAT = "stratalog-segment-manifest"
_VERSION_MAX = 2
_ID_CHARACTERS = 22
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class BucketPartitions:
    """Which partitions have a directory, and what else lies beside them: directories by name, objects as listed."""

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
    """The partitions of `topics` (None: of all), by topic, id and number. Raises RemoteStorageError."""
    top = store.list_level("")
    partitions: list[TopicIdPartition] = []
    directories: list[str] = []
    objects = list(top.objects)
    for name in top.directories:
        topic = parse_topic_directory(name)
        if topic is None:
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

    def __init__(self, store: ObjectStore, readers: int = READERS) -> None:
        self._store = store
        self._pool = ThreadPoolExecutor(readers, thread_name_prefix="tier-manifests")
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
        """One partition. A segment whose manifest goes away meanwhile is left out: it is being deleted."""
        infos = list(self._store.list(partition_directory(partition)))
        keys = [
            key
            for info in infos
            if (key := ObjectKey.parse(info.key)) is not None and key.kind is ObjectKind.MANIFEST
        ]
        manifests: dict[UUID, Manifest] = {}
        vanished: set[UUID] = set()
        for key, manifest in zip(keys, self._pool.map(self._read_manifest, keys), strict=True):
            if manifest is None:
                vanished.add(key.segment_id.id)
            else:
                manifests[key.segment_id.id] = manifest
        if vanished:
            infos = [info for info in infos if _segment_id(info) not in vanished]
        return PartitionObjects(partition, tuple(infos), manifests)

    def _read_manifest(self, key: ObjectKey) -> Manifest | None:
        found = read_manifest(self._store, key)
        return replace(found, block_crc32c=()) if isinstance(found, SegmentManifest) else found


def read_manifest(store: ObjectStore, key: ObjectKey) -> Manifest | None:
    """The manifest at a key, or why it is none; None when it is not there. Raises RemoteStorageError."""
    try:
        data = bytes(store.get(str(key)))
    except RemoteResourceNotFoundError:
        return None
    try:
        manifest = SegmentManifest.from_json(data, "it")
    except RemoteStorageError as error:
        return ManifestFault(str(error), _is_from_the_future(data))
    if manifest.key(ObjectKind.MANIFEST) != str(key):
        return ManifestFault(f"it is the manifest of another segment, {manifest.key(ObjectKind.MANIFEST)}")
    return manifest


def _is_from_the_future(data: bytes) -> bool:
    """Whether it is a whole document of another format, or of a version that this release does not read."""
    try:
        document = json.loads(data)
    except ValueError:
        return False
    return (
        isinstance(document, dict)
        and isinstance(document.get("format"), str)
        and isinstance(document.get("version"), int)
        and (document["format"] != _FORMAT or document["version"] > _VERSION_MAX)
    )


def _segment_id(info: ObjectInfo) -> UUID | None:
    key = ObjectKey.parse(info.key)
    return None if key is None else key.segment_id.id


def in_order(
    pool: ThreadPoolExecutor, function: Callable[[_Item], _Result], items: Iterable[_Item], ahead: int
) -> Iterator[_Result]:
    """`function` of each item, in order, with at most `ahead` of them under way or waiting to be taken."""
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
    """The ids under which each topic has partitions."""
    found: dict[str, set[UUID]] = {}
    for partition in partitions:
        found.setdefault(partition.topic, set()).add(partition.topic_id)
    return found
