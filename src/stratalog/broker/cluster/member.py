"""A broker's membership in a cluster, from its formatted directories to the controlled shutdown.

The startup order is Kafka's (`BrokerServer`): lock and identify the directories, follow the metadata log, check that
the cluster can be joined, register, wait for the registration in the metadata. The rest (open partitions, accept
clients, request to be unfenced) is up to the caller: `ready_to_unfence`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from uuid import UUID

from stratalog.broker.cluster.authorizers import ask_for_authorizer, refuse_open_door
from stratalog.broker.cluster.controller_channel import ControllerChannel, connect_to_node
from stratalog.broker.cluster.features import refuse_cluster
from stratalog.broker.cluster.image import MetadataImage
from stratalog.broker.cluster.lifecycle import Lifecycle, LifecycleState, Registration
from stratalog.broker.cluster.loader import ImageLoader, Publisher
from stratalog.broker.cluster.metadata_log import ClusterMetadataLog
from stratalog.broker.cluster.observer import Observer, ObserverSettings
from stratalog.broker.cluster.quorum import Quorum
from stratalog.broker.cluster.settings import ClusterSettings
from stratalog.broker.metadata import STORE_FILE
from stratalog.engine.dirs import DataDir, stored_cluster_id
from stratalog.errors import DataDirError, UsageError
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, Clock, FileSystem, join_host_port
from stratalog.wire.client import Client, ConnectionOptions, UnreachableError

logger = logging.getLogger(__name__)

_CHECK_S: Final = 0.05
#: Files that an otherwise empty directory may contain.
_OF_THE_FILE_SYSTEM: Final = "lost+found"
#: Time limit of the last request of a registration.
_LAST_REQUEST_S: Final = 10.0
#: Time limit for handing over leadership (Kafka's).
_SHUTDOWN_TIMEOUT_S: Final = 300.0


class ClusterMember:
    """Joins with `join`, leaves with `leave` and `close`. `publish` is called on the observer's thread.

    `dirs` are the log directories, in order, if the caller opens and closes them. `failed_dirs` returns the ids of
    those that have failed since.
    """

    def __init__(
        self,
        settings: ClusterSettings,
        publish: Publisher,
        *,
        dirs: Sequence[DataDir] = (),
        failed_dirs: Callable[[], Sequence[UUID]] = tuple,
        clock: Clock = SYSTEM_CLOCK,
        fs: FileSystem = REAL_FILESYSTEM,
        connect: Callable[[str, int, ConnectionOptions], Client] = connect_to_node,
    ) -> None:
        self.settings = settings
        self._clock = clock
        self._connect = connect
        self.cluster_id = formatted_cluster_id(settings.data_dirs, fs)
        with ExitStack() as undo:
            #: Directories opened here, to be closed here.
            self._own_dirs = [] if dirs else [self._open_dir(path, fs, undo) for path in settings.data_dirs]
            opened = [*dirs, *self._own_dirs]
            first = opened[0]
            log = ClusterMetadataLog.open(first.path, clean_shutdown=first.was_clean, clock=clock, fs=fs)
            undo.pop_all()
        self._previous_epoch = _previous_epoch(opened, len(settings.data_dirs))
        self.quorum = Quorum(settings.bootstrap, settings.voters)
        self._loader = ImageLoader(publish)
        self._observer = Observer(
            ObserverSettings(
                node_id=settings.node_id,
                cluster_id=self.cluster_id,
                directory_id=first.directory_id,
                connection=settings.connection,
                fetch_timeout_s=settings.fetch_timeout_s,
                controller_listener=settings.controller_listener,
            ),
            log,
            self.quorum,
            self._loader,
            clock=clock,
            connect=connect,
        )
        self.lifecycle = Lifecycle(
            Registration(
                node_id=settings.node_id,
                cluster_id=self.cluster_id,
                listeners=settings.listeners,
                directory_ids=[each.directory_id for each in opened],
                rack=settings.rack,
                previous_broker_epoch=self._previous_epoch,
                large_segments=settings.large_segments,
            ),
            settings.connection,
            controller=lambda: self.quorum.leader,
            applied_offset=lambda: self._loader.published_offset,
            failed_dirs=failed_dirs,
            heartbeat_s=settings.heartbeat_s,
            registration_timeout_s=settings.registration_timeout_s,
            clock=clock,
            connect=connect,
        )

    def _open_dir(self, path: Path, fs: FileSystem, undo: ExitStack) -> DataDir:
        opened = DataDir.open(path, cluster_id=self.cluster_id, node_id=self.settings.node_id, fs=fs)
        undo.callback(opened.close, clean=opened.was_clean, broker_epoch=opened.previous_broker_epoch)
        return opened

    @property
    def image(self) -> MetadataImage:
        return self._loader.image

    @property
    def failure(self) -> Exception | None:
        """The error that ended the membership, if any."""
        return self._observer.failure or self.lifecycle.failure

    def join(self) -> None:
        """Follow the metadata and register; the broker is fenced until `ready_to_unfence`.

        Raises UsageError for a cluster that cannot be joined, UnreachableError if no controller responds in time.
        `close` must be called even after an error.
        """
        self._observer.start()
        self._wait(lambda: self._loader.is_caught_up, "no controller has sent the metadata of the cluster")
        refuse_cluster(
            self.image,
            kraft_version=self._observer.kraft_version,
            node_id=self.settings.node_id,
            is_tiering=self.settings.is_tiering,
        )
        refuse_open_door(
            at_controllers=self._ask_for_authorizer(),
            here=self.settings.has_authorizer,
            rules=len(self.image.acls),
        )
        self.lifecycle.start()
        # The lifecycle has its own time limit, and knows why there was no registration.
        patience_s = self.settings.registration_timeout_s + _LAST_REQUEST_S
        self.lifecycle.wait_for(lambda each: each.broker_epoch >= 0, patience_s)
        self._wait(self._is_registered, "the registration of this broker is not in the metadata")

    def _ask_for_authorizer(self) -> bool:
        channel = ControllerChannel(self.settings.connection, lambda: self.quorum.leader, self._connect)
        answer: list[bool] = []

        def is_answered() -> bool:
            try:
                answer.append(ask_for_authorizer(channel))
            except (UnreachableError, OSError) as error:
                logger.info("Asking for an authorizer: %s", error)
            return bool(answer)

        try:
            self._wait(is_answered, "no controller says whether it has an authorizer")
        finally:
            channel.close()
        return answer[0]

    def ready_to_unfence(self) -> None:
        """Let the controller unfence the broker: it serves all its assigned partitions."""
        self.lifecycle.ready_to_unfence()

    @property
    def closing_epoch(self) -> int:
        """The broker epoch to store at a clean shutdown: this registration's, else that of the last shutdown."""
        epoch = self.lifecycle.broker_epoch
        return epoch if epoch >= 0 else self._previous_epoch

    def leave(self) -> None:
        """Have the controller move leadership to others, and wait for that. The broker continues to serve."""
        lifecycle = self.lifecycle
        if self.failure is None and lifecycle.broker_epoch >= 0:
            lifecycle.begin_controlled_shutdown()
            if not lifecycle.wait_for(lambda each: each.state is LifecycleState.SHUTTING_DOWN, _SHUTDOWN_TIMEOUT_S):
                logger.warning("The controller did not allow the shutdown in time; this broker stops anyway")

    def close(self, *, clean: bool = True) -> None:
        """Leave, if not done yet, and close everything. Idempotent.

        Directories that were opened here and were clean are marked clean, with the epoch of this registration.
        """
        if clean:
            self.leave()
        self.lifecycle.close()
        self._observer.close(clean=clean)
        dirs, self._own_dirs = self._own_dirs, []
        for each in dirs:
            each.close(clean=clean and each.was_clean, broker_epoch=self.closing_epoch)

    def _is_registered(self) -> bool:
        mine = self.image.brokers.get(self.settings.node_id)
        return mine is not None and mine.epoch == self.lifecycle.broker_epoch >= 0

    def _wait(self, reached: Callable[[], bool], what: str) -> None:
        deadline = self._clock.monotonic() + self.settings.registration_timeout_s
        while not reached():
            if self.failure is not None:
                raise self.failure
            if self._clock.monotonic() >= deadline:
                asked = ", ".join(join_host_port(*each) for each in self.settings.connection.servers)
                trouble = "" if self._observer.trouble is None else f": {self._observer.trouble}"
                raise UnreachableError(f"{what}; asked were {asked}{trouble}")
            self._clock.sleep(_CHECK_S)


