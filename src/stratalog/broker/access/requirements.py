"""What each API asks of the authorizer: the table, and the guards that it is made of.

As Kafka's `KafkaApis` and `ControllerApis`: a client that may not describe a topic learns nothing of it, not even
whether it is there, and an entry that is refused has the error code that Kafka gives it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from stratalog.broker.access.acls import AclOperation as Op, ResourceType
from stratalog.broker.access.guard import Asker, Finish, Guard, GuardStep, added, between_brokers, both, only, with_each
from stratalog.broker.security import Principal, may_ask_for_tokens
from stratalog.errors import (
    ClusterAuthorizationFailedError,
    DelegationTokenAuthorizationFailedError,
    GroupAuthorizationFailedError,
    OperationNotAttemptedError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from stratalog.wire import ApiKey, make_message, message_module

TOPIC, GROUP, CLUSTER, TXN_ID, TOKEN, USER = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.DELEGATION_TOKEN,
    ResourceType.USER,
)
_TOPIC_CODE: Final = TopicAuthorizationFailedError.code
_GROUP_CODE: Final = GroupAuthorizationFailedError.code
_CLUSTER_CODE: Final = ClusterAuthorizationFailedError.code
_TXN_ID_CODE: Final = TransactionalIdAuthorizationFailedError.code

#: Resource types of the configuration APIs.
_CONFIGS_OF_TOPIC, _CONFIGS_OF_GROUP = 2, 32
_TRANSACTION, _SHARE = 1, 2

#: (client, entry of the request) -> entry of the response that says that it is refused.
MakeEntry = Callable[[Asker, Any], Any]


# --- guards of the request as a whole ---------------------------------------------------------------------------------


def _cluster(operation: Op) -> Guard:
    def guard(asker: Asker, request: Any) -> GuardStep:
        if not asker.may_cluster(operation):
            raise ClusterAuthorizationFailedError("Cluster authorization failed.")
        return GuardStep(request)

    return guard


def _share_states(result: str, **refused: Any) -> Guard:
    """Guard an API of share states: each partition has the error."""

    def guard(asker: Asker, request: Any) -> GuardStep:
        if asker.may_cluster(Op.CLUSTER_ACTION):
            return GuardStep(request)
        make = asker.ctx.make
        fields = {"error_code": _CLUSTER_CODE, "error_message": "Cluster authorization failed.", **refused}
        results = [
            make(
                result,
                topic_id=topic.topic_id,
                partitions=tuple(
                    [make("PartitionResult", partition=asked.partition, **fields) for asked in topic.partitions]
                ),
            )
            for topic in request.topics
        ]
        return GuardStep(answer=asker.ctx.respond(results=results))

    return guard


def _cluster_entries(operation: Op, request_field: str, response_field: str, refuse: MakeEntry) -> Guard:
    """Guard an API without an error code of its own: each entry has it."""

    def guard(asker: Asker, request: Any) -> GuardStep:
        if asker.may_cluster(operation):
            return GuardStep(request)
        refused = [refuse(asker, entry) for entry in getattr(request, request_field) or ()]
        return GuardStep(answer=asker.ctx.respond(**{response_field: refused}))

    return guard


def _group(operation: Op) -> Guard:
    def guard(asker: Asker, request: Any) -> GuardStep:
        if not asker.may(operation, GROUP, request.group_id):
            raise GroupAuthorizationFailedError("Group authorization failed.")
        return GuardStep(request)

    return guard


def _transactional_id(asker: Asker, request: Any) -> GuardStep:
    if not asker.may(Op.WRITE, TXN_ID, request.transactional_id):
        raise TransactionalIdAuthorizationFailedError("Transactional Id authorization failed.")
    return GuardStep(request)


# --- guards of entries ------------------------------------------------------------------------------------------------


def _entries(
    operation: Op,
    resource_type: ResourceType,
    request_field: str,
    response_field: str,
    refuse: MakeEntry,
    *,
    name: Callable[[Any], str] = lambda entry: str(entry.name),
) -> Guard:
    """Guard an API that does the same to each resource of a list."""

    def guard(asker: Asker, request: Any) -> GuardStep:
        entries = getattr(request, request_field)
        allowed = asker.names(operation, resource_type, map(name, entries))
        return _split(asker, request, request_field, response_field, lambda entry: name(entry) in allowed, refuse)

    return guard


def _split(
    asker: Asker,
    request: Any,
    request_field: str,
    response_field: str,
    is_allowed: Callable[[Any], bool],
    refuse: MakeEntry,
) -> GuardStep:
    """Let the allowed entries go on; the others are refused in the answer."""
    entries = getattr(request, request_field)
    kept = tuple(entry for entry in entries if is_allowed(entry))
    if len(kept) == len(entries):
        return GuardStep(request)
    refused = [refuse(asker, entry) for entry in entries if not is_allowed(entry)]
    return GuardStep(replace(request, **{request_field: kept}), added(response_field, refused))


def _partitions(
    topic_type: str,
    partition_type: str,
    *,
    code: int = _TOPIC_CODE,
    partitions: str = "partitions",
    index: Callable[[Any], int] = lambda partition: int(partition.partition_index),
    index_field: str = "partition_index",
    code_field: str = "error_code",
    answered_in: str = "partitions",
    name_field: str = "name",
    **blank: Any,
) -> MakeEntry:
    """Return what refuses each partition of a topic."""

    def refuse(asker: Asker, topic: Any) -> Any:
        make = asker.ctx.make
        fields = {
            name_field: getattr(topic, name_field, None),
            answered_in: [
                make(partition_type, **{index_field: index(each), code_field: code}, **blank)
                for each in getattr(topic, partitions)
            ],
        }
        if getattr(topic, "topic_id", None) is not None:
            fields["topic_id"] = topic.topic_id
        return make(topic_type, **fields)

    return refuse


def _by_name_or_id(asker: Asker, topic: Any) -> str | None:
    """Return the name of a topic of a request; None when it is named by an id that is unknown."""
    name = getattr(topic, "name", None)
    topic_id = getattr(topic, "topic_id", None)
    if topic_id is None:
        return name
    found = asker.ctx.broker.metadata.topic_by_id(topic_id)
    return None if found is None else found.name


def _plain_index(partition: Any) -> int:
    return int(partition)


# --- Metadata and its kin ---------------------------------------------------------------------------------------------


def _metadata(asker: Asker, request: Any) -> GuardStep:
    ctx = asker.ctx
    if request.topics is None or (ctx.version == 0 and not request.topics):
        seen = asker.names(Op.DESCRIBE, TOPIC, (topic.name for topic in ctx.broker.metadata.topics()), log_denied=False)
        return GuardStep(request, both(only("topics", lambda topic: topic.name in seen), _operations(asker, request)))
    refused: dict[Any, Any] = {}
    kept = []
    may_create = getattr(request, "allow_auto_topic_creation", True) and ctx.broker.config["auto.create.topics.enable"]
    for topic in dict.fromkeys(request.topics):
        by_id = getattr(topic, "topic_id", None) is not None
        name = _by_name_or_id(asker, topic)
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
                "MetadataResponseTopic", error_code=_TOPIC_CODE, name=shown, topic_id=getattr(topic, "topic_id", None)
            )
        else:
            kept.append(topic)
    operations = _operations(asker, request)
    if not refused:
        return GuardStep(request, operations)
    if kept or ctx.version > 0:
        return GuardStep(replace(request, topics=tuple(kept)), both(operations, added("topics", refused.values())))
    # In version 0 no topics are all topics.
    return GuardStep(request, lambda response: replace(response, topics=tuple(refused.values())))


_METADATA_NULL_NAMES_FROM = 12


def _operations(asker: Asker, request: Any) -> Finish | None:
    """Return what writes into an answer of Metadata what the client may do."""
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


def _describe_cluster(asker: Asker, request: Any) -> GuardStep:
    if request.include_cluster_authorized_operations:
        return GuardStep(
            request, lambda response: response if response.error_code else _with_cluster_operations(asker, response)
        )
    return GuardStep(request)


def _describe_topic_partitions(asker: Asker, request: Any) -> GuardStep:
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
            error_code=_TOPIC_CODE,
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


# --- groups -----------------------------------------------------------------------------------------------------------


def _offset_commit(asker: Asker, request: Any) -> GuardStep:
    if not asker.may(Op.READ, GROUP, request.group_id):
        refuse = _partitions("OffsetCommitResponseTopic", "OffsetCommitResponsePartition", code=_GROUP_CODE)
        return GuardStep(answer=asker.ctx.respond(topics=[refuse(asker, topic) for topic in request.topics]))
    return _readable_topics(asker, request, _partitions("OffsetCommitResponseTopic", "OffsetCommitResponsePartition"))


def _readable_topics(asker: Asker, request: Any, refuse: MakeEntry) -> GuardStep:
    names = [_by_name_or_id(asker, topic) for topic in request.topics]
    allowed = asker.names(Op.READ, TOPIC, (name for name in names if name is not None))
    return _split(asker, request, "topics", "topics", lambda topic: _is_in(asker, topic, allowed), refuse)


def _is_in(asker: Asker, topic: Any, allowed: set[str]) -> bool:
    """Return whether a topic is among these, or named by an unknown id."""
    name = _by_name_or_id(asker, topic)
    return name is None or name in allowed


def _offset_fetch(asker: Asker, request: Any) -> GuardStep:
    ctx = asker.ctx
    if ctx.version < _OFFSET_FETCH_GROUPS_FROM:
        if asker.may(Op.DESCRIBE, GROUP, request.group_id):
            kept, finish = _fetched_topics(asker, request, "OffsetFetchResponseTopic", "OffsetFetchResponsePartition")
            return GuardStep(kept, finish)
        refuse = _fetched("OffsetFetchResponseTopic", "OffsetFetchResponsePartition", _GROUP_CODE)
        topics = (
            [refuse(asker, each) for each in request.topics or ()] if ctx.version < _OFFSET_FETCH_ERROR_FROM else []
        )
        return GuardStep(answer=ctx.respond(topics=topics, error_code=_GROUP_CODE))
    kept_groups, refused = [], []
    # By position: a request may name a group twice, and ask for different topics of it.
    finishes: list[Finish | None] = []
    for group in request.groups:
        if asker.may(Op.DESCRIBE, GROUP, group.group_id):
            kept, finish = _fetched_topics(asker, group, "OffsetFetchResponseTopics", "OffsetFetchResponsePartitions")
            kept_groups.append(kept)
            finishes.append(finish)
        else:
            refused.append(ctx.make("OffsetFetchResponseGroup", group_id=group.group_id, error_code=_GROUP_CODE))
    if not refused and not any(finishes):
        return GuardStep(request)

    def hide(response: Any) -> Any:
        answered = zip(response.groups, finishes, strict=True)
        groups = (group if finish is None or group.error_code else finish(group) for group, finish in answered)
        return replace(response, groups=tuple(groups))

    return GuardStep(replace(request, groups=tuple(kept_groups)), both(hide, added("groups", refused)))


_OFFSET_FETCH_ERROR_FROM = 2
_OFFSET_FETCH_GROUPS_FROM = 8


def _fetched(topic_type: str, partition_type: str, code: int) -> MakeEntry:
    return _partitions(
        topic_type,
        partition_type,
        code=code,
        partitions="partition_indexes",
        index=_plain_index,
        committed_offset=-1,
        committed_leader_epoch=-1,
        metadata="",
    )


def _fetched_topics(asker: Asker, group: Any, topic_type: str, partition_type: str) -> tuple[Any, Finish | None]:
    """Return what is asked of a group, without topics that the client may not describe, and what names them."""
    if group.topics is None:
        return group, only(
            "topics", lambda topic: asker.may(Op.DESCRIBE, TOPIC, _by_name_or_id(asker, topic) or "", log_denied=False)
        )
    names = [_by_name_or_id(asker, topic) for topic in group.topics]
    allowed = asker.names(Op.DESCRIBE, TOPIC, (name for name in names if name is not None))
    refuse = _fetched(topic_type, partition_type, _TOPIC_CODE)
    step = _split(asker, group, "topics", "topics", lambda topic: _is_in(asker, topic, allowed), refuse)
    return step.request, step.finish


def _find_coordinator(asker: Asker, request: Any) -> GuardStep:
    ctx = asker.ctx
    if getattr(request, "key_type", 0) == _SHARE:  # as in Kafka, which looks at rights and goes on whatever they are
        return GuardStep(request)
    is_transaction = getattr(request, "key_type", 0) == _TRANSACTION
    resource_type, code = (TXN_ID, _TXN_ID_CODE) if is_transaction else (GROUP, _GROUP_CODE)
    if ctx.version < _COORDINATOR_KEYS_FROM:
        if asker.may(Op.DESCRIBE, resource_type, request.key):
            return GuardStep(request)
        return GuardStep(answer=ctx.respond(error_code=code, node_id=-1, host="", port=-1))
    allowed = asker.names(Op.DESCRIBE, resource_type, request.coordinator_keys)

    def refuse(_asker: Asker, key: str) -> Any:
        return ctx.make("Coordinator", key=key, node_id=-1, host="", port=-1, error_code=code)

    return _split(asker, request, "coordinator_keys", "coordinators", lambda key: key in allowed, refuse)


_COORDINATOR_KEYS_FROM = 4


def _describe_groups(group_type: str, request_field: str) -> Guard:
    def refuse(asker: Asker, group_id: str) -> Any:
        operations = -(2**31)
        return asker.ctx.make(group_type, group_id=group_id, error_code=_GROUP_CODE, authorized_operations=operations)

    by_entry = _entries(Op.DESCRIBE, GROUP, request_field, "groups", refuse, name=str)

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


_described_groups_by_id = _describe_groups("DescribedGroup", "group_ids")


def _list_groups(asker: Asker, request: Any) -> GuardStep:
    if asker.may_cluster(Op.DESCRIBE, log_denied=False):
        return GuardStep(request)
    return GuardStep(
        request, only("groups", lambda group: asker.may(Op.DESCRIBE, GROUP, group.group_id, log_denied=False))
    )


def _offset_delete(asker: Asker, request: Any) -> GuardStep:
    if not asker.may(Op.DELETE, GROUP, request.group_id):
        raise GroupAuthorizationFailedError("Group authorization failed.")
    return _readable_topics(asker, request, _partitions("OffsetDeleteResponseTopic", "OffsetDeleteResponsePartition"))


def _consumer_group_heartbeat(asker: Asker, request: Any) -> GuardStep:
    if not asker.may(Op.READ, GROUP, request.group_id):
        raise GroupAuthorizationFailedError("Group authorization failed.")
    named = request.subscribed_topic_names or ()
    if len(asker.names(Op.DESCRIBE, TOPIC, named)) < len(set(named)):
        raise TopicAuthorizationFailedError("Topic authorization failed.")
    return GuardStep(request)


def _describe_consumer_groups(asker: Asker, request: Any) -> GuardStep:
    """Hide groups that read topics which the client may not describe."""
    step = _described_groups_by_id(asker, request)

    def is_seen(group: Any) -> bool:
        parts = (part for member in group.members for part in (member.assignment, member.target_assignment))
        names = {topic.topic_name for part in parts for topic in part.topic_partitions}
        return asker.names(Op.DESCRIBE, TOPIC, names) == names

    def hide(group: Any) -> Any:
        if group.error_code or is_seen(group):
            return group
        return asker.ctx.make(
            "DescribedGroup",
            group_id=group.group_id,
            error_code=_TOPIC_CODE,
            error_message="The group has described topic(s) that the client is not authorized to describe.",
            authorized_operations=group.authorized_operations,
        )

    return replace(step, finish=both(with_each("groups", hide), step.finish))


def _describe_share_groups(asker: Asker, request: Any) -> GuardStep:
    """Hide groups that read topics which the client may not describe."""
    step = _described_groups_by_id(asker, request)

    def is_seen(group: Any) -> bool:
        names = {topic.topic_name for member in group.members for topic in member.assignment.topic_partitions}
        return asker.names(Op.DESCRIBE, TOPIC, names) == names

    def hide(group: Any) -> Any:
        if is_seen(group):
            return group
        return asker.ctx.make(
            "DescribedGroup",
            group_id=group.group_id,
            error_code=_TOPIC_CODE,
            error_message="The group has described topic(s) that the client is not authorized to describe.",
            authorized_operations=-(2**31),
        )

    return replace(step, finish=both(with_each("groups", hide), step.finish))


def _describe_streams_groups(asker: Asker, request: Any) -> GuardStep:
    """Hide groups whose topology has topics that the client may not describe."""
    step = _described_groups_by_id(asker, request)

    def is_seen(group: Any) -> bool:
        names: set[str] = set()
        for part in () if group.topology is None else group.topology.subtopologies:
            names.update(part.source_topics, part.repartition_sink_topics)
            names.update(topic.name for topic in (*part.repartition_source_topics, *part.state_changelog_topics))
        return asker.names(Op.DESCRIBE, TOPIC, names) == names

    def hide(group: Any) -> Any:
        if is_seen(group):
            return group
        return asker.ctx.make(
            "DescribedGroup",
            group_id=group.group_id,
            error_code=_TOPIC_CODE,
            error_message="The described group uses topics that the client is not authorized to describe.",
            authorized_operations=-(2**31),
        )

    return replace(step, finish=both(with_each("groups", hide), step.finish))


_TOPIC_REFUSED: Final = "Topic authorization failed."


def _describe_share_offsets(asker: Asker, request: Any) -> GuardStep:
    """Refuse groups, and of the others the topics, that the client may not describe; unless named they are hidden."""
    ctx = asker.ctx
    kept, refused = [], []
    finishes: list[Finish] = []
    for group in request.groups:
        if not asker.may(Op.DESCRIBE, GROUP, group.group_id):
            refused.append(
                ctx.make("DescribeShareGroupOffsetsResponseGroup", group_id=group.group_id, error_code=_GROUP_CODE)
            )
            continue
        named = group.topics or ()
        allowed = asker.names(Op.DESCRIBE, TOPIC, [topic.topic_name for topic in named])
        hidden = [_refused_share_offsets(asker, topic) for topic in named if topic.topic_name not in allowed]
        if hidden:
            group = replace(group, topics=tuple(topic for topic in named if topic.topic_name in allowed))
        kept.append(group)
        finishes.append(added("topics", hidden) if group.topics is not None else _described_share_topics(asker))

    def finish(response: Any) -> Any:
        answered = zip(response.groups, finishes, strict=True)
        groups = tuple([group if group.error_code else change(group) for group, change in answered])
        return replace(response, groups=groups)

    return GuardStep(replace(request, groups=tuple(kept)), both(finish, added("groups", refused)))


def _refused_share_offsets(asker: Asker, topic: Any) -> Any:
    fields = {"start_offset": -1, "leader_epoch": 0, "error_code": _TOPIC_CODE, "error_message": _TOPIC_REFUSED}
    make = asker.ctx.make
    return make(
        "DescribeShareGroupOffsetsResponseTopic",
        topic_name=topic.topic_name,
        topic_id=UUID(int=0),
        partitions=tuple(
            [
                make("DescribeShareGroupOffsetsResponsePartition", partition_index=number, **fields)
                for number in topic.partitions
            ]
        ),
    )


def _described_share_topics(asker: Asker) -> Finish:
    """Return what keeps the topics of a group that the client may describe."""
    return only("topics", lambda topic: asker.may(Op.DESCRIBE, TOPIC, topic.topic_name, log_denied=False))


def _alter_share_offsets(asker: Asker, request: Any) -> GuardStep:
    if not asker.may(Op.READ, GROUP, request.group_id):
        raise GroupAuthorizationFailedError("Group authorization failed.")
    refuse = _partitions(
        "AlterShareGroupOffsetsResponseTopic",
        "AlterShareGroupOffsetsResponsePartition",
        name_field="topic_name",
        error_message=_TOPIC_REFUSED,
    )

    def refuse_with_id(asker: Asker, topic: Any) -> Any:
        known = asker.ctx.broker.metadata.topic(topic.topic_name)
        return replace(refuse(asker, topic), topic_id=UUID(int=0) if known is None else known.topic_id)

    return _readable_by_topic_name(asker, request, refuse_with_id)


def _delete_share_offsets(asker: Asker, request: Any) -> GuardStep:
    if not asker.may(Op.DELETE, GROUP, request.group_id):
        raise GroupAuthorizationFailedError("Group authorization failed.")

    def refuse(asker: Asker, topic: Any) -> Any:
        return asker.ctx.make(
            "DeleteShareGroupOffsetsResponseTopic",
            topic_name=topic.topic_name,
            topic_id=UUID(int=0),
            error_code=_TOPIC_CODE,
            error_message=_TOPIC_REFUSED,
        )

    return _readable_by_topic_name(asker, request, refuse)


def _readable_by_topic_name(asker: Asker, request: Any, refuse: MakeEntry) -> GuardStep:
    allowed = asker.names(Op.READ, TOPIC, [topic.topic_name for topic in request.topics])
    step = _split(asker, request, "topics", "responses", lambda topic: topic.topic_name in allowed, refuse)
    finish = step.finish
    if finish is None:
        return step
    # with an error of the whole request Kafka tells nothing of topics
    return replace(step, finish=lambda response: response if response.error_code else finish(response))


# --- transactions -----------------------------------------------------------------------------------------------------


def _init_producer_id(asker: Asker, request: Any) -> GuardStep:
    if request.transactional_id is not None:
        return _transactional_id(asker, request)
    if not asker.may_cluster(Op.IDEMPOTENT_WRITE, log_denied=False) and not asker.may_any(Op.WRITE, TOPIC):
        raise ClusterAuthorizationFailedError("Cluster authorization failed.")
    return GuardStep(request)


def _add_partitions_to_txn(asker: Asker, request: Any) -> GuardStep:
    ctx = asker.ctx
    if ctx.version >= _ADD_PARTITIONS_OF_BROKERS_FROM:
        return between_brokers(asker, request)

    def refuse_all(code_of: Callable[[str], int]) -> GuardStep:
        topics = [
            _partitions(
                "AddPartitionsToTxnTopicResult",
                "AddPartitionsToTxnPartitionResult",
                code=code_of(topic.name),
                index=_plain_index,
                code_field="partition_error_code",
                answered_in="results_by_partition",
            )(asker, topic)
            for topic in request.v3_and_below_topics
        ]
        return GuardStep(answer=ctx.respond(results_by_topic_v3_and_below=topics))

    if not asker.may(Op.WRITE, TXN_ID, request.v3_and_below_transactional_id):
        return refuse_all(lambda _name: _TXN_ID_CODE)
    names = {topic.name for topic in request.v3_and_below_topics}
    allowed = asker.names(Op.WRITE, TOPIC, names)
    if allowed == names:
        return GuardStep(request)

    def code_of(name: str) -> int:
        if name not in allowed:
            return _TOPIC_CODE
        is_known = ctx.broker.metadata.topic(name) is not None
        return OperationNotAttemptedError.code if is_known else UnknownTopicOrPartitionError.code

    return refuse_all(code_of)


_ADD_PARTITIONS_OF_BROKERS_FROM = 4


def _add_offsets_to_txn(asker: Asker, request: Any) -> GuardStep:
    step = _transactional_id(asker, request)
    if not asker.may(Op.READ, GROUP, request.group_id):
        raise GroupAuthorizationFailedError("Group authorization failed.")
    return step


def _txn_offset_commit(asker: Asker, request: Any) -> GuardStep:
    code = 0
    if not asker.may(Op.WRITE, TXN_ID, request.transactional_id):
        code = _TXN_ID_CODE
    elif not asker.may(Op.READ, GROUP, request.group_id):
        code = _GROUP_CODE
    types = ("TxnOffsetCommitResponseTopic", "TxnOffsetCommitResponsePartition")
    if code:
        return GuardStep(
            answer=asker.ctx.respond(topics=[_partitions(*types, code=code)(asker, each) for each in request.topics])
        )
    return _readable_topics(asker, request, _partitions(*types))


def _write_txn_markers(asker: Asker, request: Any) -> GuardStep:
    if asker.may_cluster(Op.ALTER, log_denied=False) or asker.may_cluster(Op.CLUSTER_ACTION):
        return GuardStep(request)
    topic = _partitions(
        "WritableTxnMarkerTopicResult",
        "WritableTxnMarkerPartitionResult",
        code=_CLUSTER_CODE,
        partitions="partition_indexes",
        index=_plain_index,
    )
    make = asker.ctx.make
    return GuardStep(
        answer=asker.ctx.respond(
            markers=[
                make(
                    "WritableTxnMarkerResult",
                    producer_id=each.producer_id,
                    topics=[topic(asker, t) for t in each.topics],
                )
                for each in request.markers
            ]
        )
    )


def _describe_transactions(asker: Asker, request: Any) -> GuardStep:
    def refuse(_asker: Asker, transactional_id: str) -> Any:
        return asker.ctx.make("TransactionState", transactional_id=transactional_id, error_code=_TXN_ID_CODE)

    allowed = asker.names(Op.DESCRIBE, TXN_ID, request.transactional_ids)
    step = _split(asker, request, "transactional_ids", "transaction_states", lambda each: each in allowed, refuse)
    hide = with_each(
        "transaction_states",
        only("topics", lambda data: asker.may(Op.DESCRIBE, TOPIC, data.topic, log_denied=False)),
    )
    return replace(step, finish=both(hide, step.finish))


def _list_transactions(asker: Asker, request: Any) -> GuardStep:
    return GuardStep(
        request,
        only(
            "transaction_states",
            lambda state: asker.may(Op.DESCRIBE, TXN_ID, state.transactional_id, log_denied=False),
        ),
    )


# --- topics and configurations ----------------------------------------------------------------------------------------


def _create_topics(asker: Asker, request: Any) -> GuardStep:
    ctx = asker.ctx
    names = [topic.name for topic in request.topics]
    may_all = asker.may_cluster(Op.CREATE, log_denied=False)
    allowed = set(names) if may_all else asker.names(Op.CREATE, TOPIC, names)

    def refuse(_asker: Asker, topic: Any) -> Any:
        return ctx.make(
            "CreatableTopicResult",
            name=topic.name,
            error_code=_TOPIC_CODE,
            error_message="Authorization failed.",
            num_partitions=-1,
            replication_factor=-1,
            configs=(),
        )

    step = _split(asker, request, "topics", "topics", lambda topic: topic.name in allowed, refuse)
    if ctx.version < _CREATED_CONFIGS_FROM:
        return step
    seen = asker.names(Op.DESCRIBE_CONFIGS, TOPIC, names, log_denied=False)

    def hide(topic: Any) -> Any:
        if topic.error_code or topic.name in seen:
            return topic
        return replace(
            topic,
            topic_config_error_code=type(topic.topic_config_error_code)(_TOPIC_CODE),
            num_partitions=-1,
            replication_factor=-1,
            configs=(),
        )

    return replace(step, finish=both(with_each("topics", hide), step.finish))


_CREATED_CONFIGS_FROM = 5


def _delete_topics(asker: Asker, request: Any) -> GuardStep:
    if asker.may_cluster(Op.DELETE, log_denied=False):
        return GuardStep(request)
    make = asker.ctx.make
    if asker.ctx.version < _DELETE_BY_ID_FROM:
        allowed = asker.names(Op.DELETE, TOPIC, asker.names(Op.DESCRIBE, TOPIC, request.topic_names))

        def refuse_name(_asker: Asker, name: str) -> Any:
            return make("DeletableTopicResult", name=name, error_code=_TOPIC_CODE)

        return _split(
            asker,
            request,
            "topic_names",
            "responses",
            lambda name: name in allowed or _is_seen_to_be_missing(asker, name),
            refuse_name,
        )

    def is_allowed(topic: Any) -> bool:
        name = _by_name_or_id(asker, topic)
        if name is None or (topic.name is not None and topic.topic_id is not None):
            return True  # an error that says nothing about any topic
        if topic.topic_id is None and _is_seen_to_be_missing(asker, name):
            return True
        return asker.may(Op.DESCRIBE, TOPIC, name) and asker.may(Op.DELETE, TOPIC, name)

    def refuse(_asker: Asker, topic: Any) -> Any:
        name = topic.name
        if name is None:
            found = _by_name_or_id(asker, topic)
            name = found if found is not None and asker.may(Op.DESCRIBE, TOPIC, found) else None
        return make("DeletableTopicResult", name=name, topic_id=topic.topic_id, error_code=_TOPIC_CODE)

    return _split(asker, request, "topics", "responses", is_allowed, refuse)


_DELETE_BY_ID_FROM = 6


def _is_seen_to_be_missing(asker: Asker, name: str) -> bool:
    """Return whether a topic is not there, and the client may know it."""
    return asker.ctx.broker.metadata.topic(name) is None and asker.may(Op.DESCRIBE, TOPIC, name)


def _configs(operation: Op, response_field: str, make_type: str, **blank: Any) -> Guard:
    """Guard an API of configurations: topics and groups by name, all else by the cluster."""

    def question(resource: Any) -> tuple[ResourceType, str, int]:
        if resource.resource_type == _CONFIGS_OF_TOPIC:
            return TOPIC, resource.resource_name, _TOPIC_CODE
        if resource.resource_type == _CONFIGS_OF_GROUP:
            return GROUP, resource.resource_name, _GROUP_CODE
        return CLUSTER, "kafka-cluster", _CLUSTER_CODE

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
        return _split(
            asker, request, "resources", response_field, lambda resource: question(resource)[:2] in allowed, refuse
        )

    return guard


def _describe_log_dirs(asker: Asker, request: Any) -> GuardStep:
    if asker.may_cluster(Op.DESCRIBE):
        return GuardStep(request)
    return GuardStep(answer=asker.ctx.respond(error_code=_CLUSTER_CODE, results=()))


def _elect_leaders(asker: Asker, request: Any) -> GuardStep:
    if asker.may_cluster(Op.ALTER):
        return GuardStep(request)
    refuse = _partitions(
        "ReplicaElectionResult",
        "PartitionResult",
        code=_CLUSTER_CODE,
        index=_plain_index,
        index_field="partition_id",
        answered_in="partition_result",
        name_field="topic",
    )
    refused = [refuse(asker, topic) for topic in request.topic_partitions or ()]
    return GuardStep(answer=asker.ctx.respond(error_code=_CLUSTER_CODE, replica_election_results=refused))


def _offset_for_leader_epoch(asker: Asker, request: Any) -> GuardStep:
    if asker.may_cluster(Op.CLUSTER_ACTION, log_denied=False):
        return GuardStep(request)
    return _offsets_of_epochs(asker, request)


def _refused_acl(asker: Asker, _entry: Any) -> Any:
    return asker.ctx.make("AclCreationResult", error_code=_CLUSTER_CODE, error_message="Cluster authorization failed.")


def _refused_acl_filter(asker: Asker, _entry: Any) -> Any:
    return asker.ctx.make(
        "DeleteAclsFilterResult", error_code=_CLUSTER_CODE, error_message="Cluster authorization failed."
    )


def _refused_quota(asker: Asker, entry: Any) -> Any:
    make = asker.ctx.make
    entity = [make("EntityData", entity_type=each.entity_type, entity_name=each.entity_name) for each in entry.entity]
    return make("EntryData", entity=entity, error_code=_CLUSTER_CODE, error_message="Cluster authorization failed.")


def _refused_result(type_name: str, name_field: str, code: int) -> MakeEntry:
    def refuse(asker: Asker, entry: Any) -> Any:
        name = entry if isinstance(entry, str) else getattr(entry, name_field)
        return asker.ctx.make(type_name, **{name_field: name}, error_code=code)

    return refuse


def _refused_user(asker: Asker, name: str) -> Any:
    return asker.ctx.make("AlterUserScramCredentialsResult", user=name, error_code=_CLUSTER_CODE)


def _describe_scram(asker: Asker, request: Any) -> GuardStep:
    if asker.may_cluster(Op.DESCRIBE):
        return GuardStep(request)
    make = asker.ctx.make
    refused = [make("DescribeUserScramCredentialsResult", error_code=_CLUSTER_CODE) for _ in request.users or ()]
    return GuardStep(answer=asker.ctx.respond(error_code=_CLUSTER_CODE, results=refused))


def _alter_scram(asker: Asker, request: Any) -> GuardStep:
    if asker.may_cluster(Op.ALTER):
        return GuardStep(request)
    users = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    return GuardStep(answer=asker.ctx.respond(results=[_refused_user(asker, name) for name in users]))


def _create_token(asker: Asker, request: Any) -> GuardStep:
    """Ask only for tokens in another's name, and only where the client may ask for tokens at all."""
    ctx = asker.ctx
    name = getattr(request, "owner_principal_name", None)
    if not name or not may_ask_for_tokens(ctx.peer):
        return GuardStep(request)
    owner = Principal(request.owner_principal_type or "", name)
    if owner == ctx.principal or asker.may(Op.CREATE_TOKENS, USER, str(owner)):
        return GuardStep(request)
    return GuardStep(
        answer=ctx.respond(
            error_code=DelegationTokenAuthorizationFailedError.code,
            principal_type=owner.kind,
            principal_name=owner.name,
            token_requester_principal_type=ctx.principal.kind,
            token_requester_principal_name=ctx.principal.name,
            issue_timestamp=-1,
            expiry_timestamp=-1,
            max_timestamp=-1,
        )
    )


