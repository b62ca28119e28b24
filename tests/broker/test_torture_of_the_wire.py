"""Requests of all kinds, cut at every byte and with each byte flipped, and clients that behave in no sensible way.

Invariant: a good client is answered at any time, the broker has as many connections afterwards as before, it logs no
error of its own, and no record is in a log twice.
"""

from __future__ import annotations

import contextlib
import gc
import random
import socket
import struct
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from tests.broker.frames import request_frame
from tests.broker.test_group_and_admin_versions import ASKED as GROUPS_AND_ADMIN, _fitting
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.apis import load_apis
from stratalog.broker.server.connection import Connection
from stratalog.broker.server.server import Broker
from stratalog.records.batch import iter_batches
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.wire.api_keys import ApiKey
from stratalog.wire.protocol import request_class

_PARTITION = {
    "partition": 0,
    "partition_index": 0,
    "partition_max_bytes": 100,
    "timestamp": -1,
    "leader_epoch": 0,
}
_TRANSACTION = {
    "transactional_id": "x",
    "v3_and_below_transactional_id": "x",
    "producer_id": 1,
    "group_id": "g",
}
#: One request of each API but Produce, which has tests of its own (`test_damaged_conversations`), and WriteTxnMarkers.
ASKED: dict[int, dict[str, Any]] = GROUPS_AND_ADMIN | {
    1: {"replica_id": -1, "max_bytes": 100, "topics": [{"topic": "t", "partitions": [_PARTITION]}]},
    2: {"replica_id": -1, "topics": [{"name": "t", "partitions": [_PARTITION]}]},
    3: {"topics": [{"name": "t"}]},
    18: {"client_software_name": "torture", "client_software_version": "1"},
    22: {"transactional_id": "x", "transaction_timeout": 1000},
    23: {"replica_id": -1, "topics": [{"topic": "t", "partitions": [_PARTITION]}]},
    24: _TRANSACTION | {"v3_and_below_topics": [{"name": "t", "partitions": (0,)}]},
    25: _TRANSACTION,
    26: _TRANSACTION,
    28: _TRANSACTION | {"topics": [{"name": "t", "partitions": [_PARTITION]}]},
    61: {"topics": [{"name": "t", "partition_indexes": (0,)}]},
    65: {"transactional_ids": ("x",)},
    66: {"state_filters": ("Ongoing",)},
}
VERSIONS = [
    (key, version)
    for key in sorted(ASKED)
    for version in range(load_apis()[key].min_version, load_apis()[key].max_version + 1)
]
NEWEST = sorted(dict(VERSIONS).items())
_number = count()
#: What a request may be at the most here, so that most damaged sizes are refused at once.
REQUEST_BYTES_MAX = 100_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    config = {"socket.request.max.bytes": REQUEST_BYTES_MAX, "group.initial.rebalance.delay.ms": 0}
    with Broker(data_dir=tmp_path_factory.mktemp("data"), config=config) as broker:
        broker.services.topics.create("t", 1)
        broker.services.topics.create("good", 1)
        yield broker


def connect(broker: Broker) -> socket.socket:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    sock = socket.create_connection((host, int(port)), timeout=30)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def end(sock: socket.socket) -> None:
    """Say that no more comes, and read until the broker has closed too."""
    with contextlib.suppress(OSError):  # the broker has closed it already
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(65_536):
            pass
    sock.close()


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def frame_of(key: int, version: int) -> bytes:
    cls = request_class(ApiKey(key), version)
    body = request_frame(ApiKey(key), version, _fitting(cls, ASKED[key]))
    return struct.pack(">i", len(body)) + body


def assert_serves(broker: Broker) -> None:
    """A good client appends, and its record is in the log once."""
    number = next(_number)
    now_ms = time.time_ns() // 1_000_000  # what is old goes by retention, in a run that takes longer than 30 s
    records = build_batch([Record(0, now_ms, None, b"%d" % number)])
    with Wire(broker.bootstrap_servers) as wire:
        topics = [{"name": "good", "partition_data": [{"index": 0, "records": records}]}]
        answer = wire.call(ApiKey.PRODUCE, 9, acks=-1, timeout=1000, topic_data=topics)
        assert int(answer.responses[0].partition_responses[0].error_code) == 0
    partition = broker.services.partition("good", 0)
    assert partition is not None
    data = partition.read(0, 10**9).slice
    assert data is not None
    values = [record.value for batch in iter_batches(data.read()) for record in batch.records()]
    assert values.count(b"%d" % number) == 1


