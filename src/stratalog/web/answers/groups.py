"""Response types of groups."""

from __future__ import annotations

from typing import TypedDict

from stratalog.web.answers.shared import PagedAnswer
from stratalog.web.answers.topics import GroupRow


class GroupsAnswer(PagedAnswer):
    """One page of groups."""

    groups: list[GroupRow]


class AssignmentJson(TypedDict):
    """Partitions of a topic that a member is assigned."""

    topic: str
    partitions: list[int]


class MemberJson(TypedDict):
    """A member of a group."""

    memberId: str
    instanceId: str | None
    clientId: str
    host: str
    assignment: list[AssignmentJson]


class CommittedRow(TypedDict):
    """A group's position in a partition; `note` describes anything unusual."""

    topic: str
    partition: int
    committedOffset: int
    logStartOffset: int | None
    highWatermark: int | None
    lag: int | None
    lagMs: int | None
    note: str


class OneGroupAnswer(TypedDict):
    """A group with its members and offsets."""

    id: str
    state: str
    type: str
    protocolType: str
    members: list[MemberJson]
    rows: list[CommittedRow]
    lag: int
    lagMs: int | None
