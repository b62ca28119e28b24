"""A connection: order, pieces, garbage, limits, and what one client can do to the others (nothing)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings, strategies as st
from tests.broker.frames import read_response, request_frame
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.server import calls, message_calls
from stratalog.broker.server.acceptor import Acceptor
from stratalog.broker.server.connection import Connection, memory_of, rest_of
from stratalog.broker.server.server import Broker
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.wire import protocol
from stratalog.wire.api_keys import ApiKey

T = TypeVar("T")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    config = {"socket.request.max.bytes": 3 * 1024 * 1024, "message.max.bytes": 4 * 1024 * 1024}
    with Broker(data_dir=tmp_path_factory.mktemp("data"), config=config) as broker:
        broker.services.topics.create("t", 1)
        yield broker


def connect(broker: Broker) -> socket.socket:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def framed(message: bytes | bytearray) -> bytes:
    return struct.pack(">i", len(message)) + message


def receive_frame(sock: socket.socket) -> bytes:
    frame = b""
    while len(frame) < 4 or len(frame) < 4 + struct.unpack(">i", frame[:4])[0]:
        need = 4 - len(frame) if len(frame) < 4 else 4 + struct.unpack(">i", frame[:4])[0] - len(frame)
        piece = sock.recv(need)
        if not piece:
            raise ConnectionError(f"closed after {len(frame)} bytes")
        frame += piece
    return frame


def is_closed_by_broker(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def waiting_fetch(broker: Broker, max_wait_ms: int) -> bytearray:
    """A Fetch at the end of a log, which waits for a record."""
    end = broker.services.partition("t", 0).log.log_end_offset  # type: ignore[union-attr]
    entry = {"partition": 0, "fetch_offset": end, "partition_max_bytes": 1000}
    topics = [{"topic": "t", "partitions": [entry]}]
    fields = {"max_wait": max_wait_ms, "min_bytes": 1, "topics": topics, "session_epoch": -1}
    return request_frame(ApiKey.FETCH, 11, fields)


def produce_frame(value: bytes, topic: str = "t", acks: int = -1) -> bytearray:
    records = build_batch([Record(0, 1_700_000_000_000, None, value)])
    topics = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    return request_frame(ApiKey.PRODUCE, 9, {"acks": acks, "timeout": 1000, "topic_data": topics})


def with_correlation_id(frame: bytearray, correlation_id: int) -> bytes:
    copy = bytearray(frame)
    struct.pack_into(">i", copy, 4, correlation_id)
    return framed(copy)


def test_pipelined_requests_are_answered_in_order(broker: Broker) -> None:
    versions = bytearray(request_frame(ApiKey.API_VERSIONS, 0, {}))
    metadata = bytearray(request_frame(ApiKey.METADATA, 12, {"topics": None}))
    produce = produce_frame(b"v")
    chance = random.Random(5)
    kinds = [chance.choice((versions, metadata, produce)) for _ in range(3000)]
    sent = b"".join(with_correlation_id(kind, number) for number, kind in enumerate(kinds))
    with connect(broker) as sock:
        sock.setblocking(False)
        got = bytearray()
        view, position, count = memoryview(sent), 0, 0
        while count < len(kinds):
            readable, writable, _ = select.select([sock], [sock] if position < len(sent) else [], [], 30)
            assert readable or writable, f"stuck after {count} answers"
            if writable:
                position += sock.send(view[position : position + 50_000])
            if readable:
                piece = sock.recv(65_536)
                assert piece
                got += piece
            while len(got) >= 8 and len(got) >= 4 + struct.unpack_from(">i", got)[0]:
                size, correlation_id = struct.unpack_from(">ii", got)
                assert correlation_id == count
                del got[: 4 + size]
                count += 1
        assert not got


def test_requests_behind_a_waiting_fetch_are_answered_after_it(broker: Broker) -> None:
    fetch = waiting_fetch(broker, 30_000)
    versions = request_frame(ApiKey.API_VERSIONS, 0, {})
    with connect(broker) as sock, connect(broker) as other:
        sock.sendall(with_correlation_id(fetch, 1))
        for number in range(2, 50):
            sock.sendall(with_correlation_id(versions, number))
        wait_until(lambda: len(broker.services.purgatory) == 1)
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.recv(1)
        sock.settimeout(30)
        other.sendall(framed(produce_frame(b"woken")))
        receive_frame(other)
        correlation_id, message = read_response(ApiKey.FETCH, 11, receive_frame(sock))
        assert correlation_id == 1
        assert b"woken" in message.responses[0].partitions[0].records
        for number in range(2, 50):
            assert struct.unpack_from(">i", receive_frame(sock), 4)[0] == number


def test_a_client_that_goes_away_takes_its_waiting_fetch_with_it(broker: Broker) -> None:
    fetch = waiting_fetch(broker, 600_000)
    with connect(broker) as sock:
        sock.sendall(framed(fetch))
        wait_until(lambda: len(broker.services.purgatory) == 1)
    wait_until(lambda: len(broker.services.purgatory) == 0)


@pytest.mark.parametrize("piece", [1, 3, 7, 100])
def test_a_request_may_come_in_pieces(broker: Broker, piece: int) -> None:
    sent = framed(produce_frame(b"in pieces")) + framed(request_frame(ApiKey.API_VERSIONS, 0, {}))
    with connect(broker) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for begin in range(0, len(sent), piece):
            sock.sendall(sent[begin : begin + piece])
        _, message = read_response(ApiKey.PRODUCE, 9, receive_frame(sock))
        assert message.responses[0].partition_responses[0].error_code == 0
        receive_frame(sock)


@given(
    sizes=st.lists(st.sampled_from([1, 5_000, 131_000, 131_200, 262_000, 262_200, 2_200_000]), min_size=1, max_size=6)
)
@settings(deadline=None, max_examples=25)
def test_requests_of_any_size_arrive_as_they_were_sent(broker: Broker, sizes: list[int]) -> None:
    """Around the sizes at which a request moves to a buffer of its own and at which that buffer grows."""
    with Wire(broker.bootstrap_servers) as wire, connect(broker) as sock:
        values = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
        sock.sendall(b"".join(framed(produce_frame(value)) for value in values))
        for value in values:
            _, message = read_response(ApiKey.PRODUCE, 9, receive_frame(sock))
            done = message.responses[0].partition_responses[0]
            assert (done.error_code, done.error_message) == (0, None)
            entry = {"partition": 0, "fetch_offset": done.base_offset, "partition_max_bytes": 1}
            fetched = wire.call(
                ApiKey.FETCH,
                11,
                max_bytes=2**31 - 1,
                session_epoch=-1,
                topics=[{"topic": "t", "partitions": [entry]}],
            )
            assert value in fetched.responses[0].partitions[0].records


def test_a_client_that_does_not_read_gets_everything_when_it_does(broker: Broker) -> None:
    """Far more answers than socket buffers hold, bytes and file ranges mixed: none is lost, doubled or out of order."""
    with connect(broker) as sock:
        sock.sendall(framed(produce_frame(b"z" * 900_000, acks=1)))
        _, message = read_response(ApiKey.PRODUCE, 9, receive_frame(sock))
        offset = message.responses[0].partition_responses[0].base_offset
        entry = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 900_100}
        topics = [{"topic": "t", "partitions": [entry]}]
        fetch = request_frame(ApiKey.FETCH, 11, {"max_bytes": 10**6, "topics": topics, "session_epoch": -1})
        versions = request_frame(ApiKey.API_VERSIONS, 0, {})
        count = 60
        requests = [with_correlation_id(fetch if n % 2 else versions, n) for n in range(count)]
        sock.sendall(b"".join(requests))
        time.sleep(0.3)  # the broker runs into full socket buffers
        for number in range(count):
            frame = receive_frame(sock)
            assert struct.unpack_from(">i", frame, 4)[0] == number
            if number % 2:
                assert frame.count(b"z") >= 900_000


# --- bad input --------------------------------------------------------------------------------------------------------


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def say_no_more(sock: socket.socket) -> None:
    """End our side and read until the broker ends its own; it may have closed, or reset, the connection already."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65_536):
            pass


