"""Many producers from one thread: each a connection with ready-made requests, of which some are unanswered."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.support import wire
from benchmarks.support.client import TIMEOUT_S, BrokerError

_RECEIVE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Target:
    """Where a producer sends to: the leader's address and a ready-made request of one batch."""

    address: tuple[str, int]
    topic: str
    request: bytes


@dataclass(slots=True)
class _Producer:
    connection: socket.socket
    target: Target
    layout: wire.ProduceResponseLayout
    sent: int = 0
    answers: bytearray = field(default_factory=bytearray)

    @property
    def answered(self) -> int:
        return len(self.answers) // self.layout.size

    def send_up_to(self, count: int, window: int) -> None:
        """Send what may be sent now. Requests are small and few: the kernel takes them at once."""
        free = min(count, self.answered + window) - self.sent
        if free > 0:
            self.connection.sendall(self.target.request * free)
            self.sent += free

    def check(self, count: int) -> None:
        """BrokerError unless every answer is one, and none of them an error."""
        size, at = self.layout.size, self.layout.error_code_at
        for answer in (self.answers[number * size : (number + 1) * size] for number in range(count)):
            if int.from_bytes(answer[:4], "big") != size - 4:
                raise BrokerError(f"a produce response is not of {size} bytes: {answer.hex()}")
            if code := int.from_bytes(answer[at : at + 2], "big"):
                raise BrokerError(f"produce failed with error code {code}")


def produce_together(targets: Sequence[Target], count: int, window: int) -> float:
    """Send each producer's request `count` times, `window` of them unanswered at most; seconds that all took."""
    producers = [_connect(target) for target in targets]
    try:
        with selectors.DefaultSelector() as selector:
            for each in producers:
                selector.register(each.connection, selectors.EVENT_READ, each)
            begun = time.perf_counter()
            for each in producers:
                each.send_up_to(count, window)
            left = len(producers)
            while left:
                ready = selector.select(TIMEOUT_S)
                if not ready:
                    raise BrokerError(f"no answer within {TIMEOUT_S:.0f} s")
                for key, _ in ready:
                    producer: _Producer = key.data
                    received = producer.connection.recv(_RECEIVE_BYTES)
                    if not received:
                        raise BrokerError("the broker closed the connection")
                    producer.answers += received
                    if producer.answered >= count:
                        selector.unregister(producer.connection)
                        left -= 1
                    else:
                        producer.send_up_to(count, window)
            seconds = time.perf_counter() - begun
        for each in producers:
            each.check(count)
        return seconds
    finally:
        for each in producers:
            each.connection.close()


def _connect(target: Target) -> _Producer:
    connection = socket.create_connection(target.address, TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return _Producer(connection, target, wire.ProduceResponseLayout.of(target.topic))
