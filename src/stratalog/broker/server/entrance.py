"""Accept the clients of one listener, within the limits of connections and file descriptors."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import socket
from typing import Any, Final, Protocol

from stratalog.broker.quotas import AcceptedConnections
from stratalog.broker.security import Peer
from stratalog.broker.server.connection_limits import ConnectionLimits
from stratalog.broker.server.open_listeners import OpenListener
from stratalog.util import descriptors_max

logger = logging.getLogger(__name__)

#: Wait before accepting again when the process is out of file descriptors.
_ACCEPT_PAUSE_S: Final = 1.0
_SHORTAGE_TOLD_EVERY_S: Final = 60.0
#: Sockets of addresses above their creation quota that are kept open, unserved; more are closed at once.
_HELD_MAX: Final = 1000
#: One in so many descriptors is reserved for files: without them no log can roll.
_SHARE_FOR_FILES: Final = 16
_NO_DESCRIPTOR_ERRNOS: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
#: Prefix of an IPv4 client's address on an IPv6 socket.
_IPV4_MAPPED: Final = "::ffff:"


class House(Protocol):
    """The server, as an entrance needs it."""

    loop: asyncio.AbstractEventLoop
    limits: ConnectionLimits
    #: Options for the sockets of clients, all at the level of sockets.
    socket_options: list[tuple[int, int]]

    def let_in(self, sock: socket.socket, peer: Peer) -> None:
        """Serve a client whose connection has been counted."""
        ...

    #: For metrics.
    accepted: AcceptedConnections

    def throttle_address(self, address: str) -> int:
        """Count a new connection; return the throttle time in ms after which it is closed, 0 if it is accepted."""
        ...

    def make_room(self) -> bool:
        """Close the longest idle connection of another listener; False when there is none."""
        ...

    @property
    def connection_count(self) -> int: ...


#: Connections accepted in one turn of the loop, which takes about a millisecond.
_ACCEPTED_A_TURN: Final = 16


class Entrance:
    """Accepts the clients of one listener. Belongs to the loop's thread."""

    def __init__(self, house: House, opened: OpenListener) -> None:
        self.listener = opened.listener
        self._house = house
        self._socket = opened.socket
        descriptors = descriptors_max()
        self._descriptor_max = None if descriptors is None else descriptors - descriptors // _SHARE_FOR_FILES
        self._shortage_told_at = -_SHORTAGE_TOLD_EVERY_S
        #: Sockets of addresses above their creation quota, until they are closed.
        self._held: set[socket.socket] = set()
        self._accepting = False
        self._closed = False

    def accept_again(self) -> None:
        """Resume accepting, until a limit is reached."""
        if not self._accepting and not self._closed:
            self._accepting = True
            self._house.loop.add_reader(self._socket.fileno(), self._on_acceptable)

    def close(self) -> None:
        """Stop listening."""
        self._pause()
        self._closed = True
        self._socket.close()
        for sock in list(self._held):
            self._release(sock)

    def _pause(self) -> None:
        if self._accepting:
            self._accepting = False
            self._house.loop.remove_reader(self._socket.fileno())

    def _pause_for(self, seconds: float) -> None:
        self._pause()
        self._house.loop.call_later(seconds, self.accept_again)

    def _on_acceptable(self) -> None:
        house, name = self._house, self.listener.name
        limits = house.limits
        for _ in range(_ACCEPTED_A_TURN):
            if not limits.has_room(name):
                self._pause()  # resumed when a connection ends
                return
            if wait_s := limits.wait_s(name):
                house.accepted.throttled(name, math.ceil(wait_s * 1000))
                self._pause_for(wait_s)
                return
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_DESCRIPTOR_ERRNOS:
                    raise
                self._wait_for_descriptors(error.strerror)
                return
            # A new descriptor is always the lowest free one.
            if self._descriptor_max is not None and sock.fileno() >= self._descriptor_max:
                sock.close()
                self._wait_for_descriptors("the last file descriptors are reserved for logs")
                return
            self._connect(sock, address)

    def _wait_for_descriptors(self, why: str | None) -> None:
        now = self._house.loop.time()
        if now >= self._shortage_told_at + _SHORTAGE_TOLD_EVERY_S:
            self._shortage_told_at = now
            logger.error(
                "No connection can be accepted besides %d others: %s; raise the limit of open files (ulimit -n)",
                self._house.connection_count,
                why,
            )
        self._pause_for(_ACCEPT_PAUSE_S)

    def _connect(self, sock: socket.socket, address: Any) -> None:
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in self._house.socket_options:
                sock.setsockopt(socket.SOL_SOCKET, option, value)
            local_host = _as_ipv4(sock.getsockname()[0])
        except OSError:  # gone already
            sock.close()
            return
        client_host = _as_ipv4(address[0])
        limits, name = self._house.limits, self.listener.name
        self._house.accepted.accepted(name)
        throttle_ms = self._house.throttle_address(client_host)
        if throttle_ms:
            self._house.accepted.throttled_address(name, throttle_ms)
            limits.count_accepted(name)
            self._hold(sock, client_host, throttle_ms)
            return
        if limits.is_protected(name) and limits.is_full:
            self._house.make_room()
        if not limits.take(name, client_host):
            logger.info("Refusing a connection from %s: it has max.connections.per.ip connections", client_host)
            sock.close()
            return
        self._house.let_in(sock, Peer(self.listener, client_host, local_host, client_port=address[1]))

    def _hold(self, sock: socket.socket, client_host: str, throttle_ms: int) -> None:
        """Hold the connection of an address above its creation quota, and close it after the throttle time."""
        logger.debug("Throttling %s for %d ms: it opens connections faster than its quota", client_host, throttle_ms)
        if len(self._held) >= _HELD_MAX:
            sock.close()
            return
        self._held.add(sock)
        self._house.loop.call_later(throttle_ms / 1000, self._release, sock)

    def _release(self, sock: socket.socket) -> None:
        self._held.discard(sock)
        sock.close()


def _as_ipv4(host: str) -> str:
    """Return an address in the form that rules for clients use."""
    return host.removeprefix(_IPV4_MAPPED) if "." in host else host
