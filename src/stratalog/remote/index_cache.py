"""Indexes of remote segments, kept as files on the local disk.

`<directory>/<start offset>_<segment id>.index`, `.timeindex`, `.txnindex`, as Kafka's `RemoteIndexCache` names them; a
segment without aborted transactions has an empty `.txnindex`. A file is written as `.tmp` and renamed. What is in the
directory at start is used again if it is complete and passes its checks. Entries weigh their bytes; W-TinyLFU (moka)
decides which go when the limit is passed, and idle ones go after a time. An entry's files go with it; whoever uses it at
that moment has them open, and goes on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from stratalog.errors import (
    CorruptIndexError,
    DataDirError,
    RemoteResourceNotFoundError,
    RetriableRemoteStorageError,
)
from stratalog.log.file_names import OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from stratalog.log.offset_index import OffsetIndex
from stratalog.log.offset_index_format import LARGE, LEGACY
from stratalog.log.time_index import TimeIndex
from stratalog.log.txn_index import TransactionIndex
from stratalog.remote.api import IndexType, RemoteLogSegmentMetadata, RemoteStorageManager
from stratalog.util.filesystem import REAL_FILESYSTEM, FileSystem
from stratalog.util.uuids import uuid_from_base64, uuid_to_base64

logger = logging.getLogger(__name__)


_TMP_SUFFIX = ".tmp"
_SUFFIXES = {
    IndexType.OFFSET: OFFSET_INDEX_SUFFIX,
    IndexType.TIMESTAMP: TIME_INDEX_SUFFIX,
    IndexType.TRANSACTION: TXN_INDEX_SUFFIX,
}
#: Entries looked at to tell the two formats of an offset index apart.
_PROBED_ENTRIES = 64


class RemoteIndexes:
    """The three indexes of one remote segment: open, mapped, and readable even when their files have gone."""

    def __init__(self, key: UUID, stem: Path, start_offset: int, entry_size: int, fs: FileSystem) -> None:
        self.key = key
        self._stem = stem
        self._fs = fs
        self.offset_index = OffsetIndex.open(
            self._path(OFFSET_INDEX_SUFFIX),
            start_offset,
            max_size=0,
            fs=fs,
            writable=False,
            entry_size=entry_size,
        )
        self.time_index = TimeIndex.open(
            self._path(TIME_INDEX_SUFFIX), start_offset, max_size=0, fs=fs, writable=False
        )
        self.txn_index = TransactionIndex(self._path(TXN_INDEX_SUFFIX), start_offset, fs=fs)
        self.size_bytes = sum(fs.size(self._path(suffix)) for suffix in _SUFFIXES.values())
        self.users = 0
        self.evicted = False

    def _path(self, suffix: str) -> Path:
        return self._stem.with_name(self._stem.name + suffix)

    def check(self) -> None:
        """Look at the indexes, which maps them too; CorruptIndexError for damage."""
        self.offset_index.sanity_check()
        self.time_index.sanity_check()
        self.txn_index.sanity_check()

    def close(self) -> None:
        self.offset_index.close()
        self.time_index.close()
        self.txn_index.close()

    def remove_files(self) -> None:
        for suffix in _SUFFIXES.values():
            self._fs.remove(self._path(suffix))


class RemoteIndexCache:
    """See the module. Thread-safe; one download for a segment at a time."""

    def __init__(
        self,
        directory: Path,
        rsm: RemoteStorageManager,
        *,
        capacity_bytes: int,
        ttl_ms: int = -1,
        fs: FileSystem = REAL_FILESYSTEM,
    ) -> None:
        """`ttl_ms`: entries that nobody used for so long go; -1 keeps them. The directory is made when it is missing.

        Raises DataDirError.
        """
        from moka_py import Moka

        self._directory = directory
        self._rsm = rsm
        self._fs = fs
        #: Held around every call of the cache: it runs `_evicted.append` on the thread that calls it.
        self._lock = threading.RLock()
        self._loading: dict[UUID, threading.Lock] = {}
        #: Whose files lie under a key's names: an entry that is replaced must not take its successor's.
        self._owners: dict[UUID, RemoteIndexes | None] = {}
        self._evicted: list[RemoteIndexes] = []
        self._cache: Moka[UUID, RemoteIndexes] = Moka(
            capacity_bytes,
            tti=None if ttl_ms < 0 else ttl_ms / 1000,
            eviction_listener=lambda _key, indexes, _cause: self._evicted.append(indexes),
            weigher=lambda _key, indexes: indexes.size_bytes,
        )
        try:
            fs.make_dirs(directory)
            self._load_from_disk()
        except OSError as error:
            raise DataDirError(
                f"the remote index cache {directory} cannot be used: {error.strerror or error}"
            ) from error

    # --- lookups ----------------------------------------------------------------------------------------------------

    @contextmanager
    def indexes(self, metadata: RemoteLogSegmentMetadata) -> Iterator[RemoteIndexes]:
        """The indexes of a segment, downloaded if they are not here; they stay open until the block ends.

        Raises RemoteStorageError.
        """
        found = self._acquire(metadata)
        try:
            yield found
        finally:
            with self._lock:
                found.users -= 1
                if found.evicted and found.users == 0:
                    found.close()

    def invalidate(self, segment_id: UUID) -> None:
        """Forget the indexes of a segment: it was deleted, or they turned out to be wrong."""
        with self._lock:
            self._cache.remove(segment_id)
            self._settle()

    @property
    def size_bytes(self) -> int:
        with self._lock:
            self._settle()
            return self._cache.weighted_size()

    def __len__(self) -> int:
        with self._lock:
            self._settle()
            return self._cache.count()

    def close(self) -> None:
        """Close what is open; the files stay for the next start."""
        with self._lock:
            self._owners.clear()
            self._cache.clear()
            self._settle()

    # --- entries ----------------------------------------------------------------------------------------------------

    def _acquire(self, metadata: RemoteLogSegmentMetadata) -> RemoteIndexes:
        key = metadata.segment_id.id
        while True:
            with self._lock:
                found = self._cache.get(key)
                if found is not None and not found.evicted:
                    found.users += 1
                    return found
                self._settle()
                loading = self._loading.setdefault(key, threading.Lock())
            with loading:
                with self._lock:
                    if self._loading.get(key) is not loading:
                        continue  # somebody else has loaded it meanwhile
                    self._owners[key] = None
                loaded: RemoteIndexes | None = None
                try:
                    loaded = self._download(metadata)
                finally:
                    with self._lock:  # both at once: nobody may begin to load between the two
                        del self._loading[key]
                        if loaded is not None:
                            loaded.users += 1
                            self._owners[key] = loaded
                            self._cache.set(key, loaded)
                            self._settle()
                return loaded

    def _settle(self) -> None:
        """Let go of what the cache has evicted; the caller holds the lock."""
        self._cache.run_pending_tasks()
        evicted, self._evicted[:] = list(self._evicted), []
        for indexes in evicted:
            indexes.evicted = True
            if self._owners.get(indexes.key) is indexes:
                del self._owners[indexes.key]
                indexes.remove_files()
            if indexes.users == 0:
                indexes.close()

    def _download(self, metadata: RemoteLogSegmentMetadata) -> RemoteIndexes:
        stem = self._directory / f"{metadata.start_offset}_{uuid_to_base64(metadata.segment_id.id)}"
        for index_type, suffix in _SUFFIXES.items():
            try:
                data = self._fetch(metadata, index_type)
            except RemoteResourceNotFoundError:
                if index_type is not IndexType.TRANSACTION:
                    raise
                data = b""
            self._write(stem.with_name(stem.name + suffix), data)
        indexes = self._open(metadata.segment_id.id, stem, metadata.start_offset, metadata)
        try:
            indexes.check()
        except CorruptIndexError:
            indexes.close()
            indexes.remove_files()
            raise
        return indexes

    def _fetch(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        if index_type is IndexType.TRANSACTION and metadata.txn_index_empty:
            return b""
        return self._rsm.fetch_index(metadata, index_type)

    def _write(self, path: Path, data: bytes) -> None:
        tmp = path.with_name(path.name + _TMP_SUFFIX)
        try:
            with self._fs.open(tmp, create=True) as file:
                file.truncate(0)
                file.write_at(data, 0)
            self._fs.rename(tmp, path)
        except OSError as error:
            raise RetriableRemoteStorageError(
                f"{path} cannot be written: {error.strerror or error}; the remote index cache needs room there"
            ) from error

    def _open(
        self, key: UUID, stem: Path, start_offset: int, metadata: RemoteLogSegmentMetadata | None
    ) -> RemoteIndexes:
        path = stem.with_name(stem.name + OFFSET_INDEX_SUFFIX)
        return RemoteIndexes(
            key, stem, start_offset, self._entry_size(path, start_offset, metadata), self._fs
        )

    def _entry_size(self, path: Path, start_offset: int, metadata: RemoteLogSegmentMetadata | None) -> int:
        """Which of the two formats a file holds: the one in which its entries ascend and lie within the segment."""
        for form in (LEGACY, LARGE):
            index = OffsetIndex.open(
                path, start_offset, max_size=0, fs=self._fs, writable=False, entry_size=form.entry_size
            )
            with index:
                if _is_plausible(index, metadata):
                    return form.entry_size
        raise CorruptIndexError(f"{path} is an offset index in neither of the two formats")

    def _load_from_disk(self) -> None:
        """Take over complete entries of an earlier process, and remove everything else."""
        stems: dict[str, set[str]] = {}
        for name in self._fs.list_dir(self._directory):
            stem, dot, suffix = name.rpartition(".")
            if dot and dot + suffix in _SUFFIXES.values():
                stems.setdefault(stem, set()).add(dot + suffix)
            else:
                self._fs.remove(self._directory / name)
        for stem, suffixes in stems.items():
            try:
                start, separator, segment_id = stem.partition("_")
                if not separator or len(suffixes) < len(_SUFFIXES):
                    raise ValueError(stem)
                indexes = self._open(uuid_from_base64(segment_id), self._directory / stem, int(start), None)
                indexes.check()
            except (ValueError, CorruptIndexError):
                for suffix in suffixes:
                    self._fs.remove(self._directory / (stem + suffix))
            else:
                self._owners[indexes.key] = indexes
                self._cache.set(indexes.key, indexes)
        self._settle()


def _is_plausible(index: OffsetIndex, metadata: RemoteLogSegmentMetadata | None) -> bool:
    try:
        index.sanity_check()
    except CorruptIndexError:
        return False
    before = (index.base_offset - 1, -1)
    last = index.entries - 1
    for slot in (*range(min(last, _PROBED_ENTRIES)), last) if last >= 0 else ():
        entry = index.entry(slot)
        if entry.offset <= before[0] or entry.position <= before[1]:
            return False
        if metadata is not None and (
            entry.offset > metadata.end_offset or entry.position >= metadata.segment_size_bytes
        ):
            return False
        before = entry
    return True
