"""`stratalog doctor`: what is wrong in each place, the most urgent first, and that the command it names mends it."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.cli.test_fsck import data
from tests.cli.test_tier import Tier, made, tier
from tests.support.waiting import wait_until

import stratalog
from stratalog.broker.metadata import STORE_FILE
from stratalog.cli.cluster.status import PartitionStatus
from stratalog.cli.doctor import brokers, places
from stratalog.cli.main import run
from stratalog.config import IgnoredSetting, LogConfig, ignored_settings
from stratalog.testing.broker import BrokerUnderTest

__all__ = ["data", "made", "tier"]

Captured = pytest.CaptureFixture[str]


def doctor(capture: Captured, *arguments: object) -> tuple[int, list[dict[str, Any]]]:
    """Return the exit code, and the findings."""
    capture.readouterr()
    status = run(["doctor", *map(str, arguments), "--json"])
    *findings, summary = map(json.loads, capture.readouterr().out.splitlines())
    assert summary["type"] == "summary"
    assert summary["errors"] == len([each for each in findings if each["severity"] == "error"])
    return status, findings


def test_what_is_in_order_is_one_line(
    capsys: Captured, tier: Tier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "sound"
    stratalog.Broker(data_dir=directory).close()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 50, 50))
    assert run(["doctor", "--data-dir", str(directory), "--remote", str(tier.bucket)]) == 0
    assert capsys.readouterr().out == f"{directory}, {tier.bucket}: nothing is wrong\n"


def test_a_torn_tail_is_mended_by_the_command_that_is_named(capsys: Captured, data: Path) -> None:
    status, findings = doctor(capsys, "--data-dir", data)
    (torn,) = [each for each in findings if each["kind"] == "torn-tail"]
    assert (status, torn["where"], torn["severity"]) == (1, str(data), "error")
    words = shlex.split(torn["mend"])
    assert words == ["stratalog", "fsck", str(data), "--repair"]
    assert run([*words[1:], "--yes"]) == 0
    assert [each for each in doctor(capsys, "--data-dir", data)[1] if each["kind"] == "torn-tail"] == []


def test_findings_are_a_table_with_where_and_mend(
    capsys: Captured, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1000, 990, 10))
    assert run(["doctor", "--data-dir", str(data)]) == 1
    header, *rows, summary = capsys.readouterr().out.splitlines()
    assert header.split() == ["SEVERITY", "WHERE", "FOUND", "MEND"]
    assert [row.split()[0] for row in rows] == ["error", "error"]
    assert "disk-full: 10 B of 1000 B are free" in rows[0]
    assert summary == f"{data}: 2 errors"


def test_a_directory_that_a_broker_has_open_is_a_note(capsys: Captured, tmp_path: Path) -> None:
    with stratalog.Broker(data_dir=tmp_path) as broker:
        status, findings = doctor(capsys, "--data-dir", tmp_path, "-b", broker.bootstrap_servers)
    assert [each["kind"] for each in findings if each["kind"] != "disk-full"] == ["in-use"]
    assert status == (1 if len(findings) > 1 else 0)


def test_a_failed_directory_of_a_broker_is_an_error(capsys: Captured, tmp_path: Path) -> None:
    names = [tmp_path / "a", tmp_path / "b"]
    config = {"log.dirs": ",".join(map(str, names))}
    with stratalog.Broker(config=config) as broker:
        shutil.rmtree(names[1])
        broker.services.logs.dirs.fail(names[1], "Input/output error")
        status, findings = doctor(capsys, "-b", broker.bootstrap_servers)
    (failed,) = [each for each in findings if each["kind"] == "failed-directory"]
    assert status == 1
    assert failed["where"].endswith(str(names[1]))
    assert f"stratalog fsck {names[1]}" in failed["mend"]


def test_a_broker_that_does_not_answer_is_an_error(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRATALOG_BOOTSTRAP_SERVER", "127.0.0.1:1")
    status, (found,) = doctor(capsys)
    assert (status, found["kind"], found["where"]) == (1, "unreachable", "127.0.0.1:1")


def test_what_is_wrong_with_a_bucket_is_said_by_kind(capsys: Captured, tier: Tier) -> None:
    tier.spoil()
    before = tier.content()
    status, findings = doctor(capsys, "--remote", tier.bucket)
    kinds = {each["kind"]: each for each in findings}
    assert status == 1
    assert findings[0]["severity"] == "error"
    assert "missing-object" in kinds
    assert all(each["mend"].startswith("stratalog tier ") for each in findings)
    assert tier.content() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no target: give"),
        (("--data-dir", "/nowhere"), "no such directory"),
        (("--data-dir", "/"), "is not a log directory"),
    ],
)
def test_what_cannot_be_looked_at_is_refused(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.delenv("STRATALOG_BOOTSTRAP_SERVER", raising=False)
    assert run(["doctor", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_what_cannot_be_read_is_said_and_hides_nothing_else(
    capsys: Captured, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock that cannot be opened is not taken for a broker, and a partition that is refused hides no directory."""
    with monkeypatch.context() as patched:

        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied", str(data / ".lock"))

        patched.setattr(places, "hold_all", refuse)
        status, findings = doctor(capsys, "--data-dir", data)
    assert status == 1
    assert [each["kind"] for each in findings if each["kind"] != "disk-full"] == ["unreadable"]


