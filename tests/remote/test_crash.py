"""The process dies at every single step of a copy or a deletion; the next one recovers by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.testing.faulty_store import SimulatedCrash, StoreFault
from tests.remote.world import World

Scenario = Callable[[World], object]


def _copy(world: World) -> object:
    return world.tier()


def _prepare_copy(world: World) -> None:
    world.append(25)


def _prepare_expiration(world: World) -> None:
    world.append(40)
    world.tier()
    world.drop_local()
    segments = world.rlmm.list_remote_log_segments(world.partition)
    world.configure(retention_ms=world.clock.now_ms() - segments[1].max_timestamp_ms)


def _delete_partition(world: World) -> object:
    world.manager.stop_partitions([world.partition], delete_remote=True)
    return world.manager._deletions._delete(world.partition)


def _steps(path: Path, prepare: Callable[[World], None], act: Scenario) -> int:
    """How many steps the whole of it has."""
    with World(path) as world:
        prepare(world)
        before = len(world.faults.steps)
        act(world)
        return len(world.faults.steps) - before


def _crash_at(world: World, step: int, fault: StoreFault, act: Scenario) -> None:
    world.faults.at(step, fault)
    with pytest.raises(SimulatedCrash):
        act(world)
    world.restart(crashed=True)


@pytest.mark.parametrize("fault", [StoreFault.CRASH, StoreFault.CRASH_AFTER])
def test_a_crash_at_any_step_of_a_copy_loses_nothing_and_leaves_nothing(tmp_path: Path, fault: StoreFault) -> None:
    steps = _steps(tmp_path / "dry", _prepare_copy, _copy)
    assert steps > 20
    for step in range(1, steps + 1):
        with World(tmp_path / str(step)) as world:
            _prepare_copy(world)
            _crash_at(world, step, fault, _copy)
            assert world.log.local_log_start_offset == 0
            world.drop_local()
            assert world.log.local_log_start_offset == 0, "nobody has looked yet what is remote"
            world.expect_everything()
            world.append(5)
            world.tier()
            world.drop_local()
            assert world.log.local_log_start_offset > 0
            assert world.orphans() == []
            assert list_remote_segments(world.inner, covered=True) == list_remote_segments(world.inner)
            assert world.manager.copy_lag(world.partition).segments == 0
            world.expect_everything()


@pytest.mark.parametrize("fault", [StoreFault.CRASH, StoreFault.CRASH_AFTER])
def test_a_crash_at_any_step_of_an_expiration_deletes_the_same_in_the_end(tmp_path: Path, fault: StoreFault) -> None:
    steps = _steps(tmp_path / "dry", _prepare_expiration, _copy)
    assert steps > 10
    for step in range(1, steps + 1):
        with World(tmp_path / str(step)) as world:
            _prepare_expiration(world)
            kept = world.rlmm.list_remote_log_segments(world.partition)[2:]
            _crash_at(world, step, fault, _copy)
            world.tier()
            assert world.log.log_start_offset == kept[0].start_offset
            found = world.rlmm.list_remote_log_segments(world.partition)
            assert [s.segment_id for s in found][: len(kept)] == [s.segment_id for s in kept]
            assert world.orphans() == []
            world.expect_everything()


@pytest.mark.parametrize("fault", [StoreFault.CRASH, StoreFault.CRASH_AFTER])
def test_a_crash_at_any_step_of_a_partitions_deletion_is_made_up_for(tmp_path: Path, fault: StoreFault) -> None:
    def prepare(world: World) -> None:
        world.append(25)
        world.tier()

    steps = _steps(tmp_path / "dry", prepare, _delete_partition)
    for step in range(1, steps + 1):
        with World(tmp_path / str(step)) as world:
            prepare(world)
            _crash_at(world, step, fault, _delete_partition)
            if step == 1 and fault is StoreFault.CRASH:
                assert world.rlmm.unfinished_partition_deletes() == []  # it never began
                continue
            for partition in world.rlmm.unfinished_partition_deletes():
                world.manager._deletions._delete(partition)
            assert world.objects() == []
            assert world.rlmm.unfinished_partition_deletes() == []


@pytest.mark.parametrize("is_local", [True, False], ids=["still local", "remote only"])
def test_a_crash_after_a_deletion_of_records_leaves_no_offset_that_cannot_be_read(
    tmp_path: Path, is_local: bool
) -> None:
    """The leader epochs are cut at once, the checkpoint of where the log begins comes later."""
    with World(tmp_path) as world:
        world.append(40)
        world.tier()
        if not is_local:
            world.drop_local()
        world.log.increment_log_start_offset(35, "client delete records")
        world.restart(crashed=True)
        assert world.log.log_start_offset == 0
        world.tier()
        world.drop_local()
        assert world.log.log_start_offset == 35
        world.expect_everything()


def test_a_manifest_is_there_only_with_all_its_objects_at_every_step(tmp_path: Path) -> None:
    def act(world: World) -> None:
        world.tier()
        world.configure(retention_ms=0)
        world.tier()

    steps = _steps(tmp_path / "dry", _prepare_copy, act)
    with_manifest = 0
    for step in range(1, steps + 1):
        with World(tmp_path / str(step)) as world:
            _prepare_copy(world)
            world.faults.at(step, StoreFault.CRASH)
            with pytest.raises(SimulatedCrash):
                act(world)
            for manifest in list_remote_segments(world.inner, covered=True):
                with_manifest += 1
                for kind, stored in manifest.objects.items():
                    assert world.inner.head(manifest.key(kind)).size == stored.size
    assert with_manifest > 0
