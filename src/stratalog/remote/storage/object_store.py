"""A handful of verbs on an object store: a directory, memory, S3, GCS or Azure, all through obstore.

Every error is a `RemoteStorageError` with one line that names the operation, the object and what to do:
`RemoteResourceNotFoundError` when the object is missing, `RetriableRemoteStorageError` when it may pass (unreachable,
timed out, throttled, 5xx), the plain one when it will not (credentials, missing bucket, full disk).

Every request to a network store has a deadline (`StoreOptions.timeout_ms`, connecting included) and is tried again at
most `max_retries` times within `retry_timeout_ms`; what takes several requests (upload, listing) has one for each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from typing_extensions import Buffer

from stratalog.errors import (
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
    StratalogError,
)
from stratalog.remote.storage.store_errors import RangeBehindEndError, map_store_error
from stratalog.util import REAL_FILESYSTEM, FileSystem, crc32c

#: A larger object goes in parts: at least this large, and no more of them than any store takes (S3: 10,000).
UPLOAD_PART_BYTES = 8 * 1024 * 1024
UPLOAD_PARTS_MAX = 10_000
#: Several parts are under way at a time while they are small: what is in memory stays within this, or one large part.
UPLOAD_PARTS_AT_ONCE = 4
_UPLOAD_MEMORY_BYTES = UPLOAD_PARTS_AT_ONCE * UPLOAD_PART_BYTES
_MIB = 1024 * 1024

_LIST_CHUNK = 1000

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object as a listing shows it."""

    key: str
    size: int
    last_modified_ms: int
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """One level of the hierarchy of keys: names of directories and the objects directly here."""

    directories: tuple[str, ...]
    objects: tuple[ObjectInfo, ...]


