"""Metrics of partitions and log directories: `kafka.log`, `kafka.cluster`, `kafka.server:type=ReplicaManager`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from stratalog.engine.log_manager import LogManager
from stratalog.engine.metrics.metric import Metric, MetricKind, Sample, kafka_metric, own_metric, single
from stratalog.engine.partition import Partition
from stratalog.engine.replication import IsrCounts, LeaderAndFollowerThrottle, ReplicaFetcher, ReplicationThrottle
from stratalog.log import PartitionLog
from stratalog.log.retention import is_tiered

PARTITION: Final[tuple[str, ...]] = ("topic", "partition")
DIRECTORY = ("logDirectory",)

_LOG = "kafka.log:type=Log,name="
_MANAGER = "kafka.log:type=LogManager,name="
_PARTITION = "kafka.cluster:type=Partition,name="
_REPLICAS = "kafka.server:type=ReplicaManager,name="
_FETCHERS = "kafka.server:type=ReplicaFetcherManager,name="
CLIENT = ("clientId",)
FETCHER = ("clientId", "topic", "partition")
_CLIENT_ID = "Replica"


def of_logs(read: Callable[[PartitionLog], float]) -> Callable[[LogManager], Iterable[Sample]]:
    """Return one value for each served partition."""
    return of_partitions(lambda partition: read(partition.log))


def of_partitions(read: Callable[[Partition], float]) -> Callable[[LogManager], Iterable[Sample]]:
    return lambda logs: (
        Sample((partition.topic, str(partition.partition)), read(partition)) for partition in logs.partitions()
    )


def _count(wanted: Callable[[Partition], bool]) -> Callable[[LogManager], Iterable[Sample]]:
    return lambda logs: single(sum(wanted(partition) for partition in logs.partitions()))


class _IsrFacts(NamedTuple):
    """Facts of a partition led here; all 0 for a follower."""

    replicas: int
    in_sync: int
    min_isr: int

    @property
    def is_under_replicated(self) -> bool:
        return self.in_sync < self.replicas

    @property
    def is_under_min(self) -> bool:
        return self.in_sync < self.min_isr

    @property
    def is_at_min(self) -> bool:
        return bool(self.replicas) and self.in_sync == self.min_isr


def _isr(partition: Partition) -> _IsrFacts:
    led = partition.led
    if led is not None:
        return _IsrFacts(len(led.replicas), len(led.isr), led.min_isr)
    return _IsrFacts(1, 1, 1) if partition.leader_epoch >= 0 else _IsrFacts(0, 0, 0)


def _is_reassigned(partition: Partition) -> bool:
    assigned = partition.assigned
    return (
        partition.leader_epoch >= 0
        and assigned is not None
        and bool(assigned.adding_replicas or assigned.removing_replicas)
    )


def _throttle_rate(
    throttle: Callable[[LeaderAndFollowerThrottle], ReplicationThrottle],
) -> Callable[[LogManager], Iterable[Sample]]:
    """Return a rate of a broker of a cluster; nothing without one."""
    return lambda logs: () if logs.replication is None else single(throttle(logs.replication.throttles).rate())


def _isr_count(read: Callable[[IsrCounts], int]) -> Callable[[LogManager], Iterable[Sample]]:
    return lambda logs: single(0 if logs.replication is None else read(logs.replication.isr_counts))


def _of_fetchers(read: Callable[[Sequence[ReplicaFetcher]], float]) -> Callable[[LogManager], Iterable[Sample]]:
    """Return one value over all fetchers; none without a cluster."""
    return lambda logs: [
        Sample((_CLIENT_ID,), read([] if logs.replication is None else logs.replication.fetchers.fetchers()))
    ]


def _fetcher_lags(logs: LogManager) -> Iterable[Sample]:
    fetchers = [] if logs.replication is None else logs.replication.fetchers.fetchers()
    for fetcher in fetchers:
        for following in fetcher.followings():
            partition = following.partition
            yield Sample((fetcher.client_id, partition.topic, str(partition.partition)), following.lag)


def _max_lag(fetchers: Sequence[ReplicaFetcher]) -> int:
    return max((following.lag for fetcher in fetchers for following in fetcher.followings()), default=0)


def _min_fetch_rate(fetchers: Sequence[ReplicaFetcher]) -> float:
    return min((fetcher.rate.value() for fetcher in fetchers), default=0.0)


def _failed_partitions(fetchers: Sequence[ReplicaFetcher]) -> int:
    return sum(following.trouble is not None for fetcher in fetchers for following in fetcher.followings())


def _retention_size_percent(log: PartitionLog) -> int:
    """Return the share of retention.bytes; 0 without a bound, and for tiered partitions (see `kafka.log.remote`)."""
    limit = log.config.retention_bytes
    return 0 if is_tiered(log.config) or limit <= 0 else log.size_bytes * 100 // limit


def _has_late_transaction(logs: LogManager) -> Callable[[Partition], bool]:
    now_ms = logs.clock.now_ms()
    return lambda partition: partition.log.producers.has_late_transaction(now_ms)


def _dirs(
    read: Callable[[LogManager], Iterable[tuple[str, float]]],
) -> Callable[[LogManager], Iterable[Sample]]:
    return lambda logs: (Sample((path,), value) for path, value in read(logs))


def _room(read: Callable[[os.statvfs_result], int]) -> Callable[[LogManager], Iterable[Sample]]:
    """Return one value of the disk of each log directory in service, if available."""

    def samples(logs: LogManager) -> Iterable[Sample]:
        for path in logs.dirs.live:
            try:
                room = os.statvfs(path.path)
            except OSError:  # only writes take a directory offline, not this query
                continue
            yield Sample((str(path.path),), read(room) * room.f_frsize)

    return samples


METRICS: tuple[Metric[LogManager], ...] = (
    kafka_metric(_LOG + "Size", of_logs(lambda log: log.size_bytes),
                 "Bytes of all local segments of the partition.", PARTITION),
    kafka_metric(_LOG + "NumLogSegments", of_logs(lambda log: len(log.segments)),
                 "Local segments, the active one included.", PARTITION),
    kafka_metric(_LOG + "LogStartOffset", of_logs(lambda log: log.log_start_offset),
                 "The first offset that may be read, in any tier.", PARTITION),
    kafka_metric(_LOG + "LogEndOffset", of_logs(lambda log: log.log_end_offset),
                 "The offset of the next record.", PARTITION),
    kafka_metric(_LOG + "RetentionSizeInPercent", of_logs(_retention_size_percent),
                 "Local size in percent of retention.bytes; 0 without a bound, and for tiered partitions.", PARTITION),
    own_metric("log_local_start_offset", of_logs(lambda log: log.local_log_start_offset),
               "The first offset that is on the local disk.", PARTITION),
    own_metric("log_high_watermark", of_logs(lambda log: log.high_watermark),
               "Consumers read below this offset.", PARTITION),
    own_metric("log_last_stable_offset", of_logs(lambda log: log.last_stable_offset),
               "Consumers with isolation.level=read_committed read below this offset.", PARTITION),
    own_metric("log_recovery_point", of_logs(lambda log: log.recovery_point),
               "Everything below this offset is durable.", PARTITION),
    own_metric("log_active_segment_size_bytes", of_logs(lambda log: log.active_segment.size_bytes),
               "Bytes of the active segment.", PARTITION),
    own_metric("log_largest_segment_size_bytes",
               of_logs(lambda log: max(segment.size_bytes for segment in log.segments)),
               "Bytes of the largest local segment; past 2^31 with large segments (KIP-1333).", PARTITION),
    kafka_metric(
        "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
        lambda logs: [Sample((), logs.flush_times().total_ms, logs.flush_times().times)],
        "Log flushes, and their total time in milliseconds.",
        kind=MetricKind.TIMER,
    ),
    kafka_metric(_MANAGER + "OfflineLogDirectoryCount", lambda logs: single(len(logs.dirs.offline)),
                 "Failed log directories."),
    kafka_metric(_MANAGER + "LogDirectoryOffline",
                 _dirs(lambda logs: ((str(path), logs.dirs.is_offline(path)) for path in logs.dirs.paths)),
                 "1 for a failed log directory, 0 for one in service.", DIRECTORY),
    own_metric("log_directory_free_bytes", _room(lambda room: room.f_bavail),
               "Bytes that may still be written to the disk of a log directory.", DIRECTORY),
    own_metric("log_directory_disk_bytes", _room(lambda room: room.f_blocks),
               "Size of the disk of a log directory.", DIRECTORY),
    kafka_metric(_PARTITION + "InSyncReplicasCount", of_partitions(lambda partition: _isr(partition).in_sync),
                 "Replicas in sync of a partition led here.", PARTITION),
    kafka_metric(_PARTITION + "ReplicasCount", of_partitions(lambda partition: _isr(partition).replicas),
                 "Replicas of a partition led here.", PARTITION),
    kafka_metric(_PARTITION + "UnderReplicated", of_partitions(lambda partition: _isr(partition).is_under_replicated),
                 "1 if a replica is not in sync.", PARTITION),
    kafka_metric(_PARTITION + "UnderMinIsr", of_partitions(lambda partition: _isr(partition).is_under_min),
                 "1 if fewer replicas are in sync than min.insync.replicas requires.", PARTITION),
    kafka_metric(_PARTITION + "AtMinIsr", of_partitions(lambda partition: _isr(partition).is_at_min),
                 "1 if as many replicas are in sync as min.insync.replicas requires.", PARTITION),
    kafka_metric(_PARTITION + "LastStableOffsetLag",
                 of_logs(lambda log: max(log.high_watermark - log.last_stable_offset, 0)),
                 "Offsets from the last stable offset to the high watermark.", PARTITION),
    kafka_metric(_REPLICAS + "PartitionCount", _count(lambda _: True), "Partitions in service."),
    kafka_metric(_REPLICAS + "LeaderCount", _count(lambda partition: partition.leader_epoch >= 0),
                 "Partitions led here."),
    kafka_metric(_REPLICAS + "ReassigningPartitions", _count(_is_reassigned),
                 "Partitions led here that are being reassigned."),
    kafka_metric(_REPLICAS + "OfflineReplicaCount", lambda logs: single(logs.offline_count()),
                 "Partitions whose log directory failed."),
    kafka_metric(_REPLICAS + "IsrExpandsPerSec", _isr_count(lambda counts: counts.expands),
                 "Replicas that rejoined the ISR, of partitions led here."),
    kafka_metric(_REPLICAS + "IsrShrinksPerSec", _isr_count(lambda counts: counts.shrinks),
                 "ISR changes that removed replicas, of partitions led here."),
    kafka_metric(_REPLICAS + "FailedIsrUpdatesPerSec", _isr_count(lambda counts: counts.failed),
                 "ISR changes that the controller refused."),
    kafka_metric("kafka.server:type=LeaderReplication", _throttle_rate(lambda throttles: throttles.leader),
                 "Bytes per second that throttled replicas of other brokers fetch from this one (KIP-73).",
                 attribute="byte-rate"),
    kafka_metric("kafka.server:type=FollowerReplication", _throttle_rate(lambda throttles: throttles.follower),
                 "Bytes per second that throttled replicas of this broker fetch from their leaders (KIP-73).",
                 attribute="byte-rate"),
    kafka_metric(_FETCHERS + "MaxLag", _of_fetchers(_max_lag),
                 "Records that the replica furthest behind its leader has yet to fetch.", CLIENT),
    kafka_metric(_FETCHERS + "MinFetchRate", _of_fetchers(_min_fetch_rate),
                 "Fetches per second of the slowest fetcher, over about a minute; 0 without one.", CLIENT),
    kafka_metric(_FETCHERS + "FailedPartitionsCount", _of_fetchers(_failed_partitions),
                 "Partitions that cannot follow at present; they are retried.", CLIENT),
    kafka_metric(_FETCHERS + "DeadThreadCount",
                 _of_fetchers(lambda fetchers: sum(each.is_dead for each in fetchers)),
                 "Fetchers whose thread has ended.", CLIENT),
    kafka_metric("kafka.server:type=FetcherLagMetrics,name=ConsumerLag", _fetcher_lags,
                 "Records that a follower has yet to fetch.", FETCHER),
    kafka_metric(_REPLICAS + "UnderReplicatedPartitions",
                 _count(lambda partition: _isr(partition).is_under_replicated),
                 "Partitions led here with a replica that is not in sync."),
    kafka_metric(_REPLICAS + "UnderMinIsrPartitionCount", _count(lambda partition: _isr(partition).is_under_min),
                 "Partitions led here with fewer replicas in sync than min.insync.replicas requires."),
    kafka_metric(_REPLICAS + "AtMinIsrPartitionCount", _count(lambda partition: _isr(partition).is_at_min),
                 "Partitions led here with as many replicas in sync as min.insync.replicas requires."),
    kafka_metric(_REPLICAS + "ProducerIdCount",
                 lambda logs: single(sum(len(p.log.producers.producers) for p in logs.partitions())),
                 "Known idempotent producers, over all partitions."),
    kafka_metric(_REPLICAS + "PartitionsWithLateTransactionsCount",
                 lambda logs: _count(_has_late_transaction(logs))(logs),
                 "Partitions with a transaction open for longer than allowed."),
)  # fmt: skip
