"""Making many segments of a bucket visible in one step, and taking others away with it.

A segment is there when its manifest is, so a job of many segments would appear one by one. Instead one object,
`_publications/<name>.json`, holds all manifests of the job: it appears whole, and from then on every segment counts.

    stage     workers put the objects of segments, without manifests: nobody takes them for segments
    publish   the publication object is put (the one step); then the manifests are put, those of replaced segments renamed,
              `<name>.done` says so, and the object goes
    discard   the staged objects are deleted

The manifest of a replaced segment goes on as `ObjectKind.REPLACED`, which no listing takes for a segment: whoever had found
the old one reads on, compressed and encrypted contents too, until `remove_objects` takes all of it away. What a crash keeps
from that is found by `replaced_segments`.

After a crash before the one step nothing is visible, and what was staged is what a failed copy leaves: `tier audit` names
it, `tier repair` removes it. After a crash behind it everything is visible to whoever reads through `catalog`, and the next
publication, or `tier repair`, does the rest (`finish_publications`). Everything behind the one step may be done twice.

The `.done` of a name remembers the number of its last batch, which makes publishing a batch of a stream idempotent. That of
an unnumbered publication goes after `DONE_KEPT_MS`: until then it tells a reader that the bucket changed under his listing.

One publisher to a topic at a time. Brokers are not concerned: they know segments by their metadata alone.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from stratalog.errors import RemoteResourceNotFoundError, RemoteStorageError
from stratalog.remote.storage.aiven.keys import MANIFEST as AIVEN_MANIFEST
from stratalog.remote.storage.aiven.keys import aiven_key
from stratalog.remote.storage.layouts import read_replaced
from stratalog.remote.storage.manifest import SegmentManifest
from stratalog.remote.storage.object_key import DELETION_ORDER, ObjectKey, ObjectKind, parse_topic_directory
from stratalog.remote.storage.object_store import ObjectInfo, ObjectStore
from stratalog.util.clock import SYSTEM_CLOCK, Clock
from stratalog.util.uuids import random_uuid, uuid_to_base64

DIRECTORY: Final = "_publications"
DONE_KEPT_MS: Final = 3_600_000

_FORMAT: Final = "stratalog-publication"
_VERSION: Final = 1
_PUBLISHED: Final = ".json"
_DONE: Final = ".done"
_WRITERS: Final = 16


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication whose manifests are not all in their places yet. `uid` tells two of one name apart."""

    name: str
    uid: str
    batch: int | None
    manifests: tuple[SegmentManifest, ...]
    #: Segments that it takes away.
    replaces: tuple[SegmentManifest, ...] = ()

    def to_json(self) -> bytes:
        document = {
            "format": _FORMAT,
            "version": _VERSION,
            "uid": self.uid,
            "batch": self.batch,
            "manifests": [json.loads(each.to_json()) for each in self.manifests],
            "replaces": [json.loads(each.to_json()) for each in self.replaces],
        }
        return (json.dumps(document, indent=1) + "\n").encode()

    @classmethod
    def from_json(cls, name: str, data: bytes) -> Publication:
        """RemoteStorageError names the object and what is wrong."""
        document = _document(f"{DIRECTORY}/{name}{_PUBLISHED}", data)
        try:
            manifests, replaces = (
                tuple(SegmentManifest.from_json(json.dumps(each).encode(), "a manifest") for each in document[field])
                for field in ("manifests", "replaces")
            )  # fmt: skip
            return cls(name, str(document["uid"]), document["batch"], manifests, replaces)
        except (KeyError, TypeError, RemoteStorageError) as error:
            raise RemoteStorageError(f"publication {name} is damaged: {error}") from error