def test_a_failed_directory_is_reported_with_the_transactions_that_it_hides(capsys: Captured, tmp_path: Path) -> None:
    names = [tmp_path / "a", tmp_path / "b"]
    config = {"log.dirs": ",".join(map(str, names))}
    with stratalog.Broker(config=config) as broker:
        broker.services.topics.create("t", 4)
        logs = broker.services.logs
        failed = logs.partitions("t")[0].log.directory.parent
        logs.dirs.fail(failed, "Input/output error")
        logs.put_offline(failed)
        status, findings = doctor(capsys, "-b", broker.bootstrap_servers)
    assert status == 1
    assert "failed-directory" in {each["kind"] for each in findings}


# --- the remote tier --------------------------------------------------------------------------------------------------


TIERED = {"remote.log.storage.system.enable": "true", "remote.log.manager.task.interval.ms": "100"}


def test_uploads_that_fail_are_an_error_with_the_reason(capsys: Captured) -> None:
    with BrokerUnderTest(TIERED) as broker:
        tiered = {"remote.storage.enable": "true", "segment.bytes": "1048576"}
        broker.create_topic("orders", 1, tiered)
        broker.faults.store_down()
        with_records(broker, "orders")
        (failing,) = wait_until(
            lambda: [
                each for each in doctor(capsys, "-b", broker.bootstrap_servers)[1] if each["kind"] == "tier-failing"
            ],
            "the failure is told",
        )
    assert (failing["severity"], failing["where"]) == ("error", "broker 1")
    assert failing["found"].startswith("orders-0: copy has failed ")
    assert failing["mend"].startswith(f"stratalog tier status -b {broker.bootstrap_servers}")


