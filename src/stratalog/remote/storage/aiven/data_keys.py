"""Data keys of encrypted segments: AES-256 keys encrypted with RSA, OAEP with SHA3-512 (also in MGF1).

Private keys are PEM files, identified by the key id in manifests: `aiven.encryption.key.file=<id>=<path>,...`. Writers
also have the public key (`SealingKey`).
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stratalog.errors import RemoteStorageError, UsageError
from stratalog.remote.storage.keyring import require_cryptography
from stratalog.util import REAL_FILESYSTEM, FileSystem, random_bytes

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

OPTION = "aiven.encryption.key.file"

_HASH_BYTES = 64
_AES_KEY_SIZES = (16, 24, 32)
#: Size of new data keys.
DATA_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class DataKeys:
    """Decrypts data keys with private keys, by id. Thread-safe."""

    private_keys: Mapping[str, RSAPrivateKey] = field(default_factory=dict, repr=False, hash=False)

    @classmethod
    def of_files(cls, names: str | None, fs: FileSystem = REAL_FILESYSTEM) -> DataKeys:
        """Return the keys of comma-separated `<id>=<path>`. UsageError names a file without an RSA key."""
        keys = {}
        for each in (name.strip() for name in (names or "").split(",")):
            if not each:
                continue
            require_cryptography(OPTION)
            key_id, separator, path = each.partition("=")
            if not key_id or not separator or not path:
                raise UsageError(f"{OPTION}={each}: expected <key id>=<path of a PEM file>")
            keys[key_id] = read_private_key(OPTION, path, fs)
        return cls(keys)

    def open(self, key_id: str, sealed: bytes, source: str) -> bytes:
        """Return the data key. RemoteStorageError names an unknown id, or a key that does not fit."""
        key = self.private_keys.get(key_id)
        if key is None:
            have = f"those configured are {', '.join(self.private_keys)}" if self.private_keys else "none is configured"
            raise RemoteStorageError(
                f"{source} is encrypted with the RSA key {key_id}; {have}: add its private key as "
                f"{OPTION}={key_id}=<path>"
            )
        try:
            data_key = _open(key, sealed)
        except ValueError as error:
            raise RemoteStorageError(
                f"{source}: the private key that {OPTION} gives as {key_id} does not open its data key: {error}"
            ) from error
        return data_key


@dataclass(frozen=True, slots=True)
class SealingKey:
    """Encrypts new data keys with a public key. Thread-safe."""

    key_id: str
    public_key: RSAPublicKey = field(repr=False, hash=False)

    def seal(self, data_key: bytes) -> bytes:
        """Return the encrypted data key, different bytes each time."""
        return _seal(self.public_key, data_key)


def read_private_key(option: str, path: str, fs: FileSystem) -> RSAPrivateKey:
    """Return the key in a PEM file. UsageError names the option, the file and what is wrong."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey  # an optional dependency
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(_read(option, path, fs), None)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{option}: {path} holds no private key as PEM without a password: {error}") from error
    if not isinstance(key, RSAPrivateKey):
        raise UsageError(f"{option}: {path} holds a private key, but not one of RSA")
    return key


def read_public_key(option: str, path: str, fs: FileSystem) -> RSAPublicKey:
    """Return the key in a PEM file. UsageError names the option, the file and what is wrong."""
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey  # as above
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(_read(option, path, fs))
    except ValueError as error:
        raise UsageError(f"{option}: {path} holds no public key as PEM: {error}") from error
    if not isinstance(key, RSAPublicKey):
        raise UsageError(f"{option}: {path} holds a public key, but not one of RSA")
    least = DATA_KEY_BYTES + 2 * _HASH_BYTES + 2
    if key.key_size < 8 * least:
        raise UsageError(f"{option}: {path} holds a key of {key.key_size} bits, expected {8 * least} or more")
    return key


def _read(option: str, path: str, fs: FileSystem) -> bytes:
    try:
        return fs.read_bytes(path)
    except OSError as error:
        raise UsageError(f"{option}: {path} cannot be read: {error.strerror or error}") from error


def _seal(key: RSAPublicKey, data_key: bytes) -> bytes:
    """RSAES-OAEP encryption (RFC 8017, section 7.1.1), the inverse of `_open`."""
    numbers = key.public_numbers()
    size = (numbers.n.bit_length() + 7) // 8
    padding = bytes(size - len(data_key) - 2 * _HASH_BYTES - 2)
    block = hashlib.sha3_512(b"").digest() + padding + b"\x01" + data_key
    seed = random_bytes(_HASH_BYTES)
    masked = _xor(block, _mask(seed, size - _HASH_BYTES - 1))
    encoded = b"\0" + _xor(seed, _mask(masked, _HASH_BYTES)) + masked
    return pow(int.from_bytes(encoded, "big"), numbers.e, numbers.n).to_bytes(size, "big")


def _open(key: RSAPrivateKey, sealed: bytes) -> bytes:
    """RSAES-OAEP decryption (RFC 8017, section 7.1.2): the library has no OAEP with SHA-3."""
    numbers = key.private_numbers()
    modulus = numbers.public_numbers.n
    size = (modulus.bit_length() + 7) // 8
    number = int.from_bytes(sealed, "big")
    if len(sealed) != size or number >= modulus:
        raise ValueError(f"it has {len(sealed)} bytes, expected {size} below the modulus")
    encoded = pow(number, numbers.d, modulus).to_bytes(size, "big")
    seed_mask = _mask(encoded[1 + _HASH_BYTES :], _HASH_BYTES)
    seed = _xor(encoded[1 : 1 + _HASH_BYTES], seed_mask)
    block = _xor(encoded[1 + _HASH_BYTES :], _mask(seed, size - _HASH_BYTES - 1))
    padding, separator, data_key = block[_HASH_BYTES:].partition(b"\x01")
    label = hmac.compare_digest(block[:_HASH_BYTES], hashlib.sha3_512(b"").digest())
    if encoded[0] != 0 or not label or any(padding) or not separator or len(data_key) not in _AES_KEY_SIZES:
        raise ValueError("it was sealed with another key")
    return data_key


def _mask(seed: bytes, size: int) -> bytes:
    """MGF1 (RFC 8017, B.2.1)."""
    blocks = (
        hashlib.sha3_512(seed + counter.to_bytes(4, "big")).digest() for counter in range(-(-size // _HASH_BYTES))
    )
    return b"".join(blocks)[:size]


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))
