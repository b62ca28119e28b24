"""`listeners`, as Kafka writes them: NAME://HOST:PORT, with commas between; a name stands for a security protocol.

Only names that are in `listeners` count: a map may speak of others. Listeners of `controller.listener.names` are for
controllers, which this broker does without. A setting of one listener stands under `listener.name.<name>.`, in small
letters, and takes precedence over the setting of all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from stratalog.config.broker import BROKER_KEYS, BrokerConfig
from stratalog.config.keys import invalid

PLAINTEXT = "PLAINTEXT"
SSL = "SSL"
SASL_PLAINTEXT = "SASL_PLAINTEXT"
SASL_SSL = "SASL_SSL"
LISTENERS = "listeners"
ADVERTISED = "advertised.listeners"
PROTOCOL_MAP = "listener.security.protocol.map"
CONTROLLER_NAMES = "controller.listener.names"
INTER_BROKER_NAME = "inter.broker.listener.name"
INTER_BROKER_PROTOCOL = "security.inter.broker.protocol"

_OF_A_LISTENER = re.compile(r"listener\.name\.[^.]+\.(.+)")
_PROTOCOLS = frozenset({PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL})


@dataclass(frozen=True, slots=True)
class NamedListener:
    """One listener. `address` is HOST:PORT, the host perhaps empty; `protocol` is one of Kafka's, in capitals."""

    name: str
    address: str
    protocol: str
    is_controllers: bool

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


def parse_listeners(value: str, properties: Mapping[str, str | None], key: str = LISTENERS) -> list[NamedListener]:
    """Return the listeners that `value` of `key` names. Raises InvalidConfigError for what is none.

    `properties` say what names stand for, and which are the controllers'.
    """
    protocols = _protocols(properties.get(PROTOCOL_MAP) or "")
    controllers = {name.upper() for name in _split(properties.get(CONTROLLER_NAMES) or "")}
    found = []
    for entry in _split(value):
        name, separator, address = entry.partition("://")
        name = name.strip().upper()
        if not separator or not name:
            raise invalid(key, value, "expected a listener such as PLAINTEXT://127.0.0.1:9092")
        is_controllers = name in controllers
        protocol = protocols.get(name, name if name in _PROTOCOLS else PLAINTEXT if is_controllers else "")
        if protocol not in _PROTOCOLS:
            raise invalid(
                key,
                value,
                f"No security protocol is defined for listener {name}: {PROTOCOL_MAP}={name}:{PLAINTEXT} would define "
                "it",
            )
        found.append(NamedListener(name, address, protocol, is_controllers))
    return found


def client_listeners(config: BrokerConfig) -> list[NamedListener]:
    """Return the listeners of `listeners` that are for clients. InvalidConfigError also for two of one name or port."""
    value: str = config[LISTENERS]
    found = [each for each in parse_listeners(value, config.properties) if not each.is_controllers]
    if not found:
        raise invalid(LISTENERS, value, "expected a listener for clients, such as PLAINTEXT://127.0.0.1:9092")
    if len({each.name for each in found}) < len(found):
        raise invalid(LISTENERS, value, "Each listener must have a different name")
    return found


def inter_broker_listener(config: BrokerConfig, listeners: list[NamedListener]) -> NamedListener:
    """Return the listener of `inter.broker.listener.name`, which the limit of all connections does not close.

    Without that key it is the one of `security.inter.broker.protocol`, else the first.
    """
    if config.is_set(INTER_BROKER_NAME) and config.is_set(INTER_BROKER_PROTOCOL):
        raise invalid(INTER_BROKER_NAME, config[INTER_BROKER_NAME], f"{INTER_BROKER_PROTOCOL} must not be set too")
    for key in (INTER_BROKER_NAME, INTER_BROKER_PROTOCOL):
        if not config.is_set(key) or not config[key]:
            continue
        for listener in listeners:
            if listener.name == config[key].upper():
                return listener
        names = ",".join(each.name for each in listeners)
        raise invalid(key, config[key], f"it must name one of the listeners for clients: {names}")
    return next((each for each in listeners if each.name == PLAINTEXT), listeners[0])


def listener_settings(config: BrokerConfig, name: str) -> BrokerConfig:
    """Return the configuration as it is for one listener: what stands under its prefix, over what is for all."""
    prefix = listener_prefix(name)
    own = {key.removeprefix(prefix): raw for key, raw in config.properties.items() if key.startswith(prefix)}
    for key, raw in own.items():
        if key in BROKER_KEYS:  # an error names the whole key
            replace(BROKER_KEYS[key], name=prefix + key).parse(raw)
    return config.with_overrides(own) if own else config


#: What may be set while a listener is served: its certificates, and those of who signs its clients'.
DYNAMIC_TLS_KEYS = (
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)


def key_of_listener(name: str) -> str:
    """Return the key that `listener.name.<name>.<key>` sets for one listener; other names as they are."""
    match = _OF_A_LISTENER.fullmatch(name)
    return name if match is None else match[1]


def listener_prefix(name: str) -> str:
    """Return what the keys of one listener begin with."""
    return f"listener.name.{name.lower()}."


def _protocols(value: str) -> dict[str, str]:
    pairs = (entry.partition(":") for entry in _split(value))
    return {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}


def _split(value: str) -> list[str]:
    return [entry.strip() for entry in value.split(",") if entry.strip()]