def formatted_cluster_id(paths: tuple[Path, ...], fs: FileSystem = REAL_FILESYSTEM) -> str:
    """Return the cluster id in the directories' metadata. Raises DataDirError or UsageError for others.

    As in Kafka, the first directory must be formatted; others may be empty at startup, such as a new disk.
    """
    found: dict[str, Path] = {}
    for path in paths:
        if fs.exists(path / STORE_FILE):
            raise DataDirError(f"{path} holds the topics of a broker without a cluster; give a directory of its own")
        cluster_id = stored_cluster_id(path, fs)
        if cluster_id is not None:
            found[cluster_id] = path
        elif not found or (fs.exists(path) and set(fs.list_dir(path)) - {_OF_THE_FILE_SYSTEM}):
            raise UsageError(f"{path} is not formatted; run 'stratalog storage format --cluster-id ID --config FILE'")
    if len(found) > 1:
        shown = ", ".join(f"{path} of {cluster_id}" for cluster_id, path in found.items())
        raise DataDirError(f"the log directories belong to several clusters: {shown}")
    return next(iter(found))


def _previous_epoch(dirs: Sequence[DataDir], configured: int) -> int:
    """Return the epoch in which all directories were closed cleanly; -1 if they differ or one of them is missing.

    The controller trusts a broker that stopped cleanly to have its replicas, also those in the missing one (KIP-966).
    """
    if len(dirs) < configured:
        return -1
    epochs = {each.previous_broker_epoch if each.was_clean else -1 for each in dirs}
    return epochs.pop() if len(epochs) == 1 else -1
