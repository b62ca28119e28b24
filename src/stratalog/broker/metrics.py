"""Metrics of the broker besides its logs: waiting requests, groups, metadata.

`METRICS` are read on the loop's thread, `LAG_METRICS` on any other from a copy made there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from urllib.parse import quote

from stratalog.broker.coordinator_loading import CoordinatorLoading
from stratalog.broker.groups import CommittedOffset, GroupKind, GroupState
from stratalog.broker.groups.consumer import ConsumerGroupState
from stratalog.broker.groups.share import ShareGroupState
from stratalog.broker.groups.streams import StreamsGroupState
from stratalog.broker.quotas import AcceptReading, ClientQuotas, MeterReading, QuotaMeter
from stratalog.broker.request_times import QUANTILES, RequestPart, Spread
from stratalog.broker.services import BrokerServices
from stratalog.broker.share import AckType, DeadLetterCounts, SharePartition
from stratalog.broker.transactions import TransactionState
from stratalog.config import METADATA_VERSION
from stratalog.engine import LogManager
from stratalog.engine.metrics import Metric, MetricKind, Sample, kafka_metric, own_metric, single
from stratalog.util import uuid_to_base64

_PURGATORY = "kafka.server:type=DelayedOperationPurgatory,name="
_CONTROLLER = "kafka.controller:type=KafkaController,name="
_LOADER = "kafka.server:type=MetadataLoader,name="
_MARKERS = "kafka.coordinator.transaction:type=TransactionMarkerChannelManager,name="
_FETCH_SESSIONS = "kafka.server:type=FetchSessionCache,name="
_SHARE_SESSIONS = "kafka.server:type=ShareSessionCache,name="
_SHARE_PARTITIONS = "kafka.server:type=SharePartitionMetrics,name="
_GROUP_COORDINATOR = "kafka.server:type=group-coordinator-metrics"
_SHARE_GROUPS = "kafka.server:type=ShareGroupMetrics,name="
_SOCKETS = "kafka.server:type=socket-server-metrics"
_REQUESTS = "kafka.network:type=RequestMetrics,name="
_GROUPS = "kafka.coordinator.group:type=GroupMetadataManager,name="

#: Kafka's number of a running broker.
_RUNNING = 3
_STATES = {
    "PreparingRebalance": GroupState.PREPARING_REBALANCE,
    "CompletingRebalance": GroupState.COMPLETING_REBALANCE,
    "Stable": GroupState.STABLE,
    "Empty": GroupState.EMPTY,
    "Dead": GroupState.DEAD,
}


def _waiting(fetches: Callable[[BrokerServices], int]) -> Callable[[BrokerServices], Iterable[Sample]]:
    def read(broker: BrokerServices) -> Iterable[Sample]:
        yield Sample(("Fetch",), fetches(broker))
        yield Sample(("RemoteFetch",), broker.purgatory.remote_waiting)

    return read


def _levels(broker: BrokerServices) -> Iterable[Sample]:
    features = broker.metadata.features
    yield Sample(("metadataVersion",), features.metadata_version)
    for name, level in sorted(features.others.items()):
        if name != METADATA_VERSION:
            yield Sample((_java_name(name),), level)


def _java_name(feature: str) -> str:
    """Return the form of a feature in Kafka's metrics: groupVersion for group.version."""
    first, *rest = feature.split(".")
    return first + "".join(part.capitalize() for part in rest)


def _groups_in(state: GroupState) -> Callable[[BrokerServices], Iterable[Sample]]:
    return lambda broker: single(Counter(group.state for group in broker.groups.classics.groups())[state])


def _consumer_groups(broker: BrokerServices) -> Iterable[Sample]:
    counts = Counter(group.state for group in broker.groups.groups_of(GroupKind.CONSUMER))
    for state in ConsumerGroupState:
        yield Sample((state.value,), counts[state])


_STATES_OF: dict[GroupKind, type[Enum]] = {
    GroupKind.CLASSIC: GroupState,
    GroupKind.CONSUMER: ConsumerGroupState,
    GroupKind.SHARE: ShareGroupState,
    GroupKind.STREAMS: StreamsGroupState,
}


def _groups_by_protocol(broker: BrokerServices) -> Iterable[Sample]:
    for kind in _STATES_OF:
        yield Sample((kind.value,), len(broker.groups.groups_of(kind)))


