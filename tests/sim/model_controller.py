"""The controller of a simulated cluster: ISR, ELR and epochs as `PartitionChangeBuilder` of Kafka 4.4 moves them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

FENCED_LEADER_EPOCH = 74
STALE_BROKER_EPOCH = 77
INVALID_UPDATE_VERSION = 95
INELIGIBLE_REPLICA = 107
NOT_CONTROLLER = 41


@dataclass(frozen=True, slots=True)
class ModelPartition:
    """Satisfies `AssignedReplicas`."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    leader: int = -1
    leader_epoch: int = 0
    partition_epoch: int = 0
    leader_recovery_state: int = 0
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()

    def directory(self, broker: int) -> UUID:
        return UUID(int=broker + 100)


class ModelController:
    """Decides at once; what it decides is in `log`, which brokers read in order, each as late as it likes."""

    def __init__(self, brokers: range, partitions: int, min_isr: int) -> None:
        self.min_isr = min_isr
        self.epochs = {broker: broker for broker in brokers}
        self.fenced: set[int] = set()
        self.log: list[tuple[str, int, object]] = []
        self.next_epoch = 100
        replicas = tuple(brokers)
        self.partitions = [ModelPartition(replicas, replicas, leader=index) for index in range(partitions)]

    def isr_epoch(self, broker: int) -> int | None:
        return None if broker in self.fenced else self.epochs[broker]

    def _broker_changed(self, broker: int) -> None:
        self.log.append(("broker", broker, self.isr_epoch(broker)))

    def register(self, broker: int, *, clean: bool) -> int:
        """Give a new process its epoch; after an unclean stop, nothing that it had is trusted."""
        self.next_epoch += 1
        self.epochs[broker] = self.next_epoch
        self.fenced.add(broker)
        self._broker_changed(broker)
        for index in range(len(self.partitions)):
            self.leave(index, broker, is_lost=not clean)
        return self.next_epoch

    def fence(self, broker: int) -> None:
        self.fenced.add(broker)
        self._broker_changed(broker)
        for index in range(len(self.partitions)):
            self.leave(index, broker)

    def unfence(self, broker: int) -> None:
        self.fenced.discard(broker)
        self._broker_changed(broker)
        for index, known in enumerate(self.partitions):
            if known.leader < 0:
                self._change(index, known, known.isr)

    def leave(self, index: int, broker: int, *, is_lost: bool = False) -> None:
        known = self.partitions[index]
        if broker in known.isr or known.leader == broker or (is_lost and broker in known.elr):
            isr = tuple(each for each in known.isr if each != broker)
            self._change(index, known, isr, lost=broker if is_lost else None)

    def elect(self, index: int, broker: int) -> None:
        known = self.partitions[index]
        if broker in known.isr and broker not in self.fenced and known.leader != broker:
            self._change(index, known, known.isr, leader=broker)

    def _change(
        self,
        index: int,
        known: ModelPartition,
        isr: tuple[int, ...],
        *,
        leader: int | None = None,
        lost: int | None = None,
    ) -> None:
        elr: tuple[int, ...] = ()
        if len(isr) < min(self.min_isr, len(known.replicas)):
            elr = tuple(each for each in dict.fromkeys(known.elr + known.isr) if each not in isr and each != lost)
        if leader is None:
            leader = known.leader if known.leader in isr and known.leader not in self.fenced else -1
            if leader < 0:
                leader = next((each for each in isr if each not in self.fenced), -1)
            if leader < 0 and not isr:
                leader = next((each for each in elr if each not in self.fenced), -1)
                if leader >= 0:
                    isr, elr = (leader,), tuple(each for each in elr if each != leader)
        new = replace(
            known,
            isr=isr,
            elr=elr,
            leader=leader,
            leader_epoch=known.leader_epoch + (leader != known.leader),
            partition_epoch=known.partition_epoch + 1,
        )
        self.partitions[index] = new
        self.log.append(("partition", index, new))

    def alter(
        self,
        index: int,
        broker: int,
        broker_epoch: int,
        leader_epoch: int,
        partition_epoch: int,
        isr: tuple[tuple[int, int], ...],
    ) -> tuple[int, ModelPartition | None]:
        """Answer AlterPartition: an error, or the partition as it is then."""
        known = self.partitions[index]
        if broker_epoch != self.epochs[broker]:
            return STALE_BROKER_EPOCH, None
        if leader_epoch != known.leader_epoch or known.leader != broker:
            return (NOT_CONTROLLER if leader_epoch > known.leader_epoch else FENCED_LEADER_EPOCH), None
        if partition_epoch != known.partition_epoch:
            return (NOT_CONTROLLER if partition_epoch > known.partition_epoch else INVALID_UPDATE_VERSION), None
        for member, epoch in isr:
            if member in self.fenced or epoch not in (-1, self.epochs[member]):
                return INELIGIBLE_REPLICA, None
        self._change(index, known, tuple(member for member, _ in isr))
        return 0, self.partitions[index]
