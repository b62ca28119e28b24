"""The integration tests of Kafka's tiered storage, by their names, for one broker.

Where Kafka moves a partition between brokers, ours gives the leadership away and gets it back with the next leader
epoch: what that means for the lineage of segments is the same. docs/compatibility/TieredStorageIntegrationTests.md has
them all.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from stratalog.engine.tiering.metadata_topic_settings import REMOTE_LOG_METADATA_TOPIC
from stratalog.remote.metadata.partitioner import metadata_partition
from tests.scenarios.tiered_story import TieredStory
from tests.scenarios.tiered_topic import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MIB

HALF_AN_HOUR_MS = 30 * 60_000


@pytest.mark.parametrize("retention", ["retention_ms", "retention_bytes"])
def test_delete_segments_by_retention_time_and_size(tmp_path: Path, retention: str) -> None:
    """DeleteSegmentsByRetentionTimeTest, DeleteSegmentsByRetentionSizeTest: what goes remotely moves the log's
    start."""
    now = time.time_ns() // 1_000_000
    with TieredStory(tmp_path) as story:
        a = story.create_topic("a", batches_per_segment=1)
        a.produce("k0", "k1", "k2", "k3", at_ms=[now - 10, now - 10, now - 10, now + HALF_AN_HOUR_MS])
        a.expect_remote({0: ["k0"], 1: ["k1"], 2: ["k2"]})
        a.expect_earliest_local_offset(3)
        a.configure(local_retention_bytes=-2, local_retention_ms=-2, **{retention: 1})
        a.expect_remote({})
        a.expect_nothing_remote()
        a.expect_leader_epochs((0, 3))
        a.expect_offset_of(EARLIEST, epoch=0, offset=3)
        a.expect_consumed(from_offset=3, keys=["k3"], of_them_remote=0)


def test_delete_segments_due_to_log_start_offset_breach(tmp_path: Path) -> None:
    """DeleteSegmentsDueToLogStartOffsetBreachTest: DeleteRecords within and over a leader epoch deletes remotely."""
    with TieredStory(tmp_path) as story:
        a = story.create_topic("a", batches_per_segment=2)
        a.produce("k0", "k1", "k2", "k3", "k4")
        a.expect_remote({0: ["k0", "k1"], 2: ["k2", "k3"]})
        a.expect_earliest_local_offset(4)
        a.delete_records(before=3)
        a.expect_remote({2: ["k2", "k3"]})
        a.expect_leader_epochs((0, 3))
        a.expect_consumed(from_offset=3, keys=["k3", "k4"], of_them_remote=1)

        a.change_leader()
        a.produce("k5", "k6", "k7", "k8", "k9")
        a.expect_remote({2: ["k2", "k3"], 4: ["k4", "k5"], 6: ["k6", "k7"]})
        a.expect_earliest_local_offset(8)
        a.delete_records(before=7)
        a.expect_remote({6: ["k6", "k7"]})
        a.expect_leader_epochs((1, 7))
        a.expect_consumed(from_offset=7, keys=["k7", "k8", "k9"], of_them_remote=1)


def test_delete_topic(tmp_path: Path) -> None:
    """DeleteTopicTest: both partitions' objects go, and the topic of the same name afterwards has nothing of them."""
    with TieredStory(tmp_path) as story:
        a = story.create_topic("a", partitions=2, batches_per_segment=1)
        for partition in (a, a.on(1)):
            partition.produce("k0", "k1", "k2")
            partition.expect_remote({0: ["k0"], 1: ["k1"]})
            partition.expect_earliest_local_offset(2)
        a.delete()
        a.expect_nothing_remote()
        again = story.create_topic("a", batches_per_segment=1)
        again.expect_offset_of(LATEST, epoch=0, offset=0)
        again.produce("new")
        again.expect_consumed(from_offset=0, keys=["new"], of_them_remote=0)


