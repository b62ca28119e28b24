"""One chunk to its stored form and back: zstd first, AES-256-GCM around it.

An encrypted chunk is

    nonce     12 bytes, random for each chunk
    ciphertext
    tag       16 bytes

under a key that is derived for the segment alone (HKDF-SHA-256 of the configured key with the segment id as salt), so
that random nonces never meet under one key. The associated data is "<key of the object>#<chunk number>/<number of
chunks>": a chunk that was moved within its object, to another object, or behind which chunks were cut off does not
open.
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
    """What is done to a chunk before it is encrypted."""

    NONE = "none"
    ZSTD = "zstd"


class ChunkCipher(Protocol):
    """Encrypts what is stored of one segment. Thread-safe."""

    def seal(self, data: Buffer, associated: bytes) -> bytes: ...

    def open(self, stored: Buffer, associated: bytes) -> bytes:
        """Open what `seal` gave. Raises ValueError when the bytes were not sealed so."""
        ...


@dataclass(frozen=True, slots=True)
class AesGcm:
    """AES-GCM with a random nonce in front and the tag behind.

    `associated` has the last word on the associated data.
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
            raise ValueError("its tag does not fit") from error


@dataclass(frozen=True, slots=True)
class ChunkCodec:
    """What is done to every chunk of a segment. Thread-safe."""

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

        DamagedRemoteObjectError names the object and the chunk that does not give it.
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
    """Return what binds a chunk to its place."""
    return f"{object_key}#{number}/{count}".encode()


def _decompressed(data: Buffer, size: int) -> Buffer:
    """At most `size` bytes of a frame, whatever it claims to hold. ValueError for one that is damaged or larger."""
    out = bytearray(size)
    try:
        written = cramjam.zstd.decompress_into(bytes(data), out)
    except cramjam.DecompressionError as error:
        raise ValueError(f"no zstd frame of that size: {error}") from error
    return out if written == size else out[:written]
