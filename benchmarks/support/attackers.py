"""Clients that mean no good, in a process of their own: what one of them can make the broker keep.

    python -m benchmarks.support.attackers NAME HOST:PORT COUNT

Prints a line when it begins and goes on until SIGTERM, or until it has made all that it makes; then prints how many it
did. It may be stopped in between (SIGSTOP): what it has missed then is not made up for.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

from tests.support.wire import Wire

from benchmarks.support import wire
from stratalog.broker.apis import load_apis
from stratalog.records import Codec, Record, build_batch
from stratalog.wire import ApiKey

MIB = 1 << 20
TIMESTAMP_MS = 1_700_000_000_000
#: An array of 2^31 - 1 elements in either encoding, as the next four or five bytes.
LONG_ARRAYS = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\x80\x00\x00\x00")

#: How much of what a pace has missed is made up for.
_CAUGHT_UP_S = 0.05

Attack = Callable[["Attacker"], None]


class Attacker:
    """The address, and how much of it."""

    def __init__(self, address: str, count: int) -> None:
        host, _, port = address.rpartition(":")
        self.address = address
        self._where = host, int(port)
        self.count = count
        self.done = 0

    def begin(self) -> None:
        """Say that all is prepared."""
        print("begun", flush=True)

    def connect(self) -> socket.socket:
        sock = socket.create_connection(self._where, timeout=60)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def turns(self, a_second: float) -> Iterator[int]:
        """Numbers at a pace, for ever."""
        due = time.monotonic()
        for number in itertools.count():
            due = max(due + 1 / a_second, time.monotonic() - _CAUGHT_UP_S)
            time.sleep(max(0.0, due - time.monotonic()))
            self.done += 1
            yield number

    def hold(self) -> None:
        """Keep what there is."""
        while True:
            signal.pause()


def deaf(attacker: Attacker) -> None:
    """Send requests of which the answers are long, and read none."""
    request = struct.pack(">ihhih", 14, ApiKey.METADATA, 1, 1, -1) + struct.pack(">i", -1)
    socks = []
    for _ in range(attacker.count):
        sock = attacker.connect()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        with contextlib.suppress(OSError):
            sock.send(request * 200)
        socks.append(sock)
        attacker.done += 1
        time.sleep(0.008)
    attacker.hold()


def slow_loris(attacker: Attacker) -> None:
    """Send requests of 100 KB a byte at a time, on many connections."""
    socks = []
    for _ in range(attacker.count):
        time.sleep(0.002)
        socks.append(attacker.connect())
    for sock in socks:
        sock.sendall(struct.pack(">ihhih", 100_000, ApiKey.PRODUCE, 9, 1, -1))
    for number in attacker.turns(1000):
        with contextlib.suppress(OSError):
            socks[number % len(socks)].send(b"\0")


def frames_of_2_gb(attacker: Attacker) -> None:
    """Announce 2 GB, and be closed; announce what is just allowed, send 64 KB of it, and stay."""
    stay: list[socket.socket] = []
    for number in attacker.turns(400):
        sock = attacker.connect()
        with contextlib.suppress(OSError):
            if number % 2 and len(stay) < attacker.count:
                sock.sendall(struct.pack(">ihhih", 100 * MIB, ApiKey.PRODUCE, 9, 1, -1) + bytes(64_000))
                stay.append(sock)
            else:
                sock.sendall(b"\x7f\xff\xff\xff" + bytes(10))
                sock.close()


def large_requests_that_do_not_end(attacker: Attacker) -> None:
    """Send 90 of 100 MB on each of several connections."""
    frame = struct.pack(">ihhih", 100 * MIB, ApiKey.PRODUCE, 9, 1, -1) + bytes(90 * MIB)
    socks = [attacker.connect() for _ in range(40)]
    left = {sock: memoryview(frame) for sock in socks}
    for sock in socks:
        sock.setblocking(False)
    for _ in attacker.turns(200):
        for sock, rest in list(left.items()):
            try:
                left[sock] = rest[sock.send(rest[:MIB]) :]
            except BlockingIOError:
                continue
            except OSError:  # closed, as it should be
                del left[sock]


def openings_of_8_bytes(attacker: Attacker) -> None:
    """Connect, send eight bytes that are no request, and either leave or stay."""
    stay: list[socket.socket] = []
    for number in attacker.turns(500):
        sock = attacker.connect()
        with contextlib.suppress(OSError):
            sock.sendall(b"\0\0\0\x0412\0\x01" if number % 2 else b"\0\0\1\x00\0\3\0\1")
        if number % 2 or len(stay) > attacker.count:
            sock.close()
        else:
            stay.append(sock)


def bombs(attacker: Attacker, codec: Codec) -> None:
    """Produce batches of zeros: of 60 MB, which is allowed, and of 300 MB, which is not."""
    requests = []
    for size in (60 * MIB, 300 * MIB):
        data = build_batch([Record(0, TIMESTAMP_MS, None, bytes(size))], codec=codec)
        requests.append(wire.produce_request("attacked", data))
    attacker.begin()
    for number in attacker.turns(2):
        request = requests[number % 2]
        with contextlib.suppress(OSError), attacker.connect() as sock:
            sock.sendall(request)
            sock.recv(4096)


def long_arrays(attacker: Attacker) -> None:
    """Announce 2^31 elements at every place of a request of every API in every version."""
    kinds = [
        (key, version, api.flexible_from)
        for key, api in sorted(load_apis().items())
        for version in range(api.min_version, api.max_version + 1)
    ]
    every = itertools.cycle(itertools.product(range(13), LONG_ARRAYS, kinds))
    for _ in attacker.turns(1000):
        zeros, array, (key, version, flexible_from) = next(every)
        body = struct.pack(">hhih", key, version, 1, -1) + bytes(version >= flexible_from) + bytes(zeros) + array * 4
        with contextlib.suppress(OSError), attacker.connect() as sock:
            sock.sendall(struct.pack(">i", len(body)) + body)
            sock.shutdown(socket.SHUT_WR)
            sock.recv(4096)


def _pipelined(attacker: Attacker, requests: Iterator[tuple[ApiKey, int, dict[str, object]]]) -> None:
    with Wire(attacker.address) as client:
        waiting: list[tuple[ApiKey, int]] = []
        for key, version, values in requests:
            client.send(key, version, **values)
            waiting.append((key, version))
            if len(waiting) == 50:
                for _ in waiting:
                    client.receive_bytes()
                attacker.done += len(waiting)
                waiting.clear()
        for _ in waiting:
            client.receive_bytes()
        attacker.done += len(waiting)


def groups(attacker: Attacker) -> None:
    """Commit an offset in each of so many groups."""
    topics = [{"name": "attacked", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
    _pipelined(
        attacker,
        (
            (ApiKey.OFFSET_COMMIT, 7, {"group_id": f"group-{n}", "generation_id_or_member_epoch": -1, "topics": topics})
            for n in range(attacker.count)
        ),
    )


def producer_ids(attacker: Attacker) -> None:
    """Produce as so many idempotent producers."""
    with Wire(attacker.address) as client:
        first = int(
            client.call(ApiKey.INIT_PRODUCER_ID, 1, transactional_id=None, transaction_timeout=60_000).producer_id
        )

    def requests() -> Iterator[tuple[ApiKey, int, dict[str, object]]]:
        for n in range(attacker.count):
            record = Record(0, TIMESTAMP_MS, None, b"x")
            data = build_batch([record], producer_id=first + n, producer_epoch=0, base_sequence=0)
            part = [{"index": 0, "records": data}]
            topics = [{"name": "attacked", "partition_data": part}]
            yield ApiKey.PRODUCE, 9, {"acks": -1, "timeout": 30_000, "topic_data": topics}

    _pipelined(attacker, requests())


def transactional_ids(attacker: Attacker) -> None:
    """Ask for producer ids under so many names."""
    with Wire(attacker.address) as client:
        found = {"key": "name-0", "key_type": 1}
        while int(client.call(ApiKey.FIND_COORDINATOR, 1, **found).error_code):
            time.sleep(0.1)
    _pipelined(
        attacker,
        (
            (ApiKey.INIT_PRODUCER_ID, 1, {"transactional_id": f"name-{n}", "transaction_timeout": 60_000})
            for n in range(attacker.count)
        ),
    )


def topics(attacker: Attacker) -> None:
    """Create so many topics, a hundred in a request."""
    with Wire(attacker.address, timeout_s=600) as client:
        for begin in range(0, attacker.count, 100):
            wanted = [
                {"name": f"made-up-{begin + n}", "num_partitions": 1, "replication_factor": 1} for n in range(100)
            ]
            client.call(ApiKey.CREATE_TOPICS, 5, topics=wanted, timeout=600_000)
            attacker.done += 100


ATTACKS: dict[str, Attack] = {
    "deaf": deaf,
    "slow-loris": slow_loris,
    "2-gb-frames": frames_of_2_gb,
    "requests-without-end": large_requests_that_do_not_end,
    "8-byte-openings": openings_of_8_bytes,
    **{f"bombs-{codec.name.lower()}": partial(bombs, codec=codec) for codec in Codec if codec},
    "long-arrays": long_arrays,
    "groups": groups,
    "producer-ids": producer_ids,
    "transactional-ids": transactional_ids,
    "topics": topics,
}
#: Those that have something to prepare, and say themselves when they begin.
PREPARED = frozenset(name for name in ATTACKS if name.startswith("bombs"))
#: Those that leave something behind, as they should: their state is of so many bytes for each.
KEEPERS = frozenset({"groups", "producer-ids", "transactional-ids", "topics"})


def main() -> None:
    name, address, count = sys.argv[1:]
    attacker = Attacker(address, int(count))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    if name not in PREPARED:
        attacker.begin()
    try:
        ATTACKS[name](attacker)
    finally:
        print(attacker.done, flush=True)


if __name__ == "__main__":
    main()
