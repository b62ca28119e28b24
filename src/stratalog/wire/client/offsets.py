"""ListOffsets: what is asked by a special timestamp or a real one, and what is found.

Source: KIP-79, KIP-405, KIP-734, KIP-1005, KIP-1023.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

TopicPartition = tuple[str, int]

#: The high watermark; with read_committed, the last stable offset.
LATEST_OFFSET: Final = -1
#: The log start offset, of both tiers.
EARLIEST_OFFSET: Final = -2
#: The record with the newest timestamp.
MAX_TIMESTAMP_OFFSET: Final = -3
#: Where the broker's own disk begins.
EARLIEST_LOCAL_OFFSET: Final = -4
#: The last offset of the remote tier.
LATEST_TIERED_OFFSET: Final = -5
#: The first offset that is not in the remote tier.
EARLIEST_PENDING_UPLOAD_OFFSET: Final = -6

_VERSIONS: Final = (1, 11)
_VERSION_OF: Final = {
    MAX_TIMESTAMP_OFFSET: 7,
    EARLIEST_LOCAL_OFFSET: 8,
    LATEST_TIERED_OFFSET: 9,
    EARLIEST_PENDING_UPLOAD_OFFSET: 11,
}


class ListedOffset(NamedTuple):
    """`offset` -1 where there is none: no record as new as a timestamp, or nothing tiered."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


def versions_for(timestamps: Mapping[TopicPartition, int]) -> tuple[int, int]:
    """Return the versions of ListOffsets that know what is asked."""
    return max(_VERSION_OF.get(each, _VERSIONS[0]) for each in timestamps.values()), _VERSIONS[1]


def request_fields(
    timestamps: Mapping[TopicPartition, int], *, read_committed: bool, timeout_s: float
) -> dict[str, Any]:
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), timestamp in timestamps.items():
        by_topic.setdefault(topic, []).append({"partition_index": partition, "timestamp": timestamp})
    return {
        "replica_id": -1,
        "isolation_level": int(read_committed),
        "topics": [{"name": topic, "partitions": partitions} for topic, partitions in by_topic.items()],
        "timeout": int(timeout_s * 1000),
    }


def answers(response: Any) -> dict[TopicPartition, tuple[int, ListedOffset]]:
    """Error code and finding of each partition."""
    return {
        (str(topic.name), int(each.partition_index)): (
            int(each.error_code),
            ListedOffset(int(each.offset), _milliseconds(each.timestamp), int(getattr(each, "leader_epoch", -1))),
        )
        for topic in response.topics
        for each in topic.partitions
    }


def _milliseconds(timestamp: Any) -> int:
    return int(timestamp) if isinstance(timestamp, int) else -1
