"""KIP-1333, test plan: metadata version gating.

Segments past 2 GiB are for those who asked for them, and then for good.
"""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.broker.admin import alter, create, described, replace_configs, update_level
from tests.broker.admin_cases import BROKER, DELETE, SET, TOPIC
from tests.broker.feature_cases import CASES, OWN_REASON, finalized, run
from tests.golden.features.make import GOLDEN, ask_kafka
from tests.support.reference_kafka import require_reference_kafka
from tests.support.wire import Wire

from stratalog.broker.server.server import Broker
from stratalog.config.other_features import OTHER_FEATURES
from stratalog.config.topic import LogConfig
from stratalog.errors import DataDirError, InvalidConfigError, KafkaStorageError
from stratalog.wire.api_keys import ApiKey

INVALID_CONFIG, INVALID_REQUEST, INVALID_UPDATE_VERSION = 40, 42, 95
GIB = 2**30
RANGE = "Value must be between 1048576 and 2147483647 while metadata.version is below 4.4-IV1 (level 32)"
LIFT = "stratalog features upgrade --release-version 4.4"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path) as broker:
        yield broker


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with Broker(data_dir=tmp_path_factory.mktemp("answers")) as broker:
        found: dict[str, Any] = json.loads(json.dumps(run(broker.bootstrap_servers)))
        return found


# --- UpdateFeatures as Kafka answers it -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_an_update_is_answered_as_by_kafka(answers: dict[str, Any], name: str) -> None:
    code, message, results, level = json.loads(GOLDEN.read_text())[name]
    if message and " downgrade from " in message and not message.partition(" to ")[2].startswith("32"):
        message += OWN_REASON
    assert answers[name] == [code, message, results, level]


@pytest.mark.interop
def test_the_golden_is_what_kafka_answers_today(tmp_path: Path) -> None:
    require_reference_kafka()
    assert ask_kafka(tmp_path) == json.loads(GOLDEN.read_text())


def test_before_large_segments_up_and_down_are_free(wire: Wire) -> None:
    for level in (29, 7, 23, 31):
        assert update_level(wire, level, 2 if level in (29, 7) else 1).error_code == 0
        assert finalized(wire)[0] == level


def test_a_downgrade_below_them_is_refused_with_the_reason(broker: Broker, wire: Wire) -> None:
    assert update_level(wire, 32).error_code == 0
    for kind in (2, 3):
        refused = update_level(wire, 31, kind)
        assert refused.error_code == INVALID_UPDATE_VERSION
        assert refused.error_message.endswith(OWN_REASON)
    assert broker.services.metadata.metadata_version == 32


