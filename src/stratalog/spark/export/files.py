"""The files of a Parquet table, in a local (or mounted) directory or an object store.

Exactly-once relies on `create`: only one of several runs can create an entry of the log. In a directory that is a hard
link, in an object store a conditional put.
"""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from typing_extensions import Buffer

from stratalog.errors import RemoteResourceNotFoundError, UsageError
from stratalog.remote.storage import ObstoreObjectStore, open_store
from stratalog.util import REAL_FILESYSTEM, random_uuid

_READ_BYTES: Final = 8 * 1024 * 1024


class TableFiles(ABC):
    """Files below a table, named by paths with '/'. It is pickled for the workers."""

    location: str

    @abstractmethod
    def read(self, path: str) -> bytes:
        """FileNotFoundError."""

    @abstractmethod
    def create(self, path: str, data: bytes) -> bool:
        """Create a small file atomically and durably.

        Return False, and change nothing, if one with other content exists. Of callers with different content at most
        one ever gets True. After an error the file may exist.
        """

    @abstractmethod
    def list(self, directory: str = "") -> list[str]:
        """Return the paths of all files below a directory, sorted, with unfinished ones; none if it does not exist."""

    @abstractmethod
    def delete(self, paths: Sequence[str]) -> None:
        """Delete files. Missing ones are ignored."""

    @abstractmethod
    def writing(self, path: str) -> AbstractContextManager[Path]:
        """Return a local path for writing a file.

        If the `with` block succeeds, the file is at `path`, complete and durable.
        """


def open_table_files(to: str, options: Mapping[str, str]) -> LocalFiles | ObjectFiles:
    """Open a directory, `file:` URL, or URL of an object store with its options. Raises UsageError."""
    try:
        url = urlsplit(to)
    except ValueError:  # whose text may show a password
        raise UsageError("expected a directory or a URL such as s3://bucket/prefix: what is given is neither") from None
    if url.scheme == "file" or "://" not in to:
        root = Path(unquote(url.path)) if url.scheme == "file" else Path(to)
        if REAL_FILESYSTEM.exists(root) and not REAL_FILESYSTEM.is_dir(root):
            raise UsageError(f"{root} is a file; a Parquet table is a directory")
        return LocalFiles(root.absolute())
    return ObjectFiles(to, options)


class LocalFiles(TableFiles):
    """A directory that driver and workers share. Unfinished files are hidden: `.<name>.part`."""

    def __init__(self, root: Path) -> None:
        self.location = str(root)
        self._root = root

    def read(self, path: str) -> bytes:
        return REAL_FILESYSTEM.read_bytes(self._root / path)

    def create(self, path: str, data: bytes) -> bool:
        target = self._root / path
        part = _part_of(target, random_uuid().hex)
        REAL_FILESYSTEM.make_dirs(target.parent)
        try:
            with REAL_FILESYSTEM.open(part, create=True) as file:
                file.write_at(data, 0)
                file.sync()
            os.link(part, target)
        except FileExistsError:
            return self.read(path) == data
        finally:
            with suppress(FileNotFoundError):
                REAL_FILESYSTEM.remove(part)
        self._sync_dirs(target)
        return True

    def list(self, directory: str = "") -> list[str]:
        found = []
        for parent, _, names in os.walk(self._root / directory):
            found += [Path(parent, name).relative_to(self._root).as_posix() for name in names]
        return sorted(found)

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            with suppress(FileNotFoundError):
                REAL_FILESYSTEM.remove(self._root / path)

    @contextmanager
    def writing(self, path: str) -> Iterator[Path]:
        target = self._root / path
        part = _part_of(target, "part")
        REAL_FILESYSTEM.make_dirs(target.parent)
        try:
            yield part
            with REAL_FILESYSTEM.open(part) as file:
                file.sync()
            REAL_FILESYSTEM.rename(part, target)
        finally:
            with suppress(FileNotFoundError):
                REAL_FILESYSTEM.remove(part)
        self._sync_dirs(target)

    def _sync_dirs(self, target: Path) -> None:
        """Make the names of the file and of its parent directories durable."""
        for parent in target.parents:
            REAL_FILESYSTEM.sync_dir(parent)
            if parent == self._root:
                return


def _part_of(target: Path, suffix: str) -> Path:
    return target.with_name(f".{target.name}.{suffix}")


class ObjectFiles(TableFiles):
    """A prefix of an object store. Each process opens its own connection."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self.location = url
        self._options = dict(options)
        self._store: ObstoreObjectStore | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_store": None}

    @property
    def store(self) -> ObstoreObjectStore:
        """The store. Raises UsageError for an invalid URL or option."""
        if self._store is None:
            self._store = open_store(self.location, self._options, REAL_FILESYSTEM)
        return self._store

    def read(self, path: str) -> bytes:
        try:
            return bytes(self.store.get(path))
        except RemoteResourceNotFoundError as error:
            raise FileNotFoundError(f"{self.location}/{path}") from error

    def open(self, path: str) -> io.BufferedReader:
        """Open a file for partial reads of `_READ_BYTES` at a time. Raises RemoteStorageError."""
        return io.BufferedReader(_Ranges(self.store, path), _READ_BYTES)

    def create(self, path: str, data: bytes) -> bool:
        # A request repeated after a lost response finds its own object.
        return self.store.create(path, data) or self.read(path) == data

    def list(self, directory: str = "") -> list[str]:
        return sorted(each.key for each in self.store.list(directory))

    def delete(self, paths: Sequence[str]) -> None:
        self.store.delete(paths)

    @contextmanager
    def writing(self, path: str) -> Iterator[Path]:
        with TemporaryDirectory(prefix="stratalog-export-") as directory:
            part = Path(directory, "part")
            yield part
            self.store.put_file(path, part)


class _Ranges(io.RawIOBase):
    """An object as a file: each read is a request."""

    def __init__(self, store: ObstoreObjectStore, key: str) -> None:
        self._store = store
        self._key = key
        self._size = store.head(key).size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Buffer) -> int:
        into = memoryview(buffer).cast("B")
        data = self._store.get_range(self._key, self._position, self._position + into.nbytes)
        size = memoryview(data).nbytes
        into[:size] = data
        self._position += size
        return size
