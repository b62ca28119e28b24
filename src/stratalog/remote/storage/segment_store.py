"""Common parts of the storage managers of both layouts: read segments by manifest, from one store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final

from typing_extensions import Buffer

from stratalog.errors import RemoteStorageError, RetriableRemoteStorageError
from stratalog.remote.api import IndexType, RemoteLogSegmentMetadata
from stratalog.remote.storage.deadline import DeadlineObjectStore
from stratalog.remote.storage.layouts import SegmentReader
from stratalog.remote.storage.manifest import SegmentManifest
from stratalog.remote.storage.object_names import KIND_OF_INDEX, ObjectKind
from stratalog.remote.storage.object_store import ObjectStore

DEFAULT_DEADLINE_MS: Final = 60_000


class SegmentStore(ABC):
    """The reading half of a `RemoteStorageManager`. Subclasses set the reader and the store in `configure`."""

    def __init__(self) -> None:
        self._reader: SegmentReader | None = None
        self._deadline_store: DeadlineObjectStore | None = None

    @abstractmethod
    def manifest(self, metadata: RemoteLogSegmentMetadata) -> SegmentManifest:
        """Return the manifest of a segment, and cache it."""

    @property
    def reader(self) -> SegmentReader:
        if self._reader is None:
            raise RemoteStorageError("the remote storage manager was not configured")
        return self._reader

    @property
    def store(self) -> ObjectStore:
        """All objects of the backend, with any prefix, and a deadline for each call."""
        return self.reader.store

    def fetch_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> Buffer:
        """Fetch whole blocks and compare them with their checksums, or whole chunks of a chunked segment."""
        manifest = self.manifest(metadata)
        end = manifest.segment_size_in_bytes if end_position is None else end_position
        return self.reader.read_range(manifest, ObjectKind.LOG, start_position, end)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        return self.reader.read(self.manifest(metadata), KIND_OF_INDEX[index_type])

    def close(self) -> None:
        if self._deadline_store is not None:
            self._deadline_store.close()

    def _check_sizes(self, sizes: Mapping[str, int]) -> None:
        """Compare sizes in the store, to detect a lost or cut object before any local data are deleted."""
        for key, size in sizes.items():
            found = self.store.head(key).size
            if found != size:
                raise RetriableRemoteStorageError(f"{key} has {found} bytes in the store after {size} were sent")
