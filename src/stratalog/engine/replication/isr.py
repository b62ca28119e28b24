"""In-sync replicas of a partition during one leader epoch, as its leader sees them. Pure: no clock, no I/O.

    COMMITTED --propose_expansion--> PENDING_EXPAND --+
        ^     --propose_shrink-----> PENDING_SHRINK --+--> COMMITTED (the controller's response, or newer metadata)

One change is pending at a time. Until it is decided, the maximal ISR counts: a replica that may already be in sync
holds back the high watermark, and so does one that may already be out of sync.

Source: `Partition`, `PartitionState` and `Replica` of Kafka 4.4; KIP-497, KIP-903, KAFKA-15583.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from stratalog.errors import NotEnoughReplicasAfterAppendError, NotEnoughReplicasError, NotLeaderOrFollowerError

if TYPE_CHECKING:
    from stratalog.engine.replica_changes import AssignedReplicas

UNKNOWN_OFFSET: Final = -1
UNKNOWN_BROKER_EPOCH: Final = -1

#: The epoch of a broker that may be in an ISR, else None.
IsrEpoch = Callable[[int], int | None]


class IsrState(Enum):
    COMMITTED = auto()
    PENDING_EXPAND = auto()
    PENDING_SHRINK = auto()


class AlterOutcome(Enum):
    """A leader's reaction to a change that the controller refused."""

    #: Undo it: the committed ISR counts again.
    UNDONE = auto()
    #: Newer metadata are coming; until then the change counts as pending.
    AWAITS_METADATA = auto()
    #: Send it again.
    RETRY = auto()


_UNDOING: Final = frozenset({55, 107})  # OPERATION_NOT_ATTEMPTED, INELIGIBLE_REPLICA
#: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST, FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, UNKNOWN_TOPIC_ID,
#: NEW_LEADER_ELECTED
_AWAITING_METADATA: Final = frozenset({3, 42, 74, 95, 100, 108})
_NEVER_MS: Final = -(1 << 62)


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChange:
    """A change to request from the controller. `isr` has each broker with the epoch of its last fetch."""

    state: IsrState
    isr: tuple[tuple[int, int], ...]
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: int

    @property
    def brokers(self) -> frozenset[int]:
        return frozenset(broker for broker, _ in self.isr)


@dataclass(slots=True)
class FollowerProgress:
    """How far a follower is, from its fetches. Times are monotonic milliseconds."""

    log_start_offset: int = UNKNOWN_OFFSET
    log_end_offset: int = UNKNOWN_OFFSET
    broker_epoch: int = UNKNOWN_BROKER_EPOCH
    #: The leader's end and the time at the last fetch: a later fetch from there had caught up then.
    leader_end_offset: int = UNKNOWN_OFFSET
    fetched_ms: int = 0
    caught_up_ms: int = _NEVER_MS

    def note_fetch(self, offset: int, log_start_offset: int, broker_epoch: int, leader_end: int, now_ms: int) -> None:
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.log_start_offset = log_start_offset
        self.log_end_offset = offset
        self.broker_epoch = broker_epoch
        self.leader_end_offset = max(leader_end, self.leader_end_offset)
        self.fetched_ms = now_ms

    def is_caught_up(self, leader_end: int, now_ms: int, lag_max_ms: int) -> bool:
        return self.log_end_offset == leader_end or now_ms - self.caught_up_ms <= lag_max_ms


