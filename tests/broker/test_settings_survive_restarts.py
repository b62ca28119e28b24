"""Nothing that a client may set makes the next start impossible, whatever the broker answered.

Invariant: after any sequence of AlterConfigs and IncrementalAlterConfigs, each refused or accepted, a broker starts
from the same directory with the same file; what was refused has changed nothing.
"""

from __future__ import annotations

import logging
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.broker.admin import alter, create, described, replace_configs
from tests.broker.admin_cases import BROKER, SET, TOPIC
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.coordinator_log import read_contents
from stratalog.broker.metadata.dynamic_configs import in_force
from stratalog.broker.metadata.store import MetadataStore
from stratalog.broker.server.server import Broker
from stratalog.config.broker import BROKER_KEYS, BrokerConfig
from stratalog.config.keys import ConfigKey, ConfigType
from stratalog.config.topic import TOPIC_KEYS
from stratalog.engine.cleaning.log_cleaner import LogCleaner
from stratalog.errors import InvalidConfigError, KafkaStorageError
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.wire.api_keys import ApiKey

DELETE = 1
INVALID_PARTITIONS, INVALID_CONFIG, INVALID_REQUEST = 37, 40, 42

TIERING = {
    "remote.log.storage.system.enable": "true",
    "remote.log.metadata.topic.num.partitions": "1",
    "remote.log.manager.task.interval.ms": "3600000",
}

TOPICS: dict[str, dict[str, Any]] = {
    "tiered": {"remote_storage_enable": "true"},
    "tiered-own": {
        "remote_storage_enable": "true",
        "retention_ms": "100000",
        "local_retention_ms": "1000",
        "segment_ms": "7200000",
    },
    "compacted": {"cleanup_policy": "compact", "min_compaction_lag_ms": "5000"},
    "plain": {},
}


def _make_topics(wire: Wire) -> None:
    for name, configs in TOPICS.items():
        assert create(wire, name, **configs).error_code == 0


# --- checked before it is stored --------------------------------------------------------------------------------------


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data", config=TIERING) as broker:
        with Wire(broker.bootstrap_servers) as wire:
            _make_topics(wire)
        yield broker


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"log.cleaner.min.compaction.lag.ms": "10", "log.cleaner.max.compaction.lag.ms": "5"},
            "min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        ({"log.local.retention.ms": "999999999999"}, "not be more than log.retention.ms property value: 604800000"),
        ({"log.local.retention.ms": "-1"}, "Value must not be -1 as log.retention.ms value is set as 604800000"),
        ({"log.local.retention.bytes": "9", "log.retention.bytes": "8"}, "not be more than log.retention.bytes"),
        ({"log.remote.copy.lag.ms": "999999999999"}, "must not exceed local.retention.ms"),
        ({"log.cleanup.policy": "compact"}, "only supports topics with cleanup.policy=delete"),
        ({"log.segment.bytes": "4294967296"}, "features upgrade"),
        ({"log.cleaner.dedupe.buffer.size": "1"}, "offset map is too small"),
        ({"log.cleaner.io.buffer.load.factor": "nan"}, "Not a number of type DOUBLE"),
        ({"max.connections": "0"}, "it could not be changed back"),
        ({"num.recovery.threads.per.data.dir": "5"}, "should not be greater than double the current value 2"),
    ],
)
@pytest.mark.parametrize("level", ["", "1"])
def test_a_setting_of_the_broker_that_does_not_fit_is_refused_and_not_stored(
    broker: Broker, wire: Wire, changes: dict[str, str], said: str, level: str
) -> None:
    parts = [(name, SET, value) for name, value in changes.items()]
    before = broker.services.config
    for validate_only in (True, False):
        refused = alter(wire, BROKER, level, *parts, validate_only=validate_only)
        assert refused.error_code in (INVALID_CONFIG, INVALID_REQUEST)
        assert said in refused.error_message
    assert broker.services.metadata.broker_configs(None) == {}
    assert broker.services.metadata.broker_configs(1) == {}
    assert broker.services.config is before


