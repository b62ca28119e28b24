"""The data of a classic group that its phases share."""

from __future__ import annotations

from stratalog.broker.groups.member import Member
from stratalog.broker.groups.membership import Membership
from stratalog.broker.groups.state import GroupState
from stratalog.broker.groups.values import (
    CONSUMER_PROTOCOL_TYPE,
    Answer,
    GroupMetadata,
    GroupSettings,
    JoinReply,
    Moment,
    Token,
)


class GroupCore:
    """A group's data, and responses made from it. Makes no decisions."""

    def __init__(self, group_id: str, settings: GroupSettings, now: Moment) -> None:
        self.group_id = group_id
        self.settings = settings
        self.members = Membership()
        self.state = GroupState.EMPTY
        #: The state before this one.
        self.previous = GroupState.DEAD
        self.state_timestamp_ms: int | None = now.wall_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        #: Subscribed topics of a consumer group; None if the subscriptions cannot be parsed.
        self.subscribed_topics: frozenset[str] | None = None

    @property
    def is_consumer_group(self) -> bool:
        """Whether members use the consumer's embedded protocol, so that subscriptions can be parsed."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def enter(self, state: GroupState, now: Moment) -> None:
        self.previous, self.state = self.state, state
        self.state_timestamp_ms = now.wall_ms

    def extend_session(self, member: Member, now: Moment) -> None:
        self.members.extend_session(member, now.monotonic_ms + member.session_timeout_ms)

    def read_subscriptions(self) -> None:
        readable = self.is_consumer_group and (self.protocol is not None or not len(self.members))
        self.subscribed_topics = self.members.subscribed_topics(self.protocol) if readable else None

    def generation_reply(self, member: Member, token: Token) -> JoinReply:
        is_leader = self.members.leader == member.member_id
        return JoinReply(
            token=token,
            error=Answer.NONE,
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.members.leader or "",
            members=self.members.seen_by_leader(self.protocol) if is_leader else (),
        )

    def metadata(self, assignments: dict[str, bytes] | None = None) -> GroupMetadata:
        """Return the group's current record, with these assignments or the members' own."""
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
