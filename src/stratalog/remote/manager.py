"""The remote tier of one broker: plugins, caches, quotas, tasks and their threads, put together."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from stratalog.config.broker import BrokerConfig
from stratalog.errors import RemoteStorageError, StratalogError
from stratalog.log.values import TimestampOffset
from stratalog.remote.api import (
    RemoteLogMetadataManager,
    RemoteLogSegmentMetadata,
    RemoteStorageManager,
    TopicIdPartition,
)
from stratalog.remote.copy_task import CopiesInFlight, CopyTask
from stratalog.remote.deletion import SegmentDeleter
from stratalog.remote.expiration_task import DeleteLag, ExpirationTask
from stratalog.remote.follower_task import FollowerTask
from stratalog.remote.health import RemoteHealth
from stratalog.remote.index_cache import RemoteIndexCache
from stratalog.remote.log_view import LogView, segments_not_remote, topic_id_partition
from stratalog.remote.metadata.topic_based import TopicBasedRemoteLogMetadataManager
from stratalog.remote.partition_deletion import PartitionDeletion
from stratalog.remote.plugin import name_of, position_max
from stratalog.remote.quota import RateQuota
from stratalog.remote.reader import RemoteLogReader, RemoteReadResult
from stratalog.remote.schedule import Schedule
from stratalog.remote.segment_blocks import SegmentBlocks
from stratalog.remote.tiered_partition import TieredPartition
from stratalog.remote.true_sizes import TrueSizes
from stratalog.util.clock import SYSTEM_CLOCK, Clock
from stratalog.util.filesystem import REAL_FILESYSTEM, FileSystem

logger = logging.getLogger(__name__)

#: How long a clean end waits for copies that are under way before it breaks them off.
_CLOSE_GRACE_S = 5.0

#: The only task that does not use the store.
_FOLLOWER_TASK = "follower task"


@dataclass(frozen=True, slots=True)
class RunResult:
    """What one turn of a partition's tasks did: segments copied and segments deleted."""

    copied: int = 0
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class CopyLag:
    """Sealed segments that are not in the remote tier yet."""

    segments: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class RemoteSizes:
    """What the metadata knows of a partition: all segments in any state, and the bytes of the readable ones."""

    segments: int
    readable_segments: int
    readable_bytes: int


