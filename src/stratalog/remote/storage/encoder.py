"""Store the contents of a new segment as objects: unchanged, or in compressed or encrypted chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stratalog.errors import RetriableRemoteStorageError, UsageError
from stratalog.remote.api import RemoteLogSegmentMetadata
from stratalog.remote.storage.chunk_codec import NONCE_BYTES, TAG_BYTES, AesGcm, ChunkCodec, Compression
from stratalog.remote.storage.chunks import ChunkIndex
from stratalog.remote.storage.keyring import KeyFiles, Keyring
from stratalog.remote.storage.manifest import BLOCK_BYTES, Encryption, StoredObject
from stratalog.remote.storage.object_names import ObjectKey, ObjectKind
from stratalog.remote.storage.object_store import UPLOAD_PART_BYTES, ObjectStore, Uploaded
from stratalog.util import FileSystem, crc32c


@dataclass(frozen=True, slots=True)
class Encoding:
    """How the contents of new segments are encoded."""

    compression: Compression = Compression.NONE
    keyring: Keyring | KeyFiles = field(default_factory=Keyring)

    @classmethod
    def of(cls, compression: str, keyring: Keyring | KeyFiles) -> Encoding:
        """Return an encoding. UsageError for an unknown compression."""
        try:
            return cls(Compression(compression), keyring)
        except ValueError as error:
            names = " or ".join(each.value for each in Compression)
            raise UsageError(f"stratalog.remote.compression={compression}: expected {names}") from error

    def current(self) -> Encoding:
        """Return the encoding of a segment that begins now. Its key stays fixed if key files change."""
        return Encoding(self.compression, self.keyring.current())

    @property
    def is_plain(self) -> bool:
        return self.compression is Compression.NONE and self.keyring.current().active_id is None

    @property
    def encryption(self) -> Encryption | None:
        active_id = self.keyring.current().active_id
        return None if active_id is None else Encryption(active_id)


class Encoder:
    """Stores the contents of one segment. Raises RemoteStorageError."""

    def __init__(
        self,
        store: ObjectStore,
        encoding: Encoding,
        metadata: RemoteLogSegmentMetadata,
        fs: FileSystem,
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> None:
        self._store = store
        self._on_progress = on_progress
        self._metadata = metadata
        self._fs = fs
        self._codec = None if encoding.is_plain else _codec(encoding, metadata)

    def put_file(self, kind: ObjectKind, path: Path) -> StoredObject:
        try:
            if self._codec is None:
                return _plain(self._store.put_file(self._key(kind), path, progress=self._on_progress))
            with self._fs.open(path) as file:
                return self._put_chunks(kind, file.size(), file.pread, self._codec)
        except FileNotFoundError as error:
            raise RetriableRemoteStorageError(f"{path} was removed while it was copied") from error

    def put(self, kind: ObjectKind, content: bytes) -> StoredObject:
        if self._codec is None:
            return _plain(self._store.put(self._key(kind), content))

        def read(size: int, position: int) -> bytes:
            return content[position : position + size]

        return self._put_chunks(kind, len(content), read, self._codec)

    def _put_chunks(
        self, kind: ObjectKind, size: int, read: Callable[[int, int], bytes], codec: ChunkCodec
    ) -> StoredObject:
        content = ChunkedContent(size, read, BLOCK_BYTES)
        return put_chunks(self._store, self._key(kind), content, codec, on_progress=self._on_progress)

    def _key(self, kind: ObjectKind) -> str:
        return str(ObjectKey.of(self._metadata, kind))


@dataclass(frozen=True, slots=True)
class ChunkedContent:
    """A content to store in chunks of `chunk_bytes`. `read` returns bytes at a position."""

    size: int
    read: Callable[[int, int], bytes]
    chunk_bytes: int


def put_chunks(
    store: ObjectStore,
    key: str,
    content: ChunkedContent,
    codec: ChunkCodec,
    *,
    on_progress: Callable[[int], None] | None = None,
) -> StoredObject:
    """Store the chunks of a content as one object. Raises RemoteStorageError."""
    size, chunk_bytes = content.size, content.chunk_bytes
    count = -(-size // chunk_bytes)
    sizes: list[int] = []
    crc = 0

    def chunks() -> Iterator[bytes]:
        nonlocal crc
        for number in range(count):
            start = number * chunk_bytes
            data = content.read(min(chunk_bytes, size - start), start)
            crc = crc32c(data, crc)
            stored = codec.encode(key, number, count, data)
            sizes.append(len(stored))
            yield stored

    size_max = size + count * _growth_max(chunk_bytes)
    if size_max <= UPLOAD_PART_BYTES:
        uploaded = store.put(key, b"".join(chunks()))
    else:
        uploaded = store.put_pieces(key, chunks(), size_max, progress=on_progress)
    return StoredObject(size, crc, ChunkIndex(size, chunk_bytes, tuple(sizes)), uploaded.etag)


def _growth_max(chunk_bytes: int) -> int:
    """Return how many bytes a chunk may grow by: nonce, tag, and a zstd frame of incompressible data."""
    return NONCE_BYTES + TAG_BYTES + 1024 + chunk_bytes // 128


def _codec(encoding: Encoding, metadata: RemoteLogSegmentMetadata) -> ChunkCodec:
    keyring = encoding.keyring.current()
    active = keyring.active_id
    if active is None:
        return ChunkCodec(encoding.compression)
    segment_id = metadata.segment_id
    return ChunkCodec(encoding.compression, AesGcm(keyring.segment_key(active, segment_id.id, str(segment_id))))


def _plain(uploaded: Uploaded) -> StoredObject:
    return StoredObject(uploaded.size, uploaded.crc32c, etag=uploaded.etag)
