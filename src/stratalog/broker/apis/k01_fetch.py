"""Fetch (1): read batches from partitions, and wait if there are too few.

v4 to v18. v5: log start offset. v7: sessions (KIP-227). v9: leader epochs (KIP-320). v10: zstd. v11: racks, and reads
from followers (KIP-392). v12: flexible, last fetched epoch (KIP-595). v13: topic ids. v15: replica id as a tagged
field. The kernel sends batches from the segment's file; a fetch at an offset inside a batch gets the whole batch.
Offsets below the local log start are read from the remote tier on a thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from stratalog.broker.access import CLUSTER_NAME, AccessControl, AclOperation, ResourceType
from stratalog.broker.cluster_membership import Nodes, endpoints_of, not_here
from stratalog.broker.fetch import (
    FLEXIBLE_FROM,
    RACK_FROM,
    TOPIC_IDS_FROM,
    FetchedPartition,
    FetchExchange,
    FetchPartition,
    FetchPlan,
    FetchRead,
    FetchRequest,
    FetchTopic,
    PendingFetch,
    PendingRemoteFetch,
    Results,
    WantedPartition,
    WantedTopic,
    count_fetched,
    encode_fetch,
    parse_fetch,
    rack_aware,
    read_plan,
)
from stratalog.broker.quotas import QuotaClient, QuotaPace, QuotaThrottle
from stratalog.broker.security import Peer
from stratalog.broker.server import ApiKey, Caller, Chunk, Deferred, handles_frames
from stratalog.broker.services import BrokerServices
from stratalog.engine import Partition
from stratalog.errors import (
    FencedLeaderEpochError,
    KafkaError,
    NotLeaderOrFollowerError,
    TopicAuthorizationFailedError,
    UnknownServerError,
    UnknownTopicIdError,
)
from stratalog.log.format import FileSlice, Isolation
from stratalog.wire import INT32, read_client_id

_ISOLATION_LEVELS = (0, 1)

_Shown = Sequence[tuple[bytes, Sequence[FetchedPartition]]]
_LEADER_HINTS_FROM = 16
_ASKED_WRONG = (NotLeaderOrFollowerError.code, FencedLeaderEpochError.code)


@handles_frames(ApiKey.FETCH, versions=(4, 18), flexible_from=FLEXIBLE_FROM)
class Fetch:
    """Answers the Fetch requests of one connection."""

    __slots__ = ("_caller", "second_name")

    template = None

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self.second_name = ""

    def answer(self, version: int, correlation_id: int, frame: memoryview, position: int) -> Sequence[Chunk] | Deferred:
        request = parse_fetch(frame, position, version)
        self.second_name = "FetchFollower" if request.replica_id >= 0 else "FetchConsumer"
        caller = self._caller
        state = caller.broker
        exchange = FetchExchange(
            state.fetch_sessions, request, by_id=version >= TOPIC_IDS_FROM, now_ms=state.clock.now_ms()
        )
        pace = state.quotas.pace
        paced = None if pace is None else _paced(pace, caller, request, frame, version)
        if exchange.error is not None:
            return _failed(caller, paced, version, correlation_id, exchange.error)
        plan = _plan(caller, request, exchange.topics, version, math.inf if paced is None else paced.bytes_max)
        if request.isolation_level not in _ISOLATION_LEVELS and _finds_any(plan):
            return _refused(state, request, version, correlation_id)
        read = read_plan(plan, is_first=True)
        if paced is not None:
            paced.stop()

        def encoded(results: Results) -> Sequence[Chunk]:
            if paced is not None:
                throttle = paced.throttle(exchange.shown(results))
                if throttle is not None:
                    caller.throttle(throttle)
                    return _throttled(state, exchange, version, correlation_id, throttle.ms)
            count_fetched(plan, results)
            answered = exchange.answer(results)
            answer, nodes = _with_hints(caller, plan, version, answered.results)
            _count_throttled(state, plan, version, answer)
            return _encoded(
                state,
                version,
                correlation_id,
                answer,
                nodes=nodes,
                session_id=answered.session_id,
                error_code=answered.error_code,
            )

        def answer_later(results: Results) -> None:
            caller.respond(encoded(results))

        def answer_again() -> None:
            again = read_plan(plan)
            if again.remote:
                caller.defer(PendingRemoteFetch(state, plan, again, answer_later))
            else:
                answer_later(again.results)

        if read.remote:
            return PendingRemoteFetch(state, plan, read, answer_later)
        if _must_wait(plan, read):
            return PendingFetch(state, plan, read, answer_again)
        return encoded(read.results)


def _paced(
    pace: QuotaPace, caller: Caller, request: FetchRequest, frame: memoryview, version: int
) -> _PacedFetch | None:
    """Return the quota measurement of a consumer's request; None for a follower's."""
    if request.replica_id >= 0:
        return None
    client = QuotaClient(caller.peer.principal.name, read_client_id(frame)[0] or "")
    return _PacedFetch(pace, client, version)


class _PacedFetch:
    """Measures one request of a consumer for its quotas."""

    __slots__ = ("_begun_s", "_client", "_pace", "_version", "_worked_s", "bytes_max")

    def __init__(self, pace: QuotaPace, client: QuotaClient, version: int) -> None:
        self._pace = pace
        self._client = client
        self._version = version
        self._begun_s = pace.now_s()
        self._worked_s = 0.0
        #: Bytes that can be read without ever being throttled.
        self.bytes_max = pace.fetch_bytes_max(client)

    def stop(self) -> None:
        """End the time that counts as work: a wait for records may follow."""
        self._worked_s = self._pace.now_s() - self._begun_s

    def throttle(self, results: _Shown) -> QuotaThrottle | None:
        """Count a response; return its throttling, in which case it is not sent."""
        return self._pace.after_fetch(self._client, _size(self._version, results), self._worked_s)


def _size(version: int, results: _Shown) -> int:
    """Return the size of a response as Kafka's quotas count it: without its header."""
    chunks = encode_fetch(version, 0, results)
    size = sum(chunk.size if isinstance(chunk, FileSlice) else len(chunk) for chunk in chunks)
    return size - INT32.size - (version >= FLEXIBLE_FROM)


