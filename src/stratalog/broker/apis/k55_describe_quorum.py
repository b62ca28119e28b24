"""DescribeQuorum (55): the single broker is the quorum's only voter and leader, and always caught up.

v0 to v2. v1: times of the last fetch (KIP-836). v2: ids of directories, endpoints of the voters (KIP-853). The metadata
is in a store instead of a log, so its offsets and epoch are 0.
"""

from __future__ import annotations

from typing import Any

from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import UnknownTopicOrPartitionError

_METADATA_TOPIC = "__cluster_metadata"


@handles(ApiKey.DESCRIBE_QUORUM, versions=(0, 2))
def describe_quorum(ctx: RequestContext, request: Any) -> Any:
    asked = [(topic.topic_name, entry.partition_index) for topic in request.topics for entry in topic.partitions]
    is_quorum = len(request.topics) == 1 and asked == [(_METADATA_TOPIC, 0)]
    make = _quorum if is_quorum else _unknown
    return ctx.respond(
        error_code=0,
        error_message="",
        topics=[
            ctx.make(
                "TopicData",
                topic_name=topic.topic_name,
                partitions=[make(ctx, entry.partition_index) for entry in topic.partitions],
            )
            for topic in request.topics
        ],
        nodes=[_node(ctx)] if is_quorum and ctx.version >= 2 else [],
    )


def _quorum(ctx: RequestContext, number: int) -> Any:
    now_ms = ctx.broker.clock.now_ms()
    voter = ctx.make(
        "ReplicaState",
        replica_id=ctx.broker.node_id,
        replica_directory_id=None,
        log_end_offset=0,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return ctx.make(
        "PartitionData",
        partition_index=number,
        error_code=0,
        error_message="",
        leader_id=ctx.broker.node_id,
        current_voters=[voter],
        observers=[],
    )


def _unknown(ctx: RequestContext, number: int) -> Any:
    return ctx.make(
        "PartitionData",
        partition_index=number,
        error_code=UnknownTopicOrPartitionError.code,
        error_message="This server does not host this topic-partition.",
        leader_id=0,
        current_voters=[],
        observers=[],
    )


def _node(ctx: RequestContext) -> Any:
    endpoint = ctx.make("Listener", name="CONTROLLER", host=ctx.peer.reached_host, port=ctx.peer.listener.port)
    return ctx.make("Node", node_id=ctx.broker.node_id, listeners=[endpoint])
