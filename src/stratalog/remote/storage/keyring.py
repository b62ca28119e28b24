"""Keys of encrypted segments: read from files, and identified by ids derived from them.

A file holds 32 bytes, or the base64 of one or more keys, one a line. The first key of the first file is for new
segments; the others are for reading older ones. A broker reads the files again before each new segment (`KeyFiles`), so
keys rotate without a restart. Manifests and messages have the id of a key, which reveals nothing of it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from uuid import UUID

from stratalog.errors import RemoteStorageError, UsageError
from stratalog.util import REAL_FILESYSTEM, FileSystem

logger = logging.getLogger(__name__)

KEY_BYTES = 32

_ID_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Keyring:
    """AES-256 keys by id. `active_id` is that of new segments, None for no encryption."""

    keys: Mapping[str, bytes] = field(default_factory=dict, repr=False, hash=False)
    active_id: str | None = None

    def current(self) -> Keyring:
        """Return the keyring itself: it does not depend on files."""
        return self

    def segment_key(self, wanted: str, segment_id: UUID, source: str) -> bytes:
        """Return the key of one segment.

        RemoteStorageError names the missing id and those that are configured.
        """
        key = self.keys.get(wanted)
        if key is None:
            have = f"those configured are {', '.join(self.keys)}" if self.keys else "none is configured"
            raise RemoteStorageError(
                f"{source} is encrypted with the key {wanted}; {have}: add the file of that key to encryption.key.file"
            )
        require_cryptography("encryption.key.file")
        from cryptography.hazmat.primitives.hashes import SHA256  # an optional dependency
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        derivation = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=segment_id.bytes, info=b"stratalog segment")
        return derivation.derive(key)


class KeyFiles:
    """The keys in the files at comma-separated paths, reread on change. Thread-safe.

    UsageError at first names a file that is missing or holds no key. Later, such a file is logged as an error, and the
    earlier keys stay in use.
    """

    def __init__(self, names: str | None, fs: FileSystem = REAL_FILESYSTEM) -> None:
        self._paths = [name.strip() for name in (names or "").split(",") if name.strip()]
        self._fs = fs
        self._lock = threading.Lock()
        self._has_failed = False
        self._keyring = Keyring()
        if self._paths:
            require_cryptography("encryption.key.file")
            self._keyring = self._read()

    def current(self) -> Keyring:
        if not self._paths:
            return self._keyring
        with self._lock:
            try:
                found = self._read()
            except UsageError as error:
                if not self._has_failed:
                    logger.error("%s; the previous encryption keys stay in use", error)
                self._has_failed = True
                return self._keyring
            self._has_failed = False
            if (found.active_id, found.keys) != (self._keyring.active_id, self._keyring.keys):
                logger.warning(
                    "New segments are encrypted with the key %s from now on; keys that can read: %s",
                    found.active_id,
                    ", ".join(found.keys),
                )
                self._keyring = found
            return self._keyring

    def _read(self) -> Keyring:
        keys = {key_id(key): key for path in self._paths for key in _read_keys(path, self._fs)}
        return Keyring(keys, next(iter(keys)))


def key_id(key: bytes) -> str:
    """Return 16 hexadecimal digits that identify a key."""
    return hashlib.sha256(b"stratalog key id\0" + key).hexdigest()[:_ID_DIGITS]


def require_cryptography(option: str) -> None:
    """Raise UsageError with instructions unless the encryption library is installed."""
    if find_spec("cryptography") is None:
        raise UsageError(
            f"{option} needs the library cryptography: pip install 'stratalog[encryption]', or remove the option"
        )


def _read_keys(path: str, fs: FileSystem) -> list[bytes]:
    try:
        data = fs.read_bytes(path)
    except OSError as error:
        raise UsageError(f"encryption.key.file={path} cannot be read: {error.strerror or error}") from error
    if len(data) == KEY_BYTES:
        return [data]
    lines = data.split()
    keys = _decoded(lines) or _decoded([b"".join(lines)])  # several keys, or one in wrapped lines
    if not keys:
        raise UsageError(
            f"encryption.key.file={path} holds no key: expected {KEY_BYTES} bytes or their base64, one key a line, not "
            f"{len(data)} bytes; `openssl rand -base64 32` makes one"
        )
    return keys


def _decoded(texts: list[bytes]) -> list[bytes]:
    """Return the decoded keys, or none if one of the texts is invalid."""
    try:
        keys = [base64.b64decode(text, validate=True) for text in texts]
    except binascii.Error:
        return []
    return keys if all(len(key) == KEY_BYTES for key in keys) else []
