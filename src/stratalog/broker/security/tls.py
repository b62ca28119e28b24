"""TLS of one listener: an OpenSSL context from Kafka's settings, rebuilt when a file has changed.

Files are checked when a client connects, at most once a second. A connection keeps its context. Unusable files are
logged in one line and leave the current context in force, until they can be used.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from stratalog.broker.security.certificate_names import CertificateNames, check_same_names, names_of_certificate
from stratalog.broker.security.distinguished_names import RULES_KEY, map_name, parse_rules, subject_of
from stratalog.broker.security.key_stores import Identity, files_of, load_identity, load_trusted, take_identity
from stratalog.broker.security.peer import ANONYMOUS, Principal
from stratalog.config import DYNAMIC_TLS_KEYS, BrokerConfig, listener_prefix
from stratalog.errors import InvalidConfigError
from stratalog.util import REAL_FILESYSTEM
from stratalog.wire.client import limit_tls

logger = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 1.0
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class ServerTls:
    """The TLS of one listener. InvalidConfigError at startup for invalid settings."""

    def __init__(self, config: BrokerConfig, listener: str, protocol: str, clock: Callable[[], float]) -> None:
        self._config = config
        self._listener = listener
        self._protocol = protocol
        self._clock = clock
        prefix = listener_prefix(listener)
        self._prefix = prefix if any(name.startswith(f"{prefix}ssl.") for name in config.properties) else ""
        client_auth = config["ssl.client.auth"]
        if protocol == "SASL_SSL" and f"{prefix}ssl.client.auth" not in config.properties:
            # As in Kafka: with SASL, a general ssl.client.auth is for other listeners.
            client_auth = "none"
        self._client_auth = _CLIENT_AUTH[client_auth]
        self._rules = parse_rules(config[RULES_KEY])
        self._names_clients = protocol == "SSL" and client_auth != "none"
        if self._names_clients:
            try:
                import cryptography  # noqa: F401  # an optional dependency
            except ImportError:
                raise InvalidConfigError(
                    f"{self._prefix}ssl.client.auth={client_auth} needs the library cryptography: "
                    "pip install 'stratalog[security]'"
                ) from None
        #: What the files held when the context was made, and the error that was logged since, with what they held then.
        self._contents = self._look()
        self._refused: tuple[tuple[bytes | None, ...], str] | None = None
        self._looked_at = clock()
        self._identity, self._context = self._make()

    def with_config(self, config: BrokerConfig) -> ServerTls:
        """Return the TLS of this listener with other settings; this one is unchanged.

        Raises InvalidConfigError for invalid settings, and for a certificate with another name.
        """
        if all(config[name] == self._config[name] for name in DYNAMIC_TLS_KEYS):
            return self
        fresh = ServerTls(config, self._listener, self._protocol, self._clock)
        check_same_names(self._certificate_names(), fresh._certificate_names(), config)
        return fresh

    def _certificate_names(self) -> CertificateNames | None:
        """Return the names in the certificate in force, as in Kafka: its file may have changed or be gone."""
        return names_of_certificate(self._identity.pem)

    def context(self) -> ssl.SSLContext:
        """Return the current context, for a new client."""
        now = self._clock()
        if now >= self._looked_at + _LOOK_EVERY_S:
            self._looked_at = now
            self._reload()
        return self._context

    def principal_of(self, certificate: bytes | None) -> Principal:
        """Return the principal of a verified certificate (DER). UnmappedNameError when no rule matches its name."""
        if certificate is None or not self._names_clients:
            return ANONYMOUS
        return Principal("User", map_name(subject_of(certificate), self._rules))

    def _reload(self) -> None:
        contents = self._look()
        if contents == self._contents:
            return
        try:
            self._identity, self._context = self._make()
        except InvalidConfigError as error:
            # Tried again at the next look: what failed may have been a full disk.
            if self._refused != (contents, str(error)):
                self._refused = contents, str(error)
                logger.error("TLS files have changed and cannot be used; the current ones stay in force: %s", error)
        else:
            self._contents = contents
            logger.warning("TLS files have changed; new connections use them: %s", self._names())

    def _names(self) -> str:
        return ", ".join(map(str, files_of(self._config)))

    def _look(self) -> tuple[bytes | None, ...]:
        return tuple(_content(path) for path in files_of(self._config))

    def _make(self) -> tuple[Identity, ssl.SSLContext]:
        config, prefix = self._config, self._prefix
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.options |= ssl.OP_NO_RENEGOTIATION
        try:
            limit_tls(context, config["ssl.enabled.protocols"], config["ssl.cipher.suites"], prefix)
        except ValueError as error:
            raise InvalidConfigError(str(error)) from None
        identity = load_identity(config, prefix)
        take_identity(context, identity)
        trusted = load_trusted(config, prefix)
        if self._client_auth is not ssl.CERT_NONE:
            if trusted is None:
                raise InvalidConfigError(
                    f"{prefix}ssl.truststore.location is not set: ssl.client.auth={config['ssl.client.auth']} needs "
                    "the CA certificates of clients"
                )
            context.load_verify_locations(cadata=trusted)
            context.verify_mode = self._client_auth
        return identity, context


def _content(path: Path) -> bytes | None:
    try:
        return REAL_FILESYSTEM.read_bytes(path)
    except OSError:
        return None
