from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from uuid import uuid4

import pytest
from tests.remote.world import MemoryMetadataLog

from stratalog.config.broker import BrokerConfig
from stratalog.config.topic import LogConfig
from stratalog.engine.log_manager import LogManager, TopicSpec
from stratalog.engine.metrics.catalogue import read_metrics
from stratalog.engine.metrics.metric import Sample
from stratalog.engine.tiering.tiering import KAFKAS_METADATA_MANAGER, start_tiering
from stratalog.errors import InvalidConfigError, UsageError
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.log.retention.decision import DeletionReason
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.remote.api.plugin_metrics import PluginMetrics
from stratalog.remote.metadata.topic_based import TopicBasedRemoteLogMetadataManager
from stratalog.remote.storage.object_store import ObjectStore
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager
from stratalog.remote.tier.manager import RemoteLogManager


class RecordingStorage(ObjectStoreRemoteStorageManager):
    """A storage plugin as an operator would name it."""

    configured: Mapping[str, str] = {}

    def configure(self, configs: Mapping[str, str]) -> None:
        type(self).configured = dict(configs)
        super().configure({"url": configs["url"]})


class Tiered:
    """A log manager with a remote tier; `topics` are those that tiering asked for."""

    def __init__(self, data_dir: Path, **settings: str) -> None:
        self.data_dir = data_dir
        self.topics: dict[str, tuple[int, Mapping[str, str]]] = {}
        self.config = BrokerConfig.from_properties(
            {
                "remote.log.metadata.topic.num.partitions": "3",
                "remote.log.manager.task.interval.ms": "100",
                **settings,
            }
        )
        self.logs = LogManager([data_dir], self.config, cluster_id="c1")
        self.logs.start([])

    def _ensure(self, name: str, count: int, configs: Mapping[str, str]) -> TopicSpec:
        self.topics[name] = (count, configs)
        spec = TopicSpec(name, uuid4(), count, LogConfig.from_properties(configs, None))
        self.logs.create_topic(spec)
        return spec

    def start(self, bootstrap_servers: str | None = None) -> RemoteLogManager:
        return start_tiering(
            self.logs,
            self.config,
            data_dir=self.data_dir,
            cluster_id="c1",
            ensure_topic=self._ensure,
            partition_count=lambda _: 5,
            bootstrap_servers=bootstrap_servers,
        )


@pytest.fixture
def made(tmp_path: Path) -> Iterator[list[Tiered]]:
    made: list[Tiered] = []
    yield made
    for tiered in made:
        tiered.logs.close()


def tiered(made: list[Tiered], path: Path, **settings: str) -> Tiered:
    made.append(Tiered(path, **settings))
    return made[-1]


def test_sealed_segments_go_to_a_directory_under_the_data_and_come_back_by_offset(
    tmp_path: Path, made: list[Tiered]
) -> None:
    one = tiered(made, tmp_path)
    remote = one.start()
    config = LogConfig.from_properties(
        {"remote.storage.enable": "true", "retention.ms": "-1", "local.retention.bytes": "1"}, None
    )
    (partition,) = one.logs.create_topic(TopicSpec("orders", uuid4(), 1, config))
    for number in range(3):
        partition.append(build_batch([Record(0, 1_000 + number, None, b"%d" % number)]))
        partition.log.roll()
    remote.run_once(partition.topic_id_partition)
    assert [segment.reason for segment in partition.log.delete_old_segments()] == [DeletionReason.SIZE] * 2
    assert (partition.log.log_start_offset, partition.log.local_log_start_offset) == (0, 2)
    assert [partition.is_remote(offset) for offset in range(4)] == [True, True, False, False]
    found = partition.read_remote(1, 1 << 20)
    assert next(iter(next(iter(iter_batches(found.records))).records())).value == b"1"
    at = partition.offset_for_timestamp(1_001)
    assert at is not None
    assert at.offset == 1
    store = ObjectStore.from_url((tmp_path / "remote-store").as_uri())
    assert [manifest.end_offset for manifest in list_remote_segments(store)] == [0, 1, 2]
    assert {manifest.partition_count for manifest in list_remote_segments(store)} == {5}


