"""ElectLeaders (43): with one replica, which leads unless its directory has failed, there is nothing to elect.

v0 to v2. v1: the type of election and an error code of the response (KIP-460). v2: flexible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import InvalidRequestError, UnknownTopicOrPartitionError

_PREFERRED, _UNCLEAN = 0, 1

_NOT_NEEDED = (84, "Leader election not needed for topic partition.")
#: By type of election: the error for a partition whose only replica is offline.
_NOT_AVAILABLE = {
    _PREFERRED: (80, "The preferred leader was not available."),
    _UNCLEAN: (83, "Eligible topic partition leaders are not available."),
}


@handles(ApiKey.ELECT_LEADERS, versions=(0, 2))
async def elect_leaders(ctx: RequestContext, request: Any) -> Any:
    topics: list[tuple[str, Sequence[int]]]
    election = getattr(request, "election_type", _PREFERRED)
    is_known = election in _NOT_AVAILABLE
    if request.topic_partitions is None:
        # As in Kafka, partitions that already have the right leader are left out.
        topics = [(topic.name, ()) for topic in ctx.broker.metadata.topics()] if is_known else []
    else:
        topics = [(topic.topic, topic.partitions) for topic in request.topic_partitions]
    is_refused = not is_known and (request.topic_partitions is None or bool(topics))
    return ctx.respond(
        error_code=InvalidRequestError.code if is_refused else 0,
        replica_election_results=[
            ctx.make(
                "ReplicaElectionResult",
                topic=name,
                partition_result=[_result(ctx, election, name, number) async for number in ctx.in_turns(partitions)],
            )
            async for name, partitions in ctx.in_turns(topics)
        ],
    )


def _result(ctx: RequestContext, election: int, topic: str, number: int) -> Any:
    code, message = _outcome(ctx, election, topic, number)
    return ctx.make("PartitionResult", partition_id=number, error_code=code, error_message=message)


def _outcome(ctx: RequestContext, election: int, topic: str, number: int) -> tuple[int, str]:
    if election not in _NOT_AVAILABLE:
        return InvalidRequestError.code, f"Unknown election type {election}"
    if ctx.broker.metadata.topic(topic) is None:
        return UnknownTopicOrPartitionError.code, f"No such topic as {topic}"
    partition = ctx.broker.partition(topic, number)
    if partition is None:
        return UnknownTopicOrPartitionError.code, f"No such partition as {topic}-{number}"
    return _NOT_AVAILABLE[election] if partition.failure is not None else _NOT_NEEDED