def _groups_by_state(kind: GroupKind) -> Callable[[BrokerServices], Iterable[Sample]]:
    def read(broker: BrokerServices) -> Iterable[Sample]:
        counts: Counter[Enum] = Counter(group.state for group in broker.groups.groups_of(kind))
        return [Sample((state.value,), counts[state]) for state in _STATES_OF[kind]]

    return read


def _partitions_of(
    loading: Callable[[BrokerServices], CoordinatorLoading[Any]],
) -> Callable[[BrokerServices], Iterable[Sample]]:
    return lambda broker: [Sample((state,), count) for state, count in loading(broker).partition_counts().items()]


def _transactional_ids(broker: BrokerServices) -> Iterable[Sample]:
    counts = Counter(known.state for known in broker.transactions.transactions())
    for state in TransactionState:
        if state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE):  # never at rest
            yield Sample((state.title,), counts[state])


def _share_acknowledged(broker: BrokerServices) -> Iterable[Sample]:
    for kind in AckType:
        if kind is not AckType.GAP:
            yield Sample((kind.name.capitalize(),), broker.share_leader.acknowledged[kind])


def _dead_letters(counter: Callable[[DeadLetterCounts], Counter[str]]) -> Callable[[BrokerServices], Iterable[Sample]]:
    return lambda broker: [
        Sample((group_id,), count) for group_id, count in counter(broker.share_leader.dead_letters.counts).items()
    ]


def _of_share_partitions(value: Callable[[SharePartition], int]) -> Callable[[BrokerServices], Iterable[Sample]]:
    def read(broker: BrokerServices) -> Iterable[Sample]:
        for shared in broker.share_leader:
            labels = (shared.key.group_id, shared.partition.topic, str(shared.key.partition))
            yield Sample(labels, value(shared))

    return read


def _queue(meter: Callable[[ClientQuotas], QuotaMeter]) -> Callable[[BrokerServices], Iterable[Sample]]:
    return lambda broker: single(meter(broker.quotas).queue_size)


def _readings(
    meter: Callable[[ClientQuotas], QuotaMeter], value: Callable[[MeterReading], float]
) -> Callable[[BrokerServices], Iterable[Sample]]:
    def read(broker: BrokerServices) -> Iterable[Sample]:
        for reading in meter(broker.quotas).readings(broker.clock.now_ms()):
            user, client_id = reading.shared_by
            if not math.isnan(value(reading)):
                yield Sample((_sanitized(user), client_id), value(reading))

    return read


def _accepts(value: Callable[[AcceptReading], float]) -> Callable[[BrokerServices], Iterable[Sample]]:
    def read(broker: BrokerServices) -> Iterable[Sample]:
        for reading in broker.quotas.accepted.readings():
            if not math.isnan(value(reading)):
                yield Sample((reading.listener,), value(reading))

    return read


def _sanitized(user: str) -> str:
    """Return a user's name in Kafka's metrics."""
    return quote(user, safe="-._").replace("~", "%7E")


def _of_quota(
    type_: str, meter: Callable[[ClientQuotas], QuotaMeter], attribute: str, help_text: str
) -> tuple[Metric[BrokerServices], ...]:
    mbean, who = f"kafka.server:type={type_}", ("user", "client_id")
    return (
        kafka_metric(mbean, _readings(meter, lambda reading: reading.value), help_text, who, attribute=attribute),
        kafka_metric(
            mbean,
            _readings(meter, lambda reading: reading.throttle_time),
            "Average throttle time of clients under the quota, in milliseconds.",
            who,
            attribute="throttle-time",
        ),
        kafka_metric(mbean, _queue(meter), "Connections throttled because of the quota.", attribute="queue-size"),
    )


def _pushed_by_clients(broker: BrokerServices) -> Iterable[Sample]:
    broker.telemetry.forget_gone()
    for instance_id, client_id, value in broker.telemetry.values:
        yield Sample((client_id, uuid_to_base64(instance_id), value.name, value.attributes), value.value)


def _requests(broker: BrokerServices) -> Iterable[Sample]:
    for name, times in broker.request_times.items():
        for of_version, count in sorted(times.versions.items()):
            yield Sample((name, str(of_version)), count)


def _errors(broker: BrokerServices) -> Iterable[Sample]:
    for request, error, count in broker.answered_errors.items():
        yield Sample((request, error), count)


