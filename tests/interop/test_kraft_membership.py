"""A broker of ours among Kafka's controllers: it follows the metadata, is registered, leaves and comes back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stratalog.broker.cluster import ClusterMember, ClusterSettings
from stratalog.broker.cluster.image import MetadataImage
from stratalog.broker.cluster.image_records import image_records
from stratalog.broker.cluster.lifecycle import LifecycleState
from stratalog.broker.cluster.metadata_batches import decode_batches
from stratalog.broker.cluster.metadata_log import METADATA_PARTITION_DIR
from stratalog.cli import main as cli
from stratalog.config import BrokerConfig
from stratalog.errors import UsageError
from stratalog.log.format import CLEAN_SHUTDOWN
from stratalog.records import iter_batches
from stratalog.util import random_uuid, uuid_to_base64
from stratalog.wire import ApiKey
from stratalog.wire.client import Cluster, ConnectionOptions
from stratalog.wire.metadata_records import decode_metadata_record, encode_metadata_record
from tests.broker.cluster.metadata_histories import rebuilt
from tests.interop.test_metadata_images import ask_kafka, image_of
from tests.support.kraft_cluster import KraftCluster, low_port
from tests.support.reference_kafka import require_reference_kafka
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.slow, pytest.mark.xdist_group("kraft")]

OURS = 7


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KraftCluster]:
    """Three controllers and one JVM broker. The log is cut behind snapshots early."""
    require_reference_kafka()
    config = {"metadata.log.max.record.bytes.between.snapshots": "3000", "controller.quorum.election.timeout.ms": "300"}
    with KraftCluster(tmp_path_factory.mktemp("kraft"), controllers=3, config=config) as started:
        started.start_broker(1)
        yield started


Join = Callable[..., ClusterMember]


@pytest.fixture
def join(cluster: KraftCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Join]:
    """Join from the directory of the test, which is formatted at the first call; more settings may be given."""
    members: list[ClusterMember] = []

    def go(*, cluster_id: str = cluster.cluster_id, **settings: str) -> ClusterMember:
        file = tmp_path / "server.properties"
        properties = cluster.broker_properties(OURS, low_port(), tmp_path / "data")
        properties["broker.heartbeat.interval.ms"] = "200"
        properties |= {name.replace("_", "."): value for name, value in settings.items()}
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        arguments = ["storage", "format", "--cluster-id", cluster_id, "--config", str(file), "--ignore-formatted"]
        assert cli.run(arguments) == 0
        capsys.readouterr()
        config = BrokerConfig.from_properties(properties)
        member = ClusterMember(ClusterSettings.of(config), lambda _delta, _image: None)
        members.append(member)
        member.join()
        return member

    yield go
    for each in members:
        each.close()


def described(cluster: KraftCluster) -> dict[int, bool]:
    """Return the brokers that Kafka lists, and whether they are fenced."""
    with Cluster(ConnectionOptions.of({"kafka.bootstrap.servers": cluster.bootstrap_servers})) as client:
        reported = client.any.call(ApiKey.DESCRIBE_CLUSTER, (2, 2), endpoint_type=1, include_fenced_brokers=True)
    return {int(each.broker_id): bool(each.is_fenced) for each in reported.brokers}


def test_a_member_is_fenced_until_it_says_that_it_serves(cluster: KraftCluster, join: Join) -> None:
    member = join()
    wait_until(lambda: described(cluster).get(OURS) is True, "Kafka lists it, fenced")
    member.ready_to_unfence()
    assert member.lifecycle.wait_for(lambda each: each.state is LifecycleState.RUNNING, 30)
    wait_until(lambda: described(cluster).get(OURS) is False, "Kafka lists it, alive")
    wait_until(lambda: not member.image.brokers[OURS].fenced, "its own metadata says so")
    member.close()
    assert member.lifecycle.state is LifecycleState.SHUTTING_DOWN


def test_a_restart_reports_the_epoch_of_the_clean_stop(cluster: KraftCluster, join: Join, tmp_path: Path) -> None:
    first = join()
    epoch = first.lifecycle.broker_epoch
    first.close()
    marker = tmp_path / "data" / CLEAN_SHUTDOWN
    assert json.loads(marker.read_text()) == {"version": 0, "brokerEpoch": epoch}
    second = join()
    assert second.lifecycle._registration.previous_broker_epoch == epoch
    assert second.lifecycle.broker_epoch > epoch
    assert not marker.exists()


def test_an_unclean_stop_reports_no_epoch(join: Join) -> None:
    first = join()
    first.close(clean=False)
    second = join()
    assert second.lifecycle._registration.previous_broker_epoch == -1


def test_topics_and_settings_of_kafka_appear_in_the_image(cluster: KraftCluster, join: Join) -> None:
    member = join()
    with Cluster(ConnectionOptions.of({"kafka.bootstrap.servers": cluster.bootstrap_servers})) as client:
        configs = [{"name": "retention.ms", "value": "5000"}]
        topic = {"name": "seen", "num_partitions": 3, "replication_factor": 1, "configs": configs}
        client.any.call(ApiKey.CREATE_TOPICS, (2, 7), topics=[topic], timeout=20_000)
        wait_until(lambda: member.image.topic("seen"), "the topic is in the image")
        image = member.image
        topic_image = image.topic("seen")
        assert topic_image is not None
        assert {number: each.leader for number, each in topic_image.partitions.items()} == {0: 1, 1: 1, 2: 1}
        assert image.config(2, "seen") == {"retention.ms": "5000"}
        client.any.call(ApiKey.DELETE_TOPICS, (1, 5), topic_names=["seen"], timeout=20_000)
    wait_until(lambda: member.image.topic("seen") is None, "the topic is gone")
    assert not member.image.config(2, "seen")


def test_the_image_of_the_live_log_is_kafkas(cluster: KraftCluster, join: Join, tmp_path: Path) -> None:
    """Everything in the logs and snapshots on disk is written again byte for byte, and means the same to Kafka."""
    member = join()
    ours = tmp_path / "data" / METADATA_PARTITION_DIR
    controller = cluster.controllers[100].data_dir / METADATA_PARTITION_DIR
    files = [
        path for folder in (ours, controller) for pattern in ("*.log", "*.checkpoint") for path in folder.glob(pattern)
    ]
    seen = 0
    for path in files:
        for batch in iter_batches(path.read_bytes()):
            for record in () if batch.is_control else batch.records():
                framed = decode_metadata_record(record.value or b"")
                assert encode_metadata_record(*framed) == record.value, path
                seen += 1
    assert seen > 50
    image = member.image
    line = " ".join(encode_metadata_record(*each).hex() for each in image_records(image))
    assert image_of(ask_kafka([line])[0]) == rebuilt(list(image_records(image)))
    checkpoints = [path for path in files if path.suffix == ".checkpoint" and not path.name.startswith("0" * 20)]
    assert checkpoints, "the controllers write snapshots"
    for path in checkpoints:
        records = [each for batch in decode_batches(path.read_bytes()) for each in batch.records]
        line = " ".join(encode_metadata_record(*each).hex() for each in records)
        assert image_of(ask_kafka([line])[0]) == rebuilt(records), path


def test_a_member_that_was_long_away_begins_with_a_snapshot(cluster: KraftCluster, join: Join, tmp_path: Path) -> None:
    member = join()
    names = {path.name for path in (tmp_path / "data" / METADATA_PARTITION_DIR).iterdir()}
    member.close()
    assert any(name.endswith(".checkpoint") for name in names), "the log no longer begins at 0"


def test_the_death_of_the_active_controller_is_survived(cluster: KraftCluster, join: Join) -> None:
    member = join()
    member.ready_to_unfence()
    assert member.lifecycle.wait_for(lambda each: each.state is LifecycleState.RUNNING, 30)
    dead, epoch = member.quorum.leader_id, member.quorum.epoch
    broker_epoch = member.lifecycle.broker_epoch
    cluster.controllers[dead].kill()
    try:
        wait_until(lambda: member.quorum.epoch > epoch and member.quorum.leader_id not in (-1, dead), "another leads")
        offset = member.image.offset
        wait_until(lambda: member.image.offset > offset, "its records arrive")
        assert member.failure is None
        assert (member.lifecycle.broker_epoch, member.image.brokers[OURS].fenced) == (broker_epoch, False)
    finally:
        cluster.controllers[dead].start()


def test_a_second_process_of_the_same_node_is_refused(
    cluster: KraftCluster, join: Join, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    join()
    with pytest.raises(UsageError, match=r"is running already.*another node\.id"):
        join(log_dirs=str(tmp_path / "other"), initial_broker_registration_timeout_ms="1000")


def test_a_directory_of_another_cluster_is_refused(join: Join) -> None:
    with pytest.raises(Exception, match="of another cluster than"):
        join(cluster_id=uuid_to_base64(random_uuid()))


def test_the_status_tells_brokers_and_controllers(
    cluster: KraftCluster, join: Join, capsys: pytest.CaptureFixture[str]
) -> None:
    member = join()
    wait_until(lambda: OURS in described(cluster), "Kafka lists it")
    assert cli.run(["cluster", "status", "--bootstrap-server", cluster.bootstrap_servers, "--json"]) == 1
    reported = json.loads(capsys.readouterr().out)
    assert reported["cluster_id"] == member.cluster_id
    assert {each["id"]: (each["kind"], each["is_fenced"]) for each in reported["brokers"]} == {
        1: ("kafka", False),
        OURS: ("unknown", True),
    }
    assert [each["id"] for each in reported["controllers"]] == [100, 101, 102]
    assert sum(each["leads"] for each in reported["controllers"]) == 1


def test_an_image_without_records_is_empty() -> None:
    assert rebuilt([]) == MetadataImage()
