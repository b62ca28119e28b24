"""Which logs a cleaner gets, who has to wait for whom, and what is written down about how far each is clean."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.engine.cleaner_world import NOW, World

from stratalog.config.topic import LogConfig
from stratalog.engine.cleaning.cleaner_manager import LogToClean
from stratalog.log.cleaner.states import ABORTED, IDLE, IN_PROGRESS, PAUSED_ONCE, CleaningState, Phase
from stratalog.log.cleaner.values import CleaningAborted
from stratalog.log.format.checkpoints import CLEANER_OFFSETS
from stratalog.log.partition_log import PartitionLog
from stratalog.records.batch_builder import build_batch
from stratalog.records.control import ControlType, end_transaction_marker
from stratalog.records.record import Record

KEY = ("log", 0)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def in_background() -> Iterator[Callable[[Callable[[], object]], threading.Thread]]:
    threads: list[threading.Thread] = []

    def start(function: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=function, daemon=True)
        threads.append(thread)
        thread.start()
        return thread

    yield start
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


# --- the choice ----------------------------------------------------------------


def test_the_log_with_the_largest_dirty_share_is_taken_first(world: World) -> None:
    for number in range(3):
        world.log(number, segments=4)
    world.checkpoint(_0=30, _1=10, _2=20)
    assert world.take().partition == ("log", 1)
    assert world.manager.state(("log", 1)) == IN_PROGRESS


def test_a_log_that_is_being_worked_on_is_passed_over(world: World) -> None:
    for number in range(3):
        world.log(number, segments=4, min_cleanable_dirty_ratio=0.0)
    world.checkpoint(_0=30, _1=10, _2=20)
    assert world.take().partition == ("log", 1)
    assert world.take().partition == ("log", 2)


def test_a_log_that_cannot_be_cleaned_is_passed_over(world: World) -> None:
    for number in range(2):
        world.log(number, segments=4)
    world.checkpoint(_0=15, _1=10)
    world.manager.mark_uncleanable(("log", 1), world.logs["log", 1], "broken")
    assert world.take().partition == ("log", 0)
    assert world.nothing_to_take()


def test_a_log_that_is_not_compacted_is_never_taken(world: World) -> None:
    world.log(segments=4, policy="delete")
    assert world.nothing_to_take()


def test_a_log_with_nothing_but_its_active_segment_is_not_taken(world: World) -> None:
    world.append(world.log(min_cleanable_dirty_ratio=0.0))
    assert world.nothing_to_take()


def test_a_log_that_cannot_be_read_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from stratalog.engine.cleaning.cleaner_manager import UnselectableLogError

    log = world.log(segments=2)
    monkeypatch.setattr(
        PartitionLog, "last_stable_offset", property(lambda _: (_ for _ in ()).throw(OSError(5, "broken")))
    )
    with pytest.raises(UnselectableLogError) as raised:
        world.manager.take_filthiest(NOW)
    assert (raised.value.partition, raised.value.log) == (KEY, log)
    assert world.manager.state(KEY) == IDLE


def test_what_is_below_an_open_transaction_alone_is_cleanable(world: World) -> None:
    log = world.log(min_cleanable_dirty_ratio=0.0)
    fields = {"producer_id": 9, "producer_epoch": 0, "is_transactional": True, "partition_leader_epoch": 0}

    def transactional(sequence: int) -> None:
        batch = build_batch([Record(0, NOW, b"k", b"v")], base_sequence=sequence, **fields)  # type: ignore[arg-type]
        log.append_as_leader(batch, leader_epoch=0)
        log.update_high_watermark(log.log_end_offset)

    transactional(0)
    transactional(1)
    log.roll()
    world.append(log)
    log.roll()
    assert world.nothing_to_take()  # all of it lies behind the beginning of the transaction
    marker = end_transaction_marker(
        ControlType.ABORT, producer_id=9, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW
    )
    log.append_as_leader(marker, leader_epoch=0, origin="coordinator")
    log.roll()
    assert world.nothing_to_take()  # decided, but the marker is above the high watermark
    log.update_high_watermark(log.log_end_offset)
    assert world.take().first_uncleanable_offset == log.active_segment.base_offset


# --- checkpoints that cannot be right ----------------------------------------------------------------


def test_a_checkpoint_behind_the_log_end_is_reset_and_all_is_cleaned(world: World) -> None:
    world.log(segments=2)
    world.checkpoint(_0=1000)
    assert world.take().first_dirty_offset == 0
    assert world.stored() == {KEY: 0}


def test_a_checkpoint_below_the_log_start_is_reset_to_it(world: World) -> None:
    log = world.log(segments=3)
    log.increment_log_start_offset(10, "a test")
    log.delete_old_segments()
    world.checkpoint(_0=0)
    assert world.take().first_dirty_offset == 10
    assert world.stored() == {KEY: 10}


def test_a_checkpoint_is_reset_even_if_nothing_is_to_be_cleaned_then(world: World) -> None:
    log = world.log()
    world.append(log)
    world.checkpoint(_0=50)
    assert world.nothing_to_take()
    assert world.stored() == {KEY: 0}


def test_a_checkpoint_is_reset_even_if_another_log_is_chosen(world: World) -> None:
    world.append(world.log(0))
    world.log(1, segments=4)
    world.checkpoint(_0=15)
    assert world.take().partition == ("log", 1)
    assert world.stored()["log", 0] == 0


def test_a_log_start_within_the_active_segment_is_no_mistake(world: World) -> None:
    log = world.log(segments=2)
    log.increment_log_start_offset(25, "a test")
    world.checkpoint(_0=0)
    assert world.nothing_to_take()
    assert world.stored() == {KEY: 25}


def test_a_dirty_offset_within_the_active_segment_is_no_mistake(world: World) -> None:
    world.log(segments=2)
    world.checkpoint(_0=25)
    assert world.nothing_to_take()
    assert world.stored() == {KEY: 25}


def test_a_damaged_checkpoint_file_makes_everything_dirty(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.log(segments=2)
    (world.dirs[0] / CLEANER_OFFSETS).write_text("0\n1\nlog 0")
    world.restarted()
    assert "count as dirty" in caplog.text
    assert world.take().first_dirty_offset == 0


# --- retention ----------------------------------------------------------------


@pytest.mark.parametrize(("policy", "taken"), [("delete", False), ("compact", True), ("compact,delete", True)])
def test_the_retention_of_compacted_logs_is_the_cleaners(world: World, policy: str, taken: bool) -> None:
    world.log(segments=1, policy=policy)
    assert (KEY in world.manager.take_for_retention()) is taken
    assert (world.manager.state(KEY) == IN_PROGRESS) is taken


@pytest.mark.parametrize(("policy", "taken"), [("delete", True), ("compact", False), ("compact,delete", False)])
def test_the_retention_of_all_others_is_not(world: World, policy: str, taken: bool) -> None:
    world.log(segments=1, policy=policy)
    assert (KEY in world.manager.pause_not_compacted()) is taken
    assert (world.manager.state(KEY) == PAUSED_ONCE) is taken


def test_no_two_threads_apply_retention_to_one_log(world: World) -> None:
    world.log(segments=1)
    assert list(world.manager.take_for_retention()) == [KEY]
    assert list(world.manager.take_for_retention()) == []
    world.manager.done_deleting([KEY])
    assert list(world.manager.take_for_retention()) == [KEY]


def test_a_log_is_not_cleaned_while_retention_is_at_it_whatever_its_policy_becomes(world: World) -> None:
    log = world.log(segments=4, policy="delete")
    assert list(world.manager.pause_not_compacted()) == [KEY]
    log.config = LogConfig(cleanup_policy=frozenset({"compact"}))
    assert world.nothing_to_take()
    assert list(world.manager.take_for_retention()) == []
    world.manager.resume([KEY])
    assert world.take().partition == KEY


def test_retention_leaves_alone_what_is_being_cleaned_whatever_its_policy_becomes(world: World) -> None:
    log = world.log(segments=4)
    world.take()
    log.config = LogConfig(cleanup_policy=frozenset({"delete"}))
    assert list(world.manager.pause_not_compacted()) == []


def test_retention_leaves_alone_what_is_paused(world: World) -> None:
    world.log(segments=4, policy="delete")
    with world.manager.paused(KEY):
        assert list(world.manager.pause_not_compacted()) == []


def test_retention_leaves_alone_what_cannot_be_cleaned(world: World) -> None:
    log = world.log(segments=4, policy="compact,delete")
    world.manager.mark_uncleanable(KEY, log, "broken")
    assert list(world.manager.take_for_retention()) == []


# --- abort, pause, resume ----------------------------------------------------------------


def test_a_caller_that_pauses_waits_until_the_cleaning_has_ended(
    world: World, in_background: Callable[[Callable[[], object]], threading.Thread]
) -> None:
    world.log(segments=4)
    taken = world.take()
    thread = in_background(lambda: world.manager.abort_and_pause(KEY))
    while world.manager.state(KEY) != ABORTED:
        thread.join(0.001)
    with pytest.raises(CleaningAborted):
        world.manager.check_aborted(KEY)
    assert thread.is_alive()
    world.manager.done_cleaning(taken, 40)
    thread.join(60)
    assert world.manager.state(KEY) == PAUSED_ONCE
    assert world.manager.checkpointed(taken.log) is None  # an aborted cleaning made nothing clean
    world.manager.resume([KEY])
    assert world.manager.state(KEY) == IDLE


def test_two_may_pause_one_cleaning(
    world: World, in_background: Callable[[Callable[[], object]], threading.Thread]
) -> None:
    world.log(segments=4)
    taken = world.take()
    threads = [in_background(lambda: world.manager.abort_and_pause(KEY)) for _ in range(2)]
    while world.manager.state(KEY) != ABORTED:
        threads[0].join(0.001)
    world.manager.done_cleaning(taken, 40)
    for thread in threads:
        thread.join(60)
    assert world.manager.state(KEY) == CleaningState(Phase.PAUSED, 2)


def test_an_abort_leaves_the_log_free_to_be_cleaned_again(world: World) -> None:
    world.log(segments=4)
    world.manager.abort(KEY)
    assert world.take().partition == KEY


def test_a_pause_without_a_cleaning_is_there_at_once_and_counts(world: World) -> None:
    world.log(segments=4)
    with world.manager.paused(KEY):
        with world.manager.paused(KEY):
            assert world.manager.state(KEY) == CleaningState(Phase.PAUSED, 2)
        assert world.nothing_to_take()
    assert world.take().partition == KEY


def test_a_log_is_truncated_while_retention_is_at_it(world: World) -> None:
    world.log(segments=1, policy="delete")
    paused = world.manager.pause_not_compacted()
    with world.manager.paused(KEY):
        assert world.manager.state(KEY) == CleaningState(Phase.PAUSED, 2)
    world.manager.resume(paused)
    assert world.manager.state(KEY) == IDLE


def test_a_log_is_deleted_while_retention_is_at_it(world: World) -> None:
    world.log(segments=1, policy="delete")
    paused = world.manager.pause_not_compacted()
    world.manager.abort(KEY)
    del world.logs[KEY]
    world.manager.resume(paused)
    assert world.manager.state(KEY) == IDLE


def test_what_is_not_paused_cannot_be_resumed(world: World) -> None:
    world.log(segments=4)
    with pytest.raises(ValueError):
        world.manager.resume([KEY])
    world.take()
    with pytest.raises(ValueError):
        world.manager.resume([KEY])


# --- done ----------------------------------------------------------------


def test_a_done_cleaning_is_written_down(world: World) -> None:
    world.log(segments=4)
    world.manager.done_cleaning(world.take(), 40)
    assert world.stored() == {KEY: 40}
    assert world.manager.state(KEY) == IDLE
    assert world.restarted().checkpointed(world.logs[KEY]) == 40


def test_what_no_one_took_cannot_be_given_back(world: World) -> None:
    log = world.log(segments=4)
    with pytest.raises(ValueError):
        world.manager.done_cleaning(LogToClean(KEY, log, 0, 40), 40)
    with pytest.raises(ValueError):
        world.manager.done_deleting([KEY])
    with world.manager.paused(KEY), pytest.raises(ValueError):
        world.manager.done_deleting([KEY])


def test_retention_that_was_aborted_ends_paused(
    world: World, in_background: Callable[[Callable[[], object]], threading.Thread]
) -> None:
    world.log(segments=1, policy="compact,delete")
    world.manager.take_for_retention()
    thread = in_background(lambda: world.manager.abort_and_pause(KEY))
    while world.manager.state(KEY) != ABORTED:
        thread.join(0.001)
    world.manager.done_deleting([KEY])
    thread.join(60)
    assert world.manager.state(KEY) == PAUSED_ONCE


# --- the checkpoint file ----------------------------------------------------------------


def test_offsets_of_partitions_that_are_gone_are_dropped_at_the_next_write(world: World) -> None:
    world.log(segments=4)
    world.checkpoint(_0=10, _1=7)
    world.manager.done_cleaning(world.take(), 40)
    assert world.stored() == {KEY: 40}


def test_the_offset_of_a_deleted_partition_is_removed(world: World) -> None:
    world.log(0)
    world.log(1)
    world.checkpoint(_0=10, _1=7)
    world.manager.remove_checkpoints(world.dirs[0], [KEY])
    assert world.stored() == {("log", 1): 7}


def test_a_truncation_takes_the_offset_back(world: World) -> None:
    log = world.log(segments=2)
    world.checkpoint(_0=20)
    world.manager.truncate_checkpoint(log, 25)
    assert world.stored() == {KEY: 20}
    world.manager.truncate_checkpoint(log, 5)
    assert world.stored() == {KEY: 5}


def test_a_truncation_of_a_log_without_an_offset_or_without_compaction_writes_nothing(world: World) -> None:
    world.manager.truncate_checkpoint(world.log(0), 5)
    world.manager.truncate_checkpoint(world.log(1, policy="delete"), 5)
    assert not (world.dirs[0] / CLEANER_OFFSETS).exists()


def test_a_partition_takes_its_offset_and_its_mark_to_another_directory(world: World) -> None:
    log = world.log(0)
    world.log(1)
    world.checkpoint(_0=10, _1=7)
    world.manager.mark_uncleanable(KEY, log, "broken")
    world.manager.move_checkpoint(KEY, world.dirs[0], world.dirs[1])
    assert (world.stored(0), world.stored(1)) == ({("log", 1): 7}, {KEY: 10})
    assert world.manager.uncleanable(world.dirs[0]) == {}
    assert world.manager.uncleanable(world.dirs[1]) == {KEY: "broken"}


def test_a_failed_directory_is_neither_read_nor_written(world: World) -> None:
    log = world.log(segments=2)
    world.checkpoint(_0=10)
    world.manager.forget_dir(world.dirs[0])
    assert world.manager.checkpointed(log) is None
    world.manager.truncate_checkpoint(log, 5)
    assert world.stored() == {KEY: 10}


# --- what cannot be cleaned ----------------------------------------------------------------


def test_marks_are_kept_for_each_directory_with_their_bytes(world: World) -> None:
    logs = [world.log(0, segments=2), world.log(1, segments=4, data_dir=1)]
    for log in logs:
        world.manager.mark_uncleanable(("log", log.partition), log, "broken")
    assert [set(world.manager.uncleanable(path)) for path in world.dirs] == [{("log", 0)}, {("log", 1)}]
    sizes = [sum(segment.size_bytes for segment in log.segments[:-1]) for log in logs]
    assert [world.manager.uncleanable_bytes(path, NOW) for path in world.dirs] == sizes
    assert world.nothing_to_take()


def test_marks_of_deleted_partitions_go(world: World) -> None:
    log = world.log(segments=2)
    world.manager.mark_uncleanable(KEY, log, "broken")
    world.manager.drop_gone()
    assert world.manager.uncleanable(world.dirs[0]) == {KEY: "broken"}
    del world.logs[KEY]
    world.manager.drop_gone()
    assert world.manager.uncleanable(world.dirs[0]) == {}


def test_a_mark_lasts_until_the_next_start(world: World) -> None:
    log = world.log(segments=4)
    world.manager.mark_uncleanable(KEY, log, "broken")
    assert world.nothing_to_take()
    world.restarted()
    assert world.take().partition == KEY
