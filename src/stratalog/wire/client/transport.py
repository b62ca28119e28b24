"""A socket to a broker, plain or within TLS.

Certificates and keys are PEM, from files or from the options themselves.
"""

from __future__ import annotations

import socket
import ssl
import tempfile
from pathlib import Path

from stratalog.errors import UsageError
from stratalog.util import REAL_FILESYSTEM
from stratalog.wire.client.options import ConnectionOptions
from stratalog.wire.client.tls_limits import limit_tls
from stratalog.wire.client.tls_options import Tls


def connect(host: str, port: int, options: ConnectionOptions) -> socket.socket:
    """Return a connected socket whose calls wait `request_timeout_s`.

    OSError. Raises UsageError for certificates that are none.
    """
    plain = socket.create_connection((host, port), timeout=options.connect_timeout_s)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = (
            tls_context(options.tls).wrap_socket(plain, server_hostname=host)
            if options.protocol.is_encrypted
            else plain
        )
        connection.settimeout(options.request_timeout_s)
    except BaseException:
        plain.close()
        raise
    return connection


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Return trust and identity as Python's `ssl` takes them. Raises UsageError for certificates that are none."""
    context = ssl.create_default_context(cadata=_trusted(tls))
    context.check_hostname = tls.checks_host
    limit_tls(context, tls.versions, tls.suites, tls.where)
    if tls.keystore_path is not None:
        key = f"{tls.where}ssl.keystore.location={tls.keystore_path}"
        _load_identity(context, key, Path(tls.keystore_path), tls.key_password)
    elif tls.certificate_text is not None:
        # the ssl module takes an identity from a file alone: one that no other user can read, for a moment
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(f"{tls.key_text or ''}\n{tls.certificate_text}\n")
            file.flush()
            key = f"{tls.where}ssl.keystore.certificate.chain"
            _load_identity(context, key, Path(file.name), tls.key_password)
    return context


def _trusted(tls: Tls) -> str | None:
    """Certificates to trust, as text; None means the system's."""
    name, text = f"{tls.where}ssl.truststore.certificates", tls.truststore_text
    if tls.truststore_path is not None:
        name = f"{tls.where}ssl.truststore.location={tls.truststore_path}"
        try:
            text = REAL_FILESYSTEM.read_bytes(Path(tls.truststore_path)).decode("ascii", "replace")
        except OSError as error:
            raise UsageError(f"{name}: cannot be read: {error.strerror or error}") from error
    if text is None:
        return None
    try:
        # `create_default_context` takes an empty text for none, and would trust the system's certificates instead.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise UsageError(f"{name}: expected certificates in PEM") from None
    return text


def _load_identity(context: ssl.SSLContext, name: str, path: Path, password: str | None) -> None:
    try:
        context.load_cert_chain(path, password=password or "")
    except (OSError, ValueError) as error:
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or "no key and certificate"
        raise UsageError(f"{name}: expected a private key and its certificates in PEM ({why})") from None
