"""Directories of several brokers that hold replicas of a partition: each offset is read once, of one of them."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from stratalog.errors import UsageError
from stratalog.jobs.retention.run import forecast_retention
from stratalog.jobs.stats.run import measure_topics
from stratalog.log.format.checkpoints import CLEANER_OFFSETS, HIGH_WATERMARKS, OffsetCheckpoint, encode_epochs
from stratalog.log.format.file_names import LEADER_EPOCH_CHECKPOINT
from stratalog.log.format.values import EpochEntry
from stratalog.records.control import ControlType
from tests.spark.log_cluster import LogCluster, brokers
from tests.spark.partitions import T0, Batch, Partition, PartitionOfAnotherCluster, scan, steady

KEY = ("orders", 0)


def note(partition: Partition, *epochs: tuple[int, int], high_watermark: int | None = None) -> None:
    """Write the checkpoints of a replica."""
    entries = [EpochEntry(*each) for each in epochs]
    (partition.directory / LEADER_EPOCH_CHECKPOINT).write_bytes(encode_epochs(entries))
    if high_watermark is not None:
        OffsetCheckpoint(partition.root / HIGH_WATERMARKS).write({KEY: high_watermark})


def replica(root: Path, *segments: list[Batch]) -> Partition:
    partition = Partition(root)
    for each in segments:
        partition.segment(each)
    return partition


@pytest.fixture
def replicas(tmp_path: Path) -> list[Partition]:
    """Three brokers: a follower that lags, the leader, and one that led before and has a tail of its own."""
    common = steady(8)
    follower = replica(tmp_path / "follower", common)
    leader = replica(tmp_path / "leader", common, steady(4, value_size=9))
    former = replica(tmp_path / "former", common, steady(8, value_size=2))
    note(follower, (0, 0), high_watermark=35)
    note(leader, (0, 0), (1, 40), high_watermark=50)
    note(former, (0, 0), high_watermark=40)
    return [follower, leader, former]


def paths(*partitions: Partition) -> str:
    return ",".join(str(each.root) for each in partitions)


def test_each_offset_is_read_once_up_to_the_high_watermark(
    replicas: list[Partition], caplog: pytest.LogCaptureFixture
) -> None:
    follower, leader, former = replicas
    with caplog.at_level(logging.INFO, "stratalog.spark"):
        found = scan(path=paths(*replicas), subscribe="orders")
    assert found.offsets == list(range(50))
    assert [row["value"] for row in found.rows] == [each.value for each in leader.records[:50]]
    assert {Path(piece.log.name).parent for plan in found.plans for piece in plan.pieces} == {leader.directory}
    assert f"orders-0 is read from offsets 0 to 49 of {leader.directory}; 30 offsets from 50 on" in caplog.text
    assert scan(path=paths(former, follower), subscribe="orders").offsets == list(range(40))
    assert scan(path=paths(former), subscribe="orders").offsets == list(range(80))


def test_a_replica_that_has_more_serves_what_the_others_no_longer_have(replicas: list[Partition]) -> None:
    _, leader, former = replicas
    leader.drop_local(0)
    note(leader, (1, 40), high_watermark=50)
    found = scan(path=paths(leader, former), subscribe="orders")
    assert found.offsets == list(range(50))
    assert [row["value"] for row in found.rows] == [each.value for each in leader.records[:50]]
    OffsetCheckpoint(former.root / CLEANER_OFFSETS).write({KEY: 10})
    assert scan(path=paths(leader, former), subscribe="orders").offsets == list(range(40, 50))


def test_the_bucket_is_joined(replicas: list[Partition], tmp_path: Path) -> None:
    _, leader, former = replicas
    url = f"file://{tmp_path}/bucket"
    leader.upload(url, 0)
    for each in (leader, former):
        each.drop_local(0)
    assert scan(path=paths(leader, former), remote=url, subscribe="orders").offsets == list(range(50))


def test_a_leader_that_was_asked_leaves_out_the_tail_of_another(replicas: list[Partition]) -> None:
    _, leader, former = replicas
    cluster = LogCluster(leader)
    cluster.leader_epoch = 1
    with brokers(cluster) as options:
        found = scan(path=paths(former), subscribe="orders", **options)
    assert found.offsets == list(range(60))
    assert [row["value"] for row in found.rows] == [each.value for each in leader.records]
    assert cluster.fetched > 0


def test_a_marker_past_the_high_watermark_ends_no_transaction(tmp_path: Path) -> None:
    batches = [
        *steady(2),
        Batch([T0] * 5, producer_id=7, transactional=True),
        *steady(1),
        Batch([T0], producer_id=7, marker=ControlType.ABORT),
    ]
    one, other = replica(tmp_path / "one", batches), replica(tmp_path / "other", batches)
    for each in (one, other):
        note(each, (0, 0), high_watermark=20)
    options = {"subscribe": "orders", "isolationLevel": "read_committed"}
    assert scan(path=paths(one, other), **options).offsets == list(range(10))
    note(other, (0, 0), high_watermark=21)
    assert scan(path=paths(one, other), **options).offsets == [*range(10), *range(15, 20)]


def test_topics_of_one_name_are_no_replicas(tmp_path: Path, replicas: list[Partition]) -> None:
    other = PartitionOfAnotherCluster(tmp_path / "other")
    other.segment(steady(1))
    with pytest.raises(UsageError, match="several topics have the name orders"):
        scan(path=paths(replicas[0], other), subscribe="orders")
    (other.directory / "partition.metadata").unlink()
    with pytest.raises(UsageError, match=r"orders-0 is in two places.*do not note the same topic id"):
        scan(path=paths(replicas[0], other), subscribe="orders")


def test_jobs_count_a_partition_once(replicas: list[Partition]) -> None:
    roots = [each.root for each in replicas]
    assert [each.base_offset for each in measure_topics(paths=roots).segments] == [0, 40]
    assert [each.directory for each in forecast_retention(paths=roots).partitions] == [replicas[1].directory]


def test_a_copy_of_a_directory_changes_nothing(replicas: list[Partition], tmp_path: Path) -> None:
    leader = replicas[1]
    shutil.copytree(leader.root, tmp_path / "copy")
    assert scan(path=f"{leader.root},{tmp_path}/copy", subscribe="orders").offsets == list(range(50))
    assert scan(path=f"{leader.root},{leader.root}", subscribe="orders").offsets == list(range(60))
