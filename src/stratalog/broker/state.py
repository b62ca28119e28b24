"""Everything that one broker is made of: made in order at start, taken down in the opposite order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from stratalog.broker.fetch import RemoteReads
from stratalog.broker.metadata import (
    STORE_FILE,
    InForce,
    MetadataStore,
    check_rules,
    in_force,
    is_tiered,
    small_broker_index_warnings,
)
from stratalog.broker.producer_ids import ProducerIds
from stratalog.broker.purgatory import Purgatory
from stratalog.broker.topic_deletions import TopicDeletions
from stratalog.broker.topics import Topics
from stratalog.config import (
    INITIAL_METADATA_VERSION,
    LARGE_SEGMENTS_LEVEL,
    METADATA_VERSION,
    PRODUCE_VALIDATION,
    BrokerConfig,
    is_large_index_format_supported,
    level_name,
    minimum_advice,
)
from stratalog.engine import LoadReport, LogManager
from stratalog.engine.dirs import stored_cluster_id
from stratalog.engine.tiering import NEVER_TIERED
from stratalog.errors import DataDirError, InvalidConfigError
from stratalog.remote.tier import WorkerPool
from stratalog.util import SYSTEM_CLOCK, Clock, join_host_port, random_uuid, uuid_to_base64

if TYPE_CHECKING:
    from stratalog.broker.groups import GroupCoordinator
    from stratalog.broker.transactions import TransactionCoordinator
    from stratalog.engine import Partition

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

TIERING_KEY = "remote.log.storage.system.enable"

#: Threads for what may block: remote reads, searches by time, creation and deletion of topics.
_WORKERS = 4


@dataclass(frozen=True, slots=True)
class Listener:
    """Where the broker is reached. An empty host stands for the address that a client came in by."""

    host: str
    port: int


class BrokerState:
    """What the APIs work on.

    Belongs to the loop's thread, except where a part says that it is thread-safe (`metadata`, `logs`, `topics`,
    `producer_ids`). Made outside of the loop, `start`ed on it, `close`d after it.
    """

    purgatory: Purgatory
    remote_reads: RemoteReads
    loop: asyncio.AbstractEventLoop
    #: Commits and members of consumer groups; there from `start` on.
    groups: GroupCoordinator
    #: Transactional ids; there from `start` on.
    transactions: TransactionCoordinator
    #: There from `start` on.
    topic_deletions: TopicDeletions

    def __init__(self, data_dirs: list[Path], config: BrokerConfig, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Open the store and the data directories, load every partition.

        DataDirError for a directory that cannot be used; nothing is written to one of another format or owner.
        """
        self._static_config = config
        self.config = config
        self.clock = clock
        self.node_id: int = config["node.id"]
        self.listener = Listener("", 0)
        self.data_dirs = data_dirs
        self._ignored: Mapping[str, str] = {}
        first = data_dirs[0]
        store = MetadataStore.open(first) if (first / STORE_FILE).is_file() else None
        try:
            _check_level(store, config)
            _refuse_untiered(store, config)
            cluster_id = _cluster_id(store, data_dirs)
            self.logs = LogManager(data_dirs, config, cluster_id=cluster_id, clock=clock)
        except BaseException:
            if store is not None:
                store.close()
            raise
        try:
            if first.resolve() in self.logs.dirs.offline:
                raise DataDirError(
                    f"{self.logs.dirs.offline[first.resolve()]}; the first log directory holds the metadata, and "
                    "nothing"
                    " can be served without it"
                )
            if store is None:
                store = MetadataStore.open(
                    first,
                    cluster_id=cluster_id,
                    metadata_version=config[INITIAL_METADATA_VERSION],
                )
            self.metadata = store
            self.cluster_id = store.cluster_id
            self.producer_ids = ProducerIds(store)
            self.topics = Topics(store, self.logs, lambda: self.config, clock)
            self._take_broker_configs()
            if self.config[PRODUCE_VALIDATION] == "header":
                logger.warning(
                    "%s=header: records of clients are not looked at; one faulty client can make a partition "
                    "unreadable",
                    PRODUCE_VALIDATION,
                )
            self.load_report = self._load()
        except BaseException:
            self.logs.close(clean=False)
            if store is not None:
                store.close()
            raise
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="stratalog-worker")
        self._closed = False

    def _load(self) -> LoadReport:
        # Topics whose deletion was interrupted are loaded too, so that `start` can delete both of their tiers.
        topics = [*self.metadata.topics(), *self.metadata.deleting_topics()]
        self.topics.warn_of_settings()
        return self.logs.start(self.topics.specs(topics))

    def _partition_count(self, topic_id: UUID) -> int | None:
        topic = self.metadata.topic_by_id(topic_id)
        return None if topic is None else topic.partition_count

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Go to work on the loop's thread: waiting requests, groups, tiering."""
        from stratalog.broker.groups import GroupCoordinator
        from stratalog.broker.transactions import TransactionCoordinator

        self.loop = loop
        self.purgatory = Purgatory(loop)
        readers = WorkerPool("remote-log-reader", 1)
        self.topics.finish_internal_deletions()
        if self.config[TIERING_KEY]:
            from stratalog.engine.tiering import start_tiering

            remote = start_tiering(
                self.logs,
                self.config,
                data_dir=self.data_dirs[0],
                cluster_id=self.cluster_id,
                ensure_topic=self.topics.ensure,
                partition_count=self._partition_count,
                bootstrap_servers=join_host_port(self.listener.host or "127.0.0.1", self.listener.port),
                clock=self.clock,
            )
            readers = remote.readers
        self.remote_reads = RemoteReads(loop, readers)
        self.groups = GroupCoordinator(self)
        self.transactions = TransactionCoordinator(self)
        self.groups.start()
        self.topic_deletions = TopicDeletions(self)
        self.topic_deletions.resume()
        self.transactions.start()

    def close(self, *, clean: bool = True) -> None:
        """Stop everything and leave the directories flushed. Harmless when called again."""
        if self._closed:
            return
        self._closed = True
        if hasattr(self, "transactions"):
            self.transactions.close()
        if hasattr(self, "groups"):
            self.groups.close()
        self.logs.take_no_new_ones()
        self._workers.shutdown(wait=True, cancel_futures=True)
        self.logs.close(clean=clean)
        if hasattr(self, "remote_reads"):
            self.remote_reads.close()
        self.metadata.close()

    @property
    def static_config(self) -> BrokerConfig:
        """What the broker was started with, without dynamic configuration."""
        return self._static_config

    # --- lookups ------------------------------------------------------------------------------------------------------

    def partition(self, topic: str, partition: int) -> Partition | None:
        return self.logs.get(topic, partition)

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of a topic by the 16 bytes of its id."""
        topic = self.metadata.topic_by_id(UUID(bytes=topic_id))
        return None if topic is None else topic.name

    # --- work ---------------------------------------------------------------------------------------------------------

    async def run_blocking(self, function: Callable[..., _T], *arguments: object) -> _T:
        """Run a function that may block on a worker thread."""
        return await self.loop.run_in_executor(self._workers, function, *arguments)

    def submit(self, function: Callable[..., _T], *arguments: object) -> asyncio.Future[_T]:
        """Like `run_blocking`, for callers that are no coroutine."""
        return self.loop.run_in_executor(self._workers, function, *arguments)

    # --- dynamic configuration ----------------------------------------------------------------------------------------

    def _take_broker_configs(self) -> None:
        """At a start: put in force what is stored as dynamic configuration, as far as it still goes together."""
        large = self._large_segments()
        found = in_force(self._static_config, self._dynamic_configs(), large=large)
        for name, why in found.ignored.items():
            logger.warning(
                "What was set dynamically for %s does not count: %s. Set another value, or delete it "
                "('stratalog configs alter --entity-type brokers --delete-config %s')",
                name,
                why,
                name,
            )
        self._put_in_force(found)

    def _put_in_force(self, found: InForce) -> None:
        self.config, self._ignored = found.config, found.ignored
        self.logs.update_broker_config(self.config)
        if self.logs.remote is not None:
            self.logs.remote.reconfigure(self.config)

    def _dynamic_configs(self, changes: Mapping[int | None, Mapping[str, str]] | None = None) -> dict[str, str]:
        """What is set dynamically, or would be with other values of one level: this broker's over the cluster's."""
        levels = {
            None: self.metadata.broker_configs(None),
            self.node_id: self.metadata.broker_configs(self.node_id),
        }
        levels.update(changes or {})
        return {**levels[None], **levels[self.node_id]}

    def _large_segments(self) -> bool:
        return is_large_index_format_supported(self.metadata.metadata_version)

    def set_broker_configs(
        self, node_id: int | None, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        """Replace the dynamic configuration of one broker or (None) of all, in force at once.

        Checked first against the file's, against itself and against every topic: InvalidConfigError leaves all as it
        was.
        """
        with self.topics.changing:
            before = self._dynamic_configs()
            after = self._dynamic_configs({node_id: configs})
            found = in_force(self._static_config, after, large=self._large_segments())
            for name, why in found.ignored.items():
                if name not in self._ignored or before.get(name) != after[name]:
                    raise InvalidConfigError(why)
            self.topics.check_broker_defaults(found.config)
            if validate_only:
                return
            self.metadata.set_broker_configs(node_id, configs)
            self._put_in_force(found)
            self.topics.refresh_configs()
        for warning in (*small_broker_index_warnings(self.config), *minimum_advice(self.config)):
            logger.warning("%s", warning)


def _check_level(store: MetadataStore | None, config: BrokerConfig) -> None:
    """What the level of `metadata.version` has to say before anything is written: the store's, or a new one's first.

    InvalidConfigError when the file gives topics larger segments than the level allows, or does not go together
    otherwise.
    """
    initial = config[INITIAL_METADATA_VERSION]
    level = initial if store is None else store.metadata_version
    try:
        config.check_segment_size(large=is_large_index_format_supported(level))
    except InvalidConfigError as error:
        how = (
            f"A new data directory may also begin there: {INITIAL_METADATA_VERSION}={LARGE_SEGMENTS_LEVEL}."
            if store is None
            else "Start without it, upgrade, and set it then."
        )
        raise InvalidConfigError(f"{error} {how}") from error
    check_rules(config, large=is_large_index_format_supported(level))
    if store is not None and initial > level:
        logger.warning(
            "%s=%d is for a new data directory; %s keeps its level %d (%s). 'stratalog features upgrade --feature "
            "%s=%d' "
            "raises it",
            INITIAL_METADATA_VERSION,
            initial,
            store.path.parent,
            level,
            level_name(level),
            METADATA_VERSION,
            initial,
        )


def _refuse_untiered(store: MetadataStore | None, config: BrokerConfig) -> None:
    """InvalidConfigError for tiered topics without a remote tier: what is only there could not be read, nor deleted.

    Kafka refuses too. No client can bring this about: the switch is in the file.
    """
    if store is None or config[TIERING_KEY]:
        return
    stored = (*store.topics(), *store.deleting_topics())
    tiered = sorted(topic.name for topic in stored if is_tiered(topic.configs) and topic.name not in NEVER_TIERED)
    if tiered:
        shown = ", ".join(tiered[:3]) + (f" and {len(tiered) - 3} more" if len(tiered) > 3 else "")
        raise InvalidConfigError(
            f"{TIERING_KEY}=false, but topics have remote.storage.enable=true: {shown}. Set {TIERING_KEY}=true; to do "
            "without, first delete them or set remote.storage.enable=false,remote.log.delete.on.disable=true on them"
        )


def _cluster_id(store: MetadataStore | None, data_dirs: list[Path]) -> str:
    """The id of the cluster that the directories belong to; a fresh one when they are new."""
    stored = {path: found for path in data_dirs if (found := stored_cluster_id(path)) is not None}
    if store is None:
        return next(iter(stored.values()), None) or uuid_to_base64(random_uuid())
    for path, found in stored.items():
        if found != store.cluster_id:
            raise DataDirError(
                f"{path} belongs to cluster {found}, but {store.path} is of cluster {store.cluster_id}; "
                "serve directories of one cluster"
            )
    return store.cluster_id
