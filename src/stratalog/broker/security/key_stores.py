"""Keys and certificates of a broker, from PEM (files or settings) and PKCS12; JKS is rejected.

Every failure is an InvalidConfigError that names the setting and the file, and shows no secret.
"""

from __future__ import annotations

import contextlib
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from stratalog.config import BrokerConfig
from stratalog.errors import InvalidConfigError
from stratalog.util import REAL_FILESYSTEM, random_bytes

_PEM: Final = "PEM"
_TYPES: Final = (_PEM, "PKCS12", "JKS")
_JKS_MAGICS: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_PEM_BEGIN: Final = b"-----BEGIN"


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key and its certificates, as PEM; `password` decrypts the key. `key` is the setting it comes from."""

    pem: bytes = field(repr=False)
    password: str = field(repr=False)
    key: str


def load_identity(config: BrokerConfig, prefix: str = "") -> Identity:
    """Return the broker's identity from `ssl.keystore.*`. `prefix` is the listener's, for error messages."""
    location = config["ssl.keystore.location"]
    password = config["ssl.key.password"] or ""
    kind = _kind(config, "keystore", prefix)
    if config["ssl.keystore.certificate.chain"]:
        key = f"{prefix}ssl.keystore.certificate.chain"
        if kind != _PEM:
            raise InvalidConfigError(f"{prefix}ssl.keystore.type={kind}: {key} is for the type PEM")
        if location:
            raise InvalidConfigError(f"{prefix}ssl.keystore.location={location}: cannot be combined with {key}")
        if not config["ssl.keystore.key"]:
            raise InvalidConfigError(f"{prefix}ssl.keystore.key is not set: {key} needs its private key")
        pem = f"{config['ssl.keystore.key']}\n{config['ssl.keystore.certificate.chain']}\n"
        return Identity(pem.encode(), password, key)
    if config["ssl.keystore.key"]:
        raise InvalidConfigError(
            f"{prefix}ssl.keystore.certificate.chain is not set: {prefix}ssl.keystore.key needs its certificates"
        )
    if not location:
        raise InvalidConfigError(
            f"{prefix}ssl.keystore.location is not set: a listener that speaks TLS needs a key and its certificates"
        )
    key = f"{prefix}ssl.keystore.location={location}"
    content = _read(location, key)
    if kind == _PEM:
        if config["ssl.keystore.password"]:
            raise InvalidConfigError(f"{prefix}ssl.keystore.password: not for PEM; use ssl.key.password for its key")
        return Identity(content, password, key)
    _refuse_foreign(content, key, location, f"{prefix}ssl.keystore.type")
    return _from_pkcs12(content, config["ssl.keystore.password"] or "", key, f"{prefix}ssl.keystore.password")


def load_trusted(config: BrokerConfig, prefix: str = "") -> str | None:
    """Return the CA certificates for clients (`ssl.truststore.*`), as PEM; None when there are none."""
    location, text = config["ssl.truststore.location"], config["ssl.truststore.certificates"]
    kind = _kind(config, "truststore", prefix)
    key = f"{prefix}ssl.truststore.certificates" if text else f"{prefix}ssl.truststore.location={location}"
    if text:
        if kind != _PEM:
            raise InvalidConfigError(f"{prefix}ssl.truststore.type={kind}: {key} is for the type PEM")
        if location:
            raise InvalidConfigError(f"{prefix}ssl.truststore.location={location}: cannot be combined with {key}")
        found = str(text)
    elif location:
        content = _read(location, key)
        if kind == _PEM and config["ssl.truststore.password"]:
            raise InvalidConfigError(f"{prefix}ssl.truststore.password: not for PEM, whose certificates have none")
        if kind == _PEM:
            found = content.decode("ascii", "replace")
        else:
            _refuse_foreign(content, key, location, f"{prefix}ssl.truststore.type")
            found = _certificates_of_pkcs12(
                content, config["ssl.truststore.password"] or "", key, f"{prefix}ssl.truststore.password"
            )
    else:
        return None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=found)
    except (ssl.SSLError, ValueError):
        raise InvalidConfigError(f"{key}: expected certificates in PEM") from None
    return found


def take_identity(context: ssl.SSLContext, identity: Identity) -> None:
    """Load an identity into a context. InvalidConfigError for a wrong password or a key that does not match."""
    with _temporary_file(identity) as file:
        try:
            context.load_cert_chain(file, password=identity.password)
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", None) or "a wrong password, or no private key and certificates"
            raise InvalidConfigError(
                f"{identity.key}: expected a private key that ssl.key.password opens, and its certificates ({why})"
            ) from None


@contextlib.contextmanager
def _temporary_file(identity: Identity) -> Iterator[str]:
    """Yield the name of a short-lived file that only this user can read: the ssl module loads from files only."""
    try:
        file = tempfile.NamedTemporaryFile(suffix=".pem")  # noqa: SIM115  # closed below
    except OSError as error:
        raise _no_temporary_file(identity, error) from None
    with contextlib.closing(file):
        try:
            file.write(identity.pem)
            file.flush()
        except OSError as error:
            raise _no_temporary_file(identity, error) from None
        yield file.name


def _no_temporary_file(identity: Identity, error: OSError) -> InvalidConfigError:
    return InvalidConfigError(f"{identity.key}: cannot be loaded, which needs a temporary file: {error}")


def files_of(config: BrokerConfig) -> tuple[Path, ...]:
    """Return the files in the TLS settings."""
    names = (config["ssl.keystore.location"], config["ssl.truststore.location"])
    return tuple(Path(name) for name in names if name)


def _kind(config: BrokerConfig, store: str, prefix: str) -> str:
    kind = str(config[f"ssl.{store}.type"]).upper()
    if kind not in _TYPES:
        raise InvalidConfigError(f"{prefix}ssl.{store}.type={kind}: expected {', '.join(_TYPES[:-1])}")
    return kind


def _read(location: str, key: str) -> bytes:
    try:
        return REAL_FILESYSTEM.read_bytes(Path(location))
    except OSError as error:
        raise InvalidConfigError(f"{key}: cannot be read: {error.strerror or error}") from None


def _refuse_foreign(content: bytes, key: str, location: str, type_key: str) -> None:
    if content.startswith(_JKS_MAGICS):
        raise InvalidConfigError(
            f"{key} is a JKS key store, which is not supported; convert it with: keytool -importkeystore "
            f"-srckeystore {location} -destkeystore {location}.p12 -deststoretype PKCS12"
        )
    if content.startswith(_PEM_BEGIN):
        raise InvalidConfigError(f"{key} holds PEM; set {type_key}=PEM")


def _require_cryptography(key: str) -> None:
    if find_spec("cryptography") is None:
        raise InvalidConfigError(
            f"{key} needs the library cryptography: pip install 'stratalog[security]', or convert it to PEM"
        )


def _from_pkcs12(content: bytes, password: str, key: str, password_key: str) -> Identity:
    _require_cryptography(key)
    # An optional dependency.
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat, pkcs12

    try:
        private_key, certificate, more = pkcs12.load_key_and_certificates(content, password.encode())
    except ValueError:
        raise InvalidConfigError(f"{key}: no PKCS12, or {password_key} is wrong") from None
    if private_key is None or certificate is None:
        raise InvalidConfigError(f"{key}: holds no private key with its certificate")
    once = random_bytes(16).hex()
    pem = private_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(once.encode()))
    return Identity(pem + b"".join(each.public_bytes(Encoding.PEM) for each in (certificate, *more)), once, key)


def _certificates_of_pkcs12(content: bytes, password: str, key: str, password_key: str) -> str:
    _require_cryptography(key)
    from cryptography.hazmat.primitives.serialization import Encoding, pkcs12  # an optional dependency

    found = None
    # A store of certificates alone may have been written without a password.
    for each in dict.fromkeys((password.encode(), None if not password else password.encode())):
        with contextlib.suppress(ValueError):
            found = pkcs12.load_pkcs12(content, each)
            break
    if found is None:
        raise InvalidConfigError(f"{key}: no PKCS12, or {password_key} is wrong")
    certificates = [entry.certificate for entry in (found.cert, *found.additional_certs) if entry is not None]
    if not certificates:
        raise InvalidConfigError(f"{key}: holds no certificates")
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in certificates)