class Reign:
    """A leader's knowledge of a partition's replicas in one leader epoch. Not thread-safe."""

    def __init__(self, node_id: int, assigned: AssignedReplicas, *, epoch_start: int, now_ms: int) -> None:
        """`epoch_start` is the leader's log end offset at the start of the epoch."""
        self.node_id = node_id
        self.leader_epoch = assigned.leader_epoch
        self.epoch_start = epoch_start
        self.pending: IsrChange | None = None
        self.followers: dict[int, FollowerProgress] = {}
        self._take(assigned)
        for broker, follower in self.followers.items():
            if broker in self.isr:
                follower.caught_up_ms = now_ms

    def _take(self, assigned: AssignedReplicas) -> None:
        self.replicas = assigned.replicas
        self.isr = frozenset(assigned.isr)
        self.partition_epoch = assigned.partition_epoch
        self.leader_recovery_state = assigned.leader_recovery_state
        self.followers = {
            broker: self.followers.get(broker) or FollowerProgress()
            for broker in assigned.replicas
            if broker != self.node_id
        }

    # --- in-sync replicas ---------------------------------------------------------------------------------------------

    @property
    def state(self) -> IsrState:
        return IsrState.COMMITTED if self.pending is None else self.pending.state

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Every broker that may be in sync, whatever the outcome of the pending change."""
        return self.isr if self.pending is None else self.isr | self.pending.brokers

    def min_isr(self, configured: int) -> int:
        """Return the effective min.insync.replicas: at most the number of replicas."""
        return min(configured, len(self.replicas))

    def check_min_isr(self, configured: int) -> None:
        """Raise NotEnoughReplicasError if an append with acks=all could not be confirmed now."""
        needed = self.min_isr(configured)
        if len(self.isr) < needed:
            raise NotEnoughReplicasError(f"{len(self.isr)} replicas are in sync, min.insync.replicas requires {needed}")

    def is_confirmed(self, last_offset: int, high_watermark: int, configured: int) -> bool:
        """Return whether every in-sync replica has `last_offset`. Raises NotEnoughReplicasAfterAppendError."""
        if high_watermark <= last_offset:
            return False
        needed = self.min_isr(configured)
        if len(self.maximal_isr) < needed:
            raise NotEnoughReplicasAfterAppendError(
                f"{len(self.maximal_isr)} replicas are in sync, min.insync.replicas requires {needed}"
            )
        return True

    def high_watermark(
        self,
        leader_end: int,
        *,
        min_isr: int,
        now_ms: int,
        lag_max_ms: int,
        isr_epoch: IsrEpoch,
    ) -> int | None:
        """Return the largest possible high watermark. None: it must not move, as too few replicas are in sync.

        The caller never moves it back. Replicas that have caught up and are about to join count as in sync.
        """
        if len(self.isr) < self.min_isr(min_isr):
            return None
        maximal = self.maximal_isr
        lowest = leader_end
        for broker, follower in self.followers.items():
            if follower.log_end_offset < lowest and (
                broker in maximal
                or (follower.is_caught_up(leader_end, now_ms, lag_max_ms) and self._is_eligible(broker, isr_epoch))
            ):
                lowest = follower.log_end_offset
        return lowest

    def low_watermark(self, log_start_offset: int, is_alive: Callable[[int], bool]) -> int:
        """Return the lowest log start offset of the live replicas."""
        starts = [follower.log_start_offset for broker, follower in self.followers.items() if is_alive(broker)]
        return min([log_start_offset, *starts])

    # --- followers ----------------------------------------------------------------------------------------------------

    def note_fetch(
        self,
        broker: int,
        *,
        broker_epoch: int,
        offset: int,
        log_start_offset: int,
        leader_end: int,
        now_ms: int,
        registered_epoch: int | None = None,
    ) -> None:
        """Record a follower's fetch from `offset`, which implies that it has everything below.

        NotLeaderOrFollowerError for a broker without a replica, or a process that is no longer the registered one.
        """
        follower = self.followers.get(broker)
        if follower is None:
            raise NotLeaderOrFollowerError(f"broker {broker} is not a replica")
        newest = max(follower.broker_epoch, -1 if registered_epoch is None else registered_epoch)
        if broker_epoch != UNKNOWN_BROKER_EPOCH and broker_epoch < newest:
            raise NotLeaderOrFollowerError(f"broker {broker} fetches with epoch {broker_epoch}, {newest} is known")
        follower.note_fetch(offset, log_start_offset, broker_epoch, leader_end, now_ms)

    def _is_eligible(self, broker: int, isr_epoch: IsrEpoch) -> bool:
        """Return whether the controller would accept the fetching process in the ISR (KIP-903)."""
        registered = isr_epoch(broker)
        fetching = self.followers[broker].broker_epoch
        return registered is not None and fetching in (UNKNOWN_BROKER_EPOCH, registered)

    def propose_expansion(
        self, broker: int, *, high_watermark: int, broker_epoch: int, isr_epoch: IsrEpoch
    ) -> IsrChange | None:
        """Propose to add a follower that has everything up to the high watermark and of earlier epochs.

        `broker_epoch` is the leader's own.
        """
        follower = self.followers.get(broker)
        if (
            self.pending is not None
            or follower is None
            or broker in self.isr
            or follower.log_end_offset < max(high_watermark, self.epoch_start)
            or not self._is_eligible(broker, isr_epoch)
        ):
            return None
        return self._propose(IsrState.PENDING_EXPAND, self.isr | {broker}, broker_epoch)

    def lagging(self, leader_end: int, *, now_ms: int, lag_max_ms: int) -> frozenset[int]:
        """Return the in-sync replicas that have not caught up for `lag_max_ms`."""
        return frozenset(
            broker
            for broker in self.isr
            if broker in self.followers and not self.followers[broker].is_caught_up(leader_end, now_ms, lag_max_ms)
        )

    def propose_shrink(self, leader_end: int, *, now_ms: int, lag_max_ms: int, broker_epoch: int) -> IsrChange | None:
        """Propose to remove lagging replicas. They count until the controller has done so."""
        if self.pending is not None:
            return None
        gone = self.lagging(leader_end, now_ms=now_ms, lag_max_ms=lag_max_ms)
        return self._propose(IsrState.PENDING_SHRINK, self.isr - gone, broker_epoch) if gone else None

    def _propose(self, state: IsrState, isr: Iterable[int], broker_epoch: int) -> IsrChange:
        self.pending = IsrChange(
            state=state,
            isr=tuple(
                (broker, broker_epoch if broker == self.node_id else self.followers[broker].broker_epoch)
                for broker in sorted(isr)
            ),
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            leader_recovery_state=self.leader_recovery_state,
        )
        return self.pending

    # --- the controller's decisions -----------------------------------------------------------------------------------

    def update(self, assigned: AssignedReplicas) -> bool:
        """Apply newer metadata of this epoch. Return whether they were newer. Ends a pending change."""
        if assigned.leader_epoch != self.leader_epoch or assigned.partition_epoch <= self.partition_epoch:
            return False
        self._take(assigned)
        self.pending = None
        return True

    def accept(
        self,
        change: IsrChange,
        isr: Iterable[int],
        *,
        leader_epoch: int,
        partition_epoch: int,
        leader_recovery_state: int,
    ) -> bool:
        """Apply the controller's response to a change, ahead of the metadata. Return whether it was new."""
        if leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return False
        if partition_epoch == self.partition_epoch and self.pending is not change:
            return False
        self.isr = frozenset(isr)
        self.partition_epoch = partition_epoch
        self.leader_recovery_state = leader_recovery_state
        self.pending = None
        return True

    def refuse(self, change: IsrChange, error_code: int) -> AlterOutcome:
        """Handle a change that the controller refused, or a request that failed."""
        if self.pending is not change:
            return AlterOutcome.UNDONE
        if error_code in _UNDOING:
            self.pending = None
            return AlterOutcome.UNDONE
        return AlterOutcome.AWAITS_METADATA if error_code in _AWAITING_METADATA else AlterOutcome.RETRY
