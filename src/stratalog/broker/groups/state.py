"""The table of a classic group: what each event does in each state, and what each state refuses.

`ClassicGroup` looks every step up here. Nothing else decides what happens in which state.
"""

from __future__ import annotations

from enum import Enum, auto
from types import MappingProxyType
from typing import Final, NamedTuple

from stratalog.broker.groups.values import Answer


class GroupState(Enum):
    """The value is the name that clients see.

    EMPTY                 no members; offsets may remain. Joins begin a rebalance.
    PREPARING_REBALANCE   waiting for the members to join again; heartbeats answer REBALANCE_IN_PROGRESS.
    COMPLETING_REBALANCE  a new generation exists; waiting for its leader's assignment.
    STABLE                every member has, or can have, its assignment.
    DEAD                  removed; a holder must look the coordinator up again.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupEvent(Enum):
    """What happens to a group. Requests that change nothing are no events."""

    #: A member joined, or joined again with something else to say.
    MEMBER_JOINED = auto()
    #: A static member came back under another id, and not all can stay as it is.
    MEMBER_REPLACED = auto()
    #: Members left by their own wish, or an administrator's.
    MEMBER_LEFT = auto()
    #: Someone was sent away, because the group is as large as it may be.
    MEMBER_REFUSED = auto()
    #: The session of a member is over.
    MEMBER_EXPIRED = auto()
    #: An id was given out, and its client did not join with it in time.
    ID_EXPIRED = auto()
    #: Members did not ask for their assignments in time, and have been removed.
    SYNCS_MISSED = auto()
    #: After loading: the group has more members than are allowed.
    LIMIT_EXCEEDED = auto()
    #: The join phase is over, and there are members.
    JOINS_COMPLETE = auto()
    #: The join phase is over, and all members are gone.
    MEMBERS_GONE = auto()
    #: The leader's assignments are durable, or could not be written.
    ASSIGNMENT_STORED = auto()
    ASSIGNMENT_LOST = auto()
    #: The group is deleted, or its coordinator goes.
    REMOVED = auto()


class GroupAction(Enum):
    """What an event makes a group do; each is a method of `ClassicGroup`."""

    NOTHING = auto()
    #: Wait for all members to join again: the first time for a fixed delay, later until all are back.
    BEGIN_INITIAL_JOIN = auto()
    BEGIN_JOIN = auto()
    #: The same, after the syncs that are parked have been refused.
    REFUSE_SYNCS_AND_BEGIN_JOIN = auto()
    #: End the join phase if all are back; the first one of a group lasts out its delay all the same.
    MAYBE_END_JOIN = auto()
    #: End the join phase if all are back, be it the first one.
    MAYBE_END_ANY_JOIN = auto()
    #: Tell all who joined of their generation, and wait for the syncs.
    ANNOUNCE_GENERATION = auto()
    STORE_AS_EMPTY = auto()
    #: Hand out the assignments.
    ASSIGN = auto()
    #: Answer everybody who waits.
    REFUSE_ALL = auto()


class Move(NamedTuple):
    """What to do, after entering the next state; None stays in the one there is."""

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
    """What a member asks for."""

    JOIN = auto()
    SYNC = auto()
    HEARTBEAT = auto()
    COMMIT = auto()
    LEAVE = auto()


#: The answers that are the same for every client.
REFUSALS: Final = MappingProxyType(
    {
        **{(_DEAD, request): Answer.COORDINATOR_NOT_AVAILABLE for request in GroupRequest},
        (_EMPTY, GroupRequest.SYNC): Answer.UNKNOWN_MEMBER_ID,
    }
)

#: What a member of the current generation may not do before it has joined again, or synced: REBALANCE_IN_PROGRESS.
OUT_OF_STEP: Final = frozenset(
    {
        (_PREPARING, GroupRequest.SYNC),
        (_PREPARING, GroupRequest.HEARTBEAT),
        (_COMPLETING, GroupRequest.COMMIT),
    }
)
