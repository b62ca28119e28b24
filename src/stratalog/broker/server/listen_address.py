"""Addresses: what the user asks for, what is bound, what clients are told."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass

from stratalog.broker.security import Listener
from stratalog.config import ADVERTISED, LISTENERS, PLAINTEXT, BrokerConfig, invalid, parse_listeners
from stratalog.errors import InvalidConfigError, UsageError
from stratalog.util import join_host_port

_PORT_MAX = 65_535
_ANY_HOSTS = {"", "0.0.0.0", "::"}


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Where to listen; an empty host is every interface, port 0 a free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return join_host_port(self.host, self.port)


def parse_address(text: str, what: str) -> ListenAddress:
    """Parse HOST:PORT or [IPV6]:PORT; UsageError names `what` held something else."""
    host, separator, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        separator = ""
    if not separator or not port.isascii() or not port.isdecimal() or int(port) > _PORT_MAX:
        raise UsageError(f"{what} {text}: expected HOST:PORT with a port from 0 to {_PORT_MAX}")
    return ListenAddress(host, int(port))


def listen_address(listen: str | None, config: BrokerConfig) -> ListenAddress:
    """`listen`, or without one the listener for clients that `listeners` names."""
    if listen is not None:
        return parse_address(listen, "listen address")
    return _parse_listener(config, LISTENERS)


def advertised_listener(config: BrokerConfig, bound: ListenAddress) -> Listener:
    """Return what clients are told to connect to: `advertised.listeners`, or what is bound.

    A host that stands for every interface is left empty: each client is told the address by which it came in.
    """
    advertised = config["advertised.listeners"]
    if advertised:
        address = _parse_listener(config, ADVERTISED)
        if address.host in _ANY_HOSTS:
            raise InvalidConfigError(
                f"Invalid value {advertised} for configuration advertised.listeners: "
                "clients cannot connect to a wildcard address; name a host"
            )
        return Listener(address.host, address.port or bound.port)
    return Listener("" if bound.host in _ANY_HOSTS else bound.host, bound.port)


def _parse_listener(config: BrokerConfig, key: str) -> ListenAddress:
    """Return the one listener for clients of a key; of several advertised ones, that of the listener that is opened."""
    value: str = config[key]
    plain = [
        found
        for found in parse_listeners(value, config.properties, key)
        if found.protocol == PLAINTEXT and not found.is_controllers
    ]
    if not plain:
        raise invalid(key, value, "expected a listener such as PLAINTEXT://127.0.0.1:9092")
    if key == ADVERTISED:
        opened = {found.name for found in parse_listeners(config[LISTENERS], config.properties)}
        plain.sort(key=lambda found: found.name not in opened)
    return parse_address(plain[0].address, key)


def bind(address: ListenAddress, backlog: int, purpose: str = "Kafka clients (--listen)") -> socket.socket:
    """Return a listening, non-blocking socket.

    Raises UsageError, in one line that names the `purpose`, when the address cannot be had.
    """
    try:
        found = socket.getaddrinfo(address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise UsageError(
            f"cannot listen on {address} for {purpose}: host {address.host!r} is not known ({error.strerror})"
        ) from error
    # With every interface asked for, IPv4 is what clients expect to find.
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
                f"cannot listen on {address} for {purpose}: the port is in use; stop what uses it or take another"
            ) from error
        raise UsageError(f"cannot listen on {address} for {purpose}: {error.strerror}") from error
    return sock
