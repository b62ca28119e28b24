"""A broker with tiered topics, its data directory thrown away, and everything back from the bucket alone."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

import stratalog
from stratalog.cli.main import run
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.remote.ownership.bucket_owner import DIRECTORY, read_owner
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.tier.manager import RunResult
from tests.support.s3_server import S3Server, require_s3_server
from tests.support.waiting import wait_until

_START_MS = 1_700_000_000_000
_CONFIG = {
    "remote.storage.enable": "true",
    "segment.bytes": str(1024 * 1024),
    "local.retention.bytes": "1",
    "retention.ms": "-1",
    "file.delete.delay.ms": "0",
    "max.message.bytes": "2000000",
}


@dataclass(frozen=True)
class Place:
    """Where the remote tier is, and how a broker and the command get it."""

    url: str
    options: dict[str, str]

    def settings(self) -> dict[str, str]:
        return {
            "remote.log.storage.system.enable": "true",
            "stratalog.remote.url": self.url,
            **{f"rsm.config.{name}": value for name, value in self.options.items()},
            "remote.log.manager.task.interval.ms": "100",
            "remote.log.metadata.topic.num.partitions": "5",
            "log.retention.check.interval.ms": "100",
            "log.initial.task.delay.ms": "50",
            "auto.create.topics.enable": "false",
        }

    def restore(self, data_dir: Path, *arguments: str) -> int:
        options = [part for name, value in self.options.items() for part in ("--store-option", f"{name}={value}")]
        return run(
            [
                "tier",
                "restore",
                self.url,
                "--data-dir",
                str(data_dir),
                "--metadata-partitions",
                "5",
                *options,
                *arguments,
            ]
        )

    @property
    def store(self) -> ObjectStore:
        return ObjectStore.from_url(self.url, self.options)


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    require_s3_server()
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(params=[pytest.param("directory", marks=pytest.mark.soak), "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "directory":
        (tmp_path / "store").mkdir()
        return Place((tmp_path / "store").as_uri(), {})
    server: S3Server = request.getfixturevalue("s3")
    return Place(server.url(f"restore/{tmp_path.name}"), dict(server.options))


def create(address: str, topics: dict[str, int]) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    made = admin.create_topics([NewTopic(name, count, config=_CONFIG) for name, count in topics.items()])
    for future in made.values():
        future.result(30)


def produce(address: str, topic: str, partition: int, first: int, count: int) -> None:
    """Records whose offset is in their key, value and timestamp."""
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "batch.size": 50_000})
    for number in range(first, first + count):
        producer.produce(
            topic,
            b"%06d" % number + bytes(990),
            key=b"%d" % number,
            partition=partition,
            timestamp=_START_MS + number * 1000,
        )
        if number % 200 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def consume(address: str, topic: str, partition: int, offset: int, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, offset)])
    found: list[int] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(1000, timeout=1):
            assert message.error() is None, message.error()
            number = int((message.value() or b"")[:6])
            assert (message.offset(), message.timestamp()[1]) == (number, _START_MS + number * 1000)
            found.append(number)
    consumer.close()
    return found


def active_bases(data_dir: Path, topics: dict[str, int]) -> dict[tuple[str, int], int] | None:
    """The base offset of the only local segment of each partition; None while one has several."""
    found = {}
    for topic, count in topics.items():
        for number in range(count):
            logs = sorted((data_dir / f"{topic}-{number}").glob("*.log"))
            if len(logs) != 1:
                return None
            found[topic, number] = int(logs[0].name[:20])
    return found


def configs(address: str, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": address})
    entries = admin.describe_configs([resource])[resource].result(30)
    return {name: entry.value for name, entry in entries.items()}


def topic_ids(address: str, names: list[str]) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": address})
    described = admin.describe_topics(TopicCollection(names))
    return {name: str(future.result(30).topic_id) for name, future in described.items()}


def partitions(address: str, topic: str) -> list[int]:
    return sorted(AdminClient({"bootstrap.servers": address}).list_topics(topic, timeout=30).topics[topic].partitions)


def cluster_of(broker: stratalog.Broker) -> str:
    return broker.services.cluster_id


def owner_of(place: Place) -> str | None:
    """The cluster that the bucket belongs to."""
    owner = read_owner(place.store)
    return None if owner is None else owner.cluster_id


def contents(place: Place) -> dict[str, bytes]:
    """All objects of the bucket, those that say whose it is too."""
    return {info.key: bytes(place.store.get(info.key)) for info in place.store.list()}


def segments_of(place: Place) -> dict[str, bytes]:
    return {key: data for key, data in contents(place).items() if not key.startswith(f"{DIRECTORY}/")}


def test_a_cluster_is_back_from_the_bucket_alone(
    tmp_path: Path, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    topics = {"orders": 2, "users": 1}
    data_dir = tmp_path / "data"
    with stratalog.Broker(data_dir=data_dir, config=place.settings()) as broker:
        create(broker.bootstrap_servers, {**topics, "orders": 4})  # nothing ever comes to the last two
        for topic, count in topics.items():
            for number in range(count):
                produce(broker.bootstrap_servers, topic, number, 0, 3_500)
        wait_until(lambda: active_bases(data_dir, topics) is not None, "all sealed segments are remote alone")
        ends = active_bases(data_dir, topics)
        assert ends is not None
        assert min(ends.values()) > 2_000
        ids, was = (
            topic_ids(broker.bootstrap_servers, list(topics)),
            configs(broker.bootstrap_servers, "orders"),
        )
        owner = cluster_of(broker)
    shutil.rmtree(data_dir)

    assert place.restore(data_dir, "--take-over", "--dry-run") == 0
    assert not data_dir.exists()
    assert owner_of(place) == owner
    assert place.restore(data_dir, "--take-over") == 0
    out = capsys.readouterr().out
    assert "2 topics, 3 partitions" in out
    assert "note  orders: nothing can be restored for partitions 2 to 3" in out
    assert place.restore(data_dir, "--take-over") == 2
    assert "is not empty" in capsys.readouterr().err

    for life in range(2):
        with stratalog.Broker(data_dir=data_dir, config=place.settings()) as broker:
            address = broker.bootstrap_servers
            assert owner_of(place) == cluster_of(broker) != owner
            assert topic_ids(address, list(topics)) == ids
            assert configs(address, "orders") == was
            for (topic, number), end in ends.items():
                assert consume(address, topic, number, 0, end) == list(range(end))
                admin, partition = AdminClient({"bootstrap.servers": address}), TopicPartition(topic, number)
                for wanted, spec in [
                    (0, OffsetSpec.earliest()),
                    (end, OffsetSpec.latest()),
                    (100, OffsetSpec.for_timestamp(_START_MS + 99_001)),
                ]:
                    assert admin.list_offsets({partition: spec})[partition].result(30).offset == wanted
            assert len(partitions(address, "orders")) == 4
            produce(address, "orders", 3, life * 10, 10)
            assert consume(address, "orders", 3, 0, life * 10 + 10) == list(range(life * 10 + 10))
            # Writing goes on where the remote tier ends, and so does copying.
            more = {key: end + 2_000 for key, end in ends.items()}
            for (topic, number), end in ends.items():
                produce(address, topic, number, end, 2_000)
            for (topic, number), end in more.items():
                assert consume(address, topic, number, end - 3_000, 3_000) == list(range(end - 3_000, end))
            ends = more
            wait_until(lambda: active_bases(data_dir, topics) is not None, "copying goes on")
            sealed = active_bases(data_dir, topics)
            assert sealed is not None
            remote = {(m.topic, m.partition): m.end_offset + 1 for m in list_remote_segments(place.store)}
            assert remote == sealed


def test_without_a_take_over_the_bucket_is_only_read_and_with_one_copying_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "store").mkdir()
    place, data_dir = Place((tmp_path / "store").as_uri(), {}), tmp_path / "data"
    with stratalog.Broker(data_dir=data_dir, config=place.settings()) as broker:
        create(broker.bootstrap_servers, {"orders": 1})
        produce(broker.bootstrap_servers, "orders", 0, 0, 2_500)
        wait_until(lambda: active_bases(data_dir, {"orders": 1}) is not None, "all sealed segments are remote alone")
        bases = active_bases(data_dir, {"orders": 1})
        assert bases is not None
        end, owner = bases["orders", 0], cluster_of(broker)
    shutil.rmtree(data_dir)
    before = contents(place)

    assert place.restore(data_dir) == 0
    assert f"belongs to cluster {owner}: this directory only reads it" in capsys.readouterr().out
    for _ in range(2):
        with stratalog.Broker(data_dir=data_dir, config=place.settings()) as broker:
            assert consume(broker.bootstrap_servers, "orders", 0, 0, end) == list(range(end))
            produce(broker.bootstrap_servers, "orders", 0, end, 2_000)
            end += 2_000
            assert consume(broker.bootstrap_servers, "orders", 0, 0, end) == list(range(end))
            partition, remote = broker.services.partition("orders", 0), broker.services.logs.remote
            assert partition is not None
            assert remote is not None
            sealed = partition.log.segments[:-1]
            assert sealed
            assert remote.run_once(partition.topic_id_partition) == RunResult()
            assert partition.log.delete_old_segments() == []
            assert partition.log.segments[:-1] == sealed
    assert contents(place) == before

    assert run(["tier", "owner", place.url, "--take-over", "--data-dir", str(data_dir)]) == 0
    with stratalog.Broker(data_dir=data_dir, config=place.settings()) as broker:
        assert owner_of(place) == cluster_of(broker) != owner
        wait_until(lambda: active_bases(data_dir, {"orders": 1}) is not None, "copying goes on")
        assert consume(broker.bootstrap_servers, "orders", 0, 0, end) == list(range(end))
        sealed_ends = active_bases(data_dir, {"orders": 1})
        assert sealed_ends is not None
        assert sealed_ends["orders", 0] > end - 2_000
        remote_ends = {(m.topic, m.partition): m.end_offset + 1 for m in list_remote_segments(place.store)}
        assert remote_ends == sealed_ends
    assert before.items() <= contents(place).items()


def test_lost_metadata_is_made_again_beside_the_local_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "store").mkdir()
    place = Place((tmp_path / "store").as_uri(), {})
    data_dir = tmp_path / "data"
    with stratalog.Broker(data_dir=data_dir, config=place.settings()) as broker:
        create(broker.bootstrap_servers, {"orders": 1})
        produce(broker.bootstrap_servers, "orders", 0, 0, 3_500)
        wait_until(lambda: active_bases(data_dir, {"orders": 1}) is not None, "all sealed segments are remote alone")
        assert place.restore(data_dir, "--metadata-only") == 2
        assert "is in use by a broker" in capsys.readouterr().err
    objects = segments_of(place)
    for directory in data_dir.glob("__remote_log_metadata-*"):
        for log in directory.glob("*.log"):
            log.write_bytes(b"\xff" * 500)
    assert place.restore(data_dir, "--metadata-only") == 0
    assert not (data_dir / "restore-unfinished").exists()
    with stratalog.Broker(data_dir=data_dir, config=place.settings()) as broker:
        assert consume(broker.bootstrap_servers, "orders", 0, 0, 3_500) == list(range(3_500))
        produce(broker.bootstrap_servers, "orders", 0, 3_500, 100)
        assert consume(broker.bootstrap_servers, "orders", 0, 3_400, 200) == list(range(3_400, 3_600))
    assert segments_of(place) == objects  # nothing was copied twice
