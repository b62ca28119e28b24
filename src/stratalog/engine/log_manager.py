"""All partitions of one broker: loading, creation, deletion, housekeeping and a clean end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from stratalog.config.broker import BrokerConfig
from stratalog.config.topic import LogConfig
from stratalog.engine.data_dir import DataDir
from stratalog.engine.partition import Partition
from stratalog.engine.scheduler import Scheduler
from stratalog.errors import CorruptCheckpointError, KafkaStorageError
from stratalog.log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    OffsetCheckpoint,
    PartitionMetadataFile,
)
from stratalog.log.file_names import (
    DELETE_DIR_SUFFIX,
    PARTITION_METADATA,
    STRAY_DIR_SUFFIX,
    parse_partition_dir,
)
from stratalog.log.partition_log import PartitionLog
from stratalog.util.clock import SYSTEM_CLOCK, Clock
from stratalog.util.filesystem import REAL_FILESYSTEM, FileSystem
from stratalog.util.uuids import random_uuid

if TYPE_CHECKING:
    from stratalog.remote.manager import RemoteLogManager

logger = logging.getLogger(__name__)

_PURGE_PERIOD_MS = 1_000
_FLUSH_PERIOD_MS = 1_000


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """What the cluster's metadata says of a topic, as far as its logs need it."""

    name: str
    topic_id: UUID
    partition_count: int
    config: LogConfig


