"""The cluster as the engine asks about it: `ClusterView` out of the image, the lifecycle and a controller channel."""

from __future__ import annotations

import threading
from typing import Any

from stratalog.broker.cluster.controller_channel import ControllerChannel
from stratalog.broker.cluster.image_metadata import ImageMetadata
from stratalog.broker.cluster.member import ClusterMember
from stratalog.broker.cluster.settings import ClusterSettings
from stratalog.broker.settings import BrokerSettings
from stratalog.config import LogConfig, stored_config
from stratalog.wire import ApiKey
from stratalog.wire.client import ConnectionOptions, UnreachableError


class MemberView:
    """Thread-safe. `settings` are given once there are logs to be configured."""

    def __init__(self, member: ClusterMember, metadata: ImageMetadata, settings: BrokerSettings) -> None:
        self._member = member
        self._metadata = metadata
        self._settings = settings
        self._channel = ControllerChannel(member.settings.connection, lambda: member.quorum.leader)
        self._lock = threading.Lock()
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

    def isr_epoch(self, broker: int) -> int | None:
        known = self._metadata.image.brokers.get(broker)
        return None if known is None or known.fenced or known.in_controlled_shutdown else known.epoch

    def log_config(self, topic: str) -> LogConfig:
        known = self._metadata.topic(topic)
        return stored_config(
            {} if known is None else known.configs,
            self._settings.current,
            self._metadata.good_topic_defaults,
            use_large_index_format=self._metadata.large_segments,
        ).config

    def ask_controller(self, key: ApiKey, versions: tuple[int, int], /, **fields: Any) -> Any:
        with self._lock:
            if self._closed:
                raise UnreachableError("the broker is stopping")
            try:
                return self._channel.call(key, versions, **fields)
            except OSError as error:
                raise UnreachableError(f"{key.message}: {error}") from error

    def close(self) -> None:
        """Stop asking. Waits for the answer to what has been asked."""
        with self._lock:
            self._closed = True
            self._channel.close()
