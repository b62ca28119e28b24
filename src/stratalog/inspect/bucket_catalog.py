"""List the content of an object store from its manifests alone: no broker, no metadata topic.

For Spark and the tools; segments of our layout and of Aiven's (`storage.layouts`). A manifest is there only when all
objects of its segment are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import TypeAlias

from stratalog.errors import RemoteResourceNotFoundError
from stratalog.inspect.manifest_cache import ManifestCache
from stratalog.remote.storage import (
    ObjectInfo,
    ObjectStore,
    SegmentManifest,
    parse_manifest_key,
    parse_topic_directory,
    read_manifest,
)
from stratalog.remote.transactions import applied, changes, read_publications

logger = logging.getLogger(__name__)

_READERS = 16
#: Publications come at a slower pace than listings.
_LISTINGS_MAX = 10

Wanted: TypeAlias = Callable[[str, int], bool]


def _every(_topic: str, _partition: int) -> bool:
    return True


def list_remote_segments(
    store: ObjectStore,
    topics: Collection[str] | None = None,
    *,
    covered: bool = False,
    cache: ManifestCache | None = None,
    wanted: Wanted = _every,
) -> list[SegmentManifest]:
    """Return the complete segments of `topics` (default: of all), by topic, topic id, partition and base offset.

    A segment whose offsets are covered by another one of its partition is left out unless `covered` is true. Reading
    the result in order returns every offset once, unless segments overlap in part. Manifests that disappear while this
    runs are left out. Raises RemoteStorageError.

    What a publication makes visible counts from its one step on, and what it replaces does not (`publication`): should
    there be one while this looks, it looks again.

    Only partitions for which `wanted(topic, partition)` are listed and read. `cache` spares a caller that looks again
    and again the manifests that it has read before.
    """
    now = changes(store)
    for _ in range(_LISTINGS_MAX):
        before = now
        listed, published = _listed(store, topics, cache, wanted), read_publications(store, before)
        now = changes(store)
        if now == before:
            break
    found = [
        manifest
        for manifest in applied(listed, published).values()
        if (topics is None or manifest.topic in topics) and wanted(manifest.topic, manifest.partition)
    ]
    found.sort(key=lambda m: (m.topic, m.topic_id, m.partition, m.base_offset, -m.end_offset, m.event_timestamp))
    return found if covered else without_covered(found)


def _listed(
    store: ObjectStore, topics: Collection[str] | None, cache: ManifestCache | None, wanted: Wanted
) -> dict[str, SegmentManifest]:
    """Return the manifests that are in their places, by key."""
    directories = [
        directory for topic, partition, directory in _partition_directories(store, topics) if wanted(topic, partition)
    ]
    known = ManifestCache(0) if cache is None else cache
    with ThreadPoolExecutor(_READERS, thread_name_prefix="manifests") as pool:
        infos = list(chain.from_iterable(pool.map(partial(_manifests_in, store), directories)))
        read = list(pool.map(lambda info: known.get(store.url, info) or _read(store, info, known), infos))
    return {info.key: each for info, each in zip(infos, read, strict=True) if each is not None}


def without_covered(manifests: Iterable[SegmentManifest]) -> list[SegmentManifest]:
    """`manifests`, sorted as `list_remote_segments` sorts them, without those that lie within the one before them."""
    kept: list[SegmentManifest] = []
    for manifest in manifests:
        if (
            kept
            and kept[-1].topic_id_partition == manifest.topic_id_partition
            and manifest.end_offset <= kept[-1].end_offset
        ):
            continue
        kept.append(manifest)
    return kept


def _partition_directories(store: ObjectStore, topics: Collection[str] | None) -> Iterator[tuple[str, int, str]]:
    """Topic, partition and directory of each, in the order of the listings."""
    for directory in store.list_level("").directories:
        topic = parse_topic_directory(directory)
        if topic is None or (topics is not None and topic not in topics):
            continue
        for number in store.list_level(directory).directories:
            if number.isdecimal():
                yield topic, int(number), f"{directory}/{number}"


def _manifests_in(store: ObjectStore, directory: str) -> list[ObjectInfo]:
    return [info for info in store.list(directory) if parse_manifest_key(info.key) is not None]


def _read(store: ObjectStore, info: ObjectInfo, cache: ManifestCache) -> SegmentManifest | None:
    try:
        manifest = read_manifest(store, info.key)
    except RemoteResourceNotFoundError:
        return None  # deleted since it was listed
    cache.put(store.url, info, manifest)
    return manifest
