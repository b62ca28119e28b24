"""DeleteTopics: delete topics with all their records and commits.

By name; from version 6 on also by id. With `delete.topic.enable=false` nothing is deleted: TOPIC_DELETION_DISABLED
(before version 3: INVALID_REQUEST).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from stratalog.broker.metadata import Topic
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import (
    InvalidRequestError,
    KafkaError,
    ThrottlingQuotaExceededError,
    TopicDeletionDisabledError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)

_BY_ID_FROM = 6
_STRICT_QUOTA_FROM = 5
_DISABLED_ERROR_FROM = 3


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One topic of the request, by name or by id."""

    name: str | None
    topic_id: UUID | None


@handles(ApiKey.DELETE_TOPICS, versions=(1, 6))
async def delete_topics(ctx: RequestContext, request: Any) -> Any:
    wanted = await ctx.beside(_wanted, ctx, request)
    if not ctx.broker.config["delete.topic.enable"]:
        message = "Topic deletion is disabled."
        old = ctx.version < _DISABLED_ERROR_FROM
        disabled = InvalidRequestError(message) if old else TopicDeletionDisabledError(message)
        return await ctx.beside(_disabled, ctx, wanted, disabled)
    times: Counter[_Wanted] = await ctx.beside(Counter, wanted)
    responses = []
    async for each in ctx.in_turns(times):
        topic: Topic | None = None
        failure: KafkaError | None = None
        try:
            topic = _find(ctx, each, times[each])
            ctx.take_mutations(topic.partition_count, strict_since=_STRICT_QUOTA_FROM)
            assert ctx.broker.topic_deletions is not None  # in a cluster this API is forwarded
            await ctx.broker.topic_deletions.delete(topic.name)
        except KafkaError as error:
            failure = error
        if topic is not None and (failure is None or isinstance(failure, ThrottlingQuotaExceededError)):
            responses.append(_result(ctx, topic.name, topic.topic_id, failure))
        else:
            says_both = each.name is not None and each.topic_id is not None
            refused = _result(ctx, each.name, each.topic_id, failure)
            responses.extend([refused] * (times[each] if says_both else 1))
    return ctx.respond(responses=responses)


def _wanted(ctx: RequestContext, request: Any) -> list[_Wanted]:
    if ctx.version >= _BY_ID_FROM:
        return [_Wanted(topic.name, topic.topic_id) for topic in request.topics]
    return [_Wanted(name, None) for name in request.topic_names]


def _disabled(ctx: RequestContext, wanted: list[_Wanted], error: KafkaError) -> Any:
    return ctx.respond(responses=[_result(ctx, each.name, each.topic_id, error) for each in wanted])


def _find(ctx: RequestContext, wanted: _Wanted, times: int) -> Topic:
    if wanted.name is None and wanted.topic_id is None:
        raise InvalidRequestError("Neither topic name nor id were specified.")
    if wanted.name is not None and wanted.topic_id is not None:
        raise InvalidRequestError("You may not specify both topic name and topic id.")
    if times > 1:
        raise InvalidRequestError(f"Duplicate topic {'name' if wanted.topic_id is None else 'id'}.")
    store = ctx.broker.metadata
    if wanted.topic_id is not None:
        topic = store.topic_by_id(wanted.topic_id)
        if topic is None:
            raise UnknownTopicIdError("This server does not host this topic ID.")
        return topic
    topic = store.topic(wanted.name or "")
    if topic is None:
        raise UnknownTopicOrPartitionError("This server does not host this topic-partition.")
    return topic


def _result(ctx: RequestContext, name: str | None, topic_id: UUID | None, error: KafkaError | None) -> Any:
    return ctx.make(
        "DeletableTopicResult",
        name=name if ctx.version >= _BY_ID_FROM else name or "",
        topic_id=topic_id,
        error_code=0 if error is None else error.code,
        error_message=None if error is None else str(error),
    )
