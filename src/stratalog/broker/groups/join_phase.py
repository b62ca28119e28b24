"""The join phase of a rebalance: which members are admitted, how long it waits, and when it ends."""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.broker.groups.core import GroupCore
from stratalog.broker.groups.member import Member
from stratalog.broker.groups.state import GroupState
from stratalog.broker.groups.values import (
    UNKNOWN_MEMBER_ID,
    Answer,
    Effects,
    JoinReply,
    JoinRequest,
    Moment,
    Protocol,
    Token,
)


@dataclass(frozen=True, slots=True)
class _JoinDeadline:
    """The end of the join phase. `initial`: a new group may wait `remaining_ms` longer if a member joined since."""

    due_ms: int
    initial: bool = False
    delay_ms: int = 0
    remaining_ms: int = 0


class JoinPhase:
    """Parks joins and tracks the deadline. `ClassicGroup` decides when the group moves on."""

    def __init__(self, core: GroupCore) -> None:
        self._core = core
        self._newcomers = False
        self._deadline: _JoinDeadline | None = None

    def has_room_for(self, member_id: str) -> bool:
        core = self._core
        members, limit = core.members, core.settings.members_max
        if core.state is GroupState.PREPARING_REBALANCE:
            # Counted by parked joins: if the limit was lowered, the last to rejoin are refused.
            member = members.get(member_id)
            return (member is not None and member.awaiting_join is not None) or members.joined < limit
        if core.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return member_id in members or len(members) < limit
        return True

    def supports(self, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
        """Return whether a client with these protocols is compatible with the group's members."""
        core = self._core
        if core.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return protocol_type == core.protocol_type and core.members.can_share(protocols)

    def add(self, request: JoinRequest, member_id: str, token: Token, now: Moment) -> None:
        """Add a new member; its join is parked."""
        core = self._core
        if core.state is GroupState.PREPARING_REBALANCE and core.previous is GroupState.EMPTY:
            self._newcomers = True
        if not len(core.members):
            core.protocol_type = request.protocol_type
        core.members.add(
            Member(
                member_id=member_id,
                instance_id=request.instance_id,
                client_id=request.client_id,
                client_host=request.client_host,
                rebalance_timeout_ms=request.rebalance_timeout_ms,
                session_timeout_ms=request.session_timeout_ms,
                protocols=request.protocols,
                session_deadline_ms=now.monotonic_ms + core.settings.new_member_timeout_ms,
                awaiting_join=token,
                is_new=True,
            )
        )

    def update(self, member: Member, request: JoinRequest, token: Token) -> Effects:
        """Have a member rejoin; its join is parked."""
        effects: Effects = []
        if member.awaiting_join is not None:  # the client sent another request on another connection
            effects.append(JoinReply(member.awaiting_join, Answer.REBALANCE_IN_PROGRESS, member.member_id))
        members = self._core.members
        members.change(member, request.protocols, request.rebalance_timeout_ms)
        member.session_timeout_ms = request.session_timeout_ms
        members.park_join(member, token)
        return effects

    def refuse(self, member: Member, error: Answer, member_id: str) -> Effects:
        """Answer the member's parked join, if any."""
        token = self._core.members.unpark_join(member)
        return [] if token is None else [JoinReply(token, error, member_id)]

    def refuse_removed(self, member: Member) -> Effects:
        """Answer a removed member's join with a request to join as a new member."""
        if member.awaiting_join is None:
            return []
        return [JoinReply(member.awaiting_join, Answer.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID)]

    @property
    def due_ms(self) -> int | None:
        return None if self._deadline is None else self._deadline.due_ms

    def begin(self, now: Moment) -> bool:
        """Start waiting for members; return whether all have joined already."""
        if self._core.members.all_joined:
            return True
        self._wait(now)
        return False

    def _wait(self, now: Moment) -> None:
        self._deadline = _JoinDeadline(now.monotonic_ms + self._core.members.rebalance_timeout_ms)

    def begin_initial(self, now: Moment) -> bool:
        """Start waiting for members of a new group; return whether the delay is 0."""
        delay_ms = self._core.settings.initial_rebalance_delay_ms
        remaining_ms = max(self._core.members.rebalance_timeout_ms - delay_ms, 0)
        self._newcomers = False
        self._deadline = _JoinDeadline(now.monotonic_ms + delay_ms, True, delay_ms, remaining_ms)
        return delay_ms == 0

    def is_over(self, now: Moment) -> bool:
        """Return whether the deadline has passed; an initial delay is extended while members join."""
        deadline = self._deadline
        if deadline is None or deadline.due_ms > now.monotonic_ms:
            return False
        if not (deadline.initial and self._newcomers and deadline.remaining_ms):
            return True
        self._newcomers = False
        delay_ms = min(self._core.settings.initial_rebalance_delay_ms, deadline.remaining_ms)
        remaining_ms = max(deadline.remaining_ms - deadline.delay_ms, 0)
        self._deadline = _JoinDeadline(now.monotonic_ms + delay_ms, True, delay_ms, remaining_ms)
        return False

    def stop(self) -> None:
        self._deadline = None

    def end(self, now: Moment) -> bool:
        """End the phase and elect the protocol. Return False if no member joined but static members are left."""
        core, members = self._core, self._core.members
        self._deadline = None
        for member in members:
            if member.awaiting_join is None and member.instance_id is None:
                members.remove(member.member_id)
        if len(members) and not members.elect_joined_leader():
            self._wait(now)  # until one rejoins, or their sessions expire
            return False
        core.generation += 1
        core.protocol = members.elected_protocol() if len(members) else None
        core.read_subscriptions()
        return True

    def announce(self, now: Moment) -> Effects:
        """Answer all parked joins with the new generation."""
        core = self._core
        effects: Effects = []
        for member in core.members:
            token = core.members.unpark_join(member)
            if token is not None:
                effects.append(core.generation_reply(member, token))
            core.extend_session(member, now)
            member.is_new = False
        return effects
