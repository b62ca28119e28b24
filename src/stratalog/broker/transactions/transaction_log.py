"""The log of `__transaction_state`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stratalog.broker.coordinator_log import CoordinatorLog
from stratalog.broker.internal_topics import TRANSACTION_STATE_TOPIC, ensure_internal_topic
from stratalog.records import Codec

if TYPE_CHECKING:
    from stratalog.broker.storage import BrokerStorage
    from stratalog.broker.workers import Workers


def transaction_log(storage: BrokerStorage, workers: Workers) -> CoordinatorLog:
    """Return the log of transactional ids."""
    return CoordinatorLog(
        storage,
        workers,
        TRANSACTION_STATE_TOPIC,
        create=lambda: ensure_internal_topic(TRANSACTION_STATE_TOPIC, storage.control, storage.config),
        codec=lambda: Codec.NONE,
    )
