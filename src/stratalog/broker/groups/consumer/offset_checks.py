"""Checks of commits and fetches of offsets in consumer protocol groups.

A commit sent before the member's epoch was incremented is valid for partitions that it already had (KIP-1251).
Source: `ConsumerGroup.validateOffsetCommit` and `validateOffsetFetch` of Kafka 4.4.0.
"""

from __future__ import annotations

from collections.abc import Mapping

from stratalog.broker.groups.consumer.group import ConsumerGroup
from stratalog.broker.groups.consumer.values import ConsumerMember
from stratalog.broker.groups.offsets import CommittedOffset, TopicPartition
from stratalog.errors import (
    IllegalGenerationError,
    KafkaError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)

#: First version of OffsetCommit with member epochs.
_EPOCHS_FROM = 9


def check_commit(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    commits: Mapping[TopicPartition, CommittedOffset],
    *,
    version: int | None = None,
) -> None:
    """Raise unless this member may commit these now. `version` is that of OffsetCommit; None in a transaction."""
    if epoch < 0 and not group.members:
        return
    is_transactional = version is None
    if is_transactional and epoch == -1 and not member_id and instance_id is None:
        return
    member = group.member(member_id)
    if version is not None and version < _EPOCHS_FROM and not member.uses_classic_protocol:
        raise UnsupportedVersionError(
            "OffsetCommit version 9 or above must be used by members using the consumer group protocol"
        )
    if epoch > member.epoch:
        raise _stale(member, f"is newer than current member epoch {member.epoch}.", epoch)
    if epoch < member.epoch:
        for partition, commit in commits.items():
            _check_since(member, epoch, partition, commit)


def _check_since(member: ConsumerMember, epoch: int, partition: TopicPartition, commit: CommittedOffset) -> None:
    """Raise unless the member has had a partition since the epoch."""
    since: int | None = None
    for held in (member.current.assigned, member.current.revoking):
        if since is None and commit.topic_id is not None:
            since = held.get(commit.topic_id, {}).get(partition.partition)
    name = f"{partition.topic}-{partition.partition}"
    if since is None:
        error = _error(member)
        raise error(f"Partition {name} is not assigned or pending revocation for member.")
    if epoch < since:
        raise _stale(member, f"is older than assignment epoch {since} for partition {name}.", epoch)


def _error(member: ConsumerMember) -> type[KafkaError]:
    return IllegalGenerationError if member.uses_classic_protocol else StaleMemberEpochError


def _stale(member: ConsumerMember, why: str, epoch: int) -> KafkaError:
    what = "generation id" if member.uses_classic_protocol else "member epoch"
    return _error(member)(f"Received {what} {epoch} {why}")


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Raise unless this member may fetch offsets; a request without member id always may."""
    if member_id is None and epoch < 0:
        return
    member = group.members.get(member_id or "")
    if member is None:
        raise UnknownMemberIdError(f"Member {member_id} is not a member of group {group.group_id}.")
    if epoch != member.epoch:
        raise _stale(member, f"does not match the expected member epoch {member.epoch}.", epoch)
