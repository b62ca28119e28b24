"""TLS of one listener: OpenSSL's context from Kafka's settings, and another one when a file has changed.

A file is looked at when a client comes, at most once a second. A connection keeps the context that it began with; files
that cannot be used leave the context in force as it was, with one line in the log.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from stratalog.broker.security.certificate_names import CertificateNames, check_same_names, names_of_certificate
from stratalog.broker.security.distinguished_names import RULES_KEY, map_name, parse_rules, subject_of
from stratalog.broker.security.key_stores import files_of, load_identity, load_trusted, take_identity
from stratalog.broker.security.peer import ANONYMOUS, Principal
from stratalog.config import DYNAMIC_TLS_KEYS, BrokerConfig, listener_prefix
from stratalog.errors import InvalidConfigError
from stratalog.util import REAL_FILESYSTEM

logger = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 1.0
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
#: What OpenSSL always offers in TLS 1.3; its Python module cannot choose among them.
_SUITES_OF_13: Final = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"})


class ServerTls:
    """The TLS of one listener. InvalidConfigError, at the start, for settings that cannot be kept."""

    def __init__(self, config: BrokerConfig, listener: str, protocol: str, clock: Callable[[], float]) -> None:
        self._config = config
        self._listener = listener
        self._protocol = protocol
        self._clock = clock
        prefix = listener_prefix(listener)
        self._prefix = prefix if any(name.startswith(f"{prefix}ssl.") for name in config.properties) else ""
        client_auth = config["ssl.client.auth"]
        if protocol == "SASL_SSL" and f"{prefix}ssl.client.auth" not in config.properties:
            # As in Kafka: who asks every client for a password means certificates for other listeners.
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
        self._contents = self._look()
        self._looked_at = clock()
        self._context = self._make()

    def with_config(self, config: BrokerConfig) -> ServerTls:
        """Return the TLS of this listener by other settings, which are asked for while it is used.

        InvalidConfigError for what cannot be kept, and for a certificate in another name; this one stays as it is.
        """
        if all(config[name] == self._config[name] for name in DYNAMIC_TLS_KEYS):
            return self
        fresh = ServerTls(config, self._listener, self._protocol, self._clock)
        check_same_names(self._certificate_names(), fresh._certificate_names(), config)
        return fresh

    def _certificate_names(self) -> CertificateNames | None:
        return names_of_certificate(load_identity(self._config, self._prefix).pem)

    def context(self) -> ssl.SSLContext:
        """Return the context for the next client."""
        now = self._clock()
        if now >= self._looked_at + _LOOK_EVERY_S:
            self._looked_at = now
            self._reload()
        return self._context

    def principal_of(self, certificate: bytes | None) -> Principal:
        """Return who showed a certificate (DER) that was verified. UnmappedNameError when no rule is for its name."""
        if certificate is None or not self._names_clients:
            return ANONYMOUS
        return Principal("User", map_name(subject_of(certificate), self._rules))

    def _reload(self) -> None:
        contents = self._look()
        if contents == self._contents:
            return
        self._contents = contents
        try:
            self._context = self._make()
        except InvalidConfigError as error:
            logger.error("Files of TLS have changed and cannot be used; those before stay in force: %s", error)
        else:
            logger.warning("Files of TLS have changed; new connections use them: %s", self._names())

    def _names(self) -> str:
        return ", ".join(map(str, files_of(self._config)))

    def _look(self) -> tuple[bytes | None, ...]:
        return tuple(_content(path) for path in files_of(self._config))

    def _make(self) -> ssl.SSLContext:
        config, prefix = self._config, self._prefix
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.options |= ssl.OP_NO_RENEGOTIATION
        versions = _versions(config, prefix)
        context.minimum_version, context.maximum_version = min(versions), max(versions)
        _choose_ciphers(context, config, prefix)
        take_identity(context, load_identity(config, prefix))
        trusted = load_trusted(config, prefix)
        if self._client_auth is not ssl.CERT_NONE:
            if trusted is None:
                raise InvalidConfigError(
                    f"{prefix}ssl.truststore.location is not set: ssl.client.auth={config['ssl.client.auth']} needs "
                    "the certificates that sign clients'"
                )
            context.load_verify_locations(cadata=trusted)
            context.verify_mode = self._client_auth
        return context


def _content(path: Path) -> bytes | None:
    try:
        return REAL_FILESYSTEM.read_bytes(path)
    except OSError:
        return None


def _versions(config: BrokerConfig, prefix: str) -> list[ssl.TLSVersion]:
    names = config["ssl.enabled.protocols"]
    for name in names:
        if name not in _VERSIONS:
            raise InvalidConfigError(
                f"{prefix}ssl.enabled.protocols={','.join(names)}: {name} is not spoken; use {','.join(_VERSIONS)}"
            )
    if not names:
        raise InvalidConfigError(f"{prefix}ssl.enabled.protocols is empty: use {','.join(_VERSIONS)}")
    return [_VERSIONS[name] for name in names]


def _choose_ciphers(context: ssl.SSLContext, config: BrokerConfig, prefix: str) -> None:
    suites = config["ssl.cipher.suites"]
    if not suites:
        return
    key = f"{prefix}ssl.cipher.suites={','.join(suites)}"
    newer = _SUITES_OF_13.intersection(suites)
    if newer and newer != _SUITES_OF_13 and context.maximum_version is ssl.TLSVersion.TLSv1_3:
        missing = ", ".join(sorted(_SUITES_OF_13 - newer))
        raise InvalidConfigError(f"{key}: TLSv1.3 comes with all of its suites here; name {missing} too, or none")
    older = [suite for suite in suites if suite not in _SUITES_OF_13]
    if not newer:
        if context.minimum_version is ssl.TLSVersion.TLSv1_3:
            raise InvalidConfigError(f"{key}: names no suite of TLSv1.3, and ssl.enabled.protocols no other protocol")
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if not older:
        if context.maximum_version is not ssl.TLSVersion.TLSv1_3:
            raise InvalidConfigError(f"{key}: names no suite of TLSv1.2, and ssl.enabled.protocols no other protocol")
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    names = [openssl_name(suite) for suite in older]
    for suite, name in zip(older, names, strict=True):
        try:
            context.set_ciphers(name)
        except ssl.SSLError:
            raise InvalidConfigError(f"{key}: {suite} is not known to OpenSSL") from None
    context.set_ciphers(":".join(names))


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a suite that Java names as the standard of TLS 1.2 does."""
    exchange, _, rest = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = rest.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305")
    return "-".join(part.replace("_", "-") for part in (exchange if exchange != "RSA" else "", cipher) if part)
