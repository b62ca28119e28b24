"""Tiering switched on and off over the wire (KIP-950), and the internal topics that are never tiered."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.admin import alter, create
from tests.support.tiered_broker import eventually, fill, tiered_and_copied, tiering_broker, values
from tests.support.wire import Wire

from stratalog.broker.metadata.alter_configs import BROKER, TOPIC
from stratalog.broker.server.server import Broker
from stratalog.errors import InvalidConfigError
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.remote.storage.object_store import ObjectStore

SET, DELETE = 0, 1
INVALID_CONFIG, INVALID_REQUEST = 40, 42
OFF = (("remote.storage.enable", SET, "false"), ("remote.log.delete.on.disable", SET, "true"))
ON = (("remote.storage.enable", SET, "true"), ("remote.log.delete.on.disable", SET, "false"))


def _broker(tmp_path: Path) -> Broker:
    return tiering_broker(tmp_path / "data", config={"remote.log.metadata.topic.num.partitions": "2"})


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with _broker(tmp_path) as found:
        yield found


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap_servers) as found:
        yield found


def _remote_segments(tmp_path: Path) -> list[int]:
    store = ObjectStore.from_url((tmp_path / "data" / "remote-store").as_uri())
    return [manifest.end_offset for manifest in list_remote_segments(store)]


def test_switching_off_needs_leave_to_delete(broker: Broker, wire: Wire, tmp_path: Path) -> None:
    partition = tiered_and_copied(broker)
    answer = alter(wire, TOPIC, "t", OFF[0])
    assert answer.error_code == INVALID_CONFIG
    assert "without deleting remote data" in answer.error_message
    assert partition.remote is not None
    assert values(partition) == [b"0", b"1", b"2"]
    assert _remote_segments(tmp_path) == [0, 1, 2]


def test_switching_off_deletes_what_is_remote_and_keeps_what_is_local(
    broker: Broker, wire: Wire, tmp_path: Path
) -> None:
    partition = tiered_and_copied(broker)
    local = partition.log.local_log_start_offset
    assert alter(wire, TOPIC, "t", *OFF).error_code == 0
    assert partition.remote is None
    assert partition.log.log_start_offset == local == 2
    assert partition.log.highest_offset_in_remote_storage == -1
    assert values(partition) == [b"2"]
    eventually(lambda: _remote_segments(tmp_path) == [])


def test_a_topic_that_is_tiered_again_is_copied_again_before_anything_local_goes(
    broker: Broker, wire: Wire, tmp_path: Path
) -> None:
    partition = tiered_and_copied(broker)
    assert alter(wire, TOPIC, "t", *OFF).error_code == 0
    fill(partition, 2)
    assert alter(wire, TOPIC, "t", *ON).error_code == 0
    partition.log.delete_old_segments()
    assert values(partition) == [b"2", b"3", b"4"]
    eventually(lambda: partition.log.highest_offset_in_remote_storage == 4)
    eventually(lambda: _remote_segments(tmp_path) == [2, 3, 4])
    partition.log.delete_old_segments()
    assert partition.log.local_log_start_offset > 2
    assert values(partition) == [b"2", b"3", b"4"]


def test_a_deletion_that_a_crash_overtook_is_made_up_for_at_the_next_start(tmp_path: Path) -> None:
    with _broker(tmp_path) as broker:
        tiered_and_copied(broker)
        # What is stored when the process dies before it has done anything about it.
        broker.services.store.set_topic_configs(
            "t", {"remote.storage.enable": "false", "remote.log.delete.on.disable": "true"}
        )
    with _broker(tmp_path) as broker:
        eventually(lambda: _remote_segments(tmp_path) == [])
        partition = broker.services.partition("t", 0)
        assert partition is not None
        assert partition.log.log_start_offset == 2
        assert values(partition) == [b"2"]


def test_an_internal_topic_stays_local_whatever_is_requested(
    broker: Broker, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        alter(wire, TOPIC, "__remote_log_metadata", ("remote.storage.enable", SET, "true"))
    for number in range(2):
        partition = broker.services.partition("__remote_log_metadata", number)
        assert partition is not None
        assert not partition.log.config.remote_storage_enable
        assert partition.remote is None
    assert "__remote_log_metadata is an internal topic; it stays local" in caplog.text


def test_pools_caches_and_quotas_change_live(broker: Broker, wire: Wire) -> None:
    remote = broker.services.logs.remote
    assert remote is not None
    changes = {
        "remote.log.manager.copier.thread.pool.size": "20",
        "remote.log.manager.expiration.thread.pool.size": "5",
        "remote.log.manager.follower.thread.pool.size": "4",
        "remote.log.reader.threads": "7",
        "remote.log.index.file.cache.total.size.bytes": "12345678",
        "remote.log.manager.copy.max.bytes.per.second": "1000",
        "remote.log.manager.fetch.max.bytes.per.second": "2000",
        "remote.fetch.max.wait.ms": "321",
        "remote.list.offsets.request.timeout.ms": "4321",
    }
    answer = alter(wire, BROKER, "", *((name, SET, value) for name, value in changes.items()))
    assert (answer.error_code, answer.error_message) == (0, None)
    assert [
        pool.size
        for pool in (remote.limits.copiers, remote.limits.expirers, remote.limits.followers, remote.limits.readers)
    ] == [
        20,
        5,
        4,
        7,
    ]
    assert remote.index_cache.capacity_bytes == 12_345_678
    assert (remote.limits.copy_quota.bytes_per_second, remote.limits.fetch_quota.bytes_per_second) == (1_000, 2_000)
    assert broker.services.config["remote.fetch.max.wait.ms"] == 321
    assert broker.services.config["remote.list.offsets.request.timeout.ms"] == 4_321
    undo = alter(wire, BROKER, "", *((name, DELETE, None) for name in changes))
    assert undo.error_code == 0
    assert remote.limits.copiers.size == 10


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("remote.log.reader.threads", "21", "should not be greater than double the current value 10"),
        ("remote.log.reader.threads", "4", "should be at least half the current value 10"),
        ("remote.log.manager.copier.thread.pool.size", "0", "Value must be at least 1"),
        ("remote.log.index.file.cache.total.size.bytes", "0", "Value must be at least 1"),
        ("remote.log.reader.max.pending.tasks", "7", "Cannot update these configs dynamically"),
        ("remote.log.manager.task.interval.ms", "7", "Cannot update these configs dynamically"),
        ("remote.log.manager.copy.quota.window.num", "7", "Cannot update these configs dynamically"),
    ],
)
def test_what_kafka_refuses_to_change_is_refused(broker: Broker, wire: Wire, name: str, value: str, said: str) -> None:
    answer = alter(wire, BROKER, str(broker.services.node_id), (name, SET, value))
    assert answer.error_code == INVALID_REQUEST
    assert said in answer.error_message


def test_a_broker_with_tiered_topics_does_not_start_without_its_remote_tier(tmp_path: Path) -> None:
    with _broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        for name in "abcd":
            create(wire, name, remote_storage_enable="true")
        create(wire, "plain")
    with pytest.raises(InvalidConfigError, match=r"remote\.storage\.enable=true: a, b, c and 1 more\. Set remote\.log"):
        Broker(tmp_path / "data")
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()  # nothing was touched
    with _broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        for name in "abcd":
            assert alter(wire, TOPIC, name, *OFF).error_code == 0
    with Broker(tmp_path / "data") as broker:
        assert broker.services.logs.remote is None


def test_an_internal_topic_that_was_asked_to_be_tiered_needs_no_remote_tier(tmp_path: Path) -> None:
    with _broker(tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        assert alter(wire, TOPIC, "__remote_log_metadata", ON[0]).error_code == 0
    Broker(tmp_path / "data").close()
