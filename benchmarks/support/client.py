"""One client for every broker: blocking socket, ready-made requests, answers checked outside the measured time.

It does as little as can be done, so that what is measured is the broker.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from dataclasses import dataclass

import numpy as np

from benchmarks.support import wire

TIMEOUT_S = 120.0
RECEIVE_BYTES = 1 << 20


class BrokerError(Exception):
    """The broker gave an error code or an answer that is not the right one."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """`bytes` are those of whole batches; `requests` is how many fetches it took."""

    bytes: int
    requests: int
    seconds: float


class Client:
    """One connection, within TLS when there is a context for it. Not thread-safe."""

    def __init__(self, address: tuple[str, int], tls: ssl.SSLContext | None = None) -> None:
        self._socket = socket.create_connection(address, TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=address[0])

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_for_partition(self, topic: str, partition: int = 0) -> None:
        """Return once the broker leads this partition: a moment after the topic's creation was answered."""
        deadline = time.monotonic() + TIMEOUT_S
        request = wire.fetch_request(topic, 0, partition=partition, partition_bytes_max=1, bytes_max=1, wait_ms_max=0)
        while True:
            self._socket.sendall(request)
            size = bytearray(4)
            self._receive_into(memoryview(size))
            answer = bytearray(int.from_bytes(size, "big"))
            self._receive_into(memoryview(answer))
            head = wire.parse_fetch_head(topic, size + answer)
            if not head.error_code:
                return
            if time.monotonic() > deadline:
                raise BrokerError(f"topic {topic} is not served: error {head.error_code}")
            time.sleep(0.01)

    def produce_pipelined(self, topic: str, request: bytes, count: int, *, window: int, records: int) -> float:
        """Send `request` (of `records` records) `count` times with up to `window` unanswered; seconds that it took.

        Small requests leave in bunches of half a window, in one system call each. The topic must be empty.
        """
        layout = wire.ProduceResponseLayout.of(topic)
        bunch = max(1, min(window // 2, 65_536 // len(request)))
        many = request * bunch
        answers = bytearray(count * layout.size + RECEIVE_BYTES)
        view = memoryview(answers)
        sent = received_bytes = 0
        start = time.perf_counter()
        while received_bytes < count * layout.size:
            unanswered = sent - received_bytes // layout.size
            if sent < count and unanswered + bunch <= window:
                step = min(bunch, count - sent)
                self._socket.sendall(many if step == bunch else request * step)
                sent += step
            else:
                received_bytes += self._receive_some(view[received_bytes:])
        seconds = time.perf_counter() - start
        _check_produced(answers, layout, count, records)
        return seconds

    def produce_one_at_a_time(self, topic: str, request: bytes, count: int) -> list[float]:
        """Send `request`, wait for its answer, again: seconds of each. The topic must be empty, a batch one record."""
        layout = wire.ProduceResponseLayout.of(topic)
        answers = bytearray(count * layout.size)
        view = memoryview(answers)
        taken = []
        for index in range(count):
            answer = view[index * layout.size : (index + 1) * layout.size]
            start = time.perf_counter()
            self._socket.sendall(request)
            self._receive_into(answer)
            taken.append(time.perf_counter() - start)
        _check_produced(answers, layout, count, 1)
        return taken

    def exchange(self, request: bytes, answer_bytes: int) -> bytes:
        """Send a request and wait for its answer of a known size, unchecked."""
        answer = bytearray(answer_bytes)
        self._socket.sendall(request)
        self._receive_into(memoryview(answer))
        return bytes(answer)

    def fetch(self, topic: str, offset: int, *, partition_bytes_max: int) -> bytes:
        """The records that one fetch at `offset` brings. BrokerError for an error code."""
        self._socket.sendall(
            wire.fetch_request(
                topic,
                offset,
                partition_bytes_max=partition_bytes_max,
                bytes_max=partition_bytes_max,
                wait_ms_max=30_000,
            )
        )
        size = bytearray(4)
        self._receive_into(memoryview(size))
        answer = bytearray(int.from_bytes(size, "big"))
        self._receive_into(memoryview(answer))
        head = wire.parse_fetch_head(topic, size + answer)
        if head.error_code:
            raise BrokerError(f"fetch at {offset}: error {head.error_code}")
        at = head.records_at - 4
        return bytes(answer[at : at + head.records_size])

    def fetch_all(self, topic: str, *, end_offset: int, batch: bytes, partition_bytes_max: int, keep: bool) -> Fetched:
        """Fetch from offset 0 to `end_offset`, one request after the other, of a topic that holds only copies of
        `batch`.

        With `keep` every byte is compared with what was produced (not for a measurement).
        """
        records = _record_count(batch)
        buffer = bytearray(partition_bytes_max + len(batch) + 4096)
        view = memoryview(buffer)
        offset = total = requests = 0
        start = time.perf_counter()
        while offset < end_offset:
            self._socket.sendall(
                wire.fetch_request(topic, offset, partition_bytes_max=partition_bytes_max, bytes_max=len(buffer))
            )
            self._receive_into(view[:4])
            size = int.from_bytes(view[:4], "big")
            self._receive_into(view[4 : 4 + size])
            head = wire.parse_fetch_head(topic, buffer)
            batches = head.records_size // len(batch)
            if head.error_code or not batches:
                raise BrokerError(f"fetch at {offset}: error {head.error_code}, {head.records_size} bytes of records")
            if keep:
                _check_fetched(view[head.records_at : head.records_at + batches * len(batch)], batch, offset, records)
            requests += 1
            offset += batches * records
            total += batches * len(batch)
        return Fetched(total, requests, time.perf_counter() - start)

    def _receive_into(self, view: memoryview) -> None:
        while view:
            view = view[self._receive_some(view) :]

    def _receive_some(self, view: memoryview) -> int:
        count = self._socket.recv_into(view)
        if not count:
            raise BrokerError("the broker closed the connection")
        return count


def _check_produced(answers: bytearray, layout: wire.ProduceResponseLayout, count: int, records: int) -> None:
    rows = np.frombuffer(answers, np.uint8, count * layout.size).reshape(count, layout.size)

    def field(at: int, dtype: str) -> np.ndarray:
        width = np.dtype(dtype).itemsize
        return np.ascontiguousarray(rows[:, at : at + width]).view(dtype)[:, 0]

    if (field(0, ">i4") != layout.size - 4).any():
        raise BrokerError(f"a produce response is not of {layout.size} bytes: {rows[0].tobytes().hex()}")
    codes = field(layout.error_code_at, ">i2")
    if codes.any():
        raise BrokerError(f"produce failed with error code {codes[codes != 0][0]}")
    if (field(layout.base_offset_at, ">i8") != np.arange(count) * records).any():
        raise BrokerError("base offsets in the produce responses do not follow each other")


def _check_fetched(fetched: memoryview, batch: bytes, offset: int, records: int) -> None:
    for start in range(0, len(fetched), len(batch)):
        one = fetched[start : start + len(batch)]
        (base_offset,) = struct.unpack_from(">q", one)
        # the broker assigns base offset and leader epoch; all else is as it was sent
        if base_offset != offset or one[8:12] != batch[8:12] or one[16:] != batch[16:]:
            raise BrokerError(f"the batch fetched at offset {offset} is not the one that was produced")
        offset += records


def _record_count(batch: bytes) -> int:
    return int.from_bytes(batch[57:61], "big")
