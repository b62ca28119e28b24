"""A classic consumer group as a pure state machine.

Events are method calls with the time handed in; they return the effects to carry out, in order (`values.Effect`). The
machine does no I/O, starts no timer and holds no clock: the caller asks for `next_deadline_ms` and calls `on_time` when
it has come. The rules are those of Apache Kafka's classic group protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup).

A rebalance in short: a join moves the group to PREPARING_REBALANCE, where joins are parked; when all members have
joined again, or the longest rebalance timeout is over, the generation goes up by one and every parked join is answered
(COMPLETING_REBALANCE); the leader's sync brings the assignments, which are stored, and only then is every parked sync
answered (STABLE).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from stratalog.broker.groups.member import Member
from stratalog.broker.groups.membership import Membership
from stratalog.broker.groups.state import PREVIOUS_STATES, GroupState
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


@dataclass(frozen=True, slots=True)
class _JoinDeadline:
    """When the join phase ends. `initial`: a new group may wait `remaining_ms` longer if someone came meanwhile."""

    due_ms: int
    initial: bool = False
    delay_ms: int = 0
    remaining_ms: int = 0


@dataclass(frozen=True, slots=True)
class _PendingAssignment:
    """The leader's assignments, being stored."""

    store: Store
    generation: int
    assignments: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class _PendingStatic:
    """A static member that came back under another id, being stored; `before` is it as it was."""

    store: Store
    member_id: str
    before: Member
    leader_before: str | None
    can_skip_assignment: bool


