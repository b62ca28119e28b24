"""CreatePartitions: add partitions to existing topics."""

from __future__ import annotations

from collections import Counter
from typing import Any

from stratalog.broker.metadata import check_more_partitions, check_partition_total
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import InvalidRequestError, KafkaError, UnknownTopicOrPartitionError, wire_code

_STRICT_QUOTA_FROM = 3


def _refuse(ctx: RequestContext, request: Any, error: BaseException) -> Any:
    return ctx.respond(results=[_result(ctx, topic.name, wire_code(error), str(error)) for topic in request.topics])


@handles(ApiKey.CREATE_PARTITIONS, versions=(0, 3), on_error=_refuse)
async def create_partitions(ctx: RequestContext, request: Any) -> Any:
    times, total = await ctx.beside(_counted, ctx, request)
    check_partition_total(total, "additional partitions")
    results = []
    last = await ctx.beside(_by_name, request)
    async for name, topic in ctx.in_turns(last.items()):
        error_code, message = 0, None
        try:
            if times[name] > 1:
                raise InvalidRequestError("Duplicate topic name.")
            ctx.take_mutations(_check(ctx, topic), strict_since=_STRICT_QUOTA_FROM)
            if not request.validate_only:
                await ctx.broker.workers.run(ctx.broker.topics.add_partitions, name, topic.count)
        except KafkaError as error:
            error_code, message = error.code, str(error)
        results.append(_result(ctx, name, error_code, message))
    return ctx.respond(results=results)


def _counted(ctx: RequestContext, request: Any) -> tuple[Counter[str], int]:
    """Return how many times each name is in the request, and the partitions to add where it is there once."""
    times = Counter(topic.name for topic in request.topics)
    added = (_added(ctx, topic) for topic in request.topics if times[topic.name] == 1)
    return times, sum(count for count in added if count > 0)


def _by_name(request: Any) -> dict[str, Any]:
    return {topic.name: topic for topic in request.topics}


def _result(ctx: RequestContext, name: str, error_code: int, message: str | None) -> Any:
    return ctx.make("CreatePartitionsTopicResult", name=name, error_code=error_code, error_message=message or None)


def _added(ctx: RequestContext, topic: Any) -> int:
    """Return how many partitions would be added to a topic; 0 if it does not exist."""
    known = ctx.broker.metadata.topic(topic.name)
    return 0 if known is None else topic.count - known.partition_count


def _check(ctx: RequestContext, topic: Any) -> int:
    """Return how many partitions to add."""
    known = ctx.broker.metadata.topic(topic.name)
    if known is None:
        raise UnknownTopicOrPartitionError
    assignments = None if topic.assignments is None else [part.broker_ids for part in topic.assignments]
    check_more_partitions(topic.name, known.partition_count, topic.count, assignments, node_id=ctx.broker.node_id)
    ctx.broker.topics.check_partition_count(topic.name, topic.count)
    return int(topic.count - known.partition_count)