class RemoteLogManager:
    """See the module. Thread-safe; `read` and `offset_for_timestamp` block on the store.

    `start` begins the background tasks; without it `run_once` does a partition's work on the calling thread.
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
    ) -> None:
        self._rsm = rsm
        #: The largest position that the storage plugin can be asked for; None for no limit.
        self.position_max = position_max(rsm)
        self._plain_rlmm = rlmm
        self._rlmm = TrueSizes(rlmm, rsm)
        self._config = config
        self._clock = clock
        self._fs = fs
        self._broker_id: int = config["node.id"]
        self.health = RemoteHealth(clock)
        self.copy_quota = self._quota("copy")
        self.fetch_quota = self._quota("fetch")
        self.index_cache = RemoteIndexCache(
            Path(index_cache_dir),
            rsm,
            capacity_bytes=config["remote.log.index.file.cache.total.size.bytes"],
            ttl_ms=config["remote.log.index.file.cache.ttl.ms"],
            fs=fs,
        )
        self._blocks = SegmentBlocks(rsm)
        self._reader = RemoteLogReader(self._rlmm, self.index_cache, self._blocks)
        self._in_flight = CopiesInFlight()
        self._deleter = SegmentDeleter(
            rlmm, rsm, broker_id=self._broker_id, clock=clock, on_deleted=self._forget_segment
        )
        self._schedule = Schedule(config["remote.log.manager.task.interval.ms"], clock)
        self._copiers = _pool("copier", config["remote.log.manager.copier.thread.pool.size"])
        self._expirers = _pool("expiration", config["remote.log.manager.expiration.thread.pool.size"])
        self._followers = _pool("follower", config["remote.log.manager.follower.thread.pool.size"])
        self._tiered: dict[TopicIdPartition, TieredPartition] = {}
        self._lock = threading.Lock()
        self._closed = False

    def _quota(self, what: str) -> RateQuota:
        prefix = f"remote.log.manager.{what}"
        return RateQuota(
            self._config[f"{prefix}.max.bytes.per.second"],
            self._config[f"{prefix}.quota.window.num"],
            self._config[f"{prefix}.quota.window.size.seconds"],
            self._clock,
        )

    # --- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the background tasks, and go on with deletions that an earlier process had begun."""
        self._schedule.start()
        self._schedule.add("resumption of deletions", self._resume_deletions, self._expirers, once=True)

    def close(self) -> None:
        """End all tasks; copies get a moment to finish, and are broken off then. Harmless when called again."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            tiered = list(self._tiered.values())
        for partition in tiered:
            partition.cancelled.set()
        self._schedule.close()
        if not self._schedule.wait_idle(_CLOSE_GRACE_S):
            logger.warning(
                "Remote copies or deletions are still running; they are broken off, and done again later"
            )
        self._rsm.close()
        for pool in (self._copiers, self._expirers, self._followers):
            pool.shutdown(wait=True, cancel_futures=True)
        self._blocks.close()
        self.index_cache.close()
        self._rlmm.close()

    # --- partitions -------------------------------------------------------------------------------------------------

    def on_leadership_change(self, leaders: Iterable[LogView], followers: Iterable[LogView] = ()) -> None:
        """Tier these partitions from now on, as their leader or as a follower. Those that are known already are poked."""
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
            known = self._tiered.get(partition)
            if known is not None and known.log is log and known.is_leader == is_leader:
                self._schedule.poke(known.jobs)
                return
            if known is not None:
                self._stop(known)
            self._check_reach(log, partition)
            tiered = self._tiered[partition] = self._make(log, partition, is_leader)
            kinds = (
                [("copy", tiered.copy, self._copiers), ("expiration", tiered.expire, self._expirers)]
                if is_leader
                else [(_FOLLOWER_TASK, tiered.follow, self._followers)]
            )
            tiered.jobs = [
                self._schedule.add(f"{name} of {partition}", self._guarded(tiered, name, run), pool)
                for name, run, pool in kinds
            ]

    def _check_reach(self, log: LogView, partition: TopicIdPartition) -> None:
        """Say at once what would otherwise come out with the first large segment."""
        limit, wanted = self.position_max, log.config.segment_bytes
        if limit is not None and wanted > limit:
            logger.warning(
                "%s: segment.bytes is %d, but the storage plugin %s takes positions up to %d; segments that are larger are "
                "not copied and stay local",
                partition, wanted, name_of(self._rsm), limit,
            )  # fmt: skip

    def _make(self, log: LogView, partition: TopicIdPartition, is_leader: bool) -> TieredPartition:
        cancelled = threading.Event()
        copy = CopyTask(
            log,
            partition,
            self._rlmm,
            self._rsm,
            deleter=self._deleter,
            in_flight=self._in_flight,
            quota=self.copy_quota,
            broker_id=self._broker_id,
            custom_metadata_bytes_max=self._config["remote.log.metadata.custom.metadata.max.bytes"],
            clock=self._clock,
            fs=self._fs,
            cancelled=cancelled,
        )
        expiration = ExpirationTask(
            log,
            partition,
            self._rlmm,
            deleter=self._deleter,
            in_flight=self._in_flight,
            clock=self._clock,
            cancelled=cancelled,
        )
        follower = FollowerTask(log, partition, self._rlmm)
        return TieredPartition(
            log,
            partition,
            copy=copy,
            expiration=expiration,
            follower=follower,
            cancelled=cancelled,
            is_leader=is_leader,
        )

    def stop_partitions(self, partitions: Iterable[TopicIdPartition], *, delete_remote: bool = False) -> None:
        """Stop the tasks of partitions, and with `delete_remote` delete all that they have remotely, in the background.

        The deletion is durably recorded when this returns, and goes on after a restart. Raises RemoteStorageError when it
        could not be recorded.
        """
        doomed = list(partitions)
        stopped: dict[TopicIdPartition, TieredPartition] = {}
        for partition in doomed:
            with self._lock:
                known = self._tiered.pop(partition, None)
            if known is not None:
                self._stop(known)
                stopped[partition] = known
            self.health.forget(partition)
        if delete_remote:
            for partition in doomed:
                self._deletion(partition).mark()
                self._schedule_deletion(partition, stopped.get(partition))
        else:
            self._rlmm.on_stop_partitions(doomed)

    def _stop(self, tiered: TieredPartition) -> None:
        tiered.cancelled.set()
        for job in tiered.jobs:
            self._schedule.cancel(job)

    def _deletion(self, partition: TopicIdPartition) -> PartitionDeletion:
        return PartitionDeletion(
            partition,
            self._rlmm,
            deleter=self._deleter,
            broker_id=self._broker_id,
            clock=self._clock,
        )

    def _schedule_deletion(self, partition: TopicIdPartition, stopped: TieredPartition | None = None) -> None:
        """`stopped` is what the partition's tasks were: the deletion begins when the last of them has ended."""

        def run() -> bool:
            try:
                with nullcontext(True) if stopped is None else stopped.ended() as ended:
                    if not ended:
                        return False
                    deleted = self._deletion(partition).run()
            except (StratalogError, OSError) as error:
                self.health.failed(partition, "deletion", error)
                return False
            self.health.succeeded(partition, "deletion", used_store=deleted > 0)
            self._rlmm.on_stop_partitions([partition])
            return True

        self._schedule.add(f"deletion of {partition}", run, self._expirers, once=True)

    def _resume_deletions(self) -> bool:
        if isinstance(self._plain_rlmm, TopicBasedRemoteLogMetadataManager):
            for partition in self._plain_rlmm.unfinished_partition_deletes():
                self._schedule_deletion(partition)
        return True

    # --- tasks ------------------------------------------------------------------------------------------------------

    def run_once(self, partition: TopicIdPartition) -> RunResult:
        """One turn of a partition's tasks, on this thread. Raises what they raise."""
        tiered = self._of(partition)
        if not tiered.is_leader:
            tiered.follow()
            return RunResult()
        return RunResult(tiered.copy(), tiered.expire())

    def poke(self, partition: TopicIdPartition | None = None) -> None:
        """Run the tasks of a partition (default: of all) now rather than at their next turn."""
        if partition is None:
            self._schedule.poke()
            return
        tiered = self._tiered.get(partition)
        if tiered is not None:
            self._schedule.poke(tiered.jobs)

    def _guarded(self, tiered: TieredPartition, name: str, run: Callable[[], int]) -> Callable[[], bool]:
        """A task for the schedule: what may go wrong is reported, and tried again."""

        def guarded() -> bool:
            try:
                done = run()
            except (StratalogError, OSError) as error:
                if not tiered.cancelled.is_set():
                    self.health.failed(tiered.partition, name, error)
                return False
            used_store = name != _FOLLOWER_TASK and done > 0
            if self.health.succeeded(tiered.partition, name, used_store=used_store):
                self._schedule.poke()
            return True

        return guarded

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
        """Batches of the remote tier from the one that holds `offset` on; see `RemoteLogReader.read`.

        Empty and `throttled` while the fetch quota is used up.
        """
        log = self._of(partition).log
        if self.fetch_quota.throttle_ms() > 0:
            return RemoteReadResult(b"", [] if read_committed else None, throttled=True)
        result = self._reader.read(
            log, partition, offset, max_bytes, min_one_message=min_one_message, read_committed=read_committed
        )
        self.fetch_quota.record(len(result.records))
        return result

    def offset_for_timestamp(
        self, partition: TopicIdPartition, timestamp_ms: int, start_offset: int
    ) -> TimestampOffset | None:
        """The first record at or after a time, of what lies below the local log; see `RemoteLogReader`."""
        return self._reader.offset_for_timestamp(
            self._of(partition).log, partition, timestamp_ms, start_offset
        )

    # --- what there is ----------------------------------------------------------------------------------------------

    def copy_lag(self, partition: TopicIdPartition) -> CopyLag:
        """What is sealed and not remote, as of now: it grows while copies hang or fail."""
        sealed = segments_not_remote(self._of(partition).log)[:-1]
        return CopyLag(len(sealed), sum(segment.size_bytes for segment in sealed))

    def delete_lag(self, partition: TopicIdPartition) -> DeleteLag:
        """What the last turn of the expiration task has not deleted yet."""
        return self._of(partition).delete_lag

    def sizes(self, partition: TopicIdPartition) -> RemoteSizes:
        """What the metadata says of a partition."""
        segments = self._rlmm.list_remote_log_segments(partition)
        readable = [segment for segment in segments if segment.is_readable]
        return RemoteSizes(
            len(segments), len(readable), sum(segment.segment_size_bytes for segment in readable)
        )

    def _of(self, partition: TopicIdPartition) -> TieredPartition:
        found = self._tiered.get(partition)
        if found is None:
            raise RemoteStorageError(f"{partition} is not tiered by this broker")
        return found


def _pool(what: str, size: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(size, thread_name_prefix=f"remote-log-{what}")