def still_serves(broker: Broker) -> bool:
    with Wire(broker.bootstrap_servers) as wire:
        return bool(wire.call(ApiKey.API_VERSIONS, 0).api_keys)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (struct.pack(">i", 3 * 1024 * 1024 + 1), "socket.request.max.bytes allows 3145728"),
        (struct.pack(">i", -1), "-1 bytes cannot be a request"),
        (struct.pack(">i", 0), "0 bytes cannot be a request"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"),
        (framed(struct.pack(">hhih", 999, 0, 1, -1)), "API key 999"),
        (framed(struct.pack(">hhih", ApiKey.METADATA, 99, 1, -1)), "Metadata v99"),
        (framed(struct.pack(">hhih", ApiKey.PRODUCE, 2, 1, -1)), "Produce v2"),
        (framed(struct.pack(">hhih", ApiKey.METADATA, 5, 1, 500)), "client id"),
        (framed(struct.pack(">hhih", ApiKey.METADATA, 5, 1, 2) + b"\xff\xff"), "UTF-8"),
        (framed(struct.pack(">hhih", ApiKey.METADATA, 5, 1, -1) + b"\x7f\xff\xff\xff"), "cannot be read"),
        (framed(struct.pack(">hhih", ApiKey.PRODUCE, 9, 1, -1) + b"\xff" * 9), "cannot be read"),
        (
            framed(struct.pack(">hhih", ApiKey.FETCH, 12, 1, -1) + b"\x00\x80\x80\x80\x80\x80\x80"),
            "cannot be read",
        ),
    ],
)
def test_what_is_no_request_closes_that_connection_with_one_line(
    broker: Broker, caplog: pytest.LogCaptureFixture, sent: bytes, said: str
) -> None:
    with caplog.at_level(logging.WARNING), connect(broker) as sock, connect(broker) as bystander:
        bystander.sendall(framed(request_frame(ApiKey.API_VERSIONS, 0, {})))
        receive_frame(bystander)
        sock.sendall(sent)
        assert is_closed_by_broker(sock)
        bystander.sendall(framed(request_frame(ApiKey.API_VERSIONS, 0, {})))
        receive_frame(bystander)
    lines = warnings(caplog)
    assert len(lines) == 1
    assert said in lines[0]
    assert "\n" not in lines[0]


