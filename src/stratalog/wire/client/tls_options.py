"""TLS of a client: trust, identity and limits by Kafka's property names. Pure, but for reading no file."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Final

from stratalog.errors import UsageError
from stratalog.wire.client.properties import OPTION, Properties
from stratalog.wire.client.tls_limits import TLS_VERSIONS, limit_tls

#: Pairs of properties for the same thing.
_EXCLUSIVE: Final = (
    ("ssl.truststore.location", "ssl.truststore.certificates"),
    ("ssl.keystore.location", "ssl.keystore.key"),
    ("ssl.keystore.location", "ssl.keystore.certificate.chain"),
)


@dataclass(frozen=True, slots=True)
class Tls:
    """Trust and identity in PEM: each a path, or the text itself. None trusts what the system trusts."""

    truststore_path: str | None = None
    truststore_text: str | None = None
    keystore_path: str | None = None
    certificate_text: str | None = None
    key_text: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    checks_host: bool = True
    versions: tuple[str, ...] = tuple(TLS_VERSIONS)
    #: Java's names; none means all.
    suites: tuple[str, ...] = ()
    #: What messages put before a property: the file or the kind of option that it came from.
    where: str = OPTION


#: Trust of the system, and no identity.
SYSTEM_TLS: Final = Tls()


def read_tls(reader: Properties) -> Tls:
    """Return what the properties say. Raises UsageError, which names the property."""
    for store in ("truststore", "keystore"):
        kind = reader.text(f"ssl.{store}.type")
        if kind is not None and kind.upper() != "PEM":
            raise UsageError(
                f"{reader.where}ssl.{store}.type={kind}: only PEM is read; keytool and openssl turn others into it"
            )
    for one, other in _EXCLUSIVE:
        if reader.text(one) is not None and reader.text(other) is not None:
            raise UsageError(f"{reader.where}{one}: cannot be combined with {other}")
    if reader.text("ssl.keystore.key") is not None and reader.text("ssl.keystore.certificate.chain") is None:
        raise UsageError(f"{reader.where}ssl.keystore.key: needs ssl.keystore.certificate.chain too")
    endpoint = reader.verbatim("ssl.endpoint.identification.algorithm")
    if (endpoint or "").strip().lower() not in ("", "https"):
        raise UsageError(f"{reader.where}ssl.endpoint.identification.algorithm={endpoint}: expected https, or nothing")
    versions = reader.words("ssl.enabled.protocols", tuple(TLS_VERSIONS))
    suites = reader.words("ssl.cipher.suites", ())
    try:
        limit_tls(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), versions, suites, reader.where)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return Tls(
        truststore_path=reader.text("ssl.truststore.location"),
        truststore_text=reader.text("ssl.truststore.certificates"),
        keystore_path=reader.text("ssl.keystore.location"),
        certificate_text=reader.text("ssl.keystore.certificate.chain"),
        key_text=reader.text("ssl.keystore.key"),
        key_password=reader.text("ssl.key.password"),
        checks_host=endpoint is None or bool(endpoint.strip()),
        versions=versions,
        suites=suites,
        where=reader.where,
    )
