"""The classic group protocol, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.groups.machine import RANGE, REBALANCE_MS, SESSION_MS, WALL_MS, Machine
from tests.support.work import lines_of_work

from stratalog.broker.groups.group import ClassicGroup
from stratalog.broker.groups.state import GroupState
from stratalog.broker.groups.values import AgeSince, Answer, LeavingMember, Protocol
from stratalog.errors import (
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    NonEmptyGroupError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

BOTH = (Protocol("range", b"r"), Protocol("sticky", b"s"))
STICKY = (Protocol("sticky", b"s"),)


def static(machine: Machine, instance: str = "i1", **fields: Any) -> tuple[str, str]:
    """A static member alone in a stable group: its id and the token of its sync."""
    token = machine.join(instance_id=instance, **fields)
    machine.wait(machine.settings.initial_rebalance_delay_ms)
    member = machine.joined(token).member_id
    return member, machine.sync(member, {member: b"all"}, instance_id=instance)


# --- joining ----------------------------------------------------------------------------------------------------------


def test_a_dynamic_member_is_first_given_an_id() -> None:
    machine = Machine()
    reply = machine.joined(machine.join())
    assert (reply.error, reply.member_id, reply.generation) == (Answer.MEMBER_ID_REQUIRED, "m1", -1)
    assert machine.state is GroupState.EMPTY


def test_a_member_of_old_is_taken_in_at_once() -> None:
    machine = Machine()
    token = machine.join(id_required=False)
    assert token not in machine.answers
    assert machine.state is GroupState.PREPARING_REBALANCE


def test_the_first_rebalance_waits_for_more_members() -> None:
    machine = Machine()
    _, token = machine.enter()
    machine.wait(2_999)
    assert token not in machine.answers
    machine.wait(1)
    assert machine.joined(token).error is Answer.NONE
    assert machine.joined(token).generation == 1


def test_a_newcomer_makes_the_first_rebalance_wait_again_but_not_for_ever() -> None:
    machine = Machine()
    _, first = machine.enter(rebalance_timeout_ms=7_000)
    machine.wait(2_000)
    machine.enter(rebalance_timeout_ms=7_000)
    machine.wait(3_000)
    assert first not in machine.answers  # at 3 s: extended
    machine.enter(rebalance_timeout_ms=7_000)
    machine.wait(2_000)  # 7 s since the first: the rebalance timeout is the end of patience
    assert machine.joined(first).error is Answer.NONE
    assert len(machine.group.members) == 3


def test_only_the_leader_sees_the_members() -> None:
    machine = Machine()
    first, first_token = machine.enter()
    second, second_token = machine.enter()
    machine.wait(9_000)
    assert machine.joined(first_token).leader == machine.joined(second_token).leader == first
    assert [member.member_id for member in machine.joined(first_token).members] == [first, second]
    assert machine.joined(second_token).members == ()


def test_the_protocol_is_the_one_that_all_share_and_most_prefer() -> None:
    machine = Machine()
    machine.enter(BOTH)
    machine.enter(tuple(reversed(BOTH)))
    _, token = machine.enter(tuple(reversed(BOTH)))
    machine.wait(12_000)
    assert machine.joined(token).protocol_name == "sticky"


def test_a_member_without_a_shared_protocol_is_refused() -> None:
    machine = Machine()
    machine.stable(1)
    assert machine.joined(machine.join(protocols=STICKY)).error is Answer.INCONSISTENT_GROUP_PROTOCOL
    assert machine.joined(machine.join(protocol_type="connect")).error is Answer.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("fields", [{"protocol_type": ""}, {"protocols": ()}])
def test_an_empty_group_refuses_who_offers_nothing(fields: dict[str, Any]) -> None:
    machine = Machine()
    assert machine.joined(machine.join(**fields)).error is Answer.INCONSISTENT_GROUP_PROTOCOL


def test_an_id_that_no_one_gave_out_is_unknown() -> None:
    machine = Machine()
    machine.stable(1)
    assert machine.joined(machine.join("stranger")).error is Answer.UNKNOWN_MEMBER_ID


def test_an_id_that_is_not_used_is_taken_back() -> None:
    machine = Machine()
    asked = machine.joined(machine.join())
    machine.wait(SESSION_MS)
    assert machine.joined(machine.join(asked.member_id)).error is Answer.UNKNOWN_MEMBER_ID


def test_a_full_group_refuses_newcomers_and_keeps_its_members() -> None:
    machine = Machine(members_max=2)
    leader, _ = machine.stable(2)
    assert machine.joined(machine.join()).error is Answer.GROUP_MAX_SIZE_REACHED
    machine.join(leader)
    assert machine.state is GroupState.PREPARING_REBALANCE
    assert len(machine.group.members) == 2


def test_a_follower_that_asks_again_gets_the_generation_and_no_rebalance() -> None:
    machine = Machine()
    _, follower = machine.stable(2)
    reply = machine.joined(machine.join(follower))
    assert (reply.error, reply.generation, reply.members) == (Answer.NONE, 1, ())
    assert machine.state is GroupState.STABLE


def test_a_leader_that_asks_again_gets_a_rebalance() -> None:
    machine = Machine()
    leader, _ = machine.stable(2)
    machine.join(leader)
    assert machine.state is GroupState.PREPARING_REBALANCE


def test_changed_metadata_means_a_rebalance() -> None:
    machine = Machine()
    _, follower = machine.stable(2)
    machine.join(follower, (Protocol("range", b"other topics"),))
    assert machine.state is GroupState.PREPARING_REBALANCE


def test_a_lost_answer_is_given_again_while_assignments_are_awaited() -> None:
    machine = Machine()
    member, token = machine.enter()
    machine.wait(3_000)
    again = machine.joined(machine.join(member))
    assert (again.generation, again.members) == (1, machine.joined(token).members)


def test_a_join_that_is_asked_again_leaves_no_one_waiting() -> None:
    machine = Machine()
    member, first = machine.enter()
    second = machine.join(member)
    assert machine.joined(first).error is Answer.REBALANCE_IN_PROGRESS
    machine.wait(3_000)
    assert machine.joined(second).error is Answer.NONE


# --- rebalancing ------------------------------------------------------------------------------------------------------


def test_a_rebalance_ends_as_soon_as_all_are_back() -> None:
    machine = Machine()
    leader, follower = machine.stable(2)
    newcomer, token = machine.enter()
    with pytest.raises(RebalanceInProgressError):
        machine.heartbeat(leader)
    machine.join(leader)
    assert token not in machine.answers
    machine.join(follower)
    assert machine.joined(token).generation == 2
    assert newcomer in machine.group.members


def test_who_does_not_come_back_in_time_is_out() -> None:
    machine = Machine()
    leader, follower = machine.stable(2)
    _, token = machine.enter()
    for _ in range(12):
        machine.join(leader)
        machine.wait(REBALANCE_MS // 12)
        if follower in machine.group.members:
            with pytest.raises(RebalanceInProgressError):
                machine.heartbeat(follower)
    assert machine.joined(token).generation == 2
    assert follower not in machine.group.members
    with pytest.raises(UnknownMemberIdError):
        machine.heartbeat(follower)


def test_a_leader_that_does_not_come_back_is_replaced() -> None:
    machine = Machine()
    leader, follower = machine.stable(2)
    token = machine.join(follower, (Protocol("range", b"changed"),))
    machine.wait(REBALANCE_MS)
    assert leader not in machine.group.members
    assert machine.joined(token).leader == follower


def test_an_id_given_out_holds_a_rebalance_open_until_it_is_used() -> None:
    machine = Machine()
    leader, follower = machine.stable(2)
    asked = machine.joined(machine.join())
    machine.join(leader)
    token = machine.join(follower)
    assert token not in machine.answers
    machine.join(asked.member_id)
    assert machine.joined(token).generation == 2
    assert len(machine.group.members) == 3


def test_when_the_last_member_goes_the_group_is_empty_in_a_new_generation() -> None:
    machine = Machine()
    (member,) = machine.stable(1)
    machine.leave(LeavingMember(member))
    assert (machine.state, machine.group.generation) == (GroupState.EMPTY, 2)
    stored = machine.stored[-1].metadata
    assert (stored.generation, stored.protocol, stored.leader, stored.members) == (2, None, None, ())
    assert stored.protocol_type == "consumer"


def test_a_group_may_fill_again_after_it_was_empty() -> None:
    machine = Machine()
    (member,) = machine.stable(1)
    machine.leave(LeavingMember(member))
    machine.stable(1)
    assert machine.group.generation == 3


def test_members_that_left_during_the_first_delay_do_not_bar_others() -> None:
    machine = Machine()
    member, token = machine.enter()
    machine.leave(LeavingMember(member))
    assert machine.joined(token).error is Answer.UNKNOWN_MEMBER_ID
    _, other = machine.enter(STICKY)
    machine.wait(9_000)
    assert machine.joined(other).error is Answer.NONE


# --- syncing ----------------------------------------------------------------------------------------------------------


def test_syncs_wait_for_the_leader_and_for_the_store() -> None:
    machine = Machine()
    leader, _ = machine.enter()
    follower, _ = machine.enter()
    machine.wait(9_000)
    machine.hold_stores = True
    waiting = machine.sync(follower)
    given = machine.sync(leader, {leader: b"A", follower: b"B"})
    assert waiting not in machine.answers
    assert given not in machine.answers
    machine.finish_store()
    assert machine.synced(given).assignment == b"A"
    assert machine.synced(waiting).assignment == b"B"
    assert machine.state is GroupState.STABLE


def test_what_is_stored_is_what_members_receive() -> None:
    machine = Machine()
    leader, follower = machine.stable(2)
    stored = machine.stored[-1].metadata
    assert {member.member_id: member.assignment for member in stored.members} == {
        leader: leader.encode(),
        follower: follower.encode(),
    }
    assert (stored.protocol_type, stored.protocol, stored.leader) == ("consumer", "range", leader)


def test_a_member_that_the_leader_forgot_gets_nothing() -> None:
    machine = Machine()
    leader, _ = machine.enter()
    follower, _ = machine.enter()
    machine.wait(9_000)
    machine.sync(leader, {leader: b"all"})
    reply = machine.synced(machine.sync(follower))
    assert (reply.error, reply.assignment) == (Answer.NONE, b"")


def test_an_assignment_that_cannot_be_stored_is_given_to_no_member() -> None:
    machine = Machine()
    leader, _ = machine.enter()
    follower, _ = machine.enter()
    machine.wait(9_000)
    machine.hold_stores = True
    tokens = [machine.sync(follower), machine.sync(leader, {leader: b"A"})]
    machine.finish_store(Answer.NOT_COORDINATOR)
    assert [machine.synced(token).error for token in tokens] == [Answer.NOT_COORDINATOR] * 2
    assert [machine.synced(token).assignment for token in tokens] == [b"", b""]
    assert machine.state is GroupState.PREPARING_REBALANCE


def test_an_assignment_of_a_generation_that_is_over_is_not_given() -> None:
    machine = Machine()
    leader, _ = machine.enter()
    machine.wait(3_000)
    machine.hold_stores = True
    token = machine.sync(leader, {leader: b"A"})
    machine.enter()  # a newcomer: a rebalance begins while the store is under way
    assert machine.synced(token).error is Answer.REBALANCE_IN_PROGRESS
    machine.finish_store()
    assert machine.state is GroupState.PREPARING_REBALANCE
    assert machine.group.members[leader].assignment == b""


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"generation": 7}, Answer.ILLEGAL_GENERATION),
        ({"member_id": "stranger"}, Answer.UNKNOWN_MEMBER_ID),
        ({"protocol_name": "sticky"}, Answer.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, Answer.INCONSISTENT_GROUP_PROTOCOL),
        ({"instance_id": "nobody's"}, Answer.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_sync_that_does_not_fit_is_refused(fields: dict[str, object], error: Answer) -> None:
    machine = Machine()
    (member,) = machine.stable(1)
    assert machine.synced(machine.sync(fields.pop("member_id", member), **fields)).error is error  # type: ignore[arg-type]


def test_a_sync_during_a_rebalance_sends_the_member_back_to_join() -> None:
    machine = Machine()
    leader, follower = machine.stable(2)
    machine.join(leader)
    assert machine.synced(machine.sync(follower)).error is Answer.REBALANCE_IN_PROGRESS


def test_a_new_generation_gives_its_members_a_whole_session() -> None:
    machine = Machine()
    leader, follower = machine.stable(2)
    machine.enter()
    machine.join(leader)
    machine.wait(SESSION_MS - 1)
    machine.join(follower)  # ends the join phase, just before the leader's old session would have ended
    assert machine.state is GroupState.COMPLETING_REBALANCE
    machine.wait(SESSION_MS - 1)
    assert leader in machine.group.members
    machine.wait(1)
    assert leader not in machine.group.members


def test_a_static_member_that_syncs_under_its_new_id_is_not_waited_for_under_the_old_one() -> None:
    machine = Machine()
    tokens = [machine.join(instance_id=name, session_timeout_ms=REBALANCE_MS * 3) for name in ("i1", "i2")]
    machine.wait(9_000)
    leader, follower = (machine.joined(token).member_id for token in tokens)
    machine.sync(leader, {leader: b"A", follower: b"B"}, instance_id="i1")
    back = machine.joined(machine.join(instance_id="i2", session_timeout_ms=REBALANCE_MS * 3))
    assert machine.synced(machine.sync(back.member_id, instance_id="i2")).assignment == b"B"
    machine.wait(REBALANCE_MS)
    assert (machine.state, machine.group.generation) == (GroupState.STABLE, 1)


def test_a_static_member_that_never_syncs_is_out_under_its_new_id_too() -> None:
    machine = Machine()
    tokens = [machine.join(instance_id=name, session_timeout_ms=REBALANCE_MS * 3) for name in ("i1", "i2")]
    machine.wait(9_000)
    leader, follower = (machine.joined(token).member_id for token in tokens)
    machine.sync(leader, {leader: b"A", follower: b"B"}, instance_id="i1")
    back = machine.joined(machine.join(instance_id="i2", session_timeout_ms=REBALANCE_MS * 3))
    machine.wait(REBALANCE_MS)
    assert back.member_id not in machine.group.members
    assert machine.state is GroupState.PREPARING_REBALANCE


def test_who_does_not_sync_in_time_is_out() -> None:
    machine = Machine()
    leader, _ = machine.enter(session_timeout_ms=600_000)
    lazy, _ = machine.enter(session_timeout_ms=600_000)
    machine.wait(9_000)
    machine.sync(leader, {leader: b"A"})
    machine.wait(REBALANCE_MS)
    assert lazy not in machine.group.members
    assert machine.state is GroupState.PREPARING_REBALANCE


# --- sessions, leaving ------------------------------------------------------------------------------------------------


def test_heartbeats_keep_a_member_and_their_absence_ends_it() -> None:
    machine = Machine()
    leader, follower = machine.stable(2)
    for _ in range(5):
        machine.wait(SESSION_MS - 1)
        for member in (leader, follower):
            machine.heartbeat(member)
    machine.wait(SESSION_MS - 1)
    machine.heartbeat(leader)
    machine.wait(1)
    assert follower not in machine.group.members
    assert machine.state is GroupState.PREPARING_REBALANCE


def test_a_commit_keeps_a_member_too() -> None:
    machine = Machine()
    (member,) = machine.stable(1)
    for _ in range(3):
        machine.wait(SESSION_MS - 1)
        machine.group.check_commit(member, None, 1, machine.now)
    assert member in machine.group.members


def test_a_parked_join_outlives_the_session_of_a_known_member() -> None:
    machine = Machine()
    leader, follower = machine.stable(2)
    token = machine.join(leader)
    for _ in range(5):  # the follower lives on, but does not join
        machine.wait(SESSION_MS - 1)
        with pytest.raises(RebalanceInProgressError):
            machine.heartbeat(follower)
    assert token not in machine.answers
    assert leader in machine.group.members


def test_a_new_member_whose_join_is_never_answered_goes_in_the_end() -> None:
    machine = Machine(new_member_timeout_ms=5_000, initial_rebalance_delay_ms=1_000)
    leader, follower = machine.stable(2)
    _, token = machine.enter()
    machine.wait(2_000)
    for member in (leader, follower):
        with pytest.raises(RebalanceInProgressError):
            machine.heartbeat(member)
    machine.wait(3_000)
    assert machine.joined(token).error is Answer.UNKNOWN_MEMBER_ID
    assert len(machine.group.members) == 2


def test_heartbeats_of_another_generation_or_stranger_are_refused() -> None:
    machine = Machine()
    (member,) = machine.stable(1)
    with pytest.raises(IllegalGenerationError):
        machine.heartbeat(member, generation=0)
    with pytest.raises(UnknownMemberIdError):
        machine.heartbeat("stranger")


def test_several_leave_at_once_and_each_gets_its_result() -> None:
    machine = Machine()
    leader, follower = machine.stable(2)
    left = machine.leave(
        LeavingMember(leader),
        LeavingMember("stranger"),
        LeavingMember("", "nobody's"),
        LeavingMember(follower),
    )
    assert [member.error for member in left] == [
        Answer.NONE,
        Answer.UNKNOWN_MEMBER_ID,
        Answer.UNKNOWN_MEMBER_ID,
        Answer.NONE,
    ]
    assert machine.state is GroupState.EMPTY


def test_an_id_given_out_may_be_handed_back() -> None:
    machine = Machine()
    asked = machine.joined(machine.join())
    assert machine.leave(LeavingMember(asked.member_id))[0].error is Answer.NONE
    assert not machine.group.members.pending


# --- static members ---------------------------------------------------------------------------------------------------


def test_a_static_member_comes_back_under_a_new_id_without_a_rebalance() -> None:
    machine = Machine()
    old, _ = static(machine)
    reply = machine.joined(machine.join(instance_id="i1"))
    assert (reply.error, reply.generation, reply.skip_assignment) == (Answer.NONE, 1, True)
    assert reply.member_id != old
    assert reply.leader == reply.member_id
    assert machine.state is GroupState.STABLE
    assert machine.synced(machine.sync(reply.member_id, instance_id="i1")).assignment == b"all"
    assert machine.stored[-1].metadata.members[0].member_id == reply.member_id


def test_a_client_of_old_is_not_reported_that_it_leads_when_it_comes_back() -> None:
    machine = Machine()
    old, _ = static(machine)
    reply = machine.joined(machine.join(instance_id="i1", can_skip_assignment=False))
    assert (reply.leader, reply.members, reply.skip_assignment) == (old, (), False)


def test_the_id_of_before_is_fenced() -> None:
    machine = Machine()
    old, _ = static(machine)
    machine.join(instance_id="i1")
    with pytest.raises(FencedInstanceIdError):
        machine.heartbeat(old, instance_id="i1")
    with pytest.raises(FencedInstanceIdError):
        machine.group.check_commit(old, "i1", 1, machine.now)
    assert machine.joined(machine.join(old, instance_id="i1")).error is Answer.FENCED_INSTANCE_ID
    assert machine.synced(machine.sync(old, instance_id="i1")).error is Answer.FENCED_INSTANCE_ID
    assert machine.leave(LeavingMember(old, "i1"))[0].error is Answer.FENCED_INSTANCE_ID


def test_a_double_is_fenced_while_it_waits() -> None:
    machine = Machine()
    first = machine.join(instance_id="i1")
    second = machine.join(instance_id="i1")
    assert machine.joined(first).error is Answer.FENCED_INSTANCE_ID
    machine.wait(9_000)
    assert machine.joined(second).error is Answer.NONE
    assert len(machine.group.members) == 1


def test_a_static_member_that_comes_back_while_completing_starts_over() -> None:
    machine = Machine()
    machine.join(instance_id="i1")
    machine.wait(3_000)
    assert machine.state is GroupState.COMPLETING_REBALANCE
    token = machine.join(instance_id="i1")
    assert machine.joined(token).generation == 2


def test_a_static_member_with_another_choice_of_protocol_means_a_rebalance() -> None:
    machine = Machine()
    static(machine, protocols=BOTH)
    token = machine.join(protocols=STICKY, instance_id="i1")
    assert machine.joined(token).generation == 2
    assert machine.joined(token).protocol_name == "sticky"


def test_a_new_id_that_cannot_be_stored_leaves_the_old_one_in_force() -> None:
    machine = Machine()
    old, _ = static(machine)
    machine.hold_stores = True
    token = machine.join(protocols=(Protocol("range", b"new"),), instance_id="i1")
    machine.finish_store(Answer.NOT_COORDINATOR)
    assert machine.joined(token).error is Answer.NOT_COORDINATOR
    machine.heartbeat(old, instance_id="i1")
    assert machine.group.members.leader == old
    assert machine.group.members[old].protocols == RANGE


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    machine = Machine()
    static(machine)
    assert machine.leave(LeavingMember("", "i1"))[0].error is Answer.NONE
    assert machine.state is GroupState.EMPTY


def test_static_members_are_kept_in_a_rebalance_until_their_session_ends() -> None:
    machine = Machine()
    member, _ = static(machine, session_timeout_ms=REBALANCE_MS * 3)
    dynamic, token = machine.enter()
    machine.wait(REBALANCE_MS)
    assert machine.joined(token).error is Answer.NONE  # without the static member
    assert {known.member_id for known in machine.group.members} == {member, dynamic}
    assert machine.group.members.leader == dynamic


def test_if_only_absent_static_members_are_left_the_rebalance_waits_for_them() -> None:
    machine = Machine()
    static(machine, session_timeout_ms=REBALANCE_MS * 5)
    dynamic, _ = machine.enter()
    machine.leave(LeavingMember(dynamic))
    machine.wait(REBALANCE_MS * 2)
    assert machine.state is GroupState.PREPARING_REBALANCE
    machine.wait(REBALANCE_MS * 3)
    assert machine.state is GroupState.EMPTY


# --- commits, deletion, expiry ----------------------------------------------------------------------------------------


def test_anyone_may_commit_to_a_group_without_members_and_no_stranger_to_one_with() -> None:
    machine = Machine()
    machine.group.check_commit("", None, -1, machine.now)
    (member,) = machine.stable(1)
    with pytest.raises(UnknownMemberIdError):
        machine.group.check_commit("", None, -1, machine.now)
    with pytest.raises(IllegalGenerationError):
        machine.group.check_commit(member, None, 9, machine.now)


def test_a_generation_is_not_committed_to_an_empty_group() -> None:
    machine = Machine()
    with pytest.raises(UnknownMemberIdError):
        machine.group.check_commit("m", None, 1, machine.now)


def test_a_commit_while_assignments_are_awaited_is_sent_back() -> None:
    machine = Machine()
    member, _ = machine.enter()
    machine.wait(3_000)
    with pytest.raises(RebalanceInProgressError):
        machine.group.check_commit(member, None, 1, machine.now)


def test_a_commit_during_the_join_phase_is_taken() -> None:
    machine = Machine()
    leader, follower = machine.stable(2)
    machine.join(leader)
    machine.group.check_commit(follower, None, 1, machine.now)


def test_only_a_group_without_members_may_be_deleted() -> None:
    machine = Machine()
    machine.group.check_deletable()
    machine.stable(1)
    with pytest.raises(NonEmptyGroupError):
        machine.group.check_deletable()


def test_a_dead_group_sends_everyone_away() -> None:
    machine = Machine()
    member, token = machine.enter()
    machine.carry_out(machine.group.die(Answer.NOT_COORDINATOR, machine.now))
    assert machine.joined(token).error is Answer.NOT_COORDINATOR
    assert machine.joined(machine.join()).error is Answer.COORDINATOR_NOT_AVAILABLE
    assert machine.synced(machine.sync(member)).error is Answer.COORDINATOR_NOT_AVAILABLE
    for refused in (
        lambda: machine.heartbeat(member),
        lambda: machine.group.check_commit("", None, -1, machine.now),
        lambda: machine.leave(LeavingMember(member)),
    ):
        with pytest.raises(CoordinatorNotAvailableError):
            refused()
    for refused in (machine.group.check_deletable, machine.group.check_offset_delete):
        with pytest.raises(GroupIdNotFoundError):
            refused()


def test_offsets_age_by_what_the_group_is() -> None:
    machine = Machine()
    assert machine.group.offsets_age_since is AgeSince.COMMIT  # simple consumers
    subscription = b"\x00\x00\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"
    (member,) = machine.stable(1, (Protocol("range", subscription),))
    assert machine.group.offsets_age_since is AgeSince.COMMIT
    assert machine.group.is_subscribed("t")
    assert not machine.group.is_subscribed("u")
    machine.leave(LeavingMember(member))
    assert machine.group.offsets_age_since is AgeSince.GROUP_EMPTY
    assert not machine.group.is_subscribed("t")


def test_offsets_of_a_group_whose_subscriptions_cannot_be_read_do_not_age_while_it_lives() -> None:
    machine = Machine()
    machine.stable(1)  # its metadata is no subscription
    assert machine.group.offsets_age_since is AgeSince.NEVER
    assert machine.group.is_subscribed("any")


# --- loading ----------------------------------------------------------------------------------------------------------


def test_a_loaded_group_goes_on_where_it_was() -> None:
    before = Machine()
    leader, follower = before.stable(2)
    group = ClassicGroup.load("g", before.stored[-1].metadata, before.settings, before.now)
    after = Machine(group)
    assert (after.state, group.generation, group.members.leader) == (GroupState.STABLE, 1, leader)
    assert group.state_timestamp_ms is not None
    assert group.state_timestamp_ms >= WALL_MS
    after.heartbeat(follower)
    assert after.synced(after.sync(follower)).assignment == follower.encode()


def test_members_of_a_loaded_group_have_a_session_to_show_themselves() -> None:
    before = Machine()
    before.stable(2)
    after = Machine(ClassicGroup.load("g", before.stored[-1].metadata, before.settings, Machine().now))
    after.wait(SESSION_MS - 1)
    assert after.state is GroupState.STABLE
    after.wait(1)
    assert after.state is GroupState.EMPTY


def test_a_loaded_group_that_is_too_large_rebalances() -> None:
    before = Machine()
    members = before.stable(3)
    smaller = Machine(members_max=2)
    group = ClassicGroup.load("g", before.stored[-1].metadata, smaller.settings, smaller.now)
    machine = Machine(group)
    machine.carry_out(group.shrink_to_limit(machine.now))
    answers = [machine.join(member) for member in members]
    assert machine.joined(answers[2]).error is Answer.GROUP_MAX_SIZE_REACHED
    assert machine.joined(answers[0]).error is machine.joined(answers[1]).error is Answer.NONE


def test_a_join_costs_the_same_in_a_large_group() -> None:
    def enter(machine: Machine) -> int:
        """Join, as the coordinator carries it out: the next deadline is asked for each time."""

        def work() -> None:
            machine.enter()
            assert machine.group.next_deadline_ms is not None

        return lines_of_work(work)

    machine = Machine(members_max=10_000)
    enter(machine)
    few = enter(machine)
    for _ in range(300):
        machine.enter()
    assert enter(machine) == few
    assert machine.group.members.joined == len(machine.group.members) == 303
