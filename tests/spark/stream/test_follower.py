"""A stream's offsets and batches over directories and buckets, trigger by trigger, without a JVM."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.errors import UsageError
from stratalog.inspect import bucket_catalog
from stratalog.records.control import ControlType
from stratalog.remote.storage.layouts import read_manifest
from stratalog.remote.storage.manifest import SegmentManifest
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.spark.options.data_loss import DataLossError
from tests.spark.partitions import T0, Batch, Partition, steady
from tests.spark.stream.driving import Query, Record


def offsets_of(partition: Partition, start: int = 0) -> list[Record]:
    return [(partition.topic, partition.number, each.offset) for each in partition.records if each.offset >= start]


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    found = Partition(tmp_path / "data")
    found.segment(steady(8))
    found.segment(steady(8))
    return found


def query(partition: Partition, **options: Any) -> Query:
    return Query({"path": partition.root, "subscribe": "orders", "startingOffsets": "earliest"} | options)


# --- where it begins --------------------------------------------------------------------------------------------------


def test_a_stream_begins_at_the_end_by_default_otherwise(partition: Partition) -> None:
    stream = Query({"path": partition.root, "subscribe": "orders"})
    assert stream.trigger() == []
    assert stream.end == {"orders": {"0": 80}}
    partition.segment(steady(2))
    assert stream.trigger() == offsets_of(partition, 80)


def test_what_comes_before_the_first_batch_is_done_is_not_skipped(partition: Partition) -> None:
    """The end where a stream began cannot be found again: the first batch brings it to the checkpoint."""
    stream = Query({"path": partition.root, "subscribe": "orders"})
    stream.trigger(dies=True)
    partition.segment(steady(3))
    assert stream.trigger() == []
    assert stream.trigger() == offsets_of(partition, 80)


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"startingOffsets": "earliest"}, 0),
        ({"startingOffsets": '{"orders":{"0":17}}'}, 17),
        ({"startingOffsets": '{"orders":{"0":-2}}'}, 0),
        ({"startingTimestamp": T0 + 12_500}, 13),
        ({"startingOffsetsByTimestamp": f'{{"orders":{{"0":{T0 + 39_000}}}}}'}, 39),
    ],
)
def test_starting_options_are_those_of_a_batch(partition: Partition, options: dict[str, Any], first: int) -> None:
    # both segments have the times from T0 on
    assert query(partition, **options).trigger() == offsets_of(partition, first)


def test_a_timestamp_that_nothing_reaches_is_an_error_or_the_end(partition: Partition) -> None:
    late = {"startingTimestamp": T0 * 2}
    with pytest.raises(UsageError, match="startingTimestamp"):
        query(partition, **late).trigger()
    stream = query(partition, **late, startingOffsetsByTimestampStrategy="latest")
    assert stream.trigger() == []
    partition.segment(steady(1))
    assert stream.trigger() == offsets_of(partition, 80)


def test_starting_offsets_must_name_all_partitions(partition: Partition) -> None:
    with pytest.raises(UsageError, match="startingOffsets does not name orders-0"):
        query(partition, startingOffsets='{"other":{"0":1}}').trigger()


def test_a_topic_that_is_nowhere_is_an_error(partition: Partition) -> None:
    with pytest.raises(UsageError, match="no topic nowhere"):
        query(partition, subscribe="nowhere").trigger()
    stream = query(partition, subscribe="orders,nowhere")
    stream.follower.fix_end()
    with pytest.raises(UsageError, match="no topic nowhere"):
        stream.trigger()


def test_a_checkpoint_of_sparks_kafka_source_goes_on(partition: Partition) -> None:
    stream = query(partition)
    stream.logged, stream.finished = ['{"orders":{"0":61}}'], 1
    assert stream.trigger() == offsets_of(partition, 61)


# --- limits -----------------------------------------------------------------------------------------------------------


def test_a_limit_is_shared_in_proportion_to_the_lag(partition: Partition) -> None:
    small = Partition(partition.root, number=1)
    small.segment(steady(4))
    stream = query(partition, maxOffsetsPerTrigger=20)
    stream.trigger()
    assert stream.end == {"orders": {"0": 16, "1": 4}}
    stream.run_until_idle()
    assert sorted(stream.records) == sorted(offsets_of(partition) + offsets_of(small))


def test_a_trigger_without_limits_takes_all(partition: Partition) -> None:
    stream = query(partition, maxOffsetsPerTrigger=20)
    assert stream.trigger(unlimited=True) == offsets_of(partition)


def test_too_few_records_wait_until_the_delay_is_over(partition: Partition) -> None:
    stream = query(partition, minOffsetsPerTrigger=10, maxTriggerDelay="1m")
    assert stream.trigger() == offsets_of(partition)
    partition.segment(steady(1))
    assert stream.trigger() is None
    stream.clock.ms += 59_999
    assert stream.trigger() is None
    stream.clock.ms += 1
    assert stream.trigger() == offsets_of(partition, 80)
    partition.segment(steady(2))
    assert stream.trigger() == offsets_of(partition, 85)


def test_bytes_are_limited_to_within_an_index_interval(partition: Partition) -> None:
    partition.segment(steady(60))
    size = sum(log.stat().st_size for log in partition.logs)
    limit = size // 6
    stream = query(partition, maxBytesPerTrigger=limit)
    batches = stream.run_until_idle()
    assert 6 <= len(batches) <= 9
    assert stream.records == offsets_of(partition)
    by_offset = size / len(partition.records)
    assert all(len(rows) * by_offset <= limit + 3 * partition.index_interval for rows in batches)


def test_a_byte_limit_below_an_index_interval_still_gets_on(partition: Partition) -> None:
    stream = query(partition, maxBytesPerTrigger=1)
    assert len(stream.run_until_idle()) >= len(partition.records) // 10
    assert stream.records == offsets_of(partition)


def test_without_an_index_a_segment_is_one_step(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    for _ in range(3):
        partition.segment(steady(5), index=False)
    stream = query(partition, maxBytesPerTrigger=10)
    assert [len(rows) for rows in stream.run_until_idle()] == [25, 25, 25]


def test_of_several_limits_the_tightest_counts(partition: Partition) -> None:
    stream = query(partition, maxBytesPerTrigger="1g", maxOffsetsPerTrigger=7, minOffsetsPerTrigger=5)
    stream.run_until_idle()
    assert [len(rows) for rows in stream.batches.values()] == [7] * 11  # the last 3 wait for 2 more
    stream.clock.ms += 15 * 60 * 1000
    assert stream.trigger() == offsets_of(partition, 77)


# --- Trigger.AvailableNow ---------------------------------------------------------------------------------------------


def test_available_now_ends_where_the_log_ended(partition: Partition) -> None:
    stream = query(partition, maxOffsetsPerTrigger=30, minOffsetsPerTrigger=25)
    stream.follower.fix_end()
    stream.trigger()
    partition.segment(steady(4))
    Partition(partition.root, number=1).segment(steady(1))
    stream.run_until_idle()
    assert [len(rows) for rows in stream.batches.values()] == [30, 30, 20]
    assert stream.follower.latest == {("orders", 0): 80}
    stream.restart()
    stream.follower.fix_end()
    stream.run_until_idle()
    assert Counter(stream.records).most_common(1)[0][1] == 1
    assert len(stream.records) == 105


def test_available_now_from_the_end_reads_nothing(partition: Partition) -> None:
    stream = Query({"path": partition.root, "subscribe": "orders"})
    stream.follower.fix_end()
    assert stream.run_until_idle() == [[]]


# --- new partitions and topics ----------------------------------------------------------------------------------------


def test_new_partitions_and_topics_are_read_from_their_beginning(partition: Partition) -> None:
    stream = Query({"path": partition.root, "subscribePattern": "orders.*"})
    stream.trigger()
    second = Partition(partition.root, number=1)
    other = Partition(partition.root, "orders-eu")
    Partition(partition.root, "flights").segment(steady(3))
    second.segment(steady(3))
    other.segment(steady(2))
    assert sorted(stream.trigger() or []) == sorted(offsets_of(second) + offsets_of(other))
    assert stream.end == {"orders": {"0": 80, "1": 15}, "orders-eu": {"0": 10}}


def test_a_partition_that_is_being_made_is_empty(partition: Partition) -> None:
    second = Partition(partition.root, number=1)
    stream = query(partition)
    assert stream.trigger() == offsets_of(partition)
    assert stream.end == {"orders": {"0": 80, "1": 0}}
    second.segment(steady(1))
    assert stream.trigger() == offsets_of(second)


def test_a_new_partition_that_has_lost_its_beginning_is_reported(partition: Partition) -> None:
    stream = query(partition)
    stream.trigger()
    second = Partition(partition.root, number=1)
    first = second.segment(steady(3))
    second.segment(steady(2))
    second.drop_local(first)
    with pytest.raises(DataLossError, match="new partition orders-1 begins at offset 15"):
        stream.trigger()
    stream.restart(failOnDataLoss="false")
    assert stream.trigger() == offsets_of(second, 15)
    assert stream.follower.losses.offsets == 15


# --- loss -------------------------------------------------------------------------------------------------------------


def test_retention_ahead_of_the_stream_is_an_error_before_it_is_logged(partition: Partition) -> None:
    stream = query(partition, maxOffsetsPerTrigger=10)
    stream.trigger()
    partition.drop_local(0)
    with pytest.raises(DataLossError, match="orders-0: the offsets from 10 to 39 are gone"):
        stream.trigger()
    assert len(stream.logged) == 1


def test_retention_ahead_of_the_stream_is_a_warning_and_a_count(
    partition: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    stream = query(partition, failOnDataLoss="false", maxOffsetsPerTrigger=10)
    stream.trigger()
    partition.drop_local(0)
    with caplog.at_level(logging.WARNING, "stratalog.spark"):
        stream.run_until_idle()
    assert stream.records == offsets_of(partition)[:10] + offsets_of(partition, 40)
    assert stream.follower.losses.offsets == 30
    assert caplog.text.count("gone") == caplog.text.count("orders-0: the offsets from 10 to 39 are gone") == 1


def test_a_deleted_topic_is_an_error_or_left_out(partition: Partition) -> None:
    stream = query(partition, subscribe="orders,flights")
    Partition(partition.root, "flights").segment(steady(2))
    stream.trigger()
    shutil.rmtree(partition.directory)
    with pytest.raises(DataLossError, match="orders-0, which was read up to offset 80, no longer exists"):
        stream.trigger()
    stream.restart(failOnDataLoss="false")
    assert stream.trigger() == []
    assert stream.end == {"flights": {"0": 10}}


def test_a_topic_that_was_made_again_is_reported(partition: Partition) -> None:
    stream = query(partition)
    stream.trigger()
    shutil.rmtree(partition.directory)
    again = Partition(partition.root)
    again.segment(steady(1))
    with pytest.raises(DataLossError, match="the log ends at 5, and was read up to offset 80"):
        stream.trigger()
    stream.restart(failOnDataLoss="false")
    assert stream.trigger() == []
    again.segment(steady(1))
    assert stream.trigger() == offsets_of(again, 5)


def test_a_planned_batch_whose_records_are_gone_is_reported(partition: Partition) -> None:
    stream = query(partition)
    stream.trigger(dies=True)
    partition.drop_local(partition.bases[1])
    with pytest.raises(DataLossError, match="offsets from 40 to 79 no longer exist"):
        stream.trigger()
    stream.restart(failOnDataLoss="false")
    assert stream.trigger() == offsets_of(partition)[:40]


# --- a bucket ---------------------------------------------------------------------------------------------------------


def test_a_stream_follows_a_bucket(partition: Partition, tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    partition.upload(bucket.as_uri(), 0)
    stream = Query({"remote": bucket.as_uri(), "subscribe": "orders", "startingOffsets": "earliest"})
    assert stream.trigger() == offsets_of(partition)[:40]
    partition.upload(bucket.as_uri(), 40)
    assert stream.trigger() is None  # not looked at again so soon
    stream.clock.ms += 10_000
    assert stream.trigger() == offsets_of(partition, 40)


def test_a_manifest_is_read_once(partition: Partition, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    partition.upload(bucket.as_uri(), 0)
    partition.upload(bucket.as_uri(), 40)
    read: list[str] = []
    original = read_manifest

    def counted(store: ObjectStore, key: str) -> SegmentManifest:
        read.append(key)
        return original(store, key)

    monkeypatch.setattr(bucket_catalog, "read_manifest", counted)
    stream = Query({"remote": bucket.as_uri(), "subscribe": "orders", "remotePollInterval": 0})
    for _ in range(3):
        stream.trigger()
    assert len(read) == len(set(read)) == 2


def test_what_moves_to_the_bucket_between_looks_is_not_lost(partition: Partition, tmp_path: Path) -> None:
    """A segment that is deleted locally makes the next look go to the bucket at once."""
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    stream = query(partition, remote=bucket.as_uri(), maxOffsetsPerTrigger=10)
    stream.trigger()
    partition.upload(bucket.as_uri(), 0)
    partition.drop_local(0)
    stream.run_until_idle()
    assert stream.records == offsets_of(partition)


# --- what a look costs ------------------------------------------------------------------------------------------------


def test_sealed_segments_are_not_opened_again(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    for _ in range(20):
        partition.segment(steady(3))
    stream = query(partition)
    stream.trigger()
    opened: list[Path] = []
    fs = stream.places.fs
    original = fs.open
    partition.segment(steady(3))

    class Counting(type(fs)):  # type: ignore[misc]
        def open(self, path: Any, *args: Any, **kwargs: Any) -> Any:
            opened.append(Path(path))
            return original(path, *args, **kwargs)

    stream.places.fs = Counting()
    stream.follower.end_of_batch(stream.start, unlimited=False)
    logs = {path.name for path in opened if path.suffix == ".log"}
    # the one that was active when it was looked at last, and the one that is now
    assert len(logs) <= 2


def test_a_stream_that_keeps_up_reads_no_index_to_plan(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    partition.segment(steady(200))
    stream = query(partition)
    stream.trigger()
    log, grown = partition.logs[0], Partition(tmp_path / "other", next_offset=1000)
    grown.segment(steady(2))
    with log.open("ab") as file:
        file.write(grown.logs[0].read_bytes())
    end = stream.follower.end_of_batch(stream.start, unlimited=False)
    before = stream.places.bytes_read
    plans = stream.follower.plan(stream.start, end)
    assert stream.places.bytes_read == before
    assert sum(plan.size for plan in plans) == grown.logs[0].stat().st_size


def test_a_log_that_compaction_replaced_is_read_by_its_new_index(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "data")
    partition.segment(steady(40))
    partition.segment(steady(1))
    stream = query(partition, maxOffsetsPerTrigger=30)
    stream.trigger()
    kept = Partition(tmp_path / "cleaned")
    kept.segment([replace(each, holes=frozenset({1, 2})) for each in steady(40)])
    for suffix in ("log", "index", "timeindex"):
        shutil.copy(kept.file(0, suffix), partition.file(0, suffix))
    stream.run_until_idle()
    assert stream.records == offsets_of(partition)[:30] + offsets_of(kept, 30) + offsets_of(partition, 200)


# --- transactions -----------------------------------------------------------------------------------------------------


def test_a_committed_stream_stops_before_an_open_transaction(tmp_path: Path) -> None:
    partition = Partition(tmp_path)
    partition.segment([*steady(2), Batch([T0] * 3, producer_id=7, transactional=True), *steady(2)])
    stream = query(partition, isolationLevel="read_committed")
    assert stream.trigger() == offsets_of(partition)[:10]
    assert stream.trigger() is None
    partition.segment([Batch([T0], producer_id=7, marker=ControlType.ABORT), *steady(1)])
    aborted = {("orders", 0, offset) for offset in partition.transactional}
    assert stream.trigger() == [each for each in offsets_of(partition, 10) if each not in aborted]


# --- everything at once -----------------------------------------------------------------------------------------------

steps = st.lists(
    st.sampled_from(["append", "trigger", "trigger", "die", "restart", "upload", "drop", "partition"]),
    min_size=5,
    max_size=25,
)
limits = st.fixed_dictionaries(
    {},
    optional={
        "maxOffsetsPerTrigger": st.integers(1, 40),
        "maxBytesPerTrigger": st.integers(1, 4000),
        "minOffsetsPerTrigger": st.just(1),
    },
)


@given(steps, limits)
@settings(deadline=None, max_examples=30)
def test_every_record_is_read_once(todo: list[str], options: dict[str, Any]) -> None:
    """However a log grows, moves to the bucket and goes from the disk, and whenever the driver dies: each record
    once."""
    with tempfile.TemporaryDirectory() as directory:
        root, bucket = Path(directory) / "data", Path(directory) / "bucket"
        bucket.mkdir()
        partitions = [Partition(root)]
        partitions[0].segment(steady(2))
        stream = query(partitions[0], remote=bucket.as_uri(), **options)
        uploaded: set[tuple[int, int]] = set()
        for number, step in enumerate(todo):
            partition = partitions[number % len(partitions)]
            sealed = [base for base in partition.bases[:-1] if (partition.number, base) not in uploaded]
            local = [base for base in partition.bases if partition.file(base, "log").exists()]
            match step:
                case "append":
                    partition.segment(steady(1 + number % 4))
                case "trigger":
                    stream.trigger()
                case "die":
                    stream.trigger(dies=True)
                case "restart":
                    stream.restart()
                case "upload" if sealed:
                    partition.upload(bucket.as_uri(), sealed[0])
                    uploaded.add((partition.number, sealed[0]))
                case "drop" if local and (partition.number, local[0]) in uploaded:
                    partition.drop_local(local[0])
                case "partition" if len(partitions) < 3:
                    partitions.append(Partition(root, number=len(partitions)))
                    partitions[-1].segment(steady(1))
        stream.run_until_idle()
        for partition in partitions:
            own = [each for each in stream.records if each[1] == partition.number]
            assert own == offsets_of(partition)
