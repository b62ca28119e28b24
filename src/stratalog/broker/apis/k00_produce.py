"""Produce (0): append batches to partitions.

v3 to v13. v7: zstd. v8: error messages and invalid records. v9: flexible. v10: the current leader. v11:
TRANSACTION_ABORTABLE. v12: the broker adds partitions to the transaction (KIP-890). v13: topic ids. With acks=0 there
is no response, and an error closes the connection so that the client notices, as in Kafka; acks=all waits for all
in-sync replicas. ApiVersions advertises v0 for librdkafka, as Kafka does (KAFKA-18659); v0 to v2 themselves are
refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain

from stratalog.broker.access import AccessControl, AclOperation, ResourceType
from stratalog.broker.cluster_membership import Nodes
from stratalog.broker.confirmation import Unconfirmed
from stratalog.broker.internal_topics import INTERNAL_TOPICS
from stratalog.broker.produce import (
    FLEXIBLE_FROM,
    TOPIC_IDS_FROM,
    Admission,
    AppendedTogether,
    AskedTopic,
    ClusterAdmission,
    PacedProduce,
    PartitionResult,
    PendingAcks,
    PendingAdmission,
    PendingAppends,
    PendingCheck,
    ProduceRequest,
    ProduceTemplate,
    ProduceWork,
    appended_result,
    begins_transactional,
    encode_produce,
    once_each,
    parse_produce,
    producer_of,
    refusal_of,
)
from stratalog.broker.quotas import QuotaClient
from stratalog.broker.server import ApiKey, Caller, Chunk, Deferred, handles_frames
from stratalog.broker.services import BrokerServices
from stratalog.broker.transactions import ClientSupport, admit
from stratalog.engine import Partition
from stratalog.errors import (
    CorruptRecordError,
    InvalidProducerIdMappingError,
    InvalidRequiredAcksError,
    InvalidTopicError,
    KafkaError,
    LargeBatchError,
    StillLoadingError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    UnknownTopicIdError,
)
from stratalog.log.append import CheckedRecords
from stratalog.log.producers import VerificationGuard
from stratalog.records import batches_at_most
from stratalog.wire import read_client_id

_ALL_REPLICAS = -1
_ACKS = (_ALL_REPLICAS, 0, 1)
_LEADER_HINTS_FROM = 10

#: The client with which Kafka's own tools write to internal topics.
_ADMIN_CLIENT = "__admin_client"


@handles_frames(ApiKey.PRODUCE, versions=(3, 13), flexible_from=FLEXIBLE_FROM, advertised_min=0)
class Produce:
    """Answers the Produce requests of one connection, with a template for similar ones."""

    __slots__ = ("_caller", "_last_partition", "template")

    second_name = ""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        #: The partition of the last request.
        self._last_partition: Partition | None = None
        self.template: ProduceTemplate | None = None

    def answer(self, version: int, correlation_id: int, frame: memoryview, position: int) -> Sequence[Chunk] | Deferred:
        request = parse_produce(frame, position, version)
        state = self._caller.broker
        asked = once_each(
            request.topics,
            lambda key, entry: refusal_of(_topic_name(state, key, version)[0], entry, version),
        )
        access = state.access
        refusal = self._refusal(access, request)
        acks_error = None if request.acks in _ACKS else InvalidRequiredAcksError(f"acks is {request.acks}")
        # Decode all names before the first append: an invalid one refuses the whole request.
        names = [_topic_name(state, key, version) for key, _ in asked]
        topics = []
        for (key, partitions), (name, unknown) in zip(asked, names, strict=True):
            if access is not None and unknown is None:
                unknown = self._forbidden_topic(access, name)
            if unknown is None and name in INTERNAL_TOPICS and read_client_id(frame)[0] != _ADMIN_CLIENT:
                unknown = InvalidTopicError(f"clients may not write to the internal topic {name}")
            topics.append(AskedTopic(key, name, refusal or unknown, partitions, []))
        if request.transactional_id is not None and refusal is None:
            refusal = _several_producers(topics)
            if refusal is not None:
                topics = [topic._replace(error=refusal) for topic in topics]
        admission = _admission(state, request.transactional_id, version)
        work = ProduceWork(state, version, request.acks, topics, admission, acks_error)
        pace = state.quotas.pace
        if pace is not None:
            client = self._client(frame)
            if pace.is_free_to_produce(client):
                pace = None
            else:
                work.paced = PacedProduce(pace, client, len(frame))
        if isinstance(admission, ClusterAdmission) and (questions := admission.begin(work.entries())):
            work.keep_records()
            go_on = partial(self._answer_later, work, correlation_id, request.timeout_ms, may_wait=True)
            return PendingAdmission(admission, questions, go_on)
        partition = self._append(work, correlation_id, request.timeout_ms, may_wait=True)
        if isinstance(partition, Deferred):
            return partition
        waiting = work.still_unconfirmed() if work.unconfirmed else []
        if (
            partition is not None
            and request.acks != 0
            and not work.failed
            and pace is None
            and not (access is not None and access.logs_allowed)
        ):
            self._remember(frame, version, request, partition)
        if waiting:
            return self._wait_for_replicas(work, correlation_id, request.timeout_ms, waiting)
        return self._answer_of(work, correlation_id)

    def _client(self, frame: memoryview) -> QuotaClient:
        return QuotaClient(self._caller.peer.principal.name, read_client_id(frame)[0] or "")

    def _forbidden_topic(self, access: AccessControl, name: str) -> KafkaError | None:
        if access.allows(self._caller.peer, ApiKey.PRODUCE, AclOperation.WRITE, ResourceType.TOPIC, name):
            return None
        return TopicAuthorizationFailedError("Topic authorization failed.")

    def _refusal(self, access: AccessControl | None, request: ProduceRequest) -> KafkaError | None:
        """Return the error that refuses the whole request, if any."""
        try:
            if not _has_transactional(request):
                return None
        except CorruptRecordError as error:
            return error
        if request.transactional_id is None:
            return TransactionalIdAuthorizationFailedError("records of a transaction without a transactional id")
        name = str(request.transactional_id, "utf-8")
        if access is None or access.allows(
            self._caller.peer, ApiKey.PRODUCE, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name
        ):
            return None
        return TransactionalIdAuthorizationFailedError("Transactional Id authorization failed.")

    def _append(
        self, work: ProduceWork, correlation_id: int, timeout_ms: int, *, may_wait: bool
    ) -> Partition | Deferred | None:
        """Append what is not done yet; return the last partition, or what the rest waits for."""
        state = self._caller.broker
        checks = state.large_batches
        try:
            return work.go_on(may_wait=may_wait)
        except LargeBatchError:
            size = work.left_bytes()
            if checks.has_room(size):
                work.keep_records()
                log, records = work.large
                go_on = partial(self._go_on_checked, work, correlation_id, timeout_ms, may_wait)
                return PendingCheck(checks, log, records, size, go_on)
        except StillLoadingError:
            return self._wait_for_code(work, correlation_id, timeout_ms)
        try:
            with batches_at_most(None):  # memory matters more than time
                return work.go_on(may_wait=may_wait)
        except StillLoadingError:
            return self._wait_for_code(work, correlation_id, timeout_ms)

    def _wait_for_code(self, work: ProduceWork, correlation_id: int, timeout_ms: int) -> PendingAppends:
        work.keep_records()
        go_on = partial(self._answer_later, work, correlation_id, timeout_ms, may_wait=False)
        return PendingAppends(self._caller.broker.loop, timeout_ms, go_on)

    def _go_on_checked(
        self,
        work: ProduceWork,
        correlation_id: int,
        timeout_ms: int,
        may_wait: bool,
        checked: CheckedRecords | KafkaError,
        taken_s: float,
    ) -> None:
        work.take_checked(checked, taken_s)
        self._answer_later(work, correlation_id, timeout_ms, may_wait=may_wait)

    def _answer_later(self, work: ProduceWork, correlation_id: int, timeout_ms: int, *, may_wait: bool) -> None:
        waits = self._append(work, correlation_id, timeout_ms, may_wait=may_wait)
        if isinstance(waits, Deferred):
            self._caller.defer(waits)
        elif work.unconfirmed and (waiting := work.still_unconfirmed()):
            self._caller.defer(self._wait_for_replicas(work, correlation_id, timeout_ms, waiting))
        else:
            self._caller.respond(self._answer_of(work, correlation_id))

    def _wait_for_replicas(
        self, work: ProduceWork, correlation_id: int, timeout_ms: int, waiting: list[Unconfirmed]
    ) -> PendingAcks:
        def answer(failed: dict[tuple[str, int], KafkaError]) -> None:
            work.fail(failed)
            self._caller.respond(self._answer_of(work, correlation_id))

        state = self._caller.broker
        return PendingAcks(state.loop, state.purgatory, timeout_ms, waiting, answer)

    def _answer_of(self, work: ProduceWork, correlation_id: int) -> Sequence[Chunk]:
        results = [(topic.key, topic.done) for topic in work.topics]
        throttle_ms = 0
        if work.paced is not None:
            throttle = work.paced.throttle(is_answered=work.acks != 0)
            if throttle is not None:
                throttle_ms = throttle.ms
                self._caller.throttle(throttle)
        if work.acks != 0 or work.failed:
            codes = (result.error_code for _, done in results for result in done)
            self._caller.broker.answered_errors.add_all(ApiKey.PRODUCE, codes)
        if work.acks != 0:
            nodes: Nodes = ()
            cluster = self._caller.broker.cluster
            if work.failed and cluster is not None and work.version >= _LEADER_HINTS_FROM:
                nodes = work.add_hints(cluster, self._caller.peer.listener.name)
            return (encode_produce(work.version, correlation_id, results, throttle_ms, nodes),)
        if work.failed:
            self._caller.reject(f"produce with acks=0 failed: {_first_message(results)}")
        return ()

    def _remember(self, frame: memoryview, version: int, request: ProduceRequest, partition: Partition) -> None:
        """Make a template from a request whose records were appended, if it is the second in a row for a partition."""
        if self._last_partition is partition:
            wait = partial(self._wait_together, version, request.timeout_ms, request.topics[0].key)
            self.template = ProduceTemplate.of(frame, version, request, partition, wait)
        self._last_partition = partition

    def _wait_together(self, version: int, timeout_ms: int, key: bytes, appended: AppendedTogether) -> PendingAcks:
        """Answer requests that fit the template once all their records are replicated, or will not be."""
        state = self._caller.broker

        def answer(failed: dict[tuple[str, int], KafkaError]) -> None:
            responses: Sequence[Chunk]
            if failed:
                responses = list(chain.from_iterable(self._failed(version, key, appended, failed)))
            else:
                responses = appended.responses()
                state.answered_errors.add(ApiKey.PRODUCE, 0, len(responses))
            self._caller.respond(responses)

        return PendingAcks(state.loop, state.purgatory, timeout_ms, [appended.last], answer)

    def _failed(
        self, version: int, key: bytes, appended: AppendedTogether, failed: dict[tuple[str, int], KafkaError]
    ) -> Iterator[Sequence[Chunk]]:
        partition = appended.last.partition
        for correlation_id, info in zip(appended.correlation_ids, appended.infos, strict=True):
            done = [appended_result(partition.partition, info)]
            topic = AskedTopic(key, partition.topic, None, [], done)
            work = ProduceWork(self._caller.broker, version, _ALL_REPLICAS, [topic], None, None)
            work.fail(failed)
            yield self._answer_of(work, correlation_id)


def _has_transactional(request: ProduceRequest) -> bool:
    return any(begins_transactional(entry.records) for _, partitions in request.topics for entry in partitions)


def _several_producers(topics: Sequence[AskedTopic]) -> KafkaError | None:
    """Return the error that fails all of a request with transactional batches of several producers, as in Kafka."""
    batches = (entry.records for topic in topics if topic.error is None for entry in topic.partitions)
    producers = {producer_of(records)[0] for records in batches if records and begins_transactional(records)}
    if len(producers) < 2:
        return None
    return InvalidProducerIdMappingError("Transactional records contained more than one producer ID")


def _admission(state: BrokerServices, transactional_id: bytes | None, version: int) -> Admission | None:
    if transactional_id is None:
        return None
    name, support = str(transactional_id, "utf-8"), ClientSupport.of_produce(version)
    if state.cluster is not None:
        return ClusterAdmission(state, name, support)

    def ask(partition: Partition, records: memoryview) -> VerificationGuard | None:
        producer, sequence = producer_of(records)
        return admit(state, partition, name, producer, sequence, support)

    return ask


def _topic_name(state: BrokerServices, key: bytes, version: int) -> tuple[str, KafkaError | None]:
    if version < TOPIC_IDS_FROM:
        return str(key, "utf-8"), None
    name = state.topic_name(key)
    if name is None:
        return "", UnknownTopicIdError("This server does not host this topic ID.")
    return name, None


def _first_message(results: list[tuple[bytes, list[PartitionResult]]]) -> str:
    failures = (
        f"{str(key, 'utf-8', 'replace')}-{result.partition}: {result.error_message or result.error_code}"
        for key, done in results
        for result in done
        if result.error_code
    )
    return next(failures, "")
