"""The source of a dumped file: a path, or an object in a store. Read-only, by byte range."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from typing_extensions import Buffer

from stratalog.errors import RemoteResourceNotFoundError, UsageError
from stratalog.remote import storage
from stratalog.util import REAL_FILESYSTEM, File

_URL = re.compile(r"[a-z][a-z0-9]+://")


class DumpSource(Protocol):
    """A file of a fixed size. `name` is the one given; `location` is the absolute path or URL."""

    @property
    def name(self) -> str: ...

    @property
    def base_name(self) -> str: ...

    @property
    def location(self) -> str: ...

    @property
    def size(self) -> int: ...

    def read(self, start: int, end: int) -> Buffer:
        """Return bytes [start, end), fewer at the end of the file."""

    def sibling(self, base_name: str) -> DumpSource | None:
        """Return the file of that name in the same directory."""

    def close(self) -> None: ...


def read_all(source: DumpSource) -> Buffer:
    return source.read(0, source.size)


@contextmanager
def opened(name: str, store_options: Mapping[str, str]) -> Iterator[DumpSource]:
    """Open a path, `file:///path` or an object-store URL. Raises UsageError if it does not exist."""
    source = _open(name, store_options)
    try:
        yield source
    finally:
        source.close()


def _open(name: str, store_options: Mapping[str, str]) -> DumpSource:
    if name.startswith("file://"):
        return LocalSource(name, Path(name.removeprefix("file://")))
    if _URL.match(name):
        return _open_object(name, store_options)
    return LocalSource(re.sub("/{2,}", "/", name), Path(name))


class LocalSource:
    """A file on this machine, with its size at the time of opening."""

    def __init__(self, name: str, path: Path) -> None:
        if path.is_dir():
            raise UsageError(f"{name}: is a directory; give the files in it")
        try:
            self._file: File = REAL_FILESYSTEM.open(path)
        except OSError as error:
            raise UsageError(f"{name}: {error.strerror or error}") from None
        self.name = name
        self.path = path
        self.size = self._file.size()

    @property
    def base_name(self) -> str:
        return self.path.name

    @property
    def location(self) -> str:
        return os.path.abspath(self.path)

    def read(self, start: int, end: int) -> Buffer:
        return self._file.pread(max(0, min(end, self.size) - start), start)

    def sibling(self, base_name: str) -> DumpSource | None:
        path = self.path.with_name(base_name)
        return LocalSource(str(path), path) if path.is_file() else None

    def close(self) -> None:
        self._file.close()


class ObjectSource:
    """An object, read in ranges."""

    def __init__(self, store: storage.ObjectStore, directory_url: str, key: str) -> None:
        self._store = store
        self._directory_url = directory_url
        self.base_name = key
        self.size = store.head(key).size

    @property
    def name(self) -> str:
        return f"{self._directory_url}/{self.base_name}"

    @property
    def location(self) -> str:
        return self.name

    def read(self, start: int, end: int) -> Buffer:
        end = min(end, self.size)
        return self._store.get_range(self.base_name, start, end) if start < end else b""

    def sibling(self, base_name: str) -> DumpSource | None:
        try:
            return ObjectSource(self._store, self._directory_url, base_name)
        except RemoteResourceNotFoundError:
            return None

    def close(self) -> None:
        """Do nothing: nothing is held open."""


def _open_object(url: str, store_options: Mapping[str, str]) -> DumpSource:
    directory, _, key = url.rpartition("/")
    if not key or directory.endswith("/"):
        raise UsageError(f"{url}: expected the URL of an object")
    store = storage.ObjectStore.from_url(directory, store_options)
    try:
        return ObjectSource(store, directory, key)
    except RemoteResourceNotFoundError:
        raise UsageError(f"{url}: No such object") from None
