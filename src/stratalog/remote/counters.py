"""What the remote tier counts, and the table that gives each number the name that Kafka has for it.

Plain numbers that whoever serves /metrics reads at any time: `METRICS` says for each metric of Kafka's
`RemoteStorageMetrics` and quotas where its values are. A rate of Kafka's (`...PerSec`) is a counter here; whoever scrapes it
makes the rate. All counters of `TopicCounters` are kept for each topic and, under the name `ALL_TOPICS`, for all together:
that one does not fall when a topic is deleted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stratalog.remote.manager import RemoteLogManager

#: The key of what is counted over all topics.
ALL_TOPICS = ""


@dataclass(slots=True)
class TopicCounters:
    """Since the start of the broker. A request is one attempt at a segment, an error an attempt that failed."""

    copy_requests: int = 0
    copy_bytes: int = 0
    copy_errors: int = 0
    fetch_requests: int = 0
    fetch_bytes: int = 0
    fetch_errors: int = 0
    delete_requests: int = 0
    delete_errors: int = 0
    #: A replica that begins where the local log of the leader does fetches the state before that from the remote tier.
    build_aux_state_requests: int = 0
    build_aux_state_errors: int = 0


class RemoteCounters:
    """Counters by topic. Thread-safe to add to; reading takes no lock."""

    def __init__(self) -> None:
        self.topics: dict[str, TopicCounters] = {ALL_TOPICS: TopicCounters()}
        #: Time spent by remote reads in the reader's threads: Kafka's timer RemoteLogReaderFetchRateAndTimeMs.
        self.reads = 0
        self.read_ms = 0.0
        self._lock = threading.Lock()

    def add(self, topic: str, **amounts: int) -> None:
        """Add to counters of a topic, named as in `TopicCounters`, and to those of all."""
        with self._lock:
            for counters in (self.topics[ALL_TOPICS], self.topics.setdefault(topic, TopicCounters())):
                for name, amount in amounts.items():
                    setattr(counters, name, getattr(counters, name) + amount)

    def add_read(self, elapsed_ms: float) -> None:
        with self._lock:
            self.reads += 1
            self.read_ms += elapsed_ms

    def forget(self, topic: str) -> None:
        """The topic is gone, or no longer tiered; what it added to all topics together stays."""
        with self._lock:
            self.topics.pop(topic, None)


@dataclass(slots=True)
class PartitionGauges:
    """What the last turns of a partition's tasks found. Only the task that it is about writes a number."""

    #: Sealed segments that are not remote yet.
    copy_lag_bytes: int = 0
    copy_lag_segments: int = 0
    #: Remote segments that must go and have not gone yet.
    delete_lag_bytes: int = 0
    delete_lag_segments: int = 0
    #: Segments that the metadata knows, in every state before the end of their deletion.
    metadata_count: int = 0
    #: Bytes of those whose copy has finished.
    size_bytes: int = 0
    #: How long it took to tell that.
    size_computation_ms: float = 0.0


@dataclass(slots=True)
class ThrottleCounters:
    """How often, and for how long in all and at most, a quota held something back."""

    times: int = 0
    total_ms: int = 0
    max_ms: int = 0

    def add(self, throttle_ms: int) -> None:
        self.times += 1
        self.total_ms += throttle_ms
        self.max_ms = max(self.max_ms, throttle_ms)

    @property
    def average_ms(self) -> float:
        return self.total_ms / self.times if self.times else 0.0


class Kind(Enum):
    """A counter only grows; a gauge is what is so now."""

    COUNTER = "counter"
    GAUGE = "gauge"


#: The values of a metric: the labels' values in the order of `Metric.labels`, and a number.
Samples = Iterable[tuple[tuple[str, ...], float]]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: Kafka's name and MBean group, what it is called on /metrics, and where its values are."""

    kafka_name: str
    mbean: str
    name: str
    kind: Kind
    labels: tuple[str, ...]
    #: The attribute that is read, for the documentation.
    attribute: str
    help: str
    read: Callable[[RemoteLogManager], Samples]


_BY_TOPIC = "kafka.server:type=BrokerTopicMetrics"
_READER = "kafka.log.remote:type=RemoteStorageThreadPool"
_MANAGER = "kafka.log.remote:type=RemoteLogManager"
_QUOTA = "kafka.server:type=RemoteLogManager"


def _topic_counter(kafka_name: str, attribute: str, help_text: str) -> Metric:
    def read(manager: RemoteLogManager) -> Samples:
        return [((topic,), getattr(counters, attribute)) for topic, counters in manager.counters.topics.copy().items()]

    name = f"stratalog_remote_{attribute}_total"
    where = f"manager.counters.topics[topic].{attribute}"
    return Metric(kafka_name, _BY_TOPIC, name, Kind.COUNTER, ("topic",), where, help_text, read)


def _partition_gauge(kafka_name: str, attribute: str, help_text: str, *, scale: float = 1) -> Metric:
    def read(manager: RemoteLogManager) -> Samples:
        return [
            ((partition.topic, str(partition.partition)), getattr(gauges, attribute) * scale)
            for partition, gauges in manager.gauges().items()
        ]

    name = f"stratalog_remote_{attribute.replace('_ms', '_seconds')}"
    where = f"manager.gauges()[partition].{attribute}"
    return Metric(kafka_name, _BY_TOPIC, name, Kind.GAUGE, ("topic", "partition"), where, help_text, read)


