"""Producing the flights and reading them back, with an unmodified Kafka client."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from stratalog.cli.demo.flights import Flight
from stratalog.errors import StratalogError

TOPIC = "flights"
PARTITIONS = 6
GROUP = "demo"

#: Segments of a mebibyte or a month, whichever comes first; the newest half mebibyte of each partition stays local.
LOCAL_RETENTION_BYTES = 512 * 1024
TOPIC_CONFIG = {
    "remote.storage.enable": "true",
    "segment.bytes": str(1024 * 1024),
    "segment.ms": str(30 * 24 * 60 * 60 * 1000),
    "retention.ms": "-1",
    "local.retention.bytes": str(LOCAL_RETENTION_BYTES),
    "file.delete.delay.ms": "1000",
}

_IDLE_SECONDS_MAX = 60


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1, config=TOPIC_CONFIG)
    admin.create_topics([new])[TOPIC].result(30)


def produce(bootstrap: str, flights: Sequence[Flight], advance: Callable[[int], object]) -> None:
    """Send every flight, idempotently and compressed. Returns once all are acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": "zstd",
            "linger.ms": 50,
            "batch.size": 256 * 1024,
            "queue.buffering.max.messages": 200_000,
            "partitioner": "murmur2_random",
        }
    )
    errors: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _: Any) -> None:
        if error is not None:
            errors.append(error)

    for number, flight in enumerate(flights, 1):
        while True:
            try:
                producer.produce(
                    TOPIC, flight.value, flight.key, timestamp=flight.timestamp_ms, on_delivery=on_delivery
                )
                break
            except BufferError:
                producer.poll(0.05)
        if number % 2_000 == 0:
            producer.poll(0)
            advance(2_000)
    left = producer.flush(_IDLE_SECONDS_MAX)
    advance(len(flights) % 2_000)
    if errors or left:
        first = f"; the first: {errors[0]}" if errors else ""
        raise StratalogError(f"{len(errors)} flights were refused and {left} were not acknowledged{first}")


def consume(bootstrap: str, expected: int, advance: Callable[[int], object]) -> Counter[Flight]:
    """Read `expected` records of the topic with a consumer group, and commit.

    Raises StratalogError after a minute without records.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
        }
    )
    seen: Counter[Flight] = Counter()
    count = 0
    last = time.monotonic()
    try:
        consumer.subscribe([TOPIC])
        while count < expected:
            messages = consumer.consume(5_000, timeout=0.5)
            if not messages:
                if time.monotonic() - last > _IDLE_SECONDS_MAX:
                    raise StratalogError(f"the broker sent {count} of {expected} flights, then none for a minute")
                continue
            last = time.monotonic()
            for message in messages:
                error = message.error()
                if error is not None:
                    raise StratalogError(f"the consumer failed: {error}")
                seen[Flight(message.key(), message.value() or b"", message.timestamp()[1])] += 1
            count += len(messages)
            advance(len(messages))
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return seen
