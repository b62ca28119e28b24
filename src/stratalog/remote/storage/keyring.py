"""The keys of encrypted segments: read from files, told apart by ids that are made of the keys themselves.

A file holds 32 bytes, or their base64. Of several files the first has the key of new segments; the others are for
reading what was written before. The id of a key is in the manifests of its segments and in messages; it gives nothing
of it away.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from uuid import UUID

from stratalog.errors import RemoteStorageError, UsageError
from stratalog.util import REAL_FILESYSTEM, FileSystem

KEY_BYTES = 32

_ID_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Keyring:
    """AES-256 keys by id; `active_id` is that of new segments, None when they are not encrypted."""

    keys: Mapping[str, bytes] = field(default_factory=dict, repr=False, hash=False)
    active_id: str | None = None

    @classmethod
    def of_files(cls, names: str | None, fs: FileSystem = REAL_FILESYSTEM) -> Keyring:
        """Return the keys of comma-separated paths. UsageError names the file that is missing or holds no key."""
        paths = [name.strip() for name in (names or "").split(",") if name.strip()]
        if not paths:
            return cls()
        require_cryptography("encryption.key.file")
        keys = {key_id(key): key for key in (_read_key(path, fs) for path in paths)}
        return cls(keys, next(iter(keys)))

    def segment_key(self, wanted: str, segment_id: UUID, source: str) -> bytes:
        """Return the key of one segment.

        RemoteStorageError names the id of a key that is not here, and those that are.
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


def key_id(key: bytes) -> str:
    """16 hexadecimal digits that tell a key from others."""
    return hashlib.sha256(b"stratalog key id\0" + key).hexdigest()[:_ID_DIGITS]


def require_cryptography(option: str) -> None:
    """UsageError says how to get the library that encryption needs, where it is not installed."""
    if find_spec("cryptography") is None:
        raise UsageError(
            f"{option} needs the library cryptography: pip install 'stratalog[encryption]', or take the option away"
        )


def _read_key(path: str, fs: FileSystem) -> bytes:
    try:
        data = fs.read_bytes(path)
    except OSError as error:
        raise UsageError(f"encryption.key.file={path} cannot be read: {error.strerror or error}") from error
    if len(data) == KEY_BYTES:
        return data
    try:
        key = base64.b64decode(b"".join(data.split()), validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise UsageError(
            f"encryption.key.file={path} holds no key: expected {KEY_BYTES} bytes or their base64, not {len(data)} "
            "bytes; `openssl rand -base64 32` makes one"
        )
    return key