def _count_throttled(state: BrokerServices, plan: FetchPlan, version: int, results: _Shown) -> None:
    """Count bytes of throttled partitions that are sent to a follower, whether or not it is in sync."""
    replication = state.logs.replication
    if plan.replica_id < 0 or replication is None:
        return
    throttled = {
        (topic.key, wanted.request.partition)
        for topic in plan.topics
        for wanted in topic.partitions
        if wanted.partition is not None and wanted.partition.led is not None and wanted.partition.led.is_throttled
    }
    if throttled:
        counted = [(key, [each for each in answer if (key, each.partition) in throttled]) for key, answer in results]
        replication.throttles.leader.record(_size(version, [(key, answer) for key, answer in counted if answer]))


def _throttled(
    state: BrokerServices, exchange: FetchExchange, version: int, correlation_id: int, throttle_ms: int
) -> Sequence[Chunk]:
    answered = exchange.throttled()
    return _encoded(
        state,
        version,
        correlation_id,
        (),
        session_id=answered.session_id,
        error_code=answered.error_code,
        throttle_ms=throttle_ms,
    )


def _failed(
    caller: Caller, paced: _PacedFetch | None, version: int, correlation_id: int, error: KafkaError
) -> Sequence[Chunk]:
    """Respond to a request with an unknown session, or a wrong session epoch."""
    throttle_ms = 0
    if paced is not None:
        paced.stop()
        throttle = paced.throttle(())
        if throttle is not None:
            throttle_ms = throttle.ms
            caller.throttle(throttle)
    code = 0 if throttle_ms else error.code  # the client sends a full request in either case
    return _encoded(caller.broker, version, correlation_id, (), error_code=code, throttle_ms=throttle_ms)


def _finds_any(plan: FetchPlan) -> bool:
    return any(wanted.partition is not None for topic in plan.topics for wanted in topic.partitions)


def _refused(state: BrokerServices, request: FetchRequest, version: int, correlation_id: int) -> Sequence[Chunk]:
    """Respond to an unknown isolation level: with an error for each partition, if topics have names."""
    code = UnknownServerError.code
    results = [
        (key, [FetchedPartition(entry.partition, code, aborted=()) for entry in partitions])
        for key, partitions in (request.topics if version < TOPIC_IDS_FROM else ())
    ]
    return _encoded(state, version, correlation_id, results, session_id=request.session_id, error_code=code)


def _encoded(
    state: BrokerServices, version: int, correlation_id: int, results: _Shown, *, error_code: int = 0, **fields: Any
) -> Sequence[Chunk]:
    """Count the error codes of a response, and return it."""
    errors = state.answered_errors
    errors.add(ApiKey.FETCH, error_code)
    errors.add_all(ApiKey.FETCH, (fetched.error_code for _, partitions in results for fetched in partitions))
    return encode_fetch(version, correlation_id, results, error_code=error_code, **fields)


def _must_wait(plan: FetchPlan, read: FetchRead) -> bool:
    return (
        read.size < plan.min_bytes
        and plan.max_wait_ms > 0
        and not read.urgent
        and any(topic.partitions for topic in plan.topics)
    )


