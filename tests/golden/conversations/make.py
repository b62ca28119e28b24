"""Write the conversations again: `python -m tests.golden.conversations.make`. Needs Java and the reference's jars.

Real clients talk to a broker through a proxy that keeps what they send. Of each connection that says something of its
own a file is kept: its requests, each API at most a few times, as they went over the wire.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic as AioTopic
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec
from tests.support.reference_kafka import free_port, tool

from stratalog.broker.server.server import Broker

HERE = Path(__file__).parent
SAME_API_MAX = 2
BYTES_MAX = 4000
#: How connections begin that have nothing more to say: ApiVersions and Metadata.
OPENINGS = {struct.pack(">hh", 18, 0), struct.pack(">hh", 18, 3), struct.pack(">hh", 3, 13)}


class Recorder:
    """A proxy that keeps what clients send, by connection."""

    def __init__(self, port: int, broker_port: int) -> None:
        self._broker = "127.0.0.1", broker_port
        self._listener = socket.create_server(("127.0.0.1", port))
        self.sent: list[bytearray] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(self._broker)
            kept = bytearray()
            self.sent.append(kept)
            threading.Thread(target=self._pass_on, args=(client, server, kept), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(server, client, None), daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket, kept: bytearray | None) -> None:
        try:
            while data := source.recv(65_536):
                if kept is not None:
                    kept += data
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            target.close()


def frames(data: bytes) -> list[bytes]:
    found, position = [], 0
    while position + 4 <= len(data):
        (size,) = struct.unpack_from(">i", data, position)
        if position + 4 + size <= len(data):
            found.append(bytes(data[position : position + 4 + size]))
        position += 4 + size
    return found


def shortened(data: bytes) -> bytes:
    """Each API and version at most a few times, and no large frames."""
    seen: Counter[bytes] = Counter()
    kept = []
    for frame in frames(data):
        seen[frame[4:8]] += 1
        if seen[frame[4:8]] <= SAME_API_MAX and len(frame) <= BYTES_MAX:
            kept.append(frame)
    return b"".join(kept)


# --- clients ----------------------------------------------------------------------------------------------------------


def librdkafka_produces(codec: str, servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "compression.codec": codec, "linger.ms": 5})
    for n in range(10):
        producer.produce("orders", f"value {n}".encode() * 4, f"key {n}".encode(), headers={"h": b"1"})
    producer.flush(30)


def librdkafka_consumes(servers: str) -> None:
    for protocol in ("classic", "consumer"):
        settings = {"bootstrap.servers": servers, "group.id": f"group-{protocol}", "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "group.protocol": protocol})
        consumer.subscribe(["orders"])
        for _ in range(5):
            consumer.poll(5)
        consumer.commit(asynchronous=False)
        consumer.close()


def librdkafka_in_a_transaction(servers: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "tx"})
    producer.init_transactions(30)
    for ending in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce("orders", b"in a transaction")
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "group-tx"})
        offsets = [TopicPartition("orders", 0, 1)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
        consumer.close()
        ending(30)


def wait(futures: dict[Any, Any]) -> None:
    for each in futures.values():
        each.exception(30)


def librdkafka_administers(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    wait(admin.create_topics([NewTopic("made", 2, 1, config={"retention.ms": "1000"})]))
    wait(admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "made")]))
    wait(admin.list_offsets({TopicPartition("orders", 0): OffsetSpec.latest()}))
    wait(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("group-classic")]))
    wait(admin.describe_consumer_groups(["group-classic"]))
    admin.list_consumer_groups().result(30)
    wait(admin.delete_records([TopicPartition("orders", 0, 1)]))
    wait(admin.delete_consumer_groups(["group-tx"]))
    wait(admin.delete_topics(["made"]))


async def _aiokafka(servers: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True, transactional_id="aio")
    await producer.start()
    async with producer.transaction():
        await producer.send_and_wait("orders", b"value", b"key")
    await producer.stop()
    consumer = AIOKafkaConsumer("orders", bootstrap_servers=servers, group_id="aio", auto_offset_reset="earliest")
    await consumer.start()
    await asyncio.wait_for(consumer.getone(), 30)
    await consumer.commit()
    await consumer.stop()
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.create_topics([AioTopic("by-aiokafka", 1, 1)])
    await admin.list_consumer_groups()
    await admin.delete_topics(["by-aiokafka"])
    await admin.close()


def aiokafka_does_all(servers: str) -> None:
    asyncio.run(_aiokafka(servers))


def java_does_all(servers: str) -> None:
    at = ["--bootstrap-server", servers]
    tool("org.apache.kafka.tools.ConsoleProducer", [*at, "--topic", "orders"], stdin="one\ntwo\n")
    tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        [*at, "--topic", "orders", "--from-beginning", "--max-messages", "3", "--group", "java"],
    )
    tool("org.apache.kafka.tools.TopicCommand", [*at, "--describe"])
    tool("org.apache.kafka.tools.TopicCommand", [*at, "--create", "--topic", "by-java", "--partitions", "2"])
    tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", [*at, "--describe", "--all-groups"])


CLIENTS: dict[str, Callable[[str], None]] = {
    **{
        f"librdkafka-produce-{codec}": partial(librdkafka_produces, codec)
        for codec in ("none", "gzip", "snappy", "lz4", "zstd")
    },
    "librdkafka-consume": librdkafka_consumes,
    "librdkafka-transaction": librdkafka_in_a_transaction,
    "librdkafka-admin": librdkafka_administers,
    "aiokafka": aiokafka_does_all,
    "java": java_does_all,
}


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        broker_port, port = free_port(), free_port()
        config = {
            "listeners": f"PLAINTEXT://127.0.0.1:{broker_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "group.initial.rebalance.delay.ms": 0,
        }
        with Broker(data_dir=Path(directory), config=config):
            recorder = Recorder(port, broker_port)
            for old in HERE.glob("*.bin"):
                old.unlink()
            for name, talk in CLIENTS.items():
                recorder.sent.clear()
                talk(f"127.0.0.1:{port}")
                write(name, recorder.sent)


def write(name: str, sent: list[bytearray]) -> None:
    """Those connections of which the sequence of APIs is not that of one before."""
    known = set()
    number = 0
    for data in sent:
        kept = shortened(bytes(data))
        apis = tuple(dict.fromkeys(frame[4:8] for frame in frames(kept)))
        if apis not in known and len(set(apis) - OPENINGS) > (0 if "produce" in name else 1):
            known.add(apis)
            number += 1
            (HERE / f"{name}-{number}.bin").write_bytes(kept)
            print(name, number, len(kept), [struct.unpack(">hh", api) for api in apis])


if __name__ == "__main__":
    main()
