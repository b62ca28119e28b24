"""Names in the broker's certificate: a certificate may be replaced at runtime only by one with the same names."""

from __future__ import annotations

from dataclasses import dataclass

from stratalog.config import BrokerConfig
from stratalog.errors import InvalidConfigError

_DN_CHANGES, _SAN_CHANGES = "ssl.allow.dn.changes", "ssl.allow.san.changes"


@dataclass(frozen=True, slots=True)
class CertificateNames:
    """The subject, and the subject alternative names."""

    subject: str
    alternatives: frozenset[str]


def names_of_certificate(pem: bytes) -> CertificateNames | None:
    """Return the names in the first certificate; None if the library to read them is not installed.

    InvalidConfigError for a certificate that OpenSSL takes and this library cannot read.
    """
    try:
        from cryptography import x509  # an optional dependency
    except ImportError:
        return None
    try:
        certificate = x509.load_pem_x509_certificates(pem)[0]
        try:
            found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            alternatives = frozenset(str(name.value) for name in found)
        except x509.ExtensionNotFound:
            alternatives = frozenset()
        return CertificateNames(certificate.subject.rfc4514_string(), alternatives)
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        raise InvalidConfigError(f"the names of the certificate cannot be read: {error}") from None


def check_same_names(before: CertificateNames | None, after: CertificateNames | None, config: BrokerConfig) -> None:
    """Raise InvalidConfigError, with Kafka's message, if the names differ and the configuration does not allow it."""
    if before is None or after is None:
        return
    if before.subject != after.subject and not _allows(config, _DN_CHANGES):
        raise InvalidConfigError(
            f"Keystore DistinguishedName does not match:  existing={{DN={before.subject}}}, new={{DN={after.subject}}}"
        )
    if not after.alternatives >= before.alternatives and not _allows(config, _SAN_CHANGES):
        raise InvalidConfigError(
            f"Keystore SubjectAltNames do not match:  existing={{SAN={sorted(before.alternatives)}}}, "
            f"new={{SAN={sorted(after.alternatives)}}}"
        )


def _allows(config: BrokerConfig, name: str) -> bool:
    return (config.properties.get(name) or "").strip().lower() == "true"
