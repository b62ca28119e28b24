"""All partitions of one broker: loading, creation, deletion, housekeeping and a clean end.

`log_dirs` knows which directories serve and which failed; `log_loading` what lies in one at the start.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from stratalog.config import BrokerConfig, LogConfig
from stratalog.engine.cleaning import CleanerManager, LogCleaner
from stratalog.engine.dirs import (
    ALL_CHECKPOINTS,
    Checkpointed,
    DataDir,
    DirCheckpoints,
    LoadJob,
    LogDirs,
    TopicSpec,
    load_side_by_side,
    make_room,
    marked_path,
    partitions_in,
    report_strays,
    survey,
)
from stratalog.engine.housekeeping import Housekeeping
from stratalog.engine.metrics import TopicTraffic
from stratalog.engine.moves import MARK, DirectoryMoves
from stratalog.engine.partition import OfflinePartition, Partition
from stratalog.engine.partition_table import PartitionTable
from stratalog.engine.replication import LocalReplicas
from stratalog.engine.tiering import allowed_config, tier
from stratalog.errors import (
    DataDirError,
    KafkaError,
    KafkaStorageError,
    RequestTimedOutError,
    ResourceShortageError,
    StratalogError,
    is_shortage,
)
from stratalog.log import FlushTimes, PartitionLog
from stratalog.log.format import (
    DELETE_DIR_SUFFIX,
    FUTURE_DIR_SUFFIX,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    METADATA_LOG,
    RECOVERY_POINTS,
    TopicPartition,
)
from stratalog.log.recovery import plausible_start
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, Clock, FileSystem, Schedule, TopicCounts

if TYPE_CHECKING:
    from stratalog.engine.replica_changes import AssignedReplicas, ClusterView, ReplicaChanges
    from stratalog.remote.api import TopicIdPartition
    from stratalog.remote.tier import RemoteLogManager

__all__ = ["LoadReport", "LogManager", "TopicSpec"]

logger = logging.getLogger(__name__)

_PURGE_PERIOD_MS = 1_000
#: After which a directory is tried again that could not be put offline.
_OFFLINE_RETRY_MS = 60_000
_FLUSH_PERIOD_MS = 1_000
#: Directory ids up to this one stand for no directory (KIP-858).
UNASSIGNED_DIRECTORIES_MAX = 100


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a start found: for one line in the log."""

    partitions: int
    recovered: int
    strays: tuple[Path, ...]


def _ignore(_: str) -> None:
    """Ignore it: no one asked."""


