"""A cluster of replicas in one thread, by seed: the real state machines, a model controller, and what can go wrong.

Messages are lost, doubled, late and out of order; processes stop, are stopped (and fenced), killed with the tail of
their logs lost, lose a directory; metadata reaches each broker when it likes. After every step the invariants hold
that `_check` and `FaultFound` name.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stratalog.engine.replication import AlterOutcome, IsrChange, Reign, ReplicaRole, Role, cut_at_divergence
from stratalog.errors import NotEnoughReplicasAfterAppendError, NotEnoughReplicasError, NotLeaderOrFollowerError
from tests.sim.model_controller import ModelController, ModelPartition

LAG_MAX_MS = 1_000
Entry = tuple[int, int]  # leader epoch, value


class FaultFound(AssertionError):
    """An invariant does not hold."""


@dataclass
class SimLog:
    """A log in memory: entries from offset 0 on, and the leader epoch cache."""

    entries: list[Entry] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=list)

    @property
    def end(self) -> int:
        return len(self.entries)

    @property
    def last_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1

    def assign(self, epoch: int) -> None:
        if epoch > self.last_epoch:
            while self.epochs and self.epochs[-1][1] >= self.end:
                self.epochs.pop()
            self.epochs.append((epoch, self.end))

    def append(self, entry: Entry) -> None:
        self.assign(entry[0])
        self.entries.append(entry)

    def truncate(self, offset: int) -> None:
        del self.entries[offset:]
        while self.epochs and self.epochs[-1][1] >= offset:
            self.epochs.pop()

    def end_of_epoch(self, epoch: int, log_end: int) -> tuple[int, int]:
        if epoch < 0 or not self.epochs:
            return -1, -1
        if epoch == self.last_epoch:
            return epoch, log_end
        place = bisect_right(self.epochs, epoch, key=lambda known: known[0])
        if place == len(self.epochs):
            return -1, -1
        if not place:
            return epoch, self.epochs[0][1]
        return self.epochs[place - 1][0], self.epochs[place][1]


@dataclass
class Replica:
    log: SimLog = field(default_factory=SimLog)
    role: ReplicaRole = field(default_factory=ReplicaRole)
    high_watermark: int = 0
    reign: Reign | None = None
    asked: int | None = None  # the number of the fetch in flight; one connection answers in order
    awaits_metadata: IsrChange | None = None
    waiting: list[int] = field(default_factory=list)


class Broker:
    def __init__(self, node_id: int, partitions: int) -> None:
        self.id = node_id
        self.is_up = False
        self.is_stopped = False
        self.was_clean = True
        self.epoch = -1
        self.replicas = [Replica() for _ in range(partitions)]
        self.read = 0
        self.isr_epochs: dict[int, int | None] = {}

    def isr_epoch(self, broker: int) -> int | None:
        return self.isr_epochs.get(broker)


class World:
    """One run. `run(steps)` raises FaultFound."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        brokers = range(3)
        self.partitions = self.random.choice((1, 1, 2))
        self.min_isr = self.random.choice((1, 2, 2, 2, 3))
        self.controller = ModelController(brokers, self.partitions, self.min_isr)
        self.brokers = [Broker(each, self.partitions) for each in brokers]
        self.net: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.now_ms = 0
        self.value = 0
        self.fetches = 0
        self.confirmed = 0
        self.elections = 0
        #: What readers may have seen: every later leader has it.
        self.visible: list[list[Entry]] = [[] for _ in range(self.partitions)]
        self.leaders: dict[tuple[int, int], int] = {}
        self.trust = self.random.random()
        self.late: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        #: Changes that their leaders have undone. Kafka's protocol takes it that no copy of the request is then on its
        #: way: neither the partition's epoch nor the broker's has changed, so a controller would carry it out.
        self.undone: list[IsrChange] = []
        #: By partition, leader epoch and offset: the record there and the one before it, the same in every log.
        self.written: dict[tuple[int, int, int], tuple[Entry, Entry | None]] = {}
        for broker in self.brokers:
            self._start(broker, epoch=self.controller.epochs[broker.id])

    # --- the loop -----------------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        faults = self.random.choice((0.3, 0.6, 1, 1.5))
        actions = [
            (self._deliver, 45),
            (self._fetch, 22),
            (self._metadata, 14),
            (self._produce, 8),
            (self._leader_tick, 5),
            (self._deliver_late, faults),
            (self._fence_or_unfence, 2.0),
            (self._stop_or_go, faults),
            (self._elect, faults),
            (self._kill_or_start, 1.5 * faults),
            (self._lose_directory, 0.3 * faults if self.trust > 0.5 else 0),
        ]
        names, weights = [name for name, _ in actions], [weight for _, weight in actions]
        for action in self.random.choices(names, weights, k=steps):
            self.now_ms += self.random.randrange(60)
            action()

    def _up(self) -> Broker | None:
        broker = self.random.choice(self.brokers)
        return broker if broker.is_up and not broker.is_stopped else None

    def _send(self, handler: Callable[..., None], *arguments: Any) -> None:
        luck = self.random.random()
        if luck < 0.04:
            self.late.append((handler, arguments))
        if luck > 0.07:
            self.net.append((handler, arguments))
        if luck > 0.95:
            self.net.append((handler, arguments))

    def _deliver(self) -> None:
        if self.net:
            place = self.random.randrange(min(len(self.net), 6))
            handler, arguments = self.net.pop(place)
            handler(*arguments)

    def _deliver_late(self) -> None:
        if self.late:
            handler, arguments = self.late.pop(self.random.randrange(len(self.late)))
            handler(*arguments)

    # --- processes ----------------------------------------------------------------------------------------------------

    def _start(self, broker: Broker, epoch: int | None = None) -> None:
        broker.is_up, broker.is_stopped = True, False
        broker.epoch = self.controller.register(broker.id, clean=broker.was_clean) if epoch is None else epoch
        broker.was_clean = False
        for replica in broker.replicas:
            replica.role, replica.reign, replica.asked, replica.waiting = ReplicaRole(), None, None, []
        broker.read = len(self.controller.log)
        broker.isr_epochs = {each.id: self.controller.isr_epoch(each.id) for each in self.brokers}
        for index, assigned in enumerate(self.controller.partitions):
            self._assigned(broker, index, assigned)

    def _kill_or_start(self) -> None:
        broker = self.random.choice(self.brokers)
        if not broker.is_up:
            return self._start(broker)
        if self.random.random() < 0.5:
            return None
        broker.is_up = False
        # The end is not clean after a directory was lost: the one in its place lacks the file that says so.
        has_all = all(replica.role.role is not Role.OFFLINE for replica in broker.replicas)
        broker.was_clean = self.random.random() < 0.6 and has_all
        for replica in broker.replicas:
            replica.reign = None
            if broker.was_clean:
                continue
            kept = self.random.randint(0, replica.log.end) if self.random.random() < 0.8 else 0
            replica.log.truncate(kept)
            replica.high_watermark = self.random.randint(0, min(kept, replica.high_watermark))
        return None

    def _stop_or_go(self) -> None:
        broker = self.random.choice(self.brokers)
        broker.is_stopped = broker.is_up and not broker.is_stopped

    def _fence_or_unfence(self) -> None:
        broker = self.random.choice(self.brokers)
        if broker.id not in self.controller.fenced:
            if not broker.is_up or broker.is_stopped or self.random.random() < 0.15:
                self.controller.fence(broker.id)
        elif broker.is_up and not broker.is_stopped:
            self.controller.unfence(broker.id)

    def _elect(self) -> None:
        self.controller.elect(self.random.randrange(self.partitions), self.random.choice(self.brokers).id)

    def _lose_directory(self) -> None:
        broker = self._up()
        if broker is None:
            return
        index = self.random.randrange(self.partitions)
        replica = broker.replicas[index]
        replica.role, replica.reign = replica.role.ended(Role.OFFLINE), None
        replica.log, replica.high_watermark = SimLog(), 0
        self._send(self._directory_lost, index, broker, broker.epoch)

    def _directory_lost(self, index: int, broker: Broker, epoch: int) -> None:
        if self.controller.epochs[broker.id] == epoch:
            self.controller.leave(index, broker.id, is_lost=True)

    # --- metadata -----------------------------------------------------------------------------------------------------

    def _metadata(self) -> None:
        broker = self._up()
        if broker is None or broker.read >= len(self.controller.log):
            return
        kind, number, what = self.controller.log[broker.read]
        broker.read += 1
        if kind == "broker":
            broker.isr_epochs[number] = what  # type: ignore[assignment]
        else:
            assert isinstance(what, ModelPartition)
            self._assigned(broker, number, what)

    def _assigned(self, broker: Broker, index: int, assigned: ModelPartition) -> None:
        replica = broker.replicas[index]
        role = replica.role.after(assigned, broker.id)
        if role is None:
            return
        is_new_epoch = assigned.leader_epoch > replica.role.leader_epoch
        replica.role = role
        if role.role is not Role.LEADER:
            replica.reign, replica.waiting = None, []
            return
        if is_new_epoch or replica.reign is None:
            self._lead(broker, index, replica, assigned)
        else:
            replica.reign.update(assigned)
        self._move_high_watermark(broker, index)

    def _lead(self, broker: Broker, index: int, replica: Replica, assigned: ModelPartition) -> None:
        self.elections += 1
        log = replica.log
        first = self.leaders.setdefault((index, assigned.leader_epoch), broker.id)
        if first != broker.id:
            raise FaultFound(f"{first} and {broker.id} lead {index} in epoch {assigned.leader_epoch}")
        if assigned == self.controller.partitions[index]:
            seen = self.visible[index]
            if log.entries[: len(seen)] != seen:
                raise FaultFound(f"leader {broker.id} of {index} in epoch {assigned.leader_epoch} lacks what was seen")
        log.assign(assigned.leader_epoch)
        replica.reign = Reign(broker.id, assigned, epoch_start=log.end, now_ms=self.now_ms)
        replica.waiting, replica.awaits_metadata = [], None

    # --- leading ------------------------------------------------------------------------------------------------------

    def _produce(self) -> None:
        broker = self._up()
        if broker is None:
            return
        index = self.random.randrange(self.partitions)
        replica = broker.replicas[index]
        reign = replica.reign
        if reign is None:
            return
        wants_all = self.random.random() < 0.7
        if wants_all:
            try:
                reign.check_min_isr(self.min_isr)
            except NotEnoughReplicasError:
                return
        self.value += 1
        self._append(index, replica.log, (reign.leader_epoch, self.value))
        if wants_all:
            replica.waiting.append(replica.log.end - 1)
        self._move_high_watermark(broker, index)

    def _append(self, index: int, log: SimLog, entry: Entry) -> None:
        before = log.entries[-1] if log.entries else None
        if before is not None and before[0] > entry[0]:
            raise FaultFound(f"an epoch that goes back in a log of {index}")
        if self.written.setdefault((index, entry[0], log.end), (entry, before)) != (entry, before):
            raise FaultFound(f"logs of {index} differ below the same epoch and offset")
        log.append(entry)

    def _move_high_watermark(self, broker: Broker, index: int) -> None:
        replica = broker.replicas[index]
        reign = replica.reign
        assert reign is not None
        before = replica.high_watermark
        target = reign.high_watermark(
            replica.log.end,
            min_isr=self.min_isr,
            now_ms=self.now_ms,
            lag_max_ms=LAG_MAX_MS,
            isr_epoch=broker.isr_epoch,
        )
        if target is None or target <= before:
            return
        if target > replica.log.end:
            raise FaultFound("a high watermark behind the log end")
        for member in reign.maximal_isr - {broker.id}:
            if member in reign.followers and reign.followers[member].log_end_offset < target:
                raise FaultFound("a high watermark behind the end of an in-sync replica")
        if len(reign.isr) < min(self.min_isr, len(reign.replicas)):
            raise FaultFound("a high watermark that moved under min.insync.replicas")
        replica.high_watermark = target
        seen, entries = self.visible[index], replica.log.entries
        if entries[before : min(target, len(seen))] != seen[before : min(target, len(seen))]:
            raise FaultFound(f"{broker.id} shows other records of {index} than were seen")
        seen += entries[len(seen) : target]
        still = []
        for offset in replica.waiting:
            try:
                if reign.is_confirmed(offset, target, self.min_isr):
                    self.confirmed += 1
                else:
                    still.append(offset)
            except NotEnoughReplicasAfterAppendError:
                pass
        replica.waiting = still

    def _leader_tick(self) -> None:
        broker = self._up()
        if broker is None:
            return
        for index, replica in enumerate(broker.replicas):
            reign = replica.reign
            if reign is None:
                continue
            reign.propose_shrink(replica.log.end, now_ms=self.now_ms, lag_max_ms=LAG_MAX_MS, broker_epoch=broker.epoch)
            self._send_change(broker, index)

    def _send_change(self, broker: Broker, index: int) -> None:
        replica = broker.replicas[index]
        reign = replica.reign
        if reign is None or reign.pending is None or reign.pending is replica.awaits_metadata:
            return
        self._send(self._alter, index, broker, broker.epoch, reign.pending)

    def _alter(self, index: int, broker: Broker, broker_epoch: int, change: IsrChange) -> None:
        if any(change is each for each in self.undone):
            return
        controller = self.controller
        code, partition = controller.alter(
            index, broker.id, broker_epoch, change.leader_epoch, change.partition_epoch, change.isr
        )
        if partition is not None:
            self._check_in_sync(index, partition)
        self._send(self._altered, index, broker, broker_epoch, change, code, partition)

    def _check_in_sync(self, index: int, partition: ModelPartition) -> None:
        """Every eligible replica has what readers have seen, if its process is the one that is registered."""
        seen = self.visible[index]
        for member in partition.isr + partition.elr:
            broker = self.brokers[member]
            replica = broker.replicas[index]
            if (
                broker.is_up
                and broker.epoch == self.controller.epochs[member]
                and replica.role.role is not Role.OFFLINE
                and replica.log.entries[: len(seen)] != seen
            ):
                raise FaultFound(f"{member} is in sync for {index} and lacks what was seen")

    def _altered(
        self,
        index: int,
        broker: Broker,
        broker_epoch: int,
        change: IsrChange,
        code: int,
        partition: ModelPartition | None,
    ) -> None:
        replica = broker.replicas[index]
        reign = replica.reign
        if not broker.is_up or broker.is_stopped or broker.epoch != broker_epoch or reign is None:
            return
        if partition is None:
            outcome = reign.refuse(change, code)
            if outcome is AlterOutcome.AWAITS_METADATA:
                replica.awaits_metadata = change
            elif outcome is AlterOutcome.UNDONE:
                self.undone.append(change)
            return
        reign.accept(
            change,
            partition.isr,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            leader_recovery_state=partition.leader_recovery_state,
        )
        self._move_high_watermark(broker, index)

    # --- following ----------------------------------------------------------------------------------------------------

    def _fetch(self) -> None:
        broker = self._up()
        if broker is None:
            return
        for index, replica in enumerate(broker.replicas):
            if replica.role.role is not Role.FOLLOWER:
                continue
            log = replica.log
            self.fetches += 1
            replica.asked = self.fetches
            self._send(
                self._serve,
                index,
                self.brokers[replica.role.leader],
                broker,
                broker.epoch,
                self.fetches,
                replica.role.leader_epoch,
                log.end,
                log.last_epoch,
            )

    def _serve(
        self,
        index: int,
        leader: Broker,
        follower: Broker,
        epoch: int,
        number: int,
        leader_epoch: int,
        offset: int,
        last_epoch: int,
    ) -> None:
        replica = leader.replicas[index]
        reign = replica.reign
        if not leader.is_up or leader.is_stopped or reign is None or reign.leader_epoch != leader_epoch:
            return
        log = replica.log
        if last_epoch >= 0:
            known, end = log.end_of_epoch(last_epoch, log.end)
            if known < 0 or known < last_epoch or end < offset:
                answer = (known, end) if known >= 0 else (-1, log.end)
                self._send(self._answered, index, follower, epoch, number, leader_epoch, offset, answer, [], 0)
                return
        if offset > log.end:
            self._send(self._answered, index, follower, epoch, number, leader_epoch, offset, (-1, log.end), [], 0)
            return
        try:
            reign.note_fetch(
                follower.id,
                broker_epoch=epoch,
                offset=offset,
                log_start_offset=0,
                leader_end=log.end,
                now_ms=self.now_ms,
                registered_epoch=leader.isr_epoch(follower.id),
            )
        except NotLeaderOrFollowerError:
            return
        change = reign.propose_expansion(
            follower.id,
            high_watermark=replica.high_watermark,
            broker_epoch=leader.epoch,
            isr_epoch=leader.isr_epoch,
        )
        if change is not None:
            self._send_change(leader, index)
        self._move_high_watermark(leader, index)
        records = log.entries[offset : offset + self.random.randint(1, 4)]
        self._send(
            self._answered, index, follower, epoch, number, leader_epoch, offset, None, records, replica.high_watermark
        )

    def _answered(
        self,
        index: int,
        broker: Broker,
        epoch: int,
        number: int,
        leader_epoch: int,
        offset: int,
        diverging: tuple[int, int] | None,
        records: list[Entry],
        high_watermark: int,
    ) -> None:
        replica = broker.replicas[index]
        log = replica.log
        if not broker.is_up or broker.is_stopped or broker.epoch != epoch:
            return
        if replica.role.role is not Role.FOLLOWER or replica.asked != number or log.end != offset:
            return
        if replica.role.leader_epoch != leader_epoch:
            return
        replica.asked = None
        if diverging is not None:
            cut = cut_at_divergence(
                *diverging, log_end=log.end, high_watermark=replica.high_watermark, end_of_epoch=log.end_of_epoch
            )
            log.truncate(cut)
            replica.high_watermark = min(replica.high_watermark, log.end)
            return
        for entry in records:
            if entry[0] > leader_epoch:
                break
            self._append(index, log, entry)
        replica.high_watermark = min(high_watermark, log.end)
