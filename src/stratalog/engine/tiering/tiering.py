"""Start the remote tier: plugins, the store, and the metadata manager."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stratalog.config import BrokerConfig
from stratalog.engine.log_manager import LogManager
from stratalog.engine.tiering.metadata_topic import EnsureTopic, open_metadata_log
from stratalog.engine.tiering.replicated_metadata_log import ReplicatedMetadataLog
from stratalog.errors import NotOwnerError, RemoteStorageError, StratalogError, UsageError
from stratalog.remote.api import (
    BrokerIdentity,
    Monitorable,
    PluginMetrics,
    RemoteLogMetadataManager,
    RemoteStorageManager,
    configure_plugin,
    load_plugin,
)
from stratalog.remote.metadata import MetadataLog, TopicBasedRemoteLogMetadataManager
from stratalog.remote.ownership import BrokerOwnership, Claimant, OwnershipFile
from stratalog.remote.storage import (
    PLUGIN_CLASS,
    AivenRemoteStorageManager,
    ObjectStoreRemoteStorageManager,
    storage_manager_options,
)
from stratalog.remote.tier import PartitionCount, RemoteHealth, RemoteLogManager
from stratalog.util import SYSTEM_CLOCK, Clock

logger = logging.getLogger(__name__)

#: Under the first data directory: the remote tier without a URL, and the remote index cache.
DEFAULT_STORE = "remote-store"
INDEX_CACHE = "remote-log-index-cache"

#: Kafka's default of `remote.log.metadata.manager.class.name`: the topic-based manager.
KAFKAS_METADATA_MANAGER = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
#: Kafka's prefix of options for a metadata manager's clients.
_CLIENT = "remote.log.metadata.common.client."


def start_tiering(
    logs: LogManager,
    config: BrokerConfig,
    *,
    data_dir: Path,
    cluster_id: str,
    ensure_topic: EnsureTopic,
    partition_count: PartitionCount,
    bootstrap_servers: str | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> RemoteLogManager:
    """Attach a remote tier to the tiered partitions of `logs`, and start its tasks.

    `ensure_topic` creates the metadata topic for the topic-based manager; `partition_count` is recorded with every
    copy; `bootstrap_servers` lets a metadata plugin connect to this broker. An unreachable store is only logged: local
    data are served, and copies begin when it is back. UsageError for an unusable URL, option or plugin, and the errors
    of `open_metadata_log`.
    """
    cluster = None if logs.replication is None else logs.replication.cluster
    storage = _storage_manager(config, data_dir, cluster_id)
    if isinstance(storage, ObjectStoreRemoteStorageManager):
        claimant = Claimant(
            cluster_id,
            config["node.id"],
            OwnershipFile(data_dir),
            lambda topic_id: partition_count(topic_id) is not None,
            has_metadata=cluster is None,
        )
        storage.own(BrokerOwnership(storage.store, claimant, clock))
    metadata = _metadata_plugin(config, data_dir, cluster_id, bootstrap_servers)
    if metadata is None:
        events: MetadataLog
        if cluster is None:
            events = open_metadata_log(config, ensure_topic, logs.get, clock)
        else:
            events = ReplicatedMetadataLog(cluster, config, ensure_topic, clock)
        wait_ms = config["remote.log.metadata.consume.wait.ms"]
        metadata = TopicBasedRemoteLogMetadataManager(events, consume_wait_ms=wait_ms, clock=clock)
    remote = RemoteLogManager(
        storage,
        metadata,
        config,
        data_dir / INDEX_CACHE,
        clock,
        partition_count=partition_count,
        is_shared=cluster is not None,
    )
    remote.plugin_metrics += [*_metrics_of("storage", storage), *_metrics_of("metadata", metadata)]
    remote.start()
    logs.attach_remote(remote)
    if isinstance(storage, ObjectStoreRemoteStorageManager | AivenRemoteStorageManager):
        threading.Thread(target=_look_at, args=(storage, remote.health), name="remote-store-check", daemon=True).start()
    return remote


def _storage_manager(config: BrokerConfig, data_dir: Path, cluster_id: str) -> RemoteStorageManager:
    options = config.prefixed(config["remote.log.storage.manager.impl.prefix"])
    key = "remote.log.storage.manager.class.name"
    if config[key] == PLUGIN_CLASS:
        as_aiven = AivenRemoteStorageManager(is_read_only=OwnershipFile(data_dir).is_read_only)
        configure_plugin("storage", key, PLUGIN_CLASS, as_aiven.configure, options)
        return as_aiven
    if config[key]:
        plugin: RemoteStorageManager = _plugin("storage", RemoteStorageManager, config, data_dir, cluster_id)
        return plugin
    manager = ObjectStoreRemoteStorageManager()
    default_url = (data_dir / DEFAULT_STORE).absolute().as_uri()
    manager.configure({**storage_manager_options(config, default_url), **options})
    return manager


def _metadata_plugin(
    config: BrokerConfig, data_dir: Path, cluster_id: str, bootstrap_servers: str | None
) -> RemoteLogMetadataManager | None:
    """Return the configured metadata plugin.

    None for the topic-based manager, also under Kafka's name.
    """
    if config["remote.log.metadata.manager.class.name"] in (None, "", KAFKAS_METADATA_MANAGER):
        return None
    client = {}
    if bootstrap_servers is not None:
        client = {
            f"{_CLIENT}bootstrap.servers": bootstrap_servers,
            f"{_CLIENT}security.protocol": "PLAINTEXT",
        }
    plugin: RemoteLogMetadataManager = _plugin(
        "metadata", RemoteLogMetadataManager, config, data_dir, cluster_id, client
    )
    return plugin


def _plugin(
    kind: str,
    interface: type,
    config: BrokerConfig,
    data_dir: Path,
    cluster_id: str,
    more: Mapping[str, str] | None = None,
) -> Any:
    """Return the configured plugin, with its own keys and those that Kafka passes to every plugin."""
    prefix = f"remote.log.{kind}.manager"
    key, name = f"{prefix}.class.name", config[f"{prefix}.class.name"]
    plugin = load_plugin(kind, interface, key, name, config[f"{prefix}.class.path"])
    own = config.prefixed(config[f"{prefix}.impl.prefix"])
    identity = BrokerIdentity(config["node.id"], cluster_id, data_dir).as_properties()
    configure_plugin(kind, key, name, plugin.configure, {**(more or {}), **identity, **own})
    return plugin


def _metrics_of(kind: str, plugin: object) -> list[PluginMetrics]:
    """Collect the metrics of a plugin that has any. UsageError when it fails."""
    if not isinstance(plugin, Monitorable):
        return []
    key, name = f"remote.log.{kind}.manager.class.name", type(plugin).__name__
    metrics = PluginMetrics(key, name)
    try:
        plugin.with_plugin_metrics(metrics)
    except Exception as error:
        raise UsageError(f"{key}: {name} cannot add its metrics: {type(error).__name__}: {error}") from error
    return [metrics]


def _look_at(storage: ObjectStoreRemoteStorageManager | AivenRemoteStorageManager, health: RemoteHealth) -> None:
    """Check at startup whether the store is usable and owned by this cluster, before the first copy."""
    try:
        storage.store.check()
        if storage.is_read_only:
            logger.warning(
                "%s is read-only, because this data directory was restored without taking it over: nothing is copied "
                "there or deleted from there",
                storage.store.url,
            )
            return
        storage.ensure_owner()
    except NotOwnerError as error:
        health.refused(error)
    except RemoteStorageError as error:
        logger.warning(
            "The object store of the remote tier cannot be used now; segments stay local until it can: %s", error
        )
    except (StratalogError, OSError) as error:
        logger.error("The owner of the remote tier's object store cannot be recorded: %s", error)