def test_disable_remote_log_on_topic(tmp_path: Path) -> None:
    """DisableRemoteLogOnTopicTest: copies end and come back, reading and retention go on.

    Off for good, all of it goes.
    """
    with TieredStory(tmp_path) as story:
        a = story.create_topic("a", batches_per_segment=1)
        a.produce("k0", "k1", "k2")
        a.expect_remote({0: ["k0"], 1: ["k1"]})
        a.expect_earliest_local_offset(2)
        off = {"remote_log_copy_disable": "true", "local_retention_bytes": -2, "local_retention_ms": -2}
        a.configure(**off)
        a.expect_consumed(from_offset=0, keys=["k0", "k1", "k2"], of_them_remote=2)
        a.configure(remote_log_copy_disable="false", local_retention_bytes=1)
        a.produce("k3")
        a.expect_earliest_local_offset(3)
        a.expect_remote({0: ["k0"], 1: ["k1"], 2: ["k2"]})
        a.configure(**off)
        a.expect_consumed(from_offset=0, keys=["k0", "k1", "k2", "k3"], of_them_remote=3)
        a.delete_records(before=1)
        a.expect_remote({1: ["k1"], 2: ["k2"]})
        a.configure(remote_storage_enable="false", remote_log_delete_on_disable="true")
        a.expect_nothing_remote()
        a.expect_consumed(from_offset=3, keys=["k3"], of_them_remote=0)
        a.expect_offset_of(EARLIEST, epoch=0, offset=3)


def test_enable_remote_log_on_topic(tmp_path: Path) -> None:
    """EnableRemoteLogOnTopicTest: what was written before goes to the remote tier as well."""
    with TieredStory(tmp_path) as story:
        a = story.create_topic(
            "a", partitions=2, batches_per_segment=1, remote_storage_enable="false", local_retention_bytes=-2
        )
        for partition in (a, a.on(1)):
            partition.produce("k0", "k1", "k2")
            partition.expect_earliest_local_offset(0)
        a.configure(remote_storage_enable="true", local_retention_bytes=1)
        for partition in (a, a.on(1)):
            partition.produce("k3", "k4")
            partition.expect_remote({number: [f"k{number}"] for number in range(4)})
            partition.expect_earliest_local_offset(4)
            partition.expect_consumed(from_offset=0, keys=["k0", "k1", "k2", "k3", "k4"], of_them_remote=4)


def test_fetch_from_leader_with_corrupted_checkpoint(tmp_path: Path) -> None:
    """FetchFromLeaderWithCorruptedCheckpointTest: without its checkpoints the broker finds its way in both tiers."""
    with TieredStory(tmp_path) as story:
        a = story.create_topic("a", batches_per_segment=1)
        a.produce("k0", "k1", "k2")
        a.expect_remote({0: ["k0"], 1: ["k1"]})
        a.expect_earliest_local_offset(2)
        a.expect_consumed(from_offset=0, keys=["k0", "k1", "k2"], of_them_remote=2)
        story.stop()
        story.erase("replication-offset-checkpoint", "recovery-point-offset-checkpoint", ".kafka_cleanshutdown")
        story.restart()
        a.produce("k3", "k4")
        a.expect_earliest_local_offset(4)
        a.expect_consumed(from_offset=0, keys=["k0", "k1", "k2", "k3", "k4"], of_them_remote=4)


def test_a_lost_log_start_checkpoint_does_not_hide_the_remote_tier(tmp_path: Path) -> None:
    """The same with the checkpoint that says where the log begins: it begins where the remote tier does."""
    with TieredStory(tmp_path) as story:
        a = story.create_topic("a", batches_per_segment=1)
        a.produce("k0", "k1", "k2")
        a.expect_earliest_local_offset(2)
        story.stop()
        story.erase("log-start-offset-checkpoint")
        story.restart()
        a.expect_consumed(from_offset=0, keys=["k0", "k1", "k2"], of_them_remote=2)


def test_list_offsets(tmp_path: Path) -> None:
    """ListOffsetsTest: by place and by time, in both tiers and over two leader epochs."""
    then = 1_700_000_000_000
    with TieredStory(tmp_path) as story:
        a = story.create_topic("a", batches_per_segment=2)
        a.produce("k0", "k1", "k2", at_ms=[then, then + 1, then + 2])
        a.expect_earliest_local_offset(2)
        a.change_leader()
        a.produce("k3", "k4", "k5", at_ms=[then + 3, then + 4, then + 5])
        a.expect_remote({0: ["k0", "k1"], 2: ["k2", "k3"]})
        a.expect_earliest_local_offset(4)

        a.expect_offset_of(EARLIEST, epoch=0, offset=0)
        a.expect_offset_of(EARLIEST_LOCAL, epoch=1, offset=4)
        a.expect_offset_of(LATEST_TIERED, epoch=1, offset=3)
        a.expect_offset_of(LATEST, epoch=1, offset=6)
        for time_ms, epoch, offset in [(then + 6, -1, -1), (then + 5, 1, 5), (then + 4, 1, 4)]:  # local
            a.expect_offset_of(time_ms, epoch=epoch, offset=offset)
        for time_ms, epoch, offset in [(then - 1, 0, 0), (then, 0, 0), (then + 1, 0, 1), (then + 3, 1, 3)]:
            a.expect_offset_of(time_ms, epoch=epoch, offset=offset)

        a.delete_records(before=3)
        a.expect_remote({2: ["k2", "k3"]})
        a.expect_offset_of(EARLIEST, epoch=1, offset=3)
        a.expect_offset_of(EARLIEST_LOCAL, epoch=1, offset=4)
        a.delete_records(before=4)
        a.expect_remote({})
        a.expect_offset_of(EARLIEST, epoch=1, offset=4)
        a.expect_offset_of(EARLIEST_LOCAL, epoch=1, offset=4)
        a.expect_offset_of(LATEST_TIERED, epoch=-1, offset=3)
        a.expect_offset_of(LATEST, epoch=1, offset=6)