def _plan(
    caller: Caller, request: FetchRequest, wanted: Sequence[FetchTopic], version: int, paced_max: float
) -> FetchPlan:
    state = caller.broker
    topics = []
    for key, partitions in wanted:
        error: KafkaError | None = None
        if version >= TOPIC_IDS_FROM:
            name = state.topic_name(key)
            if name is None:
                error, name = UnknownTopicIdError("This server does not host this topic ID."), ""
        else:
            name = str(key, "utf-8")
        if error is None and state.access is not None:
            error = _forbidden(state.access, caller.peer, request, name)
        topics.append(
            WantedTopic(
                key,
                [_wanted(state, name, entry, error) for entry in partitions],
                name,
            )
        )
    max_bytes = min(request.max_bytes, state.config["fetch.max.bytes"])
    if paced_max < max_bytes:
        max_bytes = int(paced_max)
    isolation = Isolation.TXN_COMMITTED if request.isolation_level == 1 else Isolation.HIGH_WATERMARK
    if request.replica_id >= 0:
        isolation = Isolation.LOG_END
    return FetchPlan(
        topics,
        isolation,
        min_bytes=min(request.min_bytes, max_bytes),
        max_bytes=max_bytes,
        max_wait_ms=request.max_wait_ms,
        replica_id=request.replica_id,
        replica_epoch=request.replica_epoch,
        of_leader=request.replica_id >= 0 or version < RACK_FROM,
        preferred=_selector(caller, request),
    )


def _selector(caller: Caller, request: FetchRequest) -> Callable[[Partition, int], int] | None:
    """Return the function that selects the preferred read replica, if any."""
    cluster = caller.broker.cluster
    if cluster is None or not request.rack or request.replica_id >= 0:
        return None
    if not caller.broker.config["replica.selector.class"]:
        return None
    listener = caller.peer.listener.name

    def rack_of(broker: int) -> str | None:
        endpoint = cluster.endpoint(broker, listener)
        return None if endpoint is None else endpoint[2]

    def preferred(partition: Partition, offset: int) -> int:
        led = partition.led
        if led is None or rack_of(cluster.node_id) == request.rack:
            return -1
        return rack_aware(request.rack, led.readable_replicas(offset), rack_of)

    return preferred


def _wanted(state: BrokerServices, name: str, entry: FetchPartition, error: KafkaError | None) -> WantedPartition:
    if error is not None:
        return WantedPartition(None, entry, error)
    partition = state.logs.get(name, entry.partition)
    if partition is None:
        error = not_here(state, name, entry.partition)
    return WantedPartition(partition, entry, error)


def _with_hints(caller: Caller, plan: FetchPlan, version: int, results: _Shown) -> tuple[_Shown, Nodes]:
    """Return results with current leaders where the client seems to know others, and the leaders' endpoints."""
    if version < _LEADER_HINTS_FROM or not any(
        answer.error_code in _ASKED_WRONG for _, answers in results for answer in answers
    ):
        return results, ()
    names = {topic.key: topic.name for topic in plan.topics}
    leaders: dict[int, None] = {}
    hinted = []
    for key, answers in results:
        response = []
        for answer in answers:
            asked_wrong = answer.error_code in _ASKED_WRONG
            leader = _leader(caller.broker, names[key], answer.partition) if asked_wrong else None
            if leader is not None:
                leaders[leader[0]] = None
            response.append(answer if leader is None else answer._replace(leader=leader))
        hinted.append((key, response))
    return hinted, () if plan.replica_id >= 0 else _endpoints(caller, leaders)  # other brokers know them


def _leader(state: BrokerServices, topic: str, number: int) -> tuple[int, int] | None:
    """Return id and epoch of a partition's leader."""
    if state.cluster is not None:
        return state.cluster.leader(topic, number)
    partition = state.partition(topic, number)
    return None if partition is None else (state.node_id, partition.leader_epoch)


def _endpoints(caller: Caller, leaders: Iterable[int]) -> Nodes:
    state, peer = caller.broker, caller.peer
    if state.cluster is not None:
        return endpoints_of(state.cluster, leaders, peer.listener.name)
    return [(leader, peer.reached_host, peer.listener.port, state.config["broker.rack"]) for leader in leaders]


def _forbidden(access: AccessControl, peer: Peer, request: FetchRequest, name: str) -> KafkaError | None:
    """Return the error if reading a topic is not authorized: followers need CLUSTER_ACTION, consumers READ."""
    operation, resource_type, resource = AclOperation.READ, ResourceType.TOPIC, name
    if request.replica_id >= 0:
        operation, resource_type, resource = AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
    if access.allows(peer, ApiKey.FETCH, operation, resource_type, resource):
        return None
    return TopicAuthorizationFailedError("Topic authorization failed.")
