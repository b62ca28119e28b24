"""Publish the cluster's metadata to the parts of a broker, as Kafka's `BrokerMetadataPublisher`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from stratalog.broker.cluster.access_rules import EnforcedRules
from stratalog.broker.cluster.delta import MetadataDelta
from stratalog.broker.cluster.image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from stratalog.broker.cluster.image_metadata import ImageMetadata
from stratalog.broker.cluster.local_changes import local_changes

if TYPE_CHECKING:
    from stratalog.broker.cluster.elections import ElectedCoordinators
    from stratalog.broker.services import BrokerServices
    from stratalog.broker.settings import BrokerSettings
    from stratalog.config import LogConfig
    from stratalog.engine import LogManager

logger = logging.getLogger(__name__)

_OF_SECURITY: Final = frozenset({"acls", "scram", "tokens", "quotas"})


class MetadataPublisher:
    """Called on the observer's thread with each delta. Until `open_engine`, only the metadata itself is updated.

    An error in one part does not affect the others: it is logged, and the next delta follows.
    """

    def __init__(self, metadata: ImageMetadata, node_id: int) -> None:
        self._metadata = metadata
        self._node_id = node_id
        self._lock = threading.Lock()
        self._logs: LogManager | None = None
        self._settings: BrokerSettings | None = None
        self._log_config: Callable[[str], LogConfig] | None = None
        self._coordinators: ElectedCoordinators | None = None
        self._services: BrokerServices | None = None
        self._rules = EnforcedRules()

    def __call__(self, delta: MetadataDelta, image: MetadataImage) -> None:
        with self._lock:
            self._metadata.take(delta, image)
            if self._logs is not None:
                self._publish(delta, image, self._logs)

    def open_engine(self, logs: LogManager, settings: BrokerSettings, log_config: Callable[[str], LogConfig]) -> None:
        """Publish all current metadata to the engine as one delta, and each later delta from now on."""
        with self._lock:
            self._settings, self._log_config, self._logs = settings, log_config, logs
            image = self._metadata.image
            self._publish(MetadataDelta.of_all(image), image, logs)

    def open_coordinators(self, coordinators: ElectedCoordinators) -> None:
        """Have coordinators load the partitions that this broker leads now and later."""
        with self._lock:
            self._coordinators = coordinators
            if self._logs is not None:
                coordinators.begin(self._logs)

    def open_security(self, services: BrokerServices) -> None:
        """Apply current access rules, users, tokens and quotas, and each later change.

        Call it before the first client is accepted: the authorizer has the rules at its creation.
        """
        with self._lock:
            self._services = services
            if services.access is not None:
                self._rules.begin_with(services.access.authorizer.rules)
            self._secure(_OF_SECURITY, services)

    def close_engine(self) -> None:
        """Stop publishing to the engine."""
        with self._lock:
            self._logs = None

    def _publish(self, delta: MetadataDelta, image: MetadataImage, logs: LogManager) -> None:
        changes = local_changes(delta, image, self._node_id)
        self._try("replicas", lambda: logs.apply(changes))
        coordinators = self._coordinators
        if coordinators is not None:
            self._try("coordinators", lambda: coordinators.take(delta, changes))
        self._try("configurations", lambda: self._configure(delta, logs))
        if self._services is not None:
            self._secure(delta.changes, self._services)

    def _secure(self, changes: frozenset[str], services: BrokerServices) -> None:
        if "acls" in changes and services.access is not None:
            gone, new = self._rules.follow(self._metadata.image.acls)
            try:
                services.loop.call_soon_threadsafe(services.access.authorizer.change, gone, new)
            except RuntimeError:  # the loop is closed
                logger.debug("the loop is closed")
        for part, read in (
            ("scram", services.scram.read),
            ("tokens", services.tokens.read),
            ("quotas", services.quotas.read),
        ):
            if part in changes:
                self._try(part, read)

    def _configure(self, delta: MetadataDelta, logs: LogManager) -> None:
        assert self._settings is not None
        assert self._log_config is not None
        mine = {"", str(self._node_id)}
        topics = {each.name for each in delta.changed_configs if each.type == TOPIC_RESOURCE}
        if any(each.type == BROKER_RESOURCE and each.name in mine for each in delta.changed_configs):
            self._settings.take_stored()
            topics = {partition.topic for partition in logs.partitions()}
        for topic in topics | self._resized(delta, logs):
            if logs.partitions(topic):
                logs.update_config(topic, self._log_config(topic))

    def _resized(self, delta: MetadataDelta, logs: LogManager) -> set[str]:
        """Return topics whose support of large segments may have changed with their brokers."""
        if not self._metadata.large_segments or not (delta.changed_brokers or delta.changed_partitions):
            return set()
        assert self._log_config is not None
        held = {partition.topic: partition.log.config for partition in logs.partitions()}
        if not delta.changed_brokers:
            names = {self._metadata.image.topics[topic_id].name for topic_id in delta.changed_partitions}
            held = {name: config for name, config in held.items() if name in names}
        return {
            name
            for name, config in held.items()
            if self._log_config(name).use_large_index_format != config.use_large_index_format
        }

    @staticmethod
    def _try(what: str, step: Callable[[], object]) -> None:
        try:
            step()
        except Exception:  # the metadata continues; the next change repairs what was left out
            logger.exception("The %s of the cluster's metadata could not be applied", what)
