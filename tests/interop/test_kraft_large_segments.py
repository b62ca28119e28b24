"""A segment passes 2 GiB in a cluster, with real data, where every broker with the partition says that it can.

Each topic takes a little more than 2 GiB on two brokers. The first is deleted before the second is written.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition as KafkaPartition

from stratalog.wire import ApiKey
from tests.interop.test_kraft_replication import FIRST, JVM, PATIENCE_S, SECOND, World, wait_until
from tests.support.kraft_cluster import KraftCluster
from tests.support.reference_kafka import require_reference_kafka

pytestmark = [pytest.mark.interop, pytest.mark.soak, pytest.mark.xdist_group("kraft")]

BORDER = 1 << 31
VALUE_BYTES = 8 << 20
BATCH_MAX = VALUE_BYTES + 4096
#: The record that crosses the border is in the middle of the last ones.
CROSSING = BORDER // VALUE_BYTES
COUNT = CROSSING + 8
PIECE = 8 << 20
#: Offset and length, which is that of what follows.
BATCH_HEAD = 12
FILLING = random.Random(7).randbytes(VALUE_BYTES)
SETTINGS = {"stratalog.large.segments": "true", "log.segment.bytes": str(2 * BORDER)}
TOPIC = {"max_message_bytes": str(BATCH_MAX), "min_insync_replicas": "1", "file_delete_delay_ms": "0"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    require_reference_kafka()
    with KraftCluster(tmp_path_factory.mktemp("kraft")) as cluster:
        made = World(cluster, ours=SETTINGS)
        yield made
        made.client.close()
        for each in made.ours.values():
            if each.process.poll() is None:
                each.end(signal.SIGKILL)


def value(number: int) -> bytes:
    head = number.to_bytes(8, "big")
    return head + FILLING[len(head) :]


def write(world: World, topic: str, numbers: range) -> None:
    """Write and confirm values, a few at a time: they are held in memory."""
    failed: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": world.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "message.max.bytes": BATCH_MAX,
            "message.timeout.ms": int(PATIENCE_S * 1000),
            "socket.timeout.ms": 10_000,
        }
    )

    def reported(error: object, _: object) -> None:
        if error is not None:
            failed.append(str(error))

    for at, number in enumerate(numbers):
        producer.produce(topic, value(number), partition=0, callback=reported)
        if at % 8 == 7:
            assert producer.flush(PATIENCE_S) == 0
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []


def read(world: World, topic: str, numbers: range) -> None:
    """Read values from the leader, by offset, and compare them."""
    consumer = Consumer(
        {
            "bootstrap.servers": world.bootstrap,
            "group.id": "not used",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 2 * BATCH_MAX,
            "fetch.max.bytes": 2 * BATCH_MAX,
            "receive.message.max.bytes": 4 * BATCH_MAX,
        }
    )
    consumer.assign([KafkaPartition(topic, 0, numbers.start)])
    wanted = iter(numbers)

    def is_read() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            number = next(wanted)
            assert message.offset() == number
            assert message.value() == value(number)
            return number == numbers[-1]
        return False

    wait_until(is_read, f"{topic} is read up to {numbers[-1]}")
    consumer.close()


def segments(world: World, node: int, topic: str) -> list[Path]:
    return sorted((world.data_dirs()[node] / f"{topic}-0").glob("*.log"))


def bytes_of(path: Path) -> int:
    """Return the size of the batches, without the reserved space behind them."""
    end, size = 0, path.stat().st_size
    with path.open("rb") as file:
        while end < size:
            file.seek(end)
            length = int.from_bytes(file.read(BATCH_HEAD)[-4:], "big")
            if not length:
                break
            end += BATCH_HEAD + length
    return min(end, size)


def are_equal(one: Path, other: Path) -> bool:
    size = bytes_of(one)
    if size != bytes_of(other):
        return False
    with one.open("rb") as first, other.open("rb") as second:
        return all(first.read(PIECE) == second.read(PIECE) for _ in range(size // PIECE))


def test_a_partition_whose_holders_all_say_so_passes_2_gib_and_survives_its_leader(world: World) -> None:
    world.create("large", [FIRST, SECOND], **TOPIC)
    write(world, "large", range(COUNT))
    for node in (FIRST, SECOND):
        (segment,) = segments(world, node, "large")
        wait_until(lambda path=segment: bytes_of(path) > BORDER, f"broker {node} has it in one segment")  # type: ignore[misc]
    read(world, "large", range(CROSSING - 2, COUNT))

    world.ours[FIRST].end(signal.SIGKILL)
    wait_until(lambda: world.leaders("large") == [SECOND], "the follower leads")
    read(world, "large", range(CROSSING - 2, COUNT))
    world.ours[FIRST].start()
    world.wait_for_isr("large", {FIRST, SECOND})
    write(world, "large", range(COUNT, COUNT + 8))
    wait_until(lambda: world.leaders("large") == [FIRST] or world.elect_preferred("large"), "it leads again")
    read(world, "large", range(CROSSING - 2, COUNT + 8))
    (one,), (other,) = segments(world, FIRST, "large"), segments(world, SECOND, "large")
    wait_until(lambda: are_equal(one, other), "the replicas are equal")

    world.client.any.call(ApiKey.DELETE_TOPICS, (5, 5), topic_names=["large"], timeout=20_000)
    wait_until(lambda: not (one.exists() or other.exists()), "the files are deleted")


def test_a_holder_that_does_not_say_so_is_named_and_keeps_segments_below_2_gib(world: World) -> None:
    world.create("small", [FIRST, JVM], **TOPIC)
    log = world.ours[FIRST].directory / "log"
    wait_until(lambda: f"broker {JVM} has replicas" in log.read_text(), "the log names the broker")
    write(world, "small", range(COUNT))
    assert [bytes_of(path) < BORDER for path in segments(world, FIRST, "small")] == [True, True]
    whole = sum(map(bytes_of, segments(world, FIRST, "small")))
    assert whole > BORDER
    # Kafka's broker rolls at its own, smaller limit.
    wait_until(lambda: sum(map(bytes_of, segments(world, JVM, "small"))) == whole, "the follower has it all")
    read(world, "small", range(CROSSING - 2, COUNT))
