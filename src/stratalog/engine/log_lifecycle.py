"""Start and stop the partitions of a broker.

A start loads the logs in the log directories and begins housekeeping. A clean stop flushes everything and marks the
directories, so that the next start skips recovery. `log_loading` describes the content of a directory.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID

from stratalog.config import BrokerConfig
from stratalog.engine.cleaning import LogCleaner
from stratalog.engine.dirs import (
    DataDir,
    LoadJob,
    TopicSpec,
    is_copy_of,
    load_side_by_side,
    marked_path,
    partitions_in,
    report_strays,
    survey,
)
from stratalog.engine.moves import MARK, DirectoryMoves
from stratalog.engine.partition import Partition
from stratalog.engine.served_logs import ServedLogs
from stratalog.errors import (
    DataDirError,
    KafkaError,
    KafkaStorageError,
    ResourceShortageError,
    StratalogError,
)
from stratalog.log import PartitionLog
from stratalog.log.format import (
    FUTURE_DIR_SUFFIX,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    METADATA_LOG,
    RECOVERY_POINTS,
    TopicPartition,
)
from stratalog.util import REAL_FILESYSTEM, SYSTEM_CLOCK, Clock, FileSystem

logger = logging.getLogger(__name__)

_PURGE_PERIOD_MS = 1_000
_FLUSH_PERIOD_MS = 1_000


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The result of a start, for the log."""

    partitions: int
    recovered: int
    strays: tuple[Path, ...]