@pytest.mark.parametrize(
    ("level", "changes", "said"),
    [
        ("", {"log.cleaner.dedupe.buffer.size": "1"}, "offset map is too small"),
        ("1", {"max.connection.creation.rate": "0"}, "no client could connect any more"),
        ("1", {"listener.name.plaintext.max.connection.creation.rate": "0"}, "no client could connect any more"),
        ("1", {"max.connections.per.ip": "0"}, "only if max.connections.per.ip.overrides is set"),
        ("", {"listener.name.plaintext.max.connections.per.ip": "3"}, "at default cluster level"),
    ],
)
def test_what_kafka_refuses_of_a_broker_has_its_error_code(
    broker: Broker, wire: Wire, level: str, changes: dict[str, str], said: str
) -> None:
    """As Kafka 4.4.0 answers each of them."""
    refused = alter(wire, BROKER, level, *((name, SET, value) for name, value in changes.items()))
    assert refused.error_code == INVALID_REQUEST
    assert said in refused.error_message


def test_no_connection_of_an_address_is_allowed_beside_exceptions(broker: Broker, wire: Wire) -> None:
    changes = (("max.connections.per.ip", SET, "0"), ("max.connections.per.ip.overrides", SET, "127.0.0.1:50"))
    assert alter(wire, BROKER, "1", *changes, validate_only=True).error_code == 0
    for_all = ("listener.name.plaintext.max.connections", SET, "50")
    assert alter(wire, BROKER, "", for_all, validate_only=True).error_code == 0


def test_a_setting_for_all_that_the_brokers_own_hides_is_no_change_of_it(broker: Broker, wire: Wire) -> None:
    for_all = ("num.io.threads", SET, "1000")
    assert "not be greater than double" in alter(wire, BROKER, "", for_all).error_message
    assert alter(wire, BROKER, "1", ("num.io.threads", SET, "9")).error_code == 0
    assert alter(wire, BROKER, "", for_all).error_code == 0
    assert alter(wire, BROKER, "", ("num.io.threads", SET, "0")).error_code == INVALID_REQUEST


def test_what_would_break_a_topic_that_inherits_names_it(broker: Broker, wire: Wire) -> None:
    refused = alter(wire, BROKER, "", ("log.remote.copy.lag.ms", SET, "604800001"))
    assert "Topic tiered (and 1 more) inherits it" in refused.error_message
    assert alter(wire, BROKER, "", ("log.remote.copy.lag.ms", SET, "1000")).error_code == 0


def test_a_conflict_of_both_levels_is_seen_at_the_second(broker: Broker, wire: Wire) -> None:
    assert alter(wire, BROKER, "", ("log.cleaner.min.compaction.lag.ms", SET, "100")).error_code == 0
    refused = alter(wire, BROKER, "1", ("log.cleaner.max.compaction.lag.ms", SET, "50"))
    assert refused.error_code == INVALID_CONFIG
    assert broker.services.metadata.broker_configs(1) == {}


def test_a_client_sets_no_key_of_a_plugin(tmp_path: Path) -> None:
    for _ in range(2):
        with Broker(tmp_path / "data", config=TIERING) as broker, Wire(broker.bootstrap_servers) as wire:
            alter(wire, BROKER, "", ("rsm.config.no.such.option", SET, "x"))
            assert "no.such.option" not in broker.services.config.prefixed("rsm.config.")


