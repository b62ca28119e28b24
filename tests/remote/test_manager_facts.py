"""What the manager counts and shows, what holds its tasks up, and tiering that is switched off and on again."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from stratalog.config.broker import BrokerConfig
from stratalog.errors import CustomMetadataSizeLimitExceededError, OffsetOutOfRangeError, RemoteStorageError
from stratalog.remote.api.interfaces import CustomMetadata, RemoteLogSegmentMetadata
from stratalog.remote.metadata.cache import RemoteLogMetadataCache
from stratalog.remote.tier.cancellation import Cancellation
from stratalog.remote.tier.counters import RemoteTopicCounts
from stratalog.testing.faulty_store import StoreFault
from tests.remote.test_manager import RunningWorld, _all_remote, _eventually
from tests.remote.world import World

_SOON = {"remote.log.manager.task.interval.ms": "20"}


def _counts(world: World) -> RemoteTopicCounts:
    return world.manager.counts.topics().get("t", RemoteTopicCounts())


def test_copies_reads_and_deletions_are_counted_with_their_bytes(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(40)
        sealed = world.log.segments[:-1]
        copied = world.tier().copied
        assert copied == len(sealed) > 1
        counts = _counts(world)
        assert (counts.copy_requests, counts.copy_errors) == (copied, 0)
        assert counts.copy_bytes == sum(segment.size_bytes for segment in sealed)
        world.drop_local()
        records = world.manager.read(world.partition, 0, 3_000).records
        assert (counts.fetch_requests, counts.fetch_bytes) == (1, len(records))
        assert world.manager.reader_time.reads == 1
        world.configure(retention_ms=0)
        world.clock.advance(10_000)
        deleted = world.tier().deleted
        assert (counts.delete_requests, counts.delete_errors) == (deleted, 0) == (copied, 0)
        assert world.manager.counts.total() == counts


def test_what_fails_is_counted_as_an_error_too_and_a_bad_offset_is_not(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(40)
        world.faults.always(StoreFault.UNAVAILABLE)
        with pytest.raises(RemoteStorageError):
            world.tier()
        assert (_counts(world).copy_requests, _counts(world).copy_errors) == (1, 1)
        world.faults.heal()
        world.tier()
        world.drop_local()
        with pytest.raises(OffsetOutOfRangeError):
            world.manager.read(world.partition, 10**9, 100)
        assert (_counts(world).fetch_requests, _counts(world).fetch_errors) == (1, 0)
        world.faults.always(StoreFault.UNAVAILABLE)
        with pytest.raises(RemoteStorageError):
            world.manager.read(world.partition, 0, 100)
        assert _counts(world).fetch_errors == 1


def test_gauges_say_what_is_left_to_copy_and_what_is_remote(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(40)
        before = world.manager.gauges()[world.partition]
        sealed = world.log.segments[:-1]
        assert (before.copy_lag_segments, before.copy_lag_bytes) == (
            len(sealed),
            sum(s.size_bytes for s in sealed),
        )
        world.tier()
        after = world.manager.gauges()[world.partition]
        assert (after.copy_lag_segments, after.copy_lag_bytes) == (0, 0)
        assert (after.metadata_count, after.size_bytes) == (len(sealed), before.copy_lag_bytes)
        world.append(40)
        world.configure(remote_log_copy_disable=True)
        assert world.manager.gauges()[world.partition].copy_lag_segments == 0


def test_copying_ends_when_the_plugin_says_too_much_and_only_that(tmp_path: Path) -> None:
    with World(tmp_path, broker={"remote.log.metadata.custom.metadata.max.bytes": "3"}) as world:
        original = world.rsm.copy_log_segment_data
        world.append(40)

        def too_much(metadata, data):  # type: ignore[no-untyped-def]
            original(metadata, data)
            return CustomMetadata(b"1234")

        world.rsm.copy_log_segment_data = too_much  # type: ignore[method-assign]
        with pytest.raises(CustomMetadataSizeLimitExceededError, match="4 bytes of custom metadata"):
            world.tier()
        assert world.manager.copying_stopped(world.partition)
        assert world.orphans() == []
        assert world.tier().copied == 0
        assert _counts(world).copy_errors == 1
        assert world.drop_local() == 0
        world.expect_everything()


def test_a_copy_that_hangs_is_seen_with_what_it_waits_for_until_it_goes_on(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        original = world.rsm.copy_log_segment_data
        begun, go_on = threading.Event(), threading.Event()

        def hang(metadata, data):  # type: ignore[no-untyped-def]
            begun.set()
            assert go_on.wait(60)
            return original(metadata, data)

        world.rsm.copy_log_segment_data = hang  # type: ignore[method-assign]
        world.append(40)
        name = world.log.segments[0].log_path.name
        turn = threading.Thread(target=world.tier)
        turn.start()
        assert begun.wait(60)
        world.clock.advance(119_999)
        world.manager.watchdog.look()
        assert world.manager.watchdog.stalls == {}
        world.clock.advance(1)
        world.manager.watchdog.look()
        ((key, stall),) = world.manager.watchdog.stalls.items()
        assert key == (world.partition, "copy")
        assert stall.waiting_for.startswith(f"the store, which gets {name} of ")
        go_on.set()
        turn.join(60)
        world.manager.watchdog.look()
        assert world.manager.watchdog.stalls == {}


def test_a_copy_waits_for_its_quota_and_is_called_off_by_the_end_of_leadership(tmp_path: Path) -> None:
    with World(tmp_path, broker={"remote.log.manager.copy.max.bytes.per.second": "1"}) as world:
        world.append(40)
        copied: list[int] = []
        turn = threading.Thread(target=lambda: copied.append(world.tier().copied))
        turn.start()
        _eventually(lambda: world.manager.limits.copy_quota.throttled.times > 0, "throttled")
        world.manager.on_leadership_change([], [world.log])
        turn.join(60)
        assert copied == [1], "the first one is within the limit, whatever its size"
        assert world.manager.run_once(world.partition).copied == 0, "a follower copies nothing"


def test_each_copy_begins_when_all_before_it_are_within_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 1_000
    quota = {
        "remote.log.manager.copy.max.bytes.per.second": str(limit),
        "remote.log.manager.copy.quota.window.num": "1000",
    }
    with World(tmp_path, broker=quota) as world:
        world.append(80)
        sizes = [segment.size_bytes for segment in world.log.segments[:-1]]
        begun: list[float] = []
        pauses: list[float] = []
        original = world.rsm.copy_log_segment_data

        def noted(metadata, data):  # type: ignore[no-untyped-def]
            begun.append(world.clock.monotonic())
            return original(metadata, data)

        def pause(_self: Cancellation, timeout_s: float) -> bool:
            pauses.append(timeout_s)
            world.clock.sleep(timeout_s)
            return False

        world.rsm.copy_log_segment_data = noted  # type: ignore[method-assign]
        monkeypatch.setattr(Cancellation, "wait", pause)
        assert world.tier().copied == len(sizes) > 3
        due = [sum(sizes[:number]) / limit for number in range(len(sizes))]
        assert [at - begun[0] for at in begun] == pytest.approx(due, abs=0.002)
        assert 0 < max(pauses) <= 1, "another limit counts within a second"
        assert sum(pauses) == pytest.approx(due[-1], abs=0.002)


def test_a_stopped_copy_leaves_no_mark_on_the_log(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        original = world.rsm.copy_log_segment_data

        def overtaken(metadata, data):  # type: ignore[no-untyped-def]
            world.manager.stop_partitions([world.partition])
            return original(metadata, data)

        world.rsm.copy_log_segment_data = overtaken  # type: ignore[method-assign]
        world.append(40)
        world.tier()
        assert world.log.highest_offset_in_remote_storage == -1
        assert world.drop_local() == 0


def test_a_partition_that_is_tiered_again_waits_for_the_end_of_its_deletion(tmp_path: Path) -> None:
    with RunningWorld(tmp_path, broker=_SOON) as world:
        world.append(40)
        _eventually(lambda: _all_remote(world), "copied")
        delete = world.rsm.delete_log_segment_data
        deleting, go_on = threading.Event(), threading.Event()

        def held_up(metadata):  # type: ignore[no-untyped-def]
            deleting.set()
            assert go_on.wait(60)
            delete(metadata)

        world.rsm.delete_log_segment_data = held_up  # type: ignore[method-assign]
        before = set(world.objects())
        world.manager.stop_partitions([world.partition], delete_remote=True)
        world.log.forget_remote_storage()
        assert deleting.wait(60)
        world.manager.on_leadership_change([world.log])
        assert world.manager.is_deleting(world.partition)
        assert world.manager.partitions() == []
        go_on.set()
        _eventually(lambda: world.manager.partitions() == [world.partition], "tiered again")
        _eventually(lambda: _all_remote(world), "copied again")
        assert world.objects()
        assert not before & set(world.objects())
        world.drop_local()
        world.expect_everything()


def test_a_deletion_of_an_earlier_process_ends_before_the_partition_is_tiered_again(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(40)
        world.tier()
        before = set(world.objects())
        world.manager.stop_partitions([world.partition], delete_remote=True)
        world.restart()  # it tiers the partition, and does not know of the deletion yet
        world.manager.start()
        _eventually(lambda: world.rlmm.unfinished_partition_deletes() == [], "deleted")
        _eventually(lambda: world.manager.partitions() == [world.partition], "tiered again")
        world.manager.poke()
        _eventually(lambda: _all_remote(world) and bool(world.objects()), "copied again")
        assert not before & set(world.objects())
        world.drop_local()
        world.expect_everything()


def test_pools_quotas_and_cache_follow_the_configuration(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        manager = world.manager
        pools = (manager.limits.copiers, manager.limits.expirers, manager.limits.followers, manager.limits.readers)
        assert [pool.size for pool in pools] == [10, 10, 2, 10]
        manager.reconfigure(
            BrokerConfig.from_properties(
                {
                    "remote.log.manager.copier.thread.pool.size": "3",
                    "remote.log.manager.expiration.thread.pool.size": "4",
                    "remote.log.manager.follower.thread.pool.size": "5",
                    "remote.log.reader.threads": "6",
                    "remote.log.manager.copy.max.bytes.per.second": "7",
                    "remote.log.manager.fetch.max.bytes.per.second": "8",
                    "remote.log.index.file.cache.total.size.bytes": "9",
                }
            )
        )
        assert [pool.size for pool in pools] == [3, 4, 5, 6]
        assert (manager.limits.copy_quota.bytes_per_second, manager.limits.fetch_quota.bytes_per_second) == (7, 8)
        assert manager.index_cache.capacity_bytes == 9


def test_an_expiration_with_nothing_to_do_looks_at_no_segment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with World(tmp_path) as world:
        world.append(40)
        world.tier()
        world.configure(retention_ms=1_000_000_000)
        world.tier()
        walks = 0
        real = RemoteLogMetadataCache.segments

        def counted(cache: RemoteLogMetadataCache, epoch: int | None = None) -> list[RemoteLogSegmentMetadata]:
            nonlocal walks
            walks += epoch is None
            return real(cache, epoch)

        monkeypatch.setattr(RemoteLogMetadataCache, "segments", counted)
        expire = world.manager._tiered[world.partition].expire
        assert [expire() for _ in range(3)] == [0, 0, 0]
        assert walks == 0
        world.append(40)  # another copy is an event: everything is looked at again, once
        world.tier()
        expire()
        seen = walks
        expire()
        assert walks == seen
        world.clock.advance(2_000_000_000)
        assert expire() > 0