def test_uploads_that_wait_are_a_warning_once_they_are_large(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    with BrokerUnderTest(TIERED) as broker:
        held = {"remote.storage.enable": "true", "segment.bytes": "1048576", "remote.copy.lag.ms": "3600000"}
        broker.create_topic("orders", 1, {**held, "local.retention.ms": "7200000"})
        with_records(broker, "orders")
        assert "tier-backlog" not in [each["kind"] for each in doctor(capsys, "-b", broker.bootstrap_servers)[1]]
        monkeypatch.setattr(brokers, "BACKLOG_BYTES", 1_000_000)
        found = doctor(capsys, "-b", broker.bootstrap_servers)[1]
    (backlog,) = [each for each in found if each["kind"] == "tier-backlog"]
    assert backlog["severity"] == "warning"
    assert "2 sealed segments wait to be uploaded, most of orders-0: " in backlog["found"]
    assert "remote.copy.lag.ms" in backlog["found"]


def with_records(broker: stratalog.Broker, topic: str) -> None:
    """Write two sealed segments of 1 MiB, and the active one."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.size": 100_000})
    for _ in range(30):
        producer.produce(topic, bytes(100_000))
    assert producer.flush(30) == 0


# --- replicas ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leader", "isr", "kind"),
    [
        (1, [1, 2, 3], None),
        (1, [3, 1, 2], None),
        (1, [1, 2], "under-replicated"),
        (1, [1], "under-min-isr"),
        (-1, [], "offline-partition"),
        (-1, [2], "offline-partition"),
    ],
)
def test_replicas_that_are_behind_count_by_what_they_cost(leader: int, isr: list[int], kind: str | None) -> None:
    state = PartitionStatus("t", 0, leader, [1, 2, 3], isr)
    assert [each.kind for each in brokers.replicas([state], {"t": 2}, "h:1")] == ([kind] if kind else [])


# --- the metadata of a broker -----------------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A directory with a topic."""
    with stratalog.Broker(data_dir=tmp_path / "kept") as broker:
        broker.create_topic("orders", 2)
    return tmp_path / "kept"


def metadata_findings(capture: Captured, path: Path) -> list[tuple[str, str]]:
    found = doctor(capture, "--data-dir", path)[1]
    return [(each["kind"], each["severity"]) for each in found if each["kind"].startswith("metadata")]


def test_metadata_that_is_sound_is_not_worth_a_word(capsys: Captured, kept: Path) -> None:
    assert metadata_findings(capsys, kept) == []


def test_metadata_that_cannot_be_read_is_an_error(capsys: Captured, kept: Path) -> None:
    store = kept / STORE_FILE
    data = bytearray(store.read_bytes())
    data[:100] = bytes(100)
    store.write_bytes(data)
    assert metadata_findings(capsys, kept) == [("metadata-unreadable", "error")]


def test_metadata_that_does_not_know_a_partition_is_a_warning(capsys: Captured, kept: Path) -> None:
    (kept / "orders-1").rename(kept / "orders-2")
    assert metadata_findings(capsys, kept) == [("metadata-unlike", "warning")]


# --- settings and Spark -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("log.retention.hours=1\n", None, ""),
        ("retension.ms=5\n", "setting-without-effect", "retension.ms"),
        ("stratalog.remote.url=s3://b/t\n", "setting-without-effect", "no effect while"),
        ("create.topic.policy.class.name=a.B\n", "setting-refused", "a policy for what clients ask for"),
        ("log.retention.hours=often\n", "setting-refused", "log.retention.hours"),
        ("listeners=PLAINTEXT://:99999\n", "setting-refused", "port from 0 to 65535"),
        ("listeners=PLAINTEXT://:0\nadvertised.listeners=PLAINTEXT://0.0.0.0:1\n", "setting-refused", "wildcard"),
        ("listeners=SSL://:0\nssl.keystore.location=/nowhere\n", "setting-refused", "ssl.keystore.location=/nowhere"),
        ("listeners=PLAINTEXT://:9092\n", None, ""),
        ("listeners=SASL_SSL://0.0.0.0:9093\nprocess.roles=controller\n", "setting-refused", "process.roles"),
    ],
)
def test_settings_are_looked_at_as_at_a_start(
    capsys: Captured, tmp_path: Path, text: str, kind: str | None, said: str
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(text)
    status, found = doctor(capsys, "--config", file)
    assert (status, [each["kind"] for each in found]) == ((1, [kind]) if kind else (0, []))
    assert all(each["where"] == str(file) and said in each["found"] for each in found)


def test_a_configuration_from_a_pipe_is_read(capsys: Captured, tmp_path: Path) -> None:
    """As a shell's `<(command)` hands it over."""
    reading, writing = os.pipe()
    os.write(writing, b"log.retention.hours=often\n")
    os.close(writing)
    status, (found,) = doctor(capsys, "--config", f"/dev/fd/{reading}")
    os.close(reading)
    assert (status, found["kind"]) == (1, "setting-refused")


def test_a_configuration_that_is_not_there_is_an_error(capsys: Captured, tmp_path: Path) -> None:
    status, (found,) = doctor(capsys, "--config", tmp_path / "none")
    assert (status, found["kind"], found["found"]) == (1, "unreadable", "No such file or directory")


def test_what_keeps_spark_from_starting_is_an_error(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its packages no session is begun."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyspark" else find(name))
    status, found = doctor(capsys, "--spark")
    (missing,) = [each for each in found if each["severity"] == "error"]
    assert (status, missing["where"], missing["found"]) == (1, "Spark on this machine", "pyspark is not installed")
    assert missing["mend"] == "pip install 'stratalog[spark]'"


# --- settings of topics -----------------------------------------------------------------------------------------------

IDLE = "topic-setting-without-effect"


def config_of(own: dict[str, str]) -> list[IgnoredSetting]:
    return list(ignored_settings(own, LogConfig.from_properties(own), is_ours_alone=True, has_tier=False))


@pytest.mark.parametrize(
    ("own", "idle"),
    [
        ({"retention.ms": "60000"}, []),
        ({"retention.ms": "60000", "cleanup.policy": "compact,delete"}, []),
        (
            {"retention.ms": "60000", "retention.bytes": "5", "cleanup.policy": "compact"},
            [
                "retention.bytes=5 has no effect: cleanup.policy=compact deletes nothing by age or size",
                "retention.ms=60000 has no effect: cleanup.policy=compact deletes nothing by age or size",
            ],
        ),
        ({"retention.ms": "-1", "cleanup.policy": "compact"}, []),
        (
            {"min.compaction.lag.ms": "5"},
            ["min.compaction.lag.ms=5 has no effect: cleanup.policy=delete compacts nothing"],
        ),
        ({"min.compaction.lag.ms": "5", "cleanup.policy": "compact"}, []),
        ({"min.compaction.lag.ms": "0"}, []),
        ({"local.retention.ms": "5"}, ["local.retention.ms=5 has no effect: remote.storage.enable is not true"]),
        ({"remote.log.delete.on.disable": "true"}, []),
        (
            {"message.timestamp.after.max.ms": "5", "message.timestamp.type": "LogAppendTime"},
            ["message.timestamp.after.max.ms=5 has no effect: message.timestamp.type=LogAppendTime sets times itself"],
        ),
        ({"message.timestamp.after.max.ms": "5"}, []),
        ({"compression.type": "zstd", "compression.zstd.level": "9"}, []),
        (
            {"compression.zstd.level": "9"},
            ["compression.zstd.level=9 has no effect: compression.type=producer does not compress with zstd here"],
        ),
    ],
)
def test_a_setting_without_effect_is_known_by_the_others(own: dict[str, str], idle: list[str]) -> None:
    found = config_of(own)
    assert [str(each) for each in found] == idle
    assert not any(each.is_surprising for each in found)


def test_a_setting_that_promises_what_is_not_kept_is_a_surprise() -> None:
    for own in ({"unclean.leader.election.enable": "true"}, {"remote.storage.enable": "true"}):
        assert [each.is_surprising for each in config_of(own)] == [True]


def test_settings_of_topics_without_effect_are_said_of_a_broker_and_of_its_directory(
    capsys: Captured, tmp_path: Path
) -> None:
    """The most urgent first; and the command that is named mends it."""
    with stratalog.Broker(data_dir=tmp_path) as broker:
        broker.create_topic("a", 1, {"cleanup.policy": "compact", "retention.ms": "5000", "retention.bytes": "7"})
        broker.create_topic("b", 1, {"unclean.leader.election.enable": "true"})
        broker.create_topic("c", 1, {"retention.ms": "5000"})
        status, said = doctor(capsys, "-b", broker.bootstrap_servers)
        reported = [(each["severity"], each["found"].split(":")[0]) for each in said if each["kind"] == IDLE]
        assert (status, reported) == (1, [("warning", "topic b"), ("note", "topic a")])
        note = next(each for each in said if each["severity"] == "note")
        words = shlex.split(note["mend"])
        assert words[:2] == ["stratalog", "configs"]
        offline = [each for each in doctor(capsys, "--data-dir", tmp_path)[1] if each["kind"] == IDLE]
        assert [each["found"] for each in offline] == [each["found"] for each in said if each["kind"] == IDLE]
        assert run(words[1:]) == 0
        left = [each["found"].split(":")[0] for each in doctor(capsys, "-b", broker.bootstrap_servers)[1]]
        assert [each for each in left if each.startswith("topic ")] == ["topic b"]


def test_a_topic_of_the_tier_whose_broker_starts_without_one_is_said(capsys: Captured, tmp_path: Path) -> None:
    data, file = tmp_path / "data", tmp_path / "server.properties"
    with stratalog.Broker(data_dir=data, config={"remote.log.storage.system.enable": "true"}) as broker:
        broker.create_topic("t", 1, {"remote.storage.enable": "true", "local.retention.ms": "1000"})
    file.write_text("remote.log.storage.system.enable=true\n")
    assert [each for each in doctor(capsys, "--data-dir", data, "--config", file)[1] if each["kind"] == IDLE] == []
    file.write_text("log.retention.hours=5\n")
    (said,) = [each for each in doctor(capsys, "--data-dir", data, "--config", file)[1] if each["kind"] == IDLE]
    assert said["severity"] == "warning"
    assert "remote.storage.enable=true has no effect: the broker has remote.log.storage" in said["found"]


def test_of_many_topics_the_first_are_named_and_the_others_counted(capsys: Captured, tmp_path: Path) -> None:
    with stratalog.Broker(data_dir=tmp_path) as broker:
        for number in range(25):
            broker.create_topic(f"t{number:02}", 1, {"local.retention.ms": "5"})
        found = [each for each in doctor(capsys, "-b", broker.bootstrap_servers)[1] if each["kind"] == IDLE]
    assert len(found) == 21
    assert found[-1]["found"] == "5 more topics with settings that have no effect"
