"""StreamsGroupDescribe (89): state, epochs, topology and members of streams groups (KIP-1071).

v0 and v1. v1: the assignor, and the status of a stored topology description: never stored here, as in Kafka without a
plug-in for it. A group of another type is GROUP_ID_NOT_FOUND. While the feature `streams.version` is 0:
UNSUPPORTED_VERSION for every group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stratalog.broker.described_groups import described_group, refuse_groups, refused_group
from stratalog.broker.groups import GROUP_OPERATIONS, OPERATIONS_UNKNOWN, check_streams_protocol, streams
from stratalog.broker.java_hashing import in_hash_order, string_hash
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.errors import InvalidGroupIdError, KafkaError

#: Status of the topology description.
_NOT_REQUESTED, _NOT_STORED = 0, 1


@handles(ApiKey.STREAMS_GROUP_DESCRIBE, versions=(0, 1), on_error=refuse_groups)
async def streams_group_describe(ctx: RequestContext, request: Any) -> Any:
    check_streams_protocol(ctx.broker)
    operations = GROUP_OPERATIONS if request.include_authorized_operations else OPERATIONS_UNKNOWN
    status = _NOT_STORED if getattr(request, "include_topology_description", False) else _NOT_REQUESTED
    return ctx.respond(
        groups=[_describe(ctx, group_id, operations, status) async for group_id in ctx.in_turns(request.group_ids)]
    )


def _describe(ctx: RequestContext, group_id: str, operations: int, status: int) -> Any:
    try:
        if not group_id:
            raise InvalidGroupIdError
        group = ctx.broker.groups.described_as(group_id, streams.StreamsGroup)
    except InvalidGroupIdError as error:
        return refused_group(ctx, group_id, error.code, None)
    except KafkaError as error:
        return refused_group(ctx, group_id, error.code, str(error))
    return described_group(
        ctx,
        group,
        topology=_topology(ctx, group),
        members=[_member(ctx, group, member) for member in group.members.values()],
        authorized_operations=operations,
        topology_description_status=status,
        assignor_name=streams.ASSIGNOR,
    )


def _topology(ctx: RequestContext, group: streams.StreamsGroup) -> Any:
    """Describe the application's topology, with partition counts once all of its topics exist."""
    assert group.topology is not None
    configured = group.configured
    parts = {} if configured is None or not configured.is_ready else configured.parts or {}
    described = []
    for part_id, said in sorted(group.topology.by_id().items()):
        part = parts.get(part_id)
        changelogs = said.changelogs if part is None else part.changelogs
        sources = said.repartition_sources if part is None else part.repartition_sources
        described.append(
            ctx.make(
                "Subtopology",
                subtopology_id=part_id,
                source_topics=tuple(sorted(said.source_topics)),
                repartition_sink_topics=tuple(sorted(said.repartition_sinks)),
                state_changelog_topics=_internal_topics(ctx, changelogs, in_order=part is None),
                repartition_source_topics=_internal_topics(ctx, sources, in_order=part is None),
            )
        )
    return ctx.make("Topology", epoch=group.topology.epoch, subtopologies=described)


def _internal_topics(ctx: RequestContext, topics: Iterable[streams.InternalTopic], *, in_order: bool) -> list[Any]:
    described = []
    for topic in sorted(topics, key=lambda topic: topic.name):
        configs = dict(topic.configs)
        keys = list(configs) if in_order else in_hash_order(list(configs), string_hash)
        described.append(
            ctx.make(
                "TopicInfo",
                name=topic.name,
                partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                topic_configs=[ctx.make("KeyValue", key=key, value=configs[key]) for key in keys],
            )
        )
    return described


def _member(ctx: RequestContext, group: streams.StreamsGroup, member: streams.StreamsMember) -> Any:
    facts, assigned = member.facts, member.current.assigned
    target = group.targets.get(member.member_id, streams.Tasks())
    endpoint = facts.endpoint
    return ctx.make(
        "Member",
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=facts.instance_id,
        rack_id=facts.rack_id,
        client_id=facts.client_id,
        client_host=facts.client_host,
        topology_epoch=facts.topology_epoch,
        process_id=facts.process_id,
        user_endpoint=None if endpoint is None else ctx.make("Endpoint", host=endpoint.host, port=endpoint.port),
        client_tags=[
            ctx.make("KeyValue", key=key, value=facts.tags[key]) for key in in_hash_order(list(facts.tags), string_hash)
        ],
        task_offsets=_offsets(ctx, group.offsets.get(member.member_id, {})),
        task_end_offsets=_offsets(ctx, group.end_offsets.get(member.member_id, {})),
        assignment=_assignment(ctx, (assigned.active, assigned.standby, assigned.warmup)),
        target_assignment=_assignment(ctx, (target.active, target.standby, target.warmup)),
    )


def _offsets(ctx: RequestContext, offsets: Mapping[str, Mapping[int, int]]) -> list[Any]:
    return [
        ctx.make("TaskOffset", subtopology_id=part, partition=number, offset=offset)
        for part, found in sorted(offsets.items())
        for number, offset in sorted(found.items())
    ]


def _assignment(ctx: RequestContext, kinds: Iterable[Mapping[str, Iterable[int]]]) -> Any:
    active, standby, warmup = [
        [ctx.make("TaskIds", subtopology_id=part, partitions=tuple(sorted(tasks[part]))) for part in sorted(tasks)]
        for tasks in kinds
    ]
    return ctx.make("Assignment", active_tasks=active, standby_tasks=standby, warmup_tasks=warmup)
