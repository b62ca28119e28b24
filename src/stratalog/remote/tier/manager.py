"""The remote tier of one broker: plugins, caches, quotas, tasks and their threads."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from stratalog.config import BrokerConfig
from stratalog.errors import (
    OffsetOutOfRangeError,
    RemoteStorageError,
    RetriableRemoteStorageError,
    StratalogError,
)
from stratalog.log import RemoteHistory
from stratalog.log.format import TimestampOffset
from stratalog.remote.api import (
    OwnsItsStore,
    PluginMetrics,
    RemoteLogMetadataManager,
    RemoteLogSegmentMetadata,
    RemoteStorageManager,
    TopicIdPartition,
    name_of,
    position_max,
)
from stratalog.remote.reading import RemoteIndexCache, RemoteLogReader, RemoteReadResult, SegmentBlocks, UnclampedSizes
from stratalog.remote.tier.counters import RemoteTopicCounts
from stratalog.remote.tier.health import RemoteHealth
from stratalog.remote.tier.limits import TierLimits
from stratalog.remote.tier.log_view import LogView, topic_id_partition
from stratalog.remote.tier.partition_deletion import KeepsDeletionsApart, PartitionDeleter, RemembersDeletions
from stratalog.remote.tier.remote_history import read_remote_history
from stratalog.remote.tier.services import PartitionCount, TierServices, not_known
from stratalog.remote.tier.tier_facts import (
    PartitionGauges,
    ReaderTime,
    RemoteSizes,
    RunResult,
    TierLag,
)
from stratalog.remote.tier.tiered_partition import FOLLOWER, READ, TieredPartition, tier_partition
from stratalog.remote.tier.watchdog import Step, Watchdog
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, Clock, FileSystem, Retries, Schedule, TopicCounts, WorkerPool

__all__ = ["RemoteLogManager", "RemoteSizes", "RunResult", "TierLag"]

logger = logging.getLogger(__name__)

#: How long a clean stop waits for running copies before it cancels them.
_CLOSE_GRACE_S = 5.0

#: Interval of the checks for stalled tasks and of purging the index cache.
_LOOK_MS = 10_000


class RemoteLogManager:
    """The remote tier of a broker. Thread-safe; `read` and `offset_for_timestamp` block on the store.

    `start` begins the background tasks; without it `run_once` runs a partition's tasks on the calling thread.

    For status pages: `counts`, `reader_time`, `gauges()`, `limits` (quotas and pools), `health`, `watchdog.stalls`.
    `engine.metrics_remote` has Kafka's names for them.
    """

    def __init__(
        self,
        rsm: RemoteStorageManager,
        rlmm: RemoteLogMetadataManager,
        config: BrokerConfig,
        index_cache_dir: Path,
        clock: Clock = SYSTEM_CLOCK,
        *,
        fs: FileSystem = REAL_FILESYSTEM,
        partition_count: PartitionCount = not_known,
        is_shared: bool = False,
    ) -> None:
        """`is_shared` says that other brokers of a cluster may lead the same partitions."""
        self._rsm = rsm
        #: The largest position that the storage plugin supports, or None.
        self.position_max = position_max(rsm)
        self._plain_rlmm = rlmm
        #: Metrics of plugins, added by their creators.
        self.plugin_metrics: list[PluginMetrics] = []
        self._rlmm = UnclampedSizes(rlmm, rsm)
        self._clock = clock
        self.health = RemoteHealth(clock)
        self.counts = TopicCounts(RemoteTopicCounts)
        self.reader_time = ReaderTime()
        self.watchdog = Watchdog(config["stratalog.remote.stall.ms"], clock)
        self.limits = TierLimits(config, clock)
        self.index_cache = RemoteIndexCache(
            Path(index_cache_dir),
            rsm,
            capacity_bytes=config["remote.log.index.file.cache.total.size.bytes"],
            ttl_ms=config["remote.log.index.file.cache.ttl.ms"],
            clock=clock,
            fs=fs,
        )
        self._blocks = SegmentBlocks(rsm)
        self._reader = RemoteLogReader(self._rlmm, self.index_cache, self._blocks)
        interval_ms = config["remote.log.manager.task.interval.ms"]
        self._schedule = Schedule("remote-log-schedule", interval_ms, clock, _retries(config), held=True)
        self._watcher = WorkerPool("remote-log-watchdog", 1)
        self._services = TierServices(
            rlmm=self._rlmm,
            rsm=rsm,
            clock=clock,
            fs=fs,
            broker_id=config["node.id"],
            custom_metadata_bytes_max=config["remote.log.metadata.custom.metadata.max.bytes"],
            copy_quota=self.limits.copy_quota,
            counts=self.counts,
            health=self.health,
            watchdog=self.watchdog,
            partition_count=partition_count,
            on_segment_deleted=self._forget_segment,
            is_shared=is_shared,
        )
        self._deletions = PartitionDeleter(
            self._services, schedule=self._schedule, pool=self.limits.expirers, on_deleted=self._partition_deleted
        )
        self._tiered: dict[TopicIdPartition, TieredPartition] = {}
        #: Number of them by topic.
        self._by_topic: Counter[str] = Counter()
        #: Partitions that are tiered again before their old data are deleted, and whether as leader.
        self._waiting: dict[TopicIdPartition, tuple[LogView, bool]] = {}
        #: Metadata partitions to check for unfinished deletions.
        self._taking_over: set[int] = set()
        self._lock = threading.Lock()
        #: Set once unfinished deletions of an earlier process are known. No task runs before that.
        self._resumed = threading.Event()
        self._closed = False

    # --- lifecycle --------------------------------------------------------------------------------------------------

    @property
    def storage(self) -> RemoteStorageManager:
        """The plugin that keeps the segments."""
        return self._rsm

    def start(self) -> None:
        """Start the background tasks, and resume deletions of an earlier process."""
        self._schedule.start()
        self._schedule.add("resumption of deletions", self._resume_deletions, self.limits.expirers, once=True)
        self._schedule.add("watchdog", self._look, self._watcher, interval_ms=_LOOK_MS)

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply the settings that can change at run time."""
        self.limits.reconfigure(config)
        self.index_cache.resize(config["remote.log.index.file.cache.total.size.bytes"])

    def close(self) -> None:
        """Stop all tasks.

        Running copies get a moment to finish, then they are cancelled. A second call does nothing.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            tiered = list(self._tiered.values())
        for partition in tiered:
            partition.cancelled.set()
        self._schedule.close()
        if not self._schedule.wait_idle(_CLOSE_GRACE_S):
            logger.warning("Remote copies or deletions are still running; they are cancelled, and repeated later")
        if isinstance(self._rsm, OwnsItsStore):
            self._rsm.release_owner()
        self._rsm.close()
        self.limits.close()
        self._watcher.close()
        self._blocks.close()
        self.index_cache.close()
        self._rlmm.close()

    # --- partitions -------------------------------------------------------------------------------------------------

    def on_leadership_change(self, leaders: Iterable[LogView], followers: Iterable[LogView] = ()) -> None:
        """Start tiering partitions as leader or follower. Known ones run their tasks now.

        A partition whose remote segments are being deleted is tiered after that.
        """
        leading = [(log, True) for log in leaders]
        following = [(log, False) for log in followers]
        self._rlmm.on_partition_leadership_changes(
            [topic_id_partition(log) for log, _ in leading], [topic_id_partition(log) for log, _ in following]
        )
        for log, is_leader in (*leading, *following):
            self._add(log, is_leader)

    def _add(self, log: LogView, is_leader: bool) -> None:
        partition = topic_id_partition(log)
        with self._lock:
            if self._closed:
                return
            if self._deletions.covers(partition):
                self._waiting[partition] = (log, is_leader)
                return
            known = self._tiered.get(partition)
            if known is not None and known.log is log and known.is_leader == is_leader:
                self._schedule.poke(known.jobs)
                return
            if known is not None:
                self._stop(known, resigned=not is_leader)
            self._check_reach(log, partition)
            tiered = tier_partition(self._services, log, partition, is_leader=is_leader)
            self._tiered[partition] = tiered
            self._by_topic[partition.topic] += known is None
            pools = [self.limits.copiers, self.limits.expirers] if is_leader else [self.limits.followers]
            tiered.jobs = [
                self._schedule.add(f"{name} of {partition}", self._guarded(tiered, name, run), pool)
                for (name, run), pool in zip(tiered.turns(), pools, strict=True)
            ]

    def _check_reach(self, log: LogView, partition: TopicIdPartition) -> None:
        """Warn early about segments too large for the storage plugin."""
        limit, wanted = self.position_max, log.config.segment_bytes
        if limit is not None and wanted > limit:
            logger.warning(
                "%s: segment.bytes is %d, but the storage plugin %s takes positions up to %d; larger segments "
                "are not copied and stay local",
                partition,
                wanted,
                name_of(self._rsm),
                limit,
            )

    def stop_partitions(self, partitions: Iterable[TopicIdPartition], *, delete_remote: bool = False) -> None:
        """Stop the tasks of partitions. With `delete_remote`, delete all their remote data in the background.

        No task touches a partition's log afterwards. The deletion is recorded durably before this returns, and resumes
        after a restart. Raises RemoteStorageError when it could not be recorded.
        """
        doomed = list(partitions)
        stopped: dict[TopicIdPartition, TieredPartition] = {}
        for partition in doomed:
            with self._lock:
                known = self._take_out(partition)
                self._waiting.pop(partition, None)
            if known is not None:
                self._stop(known, resigned=self._services.is_shared)
                stopped[partition] = known
            self.health.forget(partition)
            self.watchdog.forget(partition)
        for topic in {partition.topic for partition in doomed}:
            with self._lock:
                is_gone = not self._by_topic[topic]
                if is_gone:
                    del self._by_topic[topic]
            if is_gone:
                self.counts.forget(topic)
        if delete_remote:
            for partition in doomed:
                self._deletions.begin(partition, stopped.get(partition))
        else:
            self._rlmm.on_stop_partitions(doomed)

    def _take_out(self, partition: TopicIdPartition) -> TieredPartition | None:
        """Remove and return a tiered partition. Hold the lock."""
        known = self._tiered.pop(partition, None)
        if known is not None:
            self._by_topic[partition.topic] -= 1
        return known

    def is_deleting(self, partition: TopicIdPartition) -> bool:
        """Return whether all remote data of a partition are being deleted."""
        return self._deletions.covers(partition)

    def _stop(self, tiered: TieredPartition, *, resigned: bool = False) -> None:
        tiered.cancelled.set(resigned=resigned)
        for job in tiered.jobs:
            self._schedule.cancel(job)

    def _resume_deletions(self) -> bool:
        """Resume deletions of an earlier process before any task runs, so that nothing of them is read or added to.

        In a cluster this is up to the leaders of the metadata partitions: `take_over_deletions`.
        """
        if not self._services.is_shared and isinstance(self._plain_rlmm, RemembersDeletions):
            unfinished = list(self._plain_rlmm.unfinished_partition_deletes())
            self._deletions.resume(unfinished)
            with self._lock:
                early = [tiered for partition in unfinished if (tiered := self._take_out(partition)) is not None]
                for tiered in early:
                    self._stop(tiered)
                    self._waiting[tiered.partition] = (tiered.log, tiered.is_leader)
        self._resumed.set()
        self._schedule.poke()
        return True

    def take_over_deletions(self, number: int) -> None:
        """Resume deletions that other brokers began and whose events are in this metadata partition.

        For the broker that leads it. Partitions of existing topics belong to their own leaders.
        """
        with self._lock:
            if self._closed or number in self._taking_over:
                return
            self._taking_over.add(number)

        def resume() -> bool:
            if not isinstance(self._plain_rlmm, KeepsDeletionsApart):
                return True
            try:
                unfinished = list(self._plain_rlmm.unfinished_deletes_in(number))
            except RetriableRemoteStorageError as error:
                logger.debug("Deletions of metadata partition %d are not known yet: %s", number, error)
                return False
            gone = [each for each in unfinished if self._services.partition_count(each.topic_id) is None]
            self._deletions.resume(gone)
            if len(gone) < len(unfinished):
                return False  # the topic exists, or this broker has not learned of its deletion
            with self._lock:
                self._taking_over.discard(number)
            return True

        self._schedule.add(f"deletions of metadata partition {number}", resume, self.limits.expirers, once=True)

    def _partition_deleted(self, partition: TopicIdPartition) -> None:
        with self._lock:
            waiting = self._waiting.pop(partition, None)
        if waiting is not None:
            log, is_leader = waiting
            self.on_leadership_change([log] if is_leader else [], [] if is_leader else [log])

    # --- tasks ------------------------------------------------------------------------------------------------------

    def run_once(self, partition: TopicIdPartition) -> RunResult:
        """Run a partition's tasks once, on this thread. Raises their errors."""
        tiered = self._of(partition)
        if not tiered.is_leader:
            tiered.follow()
            return RunResult()
        return RunResult(tiered.copy(), tiered.expire())

    def poke(self, partition: TopicIdPartition | None = None) -> None:
        """Run the tasks of a partition (default: of all) now rather than when they are due."""
        if partition is None:
            self._schedule.poke()
            return
        tiered = self._tiered.get(partition)
        if tiered is not None:
            self._schedule.poke(tiered.jobs)

    def _guarded(self, tiered: TieredPartition, name: str, run: Callable[[], int]) -> Callable[[], bool]:
        """Return a task for the schedule, which reports errors and is then repeated."""

        def guarded() -> bool:
            if not self._resumed.is_set():
                return True  # poked as soon as it is
            try:
                if not self._rlmm.is_ready(tiered.partition):
                    logger.debug("%s: no %s yet, its metadata is still being read", tiered.partition, name)
                    return not self._services.is_shared
                done = run()
            except (StratalogError, OSError) as error:
                if not tiered.cancelled.is_set():
                    self.health.failed(tiered.partition, name, error)
                return False
            used_store = name != FOLLOWER and done > 0
            if self.health.succeeded(tiered.partition, name, used_store=used_store):
                self._schedule.poke()
            return True

        return guarded

    def _look(self) -> bool:
        self.watchdog.look()
        self.index_cache.purge()
        return True

    def _forget_segment(self, segment: RemoteLogSegmentMetadata) -> None:
        self.index_cache.invalidate(segment.segment_id.id)
        self._blocks.forget(segment.segment_id.id.bytes)
        self._rlmm.forget(segment.segment_id)

    # --- reading ----------------------------------------------------------------------------------------------------

    def read(
        self,
        partition: TopicIdPartition,
        offset: int,
        max_bytes: int,
        *,
        min_one_message: bool = True,
        read_committed: bool = False,
    ) -> RemoteReadResult:
        """Return batches of the remote tier from the one with `offset` on; see `RemoteLogReader.read`.

        Empty and `throttled` while the fetch quota is used up.
        """
        log = self._of(partition).log
        if self.limits.fetch_quota.shed_ms() > 0:
            return RemoteReadResult(b"", [] if read_committed else None, throttled=True)
        counts = self.counts.topic(partition.topic)
        counts.fetch_requests += 1
        started = self._clock.monotonic()
        try:
            result = self._reader.read(
                log,
                partition,
                offset,
                max_bytes,
                min_one_message=min_one_message,
                read_committed=read_committed,
            )
        except OffsetOutOfRangeError:
            raise  # a client error, or retention was faster
        except Exception as error:
            counts.fetch_errors += 1
            if isinstance(error, RemoteStorageError) and not isinstance(error, RetriableRemoteStorageError):
                self.health.failed(partition, READ, error)
            raise
        finally:
            self.reader_time.add((self._clock.monotonic() - started) * 1000)
        if (partition, READ) in self.health.failures:
            self.health.succeeded(partition, READ, used_store=False)
        counts.fetch_bytes += len(result.records)
        self.limits.fetch_quota.record(len(result.records))
        return result

    def offset_for_timestamp(
        self, partition: TopicIdPartition, timestamp_ms: int, start_offset: int
    ) -> TimestampOffset | None:
        """Return the first remote record at or after a time, below the local log; see `RemoteLogReader`."""
        return self._reader.offset_for_timestamp(self._of(partition).log, partition, timestamp_ms, start_offset)

    def history(
        self, partition: TopicIdPartition, *, leader_epoch: int, offset: int, log_start_offset: int
    ) -> RemoteHistory:
        """Return what a replica needs to begin after the remote tier; see `read_remote_history`."""
        return read_remote_history(
            self._rlmm,
            self._rsm,
            partition,
            leader_epoch=leader_epoch,
            offset=offset,
            log_start_offset=log_start_offset,
        )

    # --- state ------------------------------------------------------------------------------------------------------

    def partitions(self) -> list[TopicIdPartition]:
        with self._lock:
            return sorted(self._tiered)

    def gauges(self) -> dict[TopicIdPartition, PartitionGauges]:
        """Return Kafka's gauges of every tiered partition."""
        with self._lock:
            tiered = dict(self._tiered)
        return {partition: found.gauges for partition, found in tiered.items()}

    def copying_stopped(self, partition: TopicIdPartition) -> bool:
        """Return whether copying of a partition ended because its custom metadata are too large."""
        return self._of(partition).copying_stopped

    def copy_step(self, partition: TopicIdPartition) -> Step | None:
        """Return the step of a partition's copy task; None when it is idle, or the partition is not tiered here."""
        tiered = self._tiered.get(partition)
        return None if tiered is None else tiered.copy_step

    def copy_lag(self, partition: TopicIdPartition) -> TierLag:
        """Return what is sealed and not remote. It grows while copies hang or fail."""
        return self._of(partition).copy_lag

    def delete_lag(self, partition: TopicIdPartition) -> TierLag:
        """Return what the last run of the expiration task has not deleted yet."""
        return self._of(partition).delete_lag

    def sizes(self, partition: TopicIdPartition) -> RemoteSizes:
        return self._rlmm.sizes(partition)

    def segments(self, partition: TopicIdPartition) -> list[RemoteLogSegmentMetadata]:
        """Return the remote segments of a partition, in every state before DELETE_SEGMENT_FINISHED."""
        return list(self._rlmm.list_remote_log_segments(partition))

    def _of(self, partition: TopicIdPartition) -> TieredPartition:
        found = self._tiered.get(partition)
        if found is None:
            raise RemoteStorageError(f"{partition} is not tiered by this broker")
        return found


def _retries(config: BrokerConfig) -> Retries:
    prefix = "remote.log.manager.task.retry"
    return Retries(config[f"{prefix}.backoff.ms"], config[f"{prefix}.backoff.max.ms"], config[f"{prefix}.jitter"])
