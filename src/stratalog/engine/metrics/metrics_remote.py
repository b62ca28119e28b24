"""Metrics of the remote tier.

Kafka's `RemoteStorageMetrics`, its pools and quotas, and why segments are still local.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stratalog.engine.log_manager import LogManager
from stratalog.engine.metrics.metric import Metric, MetricKind, Sample, kafka_metric, own_metric, single
from stratalog.engine.metrics.metrics_logs import PARTITION
from stratalog.engine.metrics.metrics_traffic import BY_TOPIC, by_topic
from stratalog.engine.tiering import tier_statuses
from stratalog.remote.tier import PartitionGauges, RemoteLogManager, RemoteTopicCounts, ThrottleCounts, TierStatus

_MANAGER = "kafka.log.remote:type=RemoteLogManager,name="
_READERS = "kafka.log.remote:type=RemoteStorageThreadPool,name="
_THROTTLES = "kafka.server:type=RemoteLogManager"


class RemoteView:
    """Statuses of the remote tier at one moment, for all its metrics."""

    def __init__(self, logs: LogManager) -> None:
        self.logs = logs
        self.remote = logs.remote
        self.statuses = tier_statuses(logs)


Read = Callable[[RemoteView], Iterable[Sample]]


def _remote(read: Callable[[RemoteLogManager], float]) -> Read:
    """Return one value; none without a remote tier."""
    return lambda view: () if view.remote is None else single(read(view.remote))


def _counted(name: str, attribute: str, help_text: str) -> Metric[RemoteView]:
    """Declare a metric by topic and over all topics."""

    def read(view: RemoteView) -> Iterable[Sample]:
        if view.remote is None:
            return by_topic(RemoteTopicCounts(), {}, attribute)
        return by_topic(view.remote.counts.total(), view.remote.counts.topics(), attribute)

    return kafka_metric(BY_TOPIC + name, read, help_text, ("topic",))


def _summed(name: str, value: Callable[[PartitionGauges], float], help_text: str) -> Metric[RemoteView]:
    """Declare a sum over the partitions of each topic, and of all."""

    def read(view: RemoteView) -> Iterable[Sample]:
        by_topic: dict[str, float] = {}
        if view.remote is not None:
            for partition, gauges in view.remote.gauges().items():
                by_topic[partition.topic] = by_topic.get(partition.topic, 0) + value(gauges)
        yield Sample(("",), sum(by_topic.values()))
        for topic, total in sorted(by_topic.items()):
            yield Sample((topic,), total)

    return kafka_metric(BY_TOPIC + name, read, help_text, ("topic",))


def _status(read: Callable[[TierStatus], float]) -> Read:
    return lambda view: (Sample((status.topic, str(status.partition)), read(status)) for status in view.statuses)


def _reasons(view: RemoteView) -> Iterable[Sample]:
    for status in view.statuses:
        yield Sample((status.topic, str(status.partition), status.reason.value), 1)


def _failures(view: RemoteView) -> Iterable[Sample]:
    for status in view.statuses:
        for failure in status.failures:
            yield Sample((status.topic, str(status.partition), failure.task), failure.times)


def _retention_percent(view: RemoteView) -> Iterable[Sample]:
    """Return the share of retention.bytes, counting data in both tiers once."""
    for status, config in _with_config(view):
        only_local = sum(s.size_bytes for s in status.segments if s.last_offset > status.highest_remote_offset)
        yield _percent(status, status.remote_bytes + only_local, config[0])


def _local_retention_percent(view: RemoteView) -> Iterable[Sample]:
    for status, config in _with_config(view):
        yield _percent(status, status.local_bytes, config[1])


def _with_config(view: RemoteView) -> Iterable[tuple[TierStatus, tuple[int, int]]]:
    for status in view.statuses:
        partition = view.logs.get(status.topic, status.partition)
        if partition is not None and partition.failure is None:
            config = partition.log.config
            yield status, (config.retention_bytes, config.effective_local_retention_bytes)


def _percent(status: TierStatus, size: int, limit: int) -> Sample:
    return Sample((status.topic, str(status.partition)), 0 if limit <= 0 else size * 100 // limit)


def _average_ms(throttled: ThrottleCounts) -> float:
    return throttled.total_ms / throttled.times if throttled.times else 0.0


def _reader_time(view: RemoteView) -> Iterable[Sample]:
    if view.remote is not None:
        time = view.remote.reader_time
        yield Sample((), time.total_ms, time.reads)


def _unreachable_seconds(view: RemoteView) -> Iterable[Sample]:
    since = None if view.remote is None else view.remote.health.unreachable_since_ms
    return single(0 if since is None else max(view.logs.clock.now_ms() - since, 0) / 1000)


METRICS: tuple[Metric[RemoteView], ...] = (
    _counted("RemoteCopyBytesPerSec", "copy_bytes", "Bytes of segments that were copied to the remote tier."),
    _counted("RemoteCopyRequestsPerSec", "copy_requests", "Copies of segments that were started."),
    _counted("RemoteCopyErrorsPerSec", "copy_errors", "Copies of segments that failed."),
    _counted("RemoteFetchBytesPerSec", "fetch_bytes", "Bytes of records that were read from the remote tier."),
    _counted("RemoteFetchRequestsPerSec", "fetch_requests", "Reads of the remote tier."),
    _counted("RemoteFetchErrorsPerSec", "fetch_errors", "Reads of the remote tier that failed."),
    _counted("RemoteDeleteRequestsPerSec", "delete_requests", "Deletions of remote segments that were started."),
    _counted("RemoteDeleteErrorsPerSec", "delete_errors", "Deletions of remote segments that failed."),
    _counted("BuildRemoteLogAuxStateRequestsPerSec", "aux_state_requests",
             "Followers that built their state from the remote tier; none, with one replica."),
    _counted("BuildRemoteLogAuxStateErrorsPerSec", "aux_state_errors",
             "Followers that failed to build their state from the remote tier."),
    _summed("RemoteCopyLagBytes", lambda gauges: gauges.copy_lag_bytes,
            "Bytes of sealed segments that are not remote; grows while copies hang or fail."),
    _summed("RemoteCopyLagSegments", lambda gauges: gauges.copy_lag_segments,
            "Sealed segments that are not remote."),
    _summed("RemoteDeleteLagBytes", lambda gauges: gauges.delete_lag_bytes,
            "Bytes of remote segments that are due for deletion."),
    _summed("RemoteDeleteLagSegments", lambda gauges: gauges.delete_lag_segments,
            "Remote segments that are due for deletion."),
    _summed("RemoteLogMetadataCount", lambda gauges: gauges.metadata_count,
            "Remote segments that the metadata knew at the last run of the expiration task, in any state."),
    _summed("RemoteLogSizeBytes", lambda gauges: gauges.size_bytes,
            "Bytes of remote segments that are fully copied."),
    _summed("RemoteLogSizeComputationTime", lambda gauges: gauges.size_computation_ms,
            "Milliseconds to count them."),
    kafka_metric(_READERS + "RemoteLogReaderTaskQueueSize", _remote(lambda remote: remote.limits.readers.pending),
                 "Remote reads that wait for a thread."),
    kafka_metric(_READERS + "RemoteLogReaderAvgIdlePercent", _remote(lambda remote: remote.limits.readers.idle_ratio),
                 "Share of idle reader threads, from 0 to 1."),
    kafka_metric(_MANAGER + "RemoteLogManagerTasksAvgIdlePercent",
                 _remote(lambda remote: remote.limits.followers.idle_ratio),
                 "Share of idle threads for follower tasks, from 0 to 1."),
    kafka_metric(_MANAGER + "RemoteLogReaderFetchRateAndTimeMs", _reader_time,
                 "Finished remote reads, and their total time in milliseconds.", kind=MetricKind.TIMER),
    kafka_metric(_MANAGER + "RetentionSizeInPercent", _retention_percent,
                 "Size of both tiers, with shared data counted once, in percent of retention.bytes; 0 without a bound.",
                 PARTITION),
    kafka_metric(_MANAGER + "LocalRetentionSizeInPercent", _local_retention_percent,
                 "Local size in percent of local.retention.bytes; 0 without a bound.", PARTITION),
    kafka_metric("kafka.server:type=RLMCopy", _remote(lambda remote: remote.limits.copy_quota.rate()),
                 "Bytes copied per second, over the windows of the quota.", attribute="byte-rate"),
    kafka_metric("kafka.server:type=RLMFetch", _remote(lambda remote: remote.limits.fetch_quota.rate()),
                 "Bytes read from the remote tier per second, over the windows of the quota.",
                 attribute="byte-rate"),
    kafka_metric(_THROTTLES, _remote(lambda remote: _average_ms(remote.limits.copy_quota.throttled)),
                 "Average wait of delayed copies in milliseconds.",
                 attribute="remote-copy-throttle-time-avg"),
    kafka_metric(_THROTTLES, _remote(lambda remote: remote.limits.copy_quota.throttled.max_ms),
                 "Longest wait of a copy in milliseconds.", attribute="remote-copy-throttle-time-max"),
    kafka_metric(_THROTTLES, _remote(lambda remote: _average_ms(remote.limits.fetch_quota.throttled)),
                 "Milliseconds by which reads were above the quota, on average over reads that were rejected.",
                 attribute="remote-fetch-throttle-time-avg"),
    kafka_metric(_THROTTLES, _remote(lambda remote: remote.limits.fetch_quota.throttled.max_ms),
                 "Milliseconds by which reads were above the quota, at most.",
                 attribute="remote-fetch-throttle-time-max"),
    own_metric("tier_status", _reasons,
               "1, with the reason why the oldest segment that is not remote is still local.", (*PARTITION, "reason")),
    own_metric("tier_failures_in_a_row", _failures,
               "Consecutive failed runs of a task of the partition.",
               (*PARTITION, "task")),
    own_metric("tier_lag_segments", _status(lambda status: status.lag_segments),
               "Sealed segments that are not remote.", PARTITION),
    own_metric("tier_lag_bytes", _status(lambda status: status.lag_bytes),
               "Bytes of sealed segments that are not remote.", PARTITION),
    own_metric("tier_remote_segments", _status(lambda status: status.remote_segments),
               "Remote segments that can be read.", PARTITION),
    own_metric("tier_remote_bytes", _status(lambda status: status.remote_bytes),
               "Bytes of remote segments that can be read.", PARTITION),
    own_metric("tier_highest_remote_offset", _status(lambda status: status.highest_remote_offset),
               "The last offset copied to the remote tier, or -1.", PARTITION),
    own_metric("tier_unreachable_seconds", _unreachable_seconds,
               "How long the object store has been failing; 0 if it is available."),
    own_metric("tier_stalled_tasks", _remote(lambda remote: len(remote.watchdog.stalls)),
               "Tasks that make no progress."),
    own_metric("tier_index_cache_bytes", _remote(lambda remote: remote.index_cache.size_bytes),
               "Bytes of remote indexes that are on the local disk."),
    own_metric("tier_index_cache_entries", _remote(lambda remote: len(remote.index_cache)),
               "Remote segments whose indexes are on the local disk."),
)  # fmt: skip