#: A partition directory, the topic and partition that its name says, and the topic's metadata.
_LoadJob = tuple[Path, tuple[str, int], TopicSpec]


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a start found: for one line in the log."""

    partitions: int
    recovered: int
    strays: tuple[Path, ...]


class LogManager:
    """Owns the data directories and every `Partition` in them. Thread-safe.

    `start` before use, `close` at the end: a clean end flushes everything and leaves the marker that lets the next start
    skip recovery.
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
        self.config = config
        self.remote: RemoteLogManager | None = None
        self._clock = clock
        self._fs = fs
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._lock = threading.RLock()
        self._scheduler = Scheduler("stratalog-housekeeping", clock)
        self._condemned: list[tuple[float, Path]] = []
        self._dirs: list[DataDir] = []
        try:
            for path in data_dirs:
                self._dirs.append(
                    DataDir.open(Path(path), cluster_id=cluster_id, node_id=config["node.id"], fs=fs)
                )
        except BaseException:
            for opened in self._dirs:
                opened.close(clean=opened.was_clean)
            raise

    # --- life ---------------------------------------------------------------------------------------------------------

    def start(self, topics: Iterable[TopicSpec]) -> LoadReport:
        """Load every partition of `topics`, lead all of them, and begin housekeeping.

        A partition directory that `topics` does not know is left as it is and named in the report. One of an earlier topic
        of the same name is renamed to `-stray`, as Kafka does, and named too.
        """
        known = {spec.name: spec for spec in topics}
        strays: list[Path] = []
        recovered = 0
        for data_dir in self._dirs:
            jobs: list[_LoadJob] = []
            for name in self._fs.list_dir(data_dir.path):
                path = data_dir.path / name
                if not self._fs.is_dir(path):
                    continue
                if name.endswith(DELETE_DIR_SUFFIX):
                    self._condemn(path)
                    continue
                parsed = parse_partition_dir(name)
                if parsed is None:
                    continue
                spec = known.get(parsed[0])
                if spec is None or parsed[1] >= spec.partition_count:
                    strays.append(path)
                elif self._is_of_another_topic(path, spec):
                    strays.append(self._set_aside(path))
                else:
                    jobs.append((path, parsed, spec))
            self._load(data_dir, jobs)
            recovered += 0 if data_dir.was_clean else len(jobs)
        for spec in known.values():
            self.create_topic(spec)
        for path in strays:
            logger.warning("%s belongs to no topic of this cluster; it is left as it is", path)
        self._schedule()
        return LoadReport(len(self._partitions), recovered, tuple(strays))

    def _is_of_another_topic(self, path: Path, spec: TopicSpec) -> bool:
        try:
            topic_id = PartitionMetadataFile(path / PARTITION_METADATA, self._fs).read()
        except CorruptCheckpointError:
            return False  # the log says so when it is opened, and writes the file anew
        return topic_id is not None and topic_id != spec.topic_id

    def _set_aside(self, path: Path) -> Path:
        aside = path.with_name(f"{path.name}.{random_uuid().hex}{STRAY_DIR_SUFFIX}")
        self._fs.rename(path, aside)
        return aside

    def _load(self, data_dir: DataDir, jobs: list[_LoadJob]) -> None:
        recovery_points = self._read_checkpoint(data_dir, RECOVERY_POINTS)
        start_offsets = self._read_checkpoint(data_dir, LOG_START_OFFSETS)

        def load(job: _LoadJob) -> None:
            path, key, spec = job
            log = PartitionLog.open(
                path,
                spec.config,
                topic_id=spec.topic_id,
                clock=self._clock,
                fs=self._fs,
                clean_shutdown=data_dir.was_clean,
                recovery_point=recovery_points.get(key, 0),
                log_start_offset=start_offsets.get(key, 0),
            )
            self._lead(log, spec.topic_id, unclean=not data_dir.was_clean)

        threads = self.config["num.recovery.threads.per.data.dir"]
        if len(jobs) < 2 or threads == 1:
            for job in jobs:
                load(job)
        else:
            with ThreadPoolExecutor(threads, thread_name_prefix="log-recovery") as pool:
                list(pool.map(load, jobs))

    def _lead(self, log: PartitionLog, topic_id: UUID, *, unclean: bool = False) -> Partition:
        partition = Partition(log, topic_id)
        latest = log.leader_epochs.latest_epoch
        # After a crash the tail may be other than what clients saw: a new epoch lets them find out.
        epoch = 0 if latest is None else latest + 1 if unclean and log.log_end_offset > 0 else latest
        partition.become_leader(epoch)
        with self._lock:
            self._partitions[log.topic, log.partition] = partition
        return partition

    def _schedule(self) -> None:
        every = self._scheduler.schedule
        delay = self.config["log.initial.task.delay.ms"]
        every("retention", self.apply_retention, delay_ms=delay,
              period_ms=self.config["log.retention.check.interval.ms"])  # fmt: skip
        every("checkpoint", self.write_checkpoints, delay_ms=delay,
              period_ms=self.config["log.flush.offset.checkpoint.interval.ms"])  # fmt: skip
        every("flush", self.flush_due, delay_ms=delay, period_ms=_FLUSH_PERIOD_MS)
        check_ms = self.config["producer.id.expiration.check.interval.ms"]
        every("producers", self.expire_producers, delay_ms=check_ms, period_ms=check_ms)
        every("purge", self.purge, delay_ms=_PURGE_PERIOD_MS, period_ms=_PURGE_PERIOD_MS)

    def close(self, *, clean: bool = True) -> None:
        """Flush and close every partition and release the directories. Harmless when called again."""
        self._scheduler.close()
        if self.remote is not None:
            self.remote.close()
            self.remote = None
        ok = clean
        for partition in self.partitions():
            partition.resign()
            try:
                partition.log.close()
            except (OSError, KafkaStorageError):
                ok = False
                logger.exception("%s was not closed cleanly", partition.log.directory)
        if ok:
            self.write_checkpoints()
        with self._lock:
            self._partitions.clear()
        for data_dir in self._dirs:
            data_dir.close(clean=ok)

    # --- partitions -----------------------------------------------------------------------------------------------------

    def get(self, topic: str, partition: int) -> Partition | None:
        return self._partitions.get((topic, partition))

    def partitions(self, topic: str | None = None) -> list[Partition]:
        """All partitions, or those of one topic, in order."""
        with self._lock:
            found = [p for (name, _), p in self._partitions.items() if topic is None or name == topic]
        return sorted(found, key=lambda p: (p.topic, p.partition))

    def create_topic(self, spec: TopicSpec) -> list[Partition]:
        """Make sure that all partitions of a topic exist and are led; also the way to add partitions."""
        return [self._create(spec, number) for number in range(spec.partition_count)]

    def _create(self, spec: TopicSpec, number: int) -> Partition:
        with self._lock:
            existing = self._partitions.get((spec.name, number))
            if existing is not None:
                return existing
            path = self._emptiest_dir() / f"{spec.name}-{number}"
            try:
                self._fs.make_dirs(path)
                log = PartitionLog.open(
                    path,
                    spec.config,
                    topic_id=spec.topic_id,
                    clock=self._clock,
                    fs=self._fs,
                    clean_shutdown=True,
                )
            except OSError as error:
                raise KafkaStorageError(f"{path} cannot be created: {error.strerror}") from error
            partition = self._lead(log, spec.topic_id)
        self._tier([partition])
        return partition

    def _emptiest_dir(self) -> Path:
        counts = {data_dir.path: 0 for data_dir in self._dirs}
        for partition in self._partitions.values():
            counts[partition.log.directory.parent] += 1
        return min(counts, key=lambda path: counts[path])

    def delete_topic(self, topic: str) -> None:
        """Stop serving a topic and delete its data, local and remote; files go after file.delete.delay.ms."""
        doomed = self.partitions(topic)
        with self._lock:
            for partition in doomed:
                del self._partitions[partition.topic, partition.partition]
        for partition in doomed:
            partition.resign()
        tiered = [p.topic_id_partition for p in doomed if p.remote is not None]
        if tiered and self.remote is not None:
            self.remote.stop_partitions(tiered, delete_remote=True)
        for partition in doomed:
            log = partition.log
            delay_ms = log.config.file_delete_delay_ms
            log.close(flush=False)
            condemned = log.directory.with_name(
                f"{log.directory.name}.{random_uuid().hex}{DELETE_DIR_SUFFIX}"
            )
            self._fs.rename(log.directory, condemned)
            self._condemn(condemned, delay_ms)

    def update_config(self, topic: str, config: LogConfig) -> None:
        """Put a topic's new configuration in force at once."""
        partitions = self.partitions(topic)
        for partition in partitions:
            partition.log.config = config
        self._tier(partitions)

    # --- tiering ----------------------------------------------------------------------------------------------------------

    def attach_remote(self, remote: RemoteLogManager) -> None:
        """Give all tiered partitions, now and later, their remote tier."""
        self.remote = remote
        self._tier(self.partitions())

    def _tier(self, partitions: Iterable[Partition]) -> None:
        if self.remote is None:
            return
        enabled = [p for p in partitions if p.log.config.remote_storage_enable]
        for partition in enabled:
            partition.remote = self.remote
        if enabled:
            self.remote.on_leadership_change([partition.log for partition in enabled])

    # --- housekeeping -----------------------------------------------------------------------------------------------------

    def apply_retention(self) -> int:
        """Delete what retention allows, in every partition; return how many segments went."""
        deleted = 0
        for partition in self.partitions():
            deleted += len(partition.log.delete_old_segments())
        return deleted

    def flush_due(self) -> None:
        """Flush segments that were sealed, and logs whose flush.ms is over."""
        now_ms = self._clock.now_ms()
        for partition in self.partitions():
            partition.log.flush_if_due(now_ms)

    def expire_producers(self) -> None:
        """Forget idempotent producers that have been silent for producer.id.expiration.ms."""
        now_ms = self._clock.now_ms()
        for partition in self.partitions():
            partition.log.expire_producers(now_ms, self.config["producer.id.expiration.ms"])

    def purge(self) -> None:
        """Remove files and directories whose delay after deletion is over."""
        for partition in self.partitions():
            partition.log.purge_deleted(self._clock.now_ms())
        now = self._clock.monotonic()
        with self._lock:
            due = [path for when, path in self._condemned if when <= now]
            self._condemned = [(when, path) for when, path in self._condemned if when > now]
        for path in due:
            self._fs.remove_tree(path)

    def _condemn(self, path: Path, delay_ms: float = 0) -> None:
        with self._lock:
            self._condemned.append((self._clock.monotonic() + delay_ms / 1000, path))

    def write_checkpoints(self) -> None:
        """Write recovery points, log start offsets and high watermarks of each directory."""
        for data_dir in self._dirs:
            here = [p for p in self.partitions() if p.log.directory.parent == data_dir.path]
            facts: dict[str, Callable[[PartitionLog], int]] = {
                RECOVERY_POINTS: lambda log: log.recovery_point,
                LOG_START_OFFSETS: lambda log: log.log_start_offset,
                HIGH_WATERMARKS: lambda log: log.high_watermark,
            }
            for name, fact in facts.items():
                self._checkpoint(data_dir, name).write(
                    {
                        (p.topic, p.partition): fact(p.log)
                        for p in here
                        if name != LOG_START_OFFSETS or p.log.log_start_offset > 0
                    }
                )

    def _read_checkpoint(self, data_dir: DataDir, name: str) -> dict[tuple[str, int], int]:
        """What a checkpoint says; nothing if it is damaged: without it more is read than needed, but nothing is lost."""
        try:
            return self._checkpoint(data_dir, name).read()
        except CorruptCheckpointError as error:
            logger.warning("Starting without a checkpoint that is damaged: %s", error)
            return {}

    def _checkpoint(self, data_dir: DataDir, name: str) -> OffsetCheckpoint:
        return OffsetCheckpoint(data_dir.path / name, self._fs)
