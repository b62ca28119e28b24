"""Turn tiering of partitions on and off, with their remote data.

Source: KIP-950 and Kafka's `TopicConfigHandler.maybeUpdateRemoteLogComponents`. A topic that is no longer tiered begins
at its local log start, and with `remote.log.delete.on.disable` its remote data are deleted. A topic that is tiered
again starts with an empty remote tier.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from stratalog.config import LogConfig
from stratalog.engine.replication import Role
from stratalog.engine.tiering.metadata_topic_settings import REMOTE_LOG_METADATA_TOPIC
from stratalog.errors import StratalogError

if TYPE_CHECKING:
    from stratalog.engine.partition import Partition
    from stratalog.remote.tier import RemoteLogManager

logger = logging.getLogger(__name__)

#: The remote tier and the broker depend on these: they are never tiered.
NEVER_TIERED = frozenset(
    {REMOTE_LOG_METADATA_TOPIC, "__consumer_offsets", "__transaction_state", "__share_group_state"}
)


def allowed_config(topic: str, config: LogConfig) -> LogConfig:
    """Return the effective configuration of a topic's logs: internal ones are never tiered."""
    if topic not in NEVER_TIERED or not config.remote_storage_enable:
        return config
    logger.warning("%s is an internal topic; it stays local and remote.storage.enable=true has no effect", topic)
    return replace(config, remote_storage_enable=False)


def tier(partitions: Iterable[Partition], remote: RemoteLogManager) -> None:
    """Apply the tiering configuration and roles of served partitions.

    Only a leader copies and deletes remotely. A replica without a role does nothing.
    """
    leading, following = [], []
    for partition in partitions:
        leads = partition.leader_epoch >= 0
        if leads and partition.topic == REMOTE_LOG_METADATA_TOPIC and partition.role.role is Role.LEADER:
            remote.take_over_deletions(partition.partition)
        if partition.log.config.remote_storage_enable:
            partition.remote = remote
            if leads:
                leading.append(partition.log)
            elif partition.role.role in (Role.FOLLOWER, Role.LEADERLESS):
                following.append(partition.log)
        elif partition.remote is not None or (leads and _has_leftovers(partition, remote)):
            _switch_off(partition, remote, leads=leads)
    if leading or following:
        remote.on_leadership_change(leading, following)


def _has_leftovers(partition: Partition, remote: RemoteLogManager) -> bool:
    """Return whether the process ended between a configuration change and the deletion it requires."""
    if not partition.log.config.remote_log_delete_on_disable or remote.is_deleting(partition.topic_id_partition):
        return False
    try:
        return remote.sizes(partition.topic_id_partition).segments > 0
    except StratalogError as error:
        logger.warning("%s: its remote data are unknown: %s", partition.log.directory.name, error)
        return False


def _switch_off(partition: Partition, remote: RemoteLogManager, *, leads: bool) -> None:
    """Stop remote reads and tasks of the partition."""
    log = partition.log
    partition.remote = None
    delete = leads and log.config.remote_log_delete_on_disable
    logger.info("%s is no longer tiered; it begins at %d", log.directory.name, log.local_log_start_offset)
    log.increment_log_start_offset(log.local_log_start_offset, "tiering was switched off")
    try:
        remote.stop_partitions([partition.topic_id_partition], delete_remote=delete)
    except StratalogError as error:
        logger.error(
            "%s: the deletion of its remote segments could not be recorded, and is tried at the next start: %s",
            log.directory.name,
            error,
        )
    log.forget_remote_storage()