def test_offload_and_txn_consume_from_leader(tmp_path: Path) -> None:
    """OffloadAndTxnConsumeFromLeaderTest: read-committed through a cache of indexes that holds none."""
    settings = {"remote.log.index.file.cache.total.size.bytes": "1"}
    with TieredStory(tmp_path, settings=settings) as story:
        a = story.create_topic("a", batches_per_segment=1)
        keys = [f"k{number}" for number in range(7)]
        a.produce(*keys)
        a.expect_remote({number: [f"k{number}"] for number in range(6)})
        a.expect_earliest_local_offset(6)
        wanted = list(enumerate(keys))
        assert a.consume(0, 7, read_committed=True) == wanted


def test_partitions_expand(tmp_path: Path) -> None:
    """PartitionsExpandTest: partitions that come later are tiered like the first."""
    with TieredStory(tmp_path) as story:
        a = story.create_topic("a", batches_per_segment=1)
        a.produce("k0", "k1", "k2")
        a.expect_earliest_local_offset(2)
        a.expand(3)
        a.expect_consumed(from_offset=0, keys=["k0", "k1", "k2"], of_them_remote=2)
        for partition in (a.on(1), a.on(2)):
            partition.produce("k0", "k1", "k2")
            partition.expect_remote({0: ["k0"], 1: ["k1"]})
            partition.expect_earliest_local_offset(2)
        a.produce("k3", "k4", "k5")
        a.expect_earliest_local_offset(5)
        a.expect_consumed(from_offset=0, keys=["k0", "k1", "k2", "k3", "k4", "k5"], of_them_remote=5)
        a.on(1).expect_consumed(from_offset=0, keys=["k0", "k1", "k2"], of_them_remote=2)
        a.on(2).expect_consumed(from_offset=1, keys=["k1", "k2"], of_them_remote=1)


def test_reassign_replica_expand_and_move(tmp_path: Path) -> None:
    """ReassignReplicaExpandTest, ReassignReplicaMoveTest: a new leader goes on where the one before was.

    Fifty partitions of another topic use every partition of the metadata topic concurrently.
    """
    with TieredStory(tmp_path, settings={"remote.log.metadata.topic.num.partitions": "2"}) as story:
        a = story.create_topic("a", partitions=50, batches_per_segment=1)
        used = {metadata_partition(a.on(number).served.topic_id_partition, 2) for number in range(50)}
        assert used == {0, 1}
        assert len(story.broker.services.logs.partitions(REMOTE_LOG_METADATA_TOPIC)) == 2
        b = story.create_topic("b", batches_per_segment=1)
        b.produce("k0", "k1", "k2")
        b.expect_remote({0: ["k0"], 1: ["k1"]})
        b.expect_earliest_local_offset(2)
        b.change_leader()
        b.produce("k3")
        b.expect_remote({0: ["k0"], 1: ["k1"], 2: ["k2"]})
        b.expect_earliest_local_offset(3)
        b.expect_leader_epochs((0, 0), (1, 3))
        b.expect_consumed(from_offset=0, keys=["k0", "k1", "k2", "k3"], of_them_remote=3)


def test_reassign_replica_shrink(tmp_path: Path) -> None:
    """ReassignReplicaShrinkTest: both partitions of a topic change their leader, and go on being tiered."""
    with TieredStory(tmp_path) as story:
        a = story.create_topic("a", partitions=2, batches_per_segment=1)
        for partition in (a, a.on(1)):
            partition.produce("k0", "k1", "k2")
            partition.expect_remote({0: ["k0"], 1: ["k1"]})
        for partition in (a, a.on(1)):
            partition.change_leader()
        for partition in (a, a.on(1)):
            partition.produce("k3")
            partition.expect_earliest_local_offset(3)
            partition.expect_consumed(from_offset=0, keys=["k0", "k1", "k2", "k3"], of_them_remote=3)


