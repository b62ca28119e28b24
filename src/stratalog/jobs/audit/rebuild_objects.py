"""Rebuild the objects of a segment other than its records: indexes, producer snapshot, leader epochs.

    index, timeindex           from the headers of the records
    txnindex, snapshot         from the records, and the producer state at the end of the previous segment
    leader-epoch-checkpoint    from the epochs at the end of the previous segment, and the manifest

Each object is stored like the others of its segment, compressed and encrypted if they are. The manifest with the new
checksums follows. Until then a reader finds an object that does not match, as before.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from stratalog.errors import DamagedRemoteObjectError
from stratalog.jobs.audit.segment_history import NotProvedError, SegmentHistory
from stratalog.log.format import encode_epochs, producer_snapshot
from stratalog.log.index import txn_index
from stratalog.remote.reading import ALIGNMENT_BYTES, rebuild_indexes
from stratalog.remote.storage import Encoder, Encoding, ObjectKind, PlainView, SegmentManifest, SegmentReader
from stratalog.util import REAL_FILESYSTEM, File, crc32c

_INDEXES: Final = (ObjectKind.OFFSET_INDEX, ObjectKind.TIME_INDEX)


@dataclass(frozen=True, slots=True)
class Remade:
    """The new contents of a segment, and the manifest, which is stored last."""

    manifest: SegmentManifest
    contents: Mapping[ObjectKind, bytes]
    #: The kinds whose content is the same as before, according to the manifest.
    as_before: frozenset[ObjectKind]


def remake(view: PlainView, manifest: SegmentManifest, kinds: Iterable[ObjectKind], *, is_dry: bool = False) -> Remade:
    """Rebuild contents and store them, all or none. Return the manifest that lists them without storing it.

    A dry run reads and proves the same, but stores nothing. Raises NotProvedError, and changes nothing, if the records
    are damaged or the bucket does not prove the contents.
    """
    wanted = list(kinds)
    contents: dict[ObjectKind, bytes] = {}
    entry_size = manifest.offset_index_entry_size
    if any(kind in _INDEXES for kind in wanted):
        indexes, entry_size = _indexes(view.reader, manifest)
        contents |= {kind: data for kind, data in indexes.items() if kind in wanted}
    history = SegmentHistory(view, manifest)
    if ObjectKind.TXN_INDEX in wanted:
        contents[ObjectKind.TXN_INDEX] = _transactions(history, manifest)
    if ObjectKind.PRODUCER_SNAPSHOT in wanted:
        contents[ObjectKind.PRODUCER_SNAPSHOT] = _snapshot(history, manifest)
    if ObjectKind.LEADER_EPOCHS in wanted:
        contents[ObjectKind.LEADER_EPOCHS] = encode_epochs(history.leader_epochs())
    as_before = frozenset(kind for kind, data in contents.items() if _is_as_before(manifest, kind, data))
    if is_dry:
        return Remade(manifest, contents, as_before)
    encoder = Encoder(view.inner, _encoding_of(view, manifest), manifest.metadata(), REAL_FILESYSTEM)
    objects = {kind: encoder.put(kind, data) for kind, data in contents.items()}
    changed = replace(manifest, objects={**manifest.objects, **objects})
    if ObjectKind.OFFSET_INDEX in contents:
        changed = replace(changed, offset_index_entry_size=entry_size)
    return Remade(changed, contents, as_before)


def _is_as_before(manifest: SegmentManifest, kind: ObjectKind, data: bytes) -> bool:
    noted = manifest.objects.get(kind)
    return noted is not None and noted.crc32c is not None and (noted.size, noted.crc32c) == (len(data), crc32c(data))


def _encoding_of(view: PlainView, manifest: SegmentManifest) -> Encoding:
    """Return the encoding of a segment's contents. Raises RemoteStorageError that names a missing key."""
    keyring = view.reader.keys.keyring.current()
    if manifest.encryption is None:
        return Encoding(manifest.compression)
    keyring.segment_key(manifest.encryption.key_id, manifest.segment_id, manifest.key())
    return Encoding(manifest.compression, replace(keyring, active_id=manifest.encryption.key_id))


def _transactions(history: SegmentHistory, manifest: SegmentManifest) -> bytes:
    if manifest.txn_index_empty:
        return b""
    producers = history.producers_behind()
    aborted = producers.aborted_from(manifest.base_offset)
    stored = manifest.objects.get(ObjectKind.TXN_INDEX)
    noted = None if stored is None else stored.size // txn_index.ENTRY_SIZE
    if producers.begins_at is None and noted is not None and noted != len(aborted):
        raise NotProvedError(
            f"{manifest.key(ObjectKind.TXN_INDEX)}: it had {noted} aborted transactions, the records show "
            f"{len(aborted)}"
        )
    return b"".join(map(txn_index.encode_entry, aborted))


def _snapshot(history: SegmentHistory, manifest: SegmentManifest) -> bytes:
    producers = history.producers_behind()
    if producers.begins_at is not None:
        raise NotProvedError(
            f"{manifest.key(ObjectKind.PRODUCER_SNAPSHOT)}: the producer state before offset {producers.begins_at} is "
            "not in the bucket"
        )
    entries = {entry.producer_id: entry for entry in producers.replay.entries()}
    table_size = 16
    while len(entries) * 4 > table_size * 3:
        table_size *= 2
    order = producer_snapshot.hash_order(entries, table_size)
    return producer_snapshot.encode([entries[producer_id] for producer_id in order])


def _indexes(reader: SegmentReader, manifest: SegmentManifest) -> tuple[dict[ObjectKind, bytes], int]:
    """Return both indexes, and the entry size of the offset index."""
    with tempfile.TemporaryDirectory(prefix="stratalog-index-") as directory:
        paths = {kind: Path(directory) / f"{manifest.base_offset:020d}.{kind.value}" for kind in _INDEXES}
        records = StoredRecords(reader, manifest)
        try:
            entry_size = rebuild_indexes(
                records,
                manifest.metadata(),
                paths[ObjectKind.OFFSET_INDEX],
                paths[ObjectKind.TIME_INDEX],
                REAL_FILESYSTEM,
                entry_size=manifest.offset_index_entry_size,
            )
        except DamagedRemoteObjectError as error:
            raise NotProvedError(str(error)) from error
        return {kind: REAL_FILESYSTEM.read_bytes(path) for kind, path in paths.items()}, entry_size


class StoredRecords(File):
    """The records of a remote segment as a file. Every read is compared with the manifest's checksums."""

    def __init__(self, reader: SegmentReader, manifest: SegmentManifest) -> None:
        super().__init__(manifest.key(), -1)
        self._reader = reader
        self._manifest = manifest

    def size(self) -> int:
        return self._manifest.segment_size_in_bytes

    def pread(self, size: int, position: int) -> bytes:
        """Read to the end of a checksummed block, which may be more than `size`. Raises RemoteStorageError."""
        end = -(-(position + size) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        return bytes(self._reader.read_range(self._manifest, ObjectKind.LOG, position, end))
