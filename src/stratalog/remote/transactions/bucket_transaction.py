"""Make many segments of a bucket visible in one step, and remove others with them.

A segment exists when its manifest does, so a job's segments would appear one by one. Instead one object,
`_publications/<turn>.json`, holds all manifests of the job: once it exists, every segment counts.

    stage     workers put the objects of segments, without manifests: readers ignore them
    publish   the publication object is created (the commit); then the manifests are put, those of replaced segments
              renamed, `<name>.done` and `<turn>.taken` record it, and the publication object is deleted
    discard   the staged objects are deleted

Publications of a bucket have consecutive turns, and an object is created only if it does not exist: of several
concurrent jobs one gets the turn. A job that appends to existing segments requests its turn (`next_turn`) before it
reads where they end; if another job was published since (OvertakenError), it reads again.

The manifest of a replaced segment is kept as `ObjectKind.REPLACED`, which listings ignore: a reader that found the old
one can finish, with compressed and encrypted contents too, until `remove_objects` removes all of it.
`replaced_segments` finds what a crash left of that.

After a crash before the commit nothing is visible, and staged objects are like those of a failed copy: `tier audit`
reports them, `tier repair` removes them. After a crash following the commit everything is visible to readers through
`catalog`, and the next publication, or `tier repair`, does the rest (`finish_publications`). All later steps are
idempotent.

The `.done` of a name holds the number of its last batch, which makes publishing a batch of a stream idempotent. That of
an unnumbered publication is removed after `DONE_KEPT_MS`: until then it shows readers that the bucket changed during
their listing. The same holds for `.taken`, except the last one.

Brokers are not affected: they know segments from their metadata alone. A store that ignores If-None-Match protects
nothing: there, use one publisher for a topic at a time.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from stratalog.errors import RemoteResourceNotFoundError, RemoteStorageError, StratalogError
from stratalog.remote.storage import (
    DELETION_ORDER,
    ObjectInfo,
    ObjectKey,
    ObjectKind,
    ObjectStore,
    SegmentManifest,
    parse_topic_directory,
    read_replaced,
)
from stratalog.util import SYSTEM_CLOCK, Clock, random_uuid, uuid_to_base64

DIRECTORY: Final = "_publications"
DONE_KEPT_MS: Final = 3_600_000

_FORMAT: Final = "stratalog-publication"
_VERSION: Final = 1
_PUBLISHED: Final = ".json"
_DONE: Final = ".done"
_TAKEN: Final = ".taken"
_WRITERS: Final = 16


class OvertakenError(StratalogError):
    """Another publication had the turn. Nothing of this one is visible."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication whose manifests are not all in place yet. `uid` distinguishes two of one name."""

    turn: int
    name: str
    uid: str
    batch: int | None
    manifests: tuple[SegmentManifest, ...]
    #: Segments to remove.
    replaces: tuple[SegmentManifest, ...] = ()

    def to_json(self) -> bytes:
        document = {
            "format": _FORMAT,
            "version": _VERSION,
            "name": self.name,
            "uid": self.uid,
            "batch": self.batch,
            "manifests": [json.loads(each.to_json()) for each in self.manifests],
            "replaces": [json.loads(each.to_json()) for each in self.replaces],
        }
        return (json.dumps(document, indent=1) + "\n").encode()

    @classmethod
    def from_json(cls, key: str, data: bytes) -> Publication:
        """Parse. RemoteStorageError names the object and what is wrong."""
        document = _document(key, data)
        try:
            manifests, replaces = (
                tuple(SegmentManifest.from_json(json.dumps(each).encode(), "a manifest") for each in document[field])
                for field in ("manifests", "replaces")
            )
            name, uid = str(document["name"]), str(document["uid"])
            return cls(int(_stem(key)), name, uid, document["batch"], manifests, replaces)
        except (KeyError, TypeError, ValueError, RemoteStorageError) as error:
            raise RemoteStorageError(f"publication {key} is damaged: {error}") from error


