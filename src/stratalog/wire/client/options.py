"""Connection options: the properties of a Kafka client that say how to reach a cluster, and as whom.

Pure, but for the file of a token, which must be there.

Names and defaults are those of Kafka's Java clients. Certificates and keys are PEM (KIP-651), as files or in the option
itself; the formats of Java are refused with the way out.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from stratalog.config import jaas_options, parse_properties
from stratalog.errors import UsageError
from stratalog.util import REAL_FILESYSTEM
from stratalog.wire.client.properties import OPTION, Properties
from stratalog.wire.client.tls_options import SYSTEM_TLS, Tls, read_tls
from stratalog.wire.client.token_login import TokenLogin, read_token_login

DEFAULT_PORT: Final = 9092
CLIENT_ID: Final = "stratalog"

BY_TOKEN: Final = "OAUTHBEARER"
#: SASL mechanisms of clients.
CLIENT_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", BY_TOKEN)


class SecurityProtocol(enum.Enum):
    """The security protocol: whether traffic is encrypted, and whether the client authenticates."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_encrypted(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def is_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class Sasl:
    """A mechanism and who proves to be whom by it. `login` is that of OAUTHBEARER, which has no name and password."""

    mechanism: str
    username: str
    password: str = field(repr=False)
    #: Whether the name is the id of a delegation token, and the password its HMAC in base64.
    by_token: bool = False
    login: TokenLogin | None = None


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Everything a connection needs. Picklable; its repr shows neither passwords nor keys.

    `what` names where the addresses came from, for messages. A request waits `request_timeout_s` for its answer; tries
    of one question, at moved leaders and lost connections, end after `api_timeout_s`. Records that are sent wait
    `delivery_timeout_s` for their acknowledgment.
    """

    servers: tuple[tuple[str, int], ...]
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: Tls = SYSTEM_TLS
    sasl: Sasl | None = None
    client_id: str = CLIENT_ID
    connect_timeout_s: float = 10.0
    request_timeout_s: float = 30.0
    api_timeout_s: float = 60.0
    delivery_timeout_s: float = 120.0
    retry_backoff_s: float = 0.1
    what: str = "kafka.bootstrap.servers"

    @classmethod
    def of(
        cls,
        options: Mapping[str, str],
        *,
        what: str = "kafka.bootstrap.servers",
        where: str = OPTION,
        login_where: str | None = None,
    ) -> Self:
        """From options named `kafka.<property>`.

        Others, and properties of no concern to a connection, are not looked at.

        UsageError names the option behind `where`, or `login_where` for those of OAUTHBEARER, never its value where
        that is a secret.
        """
        reader = Properties(options, where)
        protocol = _protocol(reader)
        return cls(
            servers=addresses(reader.text("bootstrap.servers") or "", what),
            protocol=protocol,
            tls=read_tls(reader) if protocol.is_encrypted else SYSTEM_TLS,
            sasl=_sasl(reader, Properties(options, login_where or where)) if protocol.is_sasl else None,
            client_id=reader.text("client.id") or CLIENT_ID,
            connect_timeout_s=reader.seconds("socket.connection.setup.timeout.ms", 10_000),
            request_timeout_s=reader.seconds("request.timeout.ms", 30_000),
            api_timeout_s=reader.seconds("default.api.timeout.ms", 60_000),
            delivery_timeout_s=reader.seconds("delivery.timeout.ms", 120_000),
            retry_backoff_s=reader.seconds("retry.backoff.ms", 100),
            what=what,
        )


def client_properties(path: Path, what: str) -> dict[str, str]:
    """Read a file of Kafka's client properties. UsageError names it behind `what`, the option that it came by."""
    try:
        text = REAL_FILESYSTEM.read_bytes(path).decode()
    except UnicodeDecodeError:
        raise UsageError(f"{what} {path}: expected a text file of key=value lines") from None
    except OSError as error:
        raise UsageError(f"{what} {path}: {error.strerror or error}") from None
    return parse_properties(text, str(path))


def addresses(bootstrap_servers: str, what: str) -> tuple[tuple[str, int], ...]:
    """HOST:PORT[,HOST:PORT]; UsageError, which begins with `what`, for anything else."""
    found = []
    for address in filter(None, (part.strip() for part in bootstrap_servers.split(","))):
        host, separator, port = address.rpartition(":")
        if not separator:
            host, port = address, str(DEFAULT_PORT)
        if not port.isdecimal() or not 0 < int(port) < 2**16 or not host:
            raise UsageError(f"{what} {address}: expected HOST:PORT")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise UsageError(f"{what} names no broker")
    return tuple(found)


def _protocol(reader: Properties) -> SecurityProtocol:
    value = (reader.text("security.protocol") or "PLAINTEXT").upper()
    try:
        return SecurityProtocol(value)
    except ValueError:
        expected = ", ".join(each.value for each in SecurityProtocol)
        raise UsageError(f"{reader.where}security.protocol={value}: expected one of {expected}") from None


def _sasl(reader: Properties, of_login: Properties) -> Sasl:
    mechanism = (reader.text("sasl.mechanism") or "GSSAPI").upper()
    if mechanism not in CLIENT_MECHANISMS:
        raise UsageError(
            f"{reader.where}sasl.mechanism={mechanism}: expected one of {', '.join(CLIENT_MECHANISMS)}"
            + (" (GSSAPI is what Kafka takes where it is not set)" if mechanism == "GSSAPI" else "")
        )
    if mechanism == BY_TOKEN:
        return Sasl(mechanism, "", "", login=read_token_login(of_login))
    config = reader.text("sasl.jaas.config")
    wanted = 'a login module, such as ...PlainLoginModule required username="..." password="...";'
    if config is None:
        raise UsageError(f"{reader.where}sasl.jaas.config is not set: {mechanism} needs {wanted}")
    values = jaas_options(config)
    if values is None or "username" not in values or "password" not in values:
        raise UsageError(f"{reader.where}sasl.jaas.config: expected {wanted}")
    by_token = mechanism != "PLAIN" and values.get("tokenauth", "").lower() == "true"
    return Sasl(mechanism, values["username"], values["password"], by_token)
