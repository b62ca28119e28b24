"""The log of `__consumer_offsets`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.broker.coordinator_log import CoordinatorLog
from stratalog.broker.internal_topics import CONSUMER_OFFSETS_TOPIC, ensure_internal_topic
from stratalog.records import Codec

if TYPE_CHECKING:
    from stratalog.broker.storage import BrokerStorage
    from stratalog.broker.workers import Workers


def offsets_log(storage: BrokerStorage, workers: Workers) -> CoordinatorLog:
    """Return the log of groups and their commits."""
    return CoordinatorLog(
        storage,
        workers,
        CONSUMER_OFFSETS_TOPIC,
        create=lambda: ensure_internal_topic(CONSUMER_OFFSETS_TOPIC, storage.control, storage.config),
        codec=lambda: Codec(storage.config["offsets.topic.compression.codec"]),
    )
