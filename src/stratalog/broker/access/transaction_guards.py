"""Guards of the APIs of producer ids and transactions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from stratalog.broker.access.acls import AclOperation as Op
from stratalog.broker.access.entry_guards import (
    CLUSTER_CODE,
    GROUP,
    GROUP_CODE,
    TOPIC,
    TOPIC_CODE,
    TXN_ID,
    TXN_ID_CODE,
    plain_index,
    readable_topics,
    refuse_partitions,
    split,
    transactional_id,
)
from stratalog.broker.access.guard import Asker, GuardStep, between_brokers, both, only, with_each
from stratalog.errors import (
    ClusterAuthorizationFailedError,
    GroupAuthorizationFailedError,
    OperationNotAttemptedError,
    UnknownTopicOrPartitionError,
)

_ADD_PARTITIONS_OF_BROKERS_FROM = 4


def init_producer_id(asker: Asker, request: Any) -> GuardStep:
    if request.transactional_id is not None:
        return transactional_id(asker, request)
    if not asker.may_cluster(Op.IDEMPOTENT_WRITE, log_denied=False) and not asker.may_any(Op.WRITE, TOPIC):
        raise ClusterAuthorizationFailedError("Cluster authorization failed.")
    return GuardStep(request)


def add_partitions_to_txn(asker: Asker, request: Any) -> GuardStep:
    ctx = asker.ctx
    if ctx.version >= _ADD_PARTITIONS_OF_BROKERS_FROM:
        return between_brokers(asker, request)

    def refuse_all(code_of: Callable[[str], int]) -> GuardStep:
        topics = [
            refuse_partitions(
                "AddPartitionsToTxnTopicResult",
                "AddPartitionsToTxnPartitionResult",
                code=code_of(topic.name),
                index=plain_index,
                code_field="partition_error_code",
                answered_in="results_by_partition",
            )(asker, topic)
            for topic in request.v3_and_below_topics
        ]
        return GuardStep(answer=ctx.respond(results_by_topic_v3_and_below=topics))

    if not asker.may(Op.WRITE, TXN_ID, request.v3_and_below_transactional_id):
        return refuse_all(lambda _name: TXN_ID_CODE)
    names = {topic.name for topic in request.v3_and_below_topics}
    allowed = asker.names(Op.WRITE, TOPIC, names)
    if allowed == names:
        return GuardStep(request)

    def code_of(name: str) -> int:
        if name not in allowed:
            return TOPIC_CODE
        is_known = ctx.broker.metadata.topic(name) is not None
        return OperationNotAttemptedError.code if is_known else UnknownTopicOrPartitionError.code

    return refuse_all(code_of)


def add_offsets_to_txn(asker: Asker, request: Any) -> GuardStep:
    step = transactional_id(asker, request)
    if not asker.may(Op.READ, GROUP, request.group_id):
        raise GroupAuthorizationFailedError("Group authorization failed.")
    return step


def txn_offset_commit(asker: Asker, request: Any) -> GuardStep:
    code = 0
    if not asker.may(Op.WRITE, TXN_ID, request.transactional_id):
        code = TXN_ID_CODE
    elif not asker.may(Op.READ, GROUP, request.group_id):
        code = GROUP_CODE
    types = ("TxnOffsetCommitResponseTopic", "TxnOffsetCommitResponsePartition")
    if code:
        return GuardStep(
            answer=asker.ctx.respond(
                topics=[refuse_partitions(*types, code=code)(asker, each) for each in request.topics]
            )
        )
    return readable_topics(asker, request, refuse_partitions(*types))


def write_txn_markers(asker: Asker, request: Any) -> GuardStep:
    if asker.may_cluster(Op.ALTER, log_denied=False) or asker.may_cluster(Op.CLUSTER_ACTION):
        return GuardStep(request)
    topic = refuse_partitions(
        "WritableTxnMarkerTopicResult",
        "WritableTxnMarkerPartitionResult",
        code=CLUSTER_CODE,
        partitions="partition_indexes",
        index=plain_index,
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


def describe_transactions(asker: Asker, request: Any) -> GuardStep:
    def refuse(_asker: Asker, transactional_id: str) -> Any:
        return asker.ctx.make("TransactionState", transactional_id=transactional_id, error_code=TXN_ID_CODE)

    allowed = asker.names(Op.DESCRIBE, TXN_ID, request.transactional_ids)
    step = split(asker, request, "transactional_ids", "transaction_states", lambda each: each in allowed, refuse)
    hide = with_each(
        "transaction_states",
        only("topics", lambda data: asker.may(Op.DESCRIBE, TOPIC, data.topic, log_denied=False)),
    )
    return replace(step, finish=both(hide, step.finish))


def list_transactions(asker: Asker, request: Any) -> GuardStep:
    return GuardStep(
        request,
        only(
            "transaction_states",
            lambda state: asker.may(Op.DESCRIBE, TXN_ID, state.transactional_id, log_denied=False),
        ),
    )
