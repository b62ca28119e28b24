"""`stratalog top -b`: what every Kafka broker tells of itself is shown, ours and Apache Kafka's, without `--web`."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.cli.admin_commands import CommandLine
from tests.support.waiting import wait_until

from stratalog.broker.server.server import Broker
from stratalog.cli.main import run
from stratalog.cli.top import showing
from stratalog.cli.top.kafka_source import KafkaSource
from stratalog.cli.top.screen import TopView, lines_of
from stratalog.cli.top.snapshot import TopOrder, TopSnapshot
from stratalog.cli.top.watching import BrokerWatch
from stratalog.testing.broker import BrokerUnderTest
from stratalog.testing.clock import ManualClock

Captured = pytest.CaptureFixture[str]


def produced(address: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": address})
    for number in range(count):
        producer.produce(topic, f"value {number}", partition=0)
    assert producer.flush(60) == 0


def topic_of(snapshot: TopSnapshot, name: str) -> dict[str, object]:
    return dict(next(each for each in snapshot.topics if each["name"] == name))


def text_of(snapshot: TopSnapshot, width: int = 100) -> list[str]:
    view = TopView("h:1", TopOrder.IN, 1_700_000_000_000, snapshot)
    return [line.plain.rstrip() for line in lines_of(view, width, None)]


def test_offsets_sizes_groups_and_rates_are_those_of_the_broker(address: str, any_cli: CommandLine, topic: str) -> None:
    clock, group = ManualClock(), f"g-{uuid4().hex[:8]}"
    with closing(KafkaSource(address, None, clock)) as source:
        produced(address, topic, 20)
        consumer = Consumer({"bootstrap.servers": address, "group.id": group})
        consumer.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)
        consumer.close()
        first = source.look(TopOrder.IN)
        assert (first.rates, topic_of(first, topic)["recordsInRate"]) == ((), None)
        produced(address, topic, 10)
        clock.advance(2000)
        second = source.look(TopOrder.IN)
    row = topic_of(second, topic)
    assert second.topics[0]["name"] == topic
    assert (row["records"], row["partitions"], row["recordsInRate"]) == (30, 3, 5.0)
    described = json.loads(any_cli.good("log-dirs", "describe", "--topic", topic, "--json").out)
    parts = [part for each in described["brokers"][0]["logDirs"] for part in each["partitions"]]
    assert row["localBytes"] == sum(part["size"] for part in parts)
    assert 0 < float(str(row["bytesInRate"])) < int(str(row["localBytes"]))
    assert second.rates[-1]["recordsIn"] >= 5.0
    (lagging,) = [each for each in second.groups if each["id"] == group]
    assert (lagging["lag"], lagging["topics"], lagging["state"]) == (25, [topic], "Empty")
    assert (second.broker["nodeId"], second.broker["brokers"], second.broker["clusterId"] != "") == (None, 1, True)
    assert [disk["offline"] for disk in second.disks] == [None] * len(second.disks)
    assert any(disk["logBytes"] for disk in second.disks)
    assert (second.tier, second.requests, second.attention) == (None, (), ())
    for width in (1, 20, 60, 250):
        assert max(map(len, text_of(second, width))) <= width
    lines = text_of(second)
    assert f"1 broker at {address}" in lines[0]
    (head,) = [line for line in lines if line.startswith("TOPIC")]
    assert "OUT/S" not in head


def test_json_has_the_same_fields_and_null_for_what_no_broker_tells(
    address: str, any_cli: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(showing, "_TICK_S", 0.05)
    reported = any_cli.good("top", "--once", "--json", "--sort", "name").json
    assert reported["bootstrapServer"] == address
    assert reported["rates"].keys() == {"atMs", "bytesIn", "recordsIn"}
    names = [each["name"] for each in reported["topics"]]
    assert topic in names
    assert names == sorted(names)
    assert not [name for name in names if name.startswith("__")]
    assert all(each["bytesOutRate"] is None for each in reported["topics"])


def test_a_tier_that_fails_needs_attention() -> None:
    seen: TopSnapshot | None
    config = {"remote.log.storage.system.enable": "true", "remote.log.manager.task.interval.ms": "100"}
    with BrokerUnderTest(config) as broker:
        broker.create_topic("orders", 1, {"remote.storage.enable": "true", "segment.bytes": "1048576"})
        broker.faults.store_down()
        for _ in range(3):
            producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
            producer.produce("orders", bytes(900_000))
            assert producer.flush(60) == 0
        with closing(KafkaSource(broker.bootstrap_servers, None)) as source:
            seen = wait_until(
                lambda: next((each for each in [source.look(TopOrder.UPLOAD)] if each.attention), None), "the failure"
            )
    assert seen is not None
    assert seen.attention[0]["title"] == "The remote tier fails for 1 partition"
    assert seen.tier is not None
    assert [(row["topic"], row["isFailing"]) for row in seen.tier["rows"]] == [("orders", True)]
    assert topic_of(seen, "orders")["uploadBytes"] == seen.numbers["uploadBytes"] > 0
    assert [line for line in text_of(seen) if line.startswith("orders-0")]


def test_a_directory_that_has_failed_and_its_partitions_are_shown(tmp_path: Path) -> None:
    names = [tmp_path / "a", tmp_path / "b"]
    with Broker(config={"log.dirs": ",".join(map(str, names))}) as broker:
        broker.services.topics.create("t", 4)
        logs = broker.services.logs
        failed = logs.partitions("t")[0].log.directory.parent
        logs.dirs.fail(failed, "Input/output error")
        logs.put_offline(failed)
        with closing(KafkaSource(broker.bootstrap_servers, None)) as source:
            seen = source.look(TopOrder.IN)
    assert {disk["path"]: disk["offline"] for disk in seen.disks}[str(failed)] == "KAFKA_STORAGE_ERROR"
    assert [line for line in text_of(seen) if line == f"disk {failed}: offline"]


def test_a_broker_that_goes_is_said_so_and_seen_again_when_it_is_back(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    watch = BrokerWatch(KafkaSource(address, None), TopOrder.IN, 0.05, lambda: None)
    watch.start()
    try:
        wait_until(lambda: watch.state.problem, "that nothing answers")
        for _ in range(2):
            with Broker(data_dir=tmp_path, listen=address) as broker:
                if not broker.services.logs.partitions("t"):
                    broker.create_topic("t")
                wait_until(
                    lambda: watch.state.problem is None and watch.state.snapshot and watch.state.snapshot.topics,
                    "the broker",
                )
            wait_until(lambda: watch.state.problem, "its end")
            assert watch.state.fatal is None
    finally:
        watch.close()
        wait_until(lambda: "stratalog-top" not in [each.name for each in threading.enumerate()], "the last look")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--web", "h:1", "-b", "h:2"), "give one of --web and --bootstrap-server"),
        (("-b", "127.0.0.1:port"), "--bootstrap-server"),
        (("-b", "127.0.0.1:1"), "127.0.0.1:1"),
        (("-b", "h:1", "--command-config", "/nowhere"), "--command-config /nowhere"),
    ],
)
def test_wrong_arguments_are_said(capsys: Captured, arguments: tuple[str, ...], said: str) -> None:
    assert run(["top", "--once", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_the_usual_web_address_without_an_answer_says_what_else_there_is(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("STRATALOG_WEB", "STRATALOG_BOOTSTRAP_SERVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("stratalog.cli.top.command._WEB", "127.0.0.1:1")
    assert run(["top", "--once"]) == 2
    assert "are shown with --bootstrap-server HOST:PORT" in capsys.readouterr().err
    monkeypatch.setenv("STRATALOG_BOOTSTRAP_SERVER", "127.0.0.2:1")
    assert run(["top", "--once"]) == 2
    assert "127.0.0.2:1" in capsys.readouterr().err
