from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.errors import RemoteResourceNotFoundError, RetriableRemoteStorageError
from stratalog.remote.api.interfaces import RemotePartitionDeleteMetadata
from stratalog.remote.api.segment_state import RemoteLogSegmentState, RemotePartitionDeleteState
from stratalog.remote.metadata.topic_based import TopicBasedRemoteLogMetadataManager
from stratalog.testing.clock import ManualClock
from stratalog.testing.faulty_store import FaultPlan, StoreFault
from tests.remote.values import PARTITION, segment, update
from tests.remote.world import MemoryMetadataLog

STARTED, FINISHED, DELETING, DELETED = RemoteLogSegmentState
MARKED, GOING, GONE = RemotePartitionDeleteState


def _manager(log: MemoryMetadataLog) -> TopicBasedRemoteLogMetadataManager:
    return TopicBasedRemoteLogMetadataManager(log)


def test_a_write_is_seen_when_its_future_is_done() -> None:
    rlmm = _manager(MemoryMetadataLog())
    assert rlmm.add_remote_log_segment_metadata(segment(1, 0, 9)).done()
    assert rlmm.remote_log_segment_metadata(PARTITION, 0, 5) is None
    rlmm.update_remote_log_segment_metadata(update(1, FINISHED)).result()
    found = rlmm.remote_log_segment_metadata(PARTITION, 0, 5)
    assert found is not None
    assert found.state is FINISHED
    assert rlmm.highest_offset_for_epoch(PARTITION, 0) == 9
    assert rlmm.remote_log_size(PARTITION, 0) == 100


class LateLog(MemoryMetadataLog):
    """What is appended can be read only after as many looks at the clock as `behind` says."""

    behind = 3
    _pauses = 0

    def end_offset(self, partition: int) -> int:
        end = super().end_offset(partition)
        return end if self._pauses >= self.behind else max(end - 1, 0)

    def append(self, partition: int, value: bytes, timestamp_ms: int) -> int:
        self._pauses = 0
        return super().append(partition, value, timestamp_ms)

    def pause(self) -> None:
        self._pauses += 1


class LateClock(ManualClock):
    def __init__(self, log: LateLog) -> None:
        super().__init__()
        self._log = log

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._log.pause()


def test_a_future_is_done_only_when_its_event_can_be_read_back() -> None:
    log = LateLog()
    rlmm = TopicBasedRemoteLogMetadataManager(log, consume_wait_ms=1_000, clock=LateClock(log))
    rlmm.add_remote_log_segment_metadata(segment(1, 0, 9)).result()
    assert [m.state for m in rlmm.list_remote_log_segments(PARTITION)] == [STARTED]
    rlmm.update_remote_log_segment_metadata(update(1, FINISHED)).result()
    assert rlmm.highest_offset_for_epoch(PARTITION, 0) == 9
    log.behind = 10**6
    with pytest.raises(RetriableRemoteStorageError, match=r"consume\.wait\.ms=1000"):
        rlmm.update_remote_log_segment_metadata(update(1, DELETING)).result()


def test_events_that_somebody_else_stored_are_seen_by_the_next_lookup() -> None:
    log = MemoryMetadataLog()
    ours, other = _manager(log), _manager(log)
    assert ours.remote_log_segment_metadata(PARTITION, 0, 5) is None
    other.add_remote_log_segment_metadata(segment(1, 0, 9)).result()
    other.update_remote_log_segment_metadata(update(1, FINISHED)).result()
    assert ours.remote_log_segment_metadata(PARTITION, 0, 5) is not None
    other.update_remote_log_segment_metadata(update(1, DELETING)).result()
    assert ours.remote_log_segment_metadata(PARTITION, 0, 5) is None


def test_a_restart_sees_what_the_process_saw() -> None:
    log = MemoryMetadataLog()
    rlmm = _manager(log)
    for number in range(5):
        rlmm.add_remote_log_segment_metadata(segment(number, number * 10, number * 10 + 9)).result()
    for number, state in [
        (0, FINISHED),
        (0, DELETING),
        (0, DELETED),
        (1, FINISHED),
        (1, DELETING),
        (2, FINISHED),
    ]:
        rlmm.update_remote_log_segment_metadata(update(number, state)).result()
    again = _manager(log)
    assert again.is_ready(PARTITION)
    assert again.list_remote_log_segments(PARTITION) == rlmm.list_remote_log_segments(PARTITION)
    assert [m.state for m in again.list_remote_log_segments(PARTITION, 0)] == [
        DELETING,
        FINISHED,
        STARTED,
        STARTED,
    ]


def test_all_events_of_a_partition_lie_in_one_metadata_partition() -> None:
    log = MemoryMetadataLog(partition_count=7)
    rlmm = _manager(log)
    rlmm.add_remote_log_segment_metadata(segment(1, 0, 9)).result()
    rlmm.update_remote_log_segment_metadata(update(1, FINISHED)).result()
    assert sorted(map(len, log.values)) == [0, 0, 0, 0, 0, 0, 2]


def test_states_that_a_mutator_must_not_get_are_refused() -> None:
    rlmm = _manager(MemoryMetadataLog())
    with pytest.raises(ValueError, match="COPY_SEGMENT_FINISHED"):
        rlmm.add_remote_log_segment_metadata(segment(1, 0, 9, state=FINISHED))
    with pytest.raises(ValueError, match="add it"):
        rlmm.update_remote_log_segment_metadata(update(1, STARTED))


def test_an_update_of_an_unknown_segment_fails_and_writes_nothing() -> None:
    log = MemoryMetadataLog()
    with pytest.raises(RemoteResourceNotFoundError):
        _manager(log).update_remote_log_segment_metadata(update(1, FINISHED)).result()
    assert log.values == [[], [], []]