def test_random_bytes_close_that_connection_and_nothing_else(broker: Broker) -> None:
    """Whatever the bytes: the broker answers others as before, and keeps no connection for the one that is gone."""
    chance = random.Random(20_260_101)
    before = broker.services.partition("t", 0).log.log_end_offset  # type: ignore[union-attr]
    for round_ in range(300):
        noise = bytearray(chance.randbytes(chance.randrange(1, 400)))
        if round_ % 3:  # let it pass as a frame, so that more than the size is looked at
            key = chance.choice(list(ApiKey))
            noise[:0] = struct.pack(">hhi", key, chance.randrange(0, 14), round_)
            noise[:0] = struct.pack(">i", len(noise))
        with connect(broker) as sock:
            sock.sendall(noise)
            say_no_more(sock)
    assert still_serves(broker)
    assert broker.services.partition("t", 0).log.log_end_offset == before  # type: ignore[union-attr]


@given(
    position=st.integers(0, 10_000),
    bit=st.integers(0, 7),
    source=st.sampled_from(["produce", "metadata", "fetch", "offsets"]),
)
@settings(deadline=None, max_examples=300)
def test_any_flipped_bit_in_a_request_leaves_the_broker_serving(
    broker: Broker, position: int, bit: int, source: str
) -> None:
    entry = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100}
    frame = {
        "produce": lambda: produce_frame(b"flipped"),
        "metadata": lambda: request_frame(ApiKey.METADATA, 12, {"topics": [{"name": "t"}]}),
        "fetch": lambda: request_frame(
            ApiKey.FETCH, 12, {"topics": [{"topic": "t", "partitions": [entry]}], "session_epoch": -1}
        ),
        "offsets": lambda: request_frame(
            ApiKey.LIST_OFFSETS,
            7,
            {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]},
        ),
    }[source]()
    frame[position % len(frame)] ^= 1 << bit
    with connect(broker) as sock:
        sock.sendall(framed(frame))
        say_no_more(sock)
    assert still_serves(broker)


