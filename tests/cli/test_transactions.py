"""`stratalog transactions` on a broker of ours and on Apache Kafka: open ones, their end, and what hangs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer
from tests.cli.admin_commands import CommandLine

from stratalog.records import Record, build_batch
from stratalog.wire import ApiKey
from stratalog.wire.client import Cluster, Coordinators


@pytest.fixture
def open_(any_cli: CommandLine, topic: str) -> Producer:
    """A producer with a transaction open in partition 0, under the topic's name."""
    producer = Producer({"bootstrap.servers": any_cli._bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    producer.flush()
    return producer


def test_open_transactions_are_listed_and_described(any_cli: CommandLine, topic: str, open_: Producer) -> None:
    found = [json.loads(line) for line in any_cli.good("transactions", "list", "--json").out.splitlines()]
    (mine,) = (each for each in found if each["transactionalId"] == topic)
    assert (mine["state"], mine["coordinator"]) == ("Ongoing", 1)
    out = any_cli.good("transactions", "list", "--state", "Ongoing", "--producer-id", str(mine["producerId"])).out
    assert out.splitlines()[1].split() == [topic, "1", str(mine["producerId"]), "Ongoing"]
    assert topic not in any_cli.good("transactions", "list", "--longer-than", "1h").out
    reported = any_cli.good("transactions", "describe", topic, "--json").json
    assert reported["partitions"] == [{"topic": topic, "partition": 0}]
    assert reported["startTimeMs"] > 1_600_000_000_000
    assert reported["producerId"] == mine["producerId"]
    assert f"{topic}-0" in any_cli.good("transactions", "describe", topic).out
    open_.commit_transaction()
    deadline = time.monotonic() + 30
    # Kafka answers the commit before its markers are written.
    while (done := any_cli.good("transactions", "describe", topic, "--json").json)["state"] == "PrepareCommit":
        assert time.monotonic() < deadline, done
        time.sleep(0.05)
    assert (done["state"], done["startTimeMs"], done["partitions"]) == ("CompleteCommit", None, [])
    assert "did you mean" in any_cli.refused("transactions", "describe", f"{topic}x")


def test_a_transaction_is_aborted_by_its_id_and_its_producer_fenced(
    any_cli: CommandLine, topic: str, open_: Producer
) -> None:
    assert any_cli.good("transactions", "abort", topic).out == f"{topic} was Ongoing; its producer is fenced\n"
    with pytest.raises(KafkaException):
        open_.commit_transaction()
    assert any_cli.good("consume", topic, "-e", "--isolation-level", "read_committed").out == ""


def test_nothing_hangs_while_a_coordinator_knows(any_cli: CommandLine, topic: str, open_: Producer) -> None:
    ran = any_cli("transactions", "find-hanging", "--topic", topic, "--max-transaction-timeout", "0", "--json")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    open_.abort_transaction()


@pytest.fixture
def unverified(any_cli: CommandLine) -> Iterator[None]:
    """The broker does not ask the coordinator whether it knows a transaction, where that can be switched off."""
    entity = ("--entity-type", "brokers", "--entity-default")
    any_cli("configs", "alter", *entity, "--add-config", "transaction.partition.verification.enable=false")
    yield
    any_cli("configs", "alter", *entity, "--delete-config", "transaction.partition.verification.enable")


@pytest.mark.usefixtures("unverified")
def test_a_transaction_that_hangs_is_found_and_aborted(any_cli: CommandLine, topic: str) -> None:
    with Cluster(any_cli._bootstrap_servers) as cluster:
        producer = Coordinators(cluster).init_producer(None, 60_000)
        record = Record(offset=0, timestamp_ms=1_700_000_000_000, key=None, value=b"x")
        batch = build_batch(
            [record], producer_id=producer.producer_id, producer_epoch=0, base_sequence=0, is_transactional=True
        )
        answer = cluster.leader(topic, 2).call(
            ApiKey.PRODUCE,
            (7, 11),
            transactional_id=topic,
            acks=-1,
            timeout=30_000,
            topic_data=[{"name": topic, "partition_data": [{"index": 2, "records": bytes(batch)}]}],
        )
    code = answer.responses[0].partition_responses[0].error_code
    if int(code):
        pytest.skip(f"the broker verifies every transaction, so that none can hang by this way: {code.name}")
    find = ("transactions", "find-hanging", "--topic", topic)
    ran = any_cli(*find, "--json")
    assert (ran.code, ran.err) == (1, "")
    assert (ran.json["partition"], ran.json["startOffset"], ran.json["producerId"]) == (2, 0, producer.producer_id)
    ran = any_cli("doctor", "--json")
    (reported,) = [each for each in map(json.loads, ran.out.splitlines()) if each.get("where") == f"{topic}-2"]
    assert (ran.code, reported["kind"], reported["severity"]) == (1, "hanging-transaction", "warning")
    at = ("--topic", topic, "--partition", "2")
    said = any_cli.refused("transactions", "abort", *at, "--start-offset", "7")
    assert said.endswith(f"open are 0 of producer {producer.producer_id}")
    any_cli.good("transactions", "abort", *at, "--start-offset", "0")
    assert any_cli.good(*find, "--json").out == ""


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("abort",), "give either ID, or --topic"),
        (("abort", "id", "--topic", "t"), "give either ID, or --topic"),
        (("abort", "--topic", "t", "--partition", "0"), "either --start-offset or --producer-id"),
        (("find-hanging", "--partition", "0"), "--partition needs --topic"),
        (("list", "--longer-than", "ever"), "--longer-than ever: expected a number and a unit"),
    ],
)
def test_what_is_missing_is_said(any_cli: CommandLine, args: tuple[str, ...], said: str) -> None:
    assert said in any_cli.refused("transactions", *args, code=2)
