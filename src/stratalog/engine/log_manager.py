"""All partitions of one broker: creation, deletion, moves between directories, configuration and tiering."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from stratalog.config import BrokerConfig, LogConfig
from stratalog.engine.dirs import (
    Checkpointed,
    TopicSpec,
    make_room,
    marked_path,
    report_strays,
)
from stratalog.engine.log_lifecycle import LoadReport, LogLifecycle
from stratalog.engine.moves import DirectoryMoves
from stratalog.engine.partition import Partition
from stratalog.engine.tiering import allowed_config, tier
from stratalog.errors import (
    KafkaStorageError,
    RequestTimedOutError,
    ResourceShortageError,
    StratalogError,
)
from stratalog.log import FlushTimes, PartitionLog
from stratalog.log.format import (
    DELETE_DIR_SUFFIX,
    TopicPartition,
)
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, Clock, FileSystem

if TYPE_CHECKING:
    from stratalog.engine.replica_changes import AssignedReplicas, ClusterView, ReplicaChanges
    from stratalog.remote.api import TopicIdPartition
    from stratalog.remote.tier import RemoteLogManager

__all__ = ["LoadReport", "LogManager", "TopicSpec"]

#: The directory id of a replica that no broker has created yet (KIP-858).
_UNASSIGNED = UUID(int=1)


class LogManager(LogLifecycle):
    """Owns the data directories and every `Partition` in them. Thread-safe.

    Call `start` before use and `close` at the end: a clean stop flushes everything and writes the marker that lets the
    next start skip recovery. A directory with a disk error goes offline: its partitions raise KafkaStorageError from
    then on. For the last one, `on_last_dir_failed` is called with a message.
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
        """Lock the directories. Errors as `LogDirs`."""
        super().__init__(data_dirs, config, cluster_id=cluster_id, clock=clock, fs=fs)
        #: Flush times of deleted logs.
        self._flushes_gone = FlushTimes()
        self._takes_new_ones = True
        #: The directories that partitions which do not exist yet were asked to.
        self._preferred: dict[TopicPartition, Path] = {}
        self._tiering = threading.Lock()
        self.moves = DirectoryMoves(self, fs)

    # --- creation -----------------------------------------------------------------------------------------------------

    def create_topic(self, spec: TopicSpec) -> list[Partition]:
        """Ensure that all partitions of a topic exist and are led. Also adds partitions.

        RequestTimedOutError when the broker is stopping: missing partitions are created at the next start.
        """
        spec = spec.allowed()
        return [self._create(spec, number) for number in range(spec.partition_count)]

    def _create(self, spec: TopicSpec, number: int) -> Partition:
        with self._lock:
            existing = self._partitions.get(spec.name, number)
            if existing is not None:
                return existing
            if not self._takes_new_ones:
                raise RequestTimedOutError(f"the broker is stopping; {spec.name}-{number} is created at its next start")
            partition = self._create_in_some_dir(spec, number)
        self._tier([partition])
        return partition

    def take_no_new_ones(self) -> None:
        """Abort the running creation of partitions, and refuse others.

        A stop waits for at most one partition.
        """
        self._takes_new_ones = False

    def make_replica(self, spec: TopicSpec, number: int, directory_id: UUID) -> Partition:
        """Return the partition, created if it is missing: in its recorded directory, or in the emptiest one.

        KafkaStorageError when no directory is usable. Also when one is out of service and may hold the replica: it was
        created, and not in a directory in service. An empty one would lack what it has confirmed.
        """
        spec = spec.allowed()
        with self._lock:
            existing = self._partitions.get(spec.name, number)
            if existing is not None:
                return existing
            is_new = directory_id == _UNASSIGNED
            if self.dirs.offline and not is_new and directory_id not in {each.directory_id for each in self.dirs.live}:
                error = self.dirs.storage_error(next(iter(self.dirs.offline)))
                self._put_offline(spec, number, error)
                raise error
            partition = self._create_in_some_dir(spec, number, directory_id)
        self._tier([partition])
        return partition

    def prefer(self, topic: str, number: int, directory: Path) -> None:
        """Remember, until the broker stops, the directory in which a partition is to be created."""
        with self._lock:
            self._preferred[topic, number] = directory

    def _create_in_some_dir(self, spec: TopicSpec, number: int, directory_id: UUID | None = None) -> Partition:
        """Return an existing log, or a new one in the preferred, the recorded or the emptiest usable directory.

        Renames a directory of another topic of that name. KafkaStorageError when no directory is usable.
        """
        name = f"{spec.name}-{number}"
        self._shortage = None
        for path in [found.path / name for found in self.dirs.live if self._fs.is_dir(found.path / name)]:
            partition = self._take_over(path, spec, number)
            if partition is not None:
                return partition
        tried: set[Path] = set()
        preferred = self._preferred.pop((spec.name, number), None)
        while directories := [found.path for found in self.dirs.live if found.path not in tried]:
            wanted = [found.path for found in self.dirs.live if found.path == preferred]
            wanted += [found.path for found in self.dirs.live if found.directory_id == directory_id and not wanted]
            directory = self._partitions.emptiest_of([path for path in wanted if path in directories] or directories)
            tried.add(directory)
            partition = None
            with self._failing(directory, f"{name} cannot be created"):
                self._forget_earlier(directory, (spec.name, number))
                partition = self._make(directory / name, spec)
            if partition is not None:
                return partition
        raise self._not_served(f"{name} cannot be created: no log directory is usable")

    def _not_served(self, message: str) -> KafkaStorageError:
        """Return the error after `_failing` has handled the failure of a partition."""
        if self._shortage is None:
            return KafkaStorageError(message)
        return ResourceShortageError(f"{message} ({self._shortage})")

    def _make(self, path: Path, spec: TopicSpec) -> Partition:
        """Return a new log.

        Removes what a disk error leaves: the partition is created elsewhere, and must not exist twice.
        """
        try:
            self._fs.make_dirs(path)
            return self._open(path, spec, is_new=True)
        except Exception:
            with suppress(OSError):
                self._fs.remove_tree(path)
            raise

    def _forget_earlier(self, directory: Path, key: TopicPartition) -> None:
        """Remove checkpoint entries of an earlier partition of this name, on disk too."""
        if self._checkpoints.still_names(directory, key):
            self._checkpoints.forget(directory, key)
            for data_dir in self.dirs.live:
                if data_dir.path == directory and not self._checkpoint(data_dir):
                    raise self.dirs.storage_error(directory)

    def _take_over(self, path: Path, spec: TopicSpec, number: int) -> Partition | None:
        """Return the partition of an existing directory.

        None if it was another topic's, which is renamed.

        KafkaStorageError when it cannot be opened: a second copy elsewhere would be ambiguous.
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
            raise self._not_served(f"{path} exists, but cannot be opened")
        return partition

    # --- replicas of a cluster ----------------------------------------------------------------------------------------

    def start_replicas(self, assigned: Mapping[TopicIdPartition, AssignedReplicas], cluster: ClusterView) -> LoadReport:
        """Load the local replicas that a cluster's metadata assign, and begin housekeeping.

        Leads and creates nothing: the first `apply` does. High watermarks begin at their checkpoints.
        """
        from stratalog.engine.replication import LocalReplicas  # only brokers of a cluster load it

        self.replication = LocalReplicas(self, cluster)
        counts: dict[tuple[str, UUID], int] = {}
        for key in assigned:
            counts[key.topic, key.topic_id] = max(counts.get((key.topic, key.topic_id), 0), key.partition + 1)
        known = {
            topic: TopicSpec(topic, topic_id, count, cluster.log_config(topic)).allowed()
            for (topic, topic_id), count in counts.items()
        }
        wanted = {(key.topic, key.partition): replicas.directory(cluster.node_id) for key, replicas in assigned.items()}
        recovered, strays = self._load_topics(known, lambda job: (job.spec.name, job.partition) in wanted, wanted.get)
        self._begin_housekeeping()
        self.replication.begin(self._schedule)
        if self.cleaner is not None:
            self.cleaner.start()
        return LoadReport(len(self._partitions), recovered, strays)

    def apply(self, changes: ReplicaChanges) -> None:
        """Apply changes of this broker's replicas; never raises for one of them. See `ReplicaChanges`."""
        assert self.replication is not None, "start_replicas comes first"
        self.replication.apply(changes)
        self._resume_moves()

    def take_role(self, partition: Partition) -> None:
        """Notify the remote tier of the role of a replica."""
        self._tier([partition])

    # --- deletion -----------------------------------------------------------------------------------------------------

    def delete_topic(self, topic: str) -> None:
        """Stop serving a topic and delete its local and remote data. Files are removed after file.delete.delay.ms.

        Data in an offline directory stay there, and are reported at the next start.
        """
        with self._lock:
            doomed = [partition for partition in self._partitions.pop_topic(topic) if partition.failure is None]
        self.traffic.forget(topic)
        self._delete(doomed, f"the deletion of {topic}")

    def delete_replica(self, key: TopicIdPartition, *, delete_remote: bool = False) -> None:
        """Delete the local replica, as a cluster's metadata require; its remote data too if `delete_remote`."""
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

    def _leave_to_no_cleaner(self, doomed: Iterable[Partition]) -> None:
        by_directory: dict[Path, list[TopicPartition]] = {}
        for partition in doomed:
            key = (partition.topic, partition.partition)
            self.cleaning.abort(key)
            by_directory.setdefault(partition.log.directory.parent, []).append(key)
        for directory, keys in by_directory.items():
            self.cleaning.remove_checkpoints(directory, keys)

    # --- moves between log directories --------------------------------------------------------------------------------

    def open_future(self, directory: Path, source: PartitionLog) -> PartitionLog:
        """Return a log in a directory `-future`, new or flushed, with the topic and configuration of `source`."""
        log = PartitionLog.open(
            directory, source.config, topic_id=source.topic_id, clock=self.clock, fs=self._fs, clean_shutdown=True
        )
        log.on_storage_error = partial(self._log_failed, directory.parent)
        log.update_high_watermark(log.log_end_offset)
        return log

    def expect(self, directory: Path, key: TopicPartition, bounds: Checkpointed) -> None:
        """Record checkpoint entries in a directory for a partition that is about to move there."""
        self._checkpoints.expect(directory, key, bounds)
        for data_dir in self.dirs.live:
            if data_dir.path == directory and not self._checkpoint(data_dir):
                raise self.dirs.storage_error(directory)

    def forget(self, directory: Path, key: TopicPartition) -> None:
        """Undo `expect`."""
        self._checkpoints.forget(directory, key)

    def condemn(self, log: PartitionLog) -> None:
        """Rename the directory of a fenced log for removal. Readers may still read from it."""
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
        """Replace `source` by its copy in `path`, which must end at `end`."""
        key = (partition.topic, partition.partition)
        config = replace(source.config)  # an object of its own, which a change replaces
        spec = TopicSpec(partition.topic, partition.topic_id, partition.partition + 1, config)
        try:
            log, _, _ = self._open_log(path, spec, is_new=False, is_flushed=True)
            if log.log_end_offset != end:
                raise KafkaStorageError(f"{path} ends at {log.log_end_offset}, expected {end}")
        except (OSError, StratalogError) as error:
            partition.fail(KafkaStorageError(f"{path} cannot be opened: {error}"))
            raise
        with self._lock:
            partition.continue_in(log)
            self._partitions.put(partition, path.parent)
            self._checkpoints.forget(source.directory.parent, key)
            self._flushes_gone = _sum([self._flushes_gone, source.flush_times])
        if log.config is config:  # else it has changed since
            log.config = source.config
        self.cleaning.move_checkpoint(key, source.directory.parent, path.parent)
        source.close(flush=False)
        return log

    def moved(self, partition: Partition) -> None:
        """Notify all that depend on it that a partition has another log."""
        self._tier([partition])
        partition.wake()

    # --- configuration ------------------------------------------------------------------------------------------------

    def update_config(self, topic: str, config: LogConfig) -> None:
        """Apply a topic's new configuration."""
        partitions = [partition for partition in self.partitions(topic) if partition.failure is None]
        config = allowed_config(topic, config)
        for partition in partitions:
            was_compacted = partition.log.config.compacted
            partition.log.config = config
            if was_compacted and not config.compacted:
                self.cleaning.abort((partition.topic, partition.partition))
        self._tier(partitions)

    def update_broker_config(self, config: BrokerConfig) -> None:
        """Apply a changed configuration of the broker to its logs."""
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

    def truncate_to(self, topic: str, number: int, offset: int) -> bool:
        """Drop everything of a partition from `offset` on. Return whether there was anything. Pauses cleaning."""
        partition = self._partitions.get(topic, number)
        if partition is None:
            raise KeyError((topic, number))
        here = [found for found in self.dirs.live if found.path == partition.log.directory.parent]
        # Recovery cuts nothing below a recovery point: an old one would keep what a crash leaves above the new end.
        partition.log.lower_recovery_point(offset)
        for data_dir in here:
            self._checkpoint(data_dir)
        with self.cleaning.paused((topic, number)):
            was_longer = partition.log.truncate_to(offset)
            self.cleaning.truncate_checkpoint(partition.log, partition.log.log_end_offset)
        for data_dir in here:
            self._checkpoint(data_dir)
        return was_longer

    # --- tiering and statistics ---------------------------------------------------------------------------------------

    def attach_remote(self, remote: RemoteLogManager) -> None:
        """Attach the remote tier to all current and later tiered partitions."""
        self.remote = remote
        self._tier(self.partitions())

    def _tier(self, partitions: Iterable[Partition]) -> None:
        if self.remote is None:
            return
        with self._tiering:  # the last caller sees the latest roles
            tier([partition for partition in partitions if partition.failure is None], self.remote)

    def flush_times(self) -> FlushTimes:
        """Return flushes of all logs since startup, including deleted ones."""
        return _sum([self._flushes_gone, *(partition.log.flush_times for partition in self.partitions())])


def _sum(times: Iterable[FlushTimes]) -> FlushTimes:
    listed = list(times)
    return FlushTimes(sum(each.times for each in listed), sum(each.total_ms for each in listed))
