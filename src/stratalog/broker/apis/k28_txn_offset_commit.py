"""TxnOffsetCommit (28): store committed offsets of a group as part of a transaction.

v0 to v6. v3: flexible; member and generation, so that a member that has left the group is fenced (KIP-447). v4:
TRANSACTION_ABORTABLE. v5: adds the group's partition of `__consumer_offsets` to the transaction (KIP-890); before,
AddOffsetsToTxn does that. v6: topic ids, and members of the consumer protocol with their epoch. Offsets take effect
with the transaction's commit.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any

from stratalog.broker.coordinator_log import TransactionalWrite
from stratalog.broker.groups import (
    NO_GENERATION,
    UNKNOWN_MEMBER_ID,
    CommittedOffset,
    PartPosition,
    RequestedCommits,
    TopicPartition,
    answered_topics,
)
from stratalog.broker.server import ApiKey, RequestContext, handles
from stratalog.broker.transactions import ClientSupport, ProducerIdAndEpoch, admit, ask_coordinator, begin_admission
from stratalog.errors import (
    CoordinatorLoadInProgressError,
    KafkaError,
    NotEnoughReplicasError,
)
from stratalog.records import NO_SEQUENCE

if TYPE_CHECKING:
    from stratalog.engine import Partition

_TOPIC_IDS_FROM = 6


@handles(ApiKey.TXN_OFFSET_COMMIT, versions=(0, 6))
async def txn_offset_commit(ctx: RequestContext, request: Any) -> Any:
    commits = await RequestedCommits.read(ctx, request.topics, by_id=ctx.version >= _TOPIC_IDS_FROM)
    as_asked = not commits.has_refused
    async for number, turn in commits.turns(ctx):
        commits.settle(number, await _store(ctx, request, turn))
    return await ctx.beside(_answers, ctx, request, commits, as_asked)


def _answers(ctx: RequestContext, request: Any, commits: RequestedCommits, as_asked: bool) -> Any:
    by_id = ctx.version >= _TOPIC_IDS_FROM
    unknown = commits.unknown
    kept: Container[int] = range(len(request.topics)) if as_asked and not by_id else unknown
    answers = answered_topics(
        request.topics, lambda topic: topic.topic_id if by_id else topic.name, as_asked=as_asked, kept=kept
    )
    if by_id:  # results of topics that were refused before the coordinator come first
        answers.sort(key=lambda answer: not any(at in unknown for at, _, _ in answer[1]))
    return ctx.respond(topics=[_answer(ctx, key, partitions, commits.codes) for key, partitions in answers])


async def _store(
    ctx: RequestContext, request: Any, commits: dict[TopicPartition, CommittedOffset]
) -> dict[TopicPartition, int]:
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    support = ClientSupport.of_commit(ctx.version)

    async def begin(partition: Partition) -> TransactionalWrite:
        if ctx.broker.cluster is None:
            guard = admit(ctx.broker, partition, request.transactional_id, producer, NO_SEQUENCE, support)
        else:
            guard = begin_admission(ctx.broker, partition, producer, NO_SEQUENCE, support)
            if guard is not None:
                at = TopicPartition(partition.topic, partition.partition)
                refused = await ask_coordinator(ctx.broker, request.transactional_id, producer, [at], support)
                if at in refused:
                    raise refused[at]
        return TransactionalWrite(producer.id, producer.epoch, guard)

    try:
        return await ctx.broker.groups.commit_in_transaction(
            request.group_id,
            getattr(request, "member_id", UNKNOWN_MEMBER_ID),
            getattr(request, "group_instance_id", None),
            getattr(request, "generation_id", NO_GENERATION),
            commits,
            begin,
            tells_epochs=ctx.version >= _TOPIC_IDS_FROM,
        )
    except NotEnoughReplicasError:  # clients of a coordinator retry after this error
        return dict.fromkeys(commits, CoordinatorLoadInProgressError.code)
    except KafkaError as error:
        return dict.fromkeys(commits, error.code)


def _answer(
    ctx: RequestContext, key: Any, partitions: Iterable[tuple[int, int, Any]], codes: dict[PartPosition, int]
) -> Any:
    return ctx.make(
        "TxnOffsetCommitResponseTopic",
        name=key,
        topic_id=key,
        partitions=[
            ctx.make(
                "TxnOffsetCommitResponsePartition",
                partition_index=partition.partition_index,
                error_code=codes[PartPosition(at, number)],
            )
            for at, number, partition in partitions
        ],
    )
