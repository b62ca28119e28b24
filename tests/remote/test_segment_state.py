from __future__ import annotations

from stratalog.remote.api.segment_state import (
    RemoteLogSegmentState,
    RemotePartitionDeleteState,
    is_valid_delete_transition,
    is_valid_transition,
)
from tests.remote.goldens import GOLDENS


def test_transitions_of_segments_are_kafkas() -> None:
    ours = {
        (None if source is None else source.name, target.name)
        for source in (*RemoteLogSegmentState, None)
        for target in RemoteLogSegmentState
        if is_valid_transition(source, target)
    }
    assert ours == {(source, target) for source, target in GOLDENS["transitions"]}


def test_a_partition_is_marked_then_started_then_finished() -> None:
    order = [None, *RemotePartitionDeleteState]
    for source in order:
        for target in RemotePartitionDeleteState:
            expected = source is target or order.index(target) == order.index(source) + 1
            assert is_valid_delete_transition(source, target) is expected