@dataclass(frozen=True, slots=True)
class Uploaded:
    """What was sent: the size and the CRC-32C of the very bytes that went out, and the entity tag that came back."""

    size: int
    crc32c: int
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class UploadPlan:
    """How an object is cut into parts, the last one smaller, and how many of them are under way at a time."""

    part_bytes: int
    parts_at_once: int

    @classmethod
    def of(cls, size: int) -> UploadPlan:
        """For an object of `size` bytes: parts grow in whole MiB with it, so that there are never too many."""
        needed = -(-size // UPLOAD_PARTS_MAX)
        part_bytes = max(UPLOAD_PART_BYTES, -(-needed // _MIB) * _MIB)
        return cls(part_bytes, max(1, _UPLOAD_MEMORY_BYTES // part_bytes))


class ObjectStore(ABC):
    """Keys are '/'-separated paths relative to the store's URL. Thread-safe."""

    url: str

    @staticmethod
    def from_url(url: str, options: Mapping[str, str] | None = None, fs: FileSystem = REAL_FILESYSTEM) -> ObjectStore:
        """Open `file:///dir`, `memory://name`, `s3://bucket/prefix`, `gs://...` or `az://...`.

        `options` are those of `StoreOptions`; every other one goes to obstore's store of that kind as it is
        (`endpoint`, `access_key_id`, `secret_access_key`, `session_token`, `region`, ...). What is not given for S3 is
        taken from AWS_* in the environment. Nothing is contacted yet. UsageError when the URL or an option cannot be
        used.
        """
        from stratalog.remote.storage.opening import open_store  # it is made of this module

        return open_store(url, options or {}, fs)

    @abstractmethod
    def put(self, key: str, data: Buffer) -> Uploaded:
        """Store an object whole or not at all, replacing the one that is there."""

    @abstractmethod
    def create(self, key: str, data: Buffer) -> bool:
        """Store a small object whole unless there is one: False then, and nothing is changed.

        Of several that create it at the same time one does. S3, GCS, Azure and directories keep to that; who depends on
        it with another store tries first whether it does. After an error, or with a retry within, it may have been
        made.
        """

    @abstractmethod
    def put_file(self, key: str, path: Path, *, progress: Callable[[int], None] | None = None) -> Uploaded:
        """Store a file's content, in parts (`UploadPlan`) with bounded memory; whole or not at all.

        `progress` is called with the bytes read so far, every `UPLOAD_PART_BYTES`, and may raise to give up. A part
        that fails is sent again by itself, within the retries of the store.
        """

    @abstractmethod
    def put_pieces(
        self,
        key: str,
        pieces: Iterable[Buffer],
        size_max: int,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> Uploaded:
        """Store what `pieces` give one after the other, at most `size_max` bytes; as `put_file` otherwise."""

    @abstractmethod
    def get(self, key: str) -> Buffer:
        """Return an object whole."""

    @abstractmethod
    def get_range(self, key: str, start: int, end: int) -> Buffer:
        """Bytes [start, end) of an object, fewer (even none) only where it ends."""

    @abstractmethod
    def head(self, key: str) -> ObjectInfo:
        """Size and time of an object."""

    @abstractmethod
    def list(self, directory: str = "") -> Iterator[ObjectInfo]:
        """Return all objects below a directory, in pages; an absent directory is empty."""

    @abstractmethod
    def list_level(self, directory: str = "") -> Listing:
        """Return what lies directly in a directory."""

    @abstractmethod
    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects, in this order; those that do not exist are no error."""

    def delete_together(self, keys: Sequence[str]) -> None:
        """Delete objects in any order, by one request for many of them where the store has that.

        Those that do not exist are no error. After an error some may be gone and others not.
        """
        self.delete(keys)

    def check(self) -> None:
        """Contact the store once, so that a wrong URL or credential is named at start."""
        self.list_level("")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"


class ForwardingObjectStore(ObjectStore):
    """The base of stores around a store: every verb calls the same verb of `inner`, within `around`."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.url = inner.url

    def around(self, _operation: str, _key: str, call: Callable[[], _Result]) -> _Result:
        """Call `inner`. `operation` is put, get, head, list or delete; a listing is read within the caller's loop."""
        return call()

    def put(self, key: str, data: Buffer) -> Uploaded:
        return self.around("put", key, lambda: self.inner.put(key, data))

    def create(self, key: str, data: Buffer) -> bool:
        return self.around("put", key, lambda: self.inner.create(key, data))

    def put_file(self, key: str, path: Path, *, progress: Callable[[int], None] | None = None) -> Uploaded:
        return self.around("put", key, lambda: self.inner.put_file(key, path, progress=progress))

    def put_pieces(
        self,
        key: str,
        pieces: Iterable[Buffer],
        size_max: int,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> Uploaded:
        return self.around("put", key, lambda: self.inner.put_pieces(key, pieces, size_max, progress=progress))

    def get(self, key: str) -> Buffer:
        return self.around("get", key, lambda: self.inner.get(key))

    def get_range(self, key: str, start: int, end: int) -> Buffer:
        return self.around("get", key, lambda: self.inner.get_range(key, start, end))

    def head(self, key: str) -> ObjectInfo:
        return self.around("head", key, lambda: self.inner.head(key))

    def list(self, directory: str = "") -> Iterator[ObjectInfo]:
        return self.around("list", directory, lambda: self.inner.list(directory))

    def list_level(self, directory: str = "") -> Listing:
        return self.around("list", directory, lambda: self.inner.list_level(directory))

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.around("delete", key, partial(self.inner.delete, [key]))

    def delete_together(self, keys: Sequence[str]) -> None:
        if keys:
            self.around("delete", keys[0], partial(self.inner.delete_together, keys))


# --- stores of obstore ------------------------------------------------------------------------------------------------


class ObstoreObjectStore(ObjectStore):
    def __init__(
        self, store: Any, url: str, *, directory: Path | None = None, fs: FileSystem = REAL_FILESYSTEM
    ) -> None:
        """`directory` is where a local store lies: its objects are synced, as a put there must survive a crash too."""
        import obstore  # start-up cost

        self.url = url
        self._obstore = obstore
        self._store = store
        self._directory = directory
        self._fs = fs

    def put(self, key: str, data: Buffer) -> Uploaded:
        view = memoryview(data).cast("B")
        with self._mapped("put", key):
            # The native layer wants a plain buffer; a small object goes in one request.
            result = self._obstore.put(self._store, key, bytes(view), use_multipart=view.nbytes > UPLOAD_PART_BYTES)
            self._sync(key)
        return Uploaded(view.nbytes, crc32c(view), result["e_tag"])

    def create(self, key: str, data: Buffer) -> bool:
        with self._mapped("put", key):
            try:
                self._obstore.put(self._store, key, bytes(data), mode="create", use_multipart=False)
            except self._obstore.exceptions.AlreadyExistsError:
                return False
            self._sync(key)
        return True

    def put_file(self, key: str, path: Path, *, progress: Callable[[int], None] | None = None) -> Uploaded:
        with self._fs.open(path) as file:
            size = file.size()
            if size <= UPLOAD_PART_BYTES:
                return self.put(key, file.pread(size, 0))

            def pieces() -> Iterator[bytes]:
                position = 0
                while piece := file.pread(UPLOAD_PART_BYTES, position):
                    position += len(piece)
                    yield piece

            return self.put_pieces(key, pieces(), size, progress=progress)

    def put_pieces(
        self,
        key: str,
        pieces: Iterable[Buffer],
        size_max: int,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> Uploaded:
        crc, sent = 0, 0

        def watched() -> Iterator[bytes]:
            nonlocal crc, sent
            for piece in pieces:
                if progress is not None:
                    progress(sent)
                data = piece if isinstance(piece, bytes) else bytes(piece)
                crc = crc32c(data, crc)
                sent += len(data)
                yield data

        plan = UploadPlan.of(size_max)
        with self._mapped("put", key):
            result = self._obstore.put(
                self._store,
                key,
                watched(),
                chunk_size=plan.part_bytes,
                max_concurrency=plan.parts_at_once,
            )
            self._sync(key)
        return Uploaded(sent, crc, result["e_tag"])

    def get(self, key: str) -> Buffer:
        with self._mapped("get", key):
            result = self._obstore.get(self._store, key)
            return self._whole(key, result.bytes(), result.meta["size"])

    def get_range(self, key: str, start: int, end: int) -> Buffer:
        if end <= start:
            return b""
        try:
            with self._mapped("get", key):
                result = self._obstore.get(self._store, key, options={"range": (start, end)})
                expected = min(end, result.meta["size"]) - start
                return self._whole(key, result.bytes(), expected)
        except RangeBehindEndError:
            return b""

    def head(self, key: str) -> ObjectInfo:
        with self._mapped("head", key):
            return _info(self._obstore.head(self._store, key))

    def list(self, directory: str = "") -> Iterator[ObjectInfo]:
        with self._mapped("list", directory):
            pages = iter(self._obstore.list(self._store, prefix=directory or None, chunk_size=_LIST_CHUNK))
        while True:
            with self._mapped("list", directory):
                page = next(pages, None)
            if page is None:
                return
            for meta in page:
                yield _info(meta)

    def list_level(self, directory: str = "") -> Listing:
        with self._mapped("list", directory):
            found = self._obstore.list_with_delimiter(self._store, prefix=directory or None)
        return Listing(
            tuple(name.rsplit("/", 1)[-1] for name in found["common_prefixes"]),
            tuple(_info(meta) for meta in found["objects"]),
        )

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            try:
                with self._mapped("delete", key):
                    self._obstore.delete(self._store, key)
            except RemoteResourceNotFoundError:
                continue

    def delete_together(self, keys: Sequence[str]) -> None:
        if self._directory is None and len(keys) > 1:
            try:
                with self._mapped("delete", keys[0]):
                    self._obstore.delete(self._store, list(keys))
            except RetriableRemoteStorageError:
                raise
            except RemoteStorageError:
                # One of them does not exist, or the server has no request for many: one by one says which and why.
                self.delete(keys)
        else:
            self.delete(keys)

    def _whole(self, key: str, data: Any, expected: int) -> Buffer:
        """Return `data`, when it is as long as the store said it would be."""
        if len(data) != expected:
            raise RetriableRemoteStorageError(
                f"the body has {len(data)} bytes, {expected} were announced", where=f"get {self.url}/{key}"
            )
        return memoryview(data)

    def _sync(self, key: str) -> None:
        """Make an object of a local store durable, with the directories that lead to it."""
        if self._directory is None:
            return
        path = self._directory / key
        with self._fs.open(path) as file:
            file.sync()
        for parent in path.parents:
            self._fs.sync_dir(parent)
            if parent == self._directory:
                return

    @contextmanager
    def _mapped(self, operation: str, key: str) -> Iterator[None]:
        try:
            yield
        except StratalogError:
            raise
        except (self._obstore.exceptions.BaseError, OSError) as error:
            raise map_store_error(error, operation, f"{self.url}/{key}") from error


def _info(meta: Any) -> ObjectInfo:
    modified_ms = round(meta["last_modified"].timestamp() * 1000)
    return ObjectInfo(meta["path"], meta["size"], modified_ms, meta["e_tag"])
