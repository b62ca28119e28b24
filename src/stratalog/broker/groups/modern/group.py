"""The common state of the newer group types: members, epochs and deadlines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Generic, Protocol, TypeVar

from stratalog.broker.groups.modern.deadlines import MemberDeadlines
from stratalog.broker.groups.modern.values import GroupEpoch, TargetEpoch
from stratalog.broker.groups.values import AgeSince
from stratalog.errors import NonEmptyGroupError, UnknownMemberIdError


class ModernMember(Protocol):
    @property
    def member_id(self) -> str: ...

    @property
    def epoch(self) -> int: ...


MemberT = TypeVar("MemberT", bound=ModernMember)
ChangeT = TypeVar("ChangeT")


class ModernGroup(ABC, Generic[MemberT, ChangeT]):
    """One group. Its stored state changes only by `apply`. Belongs to the loop's thread.

    Not stored: `deadlines`, and `seen_topics_version` (of the topics that the hash was computed from, None: never).
    """

    #: The type of the group and of its protocol.
    type_name: ClassVar[str]
    #: The name in log messages.
    title: ClassVar[str] = "Group"

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.metadata = GroupEpoch()
        self.target_epoch = TargetEpoch(1)
        self.members: dict[str, MemberT] = {}
        #: Ids of members by instance id.
        self.static_members: dict[str, str] = {}
        self.deadlines = MemberDeadlines()
        self.seen_topics_version: int | None = None
        self.is_gone = False

    @property
    def protocol_type(self) -> str:
        return self.type_name

    @property
    def epoch(self) -> int:
        return self.metadata.epoch

    def member(self, member_id: str) -> MemberT:
        """Return a member, or raise UnknownMemberIdError."""
        found = self.members.get(member_id)
        if found is None:
            raise UnknownMemberIdError(f"Member {member_id} is not a member of group {self.group_id}.")
        return found

    def static_member(self, instance_id: str | None) -> MemberT | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    @abstractmethod
    def is_subscribed(self, topic: str) -> bool:
        """Return whether offsets of `topic` are in use."""

    @property
    def offsets_age_since(self) -> AgeSince:
        """The start of the retention of commits for topics without subscribers."""
        return AgeSince.COMMIT

    @property
    def state_timestamp_ms(self) -> int | None:
        """The time at which the group entered its state: unknown."""
        return None

    def check_deletable(self) -> None:
        """Raise NonEmptyGroupError while there are members."""
        if self.members:
            raise NonEmptyGroupError("The group is not empty.")

    def apply(self, changes: Iterable[ChangeT]) -> None:
        """Apply records in order."""
        for change in changes:
            self._apply(change)

    @abstractmethod
    def _apply(self, change: ChangeT) -> None: ...

    @abstractmethod
    def tombstones(self) -> list[ChangeT]:
        """Return the records that delete the group."""