class LogManager:
    """Owns the data directories and every `Partition` in them. Thread-safe.

    `start` before use, `close` at the end: a clean end flushes everything and leaves the marker that lets the next
    start skip recovery. A directory whose disk refuses goes offline: its partitions answer KafkaStorageError from then
    on. When the last one goes, `on_last_dir_failed` is called with a line that says so.
    """

    def __init__(
        self,
        data_dirs: Sequence[Path],
        config: BrokerConfig,
        *,
        cluster_id: str,
        clock: Clock = SYSTEM_CLOCK,
        fs: FileSystem = REAL_FILESYSTEM,
    ) -> None:
        """Lock the directories; errors as `LogDirs`."""
        self.config = config
        self.remote: RemoteLogManager | None = None
        self.traffic = TopicCounts(TopicTraffic)
        #: Flushes of logs that are deleted.
        self._flushes_gone = FlushTimes()
        self.on_last_dir_failed: Callable[[str], object] = _ignore
        self.clock = clock
        self._fs = fs
        self._partitions = PartitionTable()
        self._takes_new_ones = True
        #: In a cluster: who leads and who follows is said by its metadata.
        self.replication: LocalReplicas | None = None
        #: What could not be done for want of file descriptors last.
        self._shortage: str | None = None
        self._taking_offline = threading.Lock()
        self._tiering = threading.Lock()
        self._lock = threading.RLock()
        self._schedule = Schedule("stratalog-housekeeping", _OFFLINE_RETRY_MS, clock)
        self.dirs = LogDirs(data_dirs, cluster_id=cluster_id, node_id=config["node.id"], fs=fs)
        self._checkpoints = DirCheckpoints(self.dirs)
        paths = [data_dir.path for data_dir in self.dirs.live]
        #: Who works on a compacted log; also without a cleaner.
        self.cleaning = CleanerManager(paths, self._logs, fs, on_disk_error=self._fail)
        self._housekeeping = Housekeeping(
            self.partitions, self.dirs, self.cleaning, clock=clock, fs=fs, on_disk_error=self._fail
        )
        #: Partitions on their way to another log directory.
        self.moves = DirectoryMoves(self, fs)
        #: Copies that a stop left behind, by what they were to become: they are begun again.
        self._left_moves: list[tuple[TopicPartition, Path]] = []
        self.cleaner = self._make_cleaner() if config["log.cleaner.enable"] else None

    def _make_cleaner(self) -> LogCleaner:
        try:
            return LogCleaner(self.config, self.cleaning, clock=self.clock, fs=self._fs, on_disk_error=self._fail)
        except StratalogError:
            self.dirs.close(clean=[data_dir.path for data_dir in self.dirs.live if data_dir.was_clean])
            raise

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self, topics: Iterable[TopicSpec]) -> LoadReport:
        """Load every partition of `topics`, lead all of them, and begin housekeeping.

        A partition directory that `topics` does not know is left as it is and named in the report. One of an earlier
        topic of the same name is renamed to `-stray`, as Kafka does, and named too. While a directory is offline, a
        partition that is nowhere is taken to be there, and is offline as well.
        """
        known = {spec.name: spec.allowed() for spec in topics}
        recovered, strays = self._load_topics(known)
        for spec in known.values():
            if self.dirs.offline:
                self._mark_missing_as_offline(spec)
            try:
                self.create_topic(spec)
            except ResourceShortageError:
                self._refuse_shortage()
                raise
        self._begin_housekeeping()
        if self.cleaner is not None:
            self.cleaner.start()
        self._resume_moves()
        return LoadReport(len(self._partitions), recovered, strays)

    def start_replicas(self, assigned: Mapping[TopicIdPartition, AssignedReplicas], cluster: ClusterView) -> LoadReport:
        """Load what lies here of the replicas that a cluster's metadata has assigned, and begin housekeeping.

        Leads nothing and makes nothing: the first `apply` does. High watermarks begin where they were checkpointed.
        """
        self.replication = LocalReplicas(self, cluster)
        counts: dict[tuple[str, UUID], int] = {}
        for key in assigned:
            counts[key.topic, key.topic_id] = max(counts.get((key.topic, key.topic_id), 0), key.partition + 1)
        known = {
            topic: TopicSpec(topic, topic_id, count, cluster.log_config(topic)).allowed()
            for (topic, topic_id), count in counts.items()
        }
        wanted = {(key.topic, key.partition) for key in assigned}
        recovered, strays = self._load_topics(known, lambda job: (job.spec.name, job.partition) in wanted)
        self._begin_housekeeping()
        self.replication.begin(self._schedule)
        if self.cleaner is not None:
            self.cleaner.start()
        return LoadReport(len(self._partitions), recovered, strays)

    def apply(self, changes: ReplicaChanges) -> None:
        """Take in what changed for the replicas of this broker; never raises for one of them. See `ReplicaChanges`."""
        assert self.replication is not None, "start_replicas comes first"
        self.replication.apply(changes)

    def stop_replication(self) -> None:
        """End the fetchers and the requests to the controller. Harmless when called again."""
        if self.replication is not None:
            self.replication.close()

    def _load_topics(
        self, known: Mapping[str, TopicSpec], is_wanted: Callable[[LoadJob], bool] = lambda _: True
    ) -> tuple[int, tuple[Path, ...]]:
        """Load what lies here of `known`; how many were recovered after an unclean stop, and what was left lying."""
        started = self.clock.monotonic()
        jobs: dict[Path, list[LoadJob]] = {}
        unknown: list[Path] = []
        set_aside: list[Path] = []
        for data_dir in self.dirs.live:
            with self._failing(data_dir.path, "its partitions cannot be listed"):
                content = survey(data_dir.path, known, self._fs)
                jobs[data_dir.path] = [job for job in content.jobs if is_wanted(job)]
                unknown += content.unknown
                unknown += [job.path for job in content.jobs if not is_wanted(job)]
                set_aside += content.set_aside
                for path in content.condemned:
                    self._housekeeping.condemn(path)
                for path, key in content.futures:
                    self._housekeeping.condemn(path)
                    self._left_moves.append((key, data_dir.path))
        self._settle_moves(jobs)
        self._refuse_twins(jobs)
        recovered = self._load(jobs)
        self._refuse_shortage()
        logger.info(
            "Loaded %d logs in %d ms, %d of them after an unclean stop",
            len(self._partitions),
            (self.clock.monotonic() - started) * 1000,
            recovered,
        )
        strays = [path for path in unknown if path.name != METADATA_LOG]
        report_strays(strays, set_aside)
        return recovered, (*strays, *set_aside)

    def _settle_moves(self, jobs: dict[Path, list[LoadJob]]) -> None:
        """Let a copy step back that has the name of a partition which still lies where it lay; see `moves`."""
        places = Counter(job.path.name for of_directory in jobs.values() for job in of_directory)
        for directory, of_directory in jobs.items():
            for job in [job for job in of_directory if self._fs.exists(job.path / MARK)]:
                with self._failing(directory, f"the move of {job.path.name} cannot be settled"):
                    if places[job.path.name] > 1:
                        copy = marked_path(job.path, FUTURE_DIR_SUFFIX)
                        self._fs.rename(job.path, copy)
                        self._fs.sync_dir(directory)
                        of_directory.remove(job)
                        places[job.path.name] -= 1
                        self._housekeeping.condemn(copy)
                        self._left_moves.append(((job.spec.name, job.partition), directory))
                    elif self.dirs.offline:
                        of_directory.remove(job)
                        logger.error(
                            "%s: a move to it had not ended, and a newer one may lie in a log directory that is "
                            "offline; it is not served until that is back",
                            job.path,
                        )
                    else:
                        self._fs.remove(job.path / MARK)

    def _resume_moves(self) -> None:
        left, self._left_moves = self._left_moves, []
        for (topic, number), destination in left:
            partition = self.get(topic, number)
            if partition is not None and partition.failure is None:
                try:
                    self.moves.begin(partition, destination)
                except KafkaError as error:  # that says nothing about the directory
                    logger.error("The move of %s-%d to %s does not go on: %s", topic, number, destination, error)

    def _refuse_shortage(self) -> None:
        """DataDirError when a partition is not served for want of file descriptors."""
        if self._shortage is not None:
            raise DataDirError(f"{self._shortage}; raise the limit (ulimit -n, LimitNOFILE) and start again")

    def _refuse_twins(self, jobs: Mapping[Path, Sequence[LoadJob]]) -> None:
        """DataDirError for a partition that lies in two directories: only people can tell which is the right one."""
        seen: dict[str, Path] = {}
        for job in (job for of_directory in jobs.values() for job in of_directory):
            twin = seen.setdefault(job.path.name, job.path)
            if twin != job.path:
                self.dirs.close(clean=[data_dir.path for data_dir in self.dirs.live if data_dir.was_clean])
                raise DataDirError(
                    f"{job.path.name} lies in two log directories, {twin.parent} and {job.path.parent}; move one of"
                    " them away"
                )

    def _load(self, jobs: Mapping[Path, Sequence[LoadJob]]) -> int:
        """Open the logs of all directories side by side; return how many were recovered after an unclean stop."""
        live = {data_dir.path: data_dir for data_dir in self.dirs.live}
        for path in jobs:
            with self._failing(path, "its checkpoints cannot be read"):
                self._checkpoints.read(live[path])

        def load(job: LoadJob) -> None:
            directory = job.path.parent
            if self.dirs.is_offline(directory):
                return
            with self._failing(directory, f"{job.path.name} cannot be loaded"):
                self._open(job.path, job.spec, is_new=False)

        load_side_by_side(jobs, load, threads=self.config["num.recovery.threads.per.data.dir"])
        for of_directory in jobs.values():
            for job in of_directory:
                if self.get(job.spec.name, job.partition) is None:
                    self._put_offline(job.spec, job.partition, self.dirs.storage_error(job.path.parent))
        return sum(len(found) for path, found in jobs.items() if path in live and not live[path].was_clean)

    def _open(self, path: Path, spec: TopicSpec, *, is_new: bool) -> Partition:
        """Open the log of a partition, and lead it. What was there before was left as its data directory was."""
        log, was_clean, high_watermark = self._open_log(path, spec, is_new=is_new)
        partition = Partition(log, spec.topic_id, self.traffic.topic(log.topic))
        if self.replication is None:
            latest = log.leader_epochs.latest_epoch
            # After a crash the tail may be other than what clients saw: a new epoch lets them find out.
            is_unsure = not was_clean and log.log_end_offset > 0
            partition.become_leader(0 if latest is None else latest + 1 if is_unsure else latest)
        else:
            log.wait_for_replicas(waits=True)
            log.update_high_watermark(max(high_watermark, log.log_start_offset))
        with self._lock:
            self._partitions.put(partition, log.directory.parent)
        return partition

    def _open_log(
        self, path: Path, spec: TopicSpec, *, is_new: bool, is_flushed: bool = False
    ) -> tuple[PartitionLog, bool, int]:
        """Return a log, whether it was left cleanly, and the high watermark that was checkpointed."""
        topic, number = spec.name, int(path.name.rpartition("-")[2])
        was_clean = next(found.was_clean for found in self.dirs.live if found.path == path.parent)
        checkpointed = Checkpointed(0, 0) if is_new else self._checkpoints.of(path.parent, (topic, number))
        log = PartitionLog.open(
            path,
            spec.config,
            topic_id=spec.topic_id,
            clock=self.clock,
            fs=self._fs,
            clean_shutdown=is_new or was_clean or is_flushed,
            recovery_point=checkpointed.recovery_point,
            log_start_offset=plausible_start(path, checkpointed.log_start_offset, self._fs),
            producer_expiration_ms=self.config["producer.id.expiration.ms"],
        )
        log.on_storage_error = partial(self._log_failed, log.directory.parent)
        self._apply_transaction_rules(log)
        return log, is_new or was_clean, checkpointed.high_watermark

    def _begin_housekeeping(self) -> None:
        every = self._schedule.add
        delay = self.config["log.initial.task.delay.ms"]
        every(
            "retention",
            self.apply_retention,
            delay_ms=delay,
            interval_ms=self.config["log.retention.check.interval.ms"],
        )
        every(
            "checkpoint",
            partial(self.write_checkpoints, (RECOVERY_POINTS, HIGH_WATERMARKS)),
            delay_ms=delay,
            interval_ms=self.config["log.flush.offset.checkpoint.interval.ms"],
        )
        every(
            "log start offsets",
            partial(self.write_checkpoints, (LOG_START_OFFSETS,)),
            delay_ms=delay,
            interval_ms=self.config["log.flush.start.offset.checkpoint.interval.ms"],
        )
        every("flush", self.flush_due, delay_ms=delay, interval_ms=_FLUSH_PERIOD_MS)
        check_ms = self.config["producer.id.expiration.check.interval.ms"]
        every("producers", self.expire_producers, delay_ms=check_ms, interval_ms=check_ms)
        every("purge", self.purge, delay_ms=_PURGE_PERIOD_MS, interval_ms=_PURGE_PERIOD_MS)

    def close(self, *, clean: bool = True, broker_epoch: int = -1) -> None:
        """Flush and close every partition and release the directories. Harmless when called again.

        `broker_epoch` is that of a cluster's broker, for the marks of a clean stop.

        A directory in which every partition was flushed is marked as left cleanly, whatever became of the others. After
        a crash that takes every partition in it to be opened: one that was not is still as the crash left it.
        """
        self.stop_replication()
        self.moves.close()
        self._schedule.close()
        if self.cleaner is not None:
            self.cleaner.close()
        if self.remote is not None:
            self.remote.close()
            self.remote = None
        flushed = {data_dir.path for data_dir in self.dirs.live} if clean else set()
        closed: set[Path] = set()
        for partition in self.partitions():
            partition.resign()
            try:
                partition.log.close()
                if partition.log.failure is not None:
                    raise partition.log.failure
                closed.add(partition.log.directory)
            except (OSError, KafkaStorageError) as error:
                flushed.discard(partition.log.directory.parent)
                logger.error("%s was not closed cleanly: %s", partition.log.directory, error)
        for data_dir in self.dirs.live:
            if data_dir.path not in flushed:
                continue
            if not self._checkpoint(data_dir) or not self._is_mended(data_dir, closed):
                flushed.discard(data_dir.path)
        with self._lock:
            self._partitions.clear()
        self.dirs.close(clean=flushed, broker_epoch=broker_epoch)

    def _is_mended(self, data_dir: DataDir, closed: set[Path]) -> bool:
        """Return whether no partition in a directory is as a crash left it; `closed` are those that were served."""
        if data_dir.was_clean:
            return True
        try:
            left = [path.name for path in partitions_in(data_dir.path, self._fs) if path not in closed]
        except OSError as error:
            logger.error("%s cannot be listed: %s", data_dir.path, error)
            return False
        if left:
            logger.warning(
                "%s is not marked as left cleanly: it was not at the start, and %s not opened since",
                data_dir.path,
                ", ".join(left[:5]) + (", ... were" if left[5:] else " was"),
            )
        return not left

    # --- directories that fail ----------------------------------------------------------------------------------------

    @contextmanager
    def _failing(self, directory: Path, what: str) -> Iterator[None]:
        """Take the log directory offline when an OSError is raised in this block.

        A log that cannot be opened goes offline alone.

        Want of file descriptors takes nothing offline; at the start, it ends that.
        So does an error that was not foreseen: one log must not keep the others from being served.
        """
        try:
            yield
        except (OSError, KafkaStorageError) as error:
            reason = error.strerror or error if isinstance(error, OSError) else error
            if is_shortage(error):
                self._shortage = f"{directory}: {what}: {reason}"
                logger.error("%s", self._shortage)
                return
            self._fail(directory, f"{what}: {reason}")
        except StratalogError as error:
            logger.error("%s: %s: %s; it is left as it is, and offline", directory, what, error)
        except Exception:
            logger.exception("%s: %s: an error that should not be; it is left as it is, and offline", directory, what)

    def _log_failed(self, directory: Path, error: KafkaStorageError) -> None:
        self._fail(directory, str(error))

    def _fail(self, directory: Path, reason: str) -> None:
        """Take a directory out of service.

        May be called with a log's lock held, so the rest is left to another thread.
        """
        if self.dirs.fail(directory, reason):
            self._schedule.add("failed log directory", partial(self.put_offline, directory), once=True)

    def put_offline(self, directory: Path) -> None:
        """Stop serving the partitions of a directory that failed, and tell when it was the last one."""
        error = self.dirs.storage_error(directory)
        self.cleaning.forget_dir(directory)
        with self._taking_offline:  # a second caller comes back when the first one's partitions are not served either
            for partition in self.partitions():
                if partition.log.directory.parent == directory:
                    partition.fail(error)
        if not self.dirs.live:
            self.on_last_dir_failed(
                "all log directories have failed: "
                + "; ".join(f"{path}: {reason}" for path, reason in self.dirs.offline.items())
            )

    def _mark_missing_as_offline(self, spec: TopicSpec) -> None:
        error = self.dirs.storage_error(next(iter(self.dirs.offline)))
        for number in range(spec.partition_count):
            if self.get(spec.name, number) is None:
                self._put_offline(spec, number, error)

    def _put_offline(self, spec: TopicSpec, number: int, error: KafkaStorageError) -> None:
        with self._lock:
            self._partitions.put(OfflinePartition(spec.name, number, spec.topic_id, error), None)

    # --- partitions ---------------------------------------------------------------------------------------------------

    def get(self, topic: str, partition: int) -> Partition | None:
        """Return the partition; also one that is offline, whose every use raises KafkaStorageError."""
        return self._partitions.get(topic, partition)

    def leader_epochs(self, topic: str, count: int) -> tuple[int, ...]:
        """Return the epochs in which the first `count` partitions of a topic are led; -1 for one that is not."""
        return self._partitions.leader_epochs(topic, count)

    def partitions(self, topic: str | None = None) -> list[Partition]:
        """Return all partitions that are served, or those of one topic, in order."""
        with self._lock:
            known = self._partitions.ordered() if topic is None else self._partitions.of_topic(topic)
        return [partition for partition in known if partition.failure is None]

    def flush_times(self) -> FlushTimes:
        """Flushes of all logs since the start, those that are deleted by now included."""
        return _sum([self._flushes_gone, *(partition.log.flush_times for partition in self.partitions())])

    def offline_count(self) -> int:
        """Return how many partitions are not served because their log directory failed."""
        with self._lock:
            return sum(partition.failure is not None for partition in self._partitions.all())

    def _logs(self) -> dict[TopicPartition, PartitionLog]:
        """Return the logs that are served, for the cleaner."""
        return {(partition.topic, partition.partition): partition.log for partition in self.partitions()}

    def create_topic(self, spec: TopicSpec) -> list[Partition]:
        """Make sure that all partitions of a topic exist and are led; also the way to add partitions.

        RequestTimedOutError once no new ones are taken: those that are missing are made at the next start.
        """
        spec = spec.allowed()
        return [self._create(spec, number) for number in range(spec.partition_count)]

    def _create(self, spec: TopicSpec, number: int) -> Partition:
        with self._lock:
            existing = self._partitions.get(spec.name, number)
            if existing is not None:
                return existing
            if not self._takes_new_ones:
                raise RequestTimedOutError(f"the broker is stopping; {spec.name}-{number} is made at its next start")
            partition = self._create_in_some_dir(spec, number)
        self._tier([partition])
        return partition

    def take_no_new_ones(self) -> None:
        """Break off the creation of partitions that goes on, and refuse others.

        A stop waits for one partition at most.
        """
        self._takes_new_ones = False

    def make_replica(self, spec: TopicSpec, number: int, directory_id: UUID) -> Partition:
        """Return the partition, made if it is missing: in its recorded directory, or in the emptiest one.

        KafkaStorageError when that directory is out of service, or none takes it.
        """
        spec = spec.allowed()
        with self._lock:
            existing = self._partitions.get(spec.name, number)
            if existing is not None:
                return existing
            is_recorded = directory_id.int > UNASSIGNED_DIRECTORIES_MAX
            if self.dirs.offline and is_recorded and directory_id not in {each.directory_id for each in self.dirs.live}:
                error = self.dirs.storage_error(next(iter(self.dirs.offline)))
                self._put_offline(spec, number, error)
                raise error
            partition = self._create_in_some_dir(spec, number, directory_id)
        self._tier([partition])
        return partition

    def _create_in_some_dir(self, spec: TopicSpec, number: int, directory_id: UUID | None = None) -> Partition:
        """Return a new log in the emptiest directory that takes it.

        Or, if it lies somewhere already, the one that is there.

        What lies there of another topic of that name makes room for it. KafkaStorageError when no directory takes it.
        """
        name = f"{spec.name}-{number}"
        self._shortage = None
        for path in [found.path / name for found in self.dirs.live if self._fs.is_dir(found.path / name)]:
            partition = self._take_over(path, spec, number)
            if partition is not None:
                return partition
        tried: set[Path] = set()
        while directories := [found.path for found in self.dirs.live if found.path not in tried]:
            recorded = [found.path for found in self.dirs.live if found.directory_id == directory_id]
            directory = self._partitions.emptiest_of([path for path in recorded if path in directories] or directories)
            tried.add(directory)
            partition = None
            with self._failing(directory, f"{name} cannot be created"):
                self._forget_earlier(directory, (spec.name, number))
                partition = self._make(directory / name, spec)
            if partition is not None:
                return partition
        raise self._not_served(f"{name} cannot be created: no log directory takes it")

    def _not_served(self, message: str) -> KafkaStorageError:
        """Return what to raise where `_failing` let a partition go."""
        if self._shortage is None:
            return KafkaStorageError(message)
        return ResourceShortageError(f"{message} ({self._shortage})")

    def _make(self, path: Path, spec: TopicSpec) -> Partition:
        """Return a new log.

        Nothing is left of one that the disk refuses: it is made elsewhere, and must not lie in two places.
        """
        try:
            self._fs.make_dirs(path)
            return self._open(path, spec, is_new=True)
        except Exception:
            with suppress(OSError):
                self._fs.remove_tree(path)
            raise

    def _forget_earlier(self, directory: Path, key: TopicPartition) -> None:
        """Take what the checkpoints say of an earlier partition of this name out of them, on the disk too."""
        if self._checkpoints.still_names(directory, key):
            self._checkpoints.forget(directory, key)
            for data_dir in self.dirs.live:
                if data_dir.path == directory and not self._checkpoint(data_dir):
                    raise self.dirs.storage_error(directory)

    def _take_over(self, path: Path, spec: TopicSpec, number: int) -> Partition | None:
        """Return the partition of a directory that is there already.

        None if it was another topic's, which has made room.

        KafkaStorageError when it cannot be opened: a second one elsewhere would leave open which is the right one.
        """
        partition = None
        with self._failing(path.parent, f"{path.name} cannot be taken over"):
            aside = make_room(path, spec, self._fs)
            if aside is not None:
                report_strays((), (aside,))
                self._checkpoints.forget(path.parent, (spec.name, number))
                return None
            partition = self._open(path, spec, is_new=False)
        if partition is None:
            raise self._not_served(f"{path} is there, but cannot be opened")
        return partition

    def delete_topic(self, topic: str) -> None:
        """Stop serving a topic and delete its data, local and remote; files go after file.delete.delay.ms.

        What lies in a directory that is offline stays there, and is named at the next start.
        """
        with self._lock:
            doomed = [partition for partition in self._partitions.pop_topic(topic) if partition.failure is None]
        self.traffic.forget(topic)
        self._delete(doomed, f"the deletion of {topic}")

    def delete_replica(self, key: TopicIdPartition, *, delete_remote: bool = False) -> None:
        """Delete the replica that lies here, as a cluster's metadata says; its remote data too if `delete_remote`."""
        with self._lock:
            found = self._partitions.get(key.topic, key.partition)
            if found is None or found.topic_id != key.topic_id:
                return
            self._partitions.pop(key.topic, key.partition)
        if found.failure is None:
            self._delete([found], f"the deletion of {key.topic}-{key.partition}", delete_remote=delete_remote)

    def _delete(self, doomed: Sequence[Partition], what: str, *, delete_remote: bool = True) -> None:
        for partition in doomed:
            self.moves.cancel(partition)
            partition.resign()
        self._flushes_gone = _sum([self._flushes_gone, *(partition.log.flush_times for partition in doomed)])
        tiered = [p.topic_id_partition for p in doomed if p.remote is not None]
        if tiered and self.remote is not None:
            self.remote.stop_partitions(tiered, delete_remote=delete_remote)
        self._leave_to_no_cleaner(doomed)
        for partition in doomed:
            key, log = (partition.topic, partition.partition), partition.log
            self._checkpoints.forget(log.directory.parent, key)
            delay_ms = log.config.file_delete_delay_ms
            condemned = marked_path(log.directory, DELETE_DIR_SUFFIX)
            with self._failing(log.directory.parent, f"{log.directory.name} cannot be deleted"):
                log.close(flush=False)
                self._fs.rename(log.directory, condemned)
                self._housekeeping.condemn(condemned, delay_ms)
        for directory in {partition.log.directory.parent for partition in doomed}:
            with self._failing(directory, f"{what} is not durable"):
                self._fs.sync_dir(directory)

    # --- moves between log directories --------------------------------------------------------------------------------

    def open_future(self, directory: Path, source: PartitionLog) -> PartitionLog:
        """Return a new log in a directory `-future`, of the same topic and configuration as `source`."""
        log = PartitionLog.open(
            directory, source.config, topic_id=source.topic_id, clock=self.clock, fs=self._fs, clean_shutdown=True
        )
        log.on_storage_error = partial(self._log_failed, directory.parent)
        return log

    def expect(self, directory: Path, key: TopicPartition, bounds: Checkpointed) -> None:
        """Have the checkpoints of a directory say this of a partition that is about to lie there."""
        self._checkpoints.expect(directory, key, bounds)
        for data_dir in self.dirs.live:
            if data_dir.path == directory and not self._checkpoint(data_dir):
                raise self.dirs.storage_error(directory)

    def forget(self, directory: Path, key: TopicPartition) -> None:
        """Undo `expect`."""
        self._checkpoints.forget(directory, key)

    def condemn(self, log: PartitionLog) -> None:
        """Take the directory of a fenced log from its name, to be removed; a reader may still read what it holds."""
        condemned = marked_path(log.directory, DELETE_DIR_SUFFIX)
        listener, log.on_storage_error = log.on_storage_error, None
        try:
            log.keep_open()
            self._fs.rename(log.directory, condemned)
        except BaseException:
            log.on_storage_error = listener
            raise
        with self._failing(log.directory.parent, f"the move of {log.directory.name} is not durable"):
            self._fs.sync_dir(log.directory.parent)
        self._housekeeping.condemn(condemned, log.config.file_delete_delay_ms)

    def take_moved(self, partition: Partition, source: PartitionLog, path: Path, end: int) -> PartitionLog:
        """Put the log in `path` in the place of `source`, of which it is a copy up to `end`."""
        key = (partition.topic, partition.partition)
        spec = TopicSpec(partition.topic, partition.topic_id, partition.partition + 1, source.config)
        try:
            log, _, _ = self._open_log(path, spec, is_new=False, is_flushed=True)
            if log.log_end_offset != end:
                raise KafkaStorageError(f"{path} ends at {log.log_end_offset}, and should at {end}")
        except (OSError, StratalogError) as error:
            partition.fail(KafkaStorageError(f"{path} cannot be opened: {error}"))
            raise
        log.succeed(source)
        log.update_high_watermark(end)
        with self._lock:
            partition.log = log
            self._partitions.put(partition, path.parent)
            self._checkpoints.forget(source.directory.parent, key)
            self._flushes_gone = _sum([self._flushes_gone, source.flush_times])
        if log.config is spec.config:  # else it has been changed since
            log.config = source.config
        self.cleaning.remove_checkpoints(source.directory.parent, [key])
        source.close(flush=False)
        return log

    def moved(self, partition: Partition) -> None:
        """Tell all who have to know that a partition has another log."""
        self._tier([partition])
        partition.wake()

    def _leave_to_no_cleaner(self, doomed: Iterable[Partition]) -> None:
        by_directory: dict[Path, list[TopicPartition]] = {}
        for partition in doomed:
            key = (partition.topic, partition.partition)
            self.cleaning.abort(key)
            by_directory.setdefault(partition.log.directory.parent, []).append(key)
        for directory, keys in by_directory.items():
            self.cleaning.remove_checkpoints(directory, keys)

    def update_config(self, topic: str, config: LogConfig) -> None:
        """Put a topic's new configuration in force at once."""
        partitions = [partition for partition in self.partitions(topic) if partition.failure is None]
        config = allowed_config(topic, config)
        for partition in partitions:
            was_compacted = partition.log.config.compacted
            partition.log.config = config
            if was_compacted and not config.compacted:
                self.cleaning.abort((partition.topic, partition.partition))
        self._tier(partitions)

    def update_broker_config(self, config: BrokerConfig) -> None:
        """Put a changed configuration of the broker in force, as far as it is about logs."""
        self.config = config
        if self.cleaner is not None:
            self.cleaner.reconfigure(config)
        if self.replication is not None:
            self.replication.reconfigure(config)
        with self._lock:
            partitions = self._partitions.all()
        for partition in partitions:
            if partition.failure is None:
                self._apply_transaction_rules(partition.log)

    def _apply_transaction_rules(self, log: PartitionLog) -> None:
        log.set_transaction_rules(
            verification_required=self.config["transaction.partition.verification.enable"],
            timeout_max_ms=self.config["transaction.max.timeout.ms"],
        )

    def truncate_to(self, topic: str, number: int, offset: int) -> bool:
        """Drop everything of a partition from `offset` on; whether there was anything. Cleaning is paused."""
        partition = self._partitions.get(topic, number)
        if partition is None:
            raise KeyError((topic, number))
        here = [found for found in self.dirs.live if found.path == partition.log.directory.parent]
        # Recovery cuts nothing below a recovery point: one of before would keep what a crash leaves behind the new end.
        partition.log.lower_recovery_point(offset)
        for data_dir in here:
            self._checkpoint(data_dir)
        with self.cleaning.paused((topic, number)):
            was_longer = partition.log.truncate_to(offset)
            self.cleaning.truncate_checkpoint(partition.log, partition.log.log_end_offset)
        for data_dir in here:
            self._checkpoint(data_dir)
        return was_longer

    # --- tiering ------------------------------------------------------------------------------------------------------

    def attach_remote(self, remote: RemoteLogManager) -> None:
        """Give all tiered partitions, now and later, their remote tier."""
        self.remote = remote
        self._tier(self.partitions())

    def take_role(self, partition: Partition) -> None:
        """Let the remote tier know that a replica leads or follows from now on."""
        self._tier([partition])

    def _tier(self, partitions: Iterable[Partition]) -> None:
        if self.remote is None:
            return
        with self._tiering:  # the last caller sees the newest roles
            tier([partition for partition in partitions if partition.failure is None], self.remote)

    # --- housekeeping -------------------------------------------------------------------------------------------------

    def apply_retention(self) -> int:
        return self._housekeeping.apply_retention()

    def flush_due(self) -> None:
        self._housekeeping.flush_due()

    def expire_producers(self) -> None:
        """Forget idempotent producers that have been silent for producer.id.expiration.ms."""
        self._housekeeping.expire_producers(self.config["producer.id.expiration.ms"])

    def purge(self) -> None:
        self._housekeeping.purge()

    def write_checkpoints(self, names: Collection[str] = ALL_CHECKPOINTS) -> None:
        """Write recovery points, log start offsets and high watermarks of each directory, or only some of them."""
        for data_dir in self.dirs.live:
            self._checkpoint(data_dir, names)

    def _checkpoint(self, data_dir: DataDir, names: Collection[str] = ALL_CHECKPOINTS) -> bool:
        """Write the checkpoints of one directory; whether it took them."""
        here = [p.log for p in self.partitions() if p.log.directory.parent == data_dir.path]
        if self._checkpoints.write(data_dir, here, names):
            return True
        if self.dirs.is_offline(data_dir.path):
            self._schedule.add("failed log directory", partial(self.put_offline, data_dir.path), once=True)
        return False


def _sum(times: Iterable[FlushTimes]) -> FlushTimes:
    listed = list(times)
    return FlushTimes(sum(each.times for each in listed), sum(each.total_ms for each in listed))
