"""Read the bytes at a `Place`: of local files, of objects of the remote tier, and the way to the brokers."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

from typing_extensions import Buffer

from stratalog.errors import RemoteResourceNotFoundError
from stratalog.inspect.place import Mark, Place, PlaceChangedError, PlaceMissingError, PlaceTier
from stratalog.log.format import DELETED_SUFFIX, SWAP_SUFFIX
from stratalog.remote.storage import PlainView, open_bucket
from stratalog.util import REAL_FILESYSTEM, File, FileSystem
from stratalog.wire.client import Cluster, ConnectionOptions


class _Origins(Protocol):
    """The places in which a query looks for segments."""

    @property
    def remote_url(self) -> str | None: ...

    @property
    def remote_options(self) -> Mapping[str, str]: ...

    @property
    def broker(self) -> ConnectionOptions | None: ...


@dataclass(slots=True)
class ByteSources:
    """Read the bytes of both tiers. Picklable: files, store and cluster are opened where they are used. Thread-safe."""

    remote_url: str | None = None
    remote_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    broker: ConnectionOptions | None = None
    bytes_read: int = 0
    fs: FileSystem = REAL_FILESYSTEM
    _store: PlainView | None = None
    _cluster: Cluster | None = None
    #: A worker waits for a broker that is about to come back; a plan fails at once.
    _is_patient: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __reduce__(self) -> tuple[object, ...]:
        return (_on_worker, (self.remote_url, dict(self.remote_options), self.broker))

    @classmethod
    def of(cls, options: _Origins) -> Self:
        """Return those of a query."""
        return cls(options.remote_url, options.remote_options, options.broker)

    @property
    def store(self) -> PlainView:
        """The remote store, in which every segment lies plain; UsageError when its URL or options cannot be used."""
        with self._lock:
            if self._store is None:
                if self.remote_url is None:
                    raise ValueError("there is no remote store")
                self._store = open_bucket(self.remote_url, self.remote_options)
            return self._store

    @property
    def cluster(self) -> Cluster:
        """The brokers. UnreachableError, AuthenticationError, UsageError."""
        with self._lock:
            if self._cluster is None:
                if self.broker is None:
                    raise ValueError("there is no broker")
                self._cluster = Cluster(self.broker, patient=self._is_patient)
            return self._cluster

    def close(self) -> None:
        """Close what was opened; it is opened again when it is used again."""
        with self._lock:
            if self._cluster is not None:
                self._cluster.close()
                self._cluster = None

    def describe(self, place: Place) -> str:
        """Path, URL or partition, for messages."""
        if place.tier is PlaceTier.REMOTE:
            return f"{self.remote_url}/{place.name}"
        return place.name if place.tier is PlaceTier.LOCAL else f"{place.name} through the broker"

    def read(self, place: Place) -> bytes:
        """Return all bytes of a small file or object. PlaceMissingError, RemoteStorageError, OSError."""
        if place.tier is PlaceTier.LOCAL:
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
        if place.tier is PlaceTier.LOCAL:
            with self.open_local(place) as file:
                data: Buffer = file.pread(end - start, start)
        else:
            data = self.get_range(place, start, end)
        self._count(memoryview(data).nbytes)
        return data

    def get_range(self, place: Place, start: int, end: int) -> Buffer:
        """Return a ranged get of the remote store, not counted. Errors as `read`."""
        try:
            return self.store.get_range(place.name, start, end)
        except RemoteResourceNotFoundError as error:
            raise PlaceMissingError(str(error)) from error

    def open_local(self, place: Place) -> File:
        """Open a local file under any name that it may have got since: swapped in, or marked as deleted.

        Raises PlaceMissingError when it is gone, PlaceChangedError when another file has its name.
        """
        plain = place.name.removesuffix(SWAP_SUFFIX)
        error: PlaceMissingError = PlaceMissingError(f"{place.name} is not there")
        for name in dict.fromkeys((place.name, plain, plain + DELETED_SUFFIX)):
            try:
                return self._open_proved(name, place.mark)
            except PlaceChangedError as changed:
                error = changed
            except FileNotFoundError:
                continue
        try:  # it may have been renamed between two looks
            return self._open_proved(plain, place.mark)
        except FileNotFoundError:
            raise error from None

    def is_in_place(self, place: Place) -> bool:
        """Return whether a local `.log` still is the file of that name, so that the files next to it belong to it."""
        try:
            self._open_proved(place.name, place.mark).close()
        except (PlaceMissingError, FileNotFoundError):
            return False
        return True

    def _open_proved(self, name: str, mark: Mark | None) -> File:
        file = self.fs.open(name)
        if mark is not None and not mark.is_in(file):
            file.close()
            raise PlaceChangedError(f"{name} is another file than when the query was planned")
        return file

    def count(self, size: int) -> None:
        """Count bytes that were read through `open_local` or `get_range`."""
        self._count(size)

    def _count(self, size: int) -> None:
        with self._lock:
            self.bytes_read += size


def _on_worker(
    remote_url: str | None, remote_options: Mapping[str, str], broker: ConnectionOptions | None
) -> ByteSources:
    return ByteSources(remote_url, remote_options, broker, _is_patient=True)
