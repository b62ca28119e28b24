"""The state table of a classic group: the move for each event in each state, and the requests that a state refuses."""

from __future__ import annotations

from enum import Enum, auto
from types import MappingProxyType
from typing import Final, NamedTuple

from stratalog.broker.groups.values import Answer


class GroupState(Enum):
    """The value is the name that clients get.

    EMPTY                 no members; there may be offsets. A join starts a rebalance.
    PREPARING_REBALANCE   waiting for the members to rejoin; heartbeats get REBALANCE_IN_PROGRESS.
    COMPLETING_REBALANCE  a new generation exists; waiting for its leader's assignments.
    STABLE                the assignments are available.
    DEAD                  removed; clients must find the coordinator again.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupEvent(Enum):
    """An event of a group. Requests that change nothing are no events."""

    #: A member joined, or rejoined with different metadata.
    MEMBER_JOINED = auto()
    #: A static member rejoined under another id, and the group has to rebalance.
    MEMBER_REPLACED = auto()
    #: Members left at their own or an administrator's request.
    MEMBER_LEFT = auto()
    #: A member was refused because the group is full.
    MEMBER_REFUSED = auto()
    #: A member's session expired.
    MEMBER_EXPIRED = auto()
    #: An issued id expired before its client joined.
    ID_EXPIRED = auto()
    #: Members that did not sync in time were removed.
    SYNCS_MISSED = auto()
    #: After loading: the group has more members than allowed.
    LIMIT_EXCEEDED = auto()
    #: The join phase ended with members.
    JOINS_COMPLETE = auto()
    #: The join phase ended without members.
    MEMBERS_GONE = auto()
    #: The leader's assignments were stored, or could not be.
    ASSIGNMENT_STORED = auto()
    ASSIGNMENT_LOST = auto()
    #: The group was deleted, or has moved to another coordinator.
    REMOVED = auto()


class GroupAction(Enum):
    """The action on an event; each is a method of `ClassicGroup`."""

    NOTHING = auto()
    #: Wait for members to join: for a fixed delay the first time, later until all have rejoined.
    BEGIN_INITIAL_JOIN = auto()
    BEGIN_JOIN = auto()
    #: The same, after refusing parked syncs.
    REFUSE_SYNCS_AND_BEGIN_JOIN = auto()
    #: End the join phase if all have rejoined; the first one of a group waits for its delay regardless.
    MAYBE_END_JOIN = auto()
    #: End the join phase if all have rejoined, even the first one.
    MAYBE_END_ANY_JOIN = auto()
    #: Answer all joins with the new generation, and wait for the syncs.
    ANNOUNCE_GENERATION = auto()
    STORE_AS_EMPTY = auto()
    #: Send the assignments.
    ASSIGN = auto()
    #: Answer all parked requests.
    REFUSE_ALL = auto()


class Move(NamedTuple):
    """An action after entering the next state; None keeps the current one."""

    action: GroupAction
    to: GroupState | None = None


_EMPTY, _PREPARING, _COMPLETING, _STABLE, _DEAD = GroupState
_STAY: Final = Move(GroupAction.NOTHING)
_BEGIN: Final = Move(GroupAction.BEGIN_JOIN, _PREPARING)
_REFUSE_AND_BEGIN: Final = Move(GroupAction.REFUSE_SYNCS_AND_BEGIN_JOIN, _PREPARING)
_MAYBE_END: Final = Move(GroupAction.MAYBE_END_JOIN)
_MAYBE_END_ANY: Final = Move(GroupAction.MAYBE_END_ANY_JOIN)
_DIE: Final = Move(GroupAction.REFUSE_ALL, _DEAD)

#: By event, for the states in their order: empty, preparing, completing, stable, dead.
_MOVES: Final = {
    GroupEvent.MEMBER_JOINED: (
        Move(GroupAction.BEGIN_INITIAL_JOIN, _PREPARING), _MAYBE_END, _REFUSE_AND_BEGIN, _BEGIN, _STAY,
    ),
    GroupEvent.MEMBER_REPLACED: (_STAY, _MAYBE_END, _REFUSE_AND_BEGIN, _BEGIN, _STAY),
    GroupEvent.MEMBER_LEFT: (_STAY, _MAYBE_END, _REFUSE_AND_BEGIN, _BEGIN, _STAY),
    GroupEvent.MEMBER_REFUSED: (_STAY, _MAYBE_END, _STAY, _STAY, _STAY),
    GroupEvent.MEMBER_EXPIRED: (_STAY, _MAYBE_END_ANY, _REFUSE_AND_BEGIN, _BEGIN, _STAY),
    GroupEvent.ID_EXPIRED: (_STAY, _MAYBE_END_ANY, _STAY, _STAY, _STAY),
    GroupEvent.SYNCS_MISSED: (_STAY, _STAY, _REFUSE_AND_BEGIN, _BEGIN, _STAY),
    GroupEvent.LIMIT_EXCEEDED: (_STAY, _STAY, _STAY, _BEGIN, _STAY),
    GroupEvent.JOINS_COMPLETE: (
        _STAY, Move(GroupAction.ANNOUNCE_GENERATION, _COMPLETING), _STAY, _STAY, _STAY,
    ),
    GroupEvent.MEMBERS_GONE: (_STAY, Move(GroupAction.STORE_AS_EMPTY, _EMPTY), _STAY, _STAY, _STAY),
    GroupEvent.ASSIGNMENT_STORED: (_STAY, _STAY, Move(GroupAction.ASSIGN, _STABLE), _STAY, _STAY),
    GroupEvent.ASSIGNMENT_LOST: (_STAY, _STAY, _REFUSE_AND_BEGIN, _STAY, _STAY),
    GroupEvent.REMOVED: (_DIE, _DIE, _DIE, _DIE, _DIE),
}  # fmt: skip

MOVES: Final = MappingProxyType(
    {(state, event): move for event, moves in _MOVES.items() for state, move in zip(GroupState, moves, strict=True)}
)


class GroupRequest(Enum):
    """A member's request."""

    JOIN = auto()
    SYNC = auto()
    HEARTBEAT = auto()
    COMMIT = auto()
    LEAVE = auto()


#: Error codes that do not depend on the member.
REFUSALS: Final = MappingProxyType(
    {
        **{(_DEAD, request): Answer.COORDINATOR_NOT_AVAILABLE for request in GroupRequest},
        (_EMPTY, GroupRequest.SYNC): Answer.UNKNOWN_MEMBER_ID,
    }
)

#: Requests of the current generation that get REBALANCE_IN_PROGRESS until the member has rejoined or synced.
OUT_OF_STEP: Final = frozenset(
    {
        (_PREPARING, GroupRequest.SYNC),
        (_PREPARING, GroupRequest.HEARTBEAT),
        (_COMPLETING, GroupRequest.COMMIT),
    }
)
