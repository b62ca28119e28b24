"""Record which cluster owns a bucket prefix. No other cluster publishes or deletes segments there.

    <url>/_owner/<generation, 20 digits>.json

Each change of owner, start of a broker and clean stop is an object of its own, with the next number, created only if it
does not exist: of several concurrent writers one succeeds. The largest number counts, objects never change, and one
listing shows any change. `docs/formats/bucket_owner.md` has the fields.

An owner stays until another one takes over or an operator gives the bucket up, whether its brokers run or not: their
metadata name segments that others must not touch. No decision depends on a clock.
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
#: History of the ownership; `tier owner` shows it.
_KEPT: Final = 16
_ATTEMPTS_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class BrokerLife:
    """A broker process: a unique id, and whether it has not reported that it stopped."""

    incarnation: str
    running: bool


@dataclass(frozen=True, slots=True)
class BucketOwner:
    """One generation of ownership. `cluster_id` is None for a bucket that was given up and is free.

    `brokers` are those of the cluster that have tiered here, by node id. `reason` and `time_ms` are informational.
    """

    cluster_id: str | None
    reason: str
    brokers: Mapping[int, BrokerLife] = field(default_factory=dict, hash=False)
    time_ms: int = 0
    generation: int = 0

    @property
    def running(self) -> list[int]:
        """The nodes that have not reported that they stopped. They may have crashed."""
        return sorted(node for node, life in self.brokers.items() if life.running)


def read_owner(store: ObjectStore) -> BucketOwner | None:
    """Return the owner of a bucket, or None when it never had one.

    Raises RemoteStorageError, also for an unreadable owner.
    """
    for _ in range(_ATTEMPTS_MAX):
        infos = generations(store)
        if not infos:
            return None
        try:
            return _decode(infos[-1].key, bytes(store.get(infos[-1].key)), store.url)[0]
        except RemoteResourceNotFoundError:
            continue  # a later one was created and the old ones were removed
    raise RemoteStorageError(f"{store.url}/{DIRECTORY} changes all the time; stop the processes that fight for it")


def owners(store: ObjectStore) -> list[BucketOwner]:
    """Return the last generations, oldest first, without unreadable ones.

    DamagedOwnerError if the newest is unreadable.
    """
    infos, found = generations(store), []
    for info in infos:
        try:
            found.append(_decode(info.key, bytes(store.get(info.key)), store.url)[0])
        except RemoteResourceNotFoundError:
            continue  # later ones were created since
        except DamagedOwnerError:
            if info is infos[-1]:
                raise
    return found


def generations(store: ObjectStore) -> list[ObjectInfo]:
    """Return the generations in the listing, the current one last.

    If the listing is the same as before, nothing has changed.
    """
    try:
        listed = store.list_level(DIRECTORY).objects
    except MissingBucketError:
        return []  # the first put creates it, or reports the error
    infos = [info for info in listed if _number(info.key) is not None]
    return sorted(infos, key=lambda info: info.key)


def replace_owner(
    store: ObjectStore, before: BucketOwner | None, after: BucketOwner, clock: Clock = SYSTEM_CLOCK
) -> BucketOwner | None:
    """Replace `before` by `after`. Return the owner now in effect, or None if another writer was faster.

    After a RemoteStorageError `after` may be in effect nevertheless, as the answer may have been lost.
    """
    generation = 1 if before is None else before.generation + 1
    after = replace(after, generation=generation, time_ms=clock.now_ms())
    uid = uuid_to_base64(random_uuid())
    key = _key(generation)
    if not store.create(key, _encode(after, uid)) and not _is_mine(store, key, uid):
        return None
    # If this was so slow that others came and went, `key` was free again and counts for nothing.
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
    """Make a cluster the owner, whatever the owner was: an operator's decision.

    Shuts out brokers of other clusters. Of the same cluster only `node_id` is forgotten, so that it may start with
    another directory. Damaged owners are replaced too. NotOwnerError for a bucket in the layout of Aiven's plugin,
    which is read-only.
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
    """Release the bucket, because its cluster is gone for good or needs nothing in it."""
    for _ in range(_ATTEMPTS_MAX):
        done = replace_owner(store, _read_or_number(store), BucketOwner(None, "given up"), clock)
        if done is not None:
            return done
    raise _contended(store)


def _read_or_number(store: ObjectStore) -> BucketOwner | None:
    """Return the owner to replace. Of a damaged one only the generation counts."""
    infos = generations(store)
    try:
        return read_owner(store)
    except DamagedOwnerError:
        return BucketOwner(None, "damaged", generation=_number(infos[-1].key) or 0) if infos else None


# --- permission to write --------------------------------------------------------------------------------------------


def check_no_owner(
    store: ObjectStore,
    what: str,
    manifests: Iterable[SegmentManifest] = (),
    *,
    instead: str = "go through its brokers, or take another prefix",
) -> None:
    """Raise NotOwnerError when a cluster owns the bucket: its brokers would not learn of the change by `what`.

    For buckets older than ownership, the affected `manifests` decide: those copied by a broker are refused. `instead`
    says what to do.
    """
    owner = read_owner(store)
    if owner is None:
        found = next((each for each in manifests if each.broker_id != BULK_BROKER_ID), None)
        if found is not None:
            raise NotOwnerError(
                f"{store.url}: {what} is refused: a broker copied {found.key()}, and does not see changes of others;"
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
    """Check as `check_no_owner`, but allow the stopped data directory of a broker of the owner.

    One of its `incarnations` must be the last one recorded in the bucket. None: no directory was given.
    """
    if incarnations is None:
        check_no_owner(store, what, manifests, instead="stop that cluster's broker and give its --data-dir")
        return
    owner = read_owner(store)
    if owner is not None and owner.cluster_id is not None and not _is_current(owner, incarnations):
        raise NotOwnerError(
            f"{store.url}: {what} is refused: the bucket belongs to cluster {owner.cluster_id}, and no data directory "
            "that"
            " was given is the last one that its broker ran with: another cluster's, an old copy, or one whose broker "
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

    With the `incarnations` of a data directory of that cluster, also when it is an old copy with outdated metadata. A
    cluster without a known id owns nothing.
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
    """Return whether a broker copied the objects, judging by the first segment of every topic."""
    return any(maker is not None for maker in makers(store).values())


def makers(store: ObjectStore) -> dict[str, ObjectLayout | None]:
    """Return who wrote each topic directory: the layout of a broker, None for a bulk job or no segment.

    Reads one segment of each.
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
                continue  # deleted after the listing
    return None


# --- format --------------------------------------------------------------------------------------------------------


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

    DamagedOwnerError; RemoteStorageError for one of a later release, whose owner is unknown: no broker may then write.
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