def open_connections() -> int:
    gc.collect()
    return sum(isinstance(entry, Connection) and not entry.closed for entry in gc.get_objects())


def own_errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the broker logged of errors that are no client's."""
    return [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]


def torture(broker: Broker, key: int, version: int, step: int) -> None:
    frame = frame_of(key, version)
    for position in range(key % step, len(frame), step):
        sock = connect(broker)
        sock.sendall(frame[:position])
        if position % 2:
            end(sock)
        else:
            reset(sock)
        damaged = bytearray(frame)
        damaged[position] ^= 0xFF
        sock = connect(broker)
        with contextlib.suppress(OSError):
            sock.sendall(bytes(damaged) + frame)  # a request behind a broken one
        end(sock)


@pytest.mark.parametrize(("key", "version"), NEWEST)
def test_a_request_cut_or_flipped_anywhere_harms_no_other_client(
    broker: Broker, caplog: pytest.LogCaptureFixture, key: int, version: int
) -> None:
    torture(broker, key, version, 5)
    assert_serves(broker)
    assert own_errors(caplog) == []


@pytest.mark.soak
@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_a_request_cut_or_flipped_at_every_byte_harms_no_other_client(
    broker: Broker, caplog: pytest.LogCaptureFixture, key: int, version: int
) -> None:
    torture(broker, key, version, 1)
    assert_serves(broker)
    assert own_errors(caplog) == []


def test_random_bytes_harm_no_other_client(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    seed = 20_15
    chance = random.Random(seed)
    apis = list(NEWEST)
    for _ in range(300):
        key, version = chance.choice(apis)
        body = struct.pack(">hhi", key, version, 1) + chance.randbytes(chance.randrange(60))
        with connect(broker) as sock:
            with contextlib.suppress(OSError):
                sock.sendall(struct.pack(">i", len(body)) + body + chance.randbytes(chance.randrange(20)))
            end(sock)
    assert_serves(broker)
    assert own_errors(caplog) == [], f"seed {seed}"


@pytest.mark.parametrize(
    "opening", [b"\0\0\0\x0812345678", b"\0\0\0\4\0\3\0\1", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0"]
)
def test_an_opening_that_is_no_request_is_closed(broker: Broker, opening: bytes) -> None:
    sock = connect(broker)
    sock.sendall(opening)
    assert sock.recv(1) == b""
    sock.close()
    assert_serves(broker)


def test_clients_that_stop_half_way_cost_a_connection_and_nothing_else(broker: Broker) -> None:
    """Half a request each: a good client is served beside them, and nothing is left when they are gone."""
    before = open_connections()
    frame = frame_of(ApiKey.METADATA, 12)
    socks = [connect(broker) for _ in range(100)]
    for number, sock in enumerate(socks):
        sock.sendall(frame[: number % len(frame)])
    large = [connect(broker) for _ in range(20)]
    for sock in large:
        sock.sendall(struct.pack(">i", REQUEST_BYTES_MAX) + bytes(5000))
    assert_serves(broker)
    for number, sock in enumerate(socks + large):
        if number % 2:
            end(sock)
        else:
            reset(sock)
    wait_until(lambda: open_connections() <= before, "the connections to go")
    assert_serves(broker)


def test_a_client_that_reads_byte_by_byte_delays_no_other(broker: Broker) -> None:
    frame = frame_of(ApiKey.METADATA, 12)
    sock = connect(broker)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    sent = 0
    sock.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while sent < 200_000 * len(frame):
            sent += sock.send(frame * 100)
    sock.setblocking(True)
    for _ in range(20):
        assert len(sock.recv(1)) == 1
        assert_serves(broker)
    reset(sock)
