"""Check requests to create topics or partitions: pure, with Kafka's errors, for a cluster of one broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stratalog.errors import (
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    PolicyViolationError,
)

#: "Unspecified", for counts of partitions and replicas.
UNSET = -1
#: Maximum of partitions in one request. Source: Kafka's `QuorumController.MAX_RECORDS_PER_USER_OP`.
PARTITIONS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Assignment:
    """A manual assignment: the replicas of one partition."""

    partition: int
    brokers: tuple[int, ...]


def check_partition_total(partitions: int, what: str = "partitions") -> None:
    """Raise PolicyViolationError if one request would create more than `PARTITIONS_MAX` partitions."""
    if partitions > PARTITIONS_MAX:
        raise PolicyViolationError(f"Excessively large number of {what} per request.")


def new_topic_partitions(
    partitions: int,
    replicas: int,
    assignments: Sequence[Assignment],
    *,
    node_id: int,
    defaults: tuple[int, int],
) -> int:
    """Return the number of partitions of a new topic. `defaults` are the broker's counts of partitions and replicas."""
    if assignments:
        return _assigned_partitions(partitions, replicas, assignments, node_id)
    if replicas < UNSET or replicas == 0:
        raise InvalidReplicationFactorError("Replication factor must be larger than 0, or -1 to use the default value.")
    if partitions < UNSET or partitions == 0:
        raise InvalidPartitionsError("Number of partitions was set to an invalid non-positive value.")
    wanted = defaults[1] if replicas == UNSET else replicas
    if wanted > 1:
        raise InvalidReplicationFactorError(
            f"Unable to replicate the partition {wanted} time(s): The target replication factor of {wanted} cannot be "
            "reached because only 1 broker(s) are registered or some brokers have all their log directories cordoned."
        )
    return defaults[0] if partitions == UNSET else partitions


def _assigned_partitions(partitions: int, replicas: int, assignments: Sequence[Assignment], node_id: int) -> int:
    if replicas != UNSET:
        raise InvalidRequestError(
            "A manual partition assignment was specified, but replication factor was not set to -1."
        )
    if partitions != UNSET:
        raise InvalidRequestError("A manual partition assignment was specified, but numPartitions was not set to -1.")
    seen: set[int] = set()
    for assignment in assignments:
        if assignment.partition in seen:
            raise InvalidReplicaAssignmentError(
                f"Found multiple manual partition assignments for partition {assignment.partition}"
            )
        seen.add(assignment.partition)
        check_replicas(assignment.brokers, node_id)
    if seen != set(range(len(seen))):
        raise InvalidReplicaAssignmentError("partitions should be a consecutive 0-based integer sequence")
    return len(seen)


def check_replicas(brokers: Sequence[int], node_id: int) -> None:
    """Raise InvalidReplicaAssignmentError unless the only broker appears exactly once."""
    if not brokers:
        raise InvalidReplicaAssignmentError("The manual partition assignment includes an empty replica list.")
    previous = None
    for broker in sorted(brokers):
        if broker != node_id:
            raise InvalidReplicaAssignmentError(
                f"The manual partition assignment includes broker {broker}, but no such broker is registered."
            )
        if broker == previous:
            raise InvalidReplicaAssignmentError(
                f"The manual partition assignment includes the broker {broker} more than once."
            )
        previous = broker


def check_more_partitions(
    name: str, current: int, wanted: int, assignments: Sequence[Sequence[int]] | None, *, node_id: int
) -> None:
    """Raise unless a topic may grow from `current` to `wanted` partitions with these replicas (None: any)."""
    if wanted == current:
        raise InvalidPartitionsError(f"Topic already has {current} partition(s).")
    if wanted < current:
        raise InvalidPartitionsError(
            f"The topic {name} currently has {current} partition(s); {wanted} would not be an increase."
        )
    additional = wanted - current
    if assignments is not None:
        if len(assignments) != additional:
            raise InvalidReplicaAssignmentError(
                f"Attempted to add {additional} additional partition(s), but only {len(assignments)} assignment(s) "
                "were specified."
            )
        for brokers in assignments:
            check_replicas(brokers, node_id)
