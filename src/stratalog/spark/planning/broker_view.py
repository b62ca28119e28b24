"""The subscribed partitions as brokers report them during planning, with their beginnings and ends.

The responses fix what a query sees: a partition ends at its high watermark, or with read_committed at its last stable
offset.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from uuid import UUID

from stratalog.errors import OffsetOutOfRangeError, UsageError
from stratalog.spark.options import Subscription, TopicPartition
from stratalog.wire.client import EARLIEST_OFFSET, LATEST_OFFSET, Cluster, TopicInfo

logger = logging.getLogger("stratalog.spark")

#: The size of a fetch that only looks for a transaction.
_LITTLE_BYTES = 1


@dataclass(frozen=True, slots=True)
class BrokerPartition:
    """`topic_id` is None where the topic has none. The leader epoch is that of the end, -1 if unknown."""

    topic_id: UUID | None
    log_start: int
    end: int
    leader_epoch: int = -1


class BrokerView:
    """Asks one cluster. Raises UnreachableError, RefusedError, KafkaError."""

    def __init__(self, cluster: Cluster, subscription: Subscription, *, read_committed: bool) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._read_committed = read_committed
        self._topics: Mapping[str, TopicInfo] = {}

    def discover(self) -> frozenset[TopicPartition]:
        """Return all subscribed partitions that exist."""
        subscription = self._subscription
        names = None if subscription.pattern is not None else sorted(subscription.named_topics)
        self._topics = {
            name: topic
            for name, topic in self._cluster.topics(names).items()
            if subscription.wants_topic(name) and not (names is None and topic.is_internal)
        }
        return frozenset(
            (name, number)
            for name, topic in self._topics.items()
            for number in topic.partitions
            if subscription.wants(name, number)
        )

    def look(self, wanted: Callable[[str, int], bool]) -> dict[TopicPartition, BrokerPartition]:
        """Return beginning and end of the discovered partitions for which `wanted(topic, partition)`."""
        keys = [
            (name, number)
            for name, topic in self._topics.items()
            for number in topic.partitions
            if self._subscription.wants(name, number) and wanted(name, number)
        ]
        # Ends come last: records deleted in between are seen as deleted, and no end lies before its beginning.
        starts = self._cluster.list_offsets(dict.fromkeys(keys, EARLIEST_OFFSET)) if keys else {}
        ends = (
            self._cluster.list_offsets(dict.fromkeys(keys, LATEST_OFFSET), read_committed=self._read_committed)
            if keys
            else {}
        )
        return {
            key: BrokerPartition(
                self._topics[key[0]].topic_id,
                starts[key].offset,
                max(starts[key].offset, ends[key].offset),
                ends[key].leader_epoch,
            )
            for key in keys
        }

    def check_present(self, present: Collection[TopicPartition]) -> None:
        """Raise UsageError for a named topic that does not exist. A missing partition is not read, as with Spark."""
        where = f"the cluster at {self._cluster.any.address}"
        missing = sorted(self._subscription.named_topics - self._topics.keys())
        if missing:
            raise UsageError(f"there is no topic {', '.join(missing)} in {where}")
        for topic, partition in sorted((self._subscription.partitions or frozenset()) - set(present)):
            logger.warning("option assign: there is no partition %s-%d in %s", topic, partition, where)


def first_offset_at(cluster: Cluster, key: TopicPartition, timestamp_ms: int) -> int | None:
    """Return the offset of the first record with this timestamp or a later one, or None."""
    if timestamp_ms < 0:
        raise UsageError(f"timestamp {timestamp_ms} is before 1970")
    found = cluster.list_offsets({key: timestamp_ms})[key].offset
    return None if found < 0 else found


def was_aborted(cluster: Cluster, key: TopicPartition, transaction: tuple[int, int], log_start: int) -> bool:
    """Return whether a transaction (producer id, first offset) has ended with an abort.

    The log may begin within it. A fetch from there reports it too.
    """
    at = max(transaction[1], log_start)
    try:
        found = cluster.fetch(*key, at, _LITTLE_BYTES, read_committed=True, max_wait_ms=0)
    except OffsetOutOfRangeError:  # retention has deleted records since
        at = max(at, cluster.list_offsets({key: EARLIEST_OFFSET})[key].offset)
        found = cluster.fetch(*key, at, _LITTLE_BYTES, read_committed=True, max_wait_ms=0)
    return transaction in found.aborted
