"""A classic consumer group as a pure state machine.

Events are method calls with the current time; they return the effects to carry out, in order (`values.Effect`). The
machine does no I/O, has no timers and no clock: the caller reads `next_deadline_ms` and calls `on_time` at that time.
The rules are those of Apache Kafka's classic group protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup).

A rebalance: a join moves the group to PREPARING_REBALANCE, where joins are parked (`join_phase`). When all members have
rejoined, or the longest rebalance timeout is over, the generation is incremented and every parked join is answered
(COMPLETING_REBALANCE). The leader's sync contains the assignments (`sync_phase`); once they are stored, every parked
sync is answered (STABLE). The transitions are in the table of `state`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stratalog.broker.groups.core import GroupCore
from stratalog.broker.groups.join_phase import JoinPhase
from stratalog.broker.groups.member import Member
from stratalog.broker.groups.membership import Membership
from stratalog.broker.groups.state import (
    MOVES,
    OUT_OF_STEP,
    REFUSALS,
    GroupAction,
    GroupEvent,
    GroupRequest,
    GroupState,
)
from stratalog.broker.groups.static_members import PendingReplacement, StaticMembers
from stratalog.broker.groups.sync_phase import PendingAssignment, SyncPhase
from stratalog.broker.groups.values import (
    CONSUMER_PROTOCOL_TYPE,
    UNKNOWN_MEMBER_ID,
    AgeSince,
    Answer,
    Effects,
    GroupMetadata,
    GroupSettings,
    JoinReply,
    JoinRequest,
    LeavingMember,
    LeftMember,
    Moment,
    Protocol,
    Store,
    SyncReply,
    SyncRequest,
    Token,
)
from stratalog.errors import (
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    KafkaError,
    NonEmptyGroupError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)


class ClassicGroup:
    """One group. Not thread-safe.

    Invariants: joins are parked only while PREPARING_REBALANCE, or while the replacement of a static member is being
    stored; a generation has one leader; the generation never decreases; a token is answered exactly once.
    """

    type_name = "classic"

    def __init__(self, group_id: str, settings: GroupSettings, now: Moment) -> None:
        self._core = core = GroupCore(group_id, settings, now)
        self._join = JoinPhase(core)
        self._sync = SyncPhase(core)
        self._static = StaticMembers(core, self._join, self._sync)
        self._pending: list[PendingAssignment | PendingReplacement] = []

    @classmethod
    def load(cls, group_id: str, stored: GroupMetadata, settings: GroupSettings, now: Moment) -> ClassicGroup:
        """Return the group from its record; its members get a full session timeout to send a heartbeat."""
        group = cls(group_id, settings, now)
        core = group._core
        core.generation = stored.generation
        core.protocol_type = stored.protocol_type or None
        core.protocol = stored.protocol
        core.state_timestamp_ms = None if stored.state_timestamp_ms == -1 else stored.state_timestamp_ms
        for member in stored.members:
            rebalance_timeout_ms = member.rebalance_timeout_ms
            core.members.add(
                Member(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.session_timeout_ms
                    if rebalance_timeout_ms == -1
                    else rebalance_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    protocols=(Protocol(stored.protocol or "", member.subscription),),
                    session_deadline_ms=now.monotonic_ms + member.session_timeout_ms,
                    assignment=member.assignment,
                )
            )
        if stored.members:
            core.state = GroupState.STABLE
            if stored.leader in core.members:
                core.members.leader = stored.leader
        core.read_subscriptions()
        return group

    @classmethod
    def converted(cls, group_id: str, generation: int, settings: GroupSettings, now: Moment) -> ClassicGroup:
        """Return a stable group converted from the consumer protocol. Add its members, then call `settle_protocol`."""
        group = cls(group_id, settings, now)
        core = group._core
        core.generation, core.protocol_type, core.state = generation, CONSUMER_PROTOCOL_TYPE, GroupState.STABLE
        return group

    def settle_protocol(self) -> None:
        """Elect the protocol of a converted group."""
        self._core.protocol = self.members.elected_protocol()
        self._core.read_subscriptions()

    def rebalance(self, now: Moment) -> Effects:
        """Have the members of a stable group rejoin."""
        return self._fire(GroupEvent.MEMBER_LEFT, now)

    # --- questions --------------------------------------------------------------------------------------------------

    @property
    def group_id(self) -> str:
        return self._core.group_id

    @property
    def members(self) -> Membership:
        return self._core.members

    @property
    def state(self) -> GroupState:
        return self._core.state

    @property
    def state_timestamp_ms(self) -> int | None:
        return self._core.state_timestamp_ms

    @property
    def generation(self) -> int:
        return self._core.generation

    @property
    def protocol_type(self) -> str | None:
        return self._core.protocol_type

    @property
    def protocol(self) -> str | None:
        return self._core.protocol

    @property
    def subscribed_topics(self) -> frozenset[str] | None:
        return self._core.subscribed_topics

    @property
    def is_consumer_group(self) -> bool:
        return self._core.is_consumer_group

    def is_subscribed(self, topic: str) -> bool:
        """Return whether offsets of `topic` are in use; consumers with unreadable subscriptions may use any."""
        if self.subscribed_topics is None:
            return self.is_consumer_group
        return topic in self.subscribed_topics

    def metadata(self) -> GroupMetadata:
        """Return the group's current record."""
        return self._core.metadata()

    @property
    def next_deadline_ms(self) -> int | None:
        """A time (monotonic ms) no later than the next one at which `on_time` has something to do."""
        due = (self.members.next_deadline_ms, self._join.due_ms, self._sync.due_ms)
        return min((each for each in due if each is not None), default=None)

    def check_deletable(self) -> None:
        """Raise unless the group may be deleted: NonEmptyGroupError, GroupIdNotFoundError."""
        if self.state is GroupState.DEAD:
            raise GroupIdNotFoundError(f"Group {self.group_id} is in dead state.")
        if self.state is not GroupState.EMPTY:
            raise NonEmptyGroupError(f"Group {self.group_id} is not empty.")

    def check_offset_delete(self) -> None:
        """Raise unless single offsets may be deleted; consumer groups may have members."""
        if self.state is GroupState.DEAD or not self.is_consumer_group:
            self.check_deletable()

    @property
    def offsets_age_since(self) -> AgeSince:
        """The start of the retention of the group's offsets."""
        if self.protocol_type is None:
            return AgeSince.COMMIT
        if self.state is GroupState.EMPTY:
            return AgeSince.COMMIT if self.state_timestamp_ms is None else AgeSince.GROUP_EMPTY
        readable = self.is_consumer_group and self.subscribed_topics is not None
        return AgeSince.COMMIT if readable and self.state is GroupState.STABLE else AgeSince.NEVER

    # --- transitions --------------------------------------------------------------------------------------------------

    def _fire(self, event: GroupEvent, now: Moment, error: Answer = Answer.REBALANCE_IN_PROGRESS) -> Effects:
        """Carry out the table's move. `error` is for requests that it refuses."""
        action, to = MOVES[self.state, event]
        if to is not None:
            self._core.enter(to, now)
        return _ACTIONS[action](self, now, error)

    def _begin_initial_join(self, now: Moment) -> Effects:
        self._sync.stop()
        return self._end_join(now) if self._join.begin_initial(now) else []

    def _begin_join(self, now: Moment) -> Effects:
        self._sync.stop()
        return self._end_join(now) if self._join.begin(now) else []

    def _refuse_syncs_and_begin_join(self, now: Moment, error: Answer) -> Effects:
        return [*self._sync.refuse_all(error, now), *self._begin_join(now)]

    def _maybe_end_join(self, now: Moment) -> Effects:
        if self._core.previous is GroupState.EMPTY:
            return []
        return self._maybe_end_any_join(now)

    def _maybe_end_any_join(self, now: Moment) -> Effects:
        return self._end_join(now) if self.members.all_joined else []

    def _end_join(self, now: Moment) -> Effects:
        if not self._join.end(now):
            return []
        self._sync.stop()
        return self._fire(GroupEvent.JOINS_COMPLETE if len(self.members) else GroupEvent.MEMBERS_GONE, now)

    def _announce_generation(self, now: Moment) -> Effects:
        effects = self._join.announce(now)
        self._sync.begin(now)
        return effects

    def _refuse_all(self, error: Answer) -> Effects:
        effects: Effects = []
        for member in self.members:
            effects += self._join.refuse(member, error, member.member_id)
            effects += self._sync.refuse(member, error)
        self._join.stop()
        self._sync.stop()
        self._pending.clear()
        return effects

    # --- joining ------------------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, token: Token, now: Moment) -> Effects:
        """Add a member, or have it rejoin."""
        member_id = request.member_id
        if not self._join.has_room_for(member_id):
            refusal = JoinReply(token, Answer.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID)
            return [*self._remove(member_id), refusal, *self._fire(GroupEvent.MEMBER_REFUSED, now)]
        error = REFUSALS.get((self.state, GroupRequest.JOIN))
        if error is not None:
            return [JoinReply(token, error, member_id)]
        if not self._join.supports(request.protocol_type, request.protocols):
            return [JoinReply(token, Answer.INCONSISTENT_GROUP_PROTOCOL, member_id)]
        if member_id != UNKNOWN_MEMBER_ID:
            return self._join_known(request, token, now)
        if request.instance_id is not None:
            if self.members.static_member_id(request.instance_id) is not None:
                return self._replace(request, token, now)
        elif request.id_required:
            self.members.promise(request.new_member_id, now.monotonic_ms + request.session_timeout_ms)
            return [JoinReply(token, Answer.MEMBER_ID_REQUIRED, request.new_member_id)]
        return self._add(request, request.new_member_id, token, now)

    def _member_error(self, member_id: str, instance_id: str | None) -> Answer | None:
        try:
            self.members.check(member_id, instance_id)
        except KafkaError as error:
            return Answer(error.code)
        return None

    def _join_known(self, request: JoinRequest, token: Token, now: Moment) -> Effects:
        member_id = request.member_id
        if member_id in self.members.pending:
            return self._add(request, member_id, token, now)
        error = self._member_error(member_id, request.instance_id)
        if error is not None:
            return [JoinReply(token, error, member_id)]
        member = self.members[member_id]
        # A leader that rejoins asks for a rebalance: topics may have changed without a change of its subscription. A
        # leader that joins while others sync did not receive the response to its first join.
        asks_for_more = self.state is GroupState.STABLE and self.members.leader == member_id
        knows_generation = self.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
        if knows_generation and not asks_for_more and member.protocols == request.protocols:
            return [self._core.generation_reply(member, token)]
        return [*self._join.update(member, request, token), *self._fire(GroupEvent.MEMBER_JOINED, now)]

    def _add(self, request: JoinRequest, member_id: str, token: Token, now: Moment) -> Effects:
        self._join.add(request, member_id, token, now)
        return self._fire(GroupEvent.MEMBER_JOINED, now)

    def _replace(self, request: JoinRequest, token: Token, now: Moment) -> Effects:
        effects, pending = self._static.replace(request, token, now)
        if pending is None:
            # While completing, the leader may assign to the old id: only a new generation resolves that.
            return [*effects, *self._fire(GroupEvent.MEMBER_REPLACED, now)]
        self._pending.append(pending)
        return effects

    # --- assignments --------------------------------------------------------------------------------------------------

    def sync(self, request: SyncRequest, token: Token) -> Effects:
        """Answer a member's sync; the leader's request contains all assignments."""
        error = (
            REFUSALS.get((self.state, GroupRequest.SYNC))
            or self._member_error(request.member_id, request.instance_id)
            or self._sync.request_error(request)
        )
        if error is None and (self.state, GroupRequest.SYNC) in OUT_OF_STEP:
            error = Answer.REBALANCE_IN_PROGRESS
        if error is not None:
            return [SyncReply(token, error)]
        effects, pending = self._sync.sync(self.members[request.member_id], request, token)
        if pending is not None:
            self._pending.append(pending)
        return effects

    def stored(self, store: Store, now: Moment) -> Effects:
        """Handle that `store` is durable."""
        pending = self._take_pending(store)
        if isinstance(pending, PendingReplacement):
            return self._static.stored(pending)
        if pending is None or pending.generation != self.generation:
            return []  # a member has come or gone since: the next generation is in progress
        self._sync.stored(pending)
        return self._fire(GroupEvent.ASSIGNMENT_STORED, now)

    def store_failed(self, store: Store, error: Answer, now: Moment) -> Effects:
        """Handle that `store` could not be written; members get `error`."""
        pending = self._take_pending(store)
        if isinstance(pending, PendingReplacement):
            return self._static.store_failed(pending, error, now)
        if pending is None or pending.generation != self.generation:
            return []
        return self._fire(GroupEvent.ASSIGNMENT_LOST, now, error)

    def _take_pending(self, store: Store) -> PendingAssignment | PendingReplacement | None:
        for at, pending in enumerate(self._pending):
            if pending.store is store:
                return self._pending.pop(at)
        return None

    # --- heartbeats, commits ------------------------------------------------------------------------------------------

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: Moment) -> None:
        """Record that a member is alive.

        Raises the error of the response: RebalanceInProgressError asks it to rejoin.
        """
        self._check_alive(GroupRequest.HEARTBEAT)
        self._check_member(member_id, instance_id, generation)
        self._core.extend_session(self.members[member_id], now)
        self._check_in_step(GroupRequest.HEARTBEAT)

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now: Moment,
        *,
        transactional: bool = False,
    ) -> None:
        """Raise unless this member may commit offsets now; a commit extends the member's session.

        Without generation, member id and instance id the consumer manages its own partitions: it may commit while the
        group has no members. Transactional commits do not depend on the group's state.
        """
        self._check_alive(GroupRequest.COMMIT)
        if generation < 0 and self.state is GroupState.EMPTY:
            return
        if generation >= 0 or member_id or instance_id is not None:
            self._check_member(member_id, instance_id, generation)
        elif not transactional:
            raise UnknownMemberIdError(f"group {self.group_id} has members: only they may commit")
        if transactional:
            return
        self._check_in_step(GroupRequest.COMMIT)
        self._core.extend_session(self.members[member_id], now)

    def _check_alive(self, request: GroupRequest) -> None:
        if (self.state, request) in REFUSALS:
            raise CoordinatorNotAvailableError(f"group {self.group_id} is gone")

    def _check_member(self, member_id: str, instance_id: str | None, generation: int) -> None:
        self.members.check(member_id, instance_id)
        if generation != self.generation:
            raise IllegalGenerationError(f"group {self.group_id} is at generation {self.generation}, not {generation}")

    def _check_in_step(self, request: GroupRequest) -> None:
        """Raise if members have to join or sync before they may do this."""
        if (self.state, request) in OUT_OF_STEP:
            raise RebalanceInProgressError(f"group {self.group_id} is rebalancing")

    # --- leaving ------------------------------------------------------------------------------------------------------

    def leave(self, leaving: Iterable[LeavingMember], now: Moment) -> tuple[list[LeftMember], Effects]:
        """Remove members at their or an administrator's request; return the result of each, and the effects of all."""
        self._check_alive(GroupRequest.LEAVE)
        effects: Effects = []
        left: list[LeftMember] = []
        for request in leaving:
            error, gone = self._leave_one(request)
            effects += gone
            left.append(LeftMember(request.member_id, request.instance_id, error))
        if any(member.error is Answer.NONE for member in left):
            effects += self._fire(GroupEvent.MEMBER_LEFT, now)
        return left, effects

    def _leave_one(self, request: LeavingMember) -> tuple[Answer, Effects]:
        member_id = request.member_id
        if member_id in self.members.pending:
            self.members.remove(member_id)
            return Answer.NONE, []
        if member_id == UNKNOWN_MEMBER_ID:
            known = None if request.instance_id is None else self.members.static_member_id(request.instance_id)
            return (Answer.UNKNOWN_MEMBER_ID, []) if known is None else (Answer.NONE, self._remove(known))
        error = self._member_error(member_id, request.instance_id)
        return (Answer.NONE, self._remove(member_id)) if error is None else (error, [])

    def _remove(self, member_id: str) -> Effects:
        """Remove a member. Its parked request, if any, is answered with a request to rejoin."""
        self._sync.removed(member_id)
        member = self.members.remove(member_id)
        if member is None:
            return []
        return [*self._join.refuse_removed(member), *self._sync.refuse(member, Answer.UNKNOWN_MEMBER_ID)]

    # --- time ---------------------------------------------------------------------------------------------------------

    def on_time(self, now: Moment) -> Effects:
        """Handle what is due: expired sessions, and overdue joins and syncs."""
        effects: Effects = []
        for member_id, due_ms in list(self.members.pending.items()):
            if due_ms <= now.monotonic_ms:
                self.members.remove(member_id)
                effects += self._fire(GroupEvent.ID_EXPIRED, now)
        for member in self.members:
            if member.member_id in self.members and member.session_deadline_ms <= now.monotonic_ms:
                effects += self._session_over(member, now)
        if self._join.is_over(now):
            effects += self._end_join(now)
        missed = self._sync.missed(now)
        if missed:
            for member_id in missed:
                effects += self._remove(member_id)
            effects += self._fire(GroupEvent.SYNCS_MISSED, now)
        self.members.review_deadlines()
        return effects

    def _session_over(self, member: Member, now: Moment) -> Effects:
        if member.outlives_session:
            self._core.extend_session(member, now)  # checked again later; the response to its request also extends it
            return []
        return [*self._remove(member.member_id), *self._fire(GroupEvent.MEMBER_EXPIRED, now)]

    # --- life ---------------------------------------------------------------------------------------------------------

    def shrink_to_limit(self, now: Moment) -> Effects:
        """After loading: a group above the limit rebalances, and the last members to rejoin are refused."""
        if len(self.members) <= self._core.settings.members_max:
            return []
        return self._fire(GroupEvent.LIMIT_EXCEEDED, now)

    def die(self, error: Answer, now: Moment) -> Effects:
        """Remove the group from this broker; waiting requests get `error`."""
        return self._fire(GroupEvent.REMOVED, now, error)


_ACTIONS: dict[GroupAction, Callable[[ClassicGroup, Moment, Answer], Effects]] = {
    GroupAction.NOTHING: lambda _group, _now, _error: [],
    GroupAction.BEGIN_INITIAL_JOIN: lambda group, now, _: group._begin_initial_join(now),
    GroupAction.BEGIN_JOIN: lambda group, now, _: group._begin_join(now),
    GroupAction.REFUSE_SYNCS_AND_BEGIN_JOIN: lambda group, now, error: group._refuse_syncs_and_begin_join(now, error),
    GroupAction.MAYBE_END_JOIN: lambda group, now, _: group._maybe_end_join(now),
    GroupAction.MAYBE_END_ANY_JOIN: lambda group, now, _: group._maybe_end_any_join(now),
    GroupAction.ANNOUNCE_GENERATION: lambda group, now, _: group._announce_generation(now),
    GroupAction.STORE_AS_EMPTY: lambda group, _now, _error: [Store(group._core.metadata())],
    GroupAction.ASSIGN: lambda group, now, _: group._sync.assign(now),
    GroupAction.REFUSE_ALL: lambda group, _, error: group._refuse_all(error),
}
