"""Acknowledgements in ShareFetch and ShareAcknowledge requests, partition by partition.

Source: `KafkaApis.handleAcknowledgements` and `validateAcknowledgementBatches` of Kafka 4.4.0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from stratalog.broker.access import AclOperation, ResourceType
from stratalog.broker.share.record_runs import AckBatch, AckType
from stratalog.broker.share.sessions import SharePlace
from stratalog.broker.share.state_records import ShareKey
from stratalog.config import SHARE_VERSION
from stratalog.errors import (
    GroupAuthorizationFailedError,
    InvalidRequestError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    wire_code,
)

if TYPE_CHECKING:
    from stratalog.broker.server import RequestContext

_NO_TOPIC = UUID(int=0)
_MEMBER_ID_MAX = 36
_RENEW_FROM = 2


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The result for one partition; a message only from the partition's leader."""

    error_code: int = 0
    message: str | None = None


def check_share_request(ctx: RequestContext, request: Any) -> None:
    """Raise for an invalid or unauthorized request."""
    if ctx.broker.metadata.features.level(SHARE_VERSION) < 1:
        raise UnsupportedVersionError("The version of API is not supported.")
    if request.group_id is None:
        raise InvalidRequestError("Invalid group id in the request.")
    access = ctx.broker.access
    if access is not None and not access.allows(
        ctx.peer, ctx.key, AclOperation.READ, ResourceType.GROUP, request.group_id
    ):
        raise GroupAuthorizationFailedError("Group authorization failed.")
    if not request.member_id or len(request.member_id) > _MEMBER_ID_MAX:
        raise InvalidRequestError("Invalid member id in the request.")


def refuse_share_request(ctx: RequestContext, request: Any, error: BaseException) -> Any:  # noqa: ARG001
    """Return a response with only an error code, as Kafka does here."""
    return ctx.respond(error_code=wire_code(error))


def place_of(topic: Any, partition: int) -> SharePlace:
    return SharePlace(topic.topic_id or _NO_TOPIC, partition)


def named_places(ctx: RequestContext, request: Any) -> dict[SharePlace, str | None]:
    """Return the partitions of a request with the names of their topics; None for an unknown id."""
    return {
        place_of(topic, partition.partition_index): ctx.broker.topic_name((topic.topic_id or _NO_TOPIC).bytes)
        for topic in request.topics
        for partition in topic.partitions
    }


def readable_topics(ctx: RequestContext, topics: Iterable[str]) -> set[str]:
    """Return the topics among `topics` that the client may read."""
    access = ctx.broker.access
    if access is None:
        return set(topics)
    return access.allowed_names(ctx.peer, ctx.key, AclOperation.READ, ResourceType.TOPIC, topics)


async def take_acknowledgements(
    ctx: RequestContext, request: Any, names: Mapping[SharePlace, str | None], readable: set[str]
) -> dict[SharePlace, Acknowledged]:
    """Apply acknowledgements by partition. Partitions without any are in the result only if others have some."""
    may_renew, renews = ctx.version >= _RENEW_FROM, getattr(request, "is_renew_ack", False)
    results: dict[SharePlace, Acknowledged] = {}
    silent: list[SharePlace] = []
    said: list[tuple[SharePlace, str, list[AckBatch]]] = []
    for topic in request.topics:
        for partition in topic.partitions:
            place = place_of(topic, partition.partition_index)
            batches = [_batch(each) for each in partition.acknowledgement_batches]
            try:
                name = names[place]
                if name is None:
                    raise UnknownTopicIdError("This server does not host this topic ID.")
                _check_batches(batches, may_renew=may_renew, renews=renews)
                if name not in readable:
                    raise TopicAuthorizationFailedError("Topic authorization failed.")
                if not ctx.broker.has_partition(name, place.partition):
                    raise UnknownTopicOrPartitionError("This server does not host this topic-partition.")
            except KafkaError as error:
                results[place] = Acknowledged(error.code)
                continue
            if not batches:
                silent.append(place)
                continue
            results[place] = Acknowledged()
            said.append((place, name, batches))
    answers = await asyncio.gather(*(_acknowledged(ctx, request, place, batches) for place, _, batches in said))
    failed: dict[str, bool] = {}
    for (place, name, _), answer in zip(said, answers, strict=True):
        results[place] = answer
        failed[name] = answer.error_code != 0 or failed.get(name, False)
    if failed:
        results.update(dict.fromkeys(silent, Acknowledged()))
    for name, has_failed in failed.items():
        traffic = next((each.traffic for each in ctx.broker.logs.partitions(name)), None)
        if traffic is not None:
            traffic.share_acknowledgement_requests += 1
            traffic.failed_share_acknowledgement_requests += has_failed
    return results


async def _acknowledged(
    ctx: RequestContext, request: Any, place: SharePlace, batches: Sequence[AckBatch]
) -> Acknowledged:
    try:
        await ctx.broker.share_leader.acknowledge(ShareKey(request.group_id, *place), request.member_id, batches)
    except KafkaError as error:
        return Acknowledged(error.code, str(error))
    return Acknowledged()


def _batch(said: Any) -> AckBatch:
    return AckBatch(said.first_offset, said.last_offset, tuple(said.acknowledge_types))


def _check_batches(batches: Sequence[AckBatch], *, may_renew: bool, renews: bool) -> None:
    highest = AckType.RENEW if may_renew else AckType.REJECT
    behind = -1
    for batch in batches:
        types, size = batch.types, batch.last - batch.first + 1
        if size < 1 or not types or (len(types) > 1 and len(types) != size):
            raise InvalidRequestError("The acknowledgement batch is not valid.")
        if batch.first < behind:
            raise InvalidRequestError("The acknowledgement batch begins before the one in front of it ends.")
        behind = batch.last
        if any(not 0 <= each <= highest for each in types) or (AckType.RENEW in types and not renews):
            raise InvalidRequestError("The acknowledgement batch has a type that is not known.")
