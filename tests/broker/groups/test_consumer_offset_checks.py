"""Which commits of a transaction a group of the new protocol takes; those of OffsetCommit are beside Kafka's."""

from __future__ import annotations

from uuid import UUID

import pytest

from stratalog.broker.groups.consumer.group import ConsumerGroup
from stratalog.broker.groups.consumer.offset_checks import check_commit
from stratalog.broker.groups.consumer.values import (
    ClassicFacts,
    ConsumerMember,
    CurrentAssignment,
    MemberState,
    MemberSubscription,
    current_change,
    member_change,
)
from stratalog.broker.groups.offsets import CommittedOffset, TopicPartition
from stratalog.broker.groups.values import Protocol
from stratalog.errors import IllegalGenerationError, KafkaError, StaleMemberEpochError, UnknownMemberIdError

TOPIC = UUID(int=7)
CLASSIC = ClassicFacts(45_000, (Protocol("range", b""),))


def group(classic: ClassicFacts | None = None) -> ConsumerGroup:
    """One member at epoch 5 that has partition 0 since 3, and has to give up 1, which it has since 4."""
    made = ConsumerGroup("g")
    current = CurrentAssignment(5, 4, MemberState.UNREVOKED_PARTITIONS, {TOPIC: {0: 3}}, {TOPIC: {1: 4}})
    member = ConsumerMember("a", MemberSubscription(classic=classic), current)
    made.apply([member_change(member), current_change(member)])
    return made


def check(made: ConsumerGroup, member_id: str, epoch: int, *partitions: int, instance_id: str | None = None) -> None:
    commits = {TopicPartition("t", number): CommittedOffset(1, "", 0, topic_id=TOPIC) for number in partitions}
    check_commit(made, member_id, instance_id, epoch, commits)


def test_a_member_may_commit_what_it_has_had_since_its_epoch() -> None:
    check(group(), "a", 5, 0, 1, 2)
    check(group(), "a", 4, 0, 1)
    check(group(), "a", 3, 0)


def test_a_producer_without_a_member_may_commit() -> None:
    check(group(), "", -1, 0)
    check(ConsumerGroup("g"), "a", -1, 0, instance_id="i")


@pytest.mark.parametrize(
    ("classic", "error"),
    [(None, StaleMemberEpochError), (CLASSIC, IllegalGenerationError)],
    ids=["consumer", "classic"],
)
@pytest.mark.parametrize(("epoch", "partition"), [(6, 0), (3, 1), (2, 0), (4, 2)])
def test_other_epochs_are_stale(
    classic: ClassicFacts | None, error: type[KafkaError], epoch: int, partition: int
) -> None:
    with pytest.raises(error):
        check(group(classic), "a", epoch, partition)


def test_strangers_are_unknown() -> None:
    with pytest.raises(UnknownMemberIdError):
        check(group(), "b", 5, 0)
    with pytest.raises(UnknownMemberIdError):
        check(group(), "", -1, 0, instance_id="i")
