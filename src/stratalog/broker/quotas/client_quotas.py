"""All quotas of a broker, stored and in force.

A change is durable before it is applied, and applied before it is answered. It affects waiting clients from their next
request on.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
from asyncio import Lock
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from stratalog.broker.quotas.accepted import AcceptedConnections
from stratalog.broker.quotas.entity import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    QuotaEntity,
)
from stratalog.broker.quotas.meter import QuotaClient, QuotaMeter
from stratalog.broker.quotas.mutations import MutationPermit
from stratalog.broker.quotas.pace import QuotaPace
from stratalog.broker.quotas.rate import QuotaWindow, TokenSensor
from stratalog.config import BrokerConfig
from stratalog.util import Clock

if TYPE_CHECKING:
    import asyncio

    from stratalog.broker.metadata import ClusterMetadata

logger = logging.getLogger(__name__)

#: Values by key for each changed entity; None removes a value.
QuotaChanges = Mapping[QuotaEntity, Mapping[str, float | None]]


class QuotaTimer(Protocol):
    """The end of a throttle time."""

    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], object]], QuotaTimer]

_PACED: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)


class ClientQuotas:
    """The quotas and their meters. Belongs to the loop's thread, except `read`."""

    def __init__(
        self, metadata: ClusterMetadata, config: BrokerConfig, clock: Clock, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._metadata = metadata
        self._loop = loop
        self._now_ms = clock.now_ms
        window = QuotaWindow(config["quota.window.num"], 1000 * config["quota.window.size.seconds"])
        of_mutations = QuotaWindow(
            config["controller.quota.window.num"], 1000 * config["controller.quota.window.size.seconds"]
        )
        self.produce = QuotaMeter(window)
        self.fetch = QuotaMeter(window)
        self.request = QuotaMeter(window, throttle_ms_max=window.size_ms)
        self.mutation = QuotaMeter(of_mutations, TokenSensor, has_rate=True)
        #: New connections; the client id of each "client" is its address.
        self.connection = QuotaMeter(window, throttle_ms_max=window.size_ms)
        self.accepted = AcceptedConnections(clock.now_ms)
        self._meters = {
            PRODUCER_BYTE_RATE: self.produce,
            CONSUMER_BYTE_RATE: self.fetch,
            REQUEST_PERCENTAGE: self.request,
            CONTROLLER_MUTATION_RATE: self.mutation,
        }
        self.pacing = QuotaPace(self.produce, self.fetch, self.request, clock)
        #: The quotas that requests are checked against; None while no client has one for bytes or time.
        self.pace: QuotaPace | None = None
        #: Calls a function after so many seconds.
        self.call_later: CallLater = loop.call_later
        self.on_change: Callable[[], object] = lambda: None
        #: Held from the change of the stored quotas until it is in force.
        self.changing = Lock()
        self._entries: dict[QuotaEntity, dict[str, float]] = {}
        self._addresses: dict[str, str] = {}
        stored = metadata.client_quotas()
        self.put_in_force(stored, addresses_of(stored))

    @property
    def entries(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        return self._entries

    def read(self) -> None:
        """Load the cluster's current quotas. Blocks; call from another thread than the loop's."""
        entries = self._metadata.client_quotas()
        self._loop.call_soon_threadsafe(self._take, entries, addresses_of(entries))

    def _take(self, entries: Mapping[QuotaEntity, Mapping[str, float]], addresses: Mapping[str, str]) -> None:
        changes: dict[QuotaEntity, dict[str, float | None]] = {}
        for entity in (*self._entries, *entries):
            old, new = self._entries.get(entity, {}), entries.get(entity, {})
            changes[entity] = {key: new.get(key) for key in (*old, *new) if old.get(key) != new.get(key)}
        self.put_in_force({entity: values for entity, values in changes.items() if values}, addresses)

    def put_in_force(self, changes: QuotaChanges, addresses: Mapping[str, str]) -> None:
        """Apply stored changes; `addresses` maps their hosts."""
        for entity, values in changes.items():
            entry = self._entries.setdefault(entity, {})
            for key, value in values.items():
                if value is None:
                    entry.pop(key, None)
                    logger.info("Removed %s of %s", key, _shown(entity))
                else:
                    entry[key] = value
                    logger.info("Set %s of %s to %s", key, _shown(entity), value)
                self._apply(entity, key, value, addresses)
            if not entry:
                del self._entries[entity]
        self.pace = self.pacing if any(self._meters[key].is_enabled for key in _PACED) else None
        self.on_change()

    def _apply(self, entity: QuotaEntity, key: str, value: float | None, addresses: Mapping[str, str]) -> None:
        parts = dict(entity)
        if key == CONNECTION_CREATION_RATE and IP in parts:
            host = parts[IP]
            if host is not None:
                if host in addresses and value is not None:
                    self._addresses[host] = addresses[host]
                host = self._addresses.get(host, host)
            self.connection.set_limit("", host, value)
        elif key in self._meters and IP not in parts:
            self._meters[key].set_limit(parts.get(USER, ""), parts.get(CLIENT_ID, ""), value)

    def permit(self, client: QuotaClient, *, is_strict: bool) -> MutationPermit | None:
        """Return a request's permit for topic mutations; None without such a quota."""
        if not self.mutation.is_enabled:
            return None
        return MutationPermit(self.mutation, client, is_strict=is_strict, now_ms=self._now_ms)

    def throttle_address(self, address: str) -> int:
        """Count a new connection; return the throttle time in ms after which it is closed, 0 if it is accepted."""
        client = QuotaClient("", address)
        if not self.connection.has_limit(client):
            return 0
        now_ms = self._now_ms()
        throttle_ms = self.connection.record(client, 1, now_ms)
        if throttle_ms:
            self.connection.record_later(client, -1, now_ms)
            self.connection.throttle(client, throttle_ms, now_ms)
        return throttle_ms


def addresses_of(changes: QuotaChanges) -> dict[str, str]:
    """Return the addresses of hosts with quotas, as far as they resolve. Blocks."""
    hosts = {name for entity in changes for kind, name in entity if kind == IP and name is not None}
    return {host: address for host in hosts if (address := address_of(host)) is not None}


def address_of(host: str) -> str | None:
    """Return the address of a host, or None when it does not resolve. Blocks."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass  # a name
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except (OSError, UnicodeError):
        return None


def _shown(entity: QuotaEntity) -> str:
    return ", ".join(f"default {kind}" if name is None else f"{kind} {name!r}" for kind, name in reversed(entity))
