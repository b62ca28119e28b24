"""Metrics that clients push (KIP-714): what they are asked for, what is refused, and where their values are found.

Numbers of subscriptions and error codes are those that Kafka 4.4.0 gave to the same requests.
"""

from __future__ import annotations

import contextlib
import struct
import subprocess
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import confluent_kafka
import pytest
from tests.broker.admin import alter
from tests.broker.admin_cases import CLIENT_METRICS, SET
from tests.support.reference_jars import SHORT_LIVED, TOOLS_JARS, classpath, java
from tests.support.reference_kafka import require_reference_kafka
from tests.support.wire import Wire

from stratalog.broker.metrics import METRICS
from stratalog.broker.server import Broker
from stratalog.broker.telemetry.pushed_values import LastPushes, PushedValue, read_pushed
from stratalog.errors import InvalidRecordError
from stratalog.records import Codec, compress
from stratalog.wire.api_keys import ApiKey

ID = UUID("12345678-9abc-def0-8234-56789abcdef1")
THROTTLED, INVALID, BAD_CODEC, BAD_RECORD, UNKNOWN, TOO_LARGE = 89, 42, 76, 87, 117, 118


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(data_dir=tmp_path_factory.mktemp("d"), config={"stratalog.client.metrics": "metrics"}) as broker:
        yield broker


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.bootstrap_servers) as wire:
        yield wire


def get(wire: Wire, instance_id: UUID) -> Any:
    return wire.call(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, client_instance_id=instance_id)


def push(wire: Wire, instance_id: UUID, number: int, data: bytes = b"", codec: int = 0, *, last: bool = False) -> int:
    return int(
        wire.call(
            ApiKey.PUSH_TELEMETRY,
            0,
            client_instance_id=instance_id,
            subscription_id=number,
            terminating=last,
            compression_type=codec,
            metrics=data,
        ).error_code
    )


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def pushed(name: str, value: float, **attributes: str) -> bytes:
    """MetricsData with one gauge."""
    point = b"".join(
        field(7, field(1, key.encode()) + field(2, field(1, text.encode()))) for key, text in attributes.items()
    )
    point += bytes([4 << 3 | 1]) + struct.pack("<d", value)
    metric = field(1, name.encode()) + field(5, field(1, point))
    return field(1, field(2, field(2, metric)))


def shown(broker: Broker) -> dict[tuple[str, ...], float]:
    (metric,) = (each for each in METRICS if each.name == "stratalog_client_metric")
    return {sample.labels: sample.value for sample in metric.read(broker.services)}


def test_a_client_without_subscription_is_asked_for_nothing_every_five_minutes(wire: Wire) -> None:
    answer = get(wire, UUID(int=77))
    assert (answer.subscription_id, answer.push_interval) == (-725132397, timedelta(minutes=5))
    assert (answer.requested_metrics, answer.telemetry_max_bytes, answer.delta_temporality) == ((), 1 << 20, True)
    assert answer.accepted_compression_types == (4, 3, 1, 2)
    again = get(wire, UUID(int=77))
    assert (again.error_code, again.client_instance_id, again.telemetry_max_bytes) == (THROTTLED, None, 0)
    assert get(wire, UUID(int=0)).client_instance_id.version == 4


def test_what_is_wrong_with_a_push_is_reported_as_by_kafka(wire: Wire) -> None:
    assert push(wire, UUID(int=0), 1) == push(wire, UUID(int=1), 1) == INVALID
    assert push(wire, UUID(int=90), 1, b"x") == UNKNOWN
    one, two, three, four = (UUID(int=number) for number in range(78, 82))
    number = {each: get(wire, each).subscription_id for each in (one, two, three, four)}
    assert push(wire, one, number[one], b"x", codec=9) == BAD_CODEC
    assert push(wire, one, number[one], b"x") == THROTTLED
    assert push(wire, two, number[two], b"x" * ((1 << 20) + 1)) == TOO_LARGE
    assert push(wire, three, number[three], b"x" * 20, codec=int(Codec.ZSTD)) == BAD_RECORD
    assert push(wire, four, number[four]) == 0
    assert push(wire, four, number[four], last=True) == 0
    assert push(wire, four, number[four], last=True) == INVALID


def test_a_subscription_is_for_the_clients_that_it_names_and_counts_at_once(broker: Broker, wire: Wire) -> None:
    assert get(wire, ID).error_code == 0
    changes = [
        ("interval.ms", SET, "1000"),
        ("match", SET, "client_id=w.*e,client_software_name=x"),
        ("metrics", SET, "*"),
    ]
    assert alter(wire, CLIENT_METRICS, "all", *changes).error_code == 0
    assert get(wire, ID).requested_metrics == (), "it has not told its software"
    wire.call(ApiKey.API_VERSIONS, 3, client_software_name="x", client_software_version="1")
    reported = get(wire, UUID(int=91))
    assert (reported.subscription_id, reported.push_interval) == (848016098, timedelta(seconds=1))
    assert reported.requested_metrics == ("*",)
    with Wire(broker.bootstrap_servers, client_id="another") as other:
        other.call(ApiKey.API_VERSIONS, 3, client_software_name="x", client_software_version="1")
        assert get(other, UUID(int=92)).requested_metrics == ()
    assert alter(wire, CLIENT_METRICS, "all", *[(name, 1, None) for name, _, _ in changes]).error_code == 0


