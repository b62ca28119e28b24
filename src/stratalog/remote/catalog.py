"""What lies in an object store, found from its manifests alone: no broker, no metadata topic.

For Spark and the tools; segments of our layout and of Aiven's (`storage.layouts`). A manifest is there only when all
objects of its segment are.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor

from stratalog.errors import RemoteResourceNotFoundError
from stratalog.remote.publication import applied, changes, read_publications
from stratalog.remote.storage.layouts import parse_manifest_key, read_manifest
from stratalog.remote.storage.manifest import SegmentManifest
from stratalog.remote.storage.object_key import parse_topic_directory
from stratalog.remote.storage.object_store import ObjectStore

logger = logging.getLogger(__name__)

_READERS = 16
#: Publications come at a slower pace than listings.
_LISTINGS_MAX = 10


def list_remote_segments(
    store: ObjectStore,
    topics: Collection[str] | None = None,
    *,
    covered: bool = False,
    known: MutableMapping[str, SegmentManifest] | None = None,
) -> list[SegmentManifest]:
    """The complete segments of `topics` (default: of all), by topic, topic id, partition and base offset.

    A segment whose offsets another one of its partition covers is left out unless `covered` is true: reading the result
    in order gives every offset once, as long as segments do not overlap in part. Manifests that go away while this runs
    are left out. Raises RemoteStorageError.

    What a publication makes visible counts from its one step on, and what it replaces does not (`publication`): should
    there be one while this looks, it looks again.

    `known` spares whoever looks again and again the manifests that he has: by key, brought up to date by each call.
    """
    now = changes(store)
    for _ in range(_LISTINGS_MAX):
        before = now
        listed, published = _listed(store, topics, known), read_publications(store, before)
        now = changes(store)
        if now == before:
            break
    found = [m for m in applied(listed, published).values() if topics is None or m.topic in topics]
    found.sort(
        key=lambda m: (m.topic, m.topic_id, m.partition, m.base_offset, -m.end_offset, m.event_timestamp)
    )
    return found if covered else without_covered(found)


def _listed(
    store: ObjectStore,
    topics: Collection[str] | None,
    known: MutableMapping[str, SegmentManifest] | None,
) -> dict[str, SegmentManifest]:
    """The manifests that are in their places, by key."""
    keys = _manifest_keys(store, topics)
    before = {} if known is None else {key: known[key] for key in keys if key in known}
    with ThreadPoolExecutor(_READERS, thread_name_prefix="manifests") as pool:
        read = list(pool.map(lambda key: before.get(key) or _read(store, key), keys))
    found = {key: each for key, each in zip(keys, read, strict=True) if each is not None}
    if known is not None:
        known.clear()
        known.update(found)
    return found


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


def _manifest_keys(store: ObjectStore, topics: Collection[str] | None) -> list[str]:
    keys = []
    for directory in store.list_level("").directories:
        topic = parse_topic_directory(directory)
        if topic is None or (topics is not None and topic not in topics):
            continue
        for info in store.list(directory):
            if parse_manifest_key(info.key) is not None:
                keys.append(info.key)
    return keys


def _read(store: ObjectStore, key: str) -> SegmentManifest | None:
    try:
        return read_manifest(store, key)
    except RemoteResourceNotFoundError:
        return None  # deleted since it was listed
