"""Encode and decode chunks: zstd first, then AES-256-GCM.

An encrypted chunk is

    nonce     12 bytes, random for each chunk
    ciphertext
    tag       16 bytes

under a key derived for the segment (HKDF-SHA-256 of the configured key with the segment id as salt), so that random
nonces never collide under one key. The associated data is "<key of the object>#<chunk number>/<number of chunks>": a
chunk that was moved within its object or to another one, or whose later chunks were cut off, does not decrypt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import cramjam
from typing_extensions import Buffer

from stratalog.errors import DamagedRemoteObjectError
from stratalog.remote.storage.chunks import StoredChunk
from stratalog.util import random_bytes

NONCE_BYTES = 12
TAG_BYTES = 16

_ZSTD_LEVEL = 3


class Compression(Enum):
    """Compression of a chunk before encryption."""

    NONE = "none"
    ZSTD = "zstd"


class ChunkCipher(Protocol):
    """Encrypts the chunks of one segment. Thread-safe."""

    def seal(self, data: Buffer, associated: bytes) -> bytes: ...

    def open(self, stored: Buffer, associated: bytes) -> bytes:
        """Decrypt the result of `seal`. Raises ValueError for other bytes."""
        ...


@dataclass(frozen=True, slots=True)
class AesGcm:
    """AES-GCM with a random nonce before the ciphertext and the tag after it.

    `associated` may replace the associated data.
    """

    key: bytes
    associated: Callable[[bytes], bytes] = lambda given: given

    def seal(self, data: Buffer, associated: bytes) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # an optional dependency

        nonce = random_bytes(NONCE_BYTES)
        return nonce + AESGCM(self.key).encrypt(nonce, bytes(data), self.associated(associated))

    def open(self, stored: Buffer, associated: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag  # an optional dependency
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        view = memoryview(stored)
        if len(view) < NONCE_BYTES + TAG_BYTES:
            raise ValueError(f"{len(view)} bytes are too few for a nonce and a tag")
        try:
            return AESGCM(self.key).decrypt(view[:NONCE_BYTES], view[NONCE_BYTES:], self.associated(associated))
        except InvalidTag as error:
            raise ValueError("its tag does not match") from error


@dataclass(frozen=True, slots=True)
class ChunkCodec:
    """Encodes and decodes every chunk of a segment. Thread-safe."""

    compression: Compression = Compression.NONE
    cipher: ChunkCipher | None = None

    def encode(self, object_key: str, number: int, count: int, content: Buffer) -> bytes:
        """Return the stored form of one chunk."""
        data: Buffer = content
        if self.compression is Compression.ZSTD:
            data = cramjam.zstd.compress(data, level=_ZSTD_LEVEL)
        if self.cipher is not None:
            return self.cipher.seal(data, associated_data(object_key, number, count))
        return bytes(data)

    def decode(self, object_key: str, chunk: StoredChunk, count: int, stored: Buffer) -> Buffer:
        """Return the content of one chunk.

        DamagedRemoteObjectError names the object and the damaged chunk.
        """
        data: Buffer = stored
        try:
            if self.cipher is not None:
                data = self.cipher.open(data, associated_data(object_key, chunk.number, count))
            if self.compression is Compression.ZSTD:
                data = _decompressed(data, chunk.end - chunk.start)
            if memoryview(data).nbytes != chunk.end - chunk.start:
                raise ValueError(f"it holds {memoryview(data).nbytes} bytes")
        except ValueError as error:
            raise DamagedRemoteObjectError(
                f"{object_key} is damaged in the store: chunk {chunk.number} at position {chunk.stored_start} is not "
                f"the {chunk.end - chunk.start} bytes from {chunk.start} on that were stored: {error}"
            ) from error
        return data


def associated_data(object_key: str, number: int, count: int) -> bytes:
    """Return the associated data that binds a chunk to its place."""
    return f"{object_key}#{number}/{count}".encode()


def _decompressed(data: Buffer, size: int) -> Buffer:
    """Decompress at most `size` bytes of a frame. ValueError for one that is damaged or larger."""
    out = bytearray(size)
    try:
        written = cramjam.zstd.decompress_into(bytes(data), out)
    except cramjam.DecompressionError as error:
        raise ValueError(f"no zstd frame of that size: {error}") from error
    return out if written == size else out[:written]
