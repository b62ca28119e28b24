"""One partition as clients see it. Combines the local log and the remote tier.

Offsets of a partition, from old to new:

    log start offset <= local log start offset <= last stable offset <= high watermark <= log end offset

Records below the local log start offset are only in the remote tier. With a single replica the high watermark follows
the log end offset at once; with several, their leader moves it (`engine.replication`) and notifies listeners.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from stratalog.engine.metrics import TopicTraffic
from stratalog.engine.replication import LedReplicas, ReplicaRole, Role
from stratalog.errors import (
    FencedLeaderEpochError,
    KafkaStorageError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    UnknownLeaderEpochError,
)
from stratalog.log import PartitionLog
from stratalog.log.format import AppendInfo, FetchData, FoundOffset, Isolation, TimestampOffset
from stratalog.log.producers import AppendOrigin, VerificationGuard
from stratalog.remote.api import TopicIdPartition

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from stratalog.engine.replica_changes import AssignedReplicas
    from stratalog.engine.replication import ReplicationServices
    from stratalog.log.append import CheckedRecords
    from stratalog.log.index import AbortedTransaction
    from stratalog.remote.tier import RemoteLogManager


@dataclass(frozen=True, slots=True)
class RemoteFetchData:
    """Records from the remote tier: whole checked batches, and the offsets at the time."""

    records: bytes
    aborted: list[AbortedTransaction] | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


#: Roles in which consumers may read from a replica.
_FOLLOWING: Final = frozenset({Role.FOLLOWER, Role.LEADERLESS})

#: The leader epoch of a client without one.
NO_EPOCH: Final = -1


class Partition:
    """A partition. Thread-safe: the log serialises appends, and listeners run on the appending thread."""

    def __init__(self, log: PartitionLog, topic_id: UUID, traffic: TopicTraffic | None = None) -> None:
        """`traffic` counts for the partition's topic; without it nothing is counted."""
        self.log = log
        self.traffic = traffic or TopicTraffic()
        self.topic = log.topic
        self.partition = log.partition
        self.topic_id = topic_id
        self.remote: RemoteLogManager | None = None
        #: Why the partition is out of service, after a failure of its log directory.
        self.failure: KafkaStorageError | None = None
        self._leader_epoch = -1
        self._listeners: list[Callable[[Partition], None]] = []
        self._listeners_lock = threading.Lock()
        #: Whether this broker leads it and others hold replicas.
        self.replicated = False
        #: The latest assignment in the cluster's metadata; None without a cluster.
        self.assigned: AssignedReplicas | None = None
        self.role = ReplicaRole()
        self.led: LedReplicas | None = None
        self._role_lock = threading.RLock()
        #: Held while another log replaces `log`.
        self.moving = threading.Lock()

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return TopicIdPartition(self.topic_id, self.topic, self.partition)

    # --- leadership -------------------------------------------------------------------------------------------------

    @property
    def leader_epoch(self) -> int:
        """The epoch in which this broker leads the partition, or -1."""
        return self._leader_epoch

    def become_leader(self, epoch: int) -> None:
        """Lead from now on. The first record of this epoch will be at the log end offset."""
        self.log.leader_epochs.assign(epoch, self.log.log_end_offset)
        self.log.advance_high_watermark()
        self._leader_epoch = epoch

    def resign(self) -> None:
        """Stop leading: refuse appends, and wake waiting requests."""
        self._leader_epoch = -1
        self._stop_leading()
        self._notify()

    @property
    def read_epoch(self) -> int:
        """The epoch in which consumers may read here, from the leader or (KIP-392) a follower; else -1."""
        if self._leader_epoch >= 0:
            return self._leader_epoch
        role = self.role
        return role.leader_epoch if role.role in _FOLLOWING else -1

    @property
    def leader(self) -> tuple[int, int]:
        """The leading broker and its epoch in the cluster's metadata, or (-1, -1)."""
        return (-1, -1) if self.role.role is Role.NONE else (self.role.leader, self.role.leader_epoch)

    def take_assignment(self, assigned: AssignedReplicas, services: ReplicationServices) -> Role | None:
        """Lead, follow or stop, as the cluster's metadata require. Return the role, or None if nothing changed.

        Writes the start of an epoch to the leader epoch file before its first record. Appends of earlier epochs have
        finished when this returns.
        """
        with self._role_lock:
            role = self.role.after(assigned, services.cluster.node_id)
            if role is None:
                return None
            before, self.role, self.assigned = self.role, role, assigned
            if role.role is Role.LEADER:
                self._lead(
                    assigned, services, is_new=(before.role, before.leader_epoch) != (role.role, role.leader_epoch)
                )
            else:
                self._leader_epoch = -1
                self._stop_leading()
                self.log.wait_for_replicas(waits=True)
                self.log.refuse_epochs_before(role.leader_epoch + 1)
        self._notify()
        return role.role

    def _lead(self, assigned: AssignedReplicas, services: ReplicationServices, *, is_new: bool) -> None:
        log, epoch = self.log, assigned.leader_epoch
        if is_new:
            self._stop_leading()
            log.refuse_epochs_before(epoch)
            log.leader_epochs.assign(epoch, log.log_end_offset)
        is_alone = len(assigned.replicas) == 1
        log.wait_for_replicas(waits=not is_alone)
        if is_alone:
            self._stop_leading()
        elif self.led is None:
            self.led = LedReplicas(log, self.topic_id_partition, assigned, services, on_moved=self._notify)
        else:
            self.led.update(assigned)
        self.replicated = not is_alone
        self._leader_epoch = epoch
        if self.led is None:
            log.advance_high_watermark()
        else:
            self.led.advance()

    def _stop_leading(self) -> None:
        led, self.led, self.replicated = self.led, None, False
        if led is not None:
            led.end()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the role within the block. A follower appends and truncates nothing during that time."""
        with self._role_lock:
            yield

    def continue_in(self, log: PartitionLog) -> None:
        """Serve from a log that succeeds the fenced one of the same records. Call it while `held`."""
        led = self.led
        if led is None:
            log.succeed(self.log)
        else:
            led.continue_in(log)
        self.log = log

    def check_min_isr(self) -> None:
        """Raise NotEnoughReplicasError if an append with acks=all could not be confirmed now."""
        led = self.led
        if led is not None:
            led.check_min_isr()

    def is_confirmed(self, last_offset: int, leader_epoch: int) -> bool:
        """Return whether every in-sync replica has the records up to `last_offset` from `leader_epoch`.

        NotLeaderOrFollowerError when that epoch is over; NotEnoughReplicasAfterAppendError when too few replicas are
        now in sync.
        """
        led = self.led
        if self._leader_epoch != leader_epoch:
            raise self._not_led()
        confirmed = self.log.high_watermark > last_offset if led is None else led.is_confirmed(last_offset)
        # Checked again: once the epoch is over, the high watermark may count another leader's records.
        if self._leader_epoch != leader_epoch:
            raise self._not_led()
        return confirmed

    def is_behind_its_epoch(self, isolation: Isolation) -> bool:
        """Return whether readers lack records of earlier leaders that are not yet confirmed to this one.

        Clients of earlier leaders may have seen more.
        """
        led = self.led
        return led is not None and self.latest_offset(isolation) < led.epoch_start

    def check_replica(self, replica_id: int) -> None:
        """Raise NotLeaderOrFollowerError for a broker without a replica."""
        led = self.led
        if led is None and self._leader_epoch < 0:
            raise self._not_led()
        if led is None or not led.has_replica(replica_id):
            raise NotLeaderOrFollowerError(f"broker {replica_id} is not a replica of {self.topic}-{self.partition}")

    def note_fetch(self, replica_id: int, broker_epoch: int, offset: int, log_start_offset: int) -> None:
        """Record a follower's fetch from `offset`, before the read that answers it.

        NotLeaderOrFollowerError for a broker without a replica, or an earlier process of one that has it.
        """
        led = self.led
        if led is None:
            if self._leader_epoch < 0:
                raise self._not_led()
            raise NotLeaderOrFollowerError(f"broker {replica_id} is not a replica of {self.topic}-{self.partition}")
        led.note_fetch(replica_id, broker_epoch, offset, log_start_offset)

    def low_watermark(self) -> int:
        """Return the lowest log start offset of all live replicas."""
        led = self.led
        return self.log.log_start_offset if led is None else led.low_watermark()

    # --- following ----------------------------------------------------------------------------------------------------

    @contextmanager
    def while_following(self, leader_epoch: int) -> Iterator[bool]:
        """Yield whether the partition follows in this epoch. The role cannot change within the block."""
        with self._role_lock:
            role = self.role
            yield self.failure is None and role.role is Role.FOLLOWER and role.leader_epoch == leader_epoch

    def append_as_follower(
        self, records: Buffer, *, leader_epoch: int, offset: int, high_watermark: int, log_start_offset: int
    ) -> bool:
        """Append the leader's response to a fetch from `offset`. Return False if it is outdated.

        Also updates high watermark and log start. Errors of `PartitionLog.append_as_follower`.
        """
        with self.while_following(leader_epoch) as follows:
            log = self.log
            if not follows or log.log_end_offset != offset:
                return False
            if size := len(memoryview(records)):
                log.append_as_follower(records, leader_epoch=leader_epoch)
                self.traffic.replication_bytes_in += size
                if self.role.is_added:
                    self.traffic.reassignment_bytes_in += size
            high_watermark = min(high_watermark, log.log_end_offset)
            if high_watermark != log.high_watermark:
                log.update_high_watermark(high_watermark)
            if log.log_start_offset < log_start_offset <= log.high_watermark:
                log.increment_log_start_offset(log_start_offset, "the leader's log begins there")
        if self._listeners:
            self._notify()
        return True

    def fail(self, error: KafkaStorageError) -> None:
        """Stop serving because the log directory failed, and raise `error` from now on. Keeps the files."""
        self.failure = error
        with self._role_lock:
            self.role = self.role.ended(Role.OFFLINE)
        self.resign()
        self.log.abandon(error)

    def retire(self) -> None:
        """End the role for good, because the replica is deleted. Pending fetch responses are ignored."""
        with self._role_lock:
            self.role = self.role.ended(Role.REMOVED)

    def _not_led(self) -> KafkaStorageError | NotLeaderOrFollowerError:
        if self.failure is not None:
            return self.failure
        return NotLeaderOrFollowerError(f"{self.topic}-{self.partition} is not led by this broker")

    def check_epoch(self, client_epoch: int, *, of_leader: bool = True) -> None:
        """Raise unless a client's leader epoch (NO_EPOCH: unknown) is the current one.

        Also unless this broker leads, or follows if that suffices (not `of_leader`).
        """
        epoch = self._leader_epoch if of_leader else self.read_epoch
        if epoch < 0:
            raise self._not_led()
        if client_epoch in (NO_EPOCH, epoch):
            return
        error = FencedLeaderEpochError if client_epoch < epoch else UnknownLeaderEpochError
        raise error(f"{self.topic}-{self.partition}: leader epoch {client_epoch} was requested, {epoch} is current")

    # --- writing ----------------------------------------------------------------------------------------------------

    def append(
        self,
        records: Buffer | CheckedRecords,
        *,
        origin: AppendOrigin = "client",
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
        leader_epoch: int | None = None,
    ) -> AppendInfo:
        """Append whole batches as leader and move the high watermark. Raises the errors of the log.

        `guard` is that of a successful verification (`PartitionLog.start_verification`); `transaction_version` is that
        of the producer whose transaction a marker ends. With `leader_epoch` nothing is appended in another one.
        """
        epoch = self._leader_epoch
        if epoch < 0 or leader_epoch not in (None, epoch):
            raise self._not_led()
        log = self.log
        traffic = self.traffic
        traffic.produce_requests += 1
        try:
            info = log.append_as_leader(
                records, leader_epoch=epoch, origin=origin, guard=guard, transaction_version=transaction_version
            )
        except NotLeaderOrFollowerError:
            if not self._is_moving(log):
                raise
            log = self.log
            info = log.append_as_leader(
                records, leader_epoch=epoch, origin=origin, guard=guard, transaction_version=transaction_version
            )
        led = self.led
        if led is None:
            log.advance_high_watermark()
        else:
            led.advance()
        if not info.duplicate:
            traffic.bytes_in += info.size
            traffic.messages_in += info.last_offset - info.first_offset + 1
        if self._listeners:
            self._notify()
        return info

    def append_group(self, group: Sequence[memoryview]) -> list[AppendInfo] | None:
        """Append the batches of several requests at once. None: nothing was done, `append` them one by one."""
        epoch = self._leader_epoch
        if epoch < 0:
            return None
        log = self.log
        try:
            infos = log.append_group_as_leader(group, leader_epoch=epoch)
        except NotLeaderOrFollowerError:
            if not self._is_moving(log):
                raise
            return None
        if infos is not None:
            led = self.led
            if led is None:
                log.advance_high_watermark()
            else:
                led.advance()
            traffic = self.traffic
            traffic.produce_requests += len(infos)
            traffic.bytes_in += sum(map(len, group))
            traffic.messages_in += infos[-1].last_offset - infos[0].first_offset + 1
            if self._listeners:
                self._notify()
        return infos

    def _is_moving(self, log: PartitionLog) -> bool:
        """Return whether another log replaces this one. If so, wait until it has."""
        if not log.is_fenced and self.log is log:
            return False
        with self.moving:
            return True

    def add_listener(self, listener: Callable[[Partition], None]) -> None:
        """Call `listener` after each move of the high watermark, on the thread that moved it."""
        with self._listeners_lock:
            self._listeners = [*self._listeners, listener]

    def remove_listener(self, listener: Callable[[Partition], None]) -> None:
        """Undo `add_listener`. Compares by equality: each access creates a new bound method."""
        with self._listeners_lock:
            self._listeners = [known for known in self._listeners if known != listener]

    def wake(self) -> None:
        """Wake all requests that wait for the partition."""
        self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener(self)

    # --- reading ----------------------------------------------------------------------------------------------------

    def is_remote(self, offset: int) -> bool:
        """Return whether `offset` must be read from the remote tier."""
        return self.remote is not None and self.log.log_start_offset <= offset < self.log.local_log_start_offset

    def is_remote_throttled(self) -> bool:
        """Return whether the quota of remote reads is used up, and count the delay. The client tries again later."""
        return self.remote is not None and self.remote.limits.fetch_quota.shed_ms() > 0

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        min_one_message: bool = True,
    ) -> FetchData:
        """Read from the local tier; check `is_remote` first. Raises OffsetOutOfRangeError."""
        return self.log.read(offset, max_bytes, isolation=isolation, min_one_message=min_one_message)

    def read_remote(
        self,
        offset: int,
        max_bytes: int,
        *,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        min_one_message: bool = True,
    ) -> RemoteFetchData:
        """Read from the remote tier. Blocks on the object store.

        Raises OffsetOutOfRangeError when no finished remote segment holds the offset, and RemoteStorageError.
        """
        if self.remote is None:
            raise OffsetOutOfRangeError(
                f"{self.topic}-{self.partition}: offset {offset} is below the local log and there is no remote tier"
            )
        result = self.remote.read(
            self.topic_id_partition,
            offset,
            max_bytes,
            min_one_message=min_one_message,
            read_committed=isolation is Isolation.TXN_COMMITTED,
        )
        return RemoteFetchData(
            records=result.records,
            aborted=result.aborted,
            high_watermark=self.log.high_watermark,
            last_stable_offset=self.log.last_stable_offset,
            log_start_offset=self.log.log_start_offset,
        )

    def offset_for_timestamp(self, timestamp_ms: int) -> FoundOffset | None:
        """Return the first record at or after a time in both tiers. May block on the object store."""
        found: TimestampOffset | None = None
        if self.remote is not None and self.log.log_start_offset < self.log.local_log_start_offset:
            found = self.remote.offset_for_timestamp(self.topic_id_partition, timestamp_ms, self.log.log_start_offset)
        if found is None:
            found = self.log.offset_for_timestamp(timestamp_ms)
        if found is None:
            return None
        epoch = self.log.leader_epochs.epoch_for_offset(found.offset)
        return FoundOffset(found.timestamp_ms, found.offset, -1 if epoch is None else epoch)

    def max_timestamp(self) -> FoundOffset | None:
        """Return the record with the largest timestamp of the local tier, which holds the newest data."""
        return self.log.max_timestamp()

    def latest_offset(self, isolation: Isolation) -> int:
        """Return the end of the records visible at this isolation level."""
        if isolation is Isolation.TXN_COMMITTED:
            return self.log.last_stable_offset
        return self.log.high_watermark if isolation is Isolation.HIGH_WATERMARK else self.log.log_end_offset


class OfflinePartition(Partition):
    """A partition whose log could not be opened.

    Every use of it, or of its `log`, raises the KafkaStorageError given.
    """

    def __init__(self, topic: str, partition: int, topic_id: UUID, error: KafkaStorageError) -> None:
        self._error = error
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.traffic = TopicTraffic()
        self.remote = None
        self.failure = error
        self._leader_epoch = -1
        self._listeners = []
        self._listeners_lock = threading.Lock()
        self.replicated = False
        self.assigned = None
        self.role = ReplicaRole(Role.OFFLINE)
        self.led = None
        self._role_lock = threading.RLock()
        self.moving = threading.Lock()

    @property
    def log(self) -> PartitionLog:  # type: ignore[override]
        raise self._error

    def is_remote(self, offset: int) -> bool:  # noqa: ARG002
        return False
