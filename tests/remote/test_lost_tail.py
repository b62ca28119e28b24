"""A machine loses the end of a log whose segments had been copied: what survived is not given up, here or in the
bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from stratalog.remote.tier.copied_offset import find_highest_remote_offset
from tests.remote.world import CONFIG, RECORDS_IN_BATCH, World


def lose_tail(world: World, at: int) -> None:
    """Offsets from `at` on are gone after a crash; the bucket and the metadata have them still."""
    world.log.truncate_to(at)
    world.expected = {base: data for base, data in world.expected.items() if base < at}
    world.restart(crashed=True)
    assert world.log.log_end_offset == at


@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("restarts", [False, True])
def test_what_survived_of_a_segment_counts_as_copied_only_once_it_is_copied_again(
    tmp_path: Path, number: int, restarts: bool
) -> None:
    with World(tmp_path) as world:
        world.append(60)
        world.tier()
        copied = world.rlmm.list_remote_log_segments(world.partition)
        cut_in = copied[number]
        lose_tail(world, cut_in.start_offset + 2 * RECORDS_IN_BATCH)
        assert find_highest_remote_offset(world.rlmm, world.partition, world.log) == cut_in.start_offset - 1
        for _ in range(3):
            world.append(30)
            world.tier()
            world.expect_everything()
            world.drop_local()
            if restarts:
                world.restart()
        # Now the segments of the history that is gone go too, as the log start passes them or as no one wants them.
        world.manager._rlmm.on_partition_leadership_changes([world.partition], [])
        world.tier()
        world.expect_everything()
        assert world.log.log_start_offset == 0
        assert world.log.local_log_start_offset > cut_in.end_offset


def test_a_segment_that_went_on_in_an_epoch_that_is_gone_is_copied_again_though_its_records_are_all_here(
    tmp_path: Path,
) -> None:
    """All that survived of the segment is of an epoch that goes on where the segment had gone over to another one."""
    with World(tmp_path) as world:
        world.append(20)
        world.log.roll()
        first = world.log.active_segment.base_offset
        world.append(3)
        switch = world.log.log_end_offset
        world.leader_epoch = 1
        world.log.leader_epochs.assign(1, switch)
        world.append(3)
        world.log.roll()
        world.tier()
        assert find_highest_remote_offset(world.rlmm, world.partition, world.log) > switch
        world.log.truncate_to(switch)
        world.expected = {base: data for base, data in world.expected.items() if base < switch}
        assert [entry.epoch for entry in world.log.leader_epochs.entries] == [0]
        world.leader_epoch = 0
        world.append(5)
        assert find_highest_remote_offset(world.rlmm, world.partition, world.log) == first - 1
        world.log.roll()
        world.append(1)
        world.tier()
        world.drop_local()
        assert world.log.local_log_start_offset > switch
        world.expect_everything()


def test_the_first_segment_being_cut_does_not_move_the_log_start_behind_what_survived(tmp_path: Path) -> None:
    """It alone was copied, so that nothing remote is of the log's history any more."""
    with World(tmp_path) as world:
        while not world.rlmm.list_remote_log_segments(world.partition):
            world.append(1)
            world.tier()
        lose_tail(world, 2 * RECORDS_IN_BATCH)
        world.log.roll()
        for _ in range(2):
            world.append(1)
            world.tier()
            world.log.roll()
            world.drop_local()
            world.restart()
            world.tier()
            world.expect_everything()
            assert world.log.log_start_offset == 0


def test_segments_that_retention_deleted_are_not_copied_again(tmp_path: Path) -> None:
    with World(tmp_path, CONFIG) as world:
        world.append(60)
        world.tier()
        highest = find_highest_remote_offset(world.rlmm, world.partition, world.log)
        world.configure(retention_ms=1)
        world.clock.advance(60)
        assert world.tier().deleted > 0
        assert find_highest_remote_offset(world.rlmm, world.partition, world.log) == highest
        world.configure(retention_ms=-1)
        assert world.tier().copied == 0
