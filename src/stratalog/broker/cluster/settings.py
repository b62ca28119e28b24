"""Settings of the cluster that a broker joins: Kafka's keys, checked before anything else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from stratalog.broker.access import super_users
from stratalog.broker.cluster.lifecycle import AdvertisedListener
from stratalog.broker.cluster.node_connections import node_connection
from stratalog.broker.cluster.quorum import Address
from stratalog.config import (
    ADVERTISED,
    AUTHORIZER,
    LISTENERS,
    BrokerConfig,
    client_listeners,
    inter_broker_listener,
    parse_listeners,
    segment_bytes_max,
)
from stratalog.errors import UsageError
from stratalog.wire.client import ConnectionOptions

_ROLES: Final = "process.roles"
_BOOTSTRAP: Final = "controller.quorum.bootstrap.servers"
_VOTERS: Final = "controller.quorum.voters"
_CONTROLLER_NAMES: Final = "controller.listener.names"
_TIERING: Final = "remote.log.storage.system.enable"
_LARGE_SEGMENTS: Final = "stratalog.large.segments"
_STORE_URL: Final = "stratalog.remote.url"
_STORE_CLASS: Final = "remote.log.storage.manager.class.name"
_SEGMENT_BYTES: Final = "log.segment.bytes"
_PROTOCOL_NUMBERS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    node_id: int
    rack: str | None
    data_dirs: tuple[Path, ...]
    bootstrap: tuple[Address, ...]
    voters: Mapping[int, Address]
    controller_listener: str
    #: Connections to the controllers.
    connection: ConnectionOptions
    listeners: tuple[AdvertisedListener, ...]
    inter_broker_listener: str
    #: Connections to other brokers.
    brokers_connection: ConnectionOptions
    heartbeat_s: float
    registration_timeout_s: float
    fetch_timeout_s: float
    #: Whether access rules apply.
    has_authorizer: bool = False
    #: Whether the broker has a remote tier.
    is_tiering: bool = False
    #: Whether it supports segments over 2 GiB.
    large_segments: bool = False

    @classmethod
    def of(cls, config: BrokerConfig) -> ClusterSettings:
        """Read the settings. Raises UsageError or InvalidConfigError with the key and the expected value."""
        if not config.is_set("node.id") and not config.is_set("broker.id"):
            raise UsageError(f"{_ROLES}=broker needs node.id, which no other node of the cluster has")
        super_users(config)  # report errors before the broker registers
        data_dirs = tuple(Path(name) for name in config["log.dirs"] or config["log.dir"])
        if not data_dirs:
            raise UsageError(f"{_ROLES}=broker needs log.dirs, formatted with 'stratalog storage format'")
        if not config[_CONTROLLER_NAMES]:
            raise UsageError(f"{_ROLES}=broker needs {_CONTROLLER_NAMES}, such as CONTROLLER")
        for each in parse_listeners(config[LISTENERS] or "", config.properties):
            if each.is_controllers:
                raise UsageError(
                    f"{LISTENERS}={each}: {_CONTROLLER_NAMES} names it, and {_ROLES}=broker opens listeners for"
                    f" clients and brokers alone; remove it from {LISTENERS}"
                )
        if config[_TIERING] and not (config[_STORE_URL] or config[_STORE_CLASS]):
            raise UsageError(
                f"{_TIERING}=true with {_ROLES}=broker needs {_STORE_URL}, the object store that all brokers of the"
                " cluster share; without it each would have one of its own"
            )
        limit = segment_bytes_max(large=False)
        if config[_SEGMENT_BYTES] > limit and not config[_LARGE_SEGMENTS]:
            raise UsageError(
                f"{_SEGMENT_BYTES}={config[_SEGMENT_BYTES]}: in a cluster no segment may pass {limit} bytes, whatever"
                f" its metadata.version is; set a smaller one, or {_LARGE_SEGMENTS}=true on every broker"
            )
        voters = _voters(config[_VOTERS])
        bootstrap = tuple(_address(each, _BOOTSTRAP, "HOST:PORT") for each in config[_BOOTSTRAP])
        if not voters and not bootstrap:
            raise UsageError(f"{_ROLES}=broker needs {_BOOTSTRAP}=HOST:PORT, or {_VOTERS}=ID@HOST:PORT")
        name = config[_CONTROLLER_NAMES][0].upper()
        of_brokers = inter_broker_listener(config, client_listeners(config))
        servers = (*voters.values(), *bootstrap)
        return cls(
            node_id=config["node.id"],
            rack=config["broker.rack"],
            data_dirs=data_dirs,
            bootstrap=bootstrap,
            voters=voters,
            controller_listener=name,
            connection=node_connection(config, name, "controller", servers, what=_BOOTSTRAP),
            listeners=_advertised(config),
            inter_broker_listener=of_brokers.name,
            brokers_connection=node_connection(config, of_brokers.name, "inter.broker", servers, what=_BOOTSTRAP),
            heartbeat_s=config["broker.heartbeat.interval.ms"] / 1000,
            registration_timeout_s=config["initial.broker.registration.timeout.ms"] / 1000,
            fetch_timeout_s=config["controller.quorum.fetch.timeout.ms"] / 1000,
            is_tiering=config[_TIERING],
            large_segments=config[_LARGE_SEGMENTS],
            has_authorizer=bool(config[AUTHORIZER]),
        )


def _voters(entries: tuple[str, ...]) -> dict[int, Address]:
    found = {}
    for entry in entries:
        number, separator, address = entry.partition("@")
        if not separator or not number.isdecimal():
            raise UsageError(f"{_VOTERS}: {entry}: expected ID@HOST:PORT")
        found[int(number)] = _address(address, _VOTERS, "ID@HOST:PORT")
    return found


def _address(text: str, key: str, expected: str) -> Address:
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdecimal() or not 0 < int(port) < 1 << 16 or not host:
        raise UsageError(f"{key}: {text}: expected {expected}")
    return host.strip("[]"), int(port)


def _advertised(config: BrokerConfig) -> tuple[AdvertisedListener, ...]:
    """Return the advertised addresses of client listeners, which must not be wildcards."""
    asked = {each.name: each for each in client_listeners(config)}
    if config[ADVERTISED]:
        answer = {each.name: each for each in parse_listeners(config[ADVERTISED], config.properties, ADVERTISED)}
        asked |= {name: each for name, each in answer.items() if name in asked}
    found = []
    for listener in asked.values():
        host, port = listener.address.rpartition(":")[::2]
        if host in ("", "0.0.0.0", "[::]") or not port.isdecimal() or port == "0":
            raise UsageError(
                f"{LISTENERS}={listener}: a broker of a cluster needs an address that others reach; set"
                f" {ADVERTISED}={listener.name}://HOST:PORT"
            )
        protocol = _PROTOCOL_NUMBERS[listener.protocol]
        found.append(AdvertisedListener(name=listener.name, host=host.strip("[]"), port=int(port), protocol=protocol))
    return tuple(found)
