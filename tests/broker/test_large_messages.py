"""Messages of many elements: read beside the loop, in order, within a bound, and refused when there are too many."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator

import pytest
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.server import Broker, message_calls
from stratalog.errors import InvalidRequestError
from stratalog.wire import protocol, read_request
from stratalog.wire.api_keys import ApiKey

NAMES = 8_000


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker.testing({"auto.create.topics.enable": "false"}) as broker:
        broker.create_topic("t")
        yield broker


def asked(count: int) -> list[dict[str, object]]:
    return [{"name": f"n{number}"} for number in range(count)]


def test_a_large_message_is_read_beside_the_loop_and_answered_in_order(
    broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()
    begun = threading.Event()
    threads: list[str] = []
    read = message_calls._prepared_and_read

    def slow(key: ApiKey, version: int, frame: memoryview) -> object:
        if len(frame) > message_calls._READ_BESIDE_BYTES:
            threads.append(threading.current_thread().name)
            begun.set()
            assert may_end.wait(60)
        return read(key, version, frame)

    monkeypatch.setattr(message_calls, "_prepared_and_read", slow)
    wire.send_bytes(
        wire.frame(ApiKey.METADATA, 9, topics=asked(3))
        + wire.frame(ApiKey.METADATA, 9, topics=asked(NAMES))
        + wire.frame(ApiKey.METADATA, 9, topics=asked(1))
    )
    assert begun.wait(60)
    with Wire(broker.bootstrap_servers) as other:
        assert other.call(ApiKey.METADATA, 9, topics=None).topics
    may_end.set()
    assert [len(wire.receive(ApiKey.METADATA, 9).topics) for _ in range(3)] == [3, NAMES, 1]
    assert threads
    assert threads[0] != "stratalog-broker"
    wait_until(lambda: not broker.services.large_batches._held_bytes, "the copy is given back")


def test_a_large_message_that_cannot_be_read_ends_its_connection_alone(broker: Broker, wire: Wire) -> None:
    good = wire.frame(ApiKey.METADATA, 9, topics=asked(NAMES))
    bad = good[:4] + good[4:-9] + b"\xff" * 9
    wire.send_bytes(struct.pack(">i", len(bad) - 4) + bad[4:])
    assert wire._socket.recv(1) == b""
    with Wire(broker.bootstrap_servers) as other:
        assert len(other.call(ApiKey.METADATA, 9, topics=asked(NAMES)).topics) == NAMES
    wait_until(lambda: not broker.services.large_batches._held_bytes, "the copy is given back")


def test_a_client_that_goes_away_takes_its_large_message_along(broker: Broker) -> None:
    gone = Wire(broker.bootstrap_servers)
    gone.send(ApiKey.METADATA, 9, topics=asked(NAMES))
    gone.close()
    with Wire(broker.bootstrap_servers) as other:
        assert other.call(ApiKey.METADATA, 9, topics=None).topics
    wait_until(lambda: not broker.services.large_batches._held_bytes, "the copy is given back")


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (1, struct.pack(">i", 60) + bytes(2) * 60),  # empty names
        (9, bytes([61]) + b"\x01\x00" * 60 + bytes(3) + b"\x00"),
    ],
)
def test_more_elements_than_any_client_needs_are_refused_before_they_take_memory(
    monkeypatch: pytest.MonkeyPatch, version: int, body: bytes
) -> None:
    assert len(read_request(ApiKey.METADATA, version, memoryview(body), 0).topics) == 60
    monkeypatch.setattr(protocol, "_ELEMENTS_MAX", 59)
    with pytest.raises(InvalidRequestError, match="more elements"):
        read_request(ApiKey.METADATA, version, memoryview(body), 0)


def test_elements_of_all_arrays_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = struct.pack(">h", 1) + b"t" + struct.pack(">i", 5) + struct.pack(">i", 7) * 5
    body = struct.pack(">i", 3) + topic * 3
    monkeypatch.setattr(protocol, "_ELEMENTS_MAX", 18)
    assert read_request(ApiKey.DESCRIBE_LOG_DIRS, 1, memoryview(body), 0)
    monkeypatch.setattr(protocol, "_ELEMENTS_MAX", 17)
    with pytest.raises(InvalidRequestError, match="more elements"):
        read_request(ApiKey.DESCRIBE_LOG_DIRS, 1, memoryview(body), 0)
