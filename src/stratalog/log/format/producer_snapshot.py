"""`.snapshot`: what a partition knew of its producers when its log ended at the offset in the file's name.

    at  size  field                                 an entry, 46 bytes, big-endian:
     0     2  version = 1                             0     8  producer id
     2     4  CRC-32C of everything that follows      8     2  producer epoch
     6     4  count of entries                       10     4  last sequence, -1 if no batch is kept
    10    46  an entry for each producer             14     8  last offset, -1 if no batch is kept
                                                     22     4  offset delta: last offset - first offset of that batch
                                                     26     8  timestamp of that batch or of the last marker, in ms
                                                     34     4  coordinator epoch of the last marker, -1 for none
                                                     38     8  first offset of the open transaction, -1 for none

Of a producer's last five batches only the newest is kept. `docs/formats/producer_snapshot.md` has a worked example.
Source: Kafka's `ProducerSnapshot.json` and `ProducerStateManager`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from typing_extensions import Buffer

from stratalog.errors import CorruptSnapshotError
from stratalog.log.format.file_names import UNFINISHED_SUFFIX
from stratalog.util import REAL_FILESYSTEM, FileSystem, StrPath, crc32c

VERSION: Final = 1
HEADER: Final = struct.Struct(">hIi")
ENTRY: Final = struct.Struct(">qhiqiqiq")
CRC_COVERS_FROM: Final = 6


class ProducerSnapshotEntry(NamedTuple):
    """One producer. Field order is the byte order."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    current_txn_first_offset: int


def encode(entries: Sequence[ProducerSnapshotEntry]) -> bytes:
    """Return the bytes of a snapshot, in the order given (see `hash_order` for Kafka's)."""
    return bytes(encode_packed([ENTRY.pack(*entry) for entry in entries]))


def encode_packed(entries: Sequence[Buffer]) -> bytearray:
    """`encode` of entries that are bytes already."""
    snapshot = bytearray().join([bytes(HEADER.size), *entries])
    put_header(snapshot)
    return snapshot


def put_header(snapshot: bytearray) -> None:
    """Fill in the header in front of entries."""
    count = (len(snapshot) - HEADER.size) // ENTRY.size
    HEADER.pack_into(snapshot, 0, VERSION, 0, count)
    crc = crc32c(memoryview(snapshot)[CRC_COVERS_FROM:])
    HEADER.pack_into(snapshot, 0, VERSION, crc, count)


def decode(data: Buffer, name: str = "producer snapshot") -> list[ProducerSnapshotEntry]:
    """Decode a snapshot; `name` is for the message. Raises CorruptSnapshotError for any damage."""
    view = memoryview(data)
    if view.nbytes < HEADER.size:
        raise CorruptSnapshotError(f"{view.nbytes} bytes, a snapshot has at least {HEADER.size}", where=name)
    version, crc, count = HEADER.unpack_from(view)
    if version != VERSION:
        raise CorruptSnapshotError(f"version {version}, expected {VERSION}", where=name)
    computed = crc32c(view[CRC_COVERS_FROM:])
    if computed != crc:
        raise CorruptSnapshotError(f"stored CRC-32C {crc:#010x}, computed {computed:#010x}", where=name)
    if view.nbytes != HEADER.size + count * ENTRY.size:
        raise CorruptSnapshotError(
            f"{view.nbytes} bytes, but {count} entries make {HEADER.size + count * ENTRY.size}", where=name
        )
    return [ProducerSnapshotEntry(*fields) for fields in ENTRY.iter_unpack(view[HEADER.size :])]


def read(path: StrPath, fs: FileSystem = REAL_FILESYSTEM) -> list[ProducerSnapshotEntry]:
    """Read a snapshot. Raises CorruptSnapshotError or FileNotFoundError."""
    return decode(fs.read_bytes(path), str(path))


def write(
    path: StrPath,
    entries: Sequence[ProducerSnapshotEntry],
    fs: FileSystem = REAL_FILESYSTEM,
    *,
    sync: bool = True,
) -> None:
    """Write a snapshot whole or not at all (see `write_encoded`)."""
    write_encoded(path, encode(entries), fs, sync=sync)


def write_encoded(path: StrPath, data: Buffer, fs: FileSystem = REAL_FILESYSTEM, *, sync: bool = True) -> None:
    """Write the bytes of a snapshot to `<path>.tmp`, and give it its name once it is whole.

    A process that is killed or a full disk leaves a whole snapshot or none under the name; Kafka writes in place.
    `sync=False` leaves the sync of the file to the caller. The name is durable once the directory is synced.
    """
    target = Path(path)
    unfinished = target.with_name(target.name + UNFINISHED_SUFFIX)
    with fs.open(unfinished, create=True) as file:
        file.truncate(0)
        file.write_at(data, 0)
        if sync:
            file.sync()
    fs.rename(unfinished, target)


def hash_order(producer_ids: Iterable[int], table_size: int) -> list[int]:
    """Return the order in which a Java HashMap of `table_size` buckets gives these keys, put in this order."""
    mask = table_size - 1

    def bucket(producer_id: int) -> int:
        h = (producer_id ^ (producer_id & 0xFFFF_FFFF_FFFF_FFFF) >> 32) & 0xFFFF_FFFF
        return (h ^ h >> 16) & mask

    return sorted(producer_ids, key=bucket)
