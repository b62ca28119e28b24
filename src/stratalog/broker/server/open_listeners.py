"""Bind the listeners of a broker's configuration, and determine the address that each advertises."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from stratalog.broker.security import Listener, SaslSettings, ServerTls, sasl_settings
from stratalog.broker.server.listen_address import ListenAddress, bind, parse_address
from stratalog.config import (
    ADVERTISED,
    LISTENERS,
    PLAINTEXT,
    SASL_PLAINTEXT,
    SASL_SSL,
    SSL,
    BrokerConfig,
    NamedListener,
    client_listeners,
    inter_broker_listener,
    invalid,
    listener_settings,
    parse_listeners,
)
from stratalog.errors import InvalidConfigError, UsageError
from stratalog.util import SYSTEM_CLOCK

_ANY_HOSTS = {"", "0.0.0.0", "::"}


@dataclass(frozen=True, slots=True)
class OpenListener:
    """A listening socket, the address that it is bound to, and the address that its clients get."""

    socket: socket.socket
    bound: ListenAddress
    listener: Listener


@dataclass(frozen=True, slots=True)
class _PlannedListener:
    asked: NamedListener
    address: ListenAddress
    advertised: ListenAddress | None


@dataclass(frozen=True, slots=True)
class BoundListeners:
    """All listeners of a broker, in the order of `listeners`. `inter_broker` is one of them."""

    all: tuple[OpenListener, ...]
    inter_broker: Listener
    #: TLS of the listeners that use it, by name.
    tls: Mapping[str, ServerTls]
    #: SASL settings of the listeners that use it, by name.
    sasl: Mapping[str, SaslSettings]

    def close(self) -> None:
        for each in self.all:
            each.socket.close()


def open_listeners(listen: str | None, config: BrokerConfig) -> BoundListeners:
    """Bind `listen` (HOST:PORT, plain text), or without it the addresses in `listeners`.

    Raises UsageError for an unavailable address and InvalidConfigError for an invalid listener; nothing stays bound.
    """
    planned, inter_broker, tls, sasl = _plan(listen, config)
    with ExitStack() as undo:
        opened = []
        for each in planned:
            purpose = f"Kafka clients ({_where(each.asked, listen)})"
            sock = bind(each.address, config["socket.listen.backlog.size"], purpose)
            undo.callback(sock.close)
            bound = ListenAddress(each.address.host, sock.getsockname()[1])
            opened.append(OpenListener(sock, bound, _to_advertise(each.asked, bound, each.advertised)))
        undo.pop_all()
    of_brokers = next(each.listener for each in opened if each.listener.name == inter_broker.name)
    return BoundListeners(tuple(opened), of_brokers, tls, sasl)


def check_listeners(config: BrokerConfig) -> None:
    """Raise what `open_listeners` raises for the configuration alone, certificates included. Binds nothing."""
    _plan(None, config)


def _plan(
    listen: str | None, config: BrokerConfig
) -> tuple[list[_PlannedListener], NamedListener, Mapping[str, ServerTls], Mapping[str, SaslSettings]]:
    """Return the listeners to bind, the inter-broker one, and the TLS and SASL of each that uses them."""
    asked = [NamedListener(PLAINTEXT, listen, PLAINTEXT, False)] if listen is not None else client_listeners(config)
    inter_broker = asked[0] if listen is not None else inter_broker_listener(config, asked)
    advertised = _advertised(config, asked)
    settings = {each.name: listener_settings(config, each.name) for each in asked}
    tls = {
        each.name: ServerTls(settings[each.name], each.name, each.protocol, SYSTEM_CLOCK.monotonic)
        for each in asked
        if each.protocol in (SSL, SASL_SSL)
    }
    sasl = {
        each.name: sasl_settings(settings[each.name], each.name)
        for each in asked
        if each.protocol in (SASL_PLAINTEXT, SASL_SSL)
    }
    parse = parse_address if listen is not None else _address
    what = LISTENERS if listen is None else "listen address"
    planned = [_PlannedListener(each, parse(each.address, what), advertised.get(each.name)) for each in asked]
    return planned, inter_broker, tls, sasl


def _address(text: str, key: str) -> ListenAddress:
    """Return an address of a setting. InvalidConfigError, which a start shows with the file of the setting."""
    try:
        return parse_address(text, key)
    except UsageError as error:
        raise InvalidConfigError(str(error)) from None


def _where(listener: NamedListener, listen: str | None) -> str:
    return "--listen" if listen is not None else f"{LISTENERS}: {listener}"


def _advertised(config: BrokerConfig, asked: list[NamedListener]) -> Mapping[str, ListenAddress]:
    """Return the addresses in `advertised.listeners` of the listeners that are opened, by name."""
    value: str | None = config[ADVERTISED]
    if not value:
        return {}
    opened = {each.name for each in asked}
    found = {
        each.name: _address(each.address, ADVERTISED)
        for each in parse_listeners(value, config.properties, ADVERTISED)
        if each.name in opened
    }
    if not found:
        raise invalid(ADVERTISED, value, f"expected the address of an open listener: {', '.join(opened)}")
    for address in found.values():
        if address.host in _ANY_HOSTS:
            raise invalid(ADVERTISED, value, "clients cannot connect to a wildcard address; use a host name")
    return found


def _to_advertise(asked: NamedListener, bound: ListenAddress, advertised: ListenAddress | None) -> Listener:
    """Return the address that clients get: the advertised address, or the bound one.

    A wildcard host is left empty: each client gets the address through which it connected.
    """
    if advertised is not None:
        return Listener(advertised.host, advertised.port or bound.port, asked.name, asked.protocol)
    return Listener("" if bound.host in _ANY_HOSTS else bound.host, bound.port, asked.name, asked.protocol)
