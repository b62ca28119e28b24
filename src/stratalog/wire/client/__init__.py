"""A synchronous Kafka client: any request by its name, and the few that readers of whole partitions need.

    with Cluster("127.0.0.1:9092") as cluster:
        answer = cluster.any.call(ApiKey.CREATE_PARTITIONS, (0, 3), topics=[{"name": "t", "count": 2}])
        end = cluster.list_offsets({("t", 0): LATEST_OFFSET})["t", 0].offset
        fetched = cluster.fetch("t", 0, 0, max_bytes=1 << 20)

Parts of a request are dicts; what is not given is zero, empty, null or its default, and what a version lacks is
dropped.
"""

from __future__ import annotations

from stratalog.wire.client.cluster import Cluster, Node, PartitionInfo, TopicInfo
from stratalog.wire.client.connection import Client
from stratalog.wire.client.errors import (
    AuthenticationError,
    RefusedError,
    UnreachableError,
    check,
    check_topic,
)
from stratalog.wire.client.fetching import AbortedRange, FetchedRecords
from stratalog.wire.client.offsets import (
    EARLIEST_LOCAL_OFFSET,
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    LATEST_TIERED_OFFSET,
    MAX_TIMESTAMP_OFFSET,
    FoundOffset,
)
from stratalog.wire.client.options import ConnectionOptions, SecurityProtocol

__all__ = [
    "EARLIEST_LOCAL_OFFSET",
    "EARLIEST_OFFSET",
    "LATEST_OFFSET",
    "LATEST_TIERED_OFFSET",
    "MAX_TIMESTAMP_OFFSET",
    "AbortedRange",
    "AuthenticationError",
    "Client",
    "Cluster",
    "ConnectionOptions",
    "FetchedRecords",
    "FoundOffset",
    "Node",
    "PartitionInfo",
    "RefusedError",
    "SecurityProtocol",
    "TopicInfo",
    "UnreachableError",
    "check",
    "check_topic",
]
