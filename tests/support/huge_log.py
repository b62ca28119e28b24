"""A partition directory whose first segment passes 2^31 and 2^32 bytes and takes next to no room: a valid log with
holes.

    with huge_directory() as home:                    # where files with holes cost no memory and no disk
        huge = write_huge_partition(home / "t-0")
        huge.landmarks                                # small batches around the borders, by base offset

Between the landmarks lie batches of one record whose value is zeros, so all but their first bytes are a hole in the
file; checksums are right throughout. A second, active segment of one batch follows.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from stratalog.log.format import EpochEntry, encode_epochs
from stratalog.log.format.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    log_file,
    offset_index_file,
    time_index_file,
)
from stratalog.log.format.offset_index_format import LARGE
from stratalog.log.index import time_index
from stratalog.records.batch_builder import build_batch
from stratalog.records.batch_format import ATTRIBUTES_AT, HEADER, HEADER_SIZE, LOG_OVERHEAD
from stratalog.records.record import Record
from stratalog.remote.storage.object_store import ObjectStore, ObstoreObjectStore, Uploaded
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager
from stratalog.util.checksum import crc32c
from stratalog.util.varint import encode_varlong

T0 = 1_700_000_000_000
FILLER_BYTES = 64 * 1024 * 1024
BORDERS = (2**31, 2**32)
RECORDS_IN_LANDMARK = 3

_ZEROS = bytes(1024 * 1024)


@contextmanager
def huge_directory() -> Iterator[Path]:
    """A temporary directory in memory where there is one: holes are read fast there."""
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="stratalog-huge-", dir=place) as path:
        yield Path(path)


@dataclass
class HugePartition:
    """What was written: the first segment's size and offsets, and where the landmarks begin."""

    directory: Path
    size: int = 0
    next_offset: int = 0
    #: Bytes of small batches by base offset, and the position of each.
    landmarks: dict[int, bytes] = field(default_factory=dict)
    positions: dict[int, int] = field(default_factory=dict)
    #: Base offset of the second segment, which has one batch.
    active_base: int = 0

    def timestamp_of(self, offset: int) -> int:
        """Of every record of the batch with this base offset."""
        return T0 + offset * 1000


def write_huge_partition(directory: Path, *, filler_bytes: int = FILLER_BYTES) -> HugePartition:
    """Make a directory as a clean shutdown leaves it: landmarks at 0, across and right behind each border, at the
    end."""
    directory.mkdir(parents=True)
    huge = HugePartition(directory)
    offsets, times = [], []
    with (directory / log_file(0)).open("wb") as log:

        def add(batch: bytes, whole_size: int, records: int) -> None:
            if huge.size:
                last_offset = huge.next_offset + records - 1
                offsets.append(LARGE.entry.pack(last_offset, huge.size))
                times.append(time_index.ENTRY.pack(huge.timestamp_of(huge.next_offset), last_offset))
            log.seek(huge.size)
            log.write(batch)
            huge.size += whole_size
            log.truncate(huge.size)
            huge.next_offset += records

        def landmark() -> None:
            base = huge.next_offset
            huge.landmarks[base], huge.positions[base] = _landmark(base, huge.timestamp_of(base)), huge.size
            add(huge.landmarks[base], len(huge.landmarks[base]), RECORDS_IN_LANDMARK)

        landmark()
        for border in BORDERS:
            across = border - 30  # a batch that begins before the border and ends behind it
            while huge.size < across:
                left = across - huge.size
                # The last one must not be too small to be a batch.
                size = left if left <= filler_bytes else min(filler_bytes, left - 4096)
                add(_filler(huge.next_offset, huge.timestamp_of(huge.next_offset), size), size, 1)
            landmark()
            landmark()
        size = filler_bytes // 2
        add(_filler(huge.next_offset, huge.timestamp_of(huge.next_offset), size), size, 1)
        landmark()
    (directory / offset_index_file(0)).write_bytes(b"".join(offsets))
    (directory / time_index_file(0)).write_bytes(b"".join(times))
    huge.active_base = huge.next_offset
    (directory / log_file(huge.active_base)).write_bytes(
        _landmark(huge.active_base, huge.timestamp_of(huge.active_base))
    )
    (directory / offset_index_file(huge.active_base)).write_bytes(b"")
    (directory / time_index_file(huge.active_base)).write_bytes(
        time_index.ENTRY.pack(huge.timestamp_of(huge.active_base), RECORDS_IN_LANDMARK - 1)
    )
    (directory / LEADER_EPOCH_CHECKPOINT).write_bytes(encode_epochs([EpochEntry(0, 0)]))
    return huge


def _landmark(base_offset: int, timestamp_ms: int) -> bytes:
    records = [
        Record(offset=n, timestamp_ms=timestamp_ms, key=b"key-%d" % (base_offset + n), value=b"landmark" * 5)
        for n in range(RECORDS_IN_LANDMARK)
    ]
    batch = bytearray(build_batch(records))
    HEADER.pack_into(batch, 0, *_based(batch, base_offset))
    return bytes(batch)


def _based(batch: bytearray, base_offset: int) -> tuple[int, ...]:
    return (base_offset, HEADER.unpack_from(batch)[1], 0, *HEADER.unpack_from(batch)[3:])


def _filler(base_offset: int, timestamp_ms: int, size: int) -> bytes:
    """The beginning of a batch of `size` bytes, of which all others are zero: one record, whose value is zeros."""
    value_size = size - HEADER_SIZE - 16
    while True:  # the lengths are of varying length themselves
        body = b"\0\0\0" + encode_varlong(-1) + encode_varlong(value_size)
        rest = len(body) + value_size + 1  # and no headers
        record = encode_varlong(rest) + body
        missing = size - HEADER_SIZE - len(record) - value_size - 1
        if missing == 0:
            break
        value_size += missing
    length, zeros = size - LOG_OVERHEAD, value_size + 1

    def header(crc: int) -> bytes:
        return HEADER.pack(base_offset, length, 0, 2, crc, 0, 0, timestamp_ms, timestamp_ms, -1, -1, -1, 1)

    crc = crc32c(header(0)[ATTRIBUTES_AT:] + record)
    for at in range(0, zeros, len(_ZEROS)):
        crc = crc32c(memoryview(_ZEROS)[: zeros - at], crc)
    return header(crc) + record


class SparseObjectStore(ObstoreObjectStore):
    """A store in a directory that leaves holes where a file has zeros."""

    @classmethod
    def at(cls, directory: Path) -> SparseObjectStore:
        opened = ObjectStore.from_url(directory.as_uri())
        assert isinstance(opened, ObstoreObjectStore)
        return cls(opened._store, opened.url, directory=directory)

    def put_file(self, key: str, path: Path, *, progress: object = None) -> Uploaded:
        assert self._directory is not None
        place = self._directory / key
        place.parent.mkdir(parents=True, exist_ok=True)
        crc = size = 0
        with path.open("rb", buffering=0) as source, place.open("wb", buffering=0) as target:
            while piece := source.read(len(_ZEROS)):
                crc = crc32c(piece, crc)
                if piece != _ZEROS[: len(piece)]:
                    target.seek(size)
                    target.write(piece)
                size += len(piece)
            target.truncate(size)
        return Uploaded(size, crc)


class SparseStorage(ObjectStoreRemoteStorageManager):
    """The storage plugin over a `SparseObjectStore`, to be named in a broker's configuration.

    Its option is `directory`.
    """

    def configure(self, configs: Mapping[str, str]) -> None:
        super().__init__(SparseObjectStore.at(Path(configs["directory"])))