def test_the_keys_of_aivens_plugin_make_its_objects(tmp_path: Path, made: list[Tiered]) -> None:
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    settings = {
        "remote.log.storage.manager.class.name": "io.aiven.kafka.tieredstorage.RemoteStorageManager",
        "remote.log.storage.manager.class.path": "/opt/plugin/core/*:/opt/plugin/filesystem/*",
        "rsm.config.storage.backend.class": "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage",
        "rsm.config.storage.root": str(bucket),
        "rsm.config.key.prefix": "tier/",
        "rsm.config.chunk.size": "4194304",
        "rsm.config.custom.metadata.fields.include": "REMOTE_SIZE,OBJECT_KEY",
    }
    one = tiered(made, tmp_path / "data", **settings)
    remote = one.start()
    config = LogConfig.from_properties(
        {"remote.storage.enable": "true", "retention.ms": "-1", "local.retention.bytes": "1"}, None
    )
    (partition,) = one.logs.create_topic(TopicSpec("orders", uuid4(), 1, config))
    for number in range(3):
        partition.append(build_batch([Record(0, 1_000 + number, None, b"%d" % number)]))
        partition.log.roll()
    remote.run_once(partition.topic_id_partition)
    stored = sorted(path.name.rpartition(".")[2] for path in bucket.rglob("tier/orders-*/0/*"))
    assert stored == sorted(["log", "indexes", "rsm-manifest"] * 3)
    assert partition.log.delete_old_segments()
    found = partition.read_remote(1, 1 << 20)
    assert next(iter(next(iter(iter_batches(found.records))).records())).value == b"1"


def test_a_key_that_aivens_plugin_has_not_refuses_the_start(tmp_path: Path, made: list[Tiered]) -> None:
    settings = {
        "remote.log.storage.manager.class.name": "io.aiven.kafka.tieredstorage.RemoteStorageManager",
        "rsm.config.storage.backend.class": "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage",
        "rsm.config.storage.root": str(tmp_path),
        "rsm.config.chunk.size": "4194304",
        "rsm.config.chunk.sise": "1",
    }
    said = "refuses its configuration: chunk.sise is not an option of Aiven's plugin in this broker: remove it"
    with pytest.raises(UsageError, match=said):
        tiered(made, tmp_path, **settings).start()


def test_the_metadata_topic_is_made_as_configured(tmp_path: Path, made: list[Tiered]) -> None:
    one = tiered(made, tmp_path)
    one.start()
    count, configs = one.topics["__remote_log_metadata"]
    assert count == 3
    assert configs == {"cleanup.policy": "delete", "remote.storage.enable": "false", "retention.ms": "-1"}


