"""A broker's claim to its bucket, acquired before it writes there and checked before each publication and deletion.

    acquired      the newest generation of `_owner` names this cluster and this process
    refused       it names another cluster, or the owner is unknown: nothing is copied or deleted, reads work
    fenced        it was acquired, and another process has taken it over since: as refused
    read-only     the data directory was restored without taking the bucket over: as refused, without a warning

An unreachable store is tried again at the next copy or deletion, and so is a refusal: an operator may have changed the
owner.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from stratalog.errors import NotOwnerError, RemoteStorageError, RetriableRemoteStorageError
from stratalog.remote.ownership.bucket_owner import (
    BrokerLife,
    BucketOwner,
    generations,
    makers,
    read_owner,
    replace_owner,
)
from stratalog.remote.ownership.owner_file import OwnershipFile
from stratalog.remote.storage import ObjectLayout, ObjectStore
from stratalog.util import SYSTEM_CLOCK, Clock, random_uuid, uuid_from_base64, uuid_to_base64

logger = logging.getLogger(__name__)

#: How long a clean stop waits for the store to record it.
_RELEASE_TIMEOUT_S: Final = 5.0
_ID_CHARACTERS: Final = 22


@dataclass(frozen=True, slots=True)
class Claimant:
    """The claiming broker. `knows_topic` returns whether a topic id belongs to the cluster.

    `has_metadata` says whether the data directory holds the metadata of remote segments: an old copy of it is then
    dangerous. In a cluster the metadata belong to the cluster, and a replica may start again with an empty directory.
    """

    cluster_id: str
    node_id: int
    file: OwnershipFile
    knows_topic: Callable[[UUID], bool]
    has_metadata: bool = True


class BrokerOwnership:
    """Claims and checks a bucket. Thread-safe; `ensure` costs one listing of a few objects."""

    def __init__(self, store: ObjectStore, claimant: Claimant, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store = store
        self._claimant = claimant
        self._clock = clock
        self.is_read_only = claimant.file.is_read_only
        self._life = BrokerLife(uuid_to_base64(random_uuid()), running=True)
        #: Key and entity tag of the last generation seen that names this process.
        self._seen: tuple[str, str | None] | None = None
        self._was_acquired = False
        self._lock = threading.Lock()

    def ensure(self) -> None:
        """Ensure that this process owns the bucket now.

        Raises NotOwnerError when another one does or the owner is unknown, and another RemoteStorageError when the
        store does not answer.
        """
        if self.is_read_only:
            raise NotOwnerError(
                f"{self._store.url} is only read: its data directory was restored without taking it over"
            )
        with self._lock:
            infos = generations(self._store)
            newest = (infos[-1].key, infos[-1].etag) if infos else None
            if newest is not None and newest == self._seen:
                return
            self._seen = None
            try:
                self._acquire()
            except NotOwnerError as error:
                self._note_refusal(str(error))
                raise

    def _acquire(self) -> None:
        owner = read_owner(self._store)
        mine = self._claimant.cluster_id
        if owner is None:
            self._check_adoptable()
        elif owner.cluster_id is not None and owner.cluster_id != mine:
            raise self._refused(owner)
        life = None if owner is None or owner.cluster_id is None else owner.brokers.get(self._claimant.node_id)
        if life == self._life:
            self._remember()
            return
        if self._was_acquired:
            raise self._fenced(owner)
        self._check_not_stale(life)
        self._claim(owner, life)

    def _claim(self, before: BucketOwner | None, life: BrokerLife | None) -> None:
        """Replace `life`, the previous process of this broker, by this process."""
        mine = self._claimant
        known = () if life is None else (life.incarnation,)
        # Recorded here first: after a crash, the next process knows both ids that the bucket may name.
        mine.file.set_incarnations(self._store.url, (*known, self._life.incarnation))
        others: Mapping[int, BrokerLife] = {}
        if before is not None and before.cluster_id == mine.cluster_id:
            others = before.brokers
        after = BucketOwner(mine.cluster_id, "started", {**others, mine.node_id: self._life})
        if replace_owner(self._store, before, after, self._clock) is None:
            raise RetriableRemoteStorageError(f"{self._store.url}: another process is taking it at this moment")
        if before is None or before.cluster_id != mine.cluster_id:
            logger.info("%s belongs to this cluster, %s, from now on", self._store.url, mine.cluster_id)
        self._remember()

    def _remember(self) -> None:
        infos = generations(self._store)
        self._was_acquired = True
        self._note_refusal(None)
        owner = read_owner(self._store)
        # The next check sees any change between the two reads.
        if owner is not None and infos and owner.brokers.get(self._claimant.node_id) == self._life:
            self._seen = (infos[-1].key, infos[-1].etag) if _generation(infos[-1].key) == owner.generation else None

    def _note_refusal(self, reason: str | None) -> None:
        """Record the refusal in the data directory, so that `tier status` shows it while this broker is down."""
        try:
            self._claimant.file.set_refusal(reason)
        except OSError as error:
            logger.warning("%s: cannot be recorded in the data directory: %s", self._store.url, error)

    def _refused(self, owner: BucketOwner) -> NotOwnerError:
        was = "has been taken over by" if self._was_acquired else "belongs to"
        return NotOwnerError(
            f"{self._store.url} {was} cluster {owner.cluster_id} ({owner.reason}); this one is "
            f"{self._claimant.cluster_id}:"
            f" nothing is copied there or deleted from there by this broker. Give it a prefix of its own, or, if that"
            f" cluster is to write there no more: stop its brokers, and {self._how_to()}"
        )

    def _fenced(self, owner: BucketOwner | None) -> NotOwnerError:
        reason = "its owner was removed" if owner is None else owner.reason
        return NotOwnerError(
            f"{self._store.url} was taken from this process ({reason}): a broker with the same node id has started on "
            "it,"
            " or an operator has given it up. Nothing is copied there or deleted from there by this process;"
            " two copies of one data directory must not run"
        )

    def _check_not_stale(self, life: BrokerLife | None) -> None:
        if not self._claimant.has_metadata:
            return
        if life is not None and life.incarnation not in self._claimant.file.all_incarnations:
            raise NotOwnerError(
                f"{self._store.url}: broker {self._claimant.node_id} of this cluster has run since with another data"
                f" directory: {self._claimant.file.directory} is an old copy, whose metadata name segments that may be"
                f" gone. Nothing is copied there or deleted from there. If this is the copy to go on with: stop this"
                f" broker, and stratalog tier restore {self._store.url} --metadata-only --take-over --data-dir"
                f" {self._claimant.file.directory}"
            )

    def _check_adoptable(self) -> None:
        """Claim a bucket without an owner if it is empty, or its segments belong to this cluster's topics."""
        for directory, maker in makers(self._store).items():
            if maker is None:
                continue
            if maker is ObjectLayout.AIVEN:
                raise NotOwnerError(
                    f"{self._store.url}/{directory} is in the layout of Aiven's plugin: such a bucket is only read; "
                    "give this broker a prefix of its own"
                )
            if not self._claimant.knows_topic(uuid_from_base64(directory[-_ID_CHARACTERS:])):
                raise NotOwnerError(
                    f"{self._store.url} has {directory}, which a broker copied and this cluster does not know, "
                    "and no owner of the bucket is recorded. Nothing is copied there or deleted from there. "
                    f"If it is this cluster's: {self._how_to()}"
                )

    def _how_to(self) -> str:
        directory = self._claimant.file.directory
        command = f"stratalog tier owner {self._store.url} --take-over --data-dir {directory}"
        return f"{command}, then restart this broker" if self._was_acquired else command

    def release(self) -> None:
        """Record that this broker has stopped. The bucket stays the cluster's.

        Store errors are only logged.
        """
        thread = threading.Thread(target=self._note_stop, name="remote-owner-release", daemon=True)
        thread.start()
        thread.join(_RELEASE_TIMEOUT_S)

    def _note_stop(self) -> None:
        node = self._claimant.node_id
        try:
            with self._lock:  # after a claim in progress
                if not self._was_acquired:
                    return
            owner = read_owner(self._store)
            if owner is None or owner.brokers.get(node) != self._life:
                return
            stopped = {**owner.brokers, node: replace(self._life, running=False)}
            replace_owner(self._store, owner, BucketOwner(owner.cluster_id, "stopped", stopped), self._clock)
        except RemoteStorageError as error:
            logger.info("The end of this broker could not be recorded in %s: %s", self._store.url, error)


def _generation(key: str) -> int:
    return int(key.rsplit("/", 1)[-1].partition(".")[0])
