"""Write the markers that end a transaction into its partitions."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stratalog.broker.confirmation import Unconfirmed
from stratalog.broker.groups import TopicPartition
from stratalog.broker.internal_topics import CONSUMER_OFFSETS_TOPIC
from stratalog.broker.transactions.transaction import ProducerIdAndEpoch
from stratalog.errors import (
    InvalidProducerEpochError,
    KafkaError,
    KafkaStorageError,
    StratalogError,
    TransactionCoordinatorFencedError,
    UnknownTopicOrPartitionError,
    wire_code,
)
from stratalog.records import ControlType, end_transaction_marker

if TYPE_CHECKING:
    from stratalog.broker.groups import GroupCoordinator
    from stratalog.engine import LogManager
    from stratalog.util import Clock

logger = logging.getLogger(__name__)

#: Errors after which a partition needs no marker: it was deleted, or a newer producer has ended the transaction there.
FINAL_ERRORS = frozenset(
    {
        UnknownTopicOrPartitionError.code,
        InvalidProducerEpochError.code,
        TransactionCoordinatorFencedError.code,
    }
)


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of a producer's transaction; `transaction_version` is the client's."""

    producer: ProducerIdAndEpoch
    committed: bool
    coordinator_epoch: int
    transaction_version: int


class MarkerWriter:
    """Appends markers. Belongs to the loop's thread."""

    def __init__(self, logs: LogManager, clock: Clock, groups: GroupCoordinator) -> None:
        self._logs = logs
        self._clock = clock
        self._groups = groups

    def write_all(self, marker: Marker, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Write the marker into each partition; return those that have to be retried."""
        left = set()
        for partition in sorted(partitions):
            code = self.write(marker, partition)
            if code in FINAL_ERRORS:
                logger.warning(
                    "%s-%d no longer needs a marker of producer %d (error %d)",
                    partition.topic,
                    partition.partition,
                    marker.producer.id,
                    code,
                )
            elif code:
                left.add(partition)
        return frozenset(left)

    def write(self, marker: Marker, at: TopicPartition, unconfirmed: list[Unconfirmed] | None = None) -> int:
        """Write the marker into one partition; return the error code. Without an open transaction it has no effect.

        With `unconfirmed`, the marker has to be replicated, and is added there.
        """
        partition = self._logs.get(at.topic, at.partition)
        if partition is None:
            return UnknownTopicOrPartitionError.code
        batch = end_transaction_marker(
            ControlType.COMMIT if marker.committed else ControlType.ABORT,
            producer_id=marker.producer.id,
            producer_epoch=marker.producer.epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=self._clock.now_ms(),
        )
        epoch = partition.leader_epoch
        try:
            if unconfirmed is not None:
                partition.check_min_isr()
            info = partition.append(batch, origin="coordinator", transaction_version=marker.transaction_version)
        except (StratalogError, OSError) as error:
            logger.error("%s-%d: no marker for producer %d: %s", *at, marker.producer.id, error)
            return wire_code(error) if isinstance(error, KafkaError) else KafkaStorageError.code
        if unconfirmed is not None:
            unconfirmed.append(Unconfirmed(partition, at.topic, info.last_offset, epoch))
        if at.topic == CONSUMER_OFFSETS_TOPIC:
            self._groups.transaction_ended(marker.producer.id, at.partition, committed=marker.committed)
        return 0
