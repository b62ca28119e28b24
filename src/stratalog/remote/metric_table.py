"""The metrics of Kafka's remote tier by their names, and where each one's values are.

Whoever serves /metrics goes through `METRICS`: Kafka's `RemoteStorageMetrics` and the sensors of its quotas. A rate of
Kafka's (`...PerSec`) is a counter here; whoever scrapes it makes the rate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stratalog.remote.manager import RemoteLogManager


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
        return [((topic,), getattr(counts, attribute)) for topic, counts in manager.counts.topics().items()]

    name = f"stratalog_remote_{attribute}_total"
    where = f"manager.counts.topics()[topic].{attribute}"
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
    _topic_counter("BuildRemoteLogAuxStateRequestsPerSec", "aux_state_requests",
                   "Replicas that built their state from the remote tier."),
    _topic_counter("BuildRemoteLogAuxStateErrorsPerSec", "aux_state_errors", "Those that failed to."),
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
            "manager.reader_time.reads", "Remote reads that have ended.", lambda manager: manager.reader_time.reads,
            Kind.COUNTER),
    _single("RemoteLogReaderFetchRateAndTimeMs", _MANAGER, "stratalog_remote_reader_read_seconds_total",
            "manager.reader_time.total_ms", "Time that remote reads took.",
            lambda manager: manager.reader_time.total_ms / 1000, Kind.COUNTER),
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
