"""Replace static members that rejoin under a new id, often without a rebalance."""

from __future__ import annotations

from dataclasses import dataclass, replace

from stratalog.broker.groups.core import GroupCore
from stratalog.broker.groups.join_phase import JoinPhase
from stratalog.broker.groups.member import Member
from stratalog.broker.groups.state import GroupState
from stratalog.broker.groups.sync_phase import SyncPhase
from stratalog.broker.groups.values import (
    UNKNOWN_MEMBER_ID,
    Answer,
    Effects,
    JoinReply,
    JoinRequest,
    Moment,
    Store,
    Token,
)


@dataclass(frozen=True, slots=True)
class PendingReplacement:
    """The replacement of a static member while it is being stored; `before` is the member before it."""

    store: Store
    member_id: str
    before: Member
    leader_before: str | None
    can_skip_assignment: bool


class StaticMembers:
    """Replaces members by instance id."""

    def __init__(self, core: GroupCore, join: JoinPhase, sync: SyncPhase) -> None:
        self._core = core
        self._join = join
        self._sync = sync

    def replace(self, request: JoinRequest, token: Token, now: Moment) -> tuple[Effects, PendingReplacement | None]:
        """Give a static member that joined without its id a new one; the old one is fenced.

        In a stable group whose protocol does not change, other members are not affected: the new id is stored, and the
        member continues. Otherwise nothing is pending, and the group has to rebalance.
        """
        core, members = self._core, self._core.members
        instance_id = request.instance_id
        assert instance_id is not None
        leader_before = members.leader
        old_id = members.static_member_id(instance_id)
        assert old_id is not None
        effects = self._join.refuse(members[old_id], Answer.FENCED_INSTANCE_ID, old_id)
        effects += self._sync.refuse(members[old_id], Answer.FENCED_INSTANCE_ID)
        before = replace(members[old_id])
        member = members.rename_static(instance_id, request.new_member_id)
        self._sync.renamed(old_id, member.member_id)
        core.extend_session(member, now)
        member.is_new = False
        effects += self._join.update(member, request, token)
        if core.state is not GroupState.STABLE or members.elected_protocol() != core.protocol:
            return effects, None
        store = Store(core.metadata())
        pending = PendingReplacement(
            store, member.member_id, before, leader_before, can_skip_assignment=request.can_skip_assignment
        )
        return [*effects, store], pending

    def stored(self, pending: PendingReplacement) -> Effects:
        core = self._core
        member = core.members.get(pending.member_id)
        if member is None or member.awaiting_join is None or core.state is not GroupState.STABLE:
            return []  # it left, or a rebalance that began will answer it
        reply = core.generation_reply(member, core.members.unpark_join(member))
        if pending.can_skip_assignment:
            return [replace(reply, skip_assignment=core.members.leader == member.member_id)]
        # An older client would run its assignor if it were the leader: it gets the previous leader's id.
        return [replace(reply, leader=pending.leader_before or "", members=())]

    def store_failed(self, pending: PendingReplacement, error: Answer, now: Moment) -> Effects:
        core, members = self._core, self._core.members
        member = members.get(pending.member_id)
        before = pending.before
        if member is None or member.awaiting_join is None or before.instance_id is None:
            return []  # it left, or a rebalance has answered it under its new id
        token = members.unpark_join(member)
        members.rename_static(before.instance_id, before.member_id)
        members.change(member, before.protocols, before.rebalance_timeout_ms)
        member.session_timeout_ms = before.session_timeout_ms
        core.extend_session(member, now)
        leader = pending.leader_before or ""
        return [
            JoinReply(
                token=token,
                error=error,
                member_id=UNKNOWN_MEMBER_ID,
                generation=core.generation,
                protocol_type=core.protocol_type,
                protocol_name=core.protocol,
                leader=leader,
            )
        ]
