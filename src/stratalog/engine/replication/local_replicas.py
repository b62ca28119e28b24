"""The replicas of one broker of a cluster: apply metadata changes by leading, following or deleting.

Source: `ReplicaManager.applyDelta` of Kafka 4.4.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from stratalog.engine.dirs import TopicSpec
from stratalog.engine.replication.directory_assignments import DirectoryAssignments
from stratalog.engine.replication.directory_claim import DirectoryClaim
from stratalog.engine.replication.fetcher import FetcherPool, FetchLimits
from stratalog.engine.replication.isr_requests import IsrRequests
from stratalog.engine.replication.led_replicas import IsrCounts, LedReplicas, ReplicationServices
from stratalog.engine.replication.replica_role import Role
from stratalog.engine.replication.throttle import LeaderAndFollowerThrottle
from stratalog.errors import StratalogError

if TYPE_CHECKING:
    from stratalog.config import BrokerConfig
    from stratalog.engine.log_manager import LogManager
    from stratalog.engine.partition import Partition
    from stratalog.engine.replica_changes import AssignedReplicas, ClusterView, ReplicaChanges
    from stratalog.remote.api import TopicIdPartition
    from stratalog.util import Schedule

logger = logging.getLogger(__name__)


class LocalReplicas:
    """All replicas of this broker. One thread at a time may call `apply`; any thread may read."""

    def __init__(self, logs: LogManager, cluster: ClusterView) -> None:
        config = logs.config
        self._logs = logs
        self._config = config
        self.cluster = cluster
        self._lock = threading.Lock()
        self._closed = False
        self._requests = IsrRequests(cluster)
        self.assignments = DirectoryAssignments(cluster)
        self.throttles = LeaderAndFollowerThrottle(config, logs.clock, cluster.node_id)
        self._services = ReplicationServices(
            cluster=cluster,
            clock=logs.clock,
            lag_max_ms=config["replica.lag.time.max.ms"],
            submit=self._requests.submit,
            throttle=self.throttles.leader,
        )
        self.fetchers = FetcherPool(
            cluster,
            FetchLimits.of(config),
            lambda partition, offset: logs.truncate_to(partition.topic, partition.partition, offset),
            per_leader=config["num.replica.fetchers"],
            throttle=self.throttles.follower,
            skips_tiered=lambda: bool(self._config["follower.fetch.last.tiered.offset.enable"]),
            clock=logs.clock,
        )

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply what may change: the number of fetchers, the rates, and where empty followers begin."""
        self._config = self.throttles.config = config
        with self._lock:
            if not self._closed:
                self.fetchers.resize(config["num.replica.fetchers"])

    def begin(self, schedule: Schedule) -> None:
        """Start checking for lagging replicas, as often as Kafka."""
        every_ms = max(self._services.lag_max_ms // 2, 1)
        schedule.add("in-sync replicas", self.shrink_isrs, delay_ms=every_ms, interval_ms=every_ms)

    def shrink_isrs(self) -> None:
        for led in self.led():
            led.shrink_if_due()

    @property
    def isr_counts(self) -> IsrCounts:
        """Counts of ISR changes of partitions that are led here."""
        return self._services.counts

    def led(self) -> list[LedReplicas]:
        """Return the replicas of partitions that are led here and replicated elsewhere."""
        return [led for partition in self._logs.partitions() if (led := partition.led) is not None]

    def close(self) -> None:
        """Stop following leaders and sending requests to the controller."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self.fetchers.close()
        self._requests.close()
        self.assignments.close()

    # --- metadata changes
    def apply(self, changes: ReplicaChanges) -> None:
        """Delete, lead and follow, in this order, and report replicas whose directory differs from the metadata.

        Errors of single partitions are logged.
        """
        with self._lock:
            if self._closed:
                return
            for key in changes.deletes:
                remote = key in changes.remote_deletes
                self._each(key, lambda key=key, remote=remote: self._delete(key, delete_remote=remote))  # type: ignore[misc]
            for news in (changes.leaders, changes.followers):
                for key, assigned in news.items():
                    self._each(key, lambda key=key, assigned=assigned: self._take(key, assigned))  # type: ignore[misc]
            for key, directory_id in changes.directories.items():
                self._report_directory(key, directory_id)

    def _report_directory(self, key: TopicIdPartition, recorded: UUID) -> None:
        partition = self._logs.get(key.topic, key.partition)
        if partition is None or partition.topic_id != key.topic_id or partition.failure is not None:
            return
        if self._logs.moves.is_claiming(partition):
            return  # the move ends there, or reports the directory again
        found = self._directory_id(partition.log.directory.parent)
        if found not in (None, recorded):
            self.assignments.submit(key.topic_id, key.partition, found)

    def _directory_id(self, path: Path) -> UUID | None:
        return next((each.directory_id for each in self._logs.dirs.live if each.path == path), None)

    def claim(self, partition: Partition, destination: Path) -> DirectoryClaim:
        """Return the claim of a replica on another log directory. KafkaStorageError for an offline one."""
        source = partition.log.directory.parent
        here, there = self._directory_id(source), self._directory_id(destination)
        if here is None or there is None:
            raise self._logs.dirs.storage_error(source if here is None else destination)
        return DirectoryClaim(partial(self.assignments.submit, partition.topic_id, partition.partition), here, there)

    def _each(self, key: TopicIdPartition, work: Callable[[], None]) -> None:
        try:
            work()
        except (StratalogError, OSError) as error:
            logger.error("%s-%d: %s", key.topic, key.partition, error)
        except Exception:
            logger.exception("The metadata of %s-%d could not be applied", key.topic, key.partition)

    def _delete(self, key: TopicIdPartition, *, delete_remote: bool) -> None:
        partition = self._logs.get(key.topic, key.partition)
        if partition is not None and partition.topic_id == key.topic_id:
            self.fetchers.leave(partition)
            partition.retire()
            self._logs.delete_replica(key, delete_remote=delete_remote)

    def _take(self, key: TopicIdPartition, assigned: AssignedReplicas) -> None:
        partition = self._partition(key, assigned)
        if partition is None or partition.failure is not None:
            return
        before = partition.leader
        role = partition.take_assignment(assigned, self._services)
        if role is Role.FOLLOWER:
            if partition.leader != before:
                self.fetchers.follow(partition, assigned.leader, assigned.leader_epoch)
        elif role is not None:
            self.fetchers.leave(partition)
        if role is not None and partition.leader != before:
            self._logs.take_role(partition)

    def _partition(self, key: TopicIdPartition, assigned: AssignedReplicas) -> Partition | None:
        found = self._logs.get(key.topic, key.partition)
        if found is not None:
            if found.topic_id == key.topic_id:
                return found
            logger.error("%s-%d still belongs to an earlier topic of this name", key.topic, key.partition)
            return None
        directory = assigned.directory(self.cluster.node_id)
        spec = TopicSpec(key.topic, key.topic_id, key.partition + 1, self.cluster.log_config(key.topic))
        return self._logs.make_replica(spec, key.partition, directory)
