"""The listening socket and everybody who came in by it."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import socket
from typing import Any

from stratalog.broker.apis import load_apis
from stratalog.broker.security import Peer
from stratalog.broker.server.connection import Connection
from stratalog.broker.services import BrokerServices
from stratalog.util import descriptors_max

logger = logging.getLogger(__name__)

#: Where connections receive; pipelined small requests are parsed from here without a copy.
_SCRATCH_BYTES = 256 * 1024
#: Buffers of large requests that are kept for the next ones; smaller ones are not worth it.
_POOL_BYTES_MAX = 32 * 1024 * 1024
_POOLED_BYTES_MIN = 64 * 1024
#: How often, at the least, connections are looked at that say nothing by themselves.
_SWEEP_S_MAX = 5.0
#: How long a stop waits for requests that are being worked on.
_DRAIN_S = 5.0
#: Wait before accepting again when the process is out of file descriptors.
_ACCEPT_PAUSE_S = 1.0
_SHORTAGE_TOLD_EVERY_S = 60.0
#: That part of all descriptors is for files: connections do not take the last ones, without which no log can roll.
_SHARE_FOR_FILES = 16
_NO_DESCRIPTOR_ERRNOS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
#: Turns of the loop, of a few microseconds each, in which it does not sleep after a request. A client that sends one at
#: a time has its next one ready within that, and waking a sleeping CPU would cost more than the whole request.
_LOOKS_BEFORE_SLEEP = 30


class Acceptor:
    """Accepts clients on a socket and keeps their connections. Belongs to the loop's thread."""

    def __init__(self, services: BrokerServices, listening: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        config = services.config
        self.services = services
        self.apis = load_apis()
        self.loop = loop
        self.request_bytes_max: int = config["socket.request.max.bytes"]
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self.connections: set[Connection] = set()
        self._listening = listening
        descriptors = descriptors_max()
        self._descriptor_max = None if descriptors is None else descriptors - descriptors // _SHARE_FOR_FILES
        self._shortage_told_at = -_SHORTAGE_TOLD_EVERY_S
        idle_ms = config["connections.max.idle.ms"]
        self._idle_s = idle_ms / 1000 if idle_ms > 0 else math.inf
        self._buffers: list[bytearray] = []
        self._buffers_bytes = 0
        self._buffers_taken = False
        self._unfinished: set[asyncio.Task[None]] = set()
        self._accepting = False
        self._closed = False
        self._looks = 0
        self._awake = False
        self._sweeper: asyncio.TimerHandle | None = None
        # Kafka's default of 100 KB to send halves the CPU that a fetch costs: sendfile into a buffer that the kernel
        # lets grow to megabytes is dear. For receiving, the kernel's own tuning is the better of the two (benchmarks).
        buffers = [(socket.SO_SNDBUF, config["socket.send.buffer.bytes"])]
        if config.is_set("socket.receive.buffer.bytes"):
            buffers.append((socket.SO_RCVBUF, config["socket.receive.buffer.bytes"]))
        self._socket_options = [(option, size) for option, size in buffers if size > 0]

    def start(self) -> None:
        self._accept_again()
        self._sweep()

    def close(self) -> None:
        """Stop listening and close every connection; what they wait for is cancelled."""
        self._closed = True
        if self._accepting:
            self.loop.remove_reader(self._listening.fileno())
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._listening.close()
        for connection in list(self.connections):
            connection.close()

    async def drain(self) -> None:
        """Let the requests end whose clients have gone.

        After a while they are cancelled: a broker that stops has to.
        """
        if self._unfinished:
            _, late = await asyncio.wait(self._unfinished, timeout=_DRAIN_S)
            for task in late:
                task.cancel()
        await asyncio.sleep(0)  # let cancelled requests end

    # --- connections --------------------------------------------------------------------------------------------------

    def _accept_again(self) -> None:
        if not self._accepting and not self._closed:
            self._accepting = True
            self.loop.add_reader(self._listening.fileno(), self._on_acceptable)

    def _pause_accepting(self) -> None:
        if self._accepting:
            self._accepting = False
            self.loop.remove_reader(self._listening.fileno())

    def _on_acceptable(self) -> None:
        while True:
            if len(self.connections) >= self.services.config["max.connections"]:
                self._pause_accepting()  # `forget` goes on
                return
            try:
                sock, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_DESCRIPTOR_ERRNOS:
                    raise
                self._wait_for_descriptors(error.strerror)
                return
            # A new descriptor is the lowest one that is free.
            if self._descriptor_max is not None and sock.fileno() >= self._descriptor_max:
                sock.close()
                self._wait_for_descriptors("the last file descriptors are for logs")
                return
            self._connect(sock, address)

    def _wait_for_descriptors(self, why: str | None) -> None:
        now = self.loop.time()
        if now >= self._shortage_told_at + _SHORTAGE_TOLD_EVERY_S:
            self._shortage_told_at = now
            logger.error(
                "No connection can be accepted beside %d others: %s; raise the limit of open files (ulimit -n)",
                len(self.connections),
                why,
            )
        self._pause_accepting()
        self.loop.call_later(_ACCEPT_PAUSE_S, self._accept_again)

    def _connect(self, sock: socket.socket, address: Any) -> None:
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in self._socket_options:
                sock.setsockopt(socket.SOL_SOCKET, option, value)
            local_host = sock.getsockname()[0]
        except OSError:  # gone already
            sock.close()
            return
        self.connections.add(Connection(self, sock, Peer(self.services.listener, address[0], local_host)))

    def forget(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._accept_again()

    def finish(self, task: asyncio.Task[None]) -> None:
        """Let a request whose client has gone run to its end."""
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)

    def _sweep(self) -> None:
        """Close what has been idle for too long and what was left, and give memory back that is not used."""
        self._sweeper = self.loop.call_later(min(self._idle_s / 2, _SWEEP_S_MAX), self._sweep)
        oldest = self.loop.time() - self._idle_s
        for connection in list(self.connections):
            if connection.is_idle and connection.active_at < oldest:
                logger.debug("Closing the idle connection from %s", connection.peer.client_host)
                connection.close()
            elif connection.is_abandoned():
                connection.close()
        if not self._buffers_taken:
            self._buffers.clear()
            self._buffers_bytes = 0
        self._buffers_taken = False

    # --- staying awake ------------------------------------------------------------------------------------------------

    def stay_awake(self) -> None:
        """Look for the next request a few times before the thread goes to sleep."""
        self._looks = _LOOKS_BEFORE_SLEEP
        if not self._awake:
            self._awake = True
            self.loop.call_soon(self._look_again)

    def _look_again(self) -> None:
        # Whatever is scheduled for the next turn keeps the loop from waiting in its turn's poll.
        if self._looks and not self._closed:
            self._looks -= 1
            self.loop.call_soon(self._look_again)
        else:
            self._awake = False

    # --- buffers ------------------------------------------------------------------------------------------------------

    def take_buffer(self, size: int, wanted: int) -> bytearray:
        """Return a buffer with anything in it.

        One that is kept and has at least `wanted` bytes, else of at least `size`.
        """
        self._buffers_taken = True
        for index, buffer in enumerate(self._buffers):
            if len(buffer) >= wanted:
                del self._buffers[index]
                self._buffers_bytes -= len(buffer)
                return buffer
        return bytearray(1 << (size - 1).bit_length())

    def give_buffer(self, buffer: bytearray) -> None:
        if len(buffer) >= _POOLED_BYTES_MIN and self._buffers_bytes + len(buffer) <= _POOL_BYTES_MAX:
            self._buffers.append(buffer)
            self._buffers.sort(key=len)
            self._buffers_bytes += len(buffer)
