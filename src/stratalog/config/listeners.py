"""`listeners`, as Kafka writes them: NAME://HOST:PORT, with commas between; a name stands for a security protocol.

Only names that are in `listeners` count: a map may speak of others. Listeners of `controller.listener.names` are for
controllers, which this broker does without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stratalog.config.keys import invalid

PLAINTEXT = "PLAINTEXT"
LISTENERS = "listeners"
ADVERTISED = "advertised.listeners"
PROTOCOL_MAP = "listener.security.protocol.map"
CONTROLLER_NAMES = "controller.listener.names"

_PROTOCOLS = frozenset({PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL"})


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


def _protocols(value: str) -> dict[str, str]:
    pairs = (entry.partition(":") for entry in _split(value))
    return {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}


def _split(value: str) -> list[str]:
    return [entry.strip() for entry in value.split(",") if entry.strip()]
