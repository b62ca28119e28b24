"""Guards of the APIs of groups and coordinators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from stratalog.broker.access.acls import AclOperation as Op
from stratalog.broker.access.entry_guards import (
    GROUP,
    GROUP_CODE,
    TOPIC,
    TOPIC_CODE,
    TXN_ID,
    TXN_ID_CODE,
    MakeEntry,
    by_name_or_id,
    each_entry,
    is_in,
    plain_index,
    readable_topics,
    refuse_partitions,
    split,
)
from stratalog.broker.access.guard import Asker, Finish, Guard, GuardStep, added, both, only, with_each
from stratalog.errors import (
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
)

_OFFSET_FETCH_ERROR_FROM = 2
_OFFSET_FETCH_GROUPS_FROM = 8
_TRANSACTION, _SHARE = 1, 2
_COORDINATOR_KEYS_FROM = 4


def offset_commit(asker: Asker, request: Any) -> GuardStep:
    types = ("OffsetCommitResponseTopic", "OffsetCommitResponsePartition")
    if not asker.may(Op.READ, GROUP, request.group_id):
        refuse = refuse_partitions(*types, code=GROUP_CODE)
        return GuardStep(answer=asker.ctx.respond(topics=[refuse(asker, topic) for topic in request.topics]))
    return readable_topics(
        asker, request, refuse_partitions("OffsetCommitResponseTopic", "OffsetCommitResponsePartition")
    )


def offset_fetch(asker: Asker, request: Any) -> GuardStep:
    ctx = asker.ctx
    if ctx.version < _OFFSET_FETCH_GROUPS_FROM:
        if asker.may(Op.DESCRIBE, GROUP, request.group_id):
            kept, finish = _fetched_topics(asker, request, "OffsetFetchResponseTopic", "OffsetFetchResponsePartition")
            return GuardStep(kept, finish)
        refuse = _fetched("OffsetFetchResponseTopic", "OffsetFetchResponsePartition", GROUP_CODE)
        topics = (
            [refuse(asker, each) for each in request.topics or ()] if ctx.version < _OFFSET_FETCH_ERROR_FROM else []
        )
        return GuardStep(answer=ctx.respond(topics=topics, error_code=GROUP_CODE))
    kept_groups, refused = [], []
    # By position: a request may contain a group twice, with different topics.
    finishes: list[Finish | None] = []
    for group in request.groups:
        if asker.may(Op.DESCRIBE, GROUP, group.group_id):
            kept, finish = _fetched_topics(asker, group, "OffsetFetchResponseTopics", "OffsetFetchResponsePartitions")
            kept_groups.append(kept)
            finishes.append(finish)
        else:
            refused.append(ctx.make("OffsetFetchResponseGroup", group_id=group.group_id, error_code=GROUP_CODE))
    if not refused and not any(finishes):
        return GuardStep(request)

    def hide(response: Any) -> Any:
        answered = zip(response.groups, finishes, strict=True)
        groups = (group if finish is None or group.error_code else finish(group) for group, finish in answered)
        return replace(response, groups=tuple(groups))

    return GuardStep(replace(request, groups=tuple(kept_groups)), both(hide, added("groups", refused)))


def _fetched(topic_type: str, partition_type: str, code: int) -> MakeEntry:
    return refuse_partitions(
        topic_type,
        partition_type,
        code=code,
        partitions="partition_indexes",
        index=plain_index,
        committed_offset=-1,
        committed_leader_epoch=-1,
        metadata="",
    )


def _fetched_topics(asker: Asker, group: Any, topic_type: str, partition_type: str) -> tuple[Any, Finish | None]:
    """Return the requested group without topics that the client may not describe, and what adds their errors."""
    if group.topics is None:
        return group, only(
            "topics", lambda topic: asker.may(Op.DESCRIBE, TOPIC, by_name_or_id(asker, topic) or "", log_denied=False)
        )
    names = [by_name_or_id(asker, topic) for topic in group.topics]
    allowed = asker.names(Op.DESCRIBE, TOPIC, (name for name in names if name is not None))
    refuse = _fetched(topic_type, partition_type, TOPIC_CODE)
    step = split(asker, group, "topics", "topics", lambda topic: is_in(asker, topic, allowed), refuse)
    return step.request, step.finish


def find_coordinator(asker: Asker, request: Any) -> GuardStep:
    ctx = asker.ctx
    if getattr(request, "key_type", 0) == _SHARE:  # as in Kafka, which checks rights but ignores the result
        return GuardStep(request)
    is_transaction = getattr(request, "key_type", 0) == _TRANSACTION
    resource_type, code = (TXN_ID, TXN_ID_CODE) if is_transaction else (GROUP, GROUP_CODE)
    if ctx.version < _COORDINATOR_KEYS_FROM:
        if asker.may(Op.DESCRIBE, resource_type, request.key):
            return GuardStep(request)
        return GuardStep(answer=ctx.respond(error_code=code, node_id=-1, host="", port=-1))
    allowed = asker.names(Op.DESCRIBE, resource_type, request.coordinator_keys)

    def refuse(_asker: Asker, key: str) -> Any:
        return ctx.make("Coordinator", key=key, node_id=-1, host="", port=-1, error_code=code)

    return split(asker, request, "coordinator_keys", "coordinators", lambda key: key in allowed, refuse)


def describe_groups(group_type: str, request_field: str) -> Guard:
    def refuse(asker: Asker, group_id: str) -> Any:
        operations = -(2**31)
        return asker.ctx.make(group_type, group_id=group_id, error_code=GROUP_CODE, authorized_operations=operations)

    by_entry = each_entry(Op.DESCRIBE, GROUP, request_field, "groups", refuse, name=str)

    def with_operations(asker: Asker, group: Any) -> Any:
        if group.error_code:
            return group
        return replace(group, authorized_operations=asker.operations(GROUP, group.group_id))

    def guard(asker: Asker, request: Any) -> GuardStep:
        step = by_entry(asker, request)
        if not getattr(request, "include_authorized_operations", False):
            return step
        return replace(step, finish=both(with_each("groups", lambda group: with_operations(asker, group)), step.finish))

    return guard


_described_groups_by_id = describe_groups("DescribedGroup", "group_ids")


def list_groups(asker: Asker, request: Any) -> GuardStep:
    if asker.may_cluster(Op.DESCRIBE, log_denied=False):
        return GuardStep(request)
    return GuardStep(
        request, only("groups", lambda group: asker.may(Op.DESCRIBE, GROUP, group.group_id, log_denied=False))
    )


def offset_delete(asker: Asker, request: Any) -> GuardStep:
    if not asker.may(Op.DELETE, GROUP, request.group_id):
        raise GroupAuthorizationFailedError("Group authorization failed.")
    return readable_topics(
        asker, request, refuse_partitions("OffsetDeleteResponseTopic", "OffsetDeleteResponsePartition")
    )


def consumer_group_heartbeat(asker: Asker, request: Any) -> GuardStep:
    if not asker.may(Op.READ, GROUP, request.group_id):
        raise GroupAuthorizationFailedError("Group authorization failed.")
    named = request.subscribed_topic_names or ()
    if len(asker.names(Op.DESCRIBE, TOPIC, named)) < len(set(named)):
        raise TopicAuthorizationFailedError("Topic authorization failed.")
    return GuardStep(request)


def _describe_assigned(topics_of: Callable[[Any], set[str]], message: str, *, shows_operations: bool = False) -> Guard:
    """Hide groups with topics that the client may not describe."""

    def guard(asker: Asker, request: Any) -> GuardStep:
        def hide(group: Any) -> Any:
            topics = topics_of(group)
            if asker.names(Op.DESCRIBE, TOPIC, topics) == topics:
                return group
            return asker.ctx.make(
                "DescribedGroup",
                group_id=group.group_id,
                error_code=TOPIC_CODE,
                error_message=message,
                authorized_operations=group.authorized_operations if shows_operations else -(2**31),
            )

        step = _described_groups_by_id(asker, request)
        return replace(step, finish=both(with_each("groups", hide), step.finish))

    return guard


def _topics_of_consumers(group: Any) -> set[str]:
    parts = (part for member in group.members for part in (member.assignment, member.target_assignment))
    return {topic.topic_name for part in parts for topic in part.topic_partitions}


def _topics_of_share_members(group: Any) -> set[str]:
    return {topic.topic_name for member in group.members for topic in member.assignment.topic_partitions}


def _topics_of_topology(group: Any) -> set[str]:
    names: set[str] = set()
    for part in () if group.topology is None else group.topology.subtopologies:
        names.update(part.source_topics, part.repartition_sink_topics)
        names.update(topic.name for topic in (*part.repartition_source_topics, *part.state_changelog_topics))
    return names


_DESCRIBES = "The group has described topic(s) that the client is not authorized to describe."
_USES = "The described group uses topics that the client is not authorized to describe."
describe_consumer_groups = _describe_assigned(_topics_of_consumers, _DESCRIBES, shows_operations=True)
describe_share_groups = _describe_assigned(_topics_of_share_members, _DESCRIBES)
describe_streams_groups = _describe_assigned(_topics_of_topology, _USES)
