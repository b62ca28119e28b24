from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.remote.api.interfaces import INT32_MAX, RemoteLogSegmentId, RemoteLogSegmentMetadata
from stratalog.remote.api.segment_state import RemoteLogSegmentState, is_valid_transition
from stratalog.remote.metadata.cache import RemoteLogMetadataCache, epoch_end_offset
from tests.remote.values import segment, segment_id, update

STARTED, FINISHED, DELETING, DELETED = RemoteLogSegmentState


class PlainModel:
    """The cache without any arrangement: all segments, searched from end to end."""

    def __init__(self) -> None:
        self.segments: dict[RemoteLogSegmentId, RemoteLogSegmentMetadata] = {}
        self.highest: dict[int, int] = {}

    def apply(self, metadata: RemoteLogSegmentMetadata, number: int, state: RemoteLogSegmentState) -> None:
        known = self.segments.get(metadata.segment_id)
        if state is STARTED:
            if is_valid_transition(known.state if known else None, state):
                self.segments[metadata.segment_id] = metadata
            return
        if known is None or not is_valid_transition(known.state, state):
            return
        self.segments[metadata.segment_id] = known.with_update(update(number, state))
        if state is FINISHED:
            for epoch in metadata.segment_leader_epochs:
                self.highest[epoch] = max(self.highest.get(epoch, -1), epoch_end_offset(metadata, epoch))
        if state is DELETED:
            del self.segments[metadata.segment_id]

    def holding(self, epoch: int, offset: int) -> set[RemoteLogSegmentId]:
        return {
            m.segment_id
            for m in self.segments.values()
            if m.state is FINISHED
            and epoch in m.segment_leader_epochs
            and m.segment_leader_epochs[epoch] <= offset <= epoch_end_offset(m, epoch)
        }


_EPOCHS = range(3)
_OFFSETS = range(24)


@st.composite
def _segments(draw: st.DrawFn) -> list[RemoteLogSegmentMetadata]:
    found = []
    for number in range(draw(st.integers(1, 8))):
        start = draw(st.integers(0, 15))
        end = draw(st.integers(start, 23))
        epochs = sorted(draw(st.sets(st.sampled_from(_EPOCHS), min_size=1, max_size=min(3, end - start + 1))))
        rest = draw(
            st.lists(
                st.integers(start + 1, max(end, start + 1)),
                min_size=len(epochs) - 1,
                max_size=len(epochs) - 1,
                unique=True,
            )
        )
        starts = [start, *sorted(rest)]
        empty = draw(st.booleans())
        size = draw(st.sampled_from([0, 1000, 70_000 + number, INT32_MAX, 2**33]))
        found.append(
            segment(number, start, end, dict(zip(epochs, starts, strict=True)), size=size, txn_index_empty=empty)
        )
    return found


@settings(deadline=None, max_examples=300)
@given(
    segments=_segments(),
    events=st.lists(st.tuples(st.integers(0, 7), st.sampled_from(RemoteLogSegmentState)), max_size=40),
)
def test_lookups_agree_with_a_plain_search(
    segments: list[RemoteLogSegmentMetadata], events: list[tuple[int, RemoteLogSegmentState]]
) -> None:
    """After any events in any order, the cache finds a readable segment exactly where there is one."""
    cache, model = RemoteLogMetadataCache(), PlainModel()
    for number, state in events:
        metadata = segments[number % len(segments)]
        number = number % len(segments)
        if state is STARTED:
            cache.add(metadata)
        else:
            cache.update(update(number, state))
        model.apply(metadata, number, state)

    assert {m.segment_id: m.state for m in cache.segments()} == {i: m.state for i, m in model.segments.items()}
    readable = [m for m in model.segments.values() if m.state is FINISHED]
    totals = cache.totals()
    assert totals.segments == len(cache) == len(model.segments)
    assert totals.readable_segments == len(readable)
    assert totals.readable_bytes == sum(m.segment_size_bytes for m in readable)
    assert {m.segment_id for m in totals.clamped} == {
        m.segment_id for m in readable if m.segment_size_bytes == INT32_MAX
    }
    again = RemoteLogMetadataCache.of(cache.content().segments, cache.content().highest_offsets).totals()
    assert set(again.clamped) == set(totals.clamped)
    assert replace(again, clamped=totals.clamped) == totals
    for epoch in _EPOCHS:
        assert cache.highest_offset_for_epoch(epoch) == model.highest.get(epoch)
        of_epoch = cache.segments(epoch)
        assert len(of_epoch) == len({m.segment_id for m in of_epoch})
        assert [m.start_offset for m in of_epoch] == sorted(m.start_offset for m in of_epoch)
        assert {m.segment_id for m in of_epoch} == {
            m.segment_id for m in model.segments.values() if epoch in m.segment_leader_epochs
        }
        for offset in _OFFSETS:
            found = cache.segment_for(epoch, offset)
            holding = model.holding(epoch, offset)
            assert (found is None) == (not holding)
            assert found is None or found.segment_id in holding
            following = cache.next_segment_with_txn_index(epoch, offset)
            assert following is None or (not following.txn_index_empty and following.state is FINISHED)