@pytest.mark.parametrize("sent", [0, 1, 10_000, 300_000])
def test_the_buffer_of_a_large_request_grows_with_what_arrives(tmp_path: Path, sent: int) -> None:
    """A client that announces much and sends little costs little, however often it connects."""
    head = struct.pack(">i", 100 * 1024 * 1024) + struct.pack(">hhi", ApiKey.PRODUCE, 9, 1)
    with Broker(data_dir=tmp_path) as broker:
        clients = [connect(broker) for _ in range(20)]
        for client in clients:
            client.sendall(head + b"\0" * sent)
        wait_until(lambda: len(large_buffers()) == len(clients) and min(arrived()) == len(head) + sent)
        assert max(large_buffers()) <= max(4096, 8 * (len(head) + sent))
        assert still_serves(broker)
        for client in clients:
            client.close()


def test_turns_after_each_request_keep_the_answers_in_order(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request gives way to other connections: small and large ones are answered in order all the same."""
    monkeypatch.setattr(calls, "_TURN_S", -1.0)
    small = struct.pack(">hhi", ApiKey.API_VERSIONS, 0, 0) + b"\xff\xff"
    with connect(broker) as sock, connect(broker) as other:
        large = produce_frame(b"z" * 300_000)
        wanted = []
        sending = []
        for number in range(60):
            frame = bytearray(large if number % 20 == 7 else small)
            struct.pack_into(">i", frame, 4, number)
            sending.append(framed(bytes(frame)))
            wanted.append(number)
        thread = threading.Thread(target=sock.sendall, args=(b"".join(sending),))
        thread.start()
        other.sendall(framed(small))
        assert receive_frame(other)
        got = [struct.unpack_from(">i", receive_frame(sock), 4)[0] for _ in wanted]
        thread.join()
    assert got == wanted


def arrived() -> list[int]:
    """Bytes that are there of large requests."""
    return [connection.framing._large_used for connection in receiving()]


def receiving() -> list[Connection]:
    found = (entry for entry in gc.get_objects() if isinstance(entry, Connection) and not entry.closed)
    return [connection for connection in found if connection.framing._large is not None]


def large_buffers() -> list[int]:
    """Sizes of the buffers of large requests that are being received."""
    return [len(connection.framing._large or b"") for connection in receiving()]


def test_buffers_that_no_request_uses_are_given_back(broker: Broker) -> None:
    with connect(broker) as sock:
        sock.sendall(framed(produce_frame(b"z" * 2_000_000)))
        receive_frame(sock)
        host = acceptor_of(broker)
        wait_until(lambda: not on_loop(broker, lambda: (host._sweep(), host.memory._free)[1]))
        assert host.memory._free_bytes == 0


def test_a_version_of_api_versions_that_is_not_known_is_answered_in_version_0(broker: Broker) -> None:
    with connect(broker) as sock:
        sock.sendall(framed(struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 5, -1)))
        correlation_id, message = read_response(ApiKey.API_VERSIONS, 0, receive_frame(sock))
        assert correlation_id == 5
        assert message.error_code == 35
        assert [(entry.api_key, entry.min_version, entry.max_version) for entry in message.api_keys] == [(18, 0, 5)]
        sock.sendall(
            framed(request_frame(ApiKey.API_VERSIONS, 3, {"client_software_name": "a", "client_software_version": "1"}))
        )
        assert read_response(ApiKey.API_VERSIONS, 3, receive_frame(sock))[1].error_code == 0


# --- limits -----------------------------------------------------------------------------------------------------------


def test_idle_connections_are_closed(tmp_path: Path) -> None:
    with (
        Broker(data_dir=tmp_path, config={"connections.max.idle.ms": 200}) as broker,
        connect(broker) as sock,
    ):
        assert is_closed_by_broker(sock)


def acceptor_of(broker: Broker) -> Acceptor:
    """Where its connections are."""
    found = [entry for entry in gc.get_objects() if isinstance(entry, Acceptor) and entry.services is broker.services]
    return found[0]


def on_loop(broker: Broker, function: Callable[[], T]) -> T:
    """What a function gives on the broker's own thread."""
    done: Future[T] = Future()
    broker.services.loop.call_soon_threadsafe(lambda: done.set_result(function()))
    return done.result(30)


def stuck_client(broker: Broker) -> tuple[socket.socket, Connection]:
    """A client that asks for far more than it reads, and its connection, which waits for it."""
    sock = connect(broker)
    sock.sendall(framed(produce_frame(b"z" * 900_000, acks=1)))
    _, message = read_response(ApiKey.PRODUCE, 9, receive_frame(sock))
    offset = message.responses[0].partition_responses[0].base_offset
    entry = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 900_100}
    topics = [{"topic": "t", "partitions": [entry]}]
    fetch = request_frame(ApiKey.FETCH, 11, {"max_bytes": 10**6, "topics": topics, "session_epoch": -1})
    sock.sendall(framed(fetch) * 40)
    host = acceptor_of(broker)
    wait_until(lambda: any(connection.is_stuck for connection in list(host.connections)))
    return sock, next(connection for connection in host.connections if connection.is_stuck)