def test_a_storage_plugin_gets_the_keys_under_its_prefix(tmp_path: Path, made: list[Tiered]) -> None:
    settings = {
        "remote.log.storage.manager.class.name": f"{__name__}:RecordingStorage",
        "rsm.config.url": (tmp_path / "elsewhere").as_uri(),
        "rsm.config.chunk.size": "7",
    }
    tiered(made, tmp_path / "data", **settings).start()
    url = (tmp_path / "elsewhere").as_uri()
    assert RecordingStorage.configured == {
        "broker.id": "1",
        "node.id": "1",
        "cluster.id": "c1",
        "log.dir": str(tmp_path / "data"),
        "url": url,
        "chunk.size": "7",
    }


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"remote.log.storage.manager.class.name": "org.example.Rsm"}, "expected module:Class"),
        ({"remote.log.storage.manager.class.name": "no_such_module:Rsm"}, "cannot be loaded: No module named"),
        ({"remote.log.metadata.manager.class.name": "json:Nothing"}, "cannot be loaded: module 'json' has no"),
        ({"stratalog.remote.url": "ftp://host/x"}, "ftp://host/x is not an object store URL"),
        ({"stratalog.remote.url": "s3://[bucket"}, "expected an object store URL"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(
    tmp_path: Path, made: list[Tiered], settings: dict[str, str], said: str
) -> None:
    one = tiered(made, tmp_path, **settings)
    with pytest.raises((UsageError, InvalidConfigError), match=said):
        one.start()


class RecordingMetadata(TopicBasedRemoteLogMetadataManager):
    """A metadata plugin that keeps its events in memory."""

    configured: Mapping[str, str] = {}

    def __init__(self) -> None:
        super().__init__(MemoryMetadataLog())

    def configure(self, configs: Mapping[str, str]) -> None:
        type(self).configured = dict(configs)

    def with_plugin_metrics(self, metrics: PluginMetrics) -> None:
        metrics.add_metric("segments-known", lambda: 7, "How many.", {"kind": "test"})
        metrics.add_metric("broken", lambda: 1 / 0)


def test_a_metadata_plugin_gets_no_metadata_topic_but_its_keys_and_the_brokers_address(
    tmp_path: Path, made: list[Tiered]
) -> None:
    settings = {
        "remote.log.metadata.manager.class.name": f"{__name__}:RecordingMetadata",
        "rlmm.config.own.key": "x",
    }
    one = tiered(made, tmp_path, **settings)
    one.start(bootstrap_servers="127.0.0.1:19092")
    assert one.topics == {}
    assert RecordingMetadata.configured == {
        "remote.log.metadata.common.client.bootstrap.servers": "127.0.0.1:19092",
        "remote.log.metadata.common.client.security.protocol": "PLAINTEXT",
        "broker.id": "1",
        "node.id": "1",
        "cluster.id": "c1",
        "log.dir": str(tmp_path),
        "own.key": "x",
    }


def test_metrics_of_a_plugin_are_shown_with_its_class_and_key(tmp_path: Path, made: list[Tiered]) -> None:
    key = "remote.log.metadata.manager.class.name"
    one = tiered(made, tmp_path, **{key: f"{__name__}:RecordingMetadata"})
    one.start()
    shown = {
        metric.name: (metric.labels, list(samples))
        for metric, samples in read_metrics(one.logs)
        if metric.name.startswith("kafka_server_plugins")
    }
    assert shown == {
        "kafka_server_plugins_segments_known": (
            ("config", "class", "kind"),
            [Sample((key, "RecordingMetadata", "test"), 7.0)],
        )
    }


def test_kafkas_own_metadata_manager_is_the_topic_based_one(tmp_path: Path, made: list[Tiered]) -> None:
    one = tiered(made, tmp_path, **{"remote.log.metadata.manager.class.name": KAFKAS_METADATA_MANAGER})
    one.start()
    assert "__remote_log_metadata" in one.topics


def test_keys_of_the_metadata_topic_count_under_the_prefix_where_kafka_has_them(
    tmp_path: Path, made: list[Tiered]
) -> None:
    own = {
        "rlmm.config.remote.log.metadata.topic.num.partitions": "2",
        "rlmm.config.remote.log.metadata.topic.retention.ms": "999",
        "rlmm.config.remote.log.metadata.consume.wait.ms": "77",
    }
    one = tiered(made, tmp_path, **own)
    one.start()
    count, configs = one.topics["__remote_log_metadata"]
    assert (count, configs["retention.ms"]) == (2, "999")
    assert one.config["remote.log.metadata.consume.wait.ms"] == 77
    dynamic = one.config.with_overrides({"rlmm.config.remote.log.metadata.topic.num.partitions": "5"})
    assert dynamic["remote.log.metadata.topic.num.partitions"] == 2  # no client sets a plugin's keys
    with pytest.raises(
        InvalidConfigError, match=r"0 for configuration rlmm\.config\.remote\.log\.metadata\.topic\.num"
    ):
        BrokerConfig({"rlmm.config.remote.log.metadata.topic.num.partitions": "0"})
