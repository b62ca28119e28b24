"""Whose a bucket prefix is: one cluster's, and nothing else publishes or deletes segments there.

    <url>/_owner/<generation, 20 digits>.json

Each change of owner, each start of a broker and each clean stop is an object of its own, numbered one more than the
last and created only where there is none: of several that are at it at the same time one succeeds. The largest number
counts, objects never change, and one listing tells whether anything has. `docs/formats/bucket_owner.md` has the fields.

An owner stays until somebody takes the bucket over or gives it up, whether its brokers run or not: their metadata name
segments that others must not touch. No clock decides anything.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from stratalog.errors import (
    DamagedOwnerError,
    MissingBucketError,
    NotOwnerError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
)
from stratalog.remote.storage import (
    ObjectInfo,
    ObjectLayout,
    ObjectStore,
    SegmentManifest,
    parse_manifest_key,
    parse_topic_directory,
    read_manifest,
)
from stratalog.remote.transactions import BULK_BROKER_ID
from stratalog.util import SYSTEM_CLOCK, Clock, random_uuid, uuid_to_base64

DIRECTORY: Final = "_owner"

_FORMAT: Final = "stratalog-bucket-owner"
_VERSION: Final = 1
_SUFFIX: Final = ".json"
#: The history of the ownership; `tier owner` shows them.
_KEPT: Final = 16
_ATTEMPTS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class BrokerLife:
    """A process of a broker: an id that no other process has, and whether it has not said yet that it stopped."""

    incarnation: str
    running: bool


@dataclass(frozen=True, slots=True)
class BucketOwner:
    """One generation of ownership. `cluster_id` is None for a bucket that was given up: anybody may have it.

    `brokers` are those of the cluster that have tiered here, by node id. `reason` and `time_ms` are for people.
    """

    cluster_id: str | None
    reason: str
    brokers: Mapping[int, BrokerLife] = field(default_factory=dict, hash=False)
    time_ms: int = 0
    generation: int = 0

    @property
    def running(self) -> list[int]:
        """The nodes that have not been reported as stopped; they may have been killed."""
        return sorted(node for node, life in self.brokers.items() if life.running)


def read_owner(store: ObjectStore) -> BucketOwner | None:
    """Return the owner of a bucket, or None when it never had one.

    RemoteStorageError, also for what cannot be read as an owner.
    """
    for _ in range(_ATTEMPTS_MAX):
        infos = generations(store)
        if not infos:
            return None
        try:
            return _decode(infos[-1].key, bytes(store.get(infos[-1].key)), store.url)[0]
        except RemoteResourceNotFoundError:
            continue  # a later one has come and the old ones have gone
    raise RemoteStorageError(f"{store.url}/{DIRECTORY} changes all the time; stop the processes that fight for it")


def owners(store: ObjectStore) -> list[BucketOwner]:
    """Return the last generations, oldest first, without those that cannot be read.

    DamagedOwnerError when that is the newest.
    """
    infos, found = generations(store), []
    for info in infos:
        try:
            found.append(_decode(info.key, bytes(store.get(info.key)), store.url)[0])
        except RemoteResourceNotFoundError:
            continue  # later ones have come since
        except DamagedOwnerError:
            if info is infos[-1]:
                raise
    return found


def generations(store: ObjectStore) -> list[ObjectInfo]:
    """Return what is there of owners, the one that counts last.

    Where that is the same as before, nothing has changed.
    """
    try:
        listed = store.list_level(DIRECTORY).objects
    except MissingBucketError:
        return []  # the first put makes it, or names what is wrong
    infos = [info for info in listed if _number(info.key) is not None]
    return sorted(infos, key=lambda info: info.key)


def replace_owner(
    store: ObjectStore, before: BucketOwner | None, after: BucketOwner, clock: Clock = SYSTEM_CLOCK
) -> BucketOwner | None:
    """Put `after` in the place of `before`; what is in force then, or None when somebody else was faster.

    RemoteStorageError: it may be in force nevertheless, as the answer may have been lost.
    """
    generation = 1 if before is None else before.generation + 1
    after = replace(after, generation=generation, time_ms=clock.now_ms())
    uid = uuid_to_base64(random_uuid())
    key = _key(generation)
    if not store.create(key, _encode(after, uid)) and not _is_mine(store, key, uid):
        return None
    # Had this been so slow that others came and went, `key` was free once more, and counts for nothing.
    infos = generations(store)
    if not infos or infos[-1].key != key or not _is_mine(store, key, uid):
        return None
    store.delete([info.key for info in infos[:-_KEPT]])
    return after


def take_over(
    store: ObjectStore,
    cluster_id: str,
    *,
    node_id: int | None = None,
    reason: str = "taken over",
    clock: Clock = SYSTEM_CLOCK,
) -> BucketOwner:
    """Make a cluster the owner, whichever it was before: an operator's decision.

    Brokers of another cluster are shut out from then on. Of the same cluster only `node_id` is forgotten, so that it
    may begin again with another directory. What is damaged is replaced too. NotOwnerError for a bucket in the layout of
    Aiven's plugin, which is only read.
    """
    for maker in makers(store).values():
        if maker is ObjectLayout.AIVEN:
            raise NotOwnerError(
                f"{store.url} has segments in the layout of Aiven's plugin: such a bucket is only read; bring the "
                "topics"
                " into another one (`stratalog spark restore --remote URL --target URL`)"
            )
    for _ in range(_ATTEMPTS_MAX):
        before = _read_or_number(store)
        brokers: Mapping[int, BrokerLife] = {}
        if before is not None and before.cluster_id == cluster_id:
            brokers = {node: life for node, life in before.brokers.items() if node != node_id}
        done = replace_owner(store, before, BucketOwner(cluster_id, reason, brokers), clock)
        if done is not None:
            return done
    raise _contended(store)


def give_up(store: ObjectStore, clock: Clock = SYSTEM_CLOCK) -> BucketOwner:
    """Release the bucket: its cluster is gone for good, or has nothing there that it needs."""
    for _ in range(_ATTEMPTS_MAX):
        done = replace_owner(store, _read_or_number(store), BucketOwner(None, "given up"), clock)
        if done is not None:
            return done
    raise _contended(store)


def _read_or_number(store: ObjectStore) -> BucketOwner | None:
    """Return what an operator decides about: of what is damaged only its generation counts."""
    infos = generations(store)
    try:
        return read_owner(store)
    except DamagedOwnerError:
        return BucketOwner(None, "damaged", generation=_number(infos[-1].key) or 0) if infos else None


# --- who may write ----------------------------------------------------------------------------------------------------


def check_no_owner(
    store: ObjectStore,
    what: str,
    manifests: Iterable[SegmentManifest] = (),
    *,
    instead: str = "go through its brokers, or take another prefix",
) -> None:
    """Raise NotOwnerError when a cluster owns the bucket: its brokers would never hear of what `what` changes.

    Where nothing tells whose it is, as in buckets from before there were owners, `manifests` that a broker copied do:
    those that the change concerns. `instead` says what to do.
    """
    owner = read_owner(store)
    if owner is None:
        found = next((each for each in manifests if each.broker_id != BULK_BROKER_ID), None)
        if found is not None:
            raise NotOwnerError(
                f"{store.url}: {what} is refused: a broker copied {found.key()}, and never sees what others do there;"
                f" {instead}. {_if_gone(store)}"
            )
    elif owner.cluster_id is not None:
        raise NotOwnerError(
            f"{store.url}: {what} is refused: the bucket belongs to cluster {owner.cluster_id}; {instead}."
            f" {_if_gone(store)}"
        )


def check_directories(
    store: ObjectStore,
    what: str,
    incarnations: Collection[str] | None,
    manifests: Iterable[SegmentManifest] = (),
) -> None:
    """Check as `check_no_owner`, and also allow the stopped data directory of a broker of the owner.

    One of its `incarnations` is the last that the bucket heard of. None: no directory was given.
    """
    if incarnations is None:
        check_no_owner(store, what, manifests, instead="stop that cluster's broker and give its --data-dir")
        return
    owner = read_owner(store)
    if owner is not None and owner.cluster_id is not None and not _is_current(owner, incarnations):
        raise NotOwnerError(
            f"{store.url}: {what} is refused: the bucket belongs to cluster {owner.cluster_id}, and no data directory "
            "that"
            " was given is the one with which its broker ran last: another cluster's, an old copy, or one whose broker "
            "has"
            f" not run since it took the bucket over (start it once). {_if_gone(store)}"
        )


def _is_current(owner: BucketOwner, incarnations: Collection[str]) -> bool:
    return any(life.incarnation in incarnations for life in owner.brokers.values())


def check_owner(
    store: ObjectStore,
    what: str,
    cluster_id: str | None,
    whose: str,
    *,
    incarnations: Collection[str] | None = None,
) -> None:
    """Raise NotOwnerError when another cluster than `cluster_id` owns the bucket; `whose` says where that id is from.

    With the `incarnations` of a data directory of that cluster also when it is an old copy, whose metadata are behind.
    A cluster without a known id owns nothing.
    """
    owner = read_owner(store)
    if owner is not None and owner.cluster_id is not None and owner.cluster_id != cluster_id:
        raise NotOwnerError(
            f"{store.url}: {what} is refused: the bucket belongs to cluster {owner.cluster_id}, and {whose} to cluster"
            f" {cluster_id}"
        )
    if owner is None or owner.cluster_id is None or incarnations is None:
        return
    if owner.brokers and not _is_current(owner, incarnations):
        raise NotOwnerError(
            f"{store.url}: {what} is refused: {whose} to the bucket's owner, but a broker of it has run since with "
            "another"
            " data directory: this is an old copy, whose metadata are behind"
        )


def _if_gone(store: ObjectStore) -> str:
    return f"If its brokers are gone for good: stratalog tier owner {store.url} --give-up"


def made_by_brokers(store: ObjectStore) -> bool:
    """Return whether a broker copied what is there, as far as the first segment of every topic tells."""
    return any(maker is not None for maker in makers(store).values())


def makers(store: ObjectStore) -> dict[str, ObjectLayout | None]:
    """Return who made what lies in each directory of a topic.

    A broker with the layout named, None for a bulk job or no segment.

    One segment of each is looked at.
    """
    found: dict[str, ObjectLayout | None] = {}
    try:
        directories = store.list_level("").directories
    except MissingBucketError:
        return found
    for directory in directories:
        if parse_topic_directory(directory) is not None:
            manifest = _first_manifest(store, directory)
            is_bulk = manifest is None or manifest.broker_id == BULK_BROKER_ID
            found[directory] = None if manifest is None or is_bulk else manifest.layout
            if manifest is not None and manifest.layout is ObjectLayout.AIVEN:
                found[directory] = ObjectLayout.AIVEN
    return found


def _first_manifest(store: ObjectStore, directory: str) -> SegmentManifest | None:
    for info in store.list(directory):
        if parse_manifest_key(info.key) is not None:
            try:
                return read_manifest(store, info.key)
            except RemoteResourceNotFoundError:
                continue  # deleted since it was listed
    return None


# --- form -------------------------------------------------------------------------------------------------------------


def _encode(owner: BucketOwner, uid: str) -> bytes:
    document = {
        "format": _FORMAT,
        "version": _VERSION,
        "generation": owner.generation,
        "uid": uid,
        "clusterId": owner.cluster_id,
        "reason": owner.reason,
        "time": owner.time_ms,
        "brokers": {
            str(node): {"incarnation": life.incarnation, "running": life.running}
            for node, life in sorted(owner.brokers.items())
        },
    }
    return (json.dumps(document, indent=1) + "\n").encode()


def _decode(key: str, data: bytes, url: str) -> tuple[BucketOwner, str]:
    """Return an owner and the uid of its object.

    DamagedOwnerError, or RemoteStorageError for one of a later release: no broker may write then, as it is not known
    whose it is.
    """
    try:
        document: dict[str, Any] = json.loads(data)
        if document["format"] != _FORMAT or not isinstance(document["version"], int):
            raise ValueError(f"format {document['format']!r}, version {document['version']!r}")
        if document["version"] > _VERSION:
            raise RemoteStorageError(
                f"{url}/{key} has version {document['version']}, and {_VERSION} is the last that this release knows: "
                "use"
                " the release that wrote it, or a later one"
            )
        cluster_id = document["clusterId"]
        if cluster_id is not None and not (isinstance(cluster_id, str) and cluster_id):
            raise ValueError(f"clusterId {cluster_id!r}")
        brokers = {
            int(node): BrokerLife(str(life["incarnation"]), bool(life["running"]))
            for node, life in document["brokers"].items()
        }
        generation = _number(key)
        if generation != document["generation"]:
            raise ValueError(f"generation {document['generation']}")
        return (
            BucketOwner(cluster_id, str(document["reason"]), brokers, int(document["time"]), document["generation"]),
            str(document["uid"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedOwnerError(
            f"{url}/{key} is damaged and does not say whose the bucket is ({type(error).__name__}: {error}): nothing "
            "may be"
            f" written there. Say whose it is: stratalog tier owner {url} --take-over --data-dir DIR"
        ) from error


def _is_mine(store: ObjectStore, key: str, uid: str) -> bool:
    try:
        return _decode(key, bytes(store.get(key)), store.url)[1] == uid
    except RemoteResourceNotFoundError:
        return False


def _contended(store: ObjectStore) -> RemoteStorageError:
    return RemoteStorageError(
        f"{store.url}: others were faster to take the bucket, {_ATTEMPTS_MAX} times; stop them first"
    )


def _key(generation: int) -> str:
    return f"{DIRECTORY}/{generation:020d}{_SUFFIX}"


def _number(key: str) -> int | None:
    name = key.rsplit("/", 1)[-1]
    stem = name.removesuffix(_SUFFIX)
    return int(stem) if stem != name and len(stem) == 20 and stem.isdigit() else None