def publish(
    store: ObjectStore,
    name: str,
    manifests: Sequence[SegmentManifest],
    *,
    replaces: Sequence[SegmentManifest] = (),
    batch: int | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> bool:
    """Make `manifests` visible and take `replaces` away, in one step; their objects stay until `remove_objects`.

    `name` is that of the job. With `batch`, the number of a batch of a stream, False is returned and nothing published if
    this batch or a later one of that name was. Raises RemoteStorageError: nothing is visible then, or everything is.
    """
    finish_publications(store, clock=clock)
    if batch is not None and is_published(store, name, batch):
        return False
    publication = Publication(name, uuid_to_base64(random_uuid()), batch, tuple(manifests), tuple(replaces))
    store.put(_key(name, _PUBLISHED), publication.to_json())
    _spread(store, publication)
    return True


def is_published(store: ObjectStore, name: str, batch: int | None) -> bool:
    """Whether the one step of a job was done, or that of a stream for this batch or a later one."""
    if batch is not None:
        last = published_batch(store, name)
        return last is not None and last >= batch
    return any(_stem(info.key) == name for info in changes(store))


def published_batch(store: ObjectStore, name: str) -> int | None:
    """The number of the last batch published under a name, None without one."""
    for suffix in (_PUBLISHED, _DONE):
        try:
            data = bytes(store.get(_key(name, suffix)))
        except RemoteResourceNotFoundError:
            continue
        batch = _document(_key(name, suffix), data).get("batch")
        return None if batch is None else int(batch)
    return None


def finish_publications(store: ObjectStore, *, clock: Clock = SYSTEM_CLOCK) -> int:
    """Do what a crash left undone; return how many publications that were. Old marks of finished ones go too."""
    left = read_publications(store)
    for publication in left:
        _spread(store, publication)
    for info in changes(store):
        if info.key.endswith(_DONE) and clock.now_ms() - info.last_modified_ms > DONE_KEPT_MS:
            _forget(store, info.key)
    return len(left)


def read_publications(store: ObjectStore, infos: Iterable[ObjectInfo] | None = None) -> list[Publication]:
    """Those whose manifests are not all in their places yet; `infos` is what `changes` gave."""
    found = []
    for info in changes(store) if infos is None else infos:
        if info.key.endswith(_PUBLISHED):
            try:
                data = bytes(store.get(info.key))
            except RemoteResourceNotFoundError:
                continue  # finished since it was listed
            found.append(Publication.from_json(_stem(info.key), data))
    return found


def changes(store: ObjectStore) -> tuple[ObjectInfo, ...]:
    """What a listing compares before and after: another value means that something was published in between."""
    return store.list_level(DIRECTORY).objects


def applied(
    manifests: Mapping[str, SegmentManifest], publications: Iterable[Publication]
) -> dict[str, SegmentManifest]:
    """Manifests by key as they will be when the publications are finished."""
    result = dict(manifests)
    for publication in publications:
        for replaced in publication.replaces:
            for key in _manifest_keys(replaced):
                result.pop(key, None)
        for manifest in publication.manifests:
            result[manifest.key(ObjectKind.MANIFEST)] = manifest
    return result


def remove_objects(store: ObjectStore, manifests: Iterable[SegmentManifest]) -> None:
    """Delete all objects of segments of our layout, manifests first: of staged ones that are not to be published
    (`discard`), and of replaced ones that nobody reads any more.
    """
    _each(lambda each: store.delete([each.key(kind) for kind in DELETION_ORDER]), manifests)


#: What was staged goes as what was replaced does.
discard = remove_objects


def replaced_segments(store: ObjectStore, topics: Collection[str]) -> list[SegmentManifest]:
    """The segments of topics that others have taken the place of, and whose objects were not removed yet."""
    found = []
    for directory in store.list_level("").directories:
        if parse_topic_directory(directory) in topics:
            for info in store.list(directory):
                key = ObjectKey.parse(info.key)
                if key is not None and key.kind is ObjectKind.REPLACED:
                    with suppress(RemoteResourceNotFoundError):  # removed since it was listed
                        found.append(read_replaced(store, key))
    return found


def _spread(store: ObjectStore, publication: Publication) -> None:
    """Everything behind the one step."""
    if not _is_done(store, publication):
        _each(lambda each: store.put(each.key(ObjectKind.MANIFEST), each.to_json()), publication.manifests)
        _each(lambda each: _retire(store, each), publication.replaces)
        mark = {"format": _FORMAT, "version": _VERSION, "uid": publication.uid, "batch": publication.batch}
        store.put(_key(publication.name, _DONE), json.dumps(mark).encode())
    store.delete([_key(publication.name, _PUBLISHED)])


def _retire(store: ObjectStore, manifest: SegmentManifest) -> None:
    """Have listings pass over a segment; nothing is done to one that is gone."""
    for key in _manifest_keys(manifest):
        with suppress(RemoteResourceNotFoundError):
            data = store.get(key)
            store.put(manifest.key(ObjectKind.REPLACED), data)
            store.delete([key])
            return


def _manifest_keys(manifest: SegmentManifest) -> tuple[str, str]:
    """Where its manifest may be: a publication does not tell which layout a replaced segment has."""
    key = ObjectKey.of(manifest.metadata(), ObjectKind.MANIFEST)
    return str(key), aiven_key(key, AIVEN_MANIFEST)


def _is_done(store: ObjectStore, publication: Publication) -> bool:
    """Whether only the object itself is left: its segments may have been deleted since."""
    key = _key(publication.name, _DONE)
    try:
        return bool(_document(key, bytes(store.get(key)))["uid"] == publication.uid)
    except RemoteResourceNotFoundError:
        return False


def _forget(store: ObjectStore, key: str) -> None:
    """Delete an old mark, unless it remembers a batch."""
    try:
        if _document(key, bytes(store.get(key))).get("batch") is None:
            store.delete([key])
    except RemoteResourceNotFoundError:
        return


def _each(action: Any, items: Iterable[SegmentManifest]) -> None:
    with ThreadPoolExecutor(_WRITERS, thread_name_prefix="publication") as pool:
        for _ in pool.map(action, items):
            pass


def _document(key: str, data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
        if document["format"] != _FORMAT or document["version"] != _VERSION:
            raise ValueError(
                f"format {document['format']} version {document['version']}, expected {_VERSION}"
            )
    except (ValueError, KeyError, TypeError) as error:
        raise RemoteStorageError(
            f"{key} is no publication that this release can read: {error}; use the release that wrote it"
        ) from error
    return dict(document)


def _key(name: str, suffix: str) -> str:
    return f"{DIRECTORY}/{name}{suffix}"


def _stem(key: str) -> str:
    """The name of what a key of a publication or mark belongs to."""
    return key.rsplit("/", 1)[-1].removesuffix(_PUBLISHED).removesuffix(_DONE)
