"""Which partitions of a broker a delta changes: what its engine has to do, in this order.

deletes, then leaders, then followers, then directories. As Kafka's `TopicDelta.localChanges`, by topic id: a topic that
is deleted and made again under its name is another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from stratalog.broker.cluster.delta import MetadataDelta
from stratalog.broker.cluster.image import MetadataImage
from stratalog.broker.cluster.registrations import PartitionRegistration
from stratalog.remote.api import TopicIdPartition


@dataclass(slots=True)
class LocalReplicaChanges:
    """Changes of the replicas of one broker. A partition is in `leaders` or `followers`, never in both."""

    #: Replicas that are no longer here. Only a delta deletes: a directory that no image knows is a stray one.
    deletes: set[TopicIdPartition] = field(default_factory=set)
    leaders: dict[TopicIdPartition, PartitionRegistration] = field(default_factory=dict)
    #: Those of `leaders` whose leader epoch is new; the others have another ISR, say.
    elected: set[TopicIdPartition] = field(default_factory=set)
    followers: dict[TopicIdPartition, PartitionRegistration] = field(default_factory=dict)
    #: Where the metadata says that a replica lies, when that is new.
    directories: dict[TopicIdPartition, UUID] = field(default_factory=dict)


def local_changes(delta: MetadataDelta, image: MetadataImage, broker: int) -> LocalReplicaChanges:
    """Return what `delta`, which led to `image`, changes for the replicas of `broker`."""
    changes = LocalReplicaChanges()
    nothing: Mapping[int, PartitionRegistration] = {}
    for topic_id in delta.deleted_topics:
        gone = delta.image.topics[topic_id]
        for number, partition in gone.partitions.items():
            if broker in partition.replicas:
                changes.deletes.add(TopicIdPartition(topic_id, gone.name, number))
    for topic_id, numbers in delta.changed_partitions.items():
        topic, before = image.topics[topic_id], delta.image.topics.get(topic_id)
        former = nothing if before is None else before.partitions
        for number in sorted(numbers):
            key = TopicIdPartition(topic_id, topic.name, number)
            _compare(changes, key, former.get(number), topic.partitions[number], broker)
    return changes


def _compare(
    changes: LocalReplicaChanges,
    key: TopicIdPartition,
    old: PartitionRegistration | None,
    new: PartitionRegistration,
    broker: int,
) -> None:
    was_here = old is not None and broker in old.replicas
    if broker not in new.replicas:
        if was_here:
            changes.deletes.add(key)
        return
    if old is None or old.partition_epoch != new.partition_epoch:
        (changes.leaders if new.leader == broker else changes.followers)[key] = new
        if new.leader == broker and (old is None or old.leader_epoch != new.leader_epoch):
            changes.elected.add(key)
    if old is None or not was_here or old.directory(broker) != new.directory(broker):
        changes.directories[key] = new.directory(broker)
