"""The manager with its threads: what runs by itself, what is said once, and how it ends."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from stratalog.errors import RemoteStorageError, RetriableRemoteStorageError
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.log.partition_log import PartitionLog
from stratalog.remote.api.interfaces import CustomMetadata, RemoteLogSegmentId
from stratalog.remote.api.segment_state import RemoteLogSegmentState
from stratalog.remote.api.topic_id_partition import TopicIdPartition
from stratalog.remote.metadata.topic_based import TopicBasedRemoteLogMetadataManager
from stratalog.remote.tier.health import RemoteHealth
from stratalog.remote.tier.manager import RunResult
from stratalog.testing.clock import ManualClock
from stratalog.testing.faulty_store import StoreFault
from stratalog.util.clock import SYSTEM_CLOCK
from tests.remote.values import PARTITION, segment
from tests.remote.world import World

_SOON = {"remote.log.manager.task.interval.ms": "20"}
_LATER = {"remote.log.manager.task.interval.ms": "3600000"}


class RunningWorld(World):
    """A world whose manager's tasks run, on the machine's clock."""

    def _manager(self):  # type: ignore[no-untyped-def]
        clock, self.clock = self.clock, SYSTEM_CLOCK  # type: ignore[assignment]
        try:
            manager = super()._manager()
        finally:
            self.clock = clock
        manager.start()
        return manager


def _eventually(holds: Callable[[], bool], what: str) -> None:
    """Wait for a condition that background threads bring about; there is no bound but the suite's timeout."""
    while not holds():
        time.sleep(0.005)


def _all_remote(world: World) -> bool:
    return world.manager.copy_lag(world.partition).segments == 0


def test_sealed_segments_are_copied_and_expired_by_themselves(tmp_path: Path) -> None:
    with RunningWorld(tmp_path, broker=_SOON) as world:
        world.append(40)
        _eventually(lambda: _all_remote(world), "copied")
        world.drop_local()
        world.expect_everything()
        world.configure(retention_ms=0)
        _eventually(lambda: world.objects() == [], "expired")


def test_a_poke_does_not_wait_for_the_next_turn(tmp_path: Path) -> None:
    with RunningWorld(tmp_path, broker=_LATER) as world:
        world.append(40)
        world.manager.poke(world.partition)
        _eventually(lambda: _all_remote(world), "copied")
        world.append(40)
        world.manager.poke()
        _eventually(lambda: _all_remote(world), "copied")
        world.append(40)
        world.manager.on_leadership_change([world.log])
        _eventually(lambda: _all_remote(world), "copied")


def test_tasks_pass_their_turns_until_the_metadata_manager_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ready = [], threading.Event()

    def is_ready(_self: object, partition: TopicIdPartition) -> bool:
        asked.append(partition)
        return ready.is_set()

    monkeypatch.setattr(TopicBasedRemoteLogMetadataManager, "is_ready", is_ready)
    with RunningWorld(tmp_path, broker=_SOON) as world:
        world.append(40)
        _eventually(lambda: len(asked) > 5, "asked again and again")
        assert world.objects() == []
        assert world.manager.health.troubles == {}
        ready.set()
        _eventually(lambda: _all_remote(world), "copied")


def test_a_store_that_is_down_is_one_line_and_everything_follows_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with RunningWorld(tmp_path, broker=_SOON) as world, caplog.at_level(logging.WARNING):
        world.faults.always(StoreFault.UNAVAILABLE)
        world.append(40)
        _eventually(lambda: world.manager.health.unreachable_since_ms is not None, "seen")
        steps = len(world.faults.steps)
        _eventually(lambda: len(world.faults.steps) > steps + 3, "tried again")
        assert world.drop_local() == 0
        world.faults.heal()
        world.manager.poke()
        _eventually(lambda: _all_remote(world), "copied")
        _eventually(lambda: world.manager.health.unreachable_since_ms is None, "well")
    lines = [r.getMessage() for r in caplog.records if r.name.startswith("stratalog.remote.tier.health")]
    assert len(lines) == 2, lines
    assert "503" in lines[0]
    assert "is available again" in lines[1]


def test_a_damaged_segment_is_one_line_and_named_as_long_as_it_lasts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with RunningWorld(tmp_path, broker=_LATER) as world, caplog.at_level(logging.ERROR):

        def turns() -> int:
            return min(job.runs for job in world.manager._of(world.partition).jobs)

        world.manager.on_leadership_change([], [world.log])  # a follower copies nothing: the damage is there first
        world.append(40)
        path = world.log.segments[0].log_path

        def flip() -> None:
            with path.open("r+b") as file:
                file.seek(1000)
                byte = file.read(1)[0]
                file.seek(1000)
                file.write(bytes([byte ^ 1]))

        flip()
        world.manager.on_leadership_change([world.log])
        for _ in range(3):
            before = turns()
            world.manager.poke()
            _eventually(lambda before=before: turns() > before, "ran again")  # type: ignore[misc]
        assert [path.name in failure.message for failure in world.manager.health.failures.values()] == [True]
        flip()
        world.manager.poke()
        _eventually(lambda: _all_remote(world), "copied")
        _eventually(lambda: not world.manager.health.failures, "well")
    assert len([r for r in caplog.records if " of " in r.getMessage() and " fails: " in r.getMessage()]) == 1


