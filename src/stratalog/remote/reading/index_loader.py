"""Download, check and if necessary rebuild the indexes of a remote segment.

An index that is missing, cut, of another kind, or with a wrong checksum is fetched once more. If that fails too, offset
and time index are rebuilt from the segment's records (`index_rebuild`). The stored object stays unchanged: readers
never write remote segments (`stratalog tier repair` does).
"""

from __future__ import annotations

import logging
from pathlib import Path

from stratalog.errors import (
    CorruptIndexError,
    DamagedRemoteObjectError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from stratalog.log.index import TransactionIndex
from stratalog.remote.api import DescribesStoredSegments, IndexType, RemoteLogSegmentMetadata, RemoteStorageManager
from stratalog.remote.reading.index_rebuild import RemoteRecords, rebuild_indexes
from stratalog.remote.reading.remote_indexes import (
    RemoteIndexes,
    check_time_index,
    detect_entry_size,
    index_path,
    open_time_index,
)
from stratalog.util import FileSystem

logger = logging.getLogger(__name__)

TMP_SUFFIX = ".tmp"


class IndexLoader:
    """Thread-safe for different segments."""

    def __init__(self, rsm: RemoteStorageManager, fs: FileSystem) -> None:
        self._rsm = rsm
        self._fs = fs

    def load(self, metadata: RemoteLogSegmentMetadata, stem: Path, *, distrusted: bool = False) -> RemoteIndexes:
        """Return the indexes of a segment, as files beside `stem`.

        With `distrusted`, the stored ones are not read.

        Raises RemoteStorageError.
        """
        noted = self._noted_entry_size(metadata)
        why: Exception | None = CorruptIndexError("they point at other batches") if distrusted else None
        for _ in () if distrusted else range(2):
            try:
                entry_size = self._fetch_both(metadata, stem, noted)
            except RemoteResourceNotFoundError as error:
                why = error
                break
            except (CorruptIndexError, DamagedRemoteObjectError) as error:
                why = error
            else:
                why = None
                break
        if why is not None:
            logger.warning("Indexes of %s are damaged and are rebuilt: %s", metadata.segment_id, why)
            entry_size = self._rebuild(metadata, stem, noted)
        return RemoteIndexes(
            metadata.segment_id.id,
            stem,
            metadata.start_offset,
            entry_size,
            self._fs,
            are_from_records=why is not None,
            txn_damage=self._fetch_transactions(metadata, stem),
        )

    def _noted_entry_size(self, metadata: RemoteLogSegmentMetadata) -> int | None:
        if isinstance(self._rsm, DescribesStoredSegments):
            return self._rsm.stored_segment(metadata).offset_index_entry_size
        return None

    def _fetch_both(self, metadata: RemoteLogSegmentMetadata, stem: Path, noted: int | None) -> int:
        """Load offset and time index. Return the entry size of the former."""
        for index_type in (IndexType.OFFSET, IndexType.TIMESTAMP):
            self._write(index_path(stem, index_type), self._rsm.fetch_index(metadata, index_type))
        entry_size = detect_entry_size(
            index_path(stem, IndexType.OFFSET),
            metadata.start_offset,
            self._fs,
            metadata=metadata,
            noted=noted,
        )
        times = index_path(stem, IndexType.TIMESTAMP)
        with open_time_index(times, metadata.start_offset, self._fs) as index:
            check_time_index(index, metadata)
        return entry_size

    def _rebuild(self, metadata: RemoteLogSegmentMetadata, stem: Path, entry_size: int | None) -> int:
        wanted = [index_path(stem, index_type) for index_type in (IndexType.OFFSET, IndexType.TIMESTAMP)]
        making = [_tmp(path) for path in wanted]
        try:
            for path in making:
                self._fs.remove(path)
            records = RemoteRecords(self._rsm, metadata)
            entry_size = rebuild_indexes(records, metadata, making[0], making[1], self._fs, entry_size=entry_size)
            for path, final in zip(making, wanted, strict=True):
                self._fs.rename(path, final)
        except OSError as error:
            raise _no_room(stem, error) from error
        return entry_size

    def _fetch_transactions(self, metadata: RemoteLogSegmentMetadata, stem: Path) -> RemoteStorageError | None:
        """Load the transaction index, empty if there is none. Return what is wrong with a damaged one."""
        path = index_path(stem, IndexType.TRANSACTION)
        try:
            data = b"" if metadata.txn_index_empty else self._rsm.fetch_index(metadata, IndexType.TRANSACTION)
        except RemoteResourceNotFoundError:
            data = b""
        except DamagedRemoteObjectError as error:
            return self._no_transactions(metadata, path, error)
        self._write(path, data)
        index = TransactionIndex(path, metadata.start_offset, fs=self._fs)
        try:
            index.sanity_check()
        except CorruptIndexError as error:
            return self._no_transactions(metadata, path, error)
        finally:
            index.close()
        return None

    def _no_transactions(self, metadata: RemoteLogSegmentMetadata, path: Path, why: Exception) -> RemoteStorageError:
        self._fs.remove(path)
        return DamagedRemoteObjectError(
            f"the transaction index of {metadata.segment_id} is damaged, and transactions that began in earlier "
            "segments cannot be distinguished from its own; read these offsets uncommitted, or rebuild it with "
            f"'stratalog tier repair --deep': {why}"
        )

    def _write(self, path: Path, data: bytes) -> None:
        tmp = _tmp(path)
        try:
            with self._fs.open(tmp, create=True) as file:
                file.truncate(0)
                file.write_at(data, 0)
            self._fs.rename(tmp, path)
        except OSError as error:
            raise _no_room(path, error) from error


def _tmp(path: Path) -> Path:
    return path.with_name(path.name + TMP_SUFFIX)


def _no_room(path: Path, error: OSError) -> RetriableRemoteStorageError:
    return RetriableRemoteStorageError(
        f"{path} cannot be written: {error.strerror or error}; the remote index cache needs room there"
    )
