"""Whatever members do and whenever the store answers: a classic group keeps its promises."""

from __future__ import annotations

import contextlib

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.broker.groups.machine import REBALANCE_MS, SESSION_MS, Machine

from stratalog.broker.groups.member import Member
from stratalog.broker.groups.state import GroupState
from stratalog.broker.groups.values import Answer, JoinReply, LeavingMember, Protocol
from stratalog.errors import RebalanceInProgressError

PROTOCOLS = st.sampled_from(
    [
        (Protocol("range", b"1"),),
        (Protocol("range", b"2"),),
        (Protocol("range", b"1"), Protocol("sticky", b"1")),
        (Protocol("sticky", b"1"), Protocol("range", b"1")),
    ]
)
INSTANCES = st.sampled_from(["i1", "i2"])
PICK = st.integers(0, 1_000)


class Group(RuleBasedStateMachine):
    """Members come, go, forget, ask twice and come back; stores succeed late, fail, or both."""

    @initialize(delay_ms=st.sampled_from([0, 3_000]))
    def begin(self, delay_ms: int) -> None:
        self.machine = Machine(initial_rebalance_delay_ms=delay_ms)
        self.machine.hold_stores = True
        self.tokens: set[str] = set()
        self.checked: set[str] = set()
        self.generation = 0
        #: The leader of each generation: its instance id, which outlives its member id, or its member id.
        self.leaders: dict[int, str] = {}
        self.identities: dict[str, str] = {}

    # --- what members do --------------------------------------------------------------------------------------------

    @property
    def members(self) -> list[Member]:
        return list(self.machine.group.members)

    def member(self, pick: int) -> Member | None:
        return self.members[pick % len(self.members)] if self.members else None

    def ids(self) -> set[str]:
        return {member.instance_id or member.member_id for member in self.members}

    def send(self, token: str) -> None:
        self.tokens.add(token)

    @rule(protocols=PROTOCOLS)
    def ask_for_an_id(self, protocols: tuple[Protocol, ...]) -> None:
        self.send(self.machine.join(protocols=protocols))

    @precondition(lambda self: self.machine.group.members.pending)
    @rule(pick=PICK, protocols=PROTOCOLS)
    def use_an_id(self, pick: int, protocols: tuple[Protocol, ...]) -> None:
        before = self.ids()
        pending = sorted(self.machine.group.members.pending)
        self.send(self.machine.join(pending[pick % len(pending)], protocols))
        assert before <= self.ids()

    @rule(instance=INSTANCES, protocols=PROTOCOLS)
    def join_as_static_member(self, instance: str, protocols: tuple[Protocol, ...]) -> None:
        before = self.ids()
        self.send(self.machine.join(protocols=protocols, instance_id=instance))
        assert before <= self.ids()

    @rule(pick=PICK, protocols=PROTOCOLS)
    def join_again(self, pick: int, protocols: tuple[Protocol, ...]) -> None:
        member = self.member(pick)
        if member is not None:
            before = self.ids()
            self.send(self.machine.join(member.member_id, protocols, instance_id=member.instance_id))
            assert before <= self.ids()

    @rule(pick=PICK)
    def sync(self, pick: int) -> None:
        member = self.member(pick)
        if member is not None:
            before = self.ids()
            assignments = {known.member_id: known.member_id.encode() for known in self.members}
            self.send(self.machine.sync(member.member_id, assignments, instance_id=member.instance_id))
            assert before == self.ids()

    @rule(pick=PICK)
    def beat(self, pick: int) -> None:
        member = self.member(pick)
        if member is not None:
            self.heartbeat(member)

    def heartbeat(self, member: Member) -> None:
        with contextlib.suppress(RebalanceInProgressError):
            self.machine.heartbeat(member.member_id, instance_id=member.instance_id)

    @rule(pick=PICK)
    def leave(self, pick: int) -> None:
        member = self.member(pick)
        if member is not None:
            left = self.machine.leave(LeavingMember(member.member_id, member.instance_id))
            assert left[0].error is Answer.NONE

    @rule(ms=st.sampled_from([1, 500, SESSION_MS // 2, SESSION_MS, REBALANCE_MS]))
    def wait(self, ms: int) -> None:
        self.machine.wait(ms)

    @precondition(lambda self: self.machine.held)
    @rule(error=st.sampled_from([None, None, None, Answer.NOT_COORDINATOR]))
    def finish_store(self, error: Answer | None) -> None:
        before = self.ids()
        self.machine.finish_store(error)
        assert before == self.ids()

    # --- and what comes of it ---------------------------------------------------------------------------------------

    @precondition(lambda self: self.machine.state is GroupState.STABLE and not self.machine.group.members.pending)
    @rule()
    def who_beats_in_time_is_not_lost(self) -> None:
        before = self.ids()
        for member in self.members:
            self.heartbeat(member)
        self.machine.wait(SESSION_MS - 1)
        if self.machine.state is GroupState.STABLE:  # else a sync that never came threw someone out
            assert self.ids() == before

    @rule()
    def when_all_do_their_part_the_group_is_stable_with_all_of_them(self) -> None:
        """Stores succeed, everyone joins and syncs when it has to: no one is lost, and it comes to rest."""
        before = self.ids()
        for _ in range(8):
            while self.machine.held:
                self.machine.finish_store()
            if self.machine.group.members.pending:
                for member in self.members:
                    self.act(member)
                for pending in sorted(self.machine.group.members.pending):
                    self.machine.leave(LeavingMember(pending))
            for member in self.members:
                self.act(member)
            if self.machine.state is GroupState.PREPARING_REBALANCE:
                due_ms = self.machine.group.next_deadline_ms
                assert due_ms is not None
                self.machine.wait(max(due_ms - self.machine.now_ms, 0))
        while self.machine.held:
            self.machine.finish_store()
        assert self.machine.state is (GroupState.STABLE if before else GroupState.EMPTY)
        assert self.ids() == before

    def act(self, member: Member) -> None:
        if member.member_id not in self.machine.group.members:
            return
        if self.machine.state is GroupState.PREPARING_REBALANCE and member.awaiting_join is None:
            self.send(self.machine.join(member.member_id, member.protocols, instance_id=member.instance_id))
        elif self.machine.state is GroupState.COMPLETING_REBALANCE and member.awaiting_sync is None:
            self.send(self.machine.sync(member.member_id, {}, instance_id=member.instance_id))
        else:
            self.heartbeat(member)

    # --- always -----------------------------------------------------------------------------------------------------

    @invariant()
    def everyone_who_asked_is_answered_once_or_still_waits(self) -> None:
        waiting = {member.awaiting_join for member in self.members} | {m.awaiting_sync for m in self.members}
        assert self.tokens - self.machine.answers.keys() == waiting - {None}

    @invariant()
    def generations_only_go_up(self) -> None:
        assert self.machine.group.generation >= self.generation
        self.generation = self.machine.group.generation

    @invariant()
    def a_generation_has_one_leader(self) -> None:
        for member in self.members:
            self.identities[member.member_id] = member.instance_id or member.member_id
        for token in self.machine.answers.keys() - self.checked:
            self.checked.add(token)
            answer = self.machine.answers[token]
            if isinstance(answer, JoinReply) and answer.error is Answer.NONE:
                leader = self.identities[answer.leader]
                assert self.leaders.setdefault(answer.generation, leader) == leader
                assert bool(answer.members) == (answer.leader == answer.member_id)

    @invariant()
    def state_and_members_fit(self) -> None:
        group, state = self.machine.group, self.machine.state
        if state is GroupState.EMPTY:
            assert not self.members
        if state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            assert group.protocol in group.members.shared_protocols()
        assert (group.members.leader is None) == (not self.members)
        assert group.members.leader is None or group.members.leader in group.members
        assert not any(pending in group.members for pending in group.members.pending)
        for member in self.members:
            assert member.awaiting_join is None or member.awaiting_sync is None
            if member.instance_id is not None:
                assert group.members.static_member_id(member.instance_id) == member.member_id
            if state is not GroupState.COMPLETING_REBALANCE:
                assert member.awaiting_sync is None
            if state is GroupState.COMPLETING_REBALANCE:
                assert member.awaiting_join is None
            if state is GroupState.STABLE and not self.machine.held:
                assert member.awaiting_join is None

    @invariant()
    def what_is_counted_along_is_what_counting_gives(self) -> None:
        members, found = self.machine.group.members, self.members
        assert members.joined == sum(member.awaiting_join is not None for member in found)
        assert members.rebalance_timeout_ms == max((each.rebalance_timeout_ms for each in found), default=0)
        offered = [{protocol.name for protocol in member.protocols} for member in found]
        assert members.shared_protocols() == (set.intersection(*offered) if offered else set())
        for name in ("range", "sticky", "other"):
            can_share = members.can_share((Protocol(name, b""),))
            assert can_share is (not found or name in members.shared_protocols())
        exact = min([member.session_deadline_ms for member in found] + [*members.pending.values()], default=None)
        bound = members.next_deadline_ms
        assert (bound is None) == (exact is None)
        assert bound is None or exact is None or bound <= exact
        members.review_deadlines()
        assert members.next_deadline_ms == exact

    @invariant()
    def there_is_a_next_deadline_as_long_as_anyone_could_wait(self) -> None:
        if self.members:
            assert self.machine.group.next_deadline_ms is not None


Group.TestCase.settings = settings(deadline=None, max_examples=150, stateful_step_count=40)


class TestGroup(Group.TestCase):  # type: ignore[misc, valid-type]
    """150 lives of 40 events each."""
