"""Parse and bind addresses to listen on."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass

from stratalog.errors import UsageError
from stratalog.util import join_host_port

_PORT_MAX = 65_535


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """An address to listen on. An empty host means every interface, port 0 a free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return join_host_port(self.host, self.port)


def parse_address(text: str, what: str) -> ListenAddress:
    """Parse HOST:PORT or [IPV6]:PORT; a UsageError says that `what` is invalid."""
    host, separator, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        separator = ""
    if not separator or not port.isascii() or not port.isdecimal() or int(port) > _PORT_MAX:
        raise UsageError(f"{what} {text}: expected HOST:PORT with a port from 0 to {_PORT_MAX}")
    return ListenAddress(host, int(port))


def bind(address: ListenAddress, backlog: int, purpose: str = "Kafka clients (--listen)") -> socket.socket:
    """Return a listening, non-blocking socket. A UsageError names the address and its `purpose` when binding fails."""
    try:
        found = socket.getaddrinfo(address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise UsageError(
            f"cannot listen on {address} for {purpose}: unknown host {address.host!r} ({error.strerror})"
        ) from error
    # For every interface, prefer IPv4: clients expect it.
    family, kind, protocol, _, where = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(where)
        sock.listen(backlog)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise UsageError(
                f"cannot listen on {address} for {purpose}: the port is in use; stop its process or use another port"
            ) from error
        raise UsageError(f"cannot listen on {address} for {purpose}: {error.strerror}") from error
    return sock
