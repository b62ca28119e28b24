"""The `ClusterView` of the engine, from the image, the lifecycle and a controller channel."""

from __future__ import annotations

import logging
import threading
from typing import Any, Final
from uuid import UUID

from stratalog.broker.cluster.controller_channel import ControllerChannel
from stratalog.broker.cluster.features import LARGE_SEGMENTS_FEATURE, brokers_without_large_segments
from stratalog.broker.cluster.image_metadata import ImageMetadata
from stratalog.broker.cluster.member import ClusterMember
from stratalog.broker.cluster.settings import ClusterSettings
from stratalog.broker.settings import BrokerSettings
from stratalog.config import LogConfig, conflict_warning, segment_bytes_max, stored_config
from stratalog.wire import ApiKey
from stratalog.wire.client import ConnectionOptions, UnreachableError

logger = logging.getLogger(__name__)

_SEGMENT_BYTES: Final = "log.segment.bytes"


class MemberView:
    """The view. Thread-safe. `settings` are set once there are logs to configure."""

    def __init__(self, member: ClusterMember, metadata: ImageMetadata, settings: BrokerSettings) -> None:
        self._member = member
        self._metadata = metadata
        self._settings = settings
        self._channel = ControllerChannel(member.settings.connection, lambda: member.quorum.leader)
        self._lock = threading.Lock()
        #: By topic: the brokers that do not support large segments of it.
        self._lacking: dict[str, tuple[int, ...]] = {}
        #: By topic: what is in conflict in its configuration.
        self._problems: dict[str, str | None] = {}
        self._closed = False

    @property
    def _cluster(self) -> ClusterSettings:
        return self._member.settings

    @property
    def node_id(self) -> int:
        return self._cluster.node_id

    @property
    def broker_epoch(self) -> int:
        return self._member.lifecycle.broker_epoch

    @property
    def connection(self) -> ConnectionOptions:
        return self._cluster.brokers_connection

    def address(self, broker: int) -> tuple[str, int] | None:
        known = self._metadata.image.brokers.get(broker)
        endpoint = None if known is None else known.endpoint(self._cluster.inter_broker_listener)
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def leader_of(self, topic: str, partition: int) -> int:
        known = self._metadata.image.topic(topic)
        found = None if known is None else known.partitions.get(partition)
        return -1 if found is None else found.leader

    def topic_id(self, topic: str) -> UUID | None:
        return self._metadata.image.topic_ids.get(topic)

    def isr_epoch(self, broker: int) -> int | None:
        known = self._metadata.image.brokers.get(broker)
        return None if known is None or known.fenced or known.in_controlled_shutdown else known.epoch

    def log_config(self, topic: str) -> LogConfig:
        known = self._metadata.topic(topic)
        broker, large = self._settings.current, self._takes_large_segments(topic)
        if not large and broker[_SEGMENT_BYTES] > (limit := segment_bytes_max(large=False)):
            broker = broker.with_overrides({_SEGMENT_BYTES: str(limit)})
        found = stored_config(
            {} if known is None else known.configs,
            broker,
            self._metadata.good_topic_defaults,
            use_large_index_format=large,
        )
        if found.problem != self._problems.get(topic):
            self._problems[topic] = found.problem
            if found.problem is not None:
                logger.warning("%s", conflict_warning(topic, found.problem))
        return found.config

    def _takes_large_segments(self, topic: str) -> bool:
        """Return whether every broker with the topic supports segments over 2 GiB; log those that do not."""
        if not self._cluster.large_segments:
            return False
        lacking = tuple(brokers_without_large_segments(self._metadata.image, topic))
        if lacking != self._lacking.get(topic, ()):
            self._lacking[topic] = lacking
            if lacking:
                logger.warning(
                    "%s has segments of at most 2 GiB: broker %s has replicas and has not registered %s",
                    topic,
                    ", ".join(map(str, lacking)),
                    LARGE_SEGMENTS_FEATURE,
                )
        return not lacking

    def ask_controller(self, key: ApiKey, versions: tuple[int, int], /, **fields: Any) -> Any:
        with self._lock:
            if self._closed:
                raise UnreachableError("the broker is stopping")
            try:
                return self._channel.call(key, versions, **fields)
            except OSError as error:
                raise UnreachableError(f"{key.message}: {error}") from error

    def close(self) -> None:
        """Stop sending requests. Waits for the response to the current one."""
        with self._lock:
            self._closed = True
            self._channel.close()
