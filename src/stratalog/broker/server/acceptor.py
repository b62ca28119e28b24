"""Accept clients at all listeners, keep their connections, and share memory and turns among them."""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from operator import length_hint

from typing_extensions import Buffer

from stratalog.broker.access import GUARDS, guarded
from stratalog.broker.apis import load_apis
from stratalog.broker.security import Account, Peer, Principal
from stratalog.broker.server.closing_log import ClosingLog
from stratalog.broker.server.connection import Connection
from stratalog.broker.server.connection_limits import ConnectionLimits
from stratalog.broker.server.entrance import Entrance
from stratalog.broker.server.open_listeners import BoundListeners
from stratalog.broker.server.request_memory import Memory, RequestMemory, default_limit
from stratalog.broker.server.sasl_calls import SaslServer
from stratalog.broker.server.tls_connection import TlsConnection
from stratalog.broker.services import BrokerServices
from stratalog.util import give_back_heap, give_back_maps, memory_bytes_max

logger = logging.getLogger(__name__)

#: Where connections receive; pipelined small requests are parsed from here without a copy.
_SCRATCH_BYTES = 256 * 1024
#: Longest interval at which idle, gone and late connections are looked for.
_SWEEP_S_MAX = 5.0
#: How many of them to check in one turn of the loop.
_LOOKED_AT_A_TURN = 200
#: Smaller maps are unmapped on the loop's thread.
_UNMAPPED_BESIDE_BYTES = 1024 * 1024
#: How long a stop waits for requests that are being worked on.
_DRAIN_S = 5.0
#: Turns of the loop, of a few microseconds each, to poll before sleeping after a request. A client that sends one
#: request at a time sends the next within that, and waking a sleeping CPU would cost more than the whole request.
_LOOKS_BEFORE_SLEEP = 30