def _single(
    kafka_name: str,
    mbean: str,
    name: str,
    attribute: str,
    help_text: str,
    read: Callable[[RemoteLogManager], float],
    kind: Kind = Kind.GAUGE,
) -> Metric:
    return Metric(
        kafka_name, mbean, name, kind, (), attribute, help_text, lambda manager: [((), read(manager))]
    )


METRICS: tuple[Metric, ...] = (
    _topic_counter("RemoteCopyBytesPerSec", "copy_bytes", "Bytes of segments that were copied."),
    _topic_counter("RemoteCopyRequestsPerSec", "copy_requests", "Copies of segments that were begun."),
    _topic_counter("RemoteCopyErrorsPerSec", "copy_errors", "Copies of segments that failed."),
    _topic_counter("RemoteFetchBytesPerSec", "fetch_bytes", "Bytes of records that were read from the remote tier."),
    _topic_counter("RemoteFetchRequestsPerSec", "fetch_requests", "Reads of the remote tier."),
    _topic_counter("RemoteFetchErrorsPerSec", "fetch_errors", "Reads of the remote tier that failed."),
    _topic_counter("RemoteDeleteRequestsPerSec", "delete_requests", "Deletions of remote segments that were begun."),
    _topic_counter("RemoteDeleteErrorsPerSec", "delete_errors", "Deletions of remote segments that failed."),
    _topic_counter("BuildRemoteLogAuxStateRequestsPerSec", "build_aux_state_requests",
                   "Replicas that built their state from the remote tier."),
    _topic_counter("BuildRemoteLogAuxStateErrorsPerSec", "build_aux_state_errors", "Those that failed to."),
    _partition_gauge("RemoteCopyLagBytes", "copy_lag_bytes", "Bytes of sealed segments that are not remote yet."),
    _partition_gauge("RemoteCopyLagSegments", "copy_lag_segments", "Sealed segments that are not remote yet."),
    _partition_gauge("RemoteDeleteLagBytes", "delete_lag_bytes", "Bytes of remote segments that are to be deleted."),
    _partition_gauge("RemoteDeleteLagSegments", "delete_lag_segments", "Remote segments that are to be deleted."),
    _partition_gauge("RemoteLogMetadataCount", "metadata_count", "Remote segments that the metadata knows."),
    _partition_gauge("RemoteLogSizeBytes", "size_bytes", "Bytes of the remote segments that can be read."),
    _partition_gauge("RemoteLogSizeComputationTime", "size_computation_ms", "How long that took to tell.",
                     scale=0.001),
    _single("RemoteLogReaderTaskQueueSize", _READER, "stratalog_remote_reader_queue_size", "manager.readers.pending",
            "Remote reads that wait for a thread.", lambda manager: manager.readers.pending),
    _single("RemoteLogReaderAvgIdlePercent", _READER, "stratalog_remote_reader_idle_ratio",
            "manager.readers.idle_ratio", "Share of the reader's threads that have nothing to do.",
            lambda manager: manager.readers.idle_ratio),
    _single("RemoteLogReaderFetchRateAndTimeMs", _MANAGER, "stratalog_remote_reader_reads_total",
            "manager.counters.reads", "Remote reads that have ended.", lambda manager: manager.counters.reads,
            Kind.COUNTER),
    _single("RemoteLogReaderFetchRateAndTimeMs", _MANAGER, "stratalog_remote_reader_read_seconds_total",
            "manager.counters.read_ms", "Time that remote reads took.",
            lambda manager: manager.counters.read_ms / 1000, Kind.COUNTER),
    _single("RemoteLogManagerTasksAvgIdlePercent", _MANAGER, "stratalog_remote_follower_tasks_idle_ratio",
            "manager.followers.idle_ratio", "Share of the follower tasks' threads that have nothing to do.",
            lambda manager: manager.followers.idle_ratio),
    *(
        metric
        for what in ("copy", "fetch")
        for metric in (
            _single(f"remote-{what}-throttle-time-avg", _QUOTA, f"stratalog_remote_{what}_throttle_seconds_total",
                    f"manager.{what}_quota.throttled.total_ms", f"Time that the {what} quota asked for in all.",
                    lambda manager, what=what: manager.quota(what).throttled.total_ms / 1000,  # type: ignore[misc]
                    Kind.COUNTER),
            _single(f"remote-{what}-throttle-time-avg", _QUOTA, f"stratalog_remote_{what}_throttles_total",
                    f"manager.{what}_quota.throttled.times", f"How often the {what} quota held something back.",
                    lambda manager, what=what: manager.quota(what).throttled.times,  # type: ignore[misc]
                    Kind.COUNTER),
            _single(f"remote-{what}-throttle-time-max", _QUOTA, f"stratalog_remote_{what}_throttle_seconds_max",
                    f"manager.{what}_quota.throttled.max_ms", f"The longest time that the {what} quota asked for.",
                    lambda manager, what=what: manager.quota(what).throttled.max_ms / 1000),  # type: ignore[misc]
        )
    ),
)  # fmt: skip

#: Every counter of a topic has its row.
assert {metric.attribute.rpartition(".")[2] for metric in METRICS if metric.labels == ("topic",)} == {
    field.name for field in fields(TopicCounters)
}