def _parts(part: RequestPart) -> Callable[[BrokerServices], Iterable[Sample]]:
    def read(broker: BrokerServices) -> Iterable[Sample]:
        for name, times in broker.request_times.items():
            count, total, quantiles = times.summary(part)
            yield Sample((name,), total, count, tuple(zip(QUANTILES, quantiles, strict=True)))

    return read


def _spreads(part: RequestPart, value: Callable[[Spread], float]) -> Callable[[BrokerServices], Iterable[Sample]]:
    return lambda broker: [Sample((name,), value(times.spread(part))) for name, times in broker.request_times.items()]


_PARTS = {
    RequestPart.TOTAL: "Milliseconds from the arrival of a request until its response was sent.",
    RequestPart.QUEUE: "Milliseconds that a request waited for earlier ones on its connection.",
    RequestPart.LOCAL: "Milliseconds of the broker's own work on a request.",
    RequestPart.REMOTE: "Milliseconds that a request waited for records, replicas, other members, or a thread.",
    RequestPart.THROTTLE: "Milliseconds that the client of a request was throttled by its quotas.",
    RequestPart.RESPONSE_QUEUE: "Milliseconds that a response waited for the others sent with it.",
    RequestPart.SEND: "Milliseconds until a response was written to its connection.",
    RequestPart.BYTES: "Size of requests in bytes.",
}  # fmt: skip


#: Attributes of Kafka's histograms.
_SPREAD: tuple[tuple[str, str, Callable[[Spread], float]], ...] = (
    ("Min", "The smallest value", lambda spread: spread.min),
    ("Max", "The largest value", lambda spread: spread.max),
    ("Mean", "The average", lambda spread: spread.mean),
    ("StdDev", "The standard deviation", lambda spread: spread.deviation),
)


def _build(_: BrokerServices) -> Iterable[Sample]:
    try:
        yield Sample((version("stratalog"),), 1)
    except PackageNotFoundError:  # run from a source tree
        yield Sample(("source",), 1)


@dataclass(frozen=True, slots=True)
class LagSources:
    """Committed offsets of groups, copied on the loop's thread, and the logs."""

    committed: Mapping[str, Mapping[str, Mapping[int, CommittedOffset]]]
    logs: LogManager

    @classmethod
    def of(cls, broker: BrokerServices) -> LagSources:
        """Copy the offsets; call on the loop's thread."""
        return cls(broker.groups.commits.committed.snapshot(), broker.logs)


def _lags(commits: LagSources) -> Iterable[Sample]:
    for group, by_topic in commits.committed.items():
        for topic, by_number in by_topic.items():
            for number, committed in by_number.items():
                partition = commits.logs.get(topic, number)
                if partition is not None and partition.failure is None:
                    lag = partition.log.high_watermark - committed.offset
                    yield Sample((group, topic, str(number)), max(lag, 0))


LAG_METRICS: tuple[Metric[LagSources], ...] = (
    own_metric("group_lag_records", _lags, "Records of a partition of this broker after a group's "
               "committed offset.", ("group", "topic", "partition")),
)  # fmt: skip

