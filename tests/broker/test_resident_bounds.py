"""Resident memory of a broker whose clients do not read their answers: within what docs/security.md states."""

from __future__ import annotations

import socket
import struct
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from tests.support.killable_broker import KillableBroker
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.wire.api_keys import ApiKey

MIB = 1 << 20
LIMIT = 32 * MIB
#: As docs/security.md states: of the limit, and of each connection.
FACTOR = 1.25
CONNECTION_BYTES = 5 * 1024
CLIENTS = 1500
METADATA = struct.pack(">ihhih", 14, ApiKey.METADATA, 1, 1, -1) + struct.pack(">i", -1)


def resident_bytes(broker: KillableBroker) -> int:
    return int(Path(f"/proc/{broker.process.pid}/statm").read_text().split()[1]) * 4096


def deaf(address: tuple[str, int]) -> socket.socket:
    """Return a client that has asked for more than its socket takes, and reads nothing."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(60)
    sock.connect(address)
    sock.setblocking(False)
    with suppress(OSError):
        sock.send(METADATA * 200)
    return sock


def open_files(broker: KillableBroker) -> int:
    return len(list(Path(f"/proc/{broker.process.pid}/fd").iterdir()))


@pytest.mark.soak
def test_answers_that_are_not_read_stay_within_the_stated_bound(tmp_path: Path) -> None:
    settings = {"queued.max.request.bytes": str(LIMIT), "socket.request.max.bytes": str(MIB)}
    with KillableBroker(tmp_path, settings=settings) as broker, ExitStack() as open_:
        with Wire(broker.address) as client:
            topics = [{"name": f"topic-{n}", "num_partitions": 3, "replication_factor": 1} for n in range(300)]
            client.call(ApiKey.CREATE_TOPICS, 5, topics=topics, timeout=60_000)
            for _ in range(50):
                client.call(ApiKey.METADATA, 1, topics=None)
        host, _, port = broker.address.rpartition(":")
        before = most = resident_bytes(broker)
        files = open_files(broker)
        socks = []
        for _ in range(CLIENTS):
            socks.append(open_.enter_context(deaf((host, int(port)))))
            most = max(most, resident_bytes(broker))
            time.sleep(0.005)  # a pace, no wait: the broker is to take them in while they come

        def closed() -> int:
            """A client that reads nothing does not notice: the end of the connection waits behind its answers."""
            return CLIENTS - (open_files(broker) - files)

        def some_are_closed() -> bool:
            nonlocal most
            most = max(most, resident_bytes(broker))
            return closed() > CLIENTS // 30

        wait_until(some_are_closed, "the limit is reached, and clients that read nothing are closed", seconds=120)
        held = most - before
        print(f"{held / LIMIT:.2f} of the limit, {closed()} of {CLIENTS} closed")
        assert held > LIMIT / 2, "too little was held to show a bound"
        assert held < FACTOR * LIMIT + CLIENTS * CONNECTION_BYTES
        with Wire(broker.address) as client:
            assert len(client.call(ApiKey.METADATA, 1, topics=None).topics) == 300
        for sock in socks:
            sock.close()
        wait_until(lambda: resident_bytes(broker) - before < LIMIT // 2, "memory is given back", seconds=60)
