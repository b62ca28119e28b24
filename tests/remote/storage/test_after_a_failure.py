"""What the storage of the remote tier keeps from one segment to the next, with the work on one failing at every step.

Invariant: the segments behind it come back byte for byte, lie as their manifests say, and hold nothing of the one that
failed; that one is stored too, once nothing fails any more.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from typing_extensions import Buffer

from stratalog.errors import DamagedRemoteObjectError, RetriableRemoteStorageError, StratalogError
from stratalog.inspect.bucket_catalog import list_remote_segments
from stratalog.inspect.manifest_cache import ManifestCache, _weight
from stratalog.remote.api.interfaces import LogSegmentData, RemoteLogSegmentMetadata
from stratalog.remote.storage.chunk_codec import AesGcm, ChunkCodec, Compression
from stratalog.remote.storage.chunks import ChunkIndex
from stratalog.remote.storage.encoder import Encoding
from stratalog.remote.storage.keyring import Keyring, key_id
from stratalog.remote.storage.layouts import ReadKeys, SegmentReader
from stratalog.remote.storage.manifest import BLOCK_BYTES
from stratalog.remote.storage.object_names import ObjectKey, ObjectKind
from stratalog.remote.storage.object_store import ObjectStore, Uploaded
from stratalog.remote.storage.rsm import ObjectStoreRemoteStorageManager
from stratalog.testing.failing_filesystem import EVERYTHING, FailingFileSystem
from stratalog.testing.faulty_store import FaultPlan, FaultyObjectStore, StoreFault
from tests.remote.storage.segments import make_segment

KEY = bytes(range(32))
KEYRING = Keyring({key_id(KEY): KEY}, key_id(KEY))
ENCODINGS = {
    "plain": Encoding(),
    "zstd": Encoding(Compression.ZSTD),
    "zstd and aes": Encoding(Compression.ZSTD, KEYRING),
}
SIZE = BLOCK_BYTES + 777

Segment = tuple[RemoteLogSegmentMetadata, LogSegmentData, dict[ObjectKind, bytes]]


def segments(directory: Path) -> list[Segment]:
    """The first one and one of another topic."""
    first, other = make_segment(directory, 1, SIZE), make_segment(directory, 2, SIZE)
    partition = replace(other[0].topic_id_partition, topic="others")
    return [first, (_of(other[0], partition), *other[1:])]


def _of(metadata: RemoteLogSegmentMetadata, partition: object) -> RemoteLogSegmentMetadata:
    segment_id = replace(metadata.segment_id, topic_id_partition=partition)  # type: ignore[arg-type]
    return replace(metadata, segment_id=segment_id)


def expect_stored(store: ObjectStore, rsm: ObjectStoreRemoteStorageManager, segment: Segment) -> None:
    """A client that wrote the segment reads what was in its files, and so does a new process."""
    metadata, _, contents = segment
    for reader in (rsm.reader, SegmentReader(store, ReadKeys(KEYRING))):
        manifest = reader.manifest(ObjectKey.of(metadata, ObjectKind.LOG))
        assert {kind: bytes(reader.read(manifest, kind)) for kind in manifest.objects} == contents
    for kind, stored in manifest.objects.items():
        assert store.head(manifest.key(kind)).size == stored.stored_size


@pytest.mark.parametrize("fault", [StoreFault.UNAVAILABLE, StoreFault.LOST_ANSWER])
@pytest.mark.parametrize("name", ENCODINGS)
def test_segments_are_copied_as_by_a_new_process_after_a_store_that_failed_at_any_step(
    tmp_path: Path, name: str, fault: StoreFault
) -> None:
    first, other = segments(tmp_path)
    step = 0
    while True:
        step += 1
        faults = FaultPlan()
        inner = ObjectStore.from_url("memory:///")
        rsm = ObjectStoreRemoteStorageManager(
            FaultyObjectStore(inner, faults), encoding=ENCODINGS[name], keys=ReadKeys(KEYRING)
        )
        faults.at(step, fault)
        try:
            rsm.copy_log_segment_data(*first[:2])
            has_failed = False
        except StratalogError:
            has_failed = True
        faults.heal()
        for segment in (other, first):
            rsm.copy_log_segment_data(*segment[:2])
            expect_stored(inner, rsm, segment)
        rsm.close()
        if not has_failed:
            break
    assert step > 10


@pytest.mark.parametrize("name", ENCODINGS)
def test_segments_are_copied_as_by_a_new_process_after_files_that_failed_at_any_step(tmp_path: Path, name: str) -> None:
    first, other = segments(tmp_path)
    step = 0
    while True:
        fs = FailingFileSystem()
        inner = ObjectStore.from_url("memory:///")
        rsm = ObjectStoreRemoteStorageManager(inner, fs=fs, encoding=ENCODINGS[name], keys=ReadKeys(KEYRING))
        fs.fail_once(tmp_path, errno.EIO, after=step, operations=EVERYTHING)
        with contextlib.suppress(StratalogError, OSError):
            rsm.copy_log_segment_data(*first[:2])
        if not fs.has_failed:
            break
        for segment in (other, first):
            rsm.copy_log_segment_data(*segment[:2])
            expect_stored(inner, rsm, segment)
        rsm.close()
        step += 1
    assert step >= 3


class BrokenUpload(FaultyObjectStore):
    """An upload in pieces breaks off behind `pieces` of them, once."""

    pieces: int | None = None

    def put_pieces(
        self,
        key: str,
        pieces: Iterable[Buffer],
        size_max: int,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> Uploaded:
        wanted, self.pieces = self.pieces, None
        if wanted is None:
            return super().put_pieces(key, pieces, size_max, progress=progress)
        for number, _ in enumerate(pieces):
            if number == wanted:
                break
        raise RetriableRemoteStorageError("the connection to the store broke")


@pytest.mark.parametrize("pieces", range(3))
@pytest.mark.parametrize("name", ["zstd", "zstd and aes"])
def test_an_upload_that_broke_off_between_chunks_leaves_nothing_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, pieces: int
) -> None:
    monkeypatch.setattr("stratalog.remote.storage.encoder.UPLOAD_PART_BYTES", 1_000)
    first, other = segments(tmp_path)
    inner = ObjectStore.from_url("memory:///")
    store = BrokenUpload(inner, FaultPlan())
    rsm = ObjectStoreRemoteStorageManager(store, encoding=ENCODINGS[name], keys=ReadKeys(KEYRING))
    store.pieces = pieces
    with pytest.raises(RetriableRemoteStorageError):
        rsm.copy_log_segment_data(*first[:2])
    for segment in (other, first):
        rsm.copy_log_segment_data(*segment[:2])
        expect_stored(inner, rsm, segment)
    rsm.close()


@pytest.mark.parametrize("cipher", [None, AesGcm(KEY)])
@pytest.mark.parametrize("compression", list(Compression))
def test_a_chunk_decodes_the_same_after_one_that_failed_anywhere(
    compression: Compression, cipher: AesGcm | None
) -> None:
    codec = ChunkCodec(compression, cipher)
    secret = codec.encode("secret", 0, 1, b"secret" * 50)
    public = codec.encode("public", 0, 1, b"public" * 40)
    chunks = {size: ChunkIndex(size, 1_000, (1,)).chunk(0) for size in (300, 240)}
    for position in range(len(secret)):
        flipped = secret[:position] + bytes([secret[position] ^ 4]) + secret[position + 1 :]
        for damaged in (secret[:position], flipped):
            with contextlib.suppress(DamagedRemoteObjectError):
                codec.decode("secret", chunks[300], 1, damaged)
            assert bytes(codec.decode("public", chunks[240], 1, public)) == b"public" * 40
    again = codec.encode("public", 0, 1, b"public" * 40)
    assert cipher is not None or again == public
    assert bytes(codec.decode("public", chunks[240], 1, again)) == b"public" * 40


# No checksum covers a manifest itself: of flipped bits only those are found that make it impossible.
@pytest.mark.parametrize("fault", [StoreFault.UNAVAILABLE, StoreFault.DENIED, StoreFault.LOST_ANSWER, StoreFault.SHORT])
@pytest.mark.parametrize("bytes_max", [None, 9_000])
def test_manifests_are_listed_as_without_a_cache_after_a_store_that_failed_at_any_step(
    tmp_path: Path, fault: StoreFault, bytes_max: int | None
) -> None:
    inner = ObjectStore.from_url("memory:///")
    rsm = ObjectStoreRemoteStorageManager(inner)
    for metadata, data, _ in segments(tmp_path):
        rsm.copy_log_segment_data(metadata, data)
    rsm.close()
    wanted = list_remote_segments(inner)
    assert {manifest.topic for manifest in wanted} == {"flights", "others"}
    step = 0
    while True:
        step += 1
        cache, faults = ManifestCache(bytes_max), FaultPlan()
        store = FaultyObjectStore(inner, faults)
        faults.at(step, fault)
        with contextlib.suppress(StratalogError):
            list_remote_segments(store, ["flights"], cache=cache)
        if len(faults.steps) < step:
            break
        faults.heal()
        for topics in (["others"], ["flights"], None, None):
            expected = [each for each in wanted if topics is None or each.topic in topics]
            assert list_remote_segments(store, topics, cache=cache) == expected, (step, topics)
        assert cache._bytes == sum(_weight(each) for _, each in cache._known.values())
    assert step > 3