def publish(
    store: ObjectStore,
    name: str,
    manifests: Sequence[SegmentManifest],
    *,
    replaces: Sequence[SegmentManifest] = (),
    batch: int | None = None,
    turn: int | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> bool:
    """Make `manifests` visible and remove `replaces` in one step. Their objects stay until `remove_objects`.

    `name` is that of the job. With `batch`, the number of a batch of a stream, False is returned and nothing published
    if this batch or a later one of that name was. With `turn` from `next_turn`, OvertakenError if anything was
    published since; without, as soon as possible. After a RemoteStorageError either nothing or everything is visible.
    """
    uid = uuid_to_base64(random_uuid())
    while True:
        now = next_turn(store, clock=clock)
        if batch is not None and is_published(store, name, batch):
            return False
        publication = Publication(now, name, uid, batch, tuple(manifests), tuple(replaces))
        if turn in (None, now) and _has_turn(store, publication):
            _spread(store, publication)
            return True
        if turn is not None:
            raise OvertakenError(f"{store.url}: another job was published first")


def next_turn(store: ObjectStore, *, clock: Clock = SYSTEM_CLOCK) -> int:
    """Return the turn of the next publication, after finishing those that a crash interrupted."""
    finish_publications(store, clock=clock)
    return max(_turns(changes(store)), default=-1) + 1


def _has_turn(store: ObjectStore, publication: Publication) -> bool:
    """Do the commit. Return False if another publication has the turn."""
    key = _key(_turn_name(publication.turn), _PUBLISHED)
    if store.create(key, publication.to_json()):
        return True
    with suppress(RemoteResourceNotFoundError):  # it may be this one: of a request whose response was lost
        return Publication.from_json(key, bytes(store.get(key))).uid == publication.uid
    with suppress(RemoteResourceNotFoundError):  # and another process may have finished it
        return bool(_mark(store, publication.name)["uid"] == publication.uid)
    return False


def is_published(store: ObjectStore, name: str, batch: int | None) -> bool:
    """Return whether a job was committed, or this batch of a stream or a later one."""
    if batch is not None:
        last = published_batch(store, name)
        return last is not None and last >= batch
    infos = changes(store)
    return any(info.key == _key(name, _DONE) for info in infos) or any(
        publication.name == name for publication in read_publications(store, infos)
    )


def published_batch(store: ObjectStore, name: str) -> int | None:
    """Return the number of the last batch published under a name, or None."""
    found = [each.batch for each in read_publications(store) if each.name == name]
    with suppress(RemoteResourceNotFoundError):
        found.append(_mark(store, name)["batch"])
    return max((int(batch) for batch in found if batch is not None), default=None)


def finish_publications(store: ObjectStore, *, clock: Clock = SYSTEM_CLOCK) -> int:
    """Finish interrupted publications and return their number. Removes old marks of finished ones."""
    left = read_publications(store)
    for publication in left:
        _spread(store, publication)
    infos = changes(store)
    last = max(_turns(infos), default=0)
    for info in infos:
        if clock.now_ms() - info.last_modified_ms <= DONE_KEPT_MS:
            continue
        if info.key.endswith(_DONE):
            _forget(store, _stem(info.key))
        elif info.key.endswith(_TAKEN) and _stem(info.key) != _turn_name(last):
            store.delete([info.key])
    return len(left)


def read_publications(store: ObjectStore, infos: Iterable[ObjectInfo] | None = None) -> list[Publication]:
    """Return the publications whose manifests are not all in place. `infos` is a result of `changes`."""
    found = []
    for info in changes(store) if infos is None else infos:
        if info.key.endswith(_PUBLISHED):
            try:
                data = bytes(store.get(info.key))
            except RemoteResourceNotFoundError:
                continue  # finished after the listing
            found.append(Publication.from_json(info.key, data))
    return found


def changes(store: ObjectStore) -> tuple[ObjectInfo, ...]:
    """Return a value to compare before and after a listing: it changes with every publication."""
    return store.list_level(DIRECTORY).objects


def applied(
    manifests: Mapping[str, SegmentManifest], publications: Iterable[Publication]
) -> dict[str, SegmentManifest]:
    """Return manifests by key as they will be when the publications are finished."""
    result = dict(manifests)
    for publication in publications:
        for replaced in publication.replaces:
            result.pop(replaced.key(ObjectKind.MANIFEST), None)
        for manifest in publication.manifests:
            result[manifest.key(ObjectKind.MANIFEST)] = manifest
    return result


def remove_objects(store: ObjectStore, manifests: Iterable[SegmentManifest]) -> None:
    """Delete all objects of segments of our layout, manifests first.

    For staged ones that are not published (`discard`), and replaced ones that are no longer read.
    """
    _each(partial(_remove_segment, store), manifests)


def _remove_segment(store: ObjectStore, manifest: SegmentManifest) -> None:
    first, *contents, last = [manifest.key(kind) for kind in DELETION_ORDER]
    store.delete([first])
    store.delete_together(contents)
    store.delete([last])


#: Staged objects are deleted like replaced ones.
discard = remove_objects


def replaced_segments(store: ObjectStore, topics: Collection[str]) -> list[SegmentManifest]:
    """Return the replaced segments of topics whose objects were not removed yet."""
    found = []
    for directory in store.list_level("").directories:
        if parse_topic_directory(directory) in topics:
            for info in store.list(directory):
                key = ObjectKey.parse(info.key)
                if key is not None and key.kind is ObjectKind.REPLACED:
                    with suppress(RemoteResourceNotFoundError):  # removed after the listing
                        found.append(read_replaced(store, key))
    return found


def _spread(store: ObjectStore, publication: Publication) -> None:
    """Do all steps after the commit."""
    if not _is_done(store, publication):
        _each(lambda each: store.put(each.key(ObjectKind.MANIFEST), each.to_json()), publication.manifests)
        _each(lambda each: _retire(store, each), publication.replaces)
        mark = {
            "format": _FORMAT,
            "version": _VERSION,
            "turn": publication.turn,
            "uid": publication.uid,
            "batch": publication.batch,
        }
        store.put(_key(publication.name, _DONE), json.dumps(mark).encode())
    turn = _turn_name(publication.turn)
    store.put(_key(turn, _TAKEN), b"")
    store.delete([_key(turn, _PUBLISHED)])


def _retire(store: ObjectStore, manifest: SegmentManifest) -> None:
    """Hide a segment from listings, unless it is gone."""
    key = manifest.key(ObjectKind.MANIFEST)
    with suppress(RemoteResourceNotFoundError):
        store.put(manifest.key(ObjectKind.REPLACED), store.get(key))
        store.delete([key])


def _is_done(store: ObjectStore, publication: Publication) -> bool:
    """Return whether only the publication object is left: its segments may have been deleted since."""
    with suppress(RemoteResourceNotFoundError):
        return bool(_mark(store, publication.name)["turn"] >= publication.turn)
    return False


def _forget(store: ObjectStore, name: str) -> None:
    """Delete an old mark, unless it holds a batch number."""
    with suppress(RemoteResourceNotFoundError):
        if _mark(store, name)["batch"] is None:
            store.delete([_key(name, _DONE)])


def _mark(store: ObjectStore, name: str) -> dict[str, Any]:
    """Return the content of `.done`. Raises RemoteResourceNotFoundError."""
    key = _key(name, _DONE)
    document = _document(key, bytes(store.get(key)))
    if not isinstance(document.get("turn"), int) or "batch" not in document:
        raise RemoteStorageError(f"{key} is damaged: it has no turn or no batch")
    return document


def _each(action: Any, items: Iterable[SegmentManifest]) -> None:
    with ThreadPoolExecutor(_WRITERS, thread_name_prefix="publication") as pool:
        for _ in pool.map(action, items):
            pass


def _document(key: str, data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
        if document["format"] != _FORMAT or document["version"] != _VERSION:
            raise ValueError(f"format {document['format']} version {document['version']}, expected {_VERSION}")
    except (ValueError, KeyError, TypeError) as error:
        raise RemoteStorageError(
            f"{key} is not a publication that this release can read: {error}; use the release that wrote it"
        ) from error
    return dict(document)


def _key(name: str, suffix: str) -> str:
    return f"{DIRECTORY}/{name}{suffix}"


def _stem(key: str) -> str:
    """Return the name of an object, without its kind."""
    return key.rsplit("/", 1)[-1].rpartition(".")[0]


def _turns(infos: Iterable[ObjectInfo]) -> Iterator[int]:
    """Yield the remembered turns; the last one always is."""
    for info in infos:
        if info.key.endswith((_PUBLISHED, _TAKEN)) and _stem(info.key).isdigit():
            yield int(_stem(info.key))


def _turn_name(turn: int) -> str:
    """Return the name of a turn, which sorts in order."""
    return f"{turn:020d}"
