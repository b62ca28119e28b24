"""The table that drives a classic group: complete, and no wider than Kafka's."""

from __future__ import annotations

import itertools

import pytest
from tests.broker.groups.machine import Machine

from stratalog.broker.groups.group import _ACTIONS
from stratalog.broker.groups.state import (
    MOVES,
    OUT_OF_STEP,
    REFUSALS,
    GroupAction,
    GroupEvent,
    GroupRequest,
    GroupState,
)

#: From which states each state may be entered: `ClassicGroupState` of Kafka 4.4.
PREVIOUS_STATES_OF_KAFKA = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY},
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.DEAD: set(GroupState),
}


def test_every_event_has_a_move_in_every_state_and_every_action_is_done_by_something() -> None:
    assert set(MOVES) == set(itertools.product(GroupState, GroupEvent))
    assert set(_ACTIONS) == set(GroupAction) == {move.action for move in MOVES.values()}


@pytest.mark.parametrize("state", GroupState)
def test_a_state_is_entered_from_where_kafka_enters_it(state: GroupState) -> None:
    assert {before for (before, _), move in MOVES.items() if move.to is state} == PREVIOUS_STATES_OF_KAFKA[state]


def test_a_dead_group_stays_dead_and_refuses_everything() -> None:
    moves = {event: move for (state, event), move in MOVES.items() if state is GroupState.DEAD}
    assert {event for event, move in moves.items() if move.action is not GroupAction.NOTHING} == {GroupEvent.REMOVED}
    assert {request for state, request in REFUSALS if state is GroupState.DEAD} == set(GroupRequest)


def test_refusals_do_not_contradict_each_other() -> None:
    assert not set(REFUSALS) & OUT_OF_STEP


@pytest.mark.parametrize("event", [event for event in GroupEvent if event is not GroupEvent.REMOVED])
def test_what_comes_too_late_changes_nothing_in_an_empty_group(event: GroupEvent) -> None:
    if MOVES[GroupState.EMPTY, event].to is not None:
        assert event is GroupEvent.MEMBER_JOINED
        return
    machine = Machine()
    before = machine.group.metadata()
    assert machine.group._fire(event, machine.now) == []
    assert machine.group.metadata() == before
