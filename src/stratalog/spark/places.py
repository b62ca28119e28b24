"""Where the bytes of segments lie, and reading them: local files and objects of the remote tier behind one interface.

A `Place` is a plain value that goes to the workers; `Places` turns it into bytes there.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from typing_extensions import Buffer

from stratalog.errors import RemoteResourceNotFoundError
from stratalog.remote.storage.plain_view import PlainView, open_bucket
from stratalog.util.filesystem import REAL_FILESYSTEM, File, FileSystem

#: Kafka renames a segment's files so and removes them a minute later.
_DELETED_SUFFIX: Final = ".deleted"


class Tier(enum.Enum):
    LOCAL = "local"
    REMOTE = "remote"


@dataclass(frozen=True, slots=True)
class Place:
    """A local path, or a key in the remote store."""

    tier: Tier
    name: str

    def __str__(self) -> str:
        return self.name


class PlaceMissingError(Exception):
    """A file or object is not there (any more). Private signal; callers turn it into what it means for them."""


@dataclass(slots=True)
class Places:
    """Reads bytes of both tiers. Picklable: files and the store's client are opened where they are used. Thread-safe.

    `bytes_read` counts what was asked of files and store, for tests and benchmarks.
    """

    remote_url: str | None = None
    remote_options: Mapping[str, str] = field(default_factory=dict)
    bytes_read: int = 0
    fs: FileSystem = REAL_FILESYSTEM
    _store: PlainView | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __reduce__(self) -> tuple[object, ...]:
        return (Places, (self.remote_url, dict(self.remote_options)))

    @property
    def store(self) -> PlainView:
        """The remote store, in which every segment lies plain; UsageError when its URL or options cannot be used."""
        with self._lock:
            if self._store is None:
                if self.remote_url is None:
                    raise ValueError("there is no remote store")
                self._store = open_bucket(self.remote_url, self.remote_options)
            return self._store

    def describe(self, place: Place) -> str:
        """Path or URL, for messages."""
        return place.name if place.tier is Tier.LOCAL else f"{self.remote_url}/{place.name}"

    def read(self, place: Place) -> bytes:
        """All bytes of a small file or object. PlaceMissingError, RemoteStorageError, OSError."""
        if place.tier is Tier.LOCAL:
            with self.open_local(place) as file:
                data = file.pread(file.size(), 0)
        else:
            try:
                data = bytes(self.store.get(place.name))
            except RemoteResourceNotFoundError as error:
                raise PlaceMissingError(str(error)) from error
        self._count(len(data))
        return data

    def read_range(self, place: Place, start: int, end: int) -> Buffer:
        """Bytes [start, end), fewer only where the file or object ends. Errors as `read`."""
        if place.tier is Tier.LOCAL:
            with self.open_local(place) as file:
                data: Buffer = file.pread(end - start, start)
        else:
            data = self.get_range(place, start, end)
        self._count(memoryview(data).nbytes)
        return data

    def get_range(self, place: Place, start: int, end: int) -> Buffer:
        """A ranged get of the remote store, not counted. Errors as `read`."""
        try:
            return self.store.get_range(place.name, start, end)
        except RemoteResourceNotFoundError as error:
            raise PlaceMissingError(str(error)) from error

    def open_local(self, place: Place) -> File:
        """Open a local file, also one that was marked as deleted meanwhile. PlaceMissingError when it is gone."""
        for name in (place.name, place.name + _DELETED_SUFFIX, place.name):
            try:
                return self.fs.open(name)
            except FileNotFoundError:
                continue
        raise PlaceMissingError(f"{place.name} is not there")

    def count(self, size: int) -> None:
        """Count bytes that were read through `open_local` or `get_range`."""
        self._count(size)

    def _count(self, size: int) -> None:
        with self._lock:
            self.bytes_read += size