def test_failures_of_many_partitions_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    health = RemoteHealth(ManualClock())
    with caplog.at_level(logging.WARNING):
        for number in range(50):
            health.failed(segment(number, 0, 1).topic_id_partition, "copy", RetriableRemoteStorageError("503"))
    assert len(caplog.records) == 1
    assert not health.succeeded(PARTITION, "copy", used_store=False)
    assert health.succeeded(PARTITION, "copy", used_store=True)
    assert not health.succeeded(PARTITION, "copy", used_store=True)


# --- deletion of partitions -------------------------------------------------------------------------------------------


def test_a_deleted_partition_leaves_nothing_in_the_store(tmp_path: Path) -> None:
    with RunningWorld(tmp_path, broker=_SOON) as world:
        world.append(40)
        _eventually(lambda: _all_remote(world), "copied")
        world.manager.stop_partitions([world.partition], delete_remote=True)
        _eventually(lambda: world.rlmm.unfinished_partition_deletes() == [], "deleted")
        assert world.objects() == []
        with pytest.raises(RemoteStorageError, match="is not tiered"):
            world.manager.read(world.partition, 0, 100)


def test_a_deletion_survives_a_store_that_is_down_and_a_restart(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(40)
        world.tier()
        stored = list_remote_segments(world.inner)

        def store_is_down(*, but_for: str = "nothing") -> None:
            world.faults.by(
                lambda what: StoreFault.UNAVAILABLE if what.startswith("delete ") and but_for not in what else None
            )

        def fails(times: int) -> None:
            """Wait for that many failures in a row; neither is the deletion forgotten nor is it taken for finished."""

            def trouble() -> int:
                found = world.manager.health.troubles.get((world.partition, "deletion"))
                return 0 if found is None else found.times

            def is_unfinished() -> bool:
                return world.rlmm.unfinished_partition_deletes() == [world.partition]

            _eventually(lambda: trouble() >= times or not is_unfinished(), "tried")
            assert is_unfinished()
            assert world.manager.is_deleting(world.partition)

        store_is_down()
        world.manager.start()
        world.manager.stop_partitions([world.partition], delete_remote=True)
        fails(1)
        world.manager.poke()
        fails(2)
        assert list_remote_segments(world.inner) == stored
        world.restart()
        world.manager.stop_partitions([world.partition])  # its topic is gone: no one leads it again
        store_is_down(but_for=f"/{stored[0].base_offset:020d}-")
        world.manager.start()
        fails(1)
        assert list_remote_segments(world.inner) == stored[1:]
        world.faults.heal()
        world.manager.poke()
        _eventually(lambda: world.rlmm.unfinished_partition_deletes() == [], "deleted")
        _eventually(lambda: not world.manager.is_deleting(world.partition), "over")
        assert world.objects() == []
        assert world.manager.health.troubles == {}


def test_a_deletion_waits_for_the_copy_that_is_under_way(tmp_path: Path) -> None:
    with RunningWorld(tmp_path, broker=_SOON) as world:
        copying, go_on = threading.Event(), threading.Event()
        original = world.rsm.copy_log_segment_data

        def held_up(metadata, data):  # type: ignore[no-untyped-def]
            copying.set()
            assert go_on.wait(60)
            return original(metadata, data)

        world.rsm.copy_log_segment_data = held_up  # type: ignore[method-assign]
        world.append(40)
        assert copying.wait(60)
        world.manager.stop_partitions([world.partition], delete_remote=True)
        assert world.rlmm.unfinished_partition_deletes() == [world.partition]
        go_on.set()
        _eventually(lambda: world.rlmm.unfinished_partition_deletes() == [], "deleted")
        assert world.objects() == []
        assert world.rlmm.list_remote_log_segments(world.partition) == []


def test_stopping_without_deletion_leaves_the_store_as_it_is(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(40)
        world.tier()
        before = world.objects()
        world.manager.stop_partitions([world.partition])
        assert world.objects() == before
        world.manager.on_leadership_change([world.log])
        assert world.tier() == RunResult()


# --- copies in flight -------------------------------------------------------------------------------------------------


def test_a_copy_that_is_under_way_is_not_taken_for_a_failed_one(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(40)
        original = world.rsm.copy_log_segment_data
        deleted: list[int] = []

        def copy_with_an_expiration_in_the_middle(metadata, data):  # type: ignore[no-untyped-def]
            deleted.append(world.manager._of(world.partition).expire())
            return original(metadata, data)

        world.rsm.copy_log_segment_data = copy_with_an_expiration_in_the_middle  # type: ignore[method-assign]
        copied = world.tier().copied
        assert deleted == [0] * copied
        world.drop_local()
        world.expect_everything()


def test_what_a_process_before_left_unfinished_is_removed(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(40)
        stray = RemoteLogSegmentId.generate_new(world.partition)
        metadata = segment(1, 0, 20)
        world.rlmm.add_remote_log_segment_metadata(replace(metadata, segment_id=stray)).result()
        assert world.tier().deleted == 1
        states = {s.state for s in world.rlmm.list_remote_log_segments(world.partition)}
        assert states == {RemoteLogSegmentState.COPY_SEGMENT_FINISHED}


def test_custom_metadata_that_is_too_large_ends_copying_of_the_partition(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(40)
        original = world.rsm.copy_log_segment_data

        def with_custom(metadata, data):  # type: ignore[no-untyped-def]
            original(metadata, data)
            return CustomMetadata(bytes(129))

        world.rsm.copy_log_segment_data = with_custom  # type: ignore[method-assign]
        with pytest.raises(Exception, match="returned 129 bytes of custom metadata"):
            world.tier()
        assert world.objects() == []
        assert world.tier() == RunResult()
        assert world.log.highest_offset_in_remote_storage == -1


def test_custom_metadata_is_kept_with_the_segment(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(20)
        original = world.rsm.copy_log_segment_data

        def with_custom(metadata, data):  # type: ignore[no-untyped-def]
            original(metadata, data)
            return CustomMetadata(b"somewhere")

        world.rsm.copy_log_segment_data = with_custom  # type: ignore[method-assign]
        world.tier()
        world.restart()
        found = world.rlmm.list_remote_log_segments(world.partition)
        assert {s.custom_metadata for s in found} == {CustomMetadata(b"somewhere")}


# --- quotas -----------------------------------------------------------------------------------------------------------


def test_reads_above_the_fetch_quota_are_shed(tmp_path: Path) -> None:
    quota = {"remote.log.manager.fetch.max.bytes.per.second": "1000"}
    with World(tmp_path, broker=quota) as world:
        world.append(40)
        world.tier()
        world.drop_local()
        assert world.manager.read(world.partition, 0, 2_000).records
        shed = world.manager.read(world.partition, 0, 2_000, read_committed=True)
        assert (shed.records, shed.aborted, shed.throttled) == (b"", [], True)
        world.clock.advance(60_000)
        assert world.manager.read(world.partition, 0, 2_000).records


def test_a_copy_that_waits_for_its_quota_ends_with_the_manager(tmp_path: Path) -> None:
    quota = {**_SOON, "remote.log.manager.copy.max.bytes.per.second": "1"}
    with RunningWorld(tmp_path, broker=quota) as world:
        world.append(60)
        world.manager.poke()
        _eventually(lambda: len(list_remote_segments(world.inner)) == 1, "one copied")
        assert not _all_remote(world)
        world.manager.close()
        assert len(list_remote_segments(world.inner)) == 1


# --- followers and life -----------------------------------------------------------------------------------------------


def test_a_follower_copies_nothing_and_knows_what_is_remote(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(40)
        world.tier()
        remote, before = world.log.highest_offset_in_remote_storage, world.objects()
        world.log.close()
        world.log = PartitionLog.open(tmp_path / "t-0", world.log.config, clock=world.clock, clean_shutdown=True)
        world.log.update_high_watermark(world.log.log_end_offset)
        world.manager.on_leadership_change([], [world.log])
        assert world.tier() == RunResult()
        assert world.log.highest_offset_in_remote_storage == remote
        assert world.objects() == before


def test_closing_again_is_harmless_and_a_closed_manager_takes_no_partitions(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.manager.close()
        world.manager.close()
        world.manager.on_leadership_change([world.log])
        world.manager.poke()


def test_no_thread_is_left_after_close(tmp_path: Path) -> None:
    with RunningWorld(tmp_path, broker=_SOON) as world:
        world.append(40)
        _eventually(lambda: _all_remote(world), "copied")
        world.drop_local()
        world.expect_everything()
        world.manager.close()

        def is_alone() -> bool:
            # The index cache's library keeps the thread that loaded it, for all caches of the process.
            names = {t.name for t in threading.enumerate()} - {"remote-index-cache-library"}
            return not any(name.startswith("remote-") for name in names)

        _eventually(is_alone, "no thread is left; a block that is read ahead is read to its end")