def test_a_segment_is_readable_only_while_it_is_finished() -> None:
    cache = RemoteLogMetadataCache()
    metadata = segment(1, 10, 19)
    assert cache.add(metadata)
    assert cache.segment_for(0, 10) is None
    for state, readable in ((FINISHED, True), (DELETING, False), (DELETED, False)):
        assert cache.update(update(1, state))
        assert (cache.segment_for(0, 15) is not None) is readable
    assert cache.segments() == []
    assert cache.highest_offset_for_epoch(0) == 19


def test_an_offset_is_looked_up_within_its_epoch() -> None:
    cache = RemoteLogMetadataCache()
    cache.add(segment(1, 0, 99, {0: 0, 1: 40}))
    cache.update(update(1, FINISHED))
    assert cache.segment_for(0, 39) is not None
    assert cache.segment_for(0, 40) is None
    assert cache.segment_for(1, 40) is not None
    assert cache.segment_for(1, 39) is None
    assert cache.segment_for(1, 100) is None


def test_a_segment_within_a_larger_one_comes_back_when_the_larger_one_is_deleted() -> None:
    cache = RemoteLogMetadataCache()
    for number, (start, end) in enumerate([(0, 100), (0, 200), (50, 60)]):
        cache.add(segment(number, start, end))
        cache.update(update(number, FINISHED))
    found = cache.segment_for(0, 55)
    assert found is not None
    assert found.segment_id == segment_id(1)
    cache.update(update(1, DELETING))
    found = cache.segment_for(0, 55)
    assert found is not None
    assert found.segment_id == segment_id(0)
    assert cache.segment_for(0, 150) is None


def test_an_event_that_the_states_do_not_allow_is_dropped_with_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache = RemoteLogMetadataCache()
    assert not cache.update(update(1, FINISHED))
    assert "is unknown" in caplog.text
    cache.add(segment(1, 0, 9))
    assert not cache.update(update(1, DELETED))
    assert "cannot go from COPY_SEGMENT_STARTED to DELETE_SEGMENT_FINISHED" in caplog.text
    assert [m.state for m in cache.segments()] == [STARTED]


def test_the_next_segment_with_a_transaction_index_is_the_one_at_the_offset_or_a_later_one() -> None:
    cache = RemoteLogMetadataCache()
    for number, empty in enumerate([False, True, False]):
        cache.add(segment(number, number * 10, number * 10 + 9, txn_index_empty=empty))
        cache.update(update(number, FINISHED))

    def start(offset: int) -> int | None:
        found = cache.next_segment_with_txn_index(0, offset)
        return None if found is None else found.start_offset

    assert [start(0), start(9), start(10), start(29), start(30)] == [0, 0, 20, 20, None]


def test_a_segment_that_is_added_again_with_other_epochs_is_listed_under_those_alone() -> None:
    cache = RemoteLogMetadataCache()
    cache.add(segment(1, 0, 9, {3: 0}))
    cache.add(segment(1, 0, 9, {4: 0}))
    assert cache.segments(3) == []
    assert [m.segment_leader_epochs for m in cache.segments(4)] == [{4: 0}]


#: The table of what a state allows: found by offset, listed. What once was finished counts in its epoch's highest
#: offset.
_VISIBLE = {
    None: (False, False),
    STARTED: (False, True),
    FINISHED: (True, True),
    DELETING: (False, True),
    DELETED: (False, False),
}
#: What may follow each state besides itself.
_MAY_FOLLOW = {
    None: {STARTED},
    STARTED: {FINISHED, DELETING},
    FINISHED: {DELETING},
    DELETING: {DELETED},
    DELETED: {STARTED},
}


@settings(deadline=None)
@given(asked=st.lists(st.sampled_from(RemoteLogSegmentState), max_size=12))
def test_every_state_is_entered_and_seen_as_the_table_says(asked: list[RemoteLogSegmentState]) -> None:
    """An event is taken exactly when the table of transitions has it, and a segment is seen as its state's row says."""
    cache = RemoteLogMetadataCache()
    state: RemoteLogSegmentState | None = None
    was_finished = False
    for target in asked:
        known = state not in (None, DELETED)
        allowed = target in _MAY_FOLLOW[state] or (known and target is state)
        taken = cache.add(segment(1, 0, 9)) if target is STARTED else cache.update(update(1, target))
        assert taken is allowed
        state = target if allowed else state
        was_finished |= state is FINISHED
        readable, listed = _VISIBLE[state]
        assert (cache.segment_for(0, 5) is not None) is readable
        assert bool(cache.segments()) is bool(cache.segments(0)) is listed
        assert (cache.highest_offset_for_epoch(0) is not None) is was_finished
        assert was_finished or not readable