def _describe_tokens(asker: Asker, request: Any) -> GuardStep:
    """Hide tokens that are not the client's own, unless it may see them or all of their owner's."""

    def is_seen(token: Any) -> bool:
        known = asker.ctx.broker.tokens.get(token.token_id)
        return known is not None and (
            known.concerns(asker.ctx.principal)
            or asker.may(Op.DESCRIBE, TOKEN, known.id)
            or asker.may(Op.DESCRIBE_TOKENS, USER, str(known.owner))
        )

    return GuardStep(request, only("tokens", is_seen))


_offsets_of_epochs = _entries(
    Op.DESCRIBE,
    TOPIC,
    "topics",
    "topics",
    _partitions(
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


#: What each API asks; None: nothing. APIs that are not here are for brokers among themselves. Produce and Fetch ask by
#: themselves: WRITE of each topic and, for records of a transaction, of the transactional id; READ of each topic.
GUARDS: Final[Mapping[ApiKey, Guard | None]] = {
    ApiKey.PRODUCE: None,
    ApiKey.FETCH: None,
    ApiKey.LIST_OFFSETS: _entries(
        Op.DESCRIBE,
        TOPIC,
        "topics",
        "topics",
        _partitions(
            "ListOffsetsTopicResponse", "ListOffsetsPartitionResponse", timestamp=-1, offset=-1, leader_epoch=-1
        ),
    ),
    ApiKey.METADATA: _metadata,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: _group(Op.READ),
    ApiKey.HEARTBEAT: _group(Op.READ),
    ApiKey.LEAVE_GROUP: _group(Op.READ),
    ApiKey.SYNC_GROUP: _group(Op.READ),
    ApiKey.DESCRIBE_GROUPS: _describe_groups("DescribedGroup", "groups"),
    ApiKey.LIST_GROUPS: _list_groups,
    ApiKey.SASL_HANDSHAKE: None,
    ApiKey.API_VERSIONS: None,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: _entries(
        Op.DELETE,
        TOPIC,
        "topics",
        "topics",
        _partitions("DeleteRecordsTopicResult", "DeleteRecordsPartitionResult", low_watermark=-1),
    ),
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: _add_offsets_to_txn,
    ApiKey.END_TXN: _transactional_id,
    ApiKey.WRITE_TXN_MARKERS: _write_txn_markers,
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.DESCRIBE_ACLS: _cluster(Op.DESCRIBE),
    ApiKey.CREATE_ACLS: _cluster_entries(Op.ALTER, "creations", "results", _refused_acl),
    ApiKey.DELETE_ACLS: _cluster_entries(Op.ALTER, "filters", "filter_results", _refused_acl_filter),
    ApiKey.DESCRIBE_CONFIGS: _configs(Op.DESCRIBE_CONFIGS, "results", "DescribeConfigsResult", configs=()),
    ApiKey.ALTER_CONFIGS: _configs(Op.ALTER_CONFIGS, "responses", "AlterConfigsResourceResponse"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _cluster(Op.ALTER),
    ApiKey.DESCRIBE_LOG_DIRS: _describe_log_dirs,
    ApiKey.SASL_AUTHENTICATE: None,
    ApiKey.CREATE_DELEGATION_TOKEN: _create_token,
    ApiKey.RENEW_DELEGATION_TOKEN: None,
    ApiKey.EXPIRE_DELEGATION_TOKEN: None,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _describe_tokens,
    ApiKey.CREATE_PARTITIONS: _entries(
        Op.ALTER, TOPIC, "topics", "results", _refused_result("CreatePartitionsTopicResult", "name", _TOPIC_CODE)
    ),
    ApiKey.DELETE_GROUPS: _entries(
        Op.DELETE,
        GROUP,
        "groups_names",
        "results",
        _refused_result("DeletableGroupResult", "group_id", _GROUP_CODE),
        name=str,
    ),
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs(Op.ALTER_CONFIGS, "responses", "AlterConfigsResourceResponse"),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _cluster(Op.ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _cluster(Op.DESCRIBE),
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _cluster(Op.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: _cluster_entries(Op.ALTER_CONFIGS, "entries", "entries", _refused_quota),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _describe_scram,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_scram,
    ApiKey.DESCRIBE_QUORUM: _cluster(Op.DESCRIBE),
    ApiKey.UPDATE_FEATURES: _cluster(Op.ALTER),
    ApiKey.DESCRIBE_CLUSTER: _describe_cluster,
    ApiKey.DESCRIBE_PRODUCERS: _entries(
        Op.READ,
        TOPIC,
        "topics",
        "topics",
        _partitions("TopicResponse", "PartitionResponse", partitions="partition_indexes", index=_plain_index),
    ),
    ApiKey.UNREGISTER_BROKER: _cluster(Op.ALTER),
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
    ApiKey.LIST_TRANSACTIONS: _list_transactions,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _describe_consumer_groups,
    ApiKey.SHARE_GROUP_HEARTBEAT: _consumer_group_heartbeat,
    ApiKey.SHARE_GROUP_DESCRIBE: _describe_share_groups,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: None,
    ApiKey.PUSH_TELEMETRY: None,
    ApiKey.STREAMS_GROUP_HEARTBEAT: _group(Op.READ),
    ApiKey.STREAMS_GROUP_DESCRIBE: _describe_streams_groups,
    ApiKey.SHARE_FETCH: None,
    ApiKey.SHARE_ACKNOWLEDGE: None,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _share_states("InitializeStateResult"),
    ApiKey.READ_SHARE_GROUP_STATE: _share_states("ReadStateResult", state_epoch=0, start_offset=0, state_batches=()),
    ApiKey.WRITE_SHARE_GROUP_STATE: _share_states("WriteStateResult"),
    ApiKey.DELETE_SHARE_GROUP_STATE: _share_states("DeleteStateResult"),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _share_states(
        "ReadStateSummaryResult", state_epoch=0, leader_epoch=0, start_offset=0
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _describe_share_offsets,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _alter_share_offsets,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _delete_share_offsets,
    ApiKey.LIST_CONFIG_RESOURCES: _cluster(Op.DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions,
}
