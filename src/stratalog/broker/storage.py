"""The broker's data on disk: opened before clients are served, closed last."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stratalog.broker.metadata import (
    STORE_FILE,
    ClusterControl,
    ClusterMetadata,
    MetadataStore,
    check_rules,
    is_tiered,
)
from stratalog.broker.producer_ids import ProducerIds
from stratalog.broker.settings import BrokerSettings
from stratalog.broker.topics import TopicManager
from stratalog.config import (
    INITIAL_METADATA_VERSION,
    LARGE_SEGMENTS_LEVEL,
    METADATA_VERSION,
    PRODUCE_VALIDATION,
    BrokerConfig,
    is_large_index_format_supported,
    level_name,
)
from stratalog.engine import LoadReport, LogManager
from stratalog.engine.dirs import stored_cluster_id
from stratalog.engine.tiering import NEVER_TIERED
from stratalog.errors import DataDirError, InvalidConfigError
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, Clock, FileSystem, random_uuid, uuid_to_base64

if TYPE_CHECKING:
    from stratalog.broker.cluster_membership import ClusterMembership

logger = logging.getLogger(__name__)

TIERING_KEY = "remote.log.storage.system.enable"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStorage:
    """Topics and their logs, with their settings. Its parts are thread-safe."""

    data_dirs: list[Path]
    clock: Clock
    settings: BrokerSettings
    metadata: ClusterMetadata
    logs: LogManager
    control: ClusterControl
    producer_ids: ProducerIds
    load_report: LoadReport
    #: None for a single broker.
    cluster: ClusterMembership | None = None

    @property
    def topics(self) -> TopicManager:
        """The topics of a single broker; in a cluster the controllers manage them."""
        assert isinstance(self.control, TopicManager)
        return self.control

    @property
    def config(self) -> BrokerConfig:
        """The current settings."""
        return self.settings.current

    def close(self, *, clean: bool = True) -> None:
        """Flush and close the directories."""
        if self.cluster is not None:
            self.cluster.close(clean=clean)
        self.logs.close(clean=clean, broker_epoch=-1 if self.cluster is None else self.cluster.broker_epoch)
        self.metadata.close()


def open_storage(
    data_dirs: list[Path], config: BrokerConfig, *, clock: Clock = SYSTEM_CLOCK, fs: FileSystem = REAL_FILESYSTEM
) -> BrokerStorage:
    """Open the store and the data directories, and load every partition.

    Raises DataDirError for an unusable directory; directories of another format or cluster are not written to.
    """
    first = data_dirs[0]
    store = MetadataStore.open(first) if (first / STORE_FILE).is_file() else None
    try:
        _check_level(store, config)
        _refuse_untiered(store, config)
        cluster_id = _cluster_id(store, data_dirs)
        logs = LogManager(data_dirs, config, cluster_id=cluster_id, clock=clock, fs=fs)
    except BaseException:
        if store is not None:
            store.close()
        raise
    try:
        if first.resolve() in logs.dirs.offline:
            raise DataDirError(
                f"{logs.dirs.offline[first.resolve()]}; the first log directory holds the metadata, and nothing"
                " can be served without it"
            )
        if store is None:
            store = MetadataStore.open(first, cluster_id=cluster_id, metadata_version=config[INITIAL_METADATA_VERSION])
        return _load(data_dirs, config, clock, store, logs)
    except BaseException:
        logs.close(clean=False)
        if store is not None:
            store.close()
        raise


def _load(
    data_dirs: list[Path], config: BrokerConfig, clock: Clock, store: MetadataStore, logs: LogManager
) -> BrokerStorage:
    settings = BrokerSettings(config, store, logs)
    topics = TopicManager(store, logs, lambda: settings.current, clock)
    if settings.current[PRODUCE_VALIDATION] == "header":
        logger.warning(
            "%s=header: records of clients are not checked; one faulty client can make a partition unreadable",
            PRODUCE_VALIDATION,
        )
    # Topics whose deletion was interrupted are loaded too, so that startup can delete both of their tiers.
    stored = [*store.topics(), *store.deleting_topics()]
    topics.warn_of_settings()
    return BrokerStorage(
        data_dirs=data_dirs,
        clock=clock,
        settings=settings,
        metadata=store,
        logs=logs,
        control=topics,
        producer_ids=ProducerIds(store, lambda: store.reserved_producer_id_max),
        load_report=logs.start(topics.specs(stored)),
    )


def _check_level(store: MetadataStore | None, config: BrokerConfig) -> None:
    """Check the level of `metadata.version` before anything is written: the store's, or the initial one.

    Raises InvalidConfigError if the topic defaults have larger segments than the level allows, or are inconsistent.
    """
    initial = config[INITIAL_METADATA_VERSION]
    level = initial if store is None else store.metadata_version
    try:
        config.check_segment_size(large=is_large_index_format_supported(level))
    except InvalidConfigError as error:
        how = (
            f"A new data directory may also start there: {INITIAL_METADATA_VERSION}={LARGE_SEGMENTS_LEVEL}."
            if store is None
            else "Start without it, upgrade, and set it then."
        )
        raise InvalidConfigError(f"{error} {how}") from error
    check_rules(config, large=is_large_index_format_supported(level))
    if store is not None and initial > level:
        logger.warning(
            "%s=%d is for a new data directory; %s keeps its level %d (%s). 'stratalog features upgrade --feature "
            "%s=%d' raises it",
            INITIAL_METADATA_VERSION,
            initial,
            store.path.parent,
            level,
            level_name(level),
            METADATA_VERSION,
            initial,
        )


def _refuse_untiered(store: MetadataStore | None, config: BrokerConfig) -> None:
    """Raise InvalidConfigError for tiered topics without a remote tier: remote records could not be read or deleted.

    Kafka refuses too. Clients cannot cause this: the switch is in the file.
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
    """Return the cluster id of the directories; a random one if they are new."""
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
