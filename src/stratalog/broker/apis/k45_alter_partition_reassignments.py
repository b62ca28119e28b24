"""AlterPartitionReassignments (45): partitions can only be assigned to the single broker (KIP-455).

v0 to v1. v1: whether the number of replicas may change (KIP-860).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import InvalidReplicaAssignmentError, KafkaError, UnknownTopicOrPartitionError

_NO_REASSIGNMENT_IN_PROGRESS = 85


@handles(ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions=(0, 1))
async def alter_partition_reassignments(ctx: RequestContext, request: Any) -> Any:
    if not request.topics:
        return ctx.respond(allow_replication_factor_change=True, error_message="")
    return ctx.respond(
        allow_replication_factor_change=getattr(request, "allow_replication_factor_change", True),
        error_code=0,
        error_message=None,
        responses=[
            ctx.make(
                "ReassignableTopicResponse",
                name=topic.name,
                partitions=[_answer(ctx, topic.name, entry) async for entry in ctx.in_turns(topic.partitions)],
            )
            async for topic in ctx.in_turns(request.topics)
        ],
    )


def _answer(ctx: RequestContext, topic: str, entry: Any) -> Any:
    number, replicas = entry.partition_index, entry.replicas
    code, message = 0, None
    try:
        if ctx.broker.metadata.topic(topic) is None:
            raise UnknownTopicOrPartitionError(f"Unable to find a topic named {topic}.")
        if ctx.broker.partition(topic, number) is None:
            raise UnknownTopicOrPartitionError(f"Unable to find partition {topic}:{number}.")
        if replicas is None:  # cancels a reassignment
            code = _NO_REASSIGNMENT_IN_PROGRESS
        else:
            _check_replicas(replicas, ctx.broker.node_id)
    except KafkaError as error:
        code, message = error.code, str(error)
    return ctx.make("ReassignablePartitionResponse", partition_index=number, error_code=code, error_message=message)


def _check_replicas(replicas: Sequence[int], node_id: int) -> None:
    """Raise InvalidReplicaAssignmentError unless this broker is the only replica."""
    if not replicas:
        raise InvalidReplicaAssignmentError("The manual partition assignment includes an empty replica list.")
    before = None
    for replica in sorted(replicas):
        if replica != node_id:
            raise InvalidReplicaAssignmentError(
                f"The manual partition assignment includes broker {replica}, but no such broker is registered."
            )
        if replica == before:
            raise InvalidReplicaAssignmentError(
                f"The manual partition assignment includes the broker {replica} more than once."
            )
        before = replica
