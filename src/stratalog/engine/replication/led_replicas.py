"""Apply a `Reign` to its log, when followers fetch, time passes, or the controller responds.

Thread-safe. Its lock is held while the high watermark moves, so that it never goes back within a reign; nothing moves
it afterwards. Another thread sends changes of the ISR.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from stratalog.engine.replication.isr import AlterOutcome, IsrChange, IsrState, Reign
from stratalog.errors import NotLeaderOrFollowerError

if TYPE_CHECKING:
    from stratalog.engine.replica_changes import AssignedReplicas, ClusterView
    from stratalog.engine.replication.throttle import ReplicationThrottle
    from stratalog.log import PartitionLog
    from stratalog.remote.api import TopicIdPartition
    from stratalog.util import Clock


@dataclass(slots=True)
class IsrCounts:
    """Changes of ISRs that the controller made on our request. Written by the requesting thread."""

    expands: int = 0
    shrinks: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationServices:
    cluster: ClusterView
    clock: Clock
    lag_max_ms: int
    #: Queues a change for the controller.
    submit: Callable[[LedReplicas, IsrChange], object]
    throttle: ReplicationThrottle
    counts: IsrCounts = field(default_factory=IsrCounts)


class ReadableReplica(NamedTuple):
    """A follower that consumers may read from, and how far it is."""

    broker: int
    log_end_offset: int
    #: Milliseconds since it last caught up.
    behind_ms: int


class LedReplicas:
    def __init__(
        self,
        log: PartitionLog,
        key: TopicIdPartition,
        assigned: AssignedReplicas,
        services: ReplicationServices,
        *,
        on_moved: Callable[[], object],
    ) -> None:
        """`on_moved` is called without the lock when the high watermark, the ISR or the low watermark has moved."""
        self.key = key
        self._counts = services.counts
        self._log = log
        self._services = services
        self._on_moved = on_moved
        self._lock = threading.Lock()
        self._over = False
        self._reign = Reign(services.cluster.node_id, assigned, epoch_start=log.log_end_offset, now_ms=self._now_ms())

    def _now_ms(self) -> int:
        return int(self._services.clock.monotonic() * 1000)

    def end(self) -> None:
        """Stop moving the high watermark."""
        with self._lock:
            self._over = True

    def continue_in(self, log: PartitionLog) -> None:
        """Lead from now on in a log that succeeds the fenced one, whose high watermark nothing moves any more."""
        with self._lock:
            log.succeed(self._log)
            self._log = log

    @property
    def isr(self) -> frozenset[int]:
        return self._reign.isr

    @property
    def epoch_start(self) -> int:
        """The log end offset at the start of this leader's epoch."""
        return self._reign.epoch_start

    @property
    def replicas(self) -> tuple[int, ...]:
        return self._reign.replicas

    @property
    def min_isr(self) -> int:
        return self._reign.min_isr(self._log.config.min_insync_replicas)

    def check_min_isr(self) -> None:
        self._reign.check_min_isr(self._log.config.min_insync_replicas)

    def is_confirmed(self, last_offset: int) -> bool:
        log = self._log
        return self._reign.is_confirmed(last_offset, log.high_watermark, log.config.min_insync_replicas)

    def low_watermark(self) -> int:
        cluster = self._services.cluster
        with self._lock:
            return self._reign.low_watermark(
                self._log.log_start_offset, lambda broker: cluster.isr_epoch(broker) is not None
            )

    @property
    def is_throttled(self) -> bool:
        """Whether data sent to followers count in the rate of throttled replication."""
        replicas = self._log.config.leader_replication_throttled_replicas
        return bool(replicas) and self._services.throttle.is_throttled(replicas, self.key.partition)

    def is_held_back(self, broker: int) -> bool:
        """Return whether a follower must wait because it is not in sync and the rate is used up."""
        return self.is_throttled and broker not in self._reign.isr and self._services.throttle.is_exceeded

    def readable_replicas(self, offset: int) -> list[ReadableReplica]:
        """Return the in-sync followers that have `offset`. Others may never catch up, nor would their readers."""
        now_ms = self._now_ms()
        with self._lock:
            reign = self._reign
            return [
                ReadableReplica(broker, follower.log_end_offset, now_ms - follower.caught_up_ms)
                for broker, follower in reign.followers.items()
                if broker in reign.isr and follower.log_start_offset <= offset <= follower.log_end_offset
            ]

    def lags(self) -> dict[int, int]:
        """Return how many records each follower is behind."""
        end = self._log.log_end_offset
        with self._lock:
            return {
                broker: max(end - max(follower.log_end_offset, 0), 0)
                for broker, follower in self._reign.followers.items()
            }

    # --- events -------------------------------------------------------------------------------------------------------

    def advance(self) -> bool:
        """Move the high watermark as far as possible. Return whether it moved."""
        with self._lock:
            return self._advance()

    def _advance(self) -> bool:
        if self._over:
            return False
        log, services = self._log, self._services
        target = self._reign.high_watermark(
            log.log_end_offset,
            min_isr=log.config.min_insync_replicas,
            now_ms=self._now_ms(),
            lag_max_ms=services.lag_max_ms,
            isr_epoch=services.cluster.isr_epoch,
        )
        if target is None or target <= log.high_watermark:
            return False
        log.update_high_watermark(target)
        return True

    def has_replica(self, broker: int) -> bool:
        return broker in self._reign.followers  # a single look-up needs no lock

    def note_fetch(self, broker: int, broker_epoch: int, offset: int, log_start_offset: int) -> None:
        """Record a follower's fetch; errors of `Reign.note_fetch`. Ignores one from after the log end."""
        cluster = self._services.cluster
        with self._lock:
            if self._over:
                raise NotLeaderOrFollowerError(f"{self.key.topic}-{self.key.partition} is not led by this broker")
            end = self._log.log_end_offset
            if offset > end and broker in self._reign.followers:
                return
            known = self._reign.followers.get(broker)
            start_before = None if known is None else known.log_start_offset
            self._reign.note_fetch(
                broker,
                broker_epoch=broker_epoch,
                offset=offset,
                log_start_offset=log_start_offset,
                leader_end=end,
                now_ms=self._now_ms(),
                registered_epoch=cluster.isr_epoch(broker),
            )
            change = self._reign.propose_expansion(
                broker,
                high_watermark=self._log.high_watermark,
                broker_epoch=cluster.broker_epoch,
                isr_epoch=cluster.isr_epoch,
            )
            moved = self._advance() or start_before != log_start_offset
        if change is not None:
            self._services.submit(self, change)
        if moved:
            self._on_moved()

    def shrink_if_due(self) -> None:
        """Request an ISR without lagging replicas, if there are any."""
        services = self._services
        with self._lock:
            if self._over:
                return
            change = self._reign.propose_shrink(
                self._log.log_end_offset,
                now_ms=self._now_ms(),
                lag_max_ms=services.lag_max_ms,
                broker_epoch=services.cluster.broker_epoch,
            )
            moved = self._advance()
        if change is not None:
            services.submit(self, change)
        if moved:
            self._on_moved()

    # --- the controller's decisions -----------------------------------------------------------------------------------

    def update(self, assigned: AssignedReplicas) -> None:
        with self._lock:
            self._reign.update(assigned)

    def is_wanted(self, change: IsrChange) -> bool:
        """Return whether a change still waits for its response."""
        return not self._over and self._reign.pending is change

    def accept(
        self,
        change: IsrChange,
        isr: Iterable[int],
        *,
        leader_epoch: int,
        partition_epoch: int,
        leader_recovery_state: int,
    ) -> None:
        with self._lock:
            if self._over or not self._reign.accept(
                change,
                isr,
                leader_epoch=leader_epoch,
                partition_epoch=partition_epoch,
                leader_recovery_state=leader_recovery_state,
            ):
                return
            if change.state is IsrState.PENDING_EXPAND:
                self._counts.expands += 1
            else:
                self._counts.shrinks += 1
            self._advance()
        self._on_moved()

    def refuse(self, change: IsrChange, error_code: int) -> bool:
        """Handle an error. Return whether to send the change again."""
        with self._lock:
            self._counts.failed += 1
            return not self._over and self._reign.refuse(change, error_code) is AlterOutcome.RETRY
