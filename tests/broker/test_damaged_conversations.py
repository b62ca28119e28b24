"""Whatever a client sends, nothing of it stays behind: conversations cut at every byte, with each byte flipped, and
good clients on the same connection and on another one afterwards.

Invariant: every record that is in a log was sent to that topic, and is there once.
"""

from __future__ import annotations

import gc
import socket
import struct
from collections import Counter
from collections.abc import Iterator
from itertools import count

import pytest
from tests.broker.frames import read_response, request_frame
from tests.support.waiting import wait_until

from stratalog.broker.produce.produce_template import ProduceTemplate
from stratalog.broker.server.connection import Connection
from stratalog.broker.server.server import Broker
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.wire.api_keys import ApiKey

_number = count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    # A size that a flipped byte announces is refused at once, unless it is about that of these conversations.
    config = {"socket.request.max.bytes": 4096}
    with Broker(data_dir=tmp_path_factory.mktemp("data"), config=config) as broker:
        for topic in ("first", "second"):
            broker.services.topics.create(topic, 1)
        yield broker


class Client:
    """One connection that sends records that show where they came from."""

    def __init__(self, broker: Broker, version: int) -> None:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        self.version = version
        self.sock = socket.create_connection((host, int(port)), timeout=30)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def frame(self, topic: str = "first") -> bytes:
        """A Produce request, all of one size."""
        value = b"%s %07d" % (topic.encode(), next(_number))
        records = build_batch([Record(0, 1_700_000_000_000, None, value)])
        topics = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
        body = request_frame(ApiKey.PRODUCE, self.version, {"acks": -1, "timeout": 1000, "topic_data": topics})
        return struct.pack(">i", len(body)) + body

    def receive(self) -> int | None:
        """The error code of the next answer; None when the broker has closed the connection."""
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + struct.unpack(">i", answer[:4])[0]:
            need = 4 - len(answer) if len(answer) < 4 else 4 + struct.unpack(">i", answer[:4])[0] - len(answer)
            try:
                piece = self.sock.recv(need)
            except ConnectionResetError:
                return None
            if not piece:
                return None
            answer += piece
        _, message = read_response(ApiKey.PRODUCE, self.version, answer)
        return int(message.responses[0].partition_responses[0].error_code)

    def produce(self, topic: str = "first") -> None:
        self.sock.sendall(self.frame(topic))
        assert self.receive() == 0

    def end(self, conversation: bytes) -> None:
        """Send what may be no conversation, wait until the broker has worked on it and has closed the connection."""
        try:
            self.sock.sendall(conversation)
            self.sock.shutdown(socket.SHUT_WR)
            while self.sock.recv(65_536):
                pass
        except OSError:  # closed by the broker, with bytes on the way
            pass
        self.sock.close()


def values(broker: Broker, topic: str) -> list[bytes]:
    partition = broker.services.partition(topic, 0)
    assert partition is not None
    data = partition.log.read(partition.log.log_start_offset, 10**9).slice
    stored = b"" if data is None else data.read()
    return [bytes(record.value or b"") for batch in iter_batches(stored) for record in batch.records()]


def assert_each_once_and_at_home(broker: Broker) -> None:
    for topic in ("first", "second"):
        found = Counter(values(broker, topic))
        assert [value for value, times in found.items() if times > 1] == []
        assert [value for value in found if value.split()[0] != topic.encode()] == []


@pytest.mark.parametrize("version", [8, 9, 12])
@pytest.mark.parametrize("damage", ["cut", "flipped", "bit"])
def test_a_damaged_conversation_leaves_nothing_behind(broker: Broker, version: int, damage: str) -> None:
    """Behind requests that are alike, so that the short way is taken, and together with good ones."""
    bystander = Client(broker, version)
    for _ in range(3):
        bystander.produce("second")
    size = len(bystander.frame())
    for position in range(size):
        client = Client(broker, version)
        for _ in range(2):
            client.produce()
        good, bad = client.frame(), bytearray(client.frame())
        if damage == "cut":
            client.sock.sendall(good + bad[:position])
        else:
            bad[position] ^= 0xFF if damage == "flipped" else 1 << position % 8
            client.sock.sendall(good + bytes(bad) + client.frame())
        bystander.produce("second")  # the broker has worked on all that behind this
        client.end(client.frame())
        bystander.produce("second")
    bystander.sock.close()
    assert_each_once_and_at_home(broker)