METRICS: tuple[Metric[BrokerServices], ...] = (
    kafka_metric(_PURGATORY + "PurgatorySize", _waiting(lambda broker: broker.purgatory.watch_count),
                 "Waiting requests, counted once for each of their partitions.", ("delayedOperation",)),
    kafka_metric(_PURGATORY + "NumDelayedOperations", _waiting(lambda broker: len(broker.purgatory)),
                 "Waiting requests.", ("delayedOperation",)),
    kafka_metric("kafka.server:type=DelayedFetchMetrics,name=ExpiresPerSec",
                 lambda broker: [Sample(("consumer",), broker.purgatory.expired)],
                 "Fetch requests whose wait ended before fetch.min.bytes were available.", ("fetcherType",)),
    kafka_metric("kafka.server:type=DelayedRemoteFetchMetrics,name=ExpiresPerSec",
                 lambda broker: single(broker.purgatory.remote_expired),
                 "Fetch requests that the remote tier did not answer within remote.fetch.max.wait.ms."),
    kafka_metric("kafka.server:type=KafkaServer,name=BrokerState", lambda _: single(_RUNNING),
                 "3: the broker is running."),
    kafka_metric(_LOADER + "CurrentMetadataVersion", lambda broker: single(broker.metadata.metadata_version),
                 "The finalized level of metadata.version."),
    kafka_metric(_LOADER + "FinalizedLevel", _levels, "The finalized level of each feature.", ("featureName",)),
    kafka_metric(_REQUESTS + "RequestsPerSec", _requests, "Requests that were answered.", ("request", "version")),
    kafka_metric(_REQUESTS + "ErrorsPerSec", _errors,
                 "Error codes in responses: of the whole, of topics, partitions and so on. NONE is counted too.",
                 ("request", "error")),
    *(kafka_metric(_REQUESTS + part.value, _parts(part), help_text, ("request",), kind=MetricKind.TIMER)
      for part, help_text in _PARTS.items()),
    *(kafka_metric(_REQUESTS + part.value, _spreads(part, value), f"{title} since the start: {help_text}",
                   ("request",), attribute=attribute)
      for part, help_text in _PARTS.items() for attribute, title, value in _SPREAD),
    kafka_metric(_CONTROLLER + "ActiveControllerCount", lambda _: single(1),
                 "1: the broker is its own controller."),
    kafka_metric(_CONTROLLER + "ActiveBrokerCount", lambda _: single(1), "Brokers of the cluster: this one."),
    kafka_metric(_CONTROLLER + "GlobalTopicCount", lambda broker: single(len(broker.metadata.topics())), "Topics."),
    kafka_metric(_CONTROLLER + "GlobalPartitionCount",
                 lambda broker: single(sum(topic.partition_count for topic in broker.metadata.topics())),
                 "Partitions of all topics."),
    kafka_metric(_CONTROLLER + "OfflinePartitionsCount", lambda broker: single(broker.logs.offline_count()),
                 "Partitions without a leader, because their log directory failed."),
    kafka_metric(_FETCH_SESSIONS + "NumIncrementalFetchSessions", lambda broker: single(len(broker.fetch_sessions)),
                 "Open fetch sessions."),
    kafka_metric(_FETCH_SESSIONS + "NumIncrementalFetchPartitionsCached",
                 lambda broker: single(broker.fetch_sessions.partition_count), "Partitions of all fetch sessions."),
    kafka_metric(_FETCH_SESSIONS + "IncrementalFetchSessionEvictionsPerSec",
                 lambda broker: single(broker.fetch_sessions.evictions),
                 "Fetch sessions evicted to make room for others."),
    kafka_metric(_SHARE_SESSIONS + "ShareSessionsCount", lambda broker: single(len(broker.share_leader.sessions)),
                 "Open share sessions."),
    kafka_metric(_SHARE_SESSIONS + "SharePartitionsCount",
                 lambda broker: single(broker.share_leader.sessions.partition_count),
                 "Partitions of all share sessions."),
    kafka_metric(_SHARE_SESSIONS + "ShareSessionEvictionsPerSec",
                 lambda broker: single(broker.share_leader.sessions.evictions),
                 "Share sessions that ended with their connections."),
    kafka_metric(_SHARE_GROUPS + "RecordAcknowledgementsPerSec", _share_acknowledged,
                 "Records acknowledged by members of share groups, by type of acknowledgement.", ("ackType",)),
    kafka_metric(_SHARE_GROUPS + "DeadLetterQueueRecordCount", _dead_letters(lambda counts: counts.records),
                 "Records written to dead-letter topics of share groups.", ("group",),
                 attribute="Count", kind=MetricKind.COUNTER),
    kafka_metric(_SHARE_GROUPS + "DeadLetterQueueTotalProduceRequestsPerSec",
                 _dead_letters(lambda counts: counts.requests), "Writes to dead-letter topics of share groups.",
                 ("group",)),
    kafka_metric(_SHARE_GROUPS + "DeadLetterQueueFailedProduceRequestsPerSec",
                 _dead_letters(lambda counts: counts.failed),
                 "Failed writes to dead-letter topics of share groups.", ("group",)),
    kafka_metric(_SHARE_PARTITIONS + "InFlightMessageCount", _of_share_partitions(lambda shared: len(shared.delivery)),
                 "Records of a partition acquired by a share group and not yet acknowledged.",
                 ("group", "topic", "partition")),
    kafka_metric(_SHARE_PARTITIONS + "AcquisitionLockTimeoutPerSec",
                 _of_share_partitions(lambda shared: shared.timeouts),
                 "Records whose acquisition locks expired before they were acknowledged.",
                 ("group", "topic", "partition")),
    kafka_metric("kafka.server:type=DelayedShareFetchMetrics,name=ExpiresPerSec",
                 lambda broker: single(broker.purgatory.share_expired),
                 "Share fetches whose wait ended before enough records were available."),
    kafka_metric(_GROUPS + "NumGroups", lambda broker: single(len(broker.groups.classics.groups())),
                 "Groups of the classic protocol."),
    *(kafka_metric(_GROUPS + f"NumGroups{name}", _groups_in(state),
                   f"Groups of the classic protocol in the state {name}.")
      for name, state in _STATES.items()),
    kafka_metric(_GROUP_COORDINATOR, _groups_by_protocol, "Groups, by protocol.", ("protocol",),
                 attribute="group-count"),
    *(kafka_metric(_GROUP_COORDINATOR, _groups_by_state(kind), f"Groups of the {kind.value} protocol, by state.",
                   ("state",), attribute=f"{kind.value}-group-count")
      for kind in _STATES_OF),
    kafka_metric(_GROUP_COORDINATOR, _partitions_of(lambda broker: broker.groups.loading),
                 "Partitions of __consumer_offsets that this broker coordinates, by loading state.", ("state",),
                 attribute="num-partitions"),
    kafka_metric("kafka.server:type=share-coordinator-metrics",
                 _partitions_of(lambda broker: broker.share_states.loading),
                 "Partitions of __share_group_state that this broker coordinates, by loading state.", ("state",),
                 attribute="num-partitions"),
    kafka_metric(_MARKERS + "LogAppendRetryQueueSize", lambda broker: single(broker.transactions.unfinished),
                 "Transactions whose outcome is decided but whose markers are not all written."),
    *_of_quota("Produce", lambda quotas: quotas.produce, "byte-rate",
               "Bytes per second of Produce requests, by quota."),
    *_of_quota("Fetch", lambda quotas: quotas.fetch, "byte-rate",
               "Bytes per second of Fetch responses, by quota."),
    *_of_quota("Request", lambda quotas: quotas.request, "request-time",
               "Percentage of time spent on requests, by quota."),
    kafka_metric("kafka.server:type=Request", lambda broker: single(broker.quotas.pacing.exempt_percentage()),
                 "Percentage of time spent on requests exempt from quotas.",
                 attribute="exempt-request-time"),
    *_of_quota("ControllerMutation", lambda quotas: quotas.mutation, "tokens",
               "Partitions that may be created or deleted at once, by quota."),
    kafka_metric("kafka.server:type=ControllerMutation",
                 _readings(lambda quotas: quotas.mutation, lambda reading: reading.rate),
                 "Partitions created and deleted per second, by quota.",
                 ("user", "client_id"), attribute="mutation-rate"),
    kafka_metric(_SOCKETS, _accepts(lambda reading: reading.rate),
                 "Connections accepted per second, by listener.", ("listener",), attribute="connection-accept-rate"),
    kafka_metric(_SOCKETS, lambda broker: [Sample((name,), count) for name, count in broker.quotas.accepted.open()],
                 "Open connections, by listener.", ("listener",), attribute="connection-count"),
    kafka_metric(_SOCKETS, _accepts(lambda reading: reading.throttle_time),
                 "Average wait of a listener for max.connection.creation.rate, in milliseconds.",
                 ("listener",), attribute="connection-accept-throttle-time"),
    kafka_metric(_SOCKETS, _accepts(lambda reading: reading.ip_throttle_time),
                 "Average throttle time of clients whose addresses exceed their connection rate, in milliseconds.",
                 ("listener",), attribute="ip-connection-accept-throttle-time"),
    own_metric("consumer_groups", _consumer_groups, "Groups of the consumer protocol (KIP-848), by state.",
               ("state",), kind=MetricKind.GAUGE),
    own_metric("transactional_ids", _transactional_ids, "Transactional ids, by transaction state.",
               ("state",), kind=MetricKind.GAUGE),
    own_metric("client_metric", _pushed_by_clients,
               "The last values of metrics pushed by clients; needs `stratalog.client.metrics`.",
               ("client_id", "client_instance_id", "metric", "attributes"), kind=MetricKind.GAUGE),
    own_metric("build_info", _build, "1, with the version of the broker.", ("version",), kind=MetricKind.GAUGE),
)  # fmt: skip
