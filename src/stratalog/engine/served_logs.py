"""The partitions that a broker serves, and the handling of failed log directories.

`LogManager` adds their start and stop (`log_lifecycle`) and their changes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from stratalog.config import BrokerConfig
from stratalog.engine.cleaning import CleanerManager
from stratalog.engine.dirs import (
    ALL_CHECKPOINTS,
    Checkpointed,
    DataDir,
    DirCheckpoints,
    LogDirs,
    TopicSpec,
)
from stratalog.engine.housekeeping import Housekeeping
from stratalog.engine.metrics import TopicTraffic
from stratalog.engine.partition import OfflinePartition, Partition
from stratalog.engine.partition_table import PartitionTable
from stratalog.errors import (
    KafkaStorageError,
    StratalogError,
    is_shortage,
)
from stratalog.log import PartitionLog
from stratalog.log.format import TopicPartition
from stratalog.log.recovery import plausible_start
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, Clock, FileSystem, Schedule, TopicCounts

if TYPE_CHECKING:
    from stratalog.engine.replication import LocalReplicas
    from stratalog.remote.tier import RemoteLogManager

logger = logging.getLogger(__name__)

#: Delay before another attempt to put a directory offline.
_OFFLINE_RETRY_MS = 60_000


def _ignore(_: str) -> None:
    """Do nothing: the default of `on_last_dir_failed`."""


class ServedLogs:
    """The data directories of a broker and their partitions. Thread-safe."""

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
        self.config = config
        self.remote: RemoteLogManager | None = None
        self.traffic = TopicCounts(TopicTraffic)
        self.on_last_dir_failed: Callable[[str], object] = _ignore
        self.clock = clock
        self._fs = fs
        self._partitions = PartitionTable()
        #: In a cluster, whose metadata assign leaders and followers.
        self.replication: LocalReplicas | None = None
        #: The last operation that failed for lack of file descriptors.
        self._shortage: str | None = None
        self._taking_offline = threading.Lock()
        self._lock = threading.RLock()
        self._schedule = Schedule("stratalog-housekeeping", _OFFLINE_RETRY_MS, clock)
        self.dirs = LogDirs(data_dirs, cluster_id=cluster_id, node_id=config["node.id"], fs=fs)
        self._checkpoints = DirCheckpoints(self.dirs)
        paths = [data_dir.path for data_dir in self.dirs.live]
        #: Coordinates work on compacted logs, also without a cleaner.
        self.cleaning = CleanerManager(paths, self._logs, fs, on_disk_error=self._fail)
        self._housekeeping = Housekeeping(
            self.partitions, self.dirs, self.cleaning, clock=clock, fs=fs, on_disk_error=self._fail
        )

    def get(self, topic: str, partition: int) -> Partition | None:
        """Return the partition. An offline one raises KafkaStorageError at every use."""
        return self._partitions.get(topic, partition)

    def leader_epochs(self, topic: str, count: int) -> tuple[int, ...]:
        """Return the leader epochs of the first `count` partitions of a topic; -1 for one that is not led."""
        return self._partitions.leader_epochs(topic, count)

    def partitions(self, topic: str | None = None) -> list[Partition]:
        with self._lock:
            known = self._partitions.ordered() if topic is None else self._partitions.of_topic(topic)
        return [partition for partition in known if partition.failure is None]

    def offline_count(self) -> int:
        """Return the number of partitions with a failed log directory."""
        with self._lock:
            return sum(partition.failure is not None for partition in self._partitions.all())

    def _logs(self) -> dict[TopicPartition, PartitionLog]:
        return {(partition.topic, partition.partition): partition.log for partition in self.partitions()}

    def _open(self, path: Path, spec: TopicSpec, *, is_new: bool) -> Partition:
        """Open the log of a partition, and lead it. An existing one was stopped as its data directory was."""
        log, was_clean, high_watermark = self._open_log(path, spec, is_new=is_new)
        partition = Partition(log, spec.topic_id, self.traffic.topic(log.topic))
        if self.replication is None:
            latest = log.leader_epochs.latest_epoch
            # After a crash the tail may differ from what clients saw. A new epoch lets them detect that.
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
        """Return a log, whether it was cleanly stopped, and its checkpointed high watermark."""
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

    def _apply_transaction_rules(self, log: PartitionLog) -> None:
        log.set_transaction_rules(
            verification_required=self.config["transaction.partition.verification.enable"],
            timeout_max_ms=self.config["transaction.max.timeout.ms"],
        )

    # --- failed directories
    @contextmanager
    def _failing(self, directory: Path, what: str) -> Iterator[None]:
        """Take the log directory offline when an OSError is raised in this block.

        A log that cannot be opened goes offline alone. A lack of file descriptors takes nothing offline, but aborts a
        start. Nor does an unexpected error: one log must not stop the others.
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
            logger.error("%s: %s: %s; it is left unchanged, and offline", directory, what, error)
        except Exception:
            logger.exception("%s: %s: unexpected error; it is left unchanged, and offline", directory, what)

    def _log_failed(self, directory: Path, error: KafkaStorageError) -> None:
        self._fail(directory, str(error))

    def _fail(self, directory: Path, reason: str) -> None:
        """Take a directory out of service.

        May be called with a log's lock held, so another thread does the rest.
        """
        if self.dirs.fail(directory, reason):
            self._schedule.add("failed log directory", partial(self.put_offline, directory), once=True)

    def put_offline(self, directory: Path) -> None:
        """Stop serving the partitions of a failed directory. Report when it was the last one."""
        error = self.dirs.storage_error(directory)
        self.cleaning.forget_dir(directory)
        with self._taking_offline:  # a second caller also returns only when the first one has finished
            for partition in self.partitions():
                if partition.log.directory.parent == directory:
                    with partition.held():  # until here it may have moved to another directory
                        if partition.log.directory.parent == directory:
                            partition.fail(error)
        if not self.dirs.live:
            self.on_last_dir_failed(
                "all log directories have failed: "
                + "; ".join(f"{path}: {reason}" for path, reason in self.dirs.offline.items())
            )

    def _put_offline(self, spec: TopicSpec, number: int, error: KafkaStorageError) -> None:
        with self._lock:
            self._partitions.put(OfflinePartition(spec.name, number, spec.topic_id, error), None)

    def write_checkpoints(self, names: Collection[str] = ALL_CHECKPOINTS) -> None:
        """Write recovery points, log start offsets and high watermarks of each directory, or some of them."""
        for data_dir in self.dirs.live:
            self._checkpoint(data_dir, names)

    def _checkpoint(self, data_dir: DataDir, names: Collection[str] = ALL_CHECKPOINTS) -> bool:
        """Write the checkpoints of one directory. Return whether that succeeded."""
        here = [p.log for p in self.partitions() if p.log.directory.parent == data_dir.path]
        if self._checkpoints.write(data_dir, here, names):
            return True
        if self.dirs.is_offline(data_dir.path):
            self._schedule.add("failed log directory", partial(self.put_offline, data_dir.path), once=True)
        return False
