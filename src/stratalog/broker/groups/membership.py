"""The members of a classic group, their leader, static members, and common protocols. Independent of group states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from stratalog.broker.groups.member import Member, subscribed_topics
from stratalog.broker.groups.values import JoinedMember, Protocol, Token
from stratalog.errors import FencedInstanceIdError, UnknownMemberIdError


class Membership:
    """Members in the order in which they joined.

    Invariants: a group with members has one leader, which is one of them, unless it was removed and no member is left;
    an instance id belongs to one member; a pending id (issued, but not joined yet) is no member's.

    Aggregates are kept up to date, so that a join costs the same in a large group. Therefore only this class may change
    `awaiting_join`, `protocols`, `rebalance_timeout_ms` and `session_deadline_ms` of its members.
    """

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._by_instance: dict[str, str] = {}
        #: Ids issued with MEMBER_ID_REQUIRED, with their expiry time (monotonic ms).
        self.pending: dict[str, int] = {}
        self.leader: str | None = None
        self._joined = 0
        #: Number of members by offered protocol, and by rebalance timeout.
        self._offers: Counter[str] = Counter()
        self._rebalance_timeouts: Counter[int] = Counter()
        self._deadline_bound_ms: int | None = None

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(list(self._members.values()))

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._members

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def add(self, member: Member) -> None:
        """Add a member; the first becomes leader."""
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = member.member_id
        self._members[member.member_id] = member
        self._count(member, 1)
        self._bring_forward(member.session_deadline_ms)
        self.pending.pop(member.member_id, None)
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> Member | None:
        """Remove a member or a pending id; the oldest remaining member becomes leader."""
        self.pending.pop(member_id, None)
        member = self._members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            if member.instance_id is not None:
                self._by_instance.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self._members), None)
        return member

    def rename_static(self, instance_id: str, new_id: str) -> Member:
        """Change the id of a static member, in its old position, and as leader if it was."""
        old_id = self._by_instance[instance_id]
        self._by_instance[instance_id] = new_id
        self._members = {
            new_id if member_id == old_id else member_id: member for member_id, member in self._members.items()
        }
        member = self._members[new_id]
        member.member_id = new_id
        if self.leader == old_id:
            self.leader = new_id
        return member

    def promise(self, member_id: str, until_ms: int) -> None:
        """Issue an id; it expires unless a client joins with it in time."""
        self.pending[member_id] = until_ms
        self._bring_forward(until_ms)

    def park_join(self, member: Member, token: Token) -> None:
        self._joined += member.awaiting_join is None
        member.awaiting_join = token

    def unpark_join(self, member: Member) -> Token | None:
        """Return the token of the member's parked join, if any, and clear it."""
        token, member.awaiting_join = member.awaiting_join, None
        self._joined -= token is not None
        return token

    def change(self, member: Member, protocols: tuple[Protocol, ...], rebalance_timeout_ms: int) -> None:
        """Update what the member has sent."""
        self._count(member, -1)
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        self._count(member, 1)

    def extend_session(self, member: Member, until_ms: int) -> None:
        member.session_deadline_ms = until_ms
        self._bring_forward(until_ms)

    def _count(self, member: Member, change: int) -> None:
        if member.awaiting_join is not None:
            self._joined += change
        self._rebalance_timeouts[member.rebalance_timeout_ms] += change
        if not self._rebalance_timeouts[member.rebalance_timeout_ms]:
            del self._rebalance_timeouts[member.rebalance_timeout_ms]
        for name in {offered.name for offered in member.protocols}:
            self._offers[name] += change
            if not self._offers[name]:
                del self._offers[name]

    def _bring_forward(self, due_ms: int) -> None:
        if self._deadline_bound_ms is None or due_ms < self._deadline_bound_ms:
            self._deadline_bound_ms = due_ms

    @property
    def next_deadline_ms(self) -> int | None:
        """A time (monotonic ms) before which no session or pending id expires; `review_deadlines` makes it exact."""
        return self._deadline_bound_ms if self._members or self.pending else None

    def review_deadlines(self) -> None:
        """Compute the exact next deadline: extended sessions leave it too early."""
        due = [member.session_deadline_ms for member in self._members.values()]
        self._deadline_bound_ms = min([*due, *self.pending.values()], default=None)

    def elect_joined_leader(self) -> bool:
        """Ensure that the leader has rejoined, or elect one that has; False when none has."""
        if self.leader is not None and self._members[self.leader].awaiting_join is not None:
            return True
        for member in self._members.values():
            if member.awaiting_join is not None:
                self.leader = member.member_id
                return True
        return False

    def static_member_id(self, instance_id: str) -> str | None:
        return self._by_instance.get(instance_id)

    def check(self, member_id: str, instance_id: str | None) -> None:
        """Raise FencedInstanceIdError if another member has the instance id, UnknownMemberIdError if none has."""
        if instance_id is not None:
            holder = self._by_instance.get(instance_id)
            if holder is not None and holder != member_id:
                raise FencedInstanceIdError(
                    f"member {member_id} is fenced: static member {instance_id} is now {holder}"
                )
            if holder is None:
                raise UnknownMemberIdError(f"no static member {instance_id} is in the group")
        if member_id not in self._members:
            raise UnknownMemberIdError(f"no member {member_id} is in the group")

    @property
    def joined(self) -> int:
        """Number of members with a parked join."""
        return self._joined

    @property
    def all_joined(self) -> bool:
        return not self.pending and self._joined == len(self._members)

    @property
    def rebalance_timeout_ms(self) -> int:
        return max(self._rebalance_timeouts, default=0)

    def shared_protocols(self) -> set[str]:
        """Return the names of the protocols that every member offers."""
        return {name for name, count in self._offers.items() if count == len(self._members)}

    def can_share(self, protocols: tuple[Protocol, ...]) -> bool:
        """Return whether these protocols include one that all members offer; True for any without members."""
        if not self._members:
            return bool(protocols)
        return any(self._offers[protocol.name] == len(self._members) for protocol in protocols)

    def elected_protocol(self) -> str:
        """Return the common protocol preferred by most members. The group must not be empty."""
        candidates = self.shared_protocols()
        votes = Counter(member.vote(candidates) for member in self._members.values())
        return votes.most_common(1)[0][0]

    def seen_by_leader(self, protocol: str | None) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol))
            for member in self._members.values()
        )

    def subscribed_topics(self, protocol: str | None) -> frozenset[str] | None:
        """Return all topics that consumers subscribe to; None if a subscription cannot be parsed."""
        topics: set[str] = set()
        for member in self._members.values():
            subscription = subscribed_topics(member.metadata(protocol))
            if subscription is None:
                return None
            topics |= subscription
        return frozenset(topics)