def test_the_last_values_of_a_client_are_shown_until_its_connection_ends(broker: Broker, wire: Wire) -> None:
    with Wire(broker.bootstrap_servers, client_id="shown") as client:
        number = get(client, ID).subscription_id
        data = compress(Codec.ZSTD, pushed("a.rate", 2.5, topic="t"))
        assert push(client, ID, number, data, codec=int(Codec.ZSTD)) == 0
        assert shown(broker) == {("shown", "EjRWeJq83vCCNFZ4mrze8Q", "a.rate", "topic=t"): 2.5}
    while shown(broker):
        get(wire, UUID(int=77))  # until the broker has seen the end of the connection


def test_clients_are_reported_it_only_where_something_is_done_with_it(wire: Wire, tmp_path: Path) -> None:
    def reported(wire: Wire) -> set[int]:
        answer = wire.call(ApiKey.API_VERSIONS, 3, client_software_name="x", client_software_version="1")
        return {int(api.api_key) for api in answer.api_keys} & {71, 72}

    assert reported(wire) == {71, 72}
    with Broker(data_dir=tmp_path) as broker, Wire(broker.bootstrap_servers) as other:
        assert reported(other) == set()
        number = get(other, ID).subscription_id
        assert push(other, ID, number, pushed("a", 1.0)) == 0
        assert shown(broker) == {}


def test_librdkafka_pushes_as_it_is(broker: Broker, wire: Wire) -> None:
    changes = [
        ("interval.ms", SET, "100"),
        ("match", SET, "client_id=rd"),
        ("metrics", SET, "org.apache.kafka.producer."),
    ]
    assert alter(wire, CLIENT_METRICS, "rd", *changes).error_code == 0
    broker.create_topic("t", 1)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "rd"})
    found: set[tuple[str, ...]] = set()
    for _ in range(600):
        producer.produce("t", b"x")
        producer.flush(0.1)
        found = {labels for labels in shown(broker) if labels[0] == "rd"}
        if found:
            break
        time.sleep(0.05)
    assert "org.apache.kafka.producer.connection.creation.total" in {labels[2] for labels in found}


@pytest.mark.interop
def test_the_java_client_pushes_as_it_is(broker: Broker, wire: Wire) -> None:
    require_reference_kafka()
    changes = [("interval.ms", SET, "100"), ("match", SET, "client_id=java"), ("metrics", SET, "*")]
    assert alter(wire, CLIENT_METRICS, "java", *changes).error_code == 0
    broker.create_topic("java", 1)
    arguments = ["--topic", "java", "--num-records", "1000000", "--record-size", "100", "--throughput", "100"]
    arguments += ["--producer-props", f"bootstrap.servers={broker.bootstrap_servers}", "client.id=java"]
    command = [
        java(),
        *SHORT_LIVED,
        "-cp",
        classpath(TOOLS_JARS),
        "org.apache.kafka.tools.ProducerPerformance",
        *arguments,
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            names: set[str] = set()
            while "org.apache.kafka.producer.record.send.total" not in names:
                assert process.poll() is None
                time.sleep(0.1)
                names = {labels[2] for labels in shown(broker) if labels[0] == "java"}
        finally:
            process.kill()


def test_a_push_cut_or_flipped_anywhere_is_read_or_refused() -> None:
    good = pushed("a.rate", 2.5, topic="t") + pushed("b", 1.0)
    assert [value.name for value in read_pushed(0, good, 1 << 20)] == ["a.rate", "b"]
    for at in range(len(good)):
        for bad in (good[:at], good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :]):
            with contextlib.suppress(InvalidRecordError):
                read_pushed(0, bad, 1 << 20)


def test_what_a_push_becomes_has_a_bound() -> None:
    with pytest.raises(InvalidRecordError):
        read_pushed(int(Codec.ZSTD), compress(Codec.ZSTD, bytes(1 << 20)), 1000)


def test_values_have_a_bound_and_the_oldest_make_room() -> None:
    kept = LastPushes()
    for client in range(12):
        kept.put(UUID(int=client), "c", [PushedValue("m", f"n={n}", n) for n in range(2500)])
    assert len(list(kept)) == 20_000
    assert {instance_id.int for instance_id, _, _ in kept} == set(range(2, 12))


def test_a_push_without_end_or_with_endless_names_costs_little() -> None:
    """16 MiB of fields are not all read, and what is kept of values has a bound however long they are."""
    endless = compress(Codec.ZSTD, b"\x08\x00" * (8 << 20))
    with pytest.raises(InvalidRecordError, match="more than 200000 fields"):
        read_pushed(Codec.ZSTD, endless, 1 << 20)
    assert read_pushed(0, pushed("n" * 60, 1.0, k="v" * 20), 1 << 20)
    point = bytes([4 << 3 | 1]) + struct.pack("<d", 1.0)
    gauge = b"\x2a\x0b\x0a\x09" + point
    name = b"n" * 5000
    metric = b"\x0a" + bytes([len(name) & 127 | 128, len(name) >> 7]) + name + gauge

    def sized(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content) & 127 | 128, len(content) >> 7]) + content

    assert read_pushed(0, sized(1, sized(2, sized(2, metric))), 1 << 20) == []
