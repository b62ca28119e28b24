"""The states of a partition that may be cleaned are the table in `states`, and nothing else is possible."""

from __future__ import annotations

import itertools

import pytest

from stratalog.log.cleaner.states import ABORTED, IDLE, IN_PROGRESS, PAUSED_ONCE, CleaningState, Event, Phase

PAUSED_TWICE = CleaningState(Phase.PAUSED, 2)

TABLE = {
    (IDLE, Event.START): IN_PROGRESS,
    (IDLE, Event.PAUSE): PAUSED_ONCE,
    (IN_PROGRESS, Event.PAUSE): ABORTED,
    (IN_PROGRESS, Event.DONE): IDLE,
    (ABORTED, Event.DONE): PAUSED_ONCE,
    (PAUSED_ONCE, Event.PAUSE): PAUSED_TWICE,
    (PAUSED_ONCE, Event.RESUME): IDLE,
    (PAUSED_TWICE, Event.PAUSE): CleaningState(Phase.PAUSED, 3),
    (PAUSED_TWICE, Event.RESUME): PAUSED_ONCE,
}
ALL = list(itertools.product((IDLE, IN_PROGRESS, ABORTED, PAUSED_ONCE, PAUSED_TWICE), Event))


@pytest.mark.parametrize(("state", "event"), ALL)
def test_every_state_answers_every_event_as_the_table_says(state: CleaningState, event: Event) -> None:
    expected = TABLE.get((state, event))
    if expected is None:
        with pytest.raises(ValueError, match=f"{event.value} is not possible"):
            state.after(event)
    else:
        assert state.after(event) == expected


def test_as_many_resumes_as_pauses_make_a_partition_free_again() -> None:
    state = IDLE
    for _ in range(5):
        state = state.after(Event.PAUSE)
    for _ in range(4):
        state = state.after(Event.RESUME)
        assert state.phase is Phase.PAUSED
    assert state.after(Event.RESUME) == IDLE
