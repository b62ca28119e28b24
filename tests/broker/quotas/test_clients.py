"""Real clients are kept at their rates, by the broker's clock: as many bytes as the quota allows for the time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka import Producer
from tests.broker.quotas.paced_broker import TOPIC, Paced, paced_broker
from tests.support.quota_cases import set_quota
from tests.support.reference_kafka import free_port

from stratalog.testing.clock import ManualClock

RATE = 100_000
RECORDS = 4_000
VALUE = b"v" * 1000
#: What may come before the first wait: the rate for as long as is measured.
BURST = 11 * RATE


@pytest.fixture
def paced(tmp_path: Path) -> Iterator[Paced]:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a" user_bob="b";'
    listeners = f"PLAINTEXT://127.0.0.1:{free_port()},SASL_PLAINTEXT://127.0.0.1:{free_port()}"
    config = {
        "listeners": listeners,
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
    }
    # Clients date their records by their own clocks.
    with paced_broker(tmp_path, ManualClock(round(time.time() * 1000)), **config) as paced:
        paced.waits.at_once = True
        yield paced


def address(paced: Paced, number: int) -> str:
    """Of the plain listener, 0, or of that with names and passwords, 1."""
    return str(paced.broker.services.config.properties["listeners"]).split(",")[number].rpartition("//")[2]


def produce(paced: Paced, user: str) -> tuple[int, float]:
    """Bytes that a user produced, and the seconds it took by the broker's clock."""
    begun_ms = paced.clock.now_ms()
    producer = Producer({
        "bootstrap.servers": address(paced, 1), "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
        "sasl.username": user, "sasl.password": user[0], "linger.ms": 5, "batch.size": 20_000,
    })  # fmt: skip
    failed = []
    for _ in range(RECORDS):
        producer.produce(TOPIC, VALUE, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(60) == 0
    assert failed == []
    return RECORDS * len(VALUE), (paced.clock.now_ms() - begun_ms) / 1000


def test_a_user_produces_at_the_rate_of_its_quota_and_another_at_its_own(paced: Paced) -> None:
    with paced.connect("setter") as wire:
        set_quota(wire, {"user": "alice"}, producer_byte_rate=RATE)
    size, seconds = produce(paced, "alice")
    assert (size - BURST) / RATE <= seconds <= 1.2 * size / RATE
    assert produce(paced, "bob")[1] == 0


def test_a_consumer_reads_all_at_the_rate_of_its_quota(paced: Paced) -> None:
    produce(paced, "bob")
    with paced.connect("setter") as wire:
        set_quota(wire, {"client-id": "reader"}, consumer_byte_rate=RATE)
    begun_ms = paced.clock.now_ms()

    async def read() -> int:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=address(paced, 0),
            client_id="reader",
            fetch_max_wait_ms=10,
            max_partition_fetch_bytes=200_000,
        )
        await consumer.start()
        try:
            partition = TopicPartition(TOPIC, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            found = 0
            while found < RECORDS:
                found += sum(len(records) for records in (await consumer.getmany(timeout_ms=1000)).values())
            return found
        finally:
            await consumer.stop()

    assert asyncio.run(asyncio.wait_for(read(), 60)) == RECORDS
    seconds = (paced.clock.now_ms() - begun_ms) / 1000
    size = RECORDS * len(VALUE)
    assert (size - BURST) / RATE <= seconds <= 1.5 * size / RATE
