"""A compaction through brokers makes nothing of segments that the leader's log has given up."""

from __future__ import annotations

from pathlib import Path

from stratalog.broker.server.server import Broker
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.jobs.compaction.metadata_topic import TieredCluster
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.wire.client import Cluster, ConnectionOptions
from tests.broker.admin import create
from tests.remote.world import RECORDS_IN_BATCH, World
from tests.support.wire import Wire
from tests.torture.bucket_world import EventLog


def test_segments_behind_a_lost_tail_are_left_out(tmp_path: Path) -> None:
    with World(tmp_path) as world:
        world.append(60)
        world.tier()
        manifests = list_remote_segments(world.inner)
        cut_in = manifests[1]
        world.log.truncate_to(cut_in.base_offset + RECORDS_IN_BATCH)
        world.restart(crashed=True)
        world.append(5)
        log = world.log
        cluster = TieredCluster(
            EventLog(),
            epoch_end=lambda _, epoch: log.leader_epochs.end_offset_for(epoch, log.log_end_offset)[1],
        )
        assert cluster.of_the_log(manifests) == manifests[:1]


def test_a_broker_tells_where_an_epoch_ends(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        with Wire(broker.bootstrap_servers) as wire:
            assert create(wire, "t").error_code == 0
        partition = broker.services.partition("t", 0)
        assert partition is not None
        partition.append(build_batch([Record(n, 1_000, None, b"v") for n in range(3)]))
        options = ConnectionOptions.of({"kafka.bootstrap.servers": broker.bootstrap_servers})
        with Cluster(options) as cluster:
            assert cluster.epoch_end_offset("t", 0, 0) == 3
            assert cluster.cluster_id() == broker.services.cluster_id
