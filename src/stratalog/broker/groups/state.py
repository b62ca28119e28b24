"""The states of a classic group and the moves between them."""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """The value is the name that clients see.

    EMPTY                 no members; offsets may remain. Joins begin a rebalance.
    PREPARING_REBALANCE   waiting for the members to join again; heartbeats answer REBALANCE_IN_PROGRESS.
    COMPLETING_REBALANCE  a new generation exists; waiting for its leader's assignment.
    STABLE                every member has, or can have, its assignment.
    DEAD                  removed; whoever still holds it must look the coordinator up again.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


#: From which states each state may be entered.
PREVIOUS_STATES: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}
