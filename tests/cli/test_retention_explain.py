"""`stratalog retention explain`: offline, live, with other settings; what it says, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.spark.partitions import T0, Partition, steady

from stratalog.broker.metadata.store import MetadataStore
from stratalog.broker.server.server import Broker
from stratalog.cli.main import run

HOUR_MS = 3_600_000


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Three segments of `orders`, an hour of records each; the topic keeps a day."""
    partition = Partition(tmp_path / "data")
    for hour in range(3):
        partition.segment(steady(12, start=T0 + hour * HOUR_MS, step_ms=HOUR_MS // 60))
    store = MetadataStore.open(tmp_path / "data")
    store.create_topic("orders", 1, {"retention.ms": str(24 * HOUR_MS)}, created_ms=T0, topic_id=partition.topic_id)
    store.close()
    return tmp_path / "data"


def explain(*arguments: str) -> int:
    return run(["retention", "explain", "orders", *arguments])


def reported(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert explain(*arguments, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_offline_every_segment_has_its_reason_and_its_time(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = T0 + 25 * HOUR_MS
    found = reported(capsys, "--data-dir", str(data_dir), "--at", str(at))
    (partition,) = found["partitions"]
    first, second, active = partition["segments"]
    newest = T0 + HOUR_MS - HOUR_MS // 60
    assert (first["rule"], first["goes"], first["kept_by"]) == ("retention time", at, [])
    assert first["newest_record"] == newest
    assert first["files_gone_by"] == at + 300_000 + 60_000
    assert (second["goes"], second["kept_by"]) == (newest + 25 * HOUR_MS + 1, ["newest-timestamp"])
    assert active["kept_by"] == ["newest-timestamp", "active"]
    assert partition["due_now_bytes"] == first["bytes"]
    assert found["config"]["retention.ms"] == 24 * HOUR_MS


def test_the_text_teaches_what_keeps_a_record_beyond_its_time(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain("--data-dir", str(data_dir), "--at", str(T0 + 24 * HOUR_MS)) == 0
    out = capsys.readouterr().out
    assert "retention.ms=86400000 (1 d)" in out
    assert "a segment is deleted as a whole" in out
    assert "55 min older" in out
    assert "It is the active segment" in out
    assert "retention.ms is the least time that a record is kept" in out


def test_what_if_tells_what_would_go_and_what_goes_as_it_is(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = str(T0 + 4 * HOUR_MS)
    found = reported(capsys, "--data-dir", str(data_dir), "--at", at, "--what-if", f"retention.ms={HOUR_MS}")
    (partition,) = found["partitions"]
    assert found["what_if"] == {"retention.ms": str(HOUR_MS)}
    assert partition["due_now_bytes_as_it_is"] == 0
    assert partition["due_now_bytes"] == sum(each["bytes"] for each in partition["segments"])
    assert explain("--data-dir", str(data_dir), "--at", at, "--what-if", "retention.bytes=1") == 0
    assert "with the current settings, 0 B are due now" in capsys.readouterr().out


def test_both_tiers_are_reported_and_what_is_not_copied_waits(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["remote.storage.enable=true", f"local.retention.ms={HOUR_MS}"]
    options = [text for setting in settings for text in ("--what-if", setting)]
    found = reported(capsys, "--data-dir", str(data_dir), "--at", str(T0 + 24 * HOUR_MS), *options)
    (partition,) = found["partitions"]
    assert partition["segments"][0]["kept_by"] == ["not-copied"]
    assert "only after its copy is finished" in partition["segments"][0]["explanation"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "use --data-dir DIR, --bootstrap-server H:P, or both"),
        (["--data-dir", "/nowhere"], "no such directory"),
        (["--data-dir", "{}", "--what-if", "retention.ms"], "expected KEY=VALUE"),
        (["--data-dir", "{}", "--what-if", "retention.ms=soon"], "retention.ms"),
        (["--data-dir", "{}", "--what-if", "retention.hours=1"], "retention.hours"),
        (["--data-dir", "{}", "--at", "tomorrow"], "--at tomorrow"),
        (["--data-dir", "{}", "--partition", "7"], "no partition 7"),
    ],
)
def test_wrong_usage_is_one_line(
    data_dir: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    assert explain(*(text.format(data_dir) for text in arguments)) == 2
    errors = capsys.readouterr().err
    assert line in errors
    assert errors.count("\n") == 1


def test_settings_that_no_file_tells_are_named_as_guessed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Partition(tmp_path / "kafka").segment(steady(3))
    assert explain("--data-dir", str(tmp_path / "kafka")) == 0
    assert "Kafka's defaults are assumed" in capsys.readouterr().out


def test_live_settings_and_offsets_are_the_brokers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data_dir = tmp_path / "data"
    with Broker(data_dir=data_dir) as broker:
        client = {"bootstrap.servers": broker.bootstrap_servers}
        config = {"retention.ms": "1000", "segment.bytes": str(1 << 20)}
        admin = AdminClient(dict(client))
        admin.create_topics([NewTopic("orders", 1, config=config)])["orders"].result(30)
        producer = Producer(client)
        for number in range(3):
            producer.produce("orders", value=bytes(1000), timestamp=T0 + number)
        assert producer.flush(30) == 0
        alone = reported(capsys, "--bootstrap-server", broker.bootstrap_servers)
        both = reported(capsys, "--bootstrap-server", broker.bootstrap_servers, "--data-dir", str(data_dir))
        assert explain("--bootstrap-server", broker.bootstrap_servers) == 0
    assert alone["config"]["retention.ms"] == 1000
    (served,) = alone["served"]
    assert (served["high_watermark"], served["newest_record"]) == (3, T0 + 2)
    assert alone["partitions"] == []
    assert any("does not describe segments" in note for note in alone["notes"])
    (segment,) = both["partitions"][0]["segments"]
    assert (segment["base_offset"], segment["end_offset"], segment["rule"]) == (0, 2, "retention time")
    assert "is due now" in capsys.readouterr().out


def test_live_another_limit_of_the_size_changes_what_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for _ in range(3):
            producer.produce("orders", value=bytes(1000), timestamp=T0)
            assert producer.flush(30) == 0
        partition = broker.services.partition("orders", 0)
        assert partition is not None
        size = partition.log.size_bytes
        live = ("--bootstrap-server", broker.bootstrap_servers)
        said = {
            what_if: reported(capsys, *live, "--what-if", what_if)["served"][0]
            for what_if in ("retention.bytes=-1", "retention.bytes=1000", f"retention.bytes={size}")
        }
    assert {each["bytes"] for each in said.values()} == {size}
    without, small, whole = (each["explanation"] for each in said.values())
    assert without.endswith("retention.bytes is -1, so nothing is deleted by size")
    assert small.endswith(f"so up to {size - 1000} bytes of its oldest segments are due now by size")
    assert whole.endswith(f"retention.bytes is {size}, so nothing is deleted by size")