def test_alter_log_dir(tmp_path: Path) -> None:
    """AlterLogDirTest: a partition in another log directory, led in another epoch, knows what is remote."""
    with TieredStory(tmp_path, log_dirs=2) as story:
        a = story.create_topic("a", batches_per_segment=1)
        a.produce("k0", "k1", "k2")
        a.expect_remote({0: ["k0"], 1: ["k1"]})
        a.expect_earliest_local_offset(2)
        here = a.directory
        there = next(path for path in story.data_dirs if path != here.parent) / here.name
        story.stop()
        shutil.move(here, there)
        story.restart()
        assert a.directory == there.resolve()
        a.change_leader()
        a.produce("k3")
        a.expect_remote({0: ["k0"], 1: ["k1"], 2: ["k2"]})
        a.expect_earliest_local_offset(3)
        a.expect_consumed(from_offset=0, keys=["k0", "k1", "k2", "k3"], of_them_remote=3)


# --- TransactionsWithTieredStoreTest ----------------------------------------------------------------------------------


def test_basic_transactions(tmp_path: Path) -> None:
    """What is committed in two topics is seen, what is aborted is not, from either tier."""
    with TieredStory(tmp_path) as story:
        a, b = (story.create_topic(name, batches_per_segment=1) for name in "ab")
        for topic, other in ((a, b), (b, a)):
            topic.transact("aborted")
            other.transact("aborted-too", producer="two")
            story.end_transaction("one", commit=False)
            story.end_transaction("two", commit=False)
        for topic in (a, b):
            topic.transact("k0", "k1", producer="three")
            story.end_transaction("three", commit=True)
            topic.produce("rolled")
        for topic, first, second in ((a, "aborted", "aborted-too"), (b, "aborted-too", "aborted")):
            topic.expect_earliest_local_offset(7)
            everything = [(0, first), (2, second), (4, "k0"), (5, "k1"), (7, "rolled")]
            assert topic.consume(0, 5) == everything
            assert topic.consume(0, 3, read_committed=True) == everything[2:]


def test_read_committed_consumer_should_not_see_undecided_data(tmp_path: Path) -> None:
    """An open transaction keeps its segments here and ends what a read-committed consumer sees; decided, both go on."""
    with TieredStory(tmp_path) as story:
        a = story.create_topic("a", batches_per_segment=1)
        a.produce("before")
        a.transact("undecided")
        a.produce("k2", "k3")
        a.expect_remote({0: ["before"]})
        assert a.consume(0, 1, read_committed=True) == [(0, "before")]
        assert a.consume(1, 1, seconds=2, read_committed=True) == []
        assert a.consume(1, 3) == [(1, "undecided"), (2, "k2"), (3, "k3")]
        story.end_transaction(commit=False)
        a.produce("k5")
        a.expect_earliest_local_offset(5)
        assert a.consume(0, 4, read_committed=True) == [(0, "before"), (2, "k2"), (3, "k3"), (5, "k5")]


# --- more of what a consumer may ask for ------------------------------------------------------------------------------


def test_a_fetch_with_min_bytes_over_both_tiers_gets_all(tmp_path: Path) -> None:
    """More bytes than a remote read has do not let a consumer wait for ever, nor skip anything."""
    with TieredStory(tmp_path) as story:
        a = story.create_topic("a", partitions=2, batches_per_segment=1)
        keys = [f"k{number}" for number in range(4)]
        a.produce(*keys)
        a.expect_earliest_local_offset(3)
        wanted = list(enumerate(keys))
        for min_bytes in (1, 2 * MIB, 50 * MIB):
            options = {"fetch.min.bytes": min_bytes, "fetch.max.bytes": 60 * MIB, "fetch.wait.max.ms": 500}
            assert a.consume(0, 4, config=options) == wanted


def test_records_are_served_from_the_remote_tier_alone(tmp_path: Path) -> None:
    """A topic of which nothing but an empty active segment is local, over a restart."""
    with TieredStory(tmp_path) as story:
        a = story.create_topic("a", batches_per_segment=1, local_retention_bytes=-2)
        a.configure(local_retention_ms=1)
        a.produce("k0", "k1")
        a.expect_earliest_local_offset(2)
        story.bounce()
        a.expect_consumed(from_offset=0, keys=["k0", "k1"], of_them_remote=2)
        a.expect_offset_of(LATEST, epoch=0, offset=2)
