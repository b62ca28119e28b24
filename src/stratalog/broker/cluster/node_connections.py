"""Connections to controllers and other brokers: by a listener's protocol, with the client settings for it.

A broker is a client of other nodes with the key stores of its listeners (PEM or PKCS12), as in Kafka, and authenticates
with the settings of its mechanism: `listener.name.controller.plain.sasl.jaas.config`.
"""

from __future__ import annotations

from typing import Final

from stratalog.broker.cluster.quorum import Address
from stratalog.broker.security import load_identity, load_trusted
from stratalog.config import BrokerConfig, listener_prefix, listener_settings, parse_listeners
from stratalog.errors import UsageError
from stratalog.util import join_host_port
from stratalog.wire.client import CLIENT_MECHANISMS, ConnectionOptions, tls_context

_JAAS: Final = "sasl.jaas.config"
_PEM: Final = "PEM"
_TIMEOUTS: Final = {"controller": "controller.socket.timeout.ms", "inter.broker": "replica.socket.timeout.ms"}
#: Settings that count for brokers only under a mechanism's prefix.
_OF_A_MECHANISM: Final = ("sasl.login.callback.handler.class", "sasl.login.class")
_STORES: Final = ("ssl.keystore.", "ssl.truststore.", "ssl.key.password")


def node_connection(
    config: BrokerConfig, listener: str, of: str, servers: tuple[Address, ...], *, what: str
) -> ConnectionOptions:
    """Return the options of connections to one of the nodes' listeners. `of` is `controller` or `inter.broker`.

    `what` is the setting with the addresses. Raises UsageError or InvalidConfigError for invalid settings.
    """
    protocol = parse_listeners(f"{listener}://:0", config.properties)[0].protocol
    settings = listener_settings(config, listener)
    prefix = listener_prefix(listener)
    options = {
        f"kafka.{key}": value
        for key, value in settings.properties.items()
        if value is not None and key.startswith(("ssl.", "sasl.")) and not key.startswith((*_STORES, *_OF_A_MECHANISM))
    }
    options["kafka.security.protocol"] = protocol
    options["kafka.request.timeout.ms"] = str(config[_TIMEOUTS[of]])
    options["kafka.bootstrap.servers"] = ",".join(join_host_port(*each) for each in servers)
    if "SASL" in protocol:
        options |= _login(settings, listener, protocol, f"sasl.mechanism.{of}.protocol")
    if "SSL" in protocol:
        has_own = any(key.startswith(f"{prefix}ssl.") for key in config.properties)
        options |= _stores(settings, prefix if has_own else "")
    of_mechanism = f"{prefix}{str(options.get('kafka.sasl.mechanism', '')).lower()}."
    connection = ConnectionOptions.of(options, what=what, where=prefix, login_where=of_mechanism)
    if connection.protocol.is_encrypted:
        tls_context(connection.tls)  # report unusable settings now
    return connection


def _login(settings: BrokerConfig, listener: str, protocol: str, key: str) -> dict[str, str]:
    mechanism = settings.properties.get(key)
    if not mechanism:
        raise UsageError(
            f"{key} is not set, and Kafka's default GSSAPI is not supported: listener {listener} uses"
            f" {protocol}; set {key}=SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN"
        )
    if str(mechanism).upper() not in CLIENT_MECHANISMS:
        raise UsageError(
            f"{key}={mechanism} is not supported: a broker logs in to other nodes (listener {listener}) by"
            f" {', '.join(CLIENT_MECHANISMS)}; enable one of them on that listener too, and set {key} to it"
        )
    # What is set for the mechanism precedes what is set for all mechanisms.
    prefix = f"{str(mechanism).lower()}."
    own = {name.removeprefix(prefix): value for name, value in settings.properties.items() if name.startswith(prefix)}
    return {
        "kafka.sasl.mechanism": str(mechanism),
        **{f"kafka.{name}": value for name, value in own.items() if value and name.startswith("sasl.")},
    }


def _stores(settings: BrokerConfig, prefix: str) -> dict[str, str]:
    """Return key and trusted certificates as PEM. Files stay files: they are read again for each connection."""
    found: dict[str, str] = {}
    location = settings["ssl.keystore.location"]
    if location or settings["ssl.keystore.certificate.chain"]:
        identity = load_identity(settings, prefix)
        if location and str(settings["ssl.keystore.type"]).upper() == _PEM:
            found["kafka.ssl.keystore.location"] = str(location)
        else:
            found["kafka.ssl.keystore.certificate.chain"] = identity.pem.decode()
        found["kafka.ssl.key.password"] = identity.password
    trusted = load_trusted(settings, prefix)
    location = settings["ssl.truststore.location"]
    if location and str(settings["ssl.truststore.type"]).upper() == _PEM:
        found["kafka.ssl.truststore.location"] = str(location)
    elif trusted is not None:
        found["kafka.ssl.truststore.certificates"] = trusted
    return found
