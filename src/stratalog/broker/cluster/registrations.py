"""Registrations of a broker and of a partition in the cluster's metadata: immutable values, changed by records."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self
from uuid import UUID

from stratalog.errors import CorruptRecordError
from stratalog.wire.metadata_records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)

NO_LEADER: Final = -1
_LEADER_UNCHANGED: Final = -2
_RECOVERY_UNCHANGED: Final = -1

#: Reserved directory ids (KIP-858).
MIGRATING_DIRECTORY: Final = UUID(int=0)
UNASSIGNED_DIRECTORY: Final = UUID(int=1)
LOST_DIRECTORY: Final = UUID(int=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistration:
    """A broker as registered with the controller, alive or not."""

    id: int
    epoch: int
    incarnation_id: UUID
    listeners: tuple[BrokerEndpoint, ...]
    #: Lowest and highest supported level of each feature.
    features: Mapping[str, tuple[int, int]]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    is_migrating_zk_broker: bool
    #: Its live log directories, in order.
    directories: tuple[UUID, ...]
    #: Directories that take no new replicas; None if not reported.
    cordoned_directories: tuple[UUID, ...] | None

    @classmethod
    def of(cls, record: RegisterBrokerRecord) -> Self:
        return cls(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=known_id(record.incarnation_id),
            listeners=record.end_points,
            features={each.name: (each.min_supported_version, each.max_supported_version) for each in record.features},
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            is_migrating_zk_broker=record.is_migrating_zk_broker,
            directories=_in_order(record.log_dirs),
            cordoned_directories=None if record.cordoned_log_dirs is None else _in_order(record.cordoned_log_dirs),
        )

    def with_change(self, change: BrokerRegistrationChangeRecord) -> Self:
        return dataclasses.replace(
            self,
            fenced={-1: False, 0: self.fenced, 1: True}[change.fenced],
            in_controlled_shutdown=self.in_controlled_shutdown or change.in_controlled_shutdown == 1,
            directories=_in_order(change.log_dirs) if change.log_dirs else self.directories,
            cordoned_directories=self.cordoned_directories
            if change.cordoned_log_dirs is None
            else _in_order(change.cordoned_log_dirs),
        )

    def has_online(self, directory: UUID) -> bool:
        """Return whether a replica in `directory` is online, according to the directories (KIP-858)."""
        if directory in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
            return True
        return directory != LOST_DIRECTORY and (not self.directories or directory in self.directories)

    def endpoint(self, listener: str) -> BrokerEndpoint | None:
        """Return the address of a listener, None if the broker does not have it."""
        return next((each for each in self.listeners if each.name == listener), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRegistration:
    """A partition's replicas, leader and epochs."""

    replicas: tuple[int, ...]
    #: The directory of each replica, in the order of `replicas`.
    directories: tuple[UUID, ...]
    isr: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    eligible_leader_replicas: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    leader: int
    #: 1 while the partition recovers from an unclean election.
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int

    @classmethod
    def of(cls, record: PartitionRecord) -> Self:
        return cls(
            replicas=record.replicas,
            directories=_directories(record.directories, record.replicas),
            isr=record.isr,
            removing_replicas=record.removing_replicas,
            adding_replicas=record.adding_replicas,
            eligible_leader_replicas=record.eligible_leader_replicas or (),
            last_known_elr=record.last_known_elr or (),
            leader=record.leader,
            leader_recovery_state=record.leader_recovery_state,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
        )

    def with_change(self, change: PartitionChangeRecord) -> Self:
        """Return the partition with the changes of the record.

        Every change increments the partition epoch. A record with a leader also increments the leader epoch, even if
        the leader stays the same.
        """
        replicas = _either(change.replicas, self.replicas)
        names_leader = change.leader != _LEADER_UNCHANGED
        keeps_state = change.leader_recovery_state == _RECOVERY_UNCHANGED
        return dataclasses.replace(
            self,
            replicas=replicas,
            directories=self.directories
            if change.directories is None
            else _directories(change.directories, change.replicas or (), size=len(replicas)),
            isr=_either(change.isr, self.isr),
            removing_replicas=_either(change.removing_replicas, self.removing_replicas),
            adding_replicas=_either(change.adding_replicas, self.adding_replicas),
            eligible_leader_replicas=_either(change.eligible_leader_replicas, self.eligible_leader_replicas),
            last_known_elr=_either(change.last_known_elr, self.last_known_elr),
            leader=change.leader if names_leader else self.leader,
            leader_recovery_state=self.leader_recovery_state if keeps_state else change.leader_recovery_state,
            leader_epoch=self.leader_epoch + names_leader,
            partition_epoch=self.partition_epoch + 1,
        )

    def directory(self, broker: int) -> UUID:
        """Return the directory of a replica. Raises ValueError for a broker without one."""
        return self.directories[self.replicas.index(broker)]


def known_id(value: UUID | None) -> UUID:
    """Return a mandatory id of a record. Raises CorruptRecordError for zero."""
    if value is None:
        raise CorruptRecordError("a metadata record with an id of zero")
    return value


def _either(new: tuple[int, ...] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if new is None else new


def _directories(
    given: tuple[UUID | None, ...], replicas: tuple[int, ...], *, size: int | None = None
) -> tuple[UUID, ...]:
    """Return the directories of a record with `replicas`; `size` is their number if the record lacks them."""
    if not given:
        return (MIGRATING_DIRECTORY,) * (len(replicas) if size is None else size)
    if replicas and len(given) != len(replicas):
        raise CorruptRecordError(f"{len(given)} directories for {len(replicas)} replicas")
    return tuple(each or MIGRATING_DIRECTORY for each in given)


def _in_order(directories: Iterable[UUID | None]) -> tuple[UUID, ...]:
    """Sort as Kafka does: by both halves, as signed numbers."""
    return tuple(sorted((each or MIGRATING_DIRECTORY for each in directories), key=_signed_halves))


def _signed_halves(value: UUID) -> tuple[int, int]:
    high, low = value.int >> 64, value.int & 0xFFFF_FFFF_FFFF_FFFF
    return high - ((high >> 63) << 64), low - ((low >> 63) << 64)
