"""One partition, whole: what was appended is served byte for byte from whichever tier has it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stratalog.errors import OffsetOutOfRangeError, RemoteStorageError
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.log.format.file_names import snapshot_file
from stratalog.records.batch import iter_batches
from stratalog.records.compression import Codec
from stratalog.remote.api.segment_state import RemoteLogSegmentState
from stratalog.remote.storage.object_names import ObjectKind
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.tier.copy_task import candidates
from stratalog.remote.tier.manager import RunResult, TierLag
from tests.remote.world import BATCH_MS, CONFIG, RECORDS_IN_BATCH, World


def test_every_offset_reads_from_the_remote_tier_as_it_read_locally(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(40)
        sealed_end = world.log.active_segment.base_offset
        local = {o: world.log.read(o, 2_000) for o in range(sealed_end)}
        expected = {o: data.slice.read() for o, data in local.items() if data.slice is not None}
        assert world.tier() == RunResult(copied=len(world.log.segments) - 1)
        assert world.drop_local() > 0
        assert world.log.local_log_start_offset == sealed_end
        for offset in range(sealed_end):
            found = world.manager.read(world.partition, offset, 2_000).records
            # The local answer may end within a batch, the remote one does not.
            assert expected[offset].startswith(found)
            assert [b.base_offset for b in iter_batches(found)] == [
                b.base_offset for b in iter_batches(expected[offset])
            ]
        world.expect_everything()


@pytest.mark.parametrize("codec", Codec)
def test_compressed_batches_come_back_as_they_are(tmp_path: Path, codec: Codec) -> None:
    with World(tmp_path, replace(CONFIG, segment_bytes=1_600)) as world:
        world.append(20, codec=codec, value_size=200)
        assert world.tier().copied > 0
        world.drop_local()
        world.expect_everything()


def test_only_sealed_segments_are_copied(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(3)
        assert len(world.log.segments) == 1
        assert world.tier() == RunResult()
        assert world.objects() == []
        world.append(40)
        assert world.tier() == RunResult(copied=len(world.log.segments) - 1)
        assert world.tier() == RunResult(), "what is remote and still local is not copied again"
        assert len(list_remote_segments(world.inner, covered=True)) == len(world.log.segments) - 1


def test_nothing_local_goes_before_it_is_remote(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(40)
        assert world.drop_local() == 0
        world.tier()
        world.append(40)
        remote = world.log.highest_offset_in_remote_storage
        world.drop_local()
        assert world.log.local_log_start_offset == remote + 1
        world.expect_everything()


def test_all_objects_of_a_segment_are_there_and_the_manifest_tells_them(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(40)
        segment = world.log.segments[0]
        next_base = world.log.segments[1].base_offset
        files = {
            ObjectKind.LOG: segment.log_path.read_bytes(),
            ObjectKind.OFFSET_INDEX: segment.offset_index_path.read_bytes(),
            ObjectKind.TIME_INDEX: segment.time_index_path.read_bytes(),
            ObjectKind.PRODUCER_SNAPSHOT: (world.log.directory / snapshot_file(next_base)).read_bytes(),
            ObjectKind.LEADER_EPOCHS: b"0\n1\n0 0\n",
        }
        world.tier()
        manifest = list_remote_segments(world.inner, topics=["t"])[0]
        assert {kind: bytes(world.inner.get(manifest.key(kind))) for kind in manifest.objects} == files
        assert (manifest.base_offset, manifest.end_offset) == (0, next_base - 1)
        assert manifest.segment_size_in_bytes == len(files[ObjectKind.LOG])
        assert manifest.max_timestamp == segment.largest_timestamp()
        assert manifest.metadata() == replace(
            world.rlmm.list_remote_log_segments(world.partition)[0],
            event_timestamp_ms=manifest.event_timestamp,
        )


def test_the_leader_epochs_of_a_segment_end_where_it_does(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(20)
        world.leader_epoch = 5
        started = world.log.log_end_offset
        world.log.leader_epochs.assign(5, started)
        world.append(30)
        world.tier()
        manifests = list_remote_segments(world.inner, topics=["t"])
        epochs = [bytes(world.inner.get(each.key(ObjectKind.LEADER_EPOCHS))) for each in manifests]
        before = [each.end_offset < started for each in manifests]
        assert True in before
        assert False in before
        assert epochs == [b"0\n1\n0 0\n" if old else b"0\n2\n0 0\n5 %d\n" % started for old in before]


def test_a_restart_goes_on_where_the_process_stopped(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(30)
        world.tier()
        world.drop_local()
        copied = set(world.objects())
        for crashed in (False, True):
            world.restart(crashed=crashed)
            assert world.log.log_start_offset == 0
            world.append(10)
            world.tier()
            assert copied < set(world.objects())
            copied = set(world.objects())
            assert len(list_remote_segments(world.inner, covered=True)) == len(list_remote_segments(world.inner))
            world.drop_local()
            world.expect_everything()


def test_a_first_batch_larger_than_the_limit_comes_whole_or_not_at_all(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(30)
        world.tier()
        world.drop_local()
        read = world.manager.read
        assert read(world.partition, 3, 10).records == world.expected[0]
        assert read(world.partition, 3, 10, min_one_message=False).records == b""
        held_back = read(world.partition, 3, 10, min_one_message=False, read_committed=True)
        assert held_back.aborted is None  # as Kafka: no batch, so nothing is said of aborted transactions


def test_a_read_ends_with_the_segment(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(30)
        first = world.log.segments[0].log_path.read_bytes()
        world.tier()
        world.drop_local()
        assert world.manager.read(world.partition, 0, 10**9).records == first


def test_batches_larger_than_a_block_are_read(tmp_path: Path) -> None:
    config = replace(CONFIG, segment_bytes=12_000_000, max_message_bytes=12_000_000)
    with World(tmp_path, config) as world:
        for size in (100, 900_000, 50, 700_000, 10):
            world.append(1, value_size=size)
        world.log.roll()
        world.tier()
        world.drop_local()
        world.expect_everything()
        assert world.manager.read(world.partition, 10, 1).records == world.expected[RECORDS_IN_BATCH]


def test_an_offset_that_no_finished_segment_holds_is_out_of_range(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(30)
        world.tier()
        behind = world.log.highest_offset_in_remote_storage + 1
        with pytest.raises(OffsetOutOfRangeError):
            world.manager.read(world.partition, behind, 1000)


def test_an_unknown_partition_is_refused(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        other = replace(world.partition, partition=9)
        with pytest.raises(RemoteStorageError, match="is not tiered"):
            world.manager.read(other, 0, 1000)


# --- by time --------------------------------------------------------------------------------------------------------


def test_a_search_by_time_finds_what_the_local_log_found(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        start_ms = world.clock.now_ms()
        world.append(40)
        times = range(start_ms - 5, start_ms + 42 * BATCH_MS, 203)
        local = {t: world.log.offset_for_timestamp(t) for t in times}
        world.tier()
        world.drop_local()
        local_start = world.log.local_log_start_offset
        for time_ms, expected in local.items():
            found = world.manager.offset_for_timestamp(world.partition, time_ms, 0)
            if expected is None or expected.offset >= local_start:
                assert found is None
            else:
                assert found == expected


def test_a_search_by_time_begins_at_the_start_offset(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(40)
        world.tier()
        world.drop_local()
        for start in (0, 3, 77, 150):
            found = world.manager.offset_for_timestamp(world.partition, 0, start)
            assert found is not None
            assert found.offset == start


# --- lineage --------------------------------------------------------------------------------------------------------


def test_records_of_a_history_that_was_given_up_are_not_served(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(30)
        world.log.roll()
        world.tier()
        # An unclean election: the new leader lacks the end of what was copied, and writes something else there.
        cut = world.log.segments[-2].base_offset + 2 * RECORDS_IN_BATCH
        world.log.truncate_to(cut)
        world.leader_epoch = 2
        world.log.leader_epochs.assign(2, cut)
        for base in [base for base in world.expected if base >= cut]:
            del world.expected[base]
        world.append(30)
        world.log.roll()
        world.tier()
        world.drop_local()
        world.expect_everything()
        stale = world.rlmm.list_remote_log_segments(world.partition, 0)[-1]
        assert stale.end_offset >= cut


def test_a_search_by_time_skips_a_history_that_was_given_up(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(30)
        world.log.roll()
        world.tier()
        cut = world.log.segments[-2].base_offset + 2 * RECORDS_IN_BATCH
        given_up_ms = world.clock.now_ms()
        world.log.truncate_to(cut)
        world.leader_epoch = 2
        world.log.leader_epochs.assign(2, cut)
        world.append(30)
        world.log.roll()
        expected = world.log.offset_for_timestamp(given_up_ms)
        world.tier()
        world.drop_local()
        assert world.manager.offset_for_timestamp(world.partition, given_up_ms, 0) == expected


# --- what is due ----------------------------------------------------------------------------------------------------


def test_copy_lag_keeps_young_segments_back(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(40)
        log, now = world.log, world.clock.now_ms()
        sealed = len(log.segments) - 1

        def due(**config: Any) -> int:
            return len(candidates(log.segments, 0, log.log_end_offset, replace(CONFIG, **config), now))

        assert due() == sealed
        assert due(remote_copy_lag_ms=1, remote_copy_lag_bytes=0) == sealed
        assert due(remote_copy_lag_ms=10**9, remote_copy_lag_bytes=10**9) == 0
        assert due(remote_copy_lag_ms=10**9, remote_copy_lag_bytes=log.size_bytes // 2) == sealed // 2
        age = now - log.segments[1].largest_timestamp()
        assert due(remote_copy_lag_ms=age, remote_copy_lag_bytes=10**9) == 2
        assert due(remote_copy_lag_ms=age + 1, remote_copy_lag_bytes=10**9) == 1
        behind = sum(segment.size_bytes for segment in log.segments[2:])
        assert due(remote_copy_lag_ms=10**9, remote_copy_lag_bytes=behind) == 2
        assert due(remote_copy_lag_ms=10**9, remote_copy_lag_bytes=behind + 1) == 1
        # -1 is as long as local retention allows, of which -1 is for ever.
        assert due(remote_copy_lag_ms=-1, local_retention_ms=age, remote_copy_lag_bytes=10**9) == 2
        assert due(remote_copy_lag_ms=-1, local_retention_ms=age + 1, remote_copy_lag_bytes=10**9) == 1
        assert due(remote_copy_lag_ms=10**9, remote_copy_lag_bytes=-1, local_retention_bytes=behind) == 2
        assert due(remote_copy_lag_ms=10**9, remote_copy_lag_bytes=-1, local_retention_bytes=behind + 1) == 1
        endless = {"local_retention_ms": -1, "local_retention_bytes": -1}
        assert due(remote_copy_lag_ms=-1, remote_copy_lag_bytes=-1, **endless) == 0


def test_records_at_or_behind_the_last_stable_offset_are_not_copied(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(40)
        log, now = world.log, world.clock.now_ms()
        third = log.segments[2].base_offset
        for stable, count in [(third, 2), (third - 1, 1), (third + 1, 2)]:
            assert len(candidates(log.segments, 0, stable, CONFIG, now)) == count


def test_with_copying_disabled_nothing_is_copied_and_what_is_remote_is_read(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(30)
        world.tier()
        world.drop_local()
        world.configure(remote_log_copy_disable=True)
        world.append(30)
        before = world.objects()
        assert world.tier() == RunResult()
        assert world.objects() == before
        world.expect_everything()


def test_a_partition_that_is_not_tiered_is_left_alone(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.configure(remote_storage_enable=False)
        world.append(30)
        assert world.tier() == RunResult()
        assert world.objects() == []


# --- expiration -----------------------------------------------------------------------------------------------------


def test_retention_by_time_deletes_remote_segments_and_moves_the_log_start_offset(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(40)
        world.tier()
        world.drop_local()
        segments = world.rlmm.list_remote_log_segments(world.partition)
        world.configure(retention_ms=world.clock.now_ms() - segments[1].max_timestamp_ms)
        assert world.tier() == RunResult(deleted=2)
        assert world.log.log_start_offset == segments[2].start_offset
        assert [m.base_offset for m in list_remote_segments(world.inner)] == [s.start_offset for s in segments[2:]]
        assert world.orphans() == []
        world.expect_everything()
        world.restart()
        world.expect_everything()


def test_retention_by_size_keeps_what_it_says(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(60)
        world.tier()
        world.drop_local()
        world.configure(retention_bytes=14_000)
        assert world.tier().deleted > 0
        sizes = world.manager.sizes(world.partition)
        left = sizes.readable_bytes + world.log.size_bytes
        assert left >= 14_000 > left - max(m.segment_size_in_bytes for m in list_remote_segments(world.inner))
        assert world.tier().deleted == 0
        world.expect_everything()


def test_moving_the_log_start_offset_deletes_what_ends_below_it(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(40)
        world.tier()
        world.drop_local()
        second = world.rlmm.list_remote_log_segments(world.partition)[1]
        world.log.increment_log_start_offset(second.start_offset + 3, "records were deleted")
        assert world.tier() == RunResult(deleted=1)
        assert world.log.log_start_offset == second.start_offset + 3
        world.expect_everything()


def test_everything_expired_leaves_an_empty_bucket(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(40)
        world.tier()
        world.configure(retention_ms=0)
        assert world.tier().deleted > 0
        assert world.objects() == []
        assert world.manager.sizes(world.partition).segments == 0
        world.drop_local()
        assert world.log.log_start_offset == world.log.local_log_start_offset


# --- figures --------------------------------------------------------------------------------------------------------


def test_the_lag_moves_while_nothing_is_copied(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        assert world.manager.copy_lag(world.partition) == TierLag(0, 0)
        world.append(20)
        first = world.manager.copy_lag(world.partition)
        world.append(20)
        second = world.manager.copy_lag(world.partition)
        assert 0 < first.segments < second.segments
        assert 0 < first.size_bytes < second.size_bytes
        world.tier()
        assert world.manager.copy_lag(world.partition) == TierLag(0, 0)


def test_what_was_deleted_before_it_was_copied_does_not_lag(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(40)
        before = world.manager.copy_lag(world.partition)
        third = world.log.segments[2]
        world.log.increment_log_start_offset(third.base_offset, "records were deleted")
        assert world.manager.copy_lag(world.partition).segments == before.segments - 2 > 0


def test_sizes_count_readable_segments(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(40)
        world.tier()
        sizes = world.manager.sizes(world.partition)
        listed = list_remote_segments(world.inner)
        assert sizes.segments == sizes.readable_segments == len(listed)
        assert sizes.readable_bytes == sum(m.segment_size_in_bytes for m in listed)


# --- stores ---------------------------------------------------------------------------------------------------------


def test_a_directory_serves_as_store(tmp_path: Path) -> None:
    store = ObjectStore.from_url((tmp_path / "bucket").as_uri())
    with World(tmp_path, store=store) as world:
        world.append(40)
        world.tier()
        world.drop_local()
        world.expect_everything()
        world.configure(retention_ms=0)
        world.tier()
        assert [path for path in (tmp_path / "bucket").rglob("*") if path.is_file()] == []


def test_states_go_through_started_to_finished(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(20)
        states: list[list[RemoteLogSegmentState]] = []
        original = world.rsm.copy_log_segment_data

        def watched(metadata, data):  # type: ignore[no-untyped-def]
            states.append([m.state for m in world.rlmm.list_remote_log_segments(world.partition)])
            return original(metadata, data)

        world.rsm.copy_log_segment_data = watched  # type: ignore[method-assign]
        copied = world.tier().copied
        finished = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
        assert states == [[*[finished] * n, RemoteLogSegmentState.COPY_SEGMENT_STARTED] for n in range(copied)]