class Acceptor:
    """Accepts clients at every listener and keeps their connections. Belongs to the loop's thread."""

    def __init__(self, services: BrokerServices, opened: BoundListeners, loop: asyncio.AbstractEventLoop) -> None:
        config = services.config
        self.services = services
        access = services.access
        apis = load_apis() if services.cluster is None else services.cluster.apis(load_apis())
        self.apis = apis if access is None else guarded(apis, access, GUARDS)
        if access is not None:
            access.authorizer.on_change = self._forget_templates
        services.quotas.on_change = self._forget_templates
        self.accepted = services.quotas.accepted
        self.loop = loop
        self.request_bytes_max: int = config["socket.request.max.bytes"]
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))
        held_max: int = config["queued.max.request.bytes"]
        if held_max <= 0:
            held_max = default_limit(memory_bytes_max(), self.request_bytes_max)
        self.closings = ClosingLog(loop.time)
        self.memory = RequestMemory(held_max, loop.time, self._discard, self.closings)
        self.connections: set[Connection] = set()
        self._tls = services.settings.open_tls(opened.tls)
        self._sasl = {
            name: SaslServer(settings, self._account, services.clock.now_ms) for name, settings in opened.sasl.items()
        }
        names = tuple(each.listener.name for each in opened.all)
        self.limits = ConnectionLimits(lambda: services.config, names, opened.inter_broker.name, loop.time)
        self.accepted.open = self.limits.open
        idle_ms = config["connections.max.idle.ms"]
        self._idle_s = idle_ms / 1000 if idle_ms > 0 else math.inf
        self._in_line: deque[Callable[[], object]] = deque()
        self._unfinished: set[asyncio.Task[None]] = set()
        self._closed = False
        self._looks = 0
        self._awake = False
        self._sweeper: asyncio.TimerHandle | None = None
        # Kafka's default send buffer of 100 KB halves the CPU cost of a fetch: sendfile is expensive with a buffer that
        # the kernel grows to megabytes. For receiving, the kernel's own tuning is faster (benchmarks).
        buffers = [(socket.SO_SNDBUF, config["socket.send.buffer.bytes"])]
        if config.is_set("socket.receive.buffer.bytes"):
            buffers.append((socket.SO_RCVBUF, config["socket.receive.buffer.bytes"]))
        self.socket_options = [(option, size) for option, size in buffers if size > 0]
        self._entrances = [Entrance(self, each) for each in opened.all]

    def _forget_templates(self) -> None:
        """Parse the next request of each connection in full: rules or quotas have changed."""
        for connection in self.connections:
            connection.calls.forget_templates()

    def start(self) -> None:
        for entrance in self._entrances:
            entrance.accept_again()
        self._sweep()

    def close(self) -> None:
        """Stop listening, close every connection and cancel requests that wait."""
        self._closed = True
        for entrance in self._entrances:
            entrance.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self.connections):
            connection.close()

    async def drain(self) -> None:
        """Wait up to 5 s for requests whose clients have gone, then cancel them."""
        if self._unfinished:
            _, late = await asyncio.wait(self._unfinished, timeout=_DRAIN_S)
            for task in late:
                task.cancel()
        await asyncio.sleep(0)  # let cancelled requests end

    @property
    def connection_count(self) -> int:
        return len(self.connections)

    def let_in(self, sock: socket.socket, peer: Peer) -> None:
        name = peer.listener.name
        tls, sasl = self._tls.get(name), self._sasl.get(name)
        try:
            self.connections.add(
                Connection(self, sock, peer, sasl) if tls is None else TlsConnection(self, sock, peer, tls, sasl)
            )
        except Exception as error:
            sock.close()
            self.limits.give_back(name, peer.client_host)
            if not isinstance(error, OSError):  # an OSError: the client has gone already
                logger.exception("No connection could be made for %s; others are still accepted", peer.client_host)

    def _account(self, mechanism: str, name: str, is_token: bool) -> Account | None:
        """Return the account of a user name or token id given in SCRAM."""
        if is_token:
            return self.services.tokens.account(mechanism, name)
        credential = self.services.scram.get(mechanism, name)
        return None if credential is None else Account(credential, Principal("User", name))

    def throttle_address(self, address: str) -> int:
        return self.services.quotas.throttle_address(address)

    def make_room(self) -> bool:
        others = [each for each in self.connections if not self.limits.is_protected(each.peer.listener.name)]
        if not others:
            return False
        min(others, key=lambda each: each.active_at).close()
        return True

    def forget(self, connection: Connection) -> None:
        if connection in self.connections:
            self.connections.remove(connection)
            self.limits.give_back(connection.peer.listener.name, connection.peer.client_host)
        if not self._closed:
            for entrance in self._entrances:
                entrance.accept_again()

    def finish(self, task: asyncio.Task[None]) -> None:
        """Let a request finish although its client has gone."""
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)

    def _sweep(self) -> None:
        """Close idle and dead connections, and return unused memory to the system."""
        self._sweeper = self.loop.call_later(min(self._idle_s / 2, _SWEEP_S_MAX), self._sweep)
        self._look_at(iter(list(self.connections)))
        self.memory.trim()
        self.closings.say_the_rest()
        if self.memory.trims_heap() or self.services.large_batches.trims_heap():
            self.loop.run_in_executor(None, give_back_heap)

    def _look_at(self, connections: Iterator[Connection]) -> None:
        """Check some connections now and the others in the next turns: there may be tens of thousands."""
        oldest = self.loop.time() - self._idle_s
        for connection in islice(connections, _LOOKED_AT_A_TURN):
            since = connection.active_at if connection.outside_since is None else connection.outside_since
            if connection.is_idle and since < oldest:
                logger.debug("Closing the idle connection from %s", connection.peer.client_host)
                connection.close()
            elif connection.is_abandoned():
                connection.close()
            elif self.memory.is_late(connection.framing):
                self.closings.warn(
                    connection.peer.client_host, "others wait for the memory of its request, which does not arrive"
                )
                connection.close()
        if length_hint(connections) and not self._closed:
            self.loop.call_soon(self._look_at, connections)

    def _discard(self, buffers: list[Memory]) -> None:
        """Free memory on another thread: unmapping 100 MB takes 20 ms."""
        maps: list[Buffer] = [each for each in buffers if len(each) >= _UNMAPPED_BESIDE_BYTES]
        if maps and not self._closed:
            self.loop.run_in_executor(None, give_back_maps, maps)

    def give_turn(self, take_turn: Callable[[], object]) -> None:
        """Queue a connection that has more to do or took long before. One runs in each turn of the loop.

        So small requests are served first, however much work other connections have sent before.
        """
        self._in_line.append(take_turn)
        if len(self._in_line) == 1:
            self.loop.call_soon(self._next_in_line)

    def _next_in_line(self) -> None:
        take_turn = self._in_line[0]
        try:
            take_turn()
        finally:
            del self._in_line[0]
            if self._in_line:
                self.loop.call_soon(self._next_in_line)

    def stay_awake(self) -> None:
        """Poll for the next request a few times before the thread sleeps."""
        self._looks = _LOOKS_BEFORE_SLEEP
        if not self._awake:
            self._awake = True
            self.loop.call_soon(self._look_again)

    def _look_again(self) -> None:
        # A scheduled callback keeps the loop from blocking in its next poll.
        if self._looks and not self._closed:
            self._looks -= 1
            self.loop.call_soon(self._look_again)
        else:
            self._awake = False
