"""Guards of the APIs of topics, partitions and configurations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stratalog.broker.access.acls import AclOperation as Op, ResourceType
from stratalog.broker.access.entry_guards import (
    CLUSTER,
    CLUSTER_CODE,
    GROUP,
    GROUP_CODE,
    TOPIC,
    TOPIC_CODE,
    by_name_or_id,
    each_entry,
    plain_index,
    refuse_partitions,
    split,
)
from stratalog.broker.access.guard import Asker, Finish, Guard, GuardStep, added, both, only, with_each
from stratalog.wire import make_message, message_module

_METADATA_NULL_NAMES_FROM = 12
_CREATED_CONFIGS_FROM = 5
_DELETE_BY_ID_FROM = 6
#: Resource types of the configuration APIs.
_CONFIGS_OF_TOPIC, _CONFIGS_OF_GROUP = 2, 32


def metadata_guard(asker: Asker, request: Any) -> GuardStep:
    ctx = asker.ctx
    if request.topics is None or (ctx.version == 0 and not request.topics):
        seen = asker.names(Op.DESCRIBE, TOPIC, (topic.name for topic in ctx.broker.metadata.topics()), log_denied=False)
        return GuardStep(request, both(only("topics", lambda topic: topic.name in seen), _operations(asker, request)))
    refused: dict[Any, Any] = {}
    kept = []
    may_create = getattr(request, "allow_auto_topic_creation", True) and ctx.broker.config["auto.create.topics.enable"]
    for topic in dict.fromkeys(request.topics):
        by_id = getattr(topic, "topic_id", None) is not None
        name = by_name_or_id(asker, topic)
        is_refused = name is not None and not (
            asker.may(Op.DESCRIBE, TOPIC, name)
            and (
                not may_create
                or ctx.broker.metadata.topic(name) is not None
                or asker.may_cluster(Op.CREATE, log_denied=False)
                or asker.may(Op.CREATE, TOPIC, name)
            )
        )
        if is_refused:
            shown = None if by_id and ctx.version >= _METADATA_NULL_NAMES_FROM else "" if by_id else name
            refused[topic] = ctx.make(
                "MetadataResponseTopic", error_code=TOPIC_CODE, name=shown, topic_id=getattr(topic, "topic_id", None)
            )
        else:
            kept.append(topic)
    operations = _operations(asker, request)
    if not refused:
        return GuardStep(request, operations)
    if kept or ctx.version > 0:
        return GuardStep(replace(request, topics=tuple(kept)), both(operations, added("topics", refused.values())))
    # In version 0 an empty array means all topics.
    return GuardStep(request, lambda response: replace(response, topics=tuple(refused.values())))


def _operations(asker: Asker, request: Any) -> Finish | None:
    """Return a function that adds the authorized operations to a Metadata response."""
    finish: Finish | None = None
    if getattr(request, "include_topic_authorized_operations", False):
        finish = with_each("topics", lambda topic: _with_topic_operations(asker, topic))
    if getattr(request, "include_cluster_authorized_operations", False):
        finish = both(finish, lambda response: _with_cluster_operations(asker, response))
    return finish


def _with_topic_operations(asker: Asker, topic: Any) -> Any:
    if not topic.name:
        return topic
    return replace(topic, topic_authorized_operations=asker.operations(TOPIC, topic.name))


def _with_cluster_operations(asker: Asker, response: Any) -> Any:
    may_see = asker.may_cluster(Op.DESCRIBE)
    return replace(response, cluster_authorized_operations=asker.operations(CLUSTER) if may_see else 0)


def describe_cluster(asker: Asker, request: Any) -> GuardStep:
    if request.include_cluster_authorized_operations:
        return GuardStep(
            request, lambda response: response if response.error_code else _with_cluster_operations(asker, response)
        )
    return GuardStep(request)


def describe_topic_partitions(asker: Asker, request: Any) -> GuardStep:
    ctx = asker.ctx
    operations = with_each("topics", lambda topic: _with_topic_operations(asker, topic))
    named = [topic.name for topic in request.topics]
    if not named:
        every = [topic.name for topic in ctx.broker.metadata.topics()]
        seen = asker.names(Op.DESCRIBE, TOPIC, every, log_denied=False)
        if not seen:
            return GuardStep(answer=ctx.respond(topics=(), next_cursor=None))
        kind = message_module(ctx.key, ctx.version, "request").TopicRequest
        topics = tuple(make_message(kind, {"name": name}) for name in sorted(seen))
        return GuardStep(replace(request, topics=topics), operations)
    seen = asker.names(Op.DESCRIBE, TOPIC, named)
    refused = [
        ctx.make(
            "DescribeTopicPartitionsResponseTopic",
            error_code=TOPIC_CODE,
            name=name,
            topic_authorized_operations=-(2**31),
        )
        for name in dict.fromkeys(named)
        if name not in seen
    ]
    if not seen:
        return GuardStep(answer=ctx.respond(topics=refused, next_cursor=None))
    kept = tuple(topic for topic in request.topics if topic.name in seen)
    return GuardStep(replace(request, topics=kept), both(operations, added("topics", refused)))


def create_topics(asker: Asker, request: Any) -> GuardStep:
    ctx = asker.ctx
    names = [topic.name for topic in request.topics]
    may_all = asker.may_cluster(Op.CREATE, log_denied=False)
    allowed = set(names) if may_all else asker.names(Op.CREATE, TOPIC, names)

    def refuse(_asker: Asker, topic: Any) -> Any:
        return ctx.make(
            "CreatableTopicResult",
            name=topic.name,
            error_code=TOPIC_CODE,
            error_message="Authorization failed.",
            num_partitions=-1,
            replication_factor=-1,
            configs=(),
        )

    step = split(asker, request, "topics", "topics", lambda topic: topic.name in allowed, refuse)
    if ctx.version < _CREATED_CONFIGS_FROM:
        return step
    seen = asker.names(Op.DESCRIBE_CONFIGS, TOPIC, names, log_denied=False)

    def hide(topic: Any) -> Any:
        if topic.error_code or topic.name in seen:
            return topic
        return replace(
            topic,
            topic_config_error_code=type(topic.topic_config_error_code)(TOPIC_CODE),
            num_partitions=-1,
            replication_factor=-1,
            configs=(),
        )

    return replace(step, finish=both(with_each("topics", hide), step.finish))


def delete_topics(asker: Asker, request: Any) -> GuardStep:
    if asker.may_cluster(Op.DELETE, log_denied=False):
        return GuardStep(request)
    make = asker.ctx.make
    if asker.ctx.version < _DELETE_BY_ID_FROM:
        allowed = asker.names(Op.DELETE, TOPIC, asker.names(Op.DESCRIBE, TOPIC, request.topic_names))

        def refuse_name(_asker: Asker, name: str) -> Any:
            return make("DeletableTopicResult", name=name, error_code=TOPIC_CODE)

        return split(
            asker,
            request,
            "topic_names",
            "responses",
            lambda name: name in allowed or _is_seen_to_be_missing(asker, name),
            refuse_name,
        )

    def is_allowed(topic: Any) -> bool:
        name = by_name_or_id(asker, topic)
        if name is None or (topic.name is not None and topic.topic_id is not None):
            return True  # the error reveals nothing about any topic
        if topic.topic_id is None and _is_seen_to_be_missing(asker, name):
            return True
        return asker.may(Op.DESCRIBE, TOPIC, name) and asker.may(Op.DELETE, TOPIC, name)

    def refuse(_asker: Asker, topic: Any) -> Any:
        name = topic.name
        if name is None:
            found = by_name_or_id(asker, topic)
            name = found if found is not None and asker.may(Op.DESCRIBE, TOPIC, found) else None
        return make("DeletableTopicResult", name=name, topic_id=topic.topic_id, error_code=TOPIC_CODE)

    return split(asker, request, "topics", "responses", is_allowed, refuse)


def _is_seen_to_be_missing(asker: Asker, name: str) -> bool:
    """Return whether a topic does not exist, and the client may know that."""
    return asker.ctx.broker.metadata.topic(name) is None and asker.may(Op.DESCRIBE, TOPIC, name)


def configs_guard(operation: Op, response_field: str, make_type: str, **blank: Any) -> Guard:
    """Guard an API of configurations: topics and groups by name, all else as the cluster."""

    def question(resource: Any) -> tuple[ResourceType, str, int]:
        if resource.resource_type == _CONFIGS_OF_TOPIC:
            return TOPIC, resource.resource_name, TOPIC_CODE
        if resource.resource_type == _CONFIGS_OF_GROUP:
            return GROUP, resource.resource_name, GROUP_CODE
        return CLUSTER, "kafka-cluster", CLUSTER_CODE

    def refuse(asker: Asker, resource: Any) -> Any:
        return asker.ctx.make(
            make_type,
            error_code=question(resource)[2],
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            **blank,
        )

    def guard(asker: Asker, request: Any) -> GuardStep:
        asked = {question(resource)[:2] for resource in request.resources}
        allowed = {each for each in asked if asker.may(operation, *each)}
        return split(
            asker, request, "resources", response_field, lambda resource: question(resource)[:2] in allowed, refuse
        )

    return guard


def describe_log_dirs(asker: Asker, request: Any) -> GuardStep:
    if asker.may_cluster(Op.DESCRIBE):
        return GuardStep(request)
    return GuardStep(answer=asker.ctx.respond(error_code=CLUSTER_CODE, results=()))


def elect_leaders(asker: Asker, request: Any) -> GuardStep:
    if asker.may_cluster(Op.ALTER):
        return GuardStep(request)
    refuse = refuse_partitions(
        "ReplicaElectionResult",
        "PartitionResult",
        code=CLUSTER_CODE,
        index=plain_index,
        index_field="partition_id",
        answered_in="partition_result",
        name_field="topic",
    )
    refused = [refuse(asker, topic) for topic in request.topic_partitions or ()]
    return GuardStep(answer=asker.ctx.respond(error_code=CLUSTER_CODE, replica_election_results=refused))


def offset_for_leader_epoch(asker: Asker, request: Any) -> GuardStep:
    if asker.may_cluster(Op.CLUSTER_ACTION, log_denied=False):
        return GuardStep(request)
    return _offsets_of_epochs(asker, request)


_offsets_of_epochs = each_entry(
    Op.DESCRIBE,
    TOPIC,
    "topics",
    "topics",
    refuse_partitions(
        "OffsetForLeaderTopicResult",
        "EpochEndOffset",
        index=lambda partition: int(partition.partition),
        index_field="partition",
        name_field="topic",
        leader_epoch=-1,
        end_offset=-1,
    ),
    name=lambda topic: str(topic.topic),
)
