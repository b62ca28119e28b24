"""Switching the remote tier on: which plugins, where the store is, and where their metadata goes."""

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

#: Under the first data directory: the remote tier when no URL is set, and copies of remote indexes.
DEFAULT_STORE = "remote-store"
INDEX_CACHE = "remote-log-index-cache"

#: Kafka's default of `remote.log.metadata.manager.class.name`: the manager that keeps its events in a topic.
KAFKAS_METADATA_MANAGER = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
#: What Kafka puts before the options of a metadata manager's clients.
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
    """Give the tiered partitions of `logs` their remote tier, and the tasks that move segments.

    `ensure_topic` makes the metadata topic when it is not there, for the manager that keeps its events in it;
    `partition_count` is noted with every copy; `bootstrap_servers` is where a metadata plugin reaches this broker. A
    store that cannot be reached is one line in the log, not an end: the local tier is served, and copies begin when
    the store comes back. UsageError for a URL, option or plugin that cannot be used at all, and what
    `open_metadata_log` raises.
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
    """Return the metadata plugin that is configured.

    None for the topic-based manager, under Kafka's name of it too.
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
    """Return the plugin that is configured, with its own keys and what Kafka gives to every plugin."""
    prefix = f"remote.log.{kind}.manager"
    key, name = f"{prefix}.class.name", config[f"{prefix}.class.name"]
    plugin = load_plugin(kind, interface, key, name, config[f"{prefix}.class.path"])
    own = config.prefixed(config[f"{prefix}.impl.prefix"])
    identity = BrokerIdentity(config["node.id"], cluster_id, data_dir).as_properties()
    configure_plugin(kind, key, name, plugin.configure, {**(more or {}), **identity, **own})
    return plugin


def _metrics_of(kind: str, plugin: object) -> list[PluginMetrics]:
    """Let a plugin that has metrics of its own show them. UsageError when it fails at that."""
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
    """Say at once, beside the start, that a store is of no use or another cluster's, rather than at the first copy."""
    try:
        storage.store.check()
        if storage.is_read_only:
            logger.warning(
                "%s is only read, as this data directory was restored without taking it over: nothing is copied there "
                "or"
                " deleted from there",
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