def test_a_client_whose_request_was_damaged_is_answered_or_closed(broker: Broker) -> None:
    """Never silent: behind a request that cannot be read, the connection ends.

    Behind one that is refused, it goes on.
    """
    answered = 0
    position = 3  # behind the size
    while True:
        position += 1
        client = Client(broker, 9)
        for _ in range(2):
            client.produce()
        good, bad = client.frame(), bytearray(client.frame())
        if position == len(bad):
            client.sock.close()
            break
        bad[position] ^= 0x80
        client.sock.sendall(good + bytes(bad) + client.frame())
        codes = [client.receive() for _ in range(3)]
        assert codes[0] == 0
        if codes[1] is not None:
            answered += 1
            assert codes[2] == 0
            client.produce()
        client.sock.close()
    assert answered > 50, answered
    assert_each_once_and_at_home(broker)


def test_a_length_that_does_not_end_is_refused_behind_requests_that_were_taken_together(
    broker: Broker,
) -> None:
    client = Client(broker, 9)
    for _ in range(2):
        client.produce()
    good, bad = client.frame(), bytearray(client.frame())
    records_at = bad.index(b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", 20)
    bad[records_at - 1 : records_at] = b"\xff" * 6
    struct.pack_into(">i", bad, 0, len(bad) - 4)
    client.sock.sendall(good + bytes(bad))
    assert (client.receive(), client.receive()) == (0, None)
    client.end(client.frame())
    other = Client(broker, 9)
    other.produce("second")
    other.sock.close()
    assert_each_once_and_at_home(broker)


def test_an_error_of_our_own_ends_the_connection_and_leaves_nothing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = ProduceTemplate.records_of
    calls = count()

    def fails(self: ProduceTemplate, frame: memoryview) -> memoryview | None:
        if next(calls) == 1:
            raise RuntimeError("on purpose")
        return plain(self, frame)

    client = Client(broker, 9)
    for _ in range(2):
        client.produce()
    monkeypatch.setattr(ProduceTemplate, "records_of", fails)
    client.end(b"".join(client.frame() for _ in range(4)))
    monkeypatch.undo()
    other = Client(broker, 9)
    for _ in range(4):
        other.produce("second")
    other.sock.close()
    assert_each_once_and_at_home(broker)


def connections(broker: Broker) -> list[Connection]:
    found = [entry for entry in gc.get_objects() if isinstance(entry, Connection)]
    return [entry for entry in found if entry._host.services is broker.services]


def test_nothing_of_the_connections_is_left(broker: Broker) -> None:
    last = Client(broker, 9)
    last.produce()
    last.sock.close()
    gc.collect()
    wait_until(lambda: all(each.closed for each in connections(broker)), "the last one is seen to end")
    closed_ones = connections(broker)
    assert [entry for entry in closed_ones if entry.framing.has_leftover or entry.calls._template] == []
    assert broker.services.logs.partitions("first")


def test_a_topic_name_that_is_no_text_refuses_the_request_as_a_whole(broker: Broker) -> None:
    client = Client(broker, 9)
    before = values(broker, "first")
    records = build_batch([Record(0, 1_700_000_000_000, None, b"first half")])
    part = [{"index": 0, "records": records}]
    topics = [{"name": "first", "partition_data": part}, {"name": "xyz", "partition_data": part}]
    body = request_frame(ApiKey.PRODUCE, 9, {"acks": -1, "timeout": 1000, "topic_data": topics})
    client.end(struct.pack(">i", len(body)) + bytes(body).replace(b"xyz", b"\xff\xff\xff"))
    assert values(broker, "first") == before
