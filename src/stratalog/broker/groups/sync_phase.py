"""The sync phase of a rebalance: the leader's assignments are received, stored and sent to the members."""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.broker.groups.core import GroupCore
from stratalog.broker.groups.member import Member
from stratalog.broker.groups.state import GroupState
from stratalog.broker.groups.values import Answer, Effects, Moment, Store, SyncReply, SyncRequest, Token


@dataclass(frozen=True, slots=True)
class PendingAssignment:
    """The leader's assignments while they are being stored."""

    store: Store
    generation: int
    assignments: dict[str, bytes]


class SyncPhase:
    """Parks syncs and tracks the deadline. `ClassicGroup` decides when the group moves on."""

    def __init__(self, core: GroupCore) -> None:
        self._core = core
        #: Members of this generation that have not synced yet.
        self._missing: set[str] = set()
        self._deadline_ms: int | None = None
        #: The leader's last assignments, by member id.
        self._assignments: dict[str, bytes] = {}

    @property
    def due_ms(self) -> int | None:
        return self._deadline_ms

    def begin(self, now: Moment) -> None:
        """Start waiting for the syncs of all members."""
        members = self._core.members
        self._missing = {member.member_id for member in members}
        self._deadline_ms = now.monotonic_ms + members.rebalance_timeout_ms

    def stop(self) -> None:
        self._missing.clear()
        self._deadline_ms = None

    def missed(self, now: Moment) -> list[str]:
        """Return the members that did not sync in time, once."""
        if self._deadline_ms is None or self._deadline_ms > now.monotonic_ms:
            return []
        self._deadline_ms = None
        return sorted(self._missing)

    def removed(self, member_id: str) -> None:
        self._missing.discard(member_id)

    def renamed(self, old_id: str, new_id: str) -> None:
        if old_id in self._missing:
            self._missing.remove(old_id)
            self._missing.add(new_id)

    def request_error(self, request: SyncRequest) -> Answer | None:
        """Return the error for a wrong generation or protocol in a request, if any."""
        core = self._core
        if request.generation != core.generation:
            return Answer.ILLEGAL_GENERATION
        if request.protocol_type not in (None, core.protocol_type) or (
            core.protocol is not None and request.protocol_name not in (None, core.protocol)
        ):
            return Answer.INCONSISTENT_GROUP_PROTOCOL
        return None

    def sync(self, member: Member, request: SyncRequest, token: Token) -> tuple[Effects, PendingAssignment | None]:
        """Answer a member's sync, or park it; the leader's assignments are returned to be stored."""
        core = self._core
        self._missing.discard(member.member_id)
        if not self._missing:
            self._deadline_ms = None
        if core.state is GroupState.STABLE:
            return [self._assignment_reply(member, token)], None
        effects = self.refuse(member, Answer.REBALANCE_IN_PROGRESS)  # sent again on another connection
        member.awaiting_sync = token
        if core.members.leader != member.member_id:
            return effects, None
        given = dict(request.assignments)
        assignments = {known.member_id: given.get(known.member_id, b"") for known in core.members}
        store = Store(core.metadata(assignments))
        return [*effects, store], PendingAssignment(store, core.generation, assignments)

    def stored(self, pending: PendingAssignment) -> None:
        """Use assignments that are now durable."""
        self._assignments = pending.assignments

    def assign(self, now: Moment) -> Effects:
        """Send the stored assignments to members with parked syncs."""
        effects: Effects = []
        for member in self._core.members:
            member.assignment = self._assignments.get(member.member_id, b"")
            if member.awaiting_sync is not None:
                effects.append(self._assignment_reply(member, member.awaiting_sync))
                member.awaiting_sync = None
                self._core.extend_session(member, now)
        return effects

    def _assignment_reply(self, member: Member, token: Token) -> SyncReply:
        return SyncReply(token, Answer.NONE, self._core.protocol_type, self._core.protocol, member.assignment)

    def refuse(self, member: Member, error: Answer) -> Effects:
        """Answer the member's parked sync, if any."""
        token, member.awaiting_sync = member.awaiting_sync, None
        return [] if token is None else [SyncReply(token, error)]

    def refuse_all(self, error: Answer, now: Moment) -> Effects:
        """Clear all assignments and answer parked syncs with `error`."""
        effects: Effects = []
        for member in self._core.members:
            member.assignment = b""
            if member.awaiting_sync is not None:
                effects += self.refuse(member, error)
                self._core.extend_session(member, now)
        return effects