class LogLifecycle(ServedLogs, ABC):
    """Starts and stops the partitions of `ServedLogs`."""

    #: Partitions that are moving to another log directory.
    moves: DirectoryMoves

    def __init__(
        self,
        data_dirs: Sequence[Path],
        config: BrokerConfig,
        *,
        cluster_id: str,
        clock: Clock = SYSTEM_CLOCK,
        fs: FileSystem = REAL_FILESYSTEM,
    ) -> None:
        super().__init__(data_dirs, config, cluster_id=cluster_id, clock=clock, fs=fs)
        #: Unfinished moves: the partition, the destination and, if the move can go on with it, the copy.
        self._left_moves: list[tuple[TopicPartition, Path, Path | None]] = []
        self.cleaner = self._make_cleaner() if config["log.cleaner.enable"] else None

    def _make_cleaner(self) -> LogCleaner:
        try:
            return LogCleaner(self.config, self.cleaning, clock=self.clock, fs=self._fs, on_disk_error=self._fail)
        except StratalogError:
            self.dirs.close(clean=[data_dir.path for data_dir in self.dirs.live if data_dir.was_clean])
            raise

    @abstractmethod
    def create_topic(self, spec: TopicSpec) -> list[Partition]:
        """Ensure that all partitions of a topic exist and are led."""

    # --- start --------------------------------------------------------------------------------------------------------

    def start(self, topics: Iterable[TopicSpec]) -> LoadReport:
        """Load every partition of `topics`, lead all of them, and begin housekeeping.

        A partition directory of no known topic is left unchanged and reported. One of an earlier topic of the same name
        is renamed to `-stray`, as by Kafka, and reported too. While a directory is offline, missing partitions are
        assumed to be there, and are offline as well.
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

    def _load_topics(
        self,
        known: Mapping[str, TopicSpec],
        is_wanted: Callable[[LoadJob], bool] = lambda _: True,
        recorded: Callable[[TopicPartition], UUID | None] = lambda _: None,
    ) -> tuple[int, tuple[Path, ...]]:
        """Load the local partitions of `known`. Return how many were recovered, and the directories not served.

        `recorded` returns the directory of a partition in a cluster's metadata.
        """
        started = self.clock.monotonic()
        jobs: dict[Path, list[LoadJob]] = {}
        unknown: list[Path] = []
        set_aside: list[Path] = []
        copies: list[tuple[Path, TopicPartition, DataDir]] = []
        for data_dir in self.dirs.live:
            with self._failing(data_dir.path, "its partitions cannot be listed"):
                content = survey(data_dir.path, known, self._fs)
                jobs[data_dir.path] = [job for job in content.jobs if is_wanted(job)]
                unknown += content.unknown
                unknown += [job.path for job in content.jobs if not is_wanted(job)]
                set_aside += content.set_aside
                for path in content.condemned:
                    self._housekeeping.condemn(path)
                copies += [(path, key, data_dir) for path, key in content.futures]
        self._settle_moves(jobs)
        served = {(job.spec.name, job.partition) for of_directory in jobs.values() for job in of_directory}
        for path, key, data_dir in copies:
            if key not in served and recorded(key) == data_dir.directory_id:
                jobs[data_dir.path] += self._promote_copy(path, key[1], known[key[0]])
            else:
                left: Path | None = None
                with self._failing(data_dir.path, f"{path.name} cannot be read"):
                    if data_dir.was_clean and is_copy_of(path, known[key[0]], self._fs):
                        left = path  # flushed, so that it has no gaps
                if left is None:
                    self._housekeeping.condemn(path)
                self._left_moves.append((key, data_dir.path, left))
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
        """Discard a copy if the partition of its name still exists at its source; see `moves`."""
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
                        self._left_moves.append(((job.spec.name, job.partition), directory, None))
                    elif self.dirs.offline:
                        of_directory.remove(job)
                        logger.error(
                            "%s: a move to it had not ended, and a newer one may lie in a log directory that is "
                            "offline; it is not served until that is back",
                            job.path,
                        )
                    else:
                        self._fs.remove(job.path / MARK)

    def _promote_copy(self, path: Path, number: int, spec: TopicSpec) -> list[LoadJob]:
        """Give a copy the name of its partition, whose other directory is lost. Return what is to be loaded.

        The controller has accepted the directory of the copy: it had caught up.
        """
        final = path.with_name(f"{spec.name}-{number}")
        found: list[LoadJob] = []
        with self._failing(path.parent, f"{path.name} cannot be taken over"):
            if not is_copy_of(path, spec, self._fs):
                return found
            log = PartitionLog.open(path, spec.config, topic_id=spec.topic_id, fs=self._fs, clean_shutdown=False)
            end = log.log_end_offset
            log.close()
            self._fs.rename(path, final)
            self._fs.sync_dir(path.parent)
            logger.warning(
                "%s is served from %s, where it was moving: its earlier directory is lost; it ends at %d",
                final.name,
                final.parent,
                end,
            )
            found.append(LoadJob(final, number, spec))
        return found

    def _resume_moves(self) -> None:
        left, self._left_moves = self._left_moves, []
        for (topic, number), destination, copy in left:
            partition = self.get(topic, number)
            goes_on = False
            if partition is not None and partition.failure is None:
                try:
                    goes_on = self.moves.begin(partition, destination, copy)
                except KafkaError as error:  # this says nothing about the directory
                    logger.error("The move of %s-%d to %s cannot continue: %s", topic, number, destination, error)
            if copy is not None and not goes_on:
                self._housekeeping.condemn(copy)

    def _refuse_shortage(self) -> None:
        """Raise DataDirError when a partition is not served for lack of file descriptors."""
        if self._shortage is not None:
            raise DataDirError(f"{self._shortage}; raise the limit (ulimit -n, LimitNOFILE) and start again")

    def _refuse_twins(self, jobs: Mapping[Path, Sequence[LoadJob]]) -> None:
        """Raise DataDirError for a partition in two directories: only an operator can decide between them."""
        seen: dict[str, Path] = {}
        for job in (job for of_directory in jobs.values() for job in of_directory):
            twin = seen.setdefault(job.path.name, job.path)
            if twin != job.path:
                self.dirs.close(clean=[data_dir.path for data_dir in self.dirs.live if data_dir.was_clean])
                raise DataDirError(
                    f"{job.path.name} is in two log directories, {twin.parent} and {job.path.parent}; move one of"
                    " them away"
                )

    def _load(self, jobs: Mapping[Path, Sequence[LoadJob]]) -> int:
        """Open the logs of all directories concurrently. Return how many were recovered after an unclean stop."""
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

    def _mark_missing_as_offline(self, spec: TopicSpec) -> None:
        error = self.dirs.storage_error(next(iter(self.dirs.offline)))
        for number in range(spec.partition_count):
            if self.get(spec.name, number) is None:
                self._put_offline(spec, number, error)

    # --- housekeeping -------------------------------------------------------------------------------------------------

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

    def apply_retention(self) -> int:
        return self._housekeeping.apply_retention()

    def flush_due(self) -> None:
        self._housekeeping.flush_due()

    def expire_producers(self) -> None:
        """Forget idempotent producers that were idle for producer.id.expiration.ms."""
        self._housekeeping.expire_producers(self.config["producer.id.expiration.ms"])

    def purge(self) -> None:
        self._housekeeping.purge()

    # --- stop ---------------------------------------------------------------------------------------------------------

    def stop_replication(self) -> None:
        """Stop the fetchers and the requests to the controller. A second call does nothing."""
        if self.replication is not None:
            self.replication.close()

    def close(self, *, clean: bool = True, broker_epoch: int = -1) -> None:
        """Flush and close every partition and release the directories. A second call does nothing.

        `broker_epoch` is that of a cluster's broker, for the clean-shutdown markers.

        A directory is marked as cleanly stopped if all its partitions were flushed, whatever happened to other
        directories. After a crash that requires that every partition in it was opened since: others are still as the
        crash left them.
        """
        self.stop_replication()
        self.moves.close(clean=clean)
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
        """Return whether no partition in a directory is in the state of a crash; `closed` were served."""
        if data_dir.was_clean:
            return True
        try:
            left = [path.name for path in partitions_in(data_dir.path, self._fs) if path not in closed]
        except OSError as error:
            logger.error("%s cannot be listed: %s", data_dir.path, error)
            return False
        if left:
            logger.warning(
                "%s is not marked as cleanly stopped: it was not at startup, and %s not opened since",
                data_dir.path,
                ", ".join(left[:5]) + (", ... were" if left[5:] else " was"),
            )
        return not left
