"""Basic operations on an object store: a directory, memory, S3, GCS or Azure, all through obstore.

Every error is a `RemoteStorageError` whose one line names the operation, the object and what to do:
`RemoteResourceNotFoundError` for a missing object, `RetriableRemoteStorageError` for transient failures (unreachable,
timed out, throttled, 5xx), the base class for permanent ones (credentials, missing bucket, full disk).

Every request to a network store has a deadline (`StoreOptions.timeout_ms`, including the connection) and is retried at
most `max_retries` times within `retry_timeout_ms`. An operation of several requests (upload, listing) has one deadline
for each.
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

#: Larger objects are sent in parts of at least this size, and in no more parts than any store takes (S3: 10,000).
UPLOAD_PART_BYTES = 8 * 1024 * 1024
UPLOAD_PARTS_MAX = 10_000
#: Bound of the memory for concurrent parts, or one part if that is larger.
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
    """Size and CRC-32C of the bytes sent, and the returned entity tag."""

    size: int
    crc32c: int
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class UploadPlan:
    """The part size of an upload (the last one is smaller), and how many parts are sent concurrently."""

    part_bytes: int
    parts_at_once: int

    @classmethod
    def of(cls, size: int) -> UploadPlan:
        """Return the plan for `size` bytes. The part size grows in whole MiB to bound the number of parts."""
        needed = -(-size // UPLOAD_PARTS_MAX)
        part_bytes = max(UPLOAD_PART_BYTES, -(-needed // _MIB) * _MIB)
        return cls(part_bytes, max(1, _UPLOAD_MEMORY_BYTES // part_bytes))


class ObjectStore(ABC):
    """Keys are '/'-separated paths relative to the store's URL. Thread-safe."""

    url: str

    @staticmethod
    def from_url(url: str, options: Mapping[str, str] | None = None, fs: FileSystem = REAL_FILESYSTEM) -> ObjectStore:
        """Open `file:///dir`, `memory://name`, `s3://bucket/prefix`, `gs://...` or `az://...`.

        `options` are those of `StoreOptions`; all others are passed to obstore's store of that kind (`endpoint`,
        `access_key_id`, `secret_access_key`, `session_token`, `region`, ...). Missing S3 options are taken from AWS_*
        in the environment. Nothing is contacted yet. UsageError for an unusable URL or option.
        """
        from stratalog.remote.storage.opening import open_store  # it imports this module

        return open_store(url, options or {}, fs)

    @abstractmethod
    def put(self, key: str, data: Buffer) -> Uploaded:
        """Store an object atomically, replacing an existing one."""

    @abstractmethod
    def create(self, key: str, data: Buffer) -> bool:
        """Store a small object atomically unless it exists. Return whether it was created.

        Of several concurrent calls one succeeds. S3, GCS, Azure and directories ensure that; callers that depend on it
        with another store test it first. After an error, or an internal retry, the object may have been created.
        """

    @abstractmethod
    def put_file(self, key: str, path: Path, *, progress: Callable[[int], None] | None = None) -> Uploaded:
        """Store a file's content atomically, in parts (`UploadPlan`) with bounded memory.

        `progress` is called with the bytes read so far, every `UPLOAD_PART_BYTES`, and may raise to abort. A failed
        part alone is sent again, within the retries of the store.
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
        """Store the concatenation of `pieces`, at most `size_max` bytes; otherwise like `put_file`."""

    @abstractmethod
    def get(self, key: str) -> Buffer:
        """Return a whole object."""

    @abstractmethod
    def get_range(self, key: str, start: int, end: int) -> Buffer:
        """Return bytes [start, end) of an object. Fewer, even none, only at its end."""

    @abstractmethod
    def head(self, key: str) -> ObjectInfo:
        """Return size and time of an object."""

    @abstractmethod
    def list(self, directory: str = "") -> Iterator[ObjectInfo]:
        """Yield all objects below a directory, in pages. A missing directory is empty."""

    @abstractmethod
    def list_level(self, directory: str = "") -> Listing:
        """Return the direct content of a directory."""

    @abstractmethod
    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects in this order. Missing ones are no error."""

    def delete_together(self, keys: Sequence[str]) -> None:
        """Delete objects in any order, with one request for many if the store supports it.

        Missing ones are no error. After an error some may be deleted.
        """
        self.delete(keys)

    def check(self) -> None:
        """Contact the store once, to report a wrong URL or credential at startup."""
        self.list_level("")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"


class ForwardingObjectStore(ObjectStore):
    """Base class of stores around a store: every operation calls that of `inner` through `around`."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.url = inner.url

    def around(self, _operation: str, _key: str, call: Callable[[], _Result]) -> _Result:
        """Call `inner`. The operation is put, get, head, list or delete; a listing is read within the caller's loop."""
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
        """`directory` is that of a local store: its objects are synced, so that a put survives a crash."""
        import obstore  # start-up cost

        self.url = url
        self._obstore = obstore
        self._store = store
        self._directory = directory
        self._fs = fs

    def put(self, key: str, data: Buffer) -> Uploaded:
        view = memoryview(data).cast("B")
        with self._mapped("put", key):
            # The native layer needs a plain buffer; a small object takes one request.
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
                # One does not exist, or the server has no bulk request: single requests show which and why.
                self.delete(keys)
        else:
            self.delete(keys)

    def _whole(self, key: str, data: Any, expected: int) -> Buffer:
        """Return `data` if it has the announced length."""
        if len(data) != expected:
            raise RetriableRemoteStorageError(
                f"the body has {len(data)} bytes, {expected} were announced", where=f"get {self.url}/{key}"
            )
        return memoryview(data)

    def _sync(self, key: str) -> None:
        """Sync an object of a local store, with its parent directories."""
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