def test_what_a_client_does_not_read_is_counted_as_it_is_kept() -> None:
    """A part of a piece keeps the whole piece, until a copy takes its place."""
    piece = bytes(1000)
    assert memory_of(piece) == 1000
    much, little = rest_of(piece, 10), rest_of(piece, 600)
    assert (len(much), memory_of(much)) == (990, 1000)
    assert (len(little), memory_of(little)) == (400, 400)
    less = rest_of(much, 500)
    assert (len(less), memory_of(less)) == (490, 490)


def test_requests_behind_answers_that_wait_are_counted_with_them(broker: Broker) -> None:
    sock, connection = stuck_client(broker)
    kept = on_loop(broker, connection._kept_bytes)
    assert kept >= connection.framing.kept_bytes > 0
    assert on_loop(broker, lambda: connection._host.memory._unread[connection]) > 0
    sock.close()


def sweep_as_if_idle_since(broker: Broker, connection: Connection, active_at: float) -> None:
    def sweep() -> None:
        connection.active_at = active_at
        connection._host._sweep()  # type: ignore[attr-defined]

    on_loop(broker, sweep)


def test_a_client_that_never_reads_is_closed_and_holds_no_file(broker: Broker) -> None:
    """As by Kafka, after connections.max.idle.ms without a byte in either direction."""
    sock, connection = stuck_client(broker)
    sweep_as_if_idle_since(broker, connection, broker.services.loop.time() - 3600)
    assert connection.closed
    assert not connection._out
    sock.close()
    assert still_serves(broker)


def test_a_client_that_reads_slowly_is_not_idle(broker: Broker) -> None:
    sock, connection = stuck_client(broker)

    def forget() -> None:
        connection.active_at = 0.0

    on_loop(broker, forget)
    while not connection.active_at:
        assert sock.recv(10_000)
    on_loop(broker, connection._host._sweep)  # type: ignore[attr-defined]
    assert not connection.closed
    sock.close()


def test_a_client_that_goes_behind_a_long_poll_and_more_is_noticed(broker: Broker) -> None:
    """What it sent behind that request is not read yet, so reading cannot show its end."""
    end = broker.services.partition("t", 0).log.log_end_offset  # type: ignore[union-attr]
    entry = {"partition": 0, "fetch_offset": end, "partition_max_bytes": 1000}
    topics = [{"topic": "t", "partitions": [entry]}]
    values = {"max_wait": 600_000, "min_bytes": 1, "topics": topics, "session_epoch": -1}
    host = acceptor_of(broker)
    with connect(broker) as sock:
        sock.sendall(framed(request_frame(ApiKey.FETCH, 11, values)))
        wait_until(lambda: len(broker.services.purgatory) == 1)
        sock.sendall(framed(request_frame(ApiKey.API_VERSIONS, 0, {})))
        wait_until(lambda: any(not connection._reading for connection in list(host.connections)))
        on_loop(broker, host._sweep)
        assert len(broker.services.purgatory) == 1
    wait_until(lambda: (on_loop(broker, host._sweep), len(broker.services.purgatory))[1] == 0)


def test_connections_beyond_the_limit_wait_for_a_free_place(tmp_path: Path) -> None:
    versions = framed(request_frame(ApiKey.API_VERSIONS, 0, {}))
    with Broker(data_dir=tmp_path, config={"max.connections": 1}) as broker:
        with connect(broker) as first:
            first.sendall(versions)
            receive_frame(first)
            second = connect(broker)
            second.sendall(versions)
            second.setblocking(False)
            first.sendall(versions)
            receive_frame(first)
            with pytest.raises(BlockingIOError):
                second.recv(1)
        second.settimeout(30)
        receive_frame(second)
        second.close()


