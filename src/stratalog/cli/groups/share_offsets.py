"""Offsets of share groups (KIP-932): start offset and lag by partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from stratalog.wire import ApiKey
from stratalog.wire.client import Cluster, Coordinators, check

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """The start offset of a group in a partition. `lag` is None when the broker does not report it."""

    start: int
    lag: int | None


def share_offsets(cluster: Cluster, group: str) -> dict[TopicPartition, ShareOffset]:
    """Return the start offsets of a share group by partition, without those that it has not read."""
    client = Coordinators(cluster).of_group(group)
    asked = {"group_id": group, "topics": None}
    (answer,) = client.call(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, (0, 1), groups=(asked,)).groups
    check(answer.error_code, answer.error_message, f"Group {group}")
    found = {}
    for topic in answer.topics:
        for each in topic.partitions:
            check(each.error_code, each.error_message, f"{topic.topic_name}-{each.partition_index}")
            if each.start_offset >= 0:
                lag = getattr(each, "lag", -1)
                place = str(topic.topic_name), int(each.partition_index)
                found[place] = ShareOffset(int(each.start_offset), int(lag) if lag >= 0 else None)
    return found


def set_share_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Set the start offsets of a share group without members. Raises the first error; others may have been set."""
    topics = [
        {
            "topic_name": topic,
            "partitions": [{"partition_index": place[1], "start_offset": offset} for place, offset in each],
        }
        for topic, each in groupby(sorted(offsets.items()), key=lambda item: item[0][0])
    ]
    answer = (
        Coordinators(cluster)
        .of_group(group)
        .call(ApiKey.ALTER_SHARE_GROUP_OFFSETS, (0, 0), group_id=group, topics=topics)
    )
    check(answer.error_code, answer.error_message, f"Group {group}")
    for answered in answer.responses:
        for partition in answered.partitions:
            check(partition.error_code, partition.error_message, f"{answered.topic_name}-{partition.partition_index}")
