"""Compute the changes of a delta to the partitions of a broker, for its engine.

As Kafka's `TopicDelta.localChanges`, by topic id: a topic that is deleted and created again is a different one.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from stratalog.broker.cluster.delta import MetadataDelta
from stratalog.broker.cluster.image import MetadataImage
from stratalog.broker.cluster.registrations import PartitionRegistration
from stratalog.engine import ReplicaChanges
from stratalog.remote.api import TopicIdPartition


def local_changes(delta: MetadataDelta, image: MetadataImage, broker: int) -> ReplicaChanges:
    """Return the changes of `delta`, which led to `image`, to the replicas of `broker`."""
    changes = _Changes(broker)
    nothing: Mapping[int, PartitionRegistration] = {}
    for topic_id in delta.deleted_topics:
        gone = delta.image.topics[topic_id]
        for number, partition in gone.partitions.items():
            if broker in partition.replicas:
                key = TopicIdPartition(topic_id, gone.name, number)
                changes.deletes.add(key)
                if partition.leader == broker:
                    changes.remote_deletes.add(key)
    for topic_id, numbers in delta.changed_partitions.items():
        topic, before = image.topics[topic_id], delta.image.topics.get(topic_id)
        former = nothing if before is None else before.partitions
        for number in sorted(numbers):
            key = TopicIdPartition(topic_id, topic.name, number)
            changes.compare(key, former.get(number), topic.partitions[number])
    return ReplicaChanges(
        deletes=frozenset(changes.deletes),
        remote_deletes=frozenset(changes.remote_deletes),
        leaders=changes.leaders,
        elected=frozenset(changes.elected),
        followers=changes.followers,
        directories=changes.directories,
    )


class _Changes:
    """A `ReplicaChanges` under construction."""

    def __init__(self, broker: int) -> None:
        self._broker = broker
        self.deletes: set[TopicIdPartition] = set()
        self.remote_deletes: set[TopicIdPartition] = set()
        self.leaders: dict[TopicIdPartition, PartitionRegistration] = {}
        self.elected: set[TopicIdPartition] = set()
        self.followers: dict[TopicIdPartition, PartitionRegistration] = {}
        self.directories: dict[TopicIdPartition, UUID] = {}

    def compare(self, key: TopicIdPartition, old: PartitionRegistration | None, new: PartitionRegistration) -> None:
        broker = self._broker
        was_here = old is not None and broker in old.replicas
        if broker not in new.replicas:
            if was_here:
                self.deletes.add(key)
            return
        if old is None or old.partition_epoch != new.partition_epoch:
            (self.leaders if new.leader == broker else self.followers)[key] = new
            if new.leader == broker and (old is None or old.leader_epoch != new.leader_epoch):
                self.elected.add(key)
        if old is None or not was_here or old.directory(broker) != new.directory(broker):
            self.directories[key] = new.directory(broker)
