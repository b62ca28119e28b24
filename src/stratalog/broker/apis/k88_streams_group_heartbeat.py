"""StreamsGroupHeartbeat (88): a member of a streams group (KIP-1071) joins, stays or leaves.

v0 and v1. v1: the acceptable recovery lag is an int64, and members get the status MISSING_CLIENT_TAGS. The broker
creates the application's internal topics, if the client may. While the feature `streams.version` is 0:
UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stratalog.broker.access import AclOperation, ResourceType
from stratalog.broker.groups import check_streams_protocol, streams, to_ms
from stratalog.broker.internal_topics import INTERNAL_TOPICS
from stratalog.broker.java_hashing import in_hash_order, string_hash
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.topics import is_topic_name
from stratalog.errors import (
    GroupAuthorizationFailedError,
    InvalidStreamsTopologyError,
    KafkaError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
    wire_code,
)

_FAILURES_SHOWN_MAX = 3


#: Errors that have no message in Kafka.
_WORDLESS = (GroupAuthorizationFailedError, TopicAuthorizationFailedError, UnsupportedVersionError)


def _refuse(ctx: RequestContext, request: Any, error: BaseException) -> Any:  # noqa: ARG001
    has_words = isinstance(error, KafkaError) and not isinstance(error, _WORDLESS)
    message = str(error) or None if has_words else None
    return ctx.respond(error_code=wire_code(error), error_message=message, status=())


@handles(ApiKey.STREAMS_GROUP_HEARTBEAT, versions=(0, 1), on_error=_refuse)
async def streams_group_heartbeat(ctx: RequestContext, request: Any) -> Any:
    check_streams_protocol(ctx.broker)
    heartbeat = _heartbeat(ctx, request)
    if heartbeat.topology is not None:
        _check_topics(ctx, heartbeat.topology)
    streams.check_streams_heartbeat(request.group_id, heartbeat)
    outcome = await ctx.broker.groups.streams_heartbeat(request.group_id, heartbeat)
    if not isinstance(outcome, streams.StreamsOutcome):
        return _answer(ctx, outcome, ())
    return _answer(ctx, outcome.reply, _statuses_with_topics(ctx, outcome))


def _heartbeat(ctx: RequestContext, request: Any) -> streams.StreamsHeartbeat:
    endpoint = request.user_endpoint
    return streams.StreamsHeartbeat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        endpoint_epoch=request.endpoint_information_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=to_ms(request.rebalance_timeout),
        topology=None if request.topology is None else _topology(request.topology),
        active=_tasks(request.active_tasks),
        standby=_tasks(request.standby_tasks),
        warmup=_tasks(request.warmup_tasks),
        process_id=request.process_id,
        endpoint=None if endpoint is None else streams.UserEndpoint(endpoint.host, endpoint.port),
        tags=_pairs(request.client_tags),
        offsets=_offsets(request.task_offsets),
        end_offsets=_offsets(request.task_end_offsets),
        shutdown=request.shutdown_application,
        client_id=ctx.client_id or "",
        client_host=f"/{ctx.peer.client_host}",  # as Java prints an address without a name
        version=ctx.version,
    )


def _topology(said: Any) -> streams.StreamsTopology:
    return streams.StreamsTopology(said.epoch, tuple([_subtopology(part) for part in said.subtopologies]))


def _subtopology(part: Any) -> streams.Subtopology:
    return streams.Subtopology(
        subtopology_id=part.subtopology_id,
        source_topics=part.source_topics,
        source_topic_regex=part.source_topic_regex,
        changelogs=tuple([_internal_topic(topic) for topic in part.state_changelog_topics]),
        repartition_sinks=part.repartition_sink_topics,
        repartition_sources=tuple([_internal_topic(topic) for topic in part.repartition_source_topics]),
        copartition_groups=tuple(
            [
                streams.CopartitionGroup(group.source_topics, group.source_topic_regex, group.repartition_source_topics)
                for group in part.copartition_groups
            ]
        ),
    )


def _internal_topic(topic: Any) -> streams.InternalTopic:
    configs = tuple([(config.key, config.value) for config in topic.topic_configs])
    return streams.InternalTopic(topic.name, topic.partitions, topic.replication_factor, configs)


def _tasks(said: Any) -> Mapping[str, frozenset[int]] | None:
    return None if said is None else {each.subtopology_id: frozenset(each.partitions) for each in said}


def _pairs(said: Any) -> tuple[tuple[str, str], ...] | None:
    return None if said is None else tuple([(each.key, each.value) for each in said])


def _offsets(said: Any) -> tuple[tuple[str, int, int], ...] | None:
    return None if said is None else tuple([(each.subtopology_id, each.partition, each.offset) for each in said])


def _check_topics(ctx: RequestContext, topology: streams.StreamsTopology) -> None:
    """Raise unless all topics of a topology have valid names, and the client may describe them."""
    names = list(
        dict.fromkeys(
            name
            for part in topology.subtopologies
            for name in (
                *part.source_topics,
                *part.repartition_sinks,
                *(topic.name for topic in (*part.repartition_sources, *part.changelogs)),
            )
        )
    )
    prohibited = [name for name in names if name in INTERNAL_TOPICS]
    if prohibited:
        raise InvalidStreamsTopologyError(
            f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is prohibited."
        )
    invalid = [name for name in names if not is_topic_name(name)]
    if invalid:
        raise InvalidStreamsTopologyError(f"Topic names {','.join(invalid)} are not valid topic names.")
    access = ctx.broker.access
    if access is not None:
        seen = access.allowed_names(ctx.peer, ctx.key, AclOperation.DESCRIBE, ResourceType.TOPIC, names)
        if len(seen) < len(names):
            raise TopicAuthorizationFailedError


def _statuses_with_topics(ctx: RequestContext, outcome: streams.StreamsOutcome) -> tuple[streams.StatusDetail, ...]:
    """Start creating missing internal topics; return the statuses of the response, including errors."""
    reply, missing = outcome.reply, outcome.configured.to_create
    if not missing:
        return reply.statuses
    refused = _not_to_create(ctx, list(missing))
    if refused:
        return _with_detail(reply.statuses, f"; Unauthorized to CREATE on topics {', '.join(refused)}.")
    creation = ctx.broker.groups.streams.topic_creation
    creation.begin(ctx, missing, 2 * reply.interval_ms)
    failures = creation.failures(ctx.broker, missing)
    if not failures:
        return reply.statuses
    shown = [f"{name} ({why})" for name, why in failures.items()][:_FAILURES_SHOWN_MAX]
    more = len(failures) - len(shown)
    listed = ", ".join(shown) + (f" and {more} more" if more else "")
    return _with_detail(reply.statuses, f"; Creation failed: {listed}.")


def _not_to_create(ctx: RequestContext, names: list[str]) -> list[str]:
    """Return the topics that the client may not create."""
    access = ctx.broker.access
    if access is None:
        return []
    asked = (ctx.peer, ctx.key, AclOperation.CREATE)
    if access.allows(*asked, ResourceType.CLUSTER, log_denied=False):
        return []
    allowed = access.allowed_names(*asked, ResourceType.TOPIC, names)
    return [name for name in names if name not in allowed]


def _with_detail(statuses: tuple[streams.StatusDetail, ...], more: str) -> tuple[streams.StatusDetail, ...]:
    return tuple(
        [
            streams.StatusDetail(each.status, each.detail + more)
            if each.status is streams.StreamsStatus.MISSING_INTERNAL_TOPICS
            else each
            for each in statuses
        ]
    )


def _answer(ctx: RequestContext, reply: streams.StreamsReply, statuses: tuple[streams.StatusDetail, ...]) -> Any:
    assigned = reply.assigned
    return ctx.respond(
        error_code=0,
        member_id=reply.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval=reply.interval_ms,
        acceptable_recovery_lag=reply.acceptable_recovery_lag if ctx.version else 0,
        task_offset_interval=reply.task_offset_interval_ms,
        status=[ctx.make("Status", status_code=int(each.status), status_detail=each.detail) for each in statuses],
        active_tasks=None if assigned is None else _task_ids(ctx, assigned.active),
        standby_tasks=None if assigned is None else _task_ids(ctx, assigned.standby),
        warmup_tasks=None if assigned is None else _task_ids(ctx, assigned.warmup),
        endpoint_information_epoch=reply.endpoint_epoch,
        partitions_by_user_endpoint=None
        if reply.endpoints is None
        else [_endpoint(ctx, each) for each in reply.endpoints],
    )


def _task_ids(ctx: RequestContext, tasks: Mapping[str, Any]) -> list[Any]:
    return [
        ctx.make("TaskIds", subtopology_id=part, partitions=tuple(sorted(tasks[part])))
        for part in in_hash_order(list(tasks), string_hash)
    ]


def _endpoint(ctx: RequestContext, each: streams.EndpointPartitions) -> Any:
    def partitions(found: tuple[tuple[str, tuple[int, ...]], ...]) -> list[Any]:
        return [ctx.make("TopicPartition", topic=topic, partitions=numbers) for topic, numbers in found]

    return ctx.make(
        "EndpointToPartitions",
        user_endpoint=ctx.make("Endpoint", host=each.endpoint.host, port=each.endpoint.port),
        active_partitions=partitions(each.active),
        standby_partitions=partitions(each.standby),
    )
