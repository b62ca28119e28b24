"""Making many segments of a bucket visible in one step, and taking others away with it.

A segment is there when its manifest is, so a job of many segments would appear one by one. Instead one object,
`_publications/<turn>.json`, holds all manifests of the job: it appears whole, and from then on every segment counts.

    stage     workers put the objects of segments, without manifests: no reader takes them for segments
    publish   the publication object is created (the one step); then the manifests are put, those of replaced segments
              renamed, `<name>.done` and `<turn>.taken` say so, and the object goes
    discard   the staged objects are deleted

The publications of a bucket are numbered, each has its turn, and an object is created only where there is none: of
several jobs that are at it at the same time one has the turn. A job whose segments are to lie behind all others asks
for its turn (`next_turn`) before it looks where they end; if another job had it in between (OvertakenError), it looks
again.

The manifest of a replaced segment goes on as `ObjectKind.REPLACED`, which no listing takes for a segment: a reader that
had found the old one reads on, compressed and encrypted contents too, until `remove_objects` takes all of it away. What
a crash keeps from that is found by `replaced_segments`.

After a crash before the one step nothing is visible, and what was staged is what a failed copy leaves: `tier audit`
names it, `tier repair` removes it. After a crash behind it everything is visible to readers through `catalog`,
and the next publication, or `tier repair`, does the rest (`finish_publications`). Everything behind the one step may be
done twice.

The `.done` of a name remembers the number of its last batch, which makes publishing a batch of a stream idempotent.
That of an unnumbered publication goes after `DONE_KEPT_MS`: until then it tells a reader that the bucket changed under
his listing. So do the `.taken`, but for the last one.

Brokers are not concerned: they know segments by their metadata alone. A store that puts an object in the place of
another although it is told not to (If-None-Match) guards nothing: there, one publisher to a topic at a time.
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
    """Another publication has had the turn; nothing of this one is visible."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication whose manifests are not all in their places yet. `uid` tells two of one name apart."""

    turn: int
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
            "name": self.name,
            "uid": self.uid,
            "batch": self.batch,
            "manifests": [json.loads(each.to_json()) for each in self.manifests],
            "replaces": [json.loads(each.to_json()) for each in self.replaces],
        }
        return (json.dumps(document, indent=1) + "\n").encode()

    @classmethod
    def from_json(cls, key: str, data: bytes) -> Publication:
        """RemoteStorageError names the object and what is wrong."""
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
    """Make `manifests` visible and take `replaces` away, in one step; their objects stay until `remove_objects`.

    `name` is that of the job. With `batch`, the number of a batch of a stream, False is returned and nothing published
    if this batch or a later one of that name was. With `turn`, what `next_turn` gave, OvertakenError if anything was
    published since; without, as soon as it can be. Raises RemoteStorageError: nothing is visible then, or everything
    is.
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
    """Return the turn of the next publication. What a crash left of those before it is finished."""
    finish_publications(store, clock=clock)
    return max(_turns(changes(store)), default=-1) + 1


def _has_turn(store: ObjectStore, publication: Publication) -> bool:
    """Return the one step, unless another has the turn."""
    key = _key(_turn_name(publication.turn), _PUBLISHED)
    if store.create(key, publication.to_json()):
        return True
    with suppress(RemoteResourceNotFoundError):  # it may be ours: of a request whose answer was lost
        return Publication.from_json(key, bytes(store.get(key))).uid == publication.uid
    with suppress(RemoteResourceNotFoundError):  # and somebody may have finished it
        return bool(_mark(store, publication.name)["uid"] == publication.uid)
    return False


def is_published(store: ObjectStore, name: str, batch: int | None) -> bool:
    """Return whether the one step of a job was done, or that of a stream for this batch or a later one."""
    if batch is not None:
        last = published_batch(store, name)
        return last is not None and last >= batch
    infos = changes(store)
    return any(info.key == _key(name, _DONE) for info in infos) or any(
        publication.name == name for publication in read_publications(store, infos)
    )


def published_batch(store: ObjectStore, name: str) -> int | None:
    """Return the number of the last batch published under a name, or None without one."""
    found = [each.batch for each in read_publications(store) if each.name == name]
    with suppress(RemoteResourceNotFoundError):
        found.append(_mark(store, name)["batch"])
    return max((int(batch) for batch in found if batch is not None), default=None)


def finish_publications(store: ObjectStore, *, clock: Clock = SYSTEM_CLOCK) -> int:
    """Do what a crash left undone; return how many publications that were. Old marks of finished ones go too."""
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
    """Return those whose manifests are not all in their places yet; `infos` is what `changes` gave."""
    found = []
    for info in changes(store) if infos is None else infos:
        if info.key.endswith(_PUBLISHED):
            try:
                data = bytes(store.get(info.key))
            except RemoteResourceNotFoundError:
                continue  # finished since it was listed
            found.append(Publication.from_json(info.key, data))
    return found


def changes(store: ObjectStore) -> tuple[ObjectInfo, ...]:
    """Return what a listing compares before and after: another value means that something was published in between."""
    return store.list_level(DIRECTORY).objects


def applied(
    manifests: Mapping[str, SegmentManifest], publications: Iterable[Publication]
) -> dict[str, SegmentManifest]:
    """Manifests by key as they will be when the publications are finished."""
    result = dict(manifests)
    for publication in publications:
        for replaced in publication.replaces:
            result.pop(replaced.key(ObjectKind.MANIFEST), None)
        for manifest in publication.manifests:
            result[manifest.key(ObjectKind.MANIFEST)] = manifest
    return result


def remove_objects(store: ObjectStore, manifests: Iterable[SegmentManifest]) -> None:
    """Delete all objects of segments of our layout, manifests first.

    Of staged ones that are not to be published (`discard`), and of replaced ones that are no longer read.
    """
    _each(partial(_remove_segment, store), manifests)


def _remove_segment(store: ObjectStore, manifest: SegmentManifest) -> None:
    first, *contents, last = [manifest.key(kind) for kind in DELETION_ORDER]
    store.delete([first])
    store.delete_together(contents)
    store.delete([last])


#: What was staged goes as what was replaced does.
discard = remove_objects


def replaced_segments(store: ObjectStore, topics: Collection[str]) -> list[SegmentManifest]:
    """Return the segments of topics that others have taken the place of, and whose objects were not removed yet."""
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
    """Have listings pass over a segment; nothing is done to one that is gone."""
    key = manifest.key(ObjectKind.MANIFEST)
    with suppress(RemoteResourceNotFoundError):
        store.put(manifest.key(ObjectKind.REPLACED), store.get(key))
        store.delete([key])


def _is_done(store: ObjectStore, publication: Publication) -> bool:
    """Return whether only the object itself is left: its segments may have been deleted since."""
    with suppress(RemoteResourceNotFoundError):
        return bool(_mark(store, publication.name)["turn"] >= publication.turn)
    return False


def _forget(store: ObjectStore, name: str) -> None:
    """Delete an old mark, unless it remembers a batch."""
    with suppress(RemoteResourceNotFoundError):
        if _mark(store, name)["batch"] is None:
            store.delete([_key(name, _DONE)])


def _mark(store: ObjectStore, name: str) -> dict[str, Any]:
    """Return what `.done` says. Raises RemoteResourceNotFoundError."""
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
            f"{key} is no publication that this release can read: {error}; use the release that wrote it"
        ) from error
    return dict(document)


def _key(name: str, suffix: str) -> str:
    return f"{DIRECTORY}/{name}{suffix}"


def _stem(key: str) -> str:
    """Return the name of an object, without its kind."""
    return key.rsplit("/", 1)[-1].rpartition(".")[0]


def _turns(infos: Iterable[ObjectInfo]) -> Iterator[int]:
    """Yield those that publications have had, as far as is remembered: the last one always is."""
    for info in infos:
        if info.key.endswith((_PUBLISHED, _TAKEN)) and _stem(info.key).isdigit():
            yield int(_stem(info.key))


def _turn_name(turn: int) -> str:
    """In listings they stand in their order."""
    return f"{turn:020d}"