# --- clients that go --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("resets", [False, True])
def test_a_request_is_carried_out_whose_client_goes_while_its_code_is_loaded(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, resets: bool
) -> None:
    """As the first LeaveGroup of a new broker, from a consumer that closes at once."""
    may_end, name = threading.Event(), f"unread-{resets}"
    prepare = protocol.prepare

    def slowly(key: ApiKey, version: int) -> None:
        assert may_end.wait(30)
        prepare(key, version)

    monkeypatch.setattr(protocol, "_prepared", protocol._prepared - {(ApiKey.CREATE_TOPICS, 5)})
    monkeypatch.setattr(message_calls, "prepare", slowly)
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    host = acceptor_of(broker)
    with connect(broker) as sock:
        sock.sendall(framed(request_frame(ApiKey.API_VERSIONS, 0, {})))
        if resets:
            assert select.select([sock], [], [], 30)[0]
        else:
            receive_frame(sock)
        sock.sendall(framed(request_frame(ApiKey.CREATE_TOPICS, 5, {"topics": [topic], "timeout": 30_000})))
        wait_until(lambda: any(each.calls.is_reading for each in list(host.connections)))
    wait_until(lambda: any(not each._reading for each in list(host.connections)))
    on_loop(broker, host._sweep)
    may_end.set()
    wait_until(lambda: broker.services.metadata.topic(name) is not None)
    wait_until(lambda: not any(each.calls.is_waiting for each in list(host.connections)))


def test_requests_behind_one_that_waits_are_carried_out_though_their_client_has_gone(broker: Broker) -> None:
    fetch = waiting_fetch(broker, 30_000)
    topic = {"name": "behind", "num_partitions": 1, "replication_factor": 1}
    created = framed(request_frame(ApiKey.CREATE_TOPICS, 5, {"topics": [topic], "timeout": 30_000}))
    host = acceptor_of(broker)
    with connect(broker) as other:
        with connect(broker) as sock:
            sock.sendall(framed(fetch) + created)
            wait_until(lambda: len(broker.services.purgatory) == 1)
        wait_until(lambda: any(not each._reading for each in list(host.connections)))
        other.sendall(framed(produce_frame(b"woken")))
        receive_frame(other)
    wait_until(lambda: broker.services.metadata.topic("behind") is not None)


def test_what_a_request_began_to_change_is_finished_without_its_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by Kafka: all of the topics, not those that were made until the connection broke."""
    begun, go_on = threading.Event(), threading.Event()
    with Broker(data_dir=tmp_path) as broker:
        create = broker.services.topics.create

        def slowly(*arguments: Any, **options: Any) -> Any:
            begun.set()
            assert go_on.wait(30)
            return create(*arguments, **options)

        monkeypatch.setattr(broker.services.topics, "create", slowly)
        topics = [{"name": f"t{n}", "num_partitions": 1, "replication_factor": 1} for n in range(10)]
        with connect(broker) as sock:
            sock.sendall(framed(request_frame(ApiKey.CREATE_TOPICS, 5, {"topics": topics, "timeout": 30_000})))
            assert begun.wait(30)
        wait_until(lambda: not acceptor_of(broker).connections)
        go_on.set()
        wait_until(lambda: len(broker.services.metadata.topics()) == 10)
        wait_until(lambda: not acceptor_of(broker)._unfinished)


def test_a_stop_does_not_wait_for_requests_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stratalog.broker.server.acceptor._DRAIN_S", 0.05)
    with Broker(data_dir=tmp_path) as broker:
        ended: list[str] = []

        async def endless() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("cancelled")

        host = acceptor_of(broker)
        on_loop(broker, lambda: host.finish(broker.services.loop.create_task(endless())))
    assert ended == ["cancelled"]


def test_a_client_that_is_new_does_not_keep_the_thread_awake(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Acceptor] = []
    real = Acceptor.stay_awake

    def stay_awake(acceptor: Acceptor) -> None:
        looked.append(acceptor)
        real(acceptor)

    monkeypatch.setattr(Acceptor, "stay_awake", stay_awake)
    with connect(broker) as sock:

        def ask() -> None:
            sock.sendall(framed(request_frame(ApiKey.API_VERSIONS, 0, {})))
            receive_frame(sock)

        ask()
        assert not looked

        def is_awake() -> bool:
            ask()
            return bool(looked)

        wait_until(is_awake)
