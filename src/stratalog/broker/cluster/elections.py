"""Notify the coordinators of the partitions of their topics that this broker leads, or no longer leads.

Kafka's `BrokerMetadataPublisher` does so after the replicas have changed: `onElection`, `onResignation`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from stratalog.broker.share import SharePlace
from stratalog.config import SHARE_VERSION

if TYPE_CHECKING:
    from uuid import UUID

    from stratalog.broker.cluster.delta import MetadataDelta
    from stratalog.broker.coordinator_loading import CoordinatorLoading
    from stratalog.broker.services import BrokerServices
    from stratalog.engine import LogManager, ReplicaChanges

logger = logging.getLogger(__name__)


class ElectedCoordinators:
    """Called on the observer's thread; runs the changes on the loop's, in the same order."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._loadings: dict[str, CoordinatorLoading[Any]] = {
            services.groups.log.topic: services.groups.loading,
            services.transactions.log.topic: services.transactions.loading,
            services.share_states.log.topic: services.share_states.loading,
        }

    def begin(self, logs: LogManager) -> None:
        """Elect the partitions that this broker leads already."""
        for topic, loading in self._loadings.items():
            for partition in logs.partitions(topic):
                if partition.leader_epoch >= 0:
                    self._do(loading.elect, partition.partition, partition.leader_epoch)

    def take(self, delta: MetadataDelta, changes: ReplicaChanges) -> None:
        moved = frozenset(
            SharePlace(key.topic_id, key.partition) for key in (*changes.deletes, *changes.followers, *changes.elected)
        )
        if moved:
            self._do(self._services.share_leader.leadership_changed, moved)
        for key in (*changes.deletes, *changes.followers):
            if key.topic in self._loadings:
                self._do(self._loadings[key.topic].resign, key.partition)
        for key in changes.elected:
            if key.topic in self._loadings:
                self._do(self._loadings[key.topic].elect, key.partition, changes.leaders[key].leader_epoch)
        if "features" in delta.changes and self._services.metadata.features.level(SHARE_VERSION) < 1:
            self._do(self._services.share_leader.switch_off)
        for topic_id in delta.deleted_topics:
            topic = delta.image.topics.get(topic_id)
            if topic is not None and topic.name not in self._loadings:
                self._do(self._forget, topic.name, topic_id)

    def _forget(self, topic: str, topic_id: UUID) -> None:
        self._services.groups.forget_topic(topic)
        self._services.share_states.begin_to_forget(topic_id)

    def _do(self, what: Callable[..., object], *arguments: object) -> None:
        try:
            self._services.loop.call_soon_threadsafe(what, *arguments)
        except RuntimeError:  # the loop is closed
            logger.debug("the loop is closed")