def test_the_count_of_the_metadata_topics_partitions_is_not_the_clients(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker, Wire(broker.bootstrap_servers) as wire:
        assert create(wire, "__remote_log_metadata", 3).error_code == INVALID_PARTITIONS
        wire.call(ApiKey.METADATA, 12, topics=[{"name": "__remote_log_metadata"}], allow_auto_topic_creation=True)
        wait_until(lambda: broker.services.metadata.topic("__remote_log_metadata"), "the topic is created")
        assert broker.services.topics.known("__remote_log_metadata").partition_count == 50
        grown = wire.call(
            ApiKey.CREATE_PARTITIONS,
            3,
            timeout=10_000,
            validate_only=False,
            topics=[{"name": "__remote_log_metadata", "count": 51, "assignments": None}],
        )
        assert grown.results[0].error_code == INVALID_PARTITIONS
    with Broker(tmp_path / "data", config={"remote.log.storage.system.enable": "true"}):
        pass


def test_a_metadata_topic_whose_deletion_was_interrupted_is_made_again(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", config=TIERING) as broker:
        broker.services.store.begin_delete_topic("__remote_log_metadata")
    with Broker(tmp_path / "data", config=TIERING) as broker:
        assert broker.services.topics.known("__remote_log_metadata").partition_count == 1


# --- found at a start -------------------------------------------------------------------------------------------------


def _store(directory: Path, statement: str, *values: str) -> None:
    with closing(sqlite3.connect(directory / "stratalog.sqlite")) as db, db:
        db.execute(statement, values)


def test_a_dynamic_setting_that_no_longer_fits_the_file_does_not_count_and_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(tmp_path / "data") as broker, Wire(broker.bootstrap_servers) as wire:
        changes = [
            ("log.cleaner.min.compaction.lag.ms", SET, "1000"),
            ("log.retention.ms", SET, "5000"),
        ]
        assert alter(wire, BROKER, "", *changes).error_code == 0
    narrower = {"log.cleaner.max.compaction.lag.ms": "500"}
    with (
        Broker(tmp_path / "data", config=narrower) as broker,
        Wire(broker.bootstrap_servers) as wire,
    ):
        assert "The dynamic value of log.cleaner.min.compaction.lag.ms is ignored: conflict topic config" in caplog.text
        assert broker.services.config["log.cleaner.min.compaction.lag.ms"] == 0
        assert broker.services.config["log.retention.ms"] == 5000
        assert alter(wire, BROKER, "", ("log.retention.ms", SET, "6000")).error_code == 0
        again = alter(wire, BROKER, "", ("log.cleaner.min.compaction.lag.ms", SET, "2000"))
        assert again.error_code == INVALID_CONFIG
        assert alter(wire, BROKER, "", ("log.cleaner.min.compaction.lag.ms", DELETE, None)).error_code == 0
        assert broker.services.metadata.broker_configs(None) == {"log.retention.ms": "6000"}


def test_what_is_damaged_in_the_store_of_dynamic_settings_does_not_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Broker(tmp_path / "data").close()
    stored = (
        '{"log.retention.ms": "soon", "node.id": "7", "log.cleaner.min.compaction.lag.ms": "9",'
        ' "log.cleaner.max.compaction.lag.ms": "3", "log.roll.ms": "777", "max.connections": "0"}'
    )
    _store(tmp_path / "data", "INSERT INTO broker_configs (broker, configs) VALUES ('', ?)", stored)
    with Broker(tmp_path / "data") as broker:
        config = broker.services.config
        assert (config["log.roll.ms"], config["log.retention.ms"], config["node.id"]) == (777, 604_800_000, 1)
        assert config["log.cleaner.max.compaction.lag.ms"] == 3
        assert config["log.cleaner.min.compaction.lag.ms"] == 0
    for name in ("log.retention.ms", "node.id", "log.cleaner.min.compaction.lag.ms", "max.connections"):
        assert f"The dynamic value of {name} is ignored" in caplog.text


def test_the_file_itself_has_to_fit_together(tmp_path: Path) -> None:
    config = {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "3"}
    with pytest.raises(InvalidConfigError, match=r"max\.compaction\.lag\.ms"):
        Broker(tmp_path / "data", config=config)


def test_settings_that_fit_only_together_count_together() -> None:
    static = BrokerConfig({"log.cleaner.min.compaction.lag.ms": "10", "log.cleaner.max.compaction.lag.ms": "20"})
    dynamic = {
        "log.cleaner.max.compaction.lag.ms": "5",
        "log.cleaner.min.compaction.lag.ms": "1",
        "log.roll.ms": "0",
    }
    found = in_force(static, dynamic, large=False)
    assert list(found.ignored) == ["log.roll.ms"]
    assert found.config["log.cleaner.max.compaction.lag.ms"] == 5


@pytest.mark.parametrize(
    "file",
    [{"log.cleanup.policy": "compact"}, {"log.retention.ms": "500"}, {"log.remote.copy.lag.bytes": "77"}],
    ids=str,
)
def test_a_topic_in_conflict_with_a_changed_file_keeps_its_last_good_configuration(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, file: dict[str, str]
) -> None:
    own: dict[str, Any] = {"local_retention_ms": "1000", "local_retention_bytes": "7", "retention_bytes": "70"}
    with Broker(tmp_path / "data", config=TIERING) as broker, Wire(broker.bootstrap_servers) as wire:
        create(wire, "t", remote_storage_enable="true", **own)
        create(wire, "plain")
        partition = broker.services.partition("t", 0)
        assert partition is not None
        good = partition.log.config
    for _ in range(2):  # the second start knows it too
        caplog.clear()
        with (
            Broker(tmp_path / "data", config={**TIERING, **file}) as broker,
            Wire(broker.bootstrap_servers) as wire,
        ):
            partition = broker.services.partition("t", 0)
            assert partition is not None
            assert partition.log.config == good
            plain = broker.services.partition("plain", 0)
            assert plain is not None
            assert plain.log.config != good
            warnings = [entry.message for entry in caplog.records if entry.levelno == logging.WARNING]
            assert len([line for line in warnings if "Topic t is served, but" in line]) == 1
            assert "keeps the configuration that it had" in caplog.text
            assert described(wire, TOPIC, "t")["local.retention.ms"].value == "1000"


def test_a_store_that_takes_no_notes_keeps_nothing_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise KafkaStorageError("the disk is full")

    monkeypatch.setattr(MetadataStore, "keep_good_topic_defaults", full)
    with Broker(tmp_path / "data") as broker, Wire(broker.bootstrap_servers) as wire:
        assert alter(wire, BROKER, "", ("log.retention.ms", SET, "5000")).error_code == 0
    assert "topic defaults cannot be stored: the disk is full" in caplog.text


def test_a_topic_that_breaks_newer_rules_is_served_and_nothing_of_it_is_deleted_or_compacted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(tmp_path / "data", config=TIERING) as broker, Wire(broker.bootstrap_servers) as wire:
        _make_topics(wire)
    broken = {
        "tiered": '{"remote.storage.enable": "true", "cleanup.policy": "compact", "retention.ms": "1",'
        ' "local.retention.ms": "5", "remote.copy.lag.ms": "9", "no.such.key": "1", "flush.ms": "x"}',
        "compacted": '{"cleanup.policy": "compact", "min.compaction.lag.ms": "9", "max.compaction.lag.ms": "3"}',
        "plain": '{"segment.bytes": "9999999999"}',
    }
    for topic, configs in broken.items():
        _store(tmp_path / "data", "UPDATE topics SET configs = ? WHERE name = ?", configs, topic)
    with Broker(tmp_path / "data", config=TIERING) as broker, Wire(broker.bootstrap_servers) as wire:
        logs = broker.services.logs
        served = {name: logs.partitions(name)[0].log.config for name in TOPICS}
        for topic in broken:
            assert f"Topic {topic} is served, but its configuration is in conflict" in caplog.text
        assert served["tiered"].cleanup_policy == frozenset()
        assert served["tiered"].remote_storage_enable
        assert served["compacted"].min_compaction_lag_ms == 2**63 - 1
        assert served["plain"].segment_bytes == 2**31 - 1
        assert described(wire, TOPIC, "tiered")["flush.ms"].value == "x"
        mended = replace_configs(wire, TOPIC, "tiered", remote_storage_enable="true")
        assert mended.error_code == 0
        assert logs.partitions("tiered")[0].log.config.cleanup_policy == {"delete"}


def test_a_cleaner_works_with_the_threads_that_the_system_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stratalog.engine.cleaning import log_cleaner

    started = 0

    class Scarce(log_cleaner._CleanerThread):
        def start(self) -> None:
            nonlocal started
            if started == 2:
                raise RuntimeError("can't start new thread")
            started += 1
            super().start()

    monkeypatch.setattr(log_cleaner, "_CleanerThread", Scarce)
    with Broker(tmp_path / "data", config={"log.cleaner.threads": "4"}) as broker:
        assert isinstance(broker.services.logs.cleaner, LogCleaner)
        assert len(broker.services.logs.cleaner.threads) == 2


# --- anything at all --------------------------------------------------------------------------------------------------

_TEXTS = (
    "",
    "-1",
    "0",
    "1",
    "5",
    "100",
    "3600000",
    "604800000",
    "2147483647",
    "9223372036854775807",
    "x",
    "nan",
    "1e400",
    "compact",
    "delete",
    "compact,delete",
    "true",
    "false",
    "é\x00\ud7ff",
    "-2",
)


def _value(random_: random.Random, key: ConfigKey) -> str:
    if key.type is ConfigType.BOOLEAN and random_.random() < 0.8:
        return random_.choice(("true", "false"))
    if random_.random() < 0.3 and key.default is not None:
        return key.render(key.default) or ""
    return random_.choice(_TEXTS)


def _changes(random_: random.Random, keys: list[ConfigKey]) -> list[tuple[str, int, str | None]]:
    chosen = random_.sample(keys, random_.choice((1, 1, 2, 3)))
    return [
        (key.name, DELETE, None) if random_.random() < 0.15 else (key.name, SET, _value(random_, key)) for key in chosen
    ]


_RELATED = ("retention", "lag", "cleanup", "segment", "remote", "cleaner", "threads", "roll", "metadata")
_BROKER_KEYS = [key for key in BROKER_KEYS if any(part in key.name for part in _RELATED) or key.dynamic]
_TOPIC_KEYS = list(TOPIC_KEYS)
_UNKNOWN = [
    ConfigKey("rsm.config.whatever", ConfigType.STRING, "", ""),
    ConfigKey("no.such.key", ConfigType.STRING, "", ""),
]


@pytest.mark.parametrize("seed", range(4))
def test_any_settings_leave_a_directory_that_starts(tmp_path: Path, seed: int) -> None:
    print(f"seed {seed}")
    random_ = random.Random(seed)
    accepted = refused = 0
    with Broker(tmp_path / "data", config=TIERING) as broker, Wire(broker.bootstrap_servers) as wire:
        _make_topics(wire)
    for _ in range(5):
        with Broker(tmp_path / "data", config=TIERING) as broker, Wire(broker.bootstrap_servers) as wire:
            assert not any(
                broker.services.topics.in_force(topic).problem for topic in broker.services.metadata.topics()
            )
            for _ in range(40):
                if random_.random() < 0.5:
                    type_, name = BROKER, random_.choice(("", "1"))
                    parts = _changes(random_, _BROKER_KEYS + _UNKNOWN)
                else:
                    type_, name = TOPIC, random_.choice((*TOPICS, "__remote_log_metadata"))
                    parts = _changes(random_, _TOPIC_KEYS)
                before = _everything(broker)
                validate_only = random_.random() < 0.1
                if random_.random() < 0.15:
                    values = {part: value or "" for part, _, value in parts}
                    answer = replace_configs(wire, type_, name, validate_only=validate_only, **values)
                else:
                    answer = alter(wire, type_, name, *parts, validate_only=validate_only)
                accepted += answer.error_code == 0
                refused += answer.error_code != 0
                assert answer.error_code in (0, INVALID_CONFIG, INVALID_REQUEST), (parts, answer)
                if answer.error_code or validate_only:
                    assert _everything(broker) == before, (parts, answer)
    assert accepted > 20
    assert refused > 20


@pytest.mark.parametrize("seed", range(2))
def test_any_records_in_the_brokers_own_topics_leave_a_directory_that_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    """Commits and transactional ids under odd names, and then records that are nearly such ones, or none at all."""
    print(f"seed {seed}")
    caplog.set_level(logging.CRITICAL)
    random_ = random.Random(seed)
    few = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
    with (
        Broker(tmp_path / "data", config={**TIERING, **few}) as broker,
        Wire(broker.bootstrap_servers) as wire,
    ):
        create(wire, "t", remote_storage_enable="true")
        for owner in ("a", "\x00", "é" * 3000, "__consumer_offsets"):
            for key_type in (0, 1):
                wire.call(ApiKey.FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=[owner])
            commit = {
                "partition_index": 0,
                "committed_offset": -(2**63),
                "committed_metadata": "\x00" * 100,
                "committed_leader_epoch": -5,
            }
            wire.call(
                ApiKey.OFFSET_COMMIT,
                7,
                group_id=owner,
                generation_id_or_member_epoch=-1,
                member_id="",
                topics=[{"name": "t", "partitions": [commit]}],
            )
            wire.call(ApiKey.INIT_PRODUCER_ID, 2, transactional_id=owner, transaction_timeout=1000)
    for _ in range(3):
        with Broker(tmp_path / "data", config={**TIERING, **few}) as broker:
            for topic in ("__consumer_offsets", "__transaction_state", "__remote_log_metadata"):
                (partition,) = broker.services.logs.partitions(topic)
                known = [(key, stored.value or b"") for key, stored in read_contents(partition).latest.items()]
                partition.append(build_batch([_nearly(random_, at, known) for at in range(100)]))


def _nearly(random_: random.Random, offset: int, known: list[tuple[bytes, bytes]]) -> Record:
    """A record like one of `known` with bytes of it changed or cut off, or one of random bytes."""
    if not known or random_.random() < 0.3:
        return Record(offset, 1000, random_.randbytes(random_.randrange(30)), random_.randbytes(random_.randrange(60)))
    parts = []
    for part in random_.choice(known):
        damaged = bytearray(part)
        for _ in range(random_.randrange(3) if damaged else 0):
            damaged[random_.randrange(len(damaged))] = random_.randrange(256)
        parts.append(bytes(damaged[: random_.randrange(len(damaged) + 1)] if random_.random() < 0.3 else damaged))
    return Record(offset, 1000, parts[0], parts[1])


def _everything(broker: Broker) -> object:
    store = broker.services.metadata
    return (
        store.broker_configs(None),
        store.broker_configs(1),
        {topic.name: dict(topic.configs) for topic in store.topics()},
    )
