"""The log of `__transaction_state`, and the topic's creation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.broker.coordinator_log import CoordinatorLog
from stratalog.records import Codec

if TYPE_CHECKING:
    from stratalog.broker.metadata import ClusterControl
    from stratalog.broker.storage import BrokerStorage
    from stratalog.broker.workers import Workers
    from stratalog.config import BrokerConfig

TRANSACTION_STATE_TOPIC = "__transaction_state"


def transaction_log(storage: BrokerStorage, workers: Workers) -> CoordinatorLog:
    """Return the log of transactional ids."""
    return CoordinatorLog(
        storage,
        workers,
        TRANSACTION_STATE_TOPIC,
        create=lambda: create_transaction_state(storage.control, storage.config),
        codec=lambda: Codec.NONE,
    )


def create_transaction_state(topics: ClusterControl, config: BrokerConfig) -> object:
    """Create the topic with Kafka's configuration. May block."""
    return topics.ensure(
        TRANSACTION_STATE_TOPIC,
        config["transaction.state.log.num.partitions"],
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config["transaction.state.log.min.isr"]),
            "segment.bytes": str(config["transaction.state.log.segment.bytes"]),
            "unclean.leader.election.enable": "false",
        },
    )
