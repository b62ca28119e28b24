"""Guards of the APIs of share group offsets and states (KIP-932)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from stratalog.broker.access.acls import AclOperation as Op
from stratalog.broker.access.entry_guards import (
    CLUSTER_CODE,
    GROUP,
    GROUP_CODE,
    TOPIC,
    TOPIC_CODE,
    MakeEntry,
    refuse_partitions,
    split,
)
from stratalog.broker.access.guard import Asker, Finish, Guard, GuardStep, added, both, only
from stratalog.errors import GroupAuthorizationFailedError

_TOPIC_REFUSED: Final = "Topic authorization failed."


def share_states(result: str, **refused: Any) -> Guard:
    """Guard an API of share states, which has an error code for each partition."""

    def guard(asker: Asker, request: Any) -> GuardStep:
        if asker.may_cluster(Op.CLUSTER_ACTION):
            return GuardStep(request)
        make = asker.ctx.make
        fields = {"error_code": CLUSTER_CODE, "error_message": "Cluster authorization failed.", **refused}
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


def describe_share_offsets(asker: Asker, request: Any) -> GuardStep:
    """Refuse groups and topics that the client may not describe; hide such topics if the request does not name them."""
    ctx = asker.ctx
    kept, refused = [], []
    finishes: list[Finish] = []
    for group in request.groups:
        if not asker.may(Op.DESCRIBE, GROUP, group.group_id):
            refused.append(
                ctx.make("DescribeShareGroupOffsetsResponseGroup", group_id=group.group_id, error_code=GROUP_CODE)
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
    fields = {"start_offset": -1, "leader_epoch": 0, "error_code": TOPIC_CODE, "error_message": _TOPIC_REFUSED}
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
    """Return a function that keeps the topics of a group that the client may describe."""
    return only("topics", lambda topic: asker.may(Op.DESCRIBE, TOPIC, topic.topic_name, log_denied=False))


def alter_share_offsets(asker: Asker, request: Any) -> GuardStep:
    if not asker.may(Op.READ, GROUP, request.group_id):
        raise GroupAuthorizationFailedError("Group authorization failed.")
    refuse = refuse_partitions(
        "AlterShareGroupOffsetsResponseTopic",
        "AlterShareGroupOffsetsResponsePartition",
        name_field="topic_name",
        error_message=_TOPIC_REFUSED,
    )

    def refuse_with_id(asker: Asker, topic: Any) -> Any:
        known = asker.ctx.broker.metadata.topic(topic.topic_name)
        return replace(refuse(asker, topic), topic_id=UUID(int=0) if known is None else known.topic_id)

    return _readable_by_topic_name(asker, request, refuse_with_id)


def delete_share_offsets(asker: Asker, request: Any) -> GuardStep:
    if not asker.may(Op.DELETE, GROUP, request.group_id):
        raise GroupAuthorizationFailedError("Group authorization failed.")

    def refuse(asker: Asker, topic: Any) -> Any:
        return asker.ctx.make(
            "DeleteShareGroupOffsetsResponseTopic",
            topic_name=topic.topic_name,
            topic_id=UUID(int=0),
            error_code=TOPIC_CODE,
            error_message=_TOPIC_REFUSED,
        )

    return _readable_by_topic_name(asker, request, refuse)


def _readable_by_topic_name(asker: Asker, request: Any, refuse: MakeEntry) -> GuardStep:
    allowed = asker.names(Op.READ, TOPIC, [topic.topic_name for topic in request.topics])
    step = split(asker, request, "topics", "responses", lambda topic: topic.topic_name in allowed, refuse)
    finish = step.finish
    if finish is None:
        return step
    # For an error of the whole request, Kafka returns no topics.
    return replace(step, finish=lambda response: response if response.error_code else finish(response))