class ClassicGroup:
    """One group. Not thread-safe.

    Invariants: a member with a parked join exists only while PREPARING_REBALANCE (or while its static identity is being
    stored); a generation has one leader; the generation never goes down; a token is answered exactly once.
    """

    def __init__(self, group_id: str, settings: GroupSettings, now: Moment) -> None:
        self.group_id = group_id
        self.members = Membership()
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.state_timestamp_ms: int | None = now.wall_ms
        #: Topics that its consumers subscribe to, where the coordinator can read that.
        self.subscribed_topics: frozenset[str] | None = None
        self._settings = settings
        self._previous = GroupState.DEAD
        self._newcomers = False
        self._pending_sync: set[str] = set()
        self._join_deadline: _JoinDeadline | None = None
        self._sync_deadline_ms: int | None = None
        self._pending: list[_PendingAssignment | _PendingStatic] = []

    @classmethod
    def load(cls, group_id: str, stored: GroupMetadata, settings: GroupSettings, now: Moment) -> ClassicGroup:
        """The group as it was stored; its members get a full session timeout to show themselves."""
        group = cls(group_id, settings, now)
        group.generation = stored.generation
        group.protocol_type = stored.protocol_type or None
        group.protocol = stored.protocol
        group.state_timestamp_ms = None if stored.state_timestamp_ms == -1 else stored.state_timestamp_ms
        for member in stored.members:
            rebalance_timeout_ms = member.rebalance_timeout_ms
            group.members.add(
                Member(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.session_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
                    member.session_timeout_ms,
                    (Protocol(stored.protocol or "", member.subscription),),
                    now.monotonic_ms + member.session_timeout_ms,
                    assignment=member.assignment,
                )
            )
        if stored.members:
            group.state = GroupState.STABLE
            if stored.leader in group.members:
                group.members.leader = stored.leader
        group._read_subscriptions()
        return group

    # --- questions --------------------------------------------------------------------------------------------------

    @property
    def is_consumer_group(self) -> bool:
        """Whether members speak the consumer's own protocol, so that subscriptions can be read."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed(self, topic: str) -> bool:
        """Whether offsets of `topic` are in use; consumers whose subscription cannot be read may use any."""
        if self.subscribed_topics is None:
            return self.is_consumer_group
        return topic in self.subscribed_topics

    def metadata(self, assignments: dict[str, bytes] | None = None) -> GroupMetadata:
        """What to store of the group now, with these assignments or the members' own."""
        return GroupMetadata(
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.members.leader,
            -1 if self.state_timestamp_ms is None else self.state_timestamp_ms,
            tuple(
                member.stored(
                    self.protocol,
                    member.assignment if assignments is None else assignments.get(member.member_id, b""),
                )
                for member in self.members
            ),
        )

    @property
    def next_deadline_ms(self) -> int | None:
        """When (monotonic ms) `on_time` may have something to do, unless events come first; never later than it has."""
        join_ms = None if self._join_deadline is None else self._join_deadline.due_ms
        due = (self.members.next_deadline_ms, join_ms, self._sync_deadline_ms)
        return min((each for each in due if each is not None), default=None)

    def check_deletable(self) -> None:
        """Raise unless the group may be deleted: NonEmptyGroupError, GroupIdNotFoundError."""
        if self.state is GroupState.DEAD:
            raise GroupIdNotFoundError(f"Group {self.group_id} is in dead state.")
        if self.state is not GroupState.EMPTY:
            raise NonEmptyGroupError(f"Group {self.group_id} is not empty.")

    def check_offset_delete(self) -> None:
        """Raise unless single offsets may be deleted; consumers' groups may have members."""
        if self.state is GroupState.DEAD:
            raise GroupIdNotFoundError(f"Group {self.group_id} is in dead state.")
        if self.state is not GroupState.EMPTY and not self.is_consumer_group:
            raise NonEmptyGroupError(f"Group {self.group_id} is not empty.")

    @property
    def offsets_age_since(self) -> AgeSince:
        """From when the offsets of the group grow old."""
        if self.protocol_type is None:
            return AgeSince.COMMIT
        if self.state is GroupState.EMPTY:
            return AgeSince.COMMIT if self.state_timestamp_ms is None else AgeSince.GROUP_EMPTY
        readable = self.is_consumer_group and self.subscribed_topics is not None
        return AgeSince.COMMIT if readable and self.state is GroupState.STABLE else AgeSince.NEVER

    # --- join ---------------------------------------------------------------------------------------------------------

    def join(self, request: JoinRequest, token: Token, now: Moment) -> Effects:
        """A member wants in, or back in."""
        if not self._has_room_for(request.member_id):
            refusal = JoinReply(token, Answer.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID)
            return [*self._remove(request.member_id), refusal, *self._maybe_complete_join(now)]
        if self.state is GroupState.DEAD:
            return [JoinReply(token, Answer.COORDINATOR_NOT_AVAILABLE, request.member_id)]
        if not self._supports(request.protocol_type, request.protocols):
            return [JoinReply(token, Answer.INCONSISTENT_GROUP_PROTOCOL, request.member_id)]
        if request.member_id != UNKNOWN_MEMBER_ID:
            return self._join_known(request, token, now)
        if request.instance_id is not None:
            if self.members.static_member_id(request.instance_id) is not None:
                return self._replace_static(request, token, now)
            return self._add_member(request, request.new_member_id, token, now)
        if request.id_required:
            self.members.promise(request.new_member_id, now.monotonic_ms + request.session_timeout_ms)
            return [JoinReply(token, Answer.MEMBER_ID_REQUIRED, request.new_member_id)]
        return self._add_member(request, request.new_member_id, token, now)

    def _has_room_for(self, member_id: str) -> bool:
        limit = self._settings.members_max
        if self.state is GroupState.PREPARING_REBALANCE:
            # Counted by parked joins: if the limit went down, the last to come back are the ones to go.
            member = self.members.get(member_id)
            return (member is not None and member.awaiting_join is not None) or self.members.joined < limit
        if self.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return member_id in self.members or len(self.members) < limit
        return True

    def _supports(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == self.protocol_type and self.members.can_share(protocols)

    def _join_known(self, request: JoinRequest, token: Token, now: Moment) -> Effects:
        member_id = request.member_id
        if member_id in self.members.pending:
            return self._add_member(request, member_id, token, now)
        try:
            self.members.check(member_id, request.instance_id)
        except KafkaError as error:
            return [JoinReply(token, Answer(error.code), member_id)]
        member = self.members[member_id]
        if self.state is GroupState.EMPTY:
            return [JoinReply(token, Answer.UNKNOWN_MEMBER_ID, member_id)]
        unchanged = member.protocols == request.protocols
        is_leader = self.members.leader == member_id
        if self.state is GroupState.COMPLETING_REBALANCE and unchanged:
            # It did not get the answer to its first join: tell it again.
            return [self._generation_reply(member, token)]
        if self.state is GroupState.STABLE and unchanged and not is_leader:
            return [self._generation_reply(member, token)]
        # A leader that joins again asks for a rebalance: topics may have changed, though its subscription did not.
        return [*self._update_member(member, request, token), *self._rebalance(now)]

    def _add_member(self, request: JoinRequest, member_id: str, token: Token, now: Moment) -> Effects:
        if self.state is GroupState.PREPARING_REBALANCE and self._previous is GroupState.EMPTY:
            self._newcomers = True
        if not len(self.members):
            self.protocol_type = request.protocol_type
        self.members.add(
            Member(
                member_id,
                request.instance_id,
                request.client_id,
                request.client_host,
                request.rebalance_timeout_ms,
                request.session_timeout_ms,
                request.protocols,
                now.monotonic_ms + self._settings.new_member_timeout_ms,
                awaiting_join=token,
                is_new=True,
            )
        )
        return self._rebalance(now)

    def _update_member(self, member: Member, request: JoinRequest, token: Token) -> Effects:
        effects: Effects = []
        if member.awaiting_join is not None:  # the client asked again on another connection
            effects.append(JoinReply(member.awaiting_join, Answer.REBALANCE_IN_PROGRESS, member.member_id))
        self.members.change(member, request.protocols, request.rebalance_timeout_ms)
        member.session_timeout_ms = request.session_timeout_ms
        self.members.park_join(member, token)
        return effects

    def _generation_reply(self, member: Member, token: Token) -> JoinReply:
        """The current generation as `member` may see it."""
        is_leader = self.members.leader == member.member_id
        return JoinReply(
            token,
            Answer.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.members.leader or "",
            self.members.seen_by_leader(self.protocol) if is_leader else (),
        )

    # --- static members -----------------------------------------------------------------------------------------------

    def _replace_static(self, request: JoinRequest, token: Token, now: Moment) -> Effects:
        """A static member came back without its id: it goes on under a new one, and the old one is fenced."""
        instance_id = request.instance_id
        assert instance_id is not None
        leader_before = self.members.leader
        old_id = self.members.static_member_id(instance_id)
        assert old_id is not None
        effects = self._fence(self.members[old_id])
        before = replace(self.members[old_id])
        member = self.members.rename_static(instance_id, request.new_member_id)
        if old_id in self._pending_sync:
            self._pending_sync.remove(old_id)
            self._pending_sync.add(member.member_id)
        self._extend_session(member, now)
        member.is_new = False
        effects += self._update_member(member, request, token)
        if self.state is GroupState.STABLE and self.members.elected_protocol() == self.protocol:
            # Nothing changes for the others, so there is no rebalance: the new id is stored and the member goes on.
            store = Store(self.metadata())
            self._pending.append(
                _PendingStatic(store, member.member_id, before, leader_before, request.can_skip_assignment)
            )
            return [*effects, store]
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            # While completing, the leader may be assigning to the old id: only a new generation mends that.
            return effects + self._prepare_rebalance(now)
        return effects + self._maybe_complete_join(now)

    def _fence(self, member: Member) -> Effects:
        effects: Effects = []
        token = self.members.unpark_join(member)
        if token is not None:
            effects.append(JoinReply(token, Answer.FENCED_INSTANCE_ID, member.member_id))
        if member.awaiting_sync is not None:
            effects.append(SyncReply(member.awaiting_sync, Answer.FENCED_INSTANCE_ID))
            member.awaiting_sync = None
        return effects

    def _static_stored(self, pending: _PendingStatic) -> Effects:
        member = self.members.get(pending.member_id)
        if member is None or member.awaiting_join is None or self.state is not GroupState.STABLE:
            return []  # it left, or a rebalance began that will answer it
        token = self.members.unpark_join(member)
        reply = self._generation_reply(member, token)
        if pending.can_skip_assignment:
            return [replace(reply, skip_assignment=self.members.leader == member.member_id)]
        # An older client would run its assignor if it saw itself as leader: it is shown the leader of before.
        return [replace(reply, leader=pending.leader_before or "", members=())]

    def _static_store_failed(self, pending: _PendingStatic, error: Answer, now: Moment) -> Effects:
        member = self.members.get(pending.member_id)
        before = pending.before
        if member is None or member.awaiting_join is None or before.instance_id is None:
            return []  # it left, or a rebalance has answered it under its new id
        token = self.members.unpark_join(member)
        self.members.rename_static(before.instance_id, before.member_id)
        self.members.change(member, before.protocols, before.rebalance_timeout_ms)
        member.session_timeout_ms = before.session_timeout_ms
        self._extend_session(member, now)
        return [
            JoinReply(
                token,
                error,
                UNKNOWN_MEMBER_ID,
                self.generation,
                self.protocol_type,
                self.protocol,
                pending.leader_before or "",
            )
        ]

    # --- the join phase -----------------------------------------------------------------------------------------------

    def _rebalance(self, now: Moment) -> Effects:
        """Begin a rebalance, or when one is on, see whether the join phase is over."""
        if self.state in PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]:
            return self._prepare_rebalance(now)
        return self._maybe_complete_join(now)

    def _prepare_rebalance(self, now: Moment) -> Effects:
        effects: Effects = []
        if self.state is GroupState.COMPLETING_REBALANCE:
            effects += self._reset_assignments(Answer.REBALANCE_IN_PROGRESS, now)
        self._pending_sync.clear()
        self._sync_deadline_ms = None
        is_initial = self.state is GroupState.EMPTY
        self._enter(GroupState.PREPARING_REBALANCE, now)
        if is_initial:
            delay_ms = self._settings.initial_rebalance_delay_ms
            remaining_ms = max(self.members.rebalance_timeout_ms - delay_ms, 0)
            self._newcomers = False
            self._join_deadline = _JoinDeadline(now.monotonic_ms + delay_ms, True, delay_ms, remaining_ms)
            return effects + (self._end_initial_delay(now) if delay_ms == 0 else [])
        if self.members.all_joined:
            return effects + self._complete_join(now)
        self._join_deadline = _JoinDeadline(now.monotonic_ms + self.members.rebalance_timeout_ms)
        return effects

    def _maybe_complete_join(self, now: Moment) -> Effects:
        """End the join phase if all are there; the first rebalance of a group always lasts out its delay."""
        if (
            self.state is GroupState.PREPARING_REBALANCE
            and self._previous is not GroupState.EMPTY
            and self.members.all_joined
        ):
            return self._complete_join(now)
        return []

    def _end_initial_delay(self, now: Moment) -> Effects:
        deadline = self._join_deadline
        assert deadline is not None
        if self._newcomers and deadline.remaining_ms:
            self._newcomers = False
            delay_ms = min(self._settings.initial_rebalance_delay_ms, deadline.remaining_ms)
            remaining_ms = max(deadline.remaining_ms - deadline.delay_ms, 0)
            self._join_deadline = _JoinDeadline(now.monotonic_ms + delay_ms, True, delay_ms, remaining_ms)
            return []
        return self._complete_join(now)

    def _complete_join(self, now: Moment) -> Effects:
        """Go on with those who joined: a new generation, or an empty group."""
        self._join_deadline = None
        for member in self.members:
            if member.awaiting_join is None and member.instance_id is None:
                self.members.remove(member.member_id)
        if len(self.members) and not self.members.elect_joined_leader():
            # Only static members, and none is back: wait for them, or for their sessions to end.
            self._join_deadline = _JoinDeadline(now.monotonic_ms + self.members.rebalance_timeout_ms)
            return []
        self.generation += 1
        self._pending_sync.clear()
        if not len(self.members):
            self.protocol = None
            self._read_subscriptions()
            self._enter(GroupState.EMPTY, now)
            return [Store(self.metadata())]
        self.protocol = self.members.elected_protocol()
        self._read_subscriptions()
        self._enter(GroupState.COMPLETING_REBALANCE, now)
        return self._announce_generation(now)

    def _announce_generation(self, now: Moment) -> Effects:
        effects: Effects = []
        for member in self.members:
            token = self.members.unpark_join(member)
            if token is not None:
                effects.append(self._generation_reply(member, token))
            self._extend_session(member, now)
            member.is_new = False
            self._pending_sync.add(member.member_id)
        self._sync_deadline_ms = now.monotonic_ms + self.members.rebalance_timeout_ms
        return effects

    def _read_subscriptions(self) -> None:
        readable = self.is_consumer_group and (self.protocol is not None or not len(self.members))
        self.subscribed_topics = self.members.subscribed_topics(self.protocol) if readable else None

    # --- sync ---------------------------------------------------------------------------------------------------------

    def sync(self, request: SyncRequest, token: Token) -> Effects:
        """A member asks for its assignment; the leader's request brings everybody's."""
        error = self._sync_error(request)
        if error is not None:
            return [SyncReply(token, error)]
        member = self.members[request.member_id]
        self._pending_sync.discard(member.member_id)
        if not self._pending_sync:
            self._sync_deadline_ms = None
        if self.state is GroupState.STABLE:
            return [self._assignment_reply(member, token)]
        effects: Effects = []
        if member.awaiting_sync is not None:  # the client asked again on another connection
            effects.append(SyncReply(member.awaiting_sync, Answer.REBALANCE_IN_PROGRESS))
        member.awaiting_sync = token
        if self.members.leader == member.member_id:
            given = dict(request.assignments)
            assignments = {known.member_id: given.get(known.member_id, b"") for known in self.members}
            store = Store(self.metadata(assignments))
            self._pending.append(_PendingAssignment(store, self.generation, assignments))
            effects.append(store)
        return effects

    def _sync_error(self, request: SyncRequest) -> Answer | None:
        if self.state is GroupState.DEAD:
            return Answer.COORDINATOR_NOT_AVAILABLE
        if self.state is GroupState.EMPTY:
            return Answer.UNKNOWN_MEMBER_ID
        try:
            self.members.check(request.member_id, request.instance_id)
        except KafkaError as error:
            return Answer(error.code)
        if request.generation != self.generation:
            return Answer.ILLEGAL_GENERATION
        if request.protocol_type not in (None, self.protocol_type) or (
            self.protocol is not None and request.protocol_name not in (None, self.protocol)
        ):
            return Answer.INCONSISTENT_GROUP_PROTOCOL
        if self.state is GroupState.PREPARING_REBALANCE:
            return Answer.REBALANCE_IN_PROGRESS
        return None

    def _assignment_reply(self, member: Member, token: Token) -> SyncReply:
        return SyncReply(token, Answer.NONE, self.protocol_type, self.protocol, member.assignment)

    def _reset_assignments(self, error: Answer, now: Moment) -> Effects:
        effects: Effects = []
        for member in self.members:
            member.assignment = b""
            if member.awaiting_sync is not None:
                effects.append(SyncReply(member.awaiting_sync, error))
                member.awaiting_sync = None
                self._extend_session(member, now)
        return effects

    # --- storing ------------------------------------------------------------------------------------------------------

    def stored(self, store: Store, now: Moment) -> Effects:
        """What `store` asked for is durable."""
        pending = self._take_pending(store)
        if isinstance(pending, _PendingAssignment):
            return self._assignment_stored(pending, now)
        return [] if pending is None else self._static_stored(pending)

    def store_failed(self, store: Store, error: Answer, now: Moment) -> Effects:
        """What `store` asked for could not be written; `error` is what members are told."""
        pending = self._take_pending(store)
        if isinstance(pending, _PendingAssignment):
            if not self._is_current(pending):
                return []
            return [*self._reset_assignments(error, now), *self._rebalance(now)]
        return [] if pending is None else self._static_store_failed(pending, error, now)

    def _take_pending(self, store: Store) -> _PendingAssignment | _PendingStatic | None:
        for at, pending in enumerate(self._pending):
            if pending.store is store:
                return self._pending.pop(at)
        return None

    def _is_current(self, pending: _PendingAssignment) -> bool:
        return self.state is GroupState.COMPLETING_REBALANCE and pending.generation == self.generation

    def _assignment_stored(self, pending: _PendingAssignment, now: Moment) -> Effects:
        if not self._is_current(pending):
            return []  # a member came or went meanwhile: a new generation is under way
        effects: Effects = []
        for member in self.members:
            member.assignment = pending.assignments.get(member.member_id, b"")
            if member.awaiting_sync is not None:
                effects.append(self._assignment_reply(member, member.awaiting_sync))
                member.awaiting_sync = None
                self._extend_session(member, now)
        self._enter(GroupState.STABLE, now)
        return effects

    # --- heartbeats, commits, leaving ---------------------------------------------------------------------------------

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now: Moment) -> None:
        """A member is alive. Raises what it has to be told: RebalanceInProgressError asks it to join again."""
        self._check_member(member_id, instance_id, generation)
        if self.state is GroupState.EMPTY:
            raise UnknownMemberIdError(f"group {self.group_id} is empty")
        self._extend_session(self.members[member_id], now)
        if self.state is GroupState.PREPARING_REBALANCE:
            raise RebalanceInProgressError(f"group {self.group_id} is rebalancing")

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now: Moment,
        *,
        transactional: bool = False,
    ) -> None:
        """Raise unless these may commit offsets now; a commit keeps the session of a member alive.

        Without generation, member id and instance id it is a consumer that manages its own partitions: it may commit as
        long as the group has no members. Transactional commits are not held to the state of the group.
        """
        if self.state is GroupState.DEAD:
            raise CoordinatorNotAvailableError(f"group {self.group_id} is gone")
        if generation < 0 and self.state is GroupState.EMPTY:
            return
        if generation >= 0 or member_id or instance_id is not None:
            self._check_member(member_id, instance_id, generation)
        elif transactional:
            return
        else:
            raise UnknownMemberIdError(f"group {self.group_id} has members: only they may commit")
        if transactional:
            return
        if self.state is GroupState.COMPLETING_REBALANCE:
            raise RebalanceInProgressError(f"group {self.group_id} is rebalancing")
        self._extend_session(self.members[member_id], now)

    def _check_member(self, member_id: str, instance_id: str | None, generation: int) -> None:
        if self.state is GroupState.DEAD:
            raise CoordinatorNotAvailableError(f"group {self.group_id} is gone")
        self.members.check(member_id, instance_id)
        if generation != self.generation:
            raise IllegalGenerationError(f"group {self.group_id} is at generation {self.generation}, not {generation}")

    def _extend_session(self, member: Member, now: Moment) -> None:
        self.members.extend_session(member, now.monotonic_ms + member.session_timeout_ms)

    def leave(self, leaving: Iterable[LeavingMember], now: Moment) -> tuple[list[LeftMember], Effects]:
        """Members go by their own wish, or an administrator's; each one's fate, and the effects of all together."""
        if self.state is GroupState.DEAD:
            raise CoordinatorNotAvailableError(f"group {self.group_id} is gone")
        effects: Effects = []
        left: list[LeftMember] = []
        for request in leaving:
            error, gone = self._leave_one(request)
            effects += gone
            left.append(LeftMember(request.member_id, request.instance_id, error))
        if any(member.error is Answer.NONE for member in left):
            effects += self._members_left(now)
        return left, effects

    def _leave_one(self, request: LeavingMember) -> tuple[Answer, Effects]:
        member_id = request.member_id
        if member_id in self.members.pending:
            self.members.remove(member_id)
            return Answer.NONE, []
        if member_id == UNKNOWN_MEMBER_ID:
            known = None if request.instance_id is None else self.members.static_member_id(request.instance_id)
            if known is None:
                return Answer.UNKNOWN_MEMBER_ID, []
            return Answer.NONE, self._remove(known)
        try:
            self.members.check(member_id, request.instance_id)
        except KafkaError as error:
            return Answer(error.code), []
        return Answer.NONE, self._remove(member_id)

    def _remove(self, member_id: str) -> Effects:
        """Take a member out. Whoever waits for an answer is told to join afresh."""
        self._pending_sync.discard(member_id)
        member = self.members.remove(member_id)
        effects: Effects = []
        if member is not None and member.awaiting_join is not None:
            effects.append(JoinReply(member.awaiting_join, Answer.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID))
        if member is not None and member.awaiting_sync is not None:
            effects.append(SyncReply(member.awaiting_sync, Answer.UNKNOWN_MEMBER_ID))
        return effects

    def _members_left(self, now: Moment) -> Effects:
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            return self._prepare_rebalance(now)
        return self._maybe_complete_join(now)

    # --- time ---------------------------------------------------------------------------------------------------------

    def on_time(self, now: Moment) -> Effects:
        """Do what is due: end sessions, give up on joins and syncs that do not come."""
        effects: Effects = []
        for member_id, due_ms in list(self.members.pending.items()):
            if due_ms <= now.monotonic_ms:
                self.members.remove(member_id)
                effects += self._joiner_gone(now)
        for member in self.members:
            if member.member_id in self.members and member.session_deadline_ms <= now.monotonic_ms:
                effects += self._session_over(member, now)
        if self._join_deadline is not None and self._join_deadline.due_ms <= now.monotonic_ms:
            effects += self._end_initial_delay(now) if self._join_deadline.initial else self._complete_join(now)
        if self._sync_deadline_ms is not None and self._sync_deadline_ms <= now.monotonic_ms:
            effects += self._syncs_missing(now)
        self.members.review_deadlines()
        return effects

    def _session_over(self, member: Member, now: Moment) -> Effects:
        if member.outlives_session:
            self._extend_session(member, now)  # looked at again; the answer to its request also extends it
            return []
        effects = self._remove(member.member_id)
        if self.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            return effects + self._prepare_rebalance(now)
        return effects + self._joiner_gone(now)

    def _joiner_gone(self, now: Moment) -> Effects:
        """Someone whom the join phase waited for is gone: it may be complete now."""
        if self.state is GroupState.PREPARING_REBALANCE and self.members.all_joined:
            return self._complete_join(now)
        return []

    def _syncs_missing(self, now: Moment) -> Effects:
        self._sync_deadline_ms = None
        if not self._pending_sync or self.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return []
        effects: Effects = []
        for member_id in sorted(self._pending_sync):
            effects += self._remove(member_id)
        return effects + self._prepare_rebalance(now)

    # --- life ---------------------------------------------------------------------------------------------------------

    def shrink_to_limit(self, now: Moment) -> Effects:
        """After loading: a group larger than the limit rebalances, and the last to come back are refused."""
        if self.state is GroupState.STABLE and len(self.members) > self._settings.members_max:
            return self._prepare_rebalance(now)
        return []

    def die(self, error: Answer, now: Moment) -> Effects:
        """The group is gone from here; everybody who waits is told `error`."""
        effects: Effects = []
        for member in self.members:
            token = self.members.unpark_join(member)
            if token is not None:
                effects.append(JoinReply(token, error, member.member_id))
            if member.awaiting_sync is not None:
                effects.append(SyncReply(member.awaiting_sync, error))
                member.awaiting_sync = None
        self._enter(GroupState.DEAD, now)
        self._join_deadline = None
        self._sync_deadline_ms = None
        self._pending.clear()
        return effects

    def _enter(self, state: GroupState, now: Moment) -> None:
        assert self.state in PREVIOUS_STATES[state], f"{self.group_id}: {self.state} to {state}"
        self._previous = self.state
        self.state = state
        self.state_timestamp_ms = now.wall_ms