def test_an_append_that_fails_fails_the_future_and_a_later_one_works() -> None:
    faults = FaultPlan()
    rlmm = _manager(MemoryMetadataLog(faults=faults))
    faults.at(1, StoreFault.UNAVAILABLE)
    with pytest.raises(RetriableRemoteStorageError):
        rlmm.add_remote_log_segment_metadata(segment(1, 0, 9)).result()
    assert rlmm.list_remote_log_segments(PARTITION) == []
    rlmm.add_remote_log_segment_metadata(segment(1, 0, 9)).result()
    assert len(rlmm.list_remote_log_segments(PARTITION)) == 1


def test_after_a_lost_answer_the_event_is_seen_all_the_same() -> None:
    faults = FaultPlan()
    rlmm = _manager(MemoryMetadataLog(faults=faults))
    faults.at(1, StoreFault.LOST_ANSWER)
    with pytest.raises(RetriableRemoteStorageError):
        rlmm.add_remote_log_segment_metadata(segment(1, 0, 9)).result()
    rlmm.update_remote_log_segment_metadata(update(1, FINISHED)).result()
    assert rlmm.remote_log_segment_metadata(PARTITION, 0, 5) is not None


def test_a_damaged_event_is_skipped_with_a_line(caplog: pytest.LogCaptureFixture) -> None:
    log = MemoryMetadataLog(partition_count=1)
    rlmm = _manager(log)
    rlmm.add_remote_log_segment_metadata(segment(1, 0, 9)).result()
    log.values[0].append(b"\1\0\0damaged")
    rlmm.update_remote_log_segment_metadata(update(1, FINISHED)).result()
    again = _manager(log)
    assert again.remote_log_segment_metadata(PARTITION, 0, 5) is not None
    assert "Event 1 of metadata partition 0 is skipped" in caplog.text


def _doubled(values: list[bytes], at: int) -> None:
    values.insert(at, values[at])


def _lost(values: list[bytes], at: int) -> None:
    del values[at]


def _swapped(values: list[bytes], at: int) -> None:
    values[at : at + 2] = reversed(values[at : at + 2])


@settings(deadline=None)
@given(damage=st.sampled_from([_doubled, _lost, _swapped]), at=st.integers(0, 7))
def test_a_damaged_metadata_log_never_makes_a_segment_readable_that_is_not_finished(
    damage: Callable[[list[bytes], int], None], at: int
) -> None:
    """With events lost, doubled or reordered, what is readable was finished and not being deleted at some moment."""
    log = MemoryMetadataLog(partition_count=1)
    rlmm = _manager(log)
    for number in range(3):
        rlmm.add_remote_log_segment_metadata(segment(number, number * 10, number * 10 + 9)).result()
    for number, state in [(0, FINISHED), (1, FINISHED), (0, DELETING), (0, DELETED), (1, DELETING)]:
        rlmm.update_remote_log_segment_metadata(update(number, state)).result()
    damage(log.values[0], at)
    readable = [m.start_offset for m in _manager(log).list_remote_log_segments(PARTITION) if m.is_readable]
    assert set(readable) <= {0, 10}
    if damage is _doubled:
        assert readable == []


def test_an_unfinished_deletion_of_a_partition_is_found_after_a_restart() -> None:
    log = MemoryMetadataLog()
    rlmm = _manager(log)

    def put(state: RemotePartitionDeleteState) -> None:
        rlmm.put_remote_partition_delete_metadata(RemotePartitionDeleteMetadata(PARTITION, state, 1, 1)).result()

    put(RemotePartitionDeleteState.DELETE_PARTITION_MARKED)
    assert _manager(log).unfinished_partition_deletes() == [PARTITION]
    put(RemotePartitionDeleteState.DELETE_PARTITION_STARTED)
    assert _manager(log).unfinished_partition_deletes() == [PARTITION]
    put(RemotePartitionDeleteState.DELETE_PARTITION_FINISHED)
    assert _manager(log).unfinished_partition_deletes() == []


@pytest.mark.parametrize(
    ("states", "is_unfinished"),
    [
        ([MARKED], True),
        ([MARKED, GOING], True),
        ([MARKED, GOING, GONE], False),
        ([GOING], False),
        ([GONE], False),
        ([MARKED, GONE], True),
    ],
)
def test_a_deletion_goes_through_its_states_and_what_they_do_not_allow_is_dropped(
    states: list[RemotePartitionDeleteState], is_unfinished: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = MemoryMetadataLog(partition_count=1)
    rlmm = _manager(log)
    rlmm.add_remote_log_segment_metadata(segment(1, 0, 9)).result()
    for state in states:
        rlmm.put_remote_partition_delete_metadata(RemotePartitionDeleteMetadata(PARTITION, state, 5, 1)).result()
    for manager in (rlmm, _manager(log)):
        assert manager.unfinished_partition_deletes() == ([PARTITION] if is_unfinished else [])
        is_gone = states == [MARKED, GOING, GONE]
        assert len(manager.list_remote_log_segments(PARTITION)) == (0 if is_gone else 1)
    is_allowed = states == [MARKED, GOING, GONE][: len(states)]
    assert ("deletion cannot go to" in caplog.text) is not is_allowed


def test_a_closed_manager_refuses_events() -> None:
    rlmm = _manager(MemoryMetadataLog())
    rlmm.close()
    with pytest.raises(RetriableRemoteStorageError):
        rlmm.add_remote_log_segment_metadata(segment(1, 0, 9)).result()
