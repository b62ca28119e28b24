"""A broker that is killed while a client writes, and started again on the same directory and port."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from stratalog.log.scan import list_segments
from tests.support.killable_broker import KillableBroker

TOPIC = "orders"
PARTITIONS = 3


@pytest.mark.parametrize("kills_wanted", [3, pytest.param(40, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])])
def test_what_was_acknowledged_before_and_after_kills_is_there_once_and_in_order(
    tmp_path: Path, kills_wanted: int
) -> None:
    broker = KillableBroker(tmp_path / "data")
    admin = AdminClient({"bootstrap.servers": broker.address})
    topic = NewTopic(TOPIC, PARTITIONS, config={"segment.bytes": str(1024 * 1024)})
    admin.create_topics([topic])[TOPIC].result(30)

    stop = threading.Event()
    kills = 0

    def kill_now_and_then() -> None:
        nonlocal kills
        while not stop.wait(0.7) and kills < kills_wanted:
            broker.end(signal.SIGKILL)
            broker.start()
            kills += 1

    acknowledged: list[list[int]] = [[] for _ in range(PARTITIONS)]
    failed: list[str] = []

    def on_delivery(error: object, message: object) -> None:
        if error is not None:
            failed.append(str(error))
        else:
            acknowledged[message.partition()].append(int(message.value()[:10]))  # type: ignore[attr-defined]

    producer = Producer(
        {
            "bootstrap.servers": broker.address,
            "enable.idempotence": True,
            "linger.ms": 2,
            "batch.size": 20_000,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )
    killer = threading.Thread(target=kill_now_and_then)
    killer.start()
    number = 0
    deadline = time.monotonic() + 60 * kills_wanted
    try:
        while killer.is_alive() and time.monotonic() < deadline:
            for _ in range(50):
                with contextlib.suppress(BufferError):
                    producer.produce(
                        TOPIC, b"%010d" % number + b"x" * 500, partition=number % PARTITIONS, on_delivery=on_delivery
                    )
                    number += 1
            producer.poll(0.01)
    finally:
        stop.set()
        killer.join()
    assert producer.flush(120) == 0
    assert (kills, failed) == (kills_wanted, [])

    read: list[list[int]] = [[] for _ in range(PARTITIONS)]
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "check", "log_level": 0})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    wanted = sum(map(len, acknowledged))
    deadline = time.monotonic() + 30 * kills_wanted
    while sum(map(len, read)) < wanted and time.monotonic() < deadline:
        for message in consumer.consume(5000, timeout=1):
            assert message.error() is None
            read[message.partition()].append(int(message.value()[:10]))
    consumer.close()
    assert wanted == number > 0
    assert read == acknowledged
    assert broker.end(signal.SIGTERM) == 0
    assert all(list_segments(tmp_path / "data" / f"{TOPIC}-{partition}") for partition in range(PARTITIONS))
