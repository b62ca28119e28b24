"""Memory of large requests and of answers stays within `queued.max.request.bytes`, whatever clients do.

Invariant: a good client is served while others hold all of that memory.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from tests.broker.frames import request_frame
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.security import Peer
from stratalog.broker.server import acceptor as acceptor_module
from stratalog.broker.server.request_memory import RequestMemory, default_limit
from stratalog.broker.server.server import Broker
from stratalog.config import BrokerConfig
from stratalog.errors import InvalidConfigError
from stratalog.records import Record, build_batch
from stratalog.wire import ApiKey

MIB = 1 << 20


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Client:
    def __init__(self, memory: RequestMemory) -> None:
        self.memory = memory
        self.peer: Peer = None  # type: ignore[assignment]
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True
        self.memory.hold_answers(self, 0)


def test_only_the_oldest_request_grows_when_there_is_no_room() -> None:
    memory = RequestMemory(1000, Clock())
    memory.take("a", 512, 4000)
    memory.take("b", 256, 4000)
    assert memory.has_room("c", 200)
    assert not memory.has_room("c", 300)
    assert not memory.has_room("b", 300)
    assert memory.has_room("a", 300)


def test_requests_that_wait_go_on_when_memory_comes_back() -> None:
    memory = RequestMemory(1000, Clock())
    first = memory.take("a", 1024, 1024)
    memory.take("b", 64, 4000)
    woken: list[str] = []
    for name in "bcd":
        memory.wait(name, partial(woken.append, name))
    memory.forget_wait("c")
    memory.give("a", first)
    assert woken == ["b"]  # the first that waits is the oldest too
    memory.trim()
    assert woken == ["b", "d"]


def test_a_request_that_does_not_arrive_is_given_up_only_while_others_wait() -> None:
    clock = Clock()
    memory = RequestMemory(1000, clock)
    memory.take("a", 1024, 4000)
    clock.now = 31.0
    memory.take("b", 64, 4000)
    assert not memory.is_late("a")
    memory.wait("b", lambda: None)
    assert memory.is_late("a")
    assert not memory.is_late("b")


def test_who_has_read_nothing_for_longest_goes_when_answers_take_too_much() -> None:
    memory = RequestMemory(1000, Clock())
    small, old, young = Client(memory), Client(memory), Client(memory)
    for each in (old, young):
        each.peer = type("Host", (), {"client_host": "here"})()
    memory.hold_answers(small, 10)
    memory.hold_answers(old, 600)
    memory.hold_answers(young, 300)
    memory.hold_answers(young, 500)
    assert [each.is_closed for each in (small, old, young)] == [False, True, False]
    memory.hold_answers(young, 0)
    memory.hold_answers(small, 900)
    assert not small.is_closed


def test_without_a_number_it_is_a_share_of_the_memory_and_at_least_one_request() -> None:
    assert default_limit(8000, 1000) == 2000
    assert default_limit(8000, 9000) == 9000


def test_less_than_one_request_is_refused() -> None:
    BrokerConfig({"queued.max.request.bytes": "1000", "socket.request.max.bytes": "1000"})
    with pytest.raises(InvalidConfigError, match=r"queued\.max\.request\.bytes.*at least socket\.request\.max\.bytes"):
        BrokerConfig({"queued.max.request.bytes": "999", "socket.request.max.bytes": "1000"})


@pytest.fixture
def memories(monkeypatch: pytest.MonkeyPatch) -> list[RequestMemory]:
    made: list[RequestMemory] = []

    class Seen(RequestMemory):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # type: ignore[arg-type]
            made.append(self)

    monkeypatch.setattr(acceptor_module, "RequestMemory", Seen)
    monkeypatch.setattr(acceptor_module, "_SWEEP_S_MAX", 0.2)
    return made


@pytest.fixture
def broker(tmp_path: Path, memories: list[RequestMemory]) -> Iterator[Broker]:
    config = {"queued.max.request.bytes": 4 * MIB, "socket.request.max.bytes": 4 * MIB}
    with Broker(tmp_path / "data", config=config) as broker:
        broker.services.topics.create("t", 1)
        yield broker


def connect(broker: Broker) -> socket.socket:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def produce(wire: Wire, size: int) -> int:
    records = build_batch([Record(0, 1_700_000_000_000, None, bytes(size))])
    answer = wire.call(
        ApiKey.PRODUCE, 9, acks=-1, timeout=1000, topic_data=[{"name": "t", "partition_data": [{"records": records}]}]
    )
    return int(answer.responses[0].partition_responses[0].error_code)


def test_large_requests_that_do_not_end_take_no_more_memory_than_is_allowed(
    broker: Broker, memories: list[RequestMemory]
) -> None:
    (memory,) = memories
    half = struct.pack(">i", 4 * MIB) + bytes(3 * MIB)
    socks = [connect(broker) for _ in range(8)]
    for sock in socks:
        sock.setblocking(False)
        sent = 0
        with Wire(broker.bootstrap_servers) as wire:  # small requests are served in between
            for _ in range(30):
                with contextlib.suppress(BlockingIOError):
                    sent += sock.send(half[sent:])
                assert produce(wire, 100) == 0
    # The limit, what the oldest needs, and what each had received when it began.
    assert memory._arriving_bytes <= (4 + 4) * MIB + len(socks) * MIB // 4
    for sock in socks:
        sock.close()
    with Wire(broker.bootstrap_servers) as wire:
        for _ in range(3):
            assert produce(wire, 900_000) == 0
    wait_until(lambda: memory._arriving_bytes == 0, "the memory to come back")


def test_large_requests_of_many_clients_all_arrive_though_few_fit(broker: Broker) -> None:
    records = build_batch([Record(0, 1_700_000_000_000, None, bytes(1_000_000))])
    topics = [{"name": "t", "partition_data": [{"index": 0, "records": records}]}]
    body = request_frame(ApiKey.PRODUCE, 9, {"acks": -1, "timeout": 1000, "topic_data": topics})
    frame = struct.pack(">i", len(body)) + body
    socks = [connect(broker) for _ in range(12)]
    for sock in socks:
        sock.sendall(frame[:400_000])  # so that each holds some
    for sock in socks:
        sock.setblocking(False)
    left = {sock: memoryview(frame)[400_000:] for sock in socks}
    while left:
        for sock, rest in list(left.items()):
            try:
                rest = rest[sock.send(rest) :]
            except BlockingIOError:
                continue
            if rest:
                left[sock] = rest
            else:
                del left[sock]
    for sock in socks:
        sock.setblocking(True)
        sock.settimeout(30)
        assert len(sock.recv(4)) == 4
        sock.close()


def test_clients_that_do_not_read_hold_no_more_than_is_allowed(broker: Broker, memories: list[RequestMemory]) -> None:
    (memory,) = memories
    for number in range(40):
        broker.services.topics.create(f"a-topic-with-a-name-that-is-not-short-{number:04}", 20)
    request = bytes.fromhex("00000014 0003 0001 00000001 0006 616161616161 ffffffff".replace(" ", ""))
    socks = []
    for _ in range(60):
        sock = connect(broker)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            sock.sendall(request * 2000)
        socks.append(sock)
        with Wire(broker.bootstrap_servers) as wire:
            assert produce(wire, 100) == 0
    assert memory._unread_bytes <= 4 * MIB
    assert memory._unread
    for sock in socks:
        sock.close()
