"""How far replicas are behind their leaders: every broker reports the ends of its own logs.

ListOffsets with the replica id of a debugging client is answered by any replica, not by the leader alone. The offset
lag of DescribeLogDirs compares a replica with its own high watermark, so that it shows none for a follower that is
behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from stratalog.errors import StratalogError
from stratalog.wire import ApiKey
from stratalog.wire.client import LATEST_OFFSET, Client, ConnectionOptions, TopicPartition

if TYPE_CHECKING:
    from stratalog.cli.cluster.status import PartitionStatus

_DEBUGGER: Final = -2
_VERSIONS: Final = (1, 11)

#: By partition and replica: records that the leader has and the replica has not. Replicas that did not answer are
#: left out.
ReplicaLags = Mapping[TopicPartition, Mapping[int, int]]


def replica_lags(
    partitions: Iterable[PartitionStatus], addresses: Mapping[int, tuple[str, int]], options: ConnectionOptions
) -> ReplicaLags:
    """Query brokers by id for the replicas of these partitions, and return the lags of those that are not leaders."""
    led = [each for each in partitions if not each.is_offline]
    ends: dict[int, Mapping[TopicPartition, int]] = {}
    # leaders first: what comes in between these queries and those of the followers does not count as lag
    leaders = {each.leader for each in led}
    for broker in sorted({replica for each in led for replica in each.replicas}, key=lambda each: each not in leaders):
        if broker in addresses:
            wanted = [(each.topic, each.partition) for each in led if broker in each.replicas]
            ends[broker] = _ends(addresses[broker], options, wanted)
    found: dict[TopicPartition, dict[int, int]] = {}
    for each in led:
        key = each.topic, each.partition
        end = ends.get(each.leader, {}).get(key)
        if end is None:
            continue
        others = {replica: ends.get(replica, {}).get(key) for replica in each.replicas if replica != each.leader}
        found[key] = {replica: max(end - own, 0) for replica, own in others.items() if own is not None}
    return found


def _ends(
    address: tuple[str, int], options: ConnectionOptions, wanted: Iterable[TopicPartition]
) -> Mapping[TopicPartition, int]:
    """Query a broker for the ends of its replicas. Those that it cannot read are left out; none if it is away."""
    topics: dict[str, list[dict[str, int]]] = {}
    for topic, partition in wanted:
        topics.setdefault(topic, []).append({"partition_index": partition, "timestamp": LATEST_OFFSET})
    asked = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    try:
        client = Client(*address, options)
        try:
            answer = client.call(ApiKey.LIST_OFFSETS, _VERSIONS, replica_id=_DEBUGGER, isolation_level=0, topics=asked)
        finally:
            client.close()
    except StratalogError:
        return {}
    return {
        (str(topic.name), int(each.partition_index)): int(each.offset)
        for topic in answer.topics
        for each in topic.partitions
        if not int(each.error_code)
    }
