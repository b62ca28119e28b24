"""A store that answers 5xx, late, short, wrong or never: nothing false is served, nothing is lost, and it heals."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest

from stratalog.errors import OffsetOutOfRangeError, RemoteStorageError, RetriableRemoteStorageError
from stratalog.records.batch import iter_batches
from stratalog.remote.storage.object_names import ObjectKind
from stratalog.testing.faulty_store import StoreFault
from tests.remote.world import World


@pytest.mark.parametrize("fault", [StoreFault.UNAVAILABLE, StoreFault.DENIED, StoreFault.LOST_ANSWER])
def test_a_failure_at_any_step_of_a_copy_is_made_up_for_at_the_next_turn(tmp_path: Path, fault: StoreFault) -> None:
    with World(tmp_path / "dry") as world:
        world.append(25)
        world.tier()
        steps = len(world.faults.steps)
    for step in range(1, steps + 1):
        with World(tmp_path / str(step)) as world:
            world.append(25)
            world.faults.at(step, fault)
            with pytest.raises(RemoteStorageError):
                world.tier()
            remote = world.log.highest_offset_in_remote_storage
            world.drop_local()
            assert world.log.local_log_start_offset == remote + 1
            world.expect_everything()
            world.faults.heal()
            world.tier()
            assert world.manager.copy_lag(world.partition).segments == 0
            world.drop_local()
            assert world.orphans() == []
            world.expect_everything()


@pytest.mark.parametrize("fault", [StoreFault.UNAVAILABLE, StoreFault.DENIED, StoreFault.LOST_ANSWER])
def test_a_failure_at_any_step_of_an_expiration_is_made_up_for(tmp_path: Path, fault: StoreFault) -> None:
    with World(tmp_path / "dry") as world:
        world.append(25)
        world.tier()
        before = len(world.faults.steps)
        world.configure(retention_ms=0)
        world.tier()
        steps = len(world.faults.steps) - before
    for step in range(1, steps + 1):
        with World(tmp_path / str(step)) as world:
            world.append(25)
            world.tier()
            world.configure(retention_ms=0)
            world.faults.at(step, fault)
            with pytest.raises(RemoteStorageError):
                world.tier()
            assert world.manager.delete_lag(world.partition).segments > 0
            world.tier()
            assert world.objects() == []
            assert world.manager.delete_lag(world.partition).segments == 0
            world.expect_everything()


@pytest.mark.parametrize(
    "fault", [StoreFault.SHORT, StoreFault.WRONG, StoreFault.UNAVAILABLE, StoreFault.DENIED, StoreFault.LOST_ANSWER]
)
def test_a_read_gives_what_was_written_or_an_error(tmp_path: Path, fault: StoreFault) -> None:
    with World(tmp_path / "dry") as world:
        world.append(25)
        world.tier()
        world.drop_local()
        world.restart()
        before = len(world.faults.steps)
        world.manager.read(world.partition, 50, 1_000)
        steps = len(world.faults.steps) - before
    assert steps >= 4, "manifest, two indexes and records"
    for step in range(1, steps + 1):
        with World(tmp_path / str(step)) as world:
            world.append(25)
            world.tier()
            world.drop_local()
            world.restart()
            world.faults.at(step, fault)
            with contextlib.suppress(RemoteStorageError):
                for batch in iter_batches(world.manager.read(world.partition, 50, 1_000).records):
                    assert bytes(batch.as_memoryview()) == world.expected[batch.base_offset]
            world.faults.heal()
            world.expect_everything()


@pytest.mark.parametrize("fault", [StoreFault.SHORT, StoreFault.WRONG])
def test_a_store_that_always_answers_wrong_is_never_believed(tmp_path: Path, fault: StoreFault) -> None:
    with World(tmp_path) as world:
        world.append(25)
        world.tier()
        world.drop_local()
        world.restart()
        world.faults.always(fault)
        with pytest.raises(RemoteStorageError):
            world.manager.read(world.partition, 0, 1_000)
        with pytest.raises(RemoteStorageError):
            world.manager.offset_for_timestamp(world.partition, 0, 0)


@pytest.mark.parametrize("kind", [ObjectKind.LOG, ObjectKind.MANIFEST])
def test_an_object_damaged_in_the_store_is_named(tmp_path: Path, kind: ObjectKind) -> None:
    with World(tmp_path) as world:
        world.append(25)
        world.tier()
        world.drop_local()
        world.restart()
        key = next(key for key in world.objects() if key.endswith(f".{kind.value}"))
        data = bytearray(world.inner.get(key))
        data[len(data) // 2] ^= 1
        world.inner.put(key, data)
        with pytest.raises(RemoteStorageError, match=r"damaged in the store|not a manifest|another segment"):
            world.manager.read(world.partition, 0, 1_000)


def test_a_store_that_hangs_fails_the_copy_at_the_deadline_and_the_lag_moves(tmp_path: Path) -> None:
    with World(tmp_path, deadline_ms=100) as world:
        world.append(25)
        world.faults.at(3, StoreFault.HANG)
        with pytest.raises(RetriableRemoteStorageError, match="did not answer within 100 ms"):
            world.tier()
        lag = world.manager.copy_lag(world.partition)
        world.append(25)
        assert world.manager.copy_lag(world.partition).size_bytes > lag.size_bytes > 0
        world.faults.heal()
        world.tier()
        world.drop_local()
        world.expect_everything()


def test_a_store_that_hangs_fails_the_read_at_the_deadline(tmp_path: Path) -> None:
    with World(tmp_path, deadline_ms=100) as world:
        world.append(25)
        world.tier()
        world.drop_local()
        world.restart()
        world.faults.always(StoreFault.HANG)
        with pytest.raises(RetriableRemoteStorageError, match="did not answer within 100 ms"):
            world.manager.read(world.partition, 0, 1_000)
        world.faults.heal()
        world.expect_everything()


def test_closing_does_not_wait_for_a_store_that_hangs(tmp_path: Path) -> None:
    world = World(tmp_path, deadline_ms=3_600_000)
    world.append(25)
    world.tier()
    world.drop_local()
    world.restart()
    world.faults.always(StoreFault.HANG)
    failures: list[Exception] = []

    def read() -> None:
        try:
            world.manager.read(world.partition, 0, 1_000)
        except RetriableRemoteStorageError as error:
            failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    while not any(step.startswith("get") for step in world.faults.steps[-1:]):
        reader.join(0.01)
    world.manager.close()
    reader.join(60)
    assert not reader.is_alive()
    assert len(failures) == 1
    world.close()


def test_a_segment_that_expires_under_a_reader_is_out_of_range_for_it(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(25)
        world.tier()
        world.drop_local()
        world.configure(retention_ms=0)
        world.tier()
        with pytest.raises(OffsetOutOfRangeError):
            world.manager.read(world.partition, 0, 1_000)


def test_damage_in_the_local_index_cache_is_repaired_from_the_store(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(60)
        world.tier()
        world.drop_local()
        world.expect_everything()
        world.restart()
        for path in (tmp_path / "cache").glob("*.index"):
            data = bytearray(path.read_bytes())
            data[7] ^= 0x3F  # the position of the first entry
            path.write_bytes(data)
        for offset in range(world.log.local_log_start_offset):
            found = world.manager.read(world.partition, offset, 1)
            assert found.records == world.expected[offset - offset % 7]


# --- a damaged source -------------------------------------------------------------------------------------------------


def test_a_local_segment_with_a_flipped_bit_is_not_copied(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(25)
        path = world.log.segments[0].log_path
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        with pytest.raises(Exception, match=path.name):
            world.tier()
        assert world.objects() == []
        assert world.drop_local() == 0


def test_a_local_index_that_points_at_no_batch_keeps_its_segment_here(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(25)
        path = world.log.segments[0].offset_index_path
        data = bytearray(path.read_bytes())
        data[7] ^= 1
        path.write_bytes(data)
        with pytest.raises(Exception, match=path.name):
            world.tier()
        assert world.objects() == []