def test_supported_and_finalized_levels_are_reported_with_an_epoch_that_grows(tmp_path: Path) -> None:
    epochs = []
    with Broker(data_dir=tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        reported = wire.call(ApiKey.API_VERSIONS, 4, client_software_name="w", client_software_version="1")
        supported = {f.name: (f.min_version, f.max_version) for f in reported.supported_features}
        assert supported.pop("metadata.version") == (7, 33)
        assert supported == {name: (0, highest) for name, highest in OTHER_FEATURES.items()}
        epochs.append(finalized(wire))
        update_level(wire, 31)  # no change
        update_level(wire, 32, validate_only=True)
        assert finalized(wire) == epochs[0]
        for level, kind in ((30, 2), (31, 1), (32, 1)):
            update_level(wire, level, kind)
            epochs.append(finalized(wire))
    with Broker(data_dir=tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        assert finalized(wire) == epochs[-1]
    assert [level for level, _ in epochs] == [31, 30, 31, 32]
    assert len({epoch for _, epoch in epochs}) == 4
    assert [epoch for _, epoch in epochs] == sorted(epoch for _, epoch in epochs)


def test_other_features_of_kafka_are_kept_at_their_level(tmp_path: Path) -> None:
    """Kafka's tools finalize all features of a release in one request."""
    with Broker(data_dir=tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        levels = {"metadata.version": 33, "group.version": 1, "transaction.version": 1, "share.version": 2}
        updates = [
            {
                "feature": name,
                "max_version_level": level,
                "upgrade_type": 2 if name == "transaction.version" else 1,
            }
            for name, level in levels.items()
        ]
        bad = {"feature": "streams.version", "max_version_level": 2, "upgrade_type": 1}
        refused = wire.call(ApiKey.UPDATE_FEATURES, 2, timeout=1000, feature_updates=[*updates, bad])
        assert refused.error_code == INVALID_UPDATE_VERSION
        assert "Local controller 1 only supports versions 0-1" in refused.error_message
        new = {"group.version": 1, "share.version": 2, "streams.version": 1, "transaction.version": 2}
        assert broker.services.metadata.features.others == new
        answer = wire.call(ApiKey.UPDATE_FEATURES, 2, timeout=1000, feature_updates=updates)
        assert answer.error_code == 0
        down = {"feature": "group.version", "max_version_level": 0, "upgrade_type": 2}
        assert wire.call(ApiKey.UPDATE_FEATURES, 2, timeout=1000, feature_updates=[down]).error_code == 0
    del levels["group.version"]
    levels["streams.version"] = 1
    with Broker(data_dir=tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        reported = wire.call(ApiKey.API_VERSIONS, 4, client_software_name="w", client_software_version="1")
        assert {f.name: f.max_version_level for f in reported.finalized_features} == levels
        assert reported.finalized_features_epoch == 2


# --- the first level --------------------------------------------------------------------------------------------------


def test_a_new_directory_can_start_with_large_segments(tmp_path: Path) -> None:
    config = {"stratalog.initial.metadata.version": 32, "log.segment.bytes": 4 * GIB}
    with Broker(data_dir=tmp_path, config=config) as broker, Wire(broker.bootstrap_servers) as wire:
        assert finalized(wire)[0] == 32
        create(wire, "t")
        assert described(wire, TOPIC, "t")["segment.bytes"].value == str(4 * GIB)
        partition = broker.services.partition("t", 0)
        assert partition is not None
        assert partition.log.config.use_large_index_format


def test_a_directory_keeps_its_level_and_a_start_with_a_higher_one_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(data_dir=tmp_path):
        pass
    with Broker(data_dir=tmp_path, config={"stratalog.initial.metadata.version": 32}) as broker:
        assert broker.services.metadata.metadata_version == 31
    (warning,) = [text for text in caplog.messages if "stratalog.initial.metadata.version" in text]
    assert f"{tmp_path} keeps its level 31 (4.4-IV0)" in warning
    assert "features upgrade --feature metadata.version=32" in warning


@pytest.mark.parametrize("level", ["6", "34", "latest"])
def test_a_first_level_that_is_not_supported_leaves_nothing_behind(tmp_path: Path, level: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"stratalog\.initial\.metadata\.version"):
        Broker(data_dir=tmp_path / "new", config={"stratalog.initial.metadata.version": level})
    assert not (tmp_path / "new").exists()


def test_a_store_at_a_level_of_the_future_is_refused(tmp_path: Path) -> None:
    import sqlite3

    with Broker(data_dir=tmp_path):
        pass
    with sqlite3.connect(tmp_path / "stratalog.sqlite") as db:
        db.execute("UPDATE meta SET value = '34' WHERE key = 'metadata.version'")
    with pytest.raises(DataDirError, match=r"at metadata\.version 34, this stratalog supports 7 to 33"):
        Broker(data_dir=tmp_path)


# --- the range of segment.bytes ---------------------------------------------------------------------------------------


def test_a_server_properties_with_too_large_segments_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        Broker(data_dir=tmp_path / "new", config={"log.segment.bytes": 2**31})
    assert RANGE in str(caught.value)
    assert LIFT in str(caught.value)
    assert "stratalog.initial.metadata.version=32" in str(caught.value)
    assert not (tmp_path / "new").exists()
    with Broker(data_dir=tmp_path / "old"):
        pass
    before = {path: path.read_bytes() for path in (tmp_path / "old").iterdir() if path.is_file()}
    with pytest.raises(InvalidConfigError, match=r"log\.segment\.bytes: .* Start without it, upgrade"):
        Broker(data_dir=tmp_path / "old", config={"log.segment.bytes": 2**31})
    assert before == {path: path.read_bytes() for path in (tmp_path / "old").iterdir() if path.is_file()}


def attempts(wire: Wire, size: int, *, validate_only: bool = False) -> list[Any]:
    """Every way to set a segment size: three on a topic, two on brokers."""
    text = str(size)
    return [
        create(wire, f"new-{size}", segment_bytes=text, validate_only=validate_only),
        alter(wire, TOPIC, "t", ("segment.bytes", SET, text), validate_only=validate_only),
        replace_configs(wire, TOPIC, "t", segment_bytes=text, validate_only=validate_only),
        alter(wire, BROKER, "1", ("log.segment.bytes", SET, text), validate_only=validate_only),
        alter(wire, BROKER, "", ("log.segment.bytes", SET, text), validate_only=validate_only),
    ]


@pytest.mark.parametrize("validate_only", [False, True])
def test_sizes_past_the_range_in_force_are_refused_by_every_api(wire: Wire, validate_only: bool) -> None:
    create(wire, "t")
    for size in (2**31, 2**63 - 1):
        for answer in attempts(wire, size, validate_only=validate_only):
            assert answer.error_code == INVALID_CONFIG
            assert f"Invalid value {size} for configuration" in answer.error_message
            assert RANGE in answer.error_message
            assert LIFT in answer.error_message
    assert described(wire, TOPIC, "t")["segment.bytes"].value == str(GIB)


def test_the_last_size_of_the_old_range_and_the_ends_of_the_new_one_are_allowed(wire: Wire) -> None:
    create(wire, "t")
    assert [int(answer.error_code) for answer in attempts(wire, 2**31 - 1)] == [0] * 5
    assert update_level(wire, 32).error_code == 0
    for size in (2**31, 2**63 - 1, 2**20):
        assert [int(answer.error_code) for answer in attempts(wire, size)] == [0] * 5
        assert described(wire, TOPIC, "t")["segment.bytes"].value == str(size)
        assert described(wire, BROKER, "1")["log.segment.bytes"].value == str(size)
    # As Kafka tells topics and brokers apart.
    for size, why in ((2**63, "Not a number of type LONG"), (2**20 - 1, "Value must be at least 1048576")):
        found = attempts(wire, size)
        assert [int(answer.error_code) for answer in found] == [INVALID_CONFIG] * 3 + [INVALID_REQUEST] * 2
        assert all(why in answer.error_message for answer in found)


def test_sizes_are_described_as_longs(wire: Wire) -> None:
    create(wire, "t")
    assert described(wire, TOPIC, "t")["segment.bytes"].config_type == 5
    assert described(wire, BROKER, "1")["log.segment.bytes"].config_type == 5


def test_an_index_that_is_too_small_for_the_segment_is_warned_of_with_the_size_it_needs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    config = {"stratalog.initial.metadata.version": 32}
    with Broker(data_dir=tmp_path, config=config) as broker, Wire(broker.bootstrap_servers) as wire:
        create(wire, "t", segment_bytes=str(8 * GIB))
        (warning,) = [text for text in caplog.messages if "segment.index.bytes" in text]
        assert warning.startswith("Topic t has segment.index.bytes (10485760) that is too small")
        assert warning.endswith("should be at least 25165824.")
        caplog.clear()
        alter(wire, TOPIC, "t", ("segment.index.bytes", SET, "25165824"))
        assert not [text for text in caplog.messages if "too small" in text]
        alter(wire, TOPIC, "t", ("segment.index.bytes", DELETE, None))
        alter(wire, BROKER, "", ("log.segment.bytes", SET, str(8 * GIB)))
        assert [text.split(" that is")[0] for text in caplog.messages if "too small" in text] == [
            "Topic t has segment.index.bytes (10485760)",
            "The broker has log.index.size.max.bytes (10485760)",
        ]
    caplog.clear()
    with Broker(data_dir=tmp_path):
        assert len([text for text in caplog.messages if "too small" in text]) == 2


# --- in force without a restart ---------------------------------------------------------------------------------------


def produce(broker: Broker, topic: str, numbers: range, size: int = 10) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 1, "batch.size": 16_384})
    for number in numbers:
        producer.produce(topic, key=str(number).encode(), value=b"x" * size)
    assert producer.flush(60) == 0


def consume(broker: Broker, topic: str, count: int) -> list[int]:
    """The keys of `count` records from the beginning on."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    try:
        while len(found) < count and (messages := consumer.consume(count - len(found), timeout=30)):
            found += [int(message.key() or b"") for message in messages if message.error() is None]
    finally:
        consumer.close()
    return found


def test_dynamic_segment_size_1_gb_to_4_gb_to_1_gb_live(broker: Broker, wire: Wire) -> None:
    """The document's live end-to-end run: 3000 records at 1 GB, 1000 at 4 GB, 500 at 1 GB, all of them there each
    time."""
    create(wire, "t", segment_bytes=str(GIB))
    produce(broker, "t", range(3000))
    assert consume(broker, "t", 3000) == list(range(3000))

    refused = alter(wire, TOPIC, "t", ("segment.bytes", SET, str(4 * GIB)))
    assert refused.error_code == INVALID_CONFIG
    assert update_level(wire, 32).error_code == 0
    assert alter(wire, TOPIC, "t", ("segment.bytes", SET, str(4 * GIB))).error_code == 0
    produce(broker, "t", range(3000, 4000))
    assert consume(broker, "t", 4000) == list(range(4000))

    assert alter(wire, TOPIC, "t", ("segment.bytes", SET, str(GIB))).error_code == 0
    produce(broker, "t", range(4000, 4500))
    assert consume(broker, "t", 4500) == list(range(4500))


def test_a_topic_that_cannot_follow_does_not_hold_up_the_others(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b", "c"):
        create(wire, name)
    update_config = broker.services.logs.update_config

    def failing(topic: str, config: LogConfig) -> None:
        if topic == "b":
            raise KafkaStorageError("the disk of b")
        update_config(topic, config)

    monkeypatch.setattr(broker.services.logs, "update_config", failing)
    assert update_level(wire, 32).error_code == 0
    large = [partition.log.config.use_large_index_format for partition in broker.services.logs.partitions()]
    assert large == [True, False, True]
    assert "Topic b keeps its previous configuration" in caplog.text


def index_entry_sizes(log: Path) -> set[int]:
    """Which entry sizes make every entry of the segment's index name a batch's last offset at that batch's position."""
    data, index, base = log.read_bytes(), log.with_suffix(".index").read_bytes(), int(log.stem)
    batches, position = set(), 0
    while position < len(data):
        base_offset, length = struct.unpack_from(">qi", data, position)
        (last_delta,) = struct.unpack_from(">i", data, position + 23)
        batches.add((base_offset + last_delta - base, position))
        position += 12 + length
    assert index
    return {
        size
        for size, layout in ((8, ">ii"), (12, ">iq"))
        if len(index) % size == 0 and set(struct.iter_unpack(layout, index)) <= batches
    }


def test_segments_that_begin_after_the_upgrade_have_large_indexes_and_older_ones_stay_as_they_are(
    tmp_path: Path,
) -> None:
    with Broker(data_dir=tmp_path) as broker, Wire(broker.bootstrap_servers) as wire:
        create(wire, "t", segment_bytes=str(2**20))
        produce(broker, "t", range(2500), size=1000)
        old = sorted((tmp_path / "t-0").glob("*.log"))
        update_level(wire, 32)
        produce(broker, "t", range(2500, 5000), size=1000)
        assert consume(broker, "t", 5000) == list(range(5000))
    with Broker(data_dir=tmp_path) as broker:
        produce(broker, "t", range(5000, 5010))
        assert consume(broker, "t", 5010) == list(range(5010))
    new = sorted(set((tmp_path / "t-0").glob("*.log")) - set(old))
    assert len(old) > 1
    assert len(new) > 1
    assert [index_entry_sizes(log) for log in old] == [{8}] * len(old)
    assert [index_entry_sizes(log) for log in new] == [{12}] * len(new)
